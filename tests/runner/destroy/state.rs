//! `runner destroy` and the state: an empty one is done, an absent one only if nothing was ever applied.

use support::{Ended, Sandbox};

use crate::real_layer::Layer;
use crate::state_server::StateServer;
use crate::{RUNNER, json};

/// The states of a module without a datastore.
fn without_datastore(sandbox: &Sandbox, args: &[&str]) -> Ended {
    sandbox.run(&[args, &["--result", "result.json"]].concat())
}

fn remove_state(layer: &Layer) {
    for name in ["terraform.tfstate", "terraform.tfstate.backup"] {
        let _missing = std::fs::remove_file(layer.sandbox.work().join("module").join(name)).err();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn empty_state_is_success_without_a_plan() {
    let layer = Layer::applied().await;
    assert_eq!(layer.run(&["destroy", "--auto-approve"]).code, 0);
    for args in [&["destroy", "--run", "e"][..], &["destroy", "--auto-approve", "--run", "f"]] {
        let ended = layer.run(args);
        assert_eq!(ended.code, 0, "{}", ended.stderr);
        assert!(
            ended.stderr.contains("the state is empty: nothing is destroyed"),
            "{}",
            ended.stderr
        );
        assert!(!ended.stdout.contains("No changes"), "{}", ended.stdout);
    }
    let result = layer.result();
    assert_eq!((&result["outcome"], result["plan"].is_null()), (&"no_changes".into(), true));
    assert_eq!(
        (&result["state"]["empty"], &result["state"]["resources"]),
        (&true.into(), &0.into())
    );
    let stored = layer.stored("f");
    assert_eq!(json(&stored.artifact("run.json", 0).await), result);
    assert!(stored.log(0).await.contains("nothing is destroyed"));
}

#[tokio::test(flavor = "multi_thread")]
async fn absent_state_is_success_only_where_nothing_was_applied() {
    let layer = Layer::new().await;
    assert_eq!(layer.run(&["plan"]).code, 0);
    let ended = layer.run(&["destroy"]);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    assert!(ended.stderr.contains("there is no state: nothing is destroyed"), "{}", ended.stderr);
    assert_eq!(layer.result()["state"]["empty"], true);

    assert_eq!(layer.run(&["apply", "--run", "a", "--no-plan"]).code, 0);
    remove_state(&layer);
    let ended = layer.run(&["destroy", "--auto-approve"]);
    assert_eq!(ended.code, 8, "{}", ended.stderr);
    assert!(ended.stderr.contains("there is no state, but a/0 has applied"), "{}", ended.stderr);
    assert!(layer.result()["state"].is_null());

    // What was applied is destroyed: then there need not be a state.
    assert_eq!(layer.run(&["apply", "--run", "b", "--no-plan"]).code, 0);
    assert_eq!(layer.run(&["destroy", "--auto-approve"]).code, 0);
    remove_state(&layer);
    let ended = layer.run(&["destroy", "--auto-approve"]);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
}

/// It has created something, although no record of an apply says so.
#[tokio::test(flavor = "multi_thread")]
async fn failed_apply_counts_as_one() {
    let layer = Layer::new().await;
    layer.sandbox.write(
        "module/main.tf",
        "resource \"terraform_data\" \"a\" {\n  provisioner \"local-exec\" { command = \"false\" }\n}\n",
    );
    assert_eq!(layer.run(&["apply", "--run", "a", "--no-plan"]).code, 1);
    remove_state(&layer);
    let ended = layer.run(&["destroy"]);
    assert_eq!(ended.code, 8, "{}", ended.stderr);
    assert!(ended.stderr.contains("a/0 has applied to this layer"), "{}", ended.stderr);
}

#[tokio::test(flavor = "multi_thread")]
async fn backend_that_fails_is_no_absent_state() {
    let (server, backend) = StateServer::start();
    let layer = Layer::new().await;
    layer.sandbox.write("module/backend.tf", &backend);
    server.refuse("GET", 500, 100);
    let ended = layer.run(&["destroy", "--auto-approve", "--retries", "0"]);
    assert!(![0, 3].contains(&ended.code), "{}", ended.stderr);
    assert!(!ended.stderr.contains("nothing is destroyed"), "{}", ended.stderr);
}

#[tokio::test(flavor = "multi_thread")]
async fn remote_state_is_read_by_the_tool_and_is_empty_at_the_end() {
    let (server, backend) = StateServer::start();
    let layer = Layer::new().await;
    layer.sandbox.write("module/backend.tf", &backend);
    assert_eq!(layer.run(&["apply", "--no-plan"]).code, 0);
    let ended = layer.run(&["destroy", "--auto-approve"]);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    assert_eq!(server.state()["resources"], serde_json::json!([]));
    let state = &layer.result()["state"];
    assert_eq!((&state["empty"], &state["serial"]), (&true.into(), &server.state()["serial"]));
}

#[test]
fn without_a_datastore_a_plan_file_is_approved() {
    let sandbox = Sandbox::new(RUNNER);
    sandbox.write("main.tf", "resource \"terraform_data\" \"a\" {}\n");
    let file = &["--plan-file", "../the.plan"];
    let ended = sandbox.run(&["destroy"]);
    assert_eq!(ended.code, 8, "{}", ended.stderr);
    assert!(
        ended.stderr.contains("name a datastore with --datastore, a file with"),
        "{}",
        ended.stderr
    );
    assert_eq!(sandbox.run(&["apply", "--no-plan"]).code, 0);

    let ended = without_datastore(&sandbox, &[&["destroy"], &file[..]].concat());
    assert_eq!(ended.code, 3, "{}", ended.stderr);
    let result = json(sandbox.read("result.json").as_bytes());
    let digest = result["plan"]["sha256"].as_str().unwrap();
    assert!(
        ended.stderr.contains(&format!("--plan-file ../the.plan --approve {digest}")),
        "{}",
        ended.stderr
    );
    // A plain apply does not take it.
    let ended = without_datastore(&sandbox, &[&["apply"], &file[..]].concat());
    assert_eq!(ended.code, 8, "{}", ended.stderr);
    assert!(ended.stderr.contains("destroys everything"), "{}", ended.stderr);
    let other = "0".repeat(64);
    let ended =
        without_datastore(&sandbox, &[&["destroy", "--approve", &other], &file[..]].concat());
    assert_eq!(ended.code, 9, "{}", ended.stderr);
    assert!(ended.stderr.contains(&format!("the approval has {other}")), "{}", ended.stderr);

    let ended =
        without_datastore(&sandbox, &[&["destroy", "--approve", digest], &file[..]].concat());
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    assert_eq!(json(sandbox.read("result.json").as_bytes())["state"]["empty"], true);
    assert!(sandbox.is_clean());
}

#[test]
fn plan_file_without_its_record_is_not_approved() {
    let sandbox = Sandbox::new(RUNNER);
    sandbox.write("main.tf", "resource \"terraform_data\" \"a\" {}\n");
    assert_eq!(sandbox.run(&["apply", "--no-plan"]).code, 0);
    let file = &["--plan-file", "../the.plan"];
    assert_eq!(without_datastore(&sandbox, &[&["destroy"], &file[..]].concat()).code, 3);
    let result = json(sandbox.read("result.json").as_bytes());
    std::fs::remove_file(sandbox.work().join("../the.plan.run.json")).unwrap();
    let digest = result["plan"]["sha256"].as_str().unwrap();
    let ended =
        without_datastore(&sandbox, &[&["destroy", "--approve", digest], &file[..]].concat());
    assert_eq!(ended.code, 8, "{}", ended.stderr);
    assert!(ended.stderr.contains("is not one that `runner destroy` has made"), "{}", ended.stderr);
}

#[test]
fn without_a_datastore_only_a_directory_that_had_no_state_has_none() {
    let sandbox = Sandbox::new(RUNNER);
    sandbox.write("main.tf", "resource \"terraform_data\" \"a\" {}\n");
    let destroy = &["destroy", "--auto-approve"];
    let ended = without_datastore(&sandbox, destroy);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    assert!(ended.stderr.contains("there is no state"), "{}", ended.stderr);
    assert_eq!(sandbox.run(&["apply", "--no-plan"]).code, 0);
    let ended = without_datastore(&sandbox, destroy);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    assert!(ended.stdout.contains("1 destroyed"), "{}", ended.stdout);
    std::fs::remove_file(sandbox.work().join("terraform.tfstate")).unwrap();
    let ended = without_datastore(&sandbox, destroy);
    assert_eq!(ended.code, 8, "{}", ended.stderr);
    assert!(ended.stderr.contains("there is no state, but a backup of one"), "{}", ended.stderr);

    let (_server, backend) = StateServer::start();
    let sandbox = Sandbox::new(RUNNER);
    sandbox.write("main.tf", &backend);
    let ended = without_datastore(&sandbox, destroy);
    assert_eq!(ended.code, 8, "{}", ended.stderr);
    assert!(ended.stderr.contains("without a datastore it is not known"), "{}", ended.stderr);
}

#[tokio::test(flavor = "multi_thread")]
async fn failed_destroy_leaves_a_state_that_the_next_one_destroys() {
    let layer = Layer::new().await;
    let code = "resource \"terraform_data\" \"a\" {\n  provisioner \"local-exec\" {\n    when = destroy\n    command = \"test -e \
                ../may\"\n  }\n}\nresource \"terraform_data\" \"b\" {}\n";
    layer.sandbox.write("module/main.tf", code);
    assert_eq!(layer.run(&["apply", "--no-plan"]).code, 0);
    let ended = layer.run(&["destroy", "--auto-approve", "--run", "d"]);
    assert_eq!(ended.code, 1, "{}", ended.stderr);
    let result = layer.result();
    assert_eq!((&result["outcome"], result["state"].is_null()), (&"failed".into(), true));
    assert_eq!(layer.resources(), 1, "what was destroyed is");
    assert!(ended.stderr.contains("run `runner destroy` again"), "{}", ended.stderr);
    assert!(!ended.stderr.contains("plan again"), "a plan creates it again: {}", ended.stderr);
    layer.sandbox.write("may", "");
    let ended = layer.run(&["destroy", "--auto-approve", "--run", "d"]);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    assert_eq!((&layer.result()["state"]["empty"], layer.resources()), (&true.into(), 0));
}

/// `state pull` prints the state of an encrypted backend in plain text.
#[tokio::test(flavor = "multi_thread")]
async fn state_that_tofu_encrypts_is_not_copied_in_plain_text() {
    for (is_encrypted, copies) in [(true, 0), (false, 1)] {
        let layer = Layer::new().await;
        let (_server, backend) = StateServer::start();
        layer.sandbox.write("module/backend.tf", &backend);
        layer.sandbox.script(
            "tofu",
            "#!/bin/sh\ncase \"$*\" in 'version -json') echo '{\"terraform_version\": \"1.10.5\"}'; exit 0;; esac\nexec terraform \"$@\"\n",
        );
        let run = |args: &[&str]| {
            let args = [args, &["--path", "module", "--name", "x", "--tool", "tofu"]].concat();
            let mut command = layer.sandbox.command(&args);
            command.env("PLANCHA_DATASTORE_URL", layer.datastore.url.as_str());
            if is_encrypted {
                command.env("TF_ENCRYPTION", "state {}");
            }
            let ended = Ended::from(command.output().unwrap());
            assert_eq!(ended.code, 0, "{}", ended.stderr);
        };
        run(&["apply", "--no-plan", "--run", "a"]);
        run(&["destroy", "--auto-approve", "--run", "d"]);
        let after = snapshots(&layer).await;
        assert_eq!(after.iter().filter(|run| run.starts_with("d/")).count(), copies, "{after:?}");
    }
}

/// The runs of the snapshots that the datastore has.
async fn snapshots(layer: &Layer) -> Vec<String> {
    let url = "api/states?namespace=default&layer=x&kind=snapshot";
    let listed = reqwest::get(layer.datastore.url.join(url).unwrap()).await.unwrap();
    let listed = crate::json(&listed.bytes().await.unwrap());
    let versions = listed["versions"].as_array().unwrap();
    versions.iter().map(|version| version["run"].as_str().unwrap_or_default().to_owned()).collect()
}
