//! `runner converge` with the AWS provider: what somebody has changed by hand is healed, and nothing is replaced without approval.

use support::{Ended, TestDatastore};

use crate::aws::{api, provider, role, sandbox};
use crate::json;

const DESCRIPTION: &str = "as declared";

/// What somebody does in the AWS console: a request to IAM. Returns the answer, or its status if there is no such role.
async fn by_hand(action: &str, name: &str, more: &[(&str, &str)]) -> Result<String, u16> {
    let common = [("Action", action), ("Version", "2010-05-08"), ("RoleName", name)];
    let credential = "AWS4-HMAC-SHA256 Credential=x/20260101/us-east-1/iam/aws4_request";
    let form = url::form_urlencoded::Serializer::new(String::new())
        .extend_pairs(common)
        .extend_pairs(more)
        .finish();
    let request = reqwest::Client::new().post(api()).header("authorization", credential);
    let request = request.header("content-type", "application/x-www-form-urlencoded").body(form);
    let answer = request.send().await.unwrap();
    match answer.status().as_u16() {
        200 => Ok(answer.text().await.unwrap()),
        status => Err(status),
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs the aws provider"]
async fn drift_is_healed_and_a_replacement_is_applied_once_after_its_approval() {
    let (sandbox, datastore) = (sandbox(), TestDatastore::memory().await);
    let [first, second] = ["first", "second"].map(|name| format!("{name}-{}", std::process::id()));
    let write = |name: &str| {
        let code = provider("iam", &api(), "") + &role(name, DESCRIPTION);
        sandbox.write("main.tf", &code);
    };
    let run = |args: &[&str]| {
        let common = ["--name", "x", "--result", "result.json"];
        sandbox.run_with(&datastore.url, &[args, &common].concat())
    };
    let ends_with = |code: i32, ended: Ended| {
        assert_eq!(ended.code, code, "{}\n{}", ended.stdout, ended.stderr);
        json(sandbox.read("result.json").as_bytes())["check"].clone()
    };
    write(&first);
    ends_with(0, run(&["converge"]));

    by_hand("UpdateRole", &first, &[("Description", "by hand")]).await.unwrap();
    assert_eq!(ends_with(0, run(&["check"]))["status"], "changed");
    assert!(by_hand("GetRole", &first, &[]).await.unwrap().contains("by hand"), "only a check");
    ends_with(0, run(&["converge"]));
    assert!(by_hand("GetRole", &first, &[]).await.unwrap().contains(DESCRIPTION));
    assert_eq!(ends_with(0, run(&["check"]))["status"], "ok");

    // Another name replaces the role.
    write(&second);
    let refused = ends_with(3, run(&["converge"]));
    let digest = refused["approval"].as_str().unwrap();
    by_hand("GetRole", &first, &[]).await.unwrap();
    assert_eq!(by_hand("GetRole", &second, &[]).await, Err(404));
    ends_with(0, run(&["converge", "--approve-destructive", digest]));
    by_hand("GetRole", &second, &[]).await.unwrap();
    assert_eq!(by_hand("GetRole", &first, &[]).await, Err(404));

    // An hour later the job runs with the same flags, and then somebody declares the old name again.
    ends_with(0, run(&["converge", "--approve-destructive", digest]));
    write(&first);
    ends_with(3, run(&["converge", "--approve-destructive", digest]));
    by_hand("GetRole", &second, &[]).await.unwrap();
    assert_eq!(by_hand("GetRole", &first, &[]).await, Err(404));
}
