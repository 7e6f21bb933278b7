//! Comparisons that other tests make together: each is broken alone, and is refused by its name before the tool runs.

use datastore_api::Sha256;
use serde_json::json;
use support::{Sandbox, TestDatastore};

use crate::binding::document::planned;
use crate::stored_run::StoredRun;
use crate::{RUNNER, json as parsed};

#[tokio::test(flavor = "multi_thread")]
async fn another_version_of_terragrunt_and_mock_outputs_are_refused() {
    let planned = planned(&[]).await;
    let original = planned.document().await;
    let mut changed = original.clone();
    changed["binding"]["terragrunt"] = original["binding"]["tool"].clone();
    changed["binding"]["terragrunt"]["name"] = json!("terragrunt");
    changed["binding"]["terragrunt"]["version"] = json!("1.0.0");
    planned.replace(&changed).await;
    let expected = "was made by terragrunt 1.0.0, but --terragrunt requests 1.0.1";
    planned.refused(&["--terragrunt=1.0.1"], expected);

    let mut changed = original.clone();
    changed["binding"]["mocks"] = json!(["../vpc/terragrunt.hcl"]);
    planned.replace(&changed).await;
    let expected = "made with mock outputs, not with the real ones of ../vpc/terragrunt.hcl";
    planned.refused(&[], expected);
    let applied = planned.apply(&["--allow-mocks"]);
    assert_eq!(applied.code, 0, "{}", applied.stderr);
}

/// The annotation is compared instead of the record, and both may be replaced together with the plan.
#[tokio::test(flavor = "multi_thread")]
async fn other_bytes_than_bound_are_refused_even_if_the_layer_names_their_digest() {
    let datastore = TestDatastore::memory().await;
    let sandbox = Sandbox::new(RUNNER).hello().fake_terraform("");
    let run = |action: &str, run: &str| {
        sandbox.run_with(&datastore.url, &[action, "--layer", "layer.yaml", "--run", run])
    };
    assert_eq!(run("plan", "p").code, 0);
    let stored = StoredRun::new(&datastore, "default", "hello", "p");
    let own = Sha256::of(&stored.plan("bin", 0).await).to_base64();
    let layer = sandbox.read("layer.yaml");
    assert!(layer.contains(&own), "{layer}");
    stored.put_plan_bin(0, b"another plan").await;
    let other = Sha256::of(b"another plan").to_base64();
    sandbox.write("layer.yaml", &layer.replace(&own, &other));
    std::fs::remove_file(sandbox.path("calls")).unwrap();

    let refused = run("apply", "a");

    assert_eq!(refused.code, 9, "{}", refused.stderr);
    assert!(refused.stderr.contains("bound to another plan: sha256 "), "{}", refused.stderr);
    assert!(sandbox.calls().is_empty(), "{:?}", sandbox.calls());
}

#[tokio::test(flavor = "multi_thread")]
async fn plan_without_a_binding_is_compared_with_its_report_and_refused_where_one_must_be_signed() {
    let planned = planned(&[]).await;
    let mut report = parsed(&planned.stored().artifact("run.json", 0).await);
    report["bound"] = json!(false);
    let earlier = StoredRun::new(&planned.datastore, "default", "x", "q");
    earlier.put_plan("bin", 0, planned.stored().plan("bin", 0).await).await;
    earlier.put_artifact("run.json", 0, report.to_string().into_bytes()).await;
    // Other bytes than its `run.json` records.
    let changed = StoredRun::new(&planned.datastore, "default", "x", "r");
    changed.put_plan_bin(0, b"another plan").await;
    changed.put_artifact("run.json", 0, report.to_string().into_bytes()).await;
    planned.sandbox.write("key", &"k".repeat(32));
    let file = planned.sandbox.run(&["plan", "--plan-file", "p.tfplan"]);
    assert_eq!(file.code, 0, "{}", file.stderr);
    std::fs::remove_file(planned.sandbox.path("calls")).unwrap();
    let args = ["apply", "--name", "x", "--plan", "r"];
    let refused = planned.sandbox.run_with(&planned.datastore.url, &args);
    assert_eq!(refused.code, 9, "{}", refused.stderr);
    assert!(refused.stderr.contains("but its run.json has "), "{}", refused.stderr);
    for args in [&["--name", "x", "--plan", "q"][..], &["--plan-file", "p.tfplan"]] {
        let args = [&["apply", "--verify-key", "key"], args].concat();
        let refused = planned.sandbox.run_with(&planned.datastore.url, &args);
        assert_eq!(refused.code, 9, "{args:?}: {}", refused.stderr);
        assert!(refused.stderr.contains("is not signed"), "{args:?}: {}", refused.stderr);
    }
    assert_eq!(planned.calls(), "");
}

#[tokio::test(flavor = "multi_thread")]
async fn binding_of_another_program_is_not_replaced() {
    let datastore = TestDatastore::memory().await;
    let url = format!(
        "{}api/artifacts?namespace=default&layer=x&run=p&attempt=0&name=binding.json",
        datastore.url
    );
    let fill = format!("[ $STEP != plan ] || curl -sf -X PUT --data other '{url}'");
    let sandbox = Sandbox::new(RUNNER).hello().fake_terraform(&fill);
    let failed = sandbox.run_with(&datastore.url, &["plan", "--name", "x", "--run", "p"]);
    assert_ne!(failed.code, 0, "{}", failed.stderr);
    let stored = StoredRun::new(&datastore, "default", "x", "p");
    assert_eq!(stored.artifact("binding.json", 0).await, b"other");
    let refused = sandbox.run_with(&datastore.url, &["apply", "--name", "x", "--plan", "p/0"]);
    assert_ne!(refused.code, 0, "{}", refused.stderr);
    assert!(!sandbox.calls().iter().any(|call| call.starts_with("apply")));
}
