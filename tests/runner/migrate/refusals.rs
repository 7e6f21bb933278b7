//! What must be different before a migration: the state and the record stay as they were.

use serde_json::Value;
use support::Sandbox;

use super::tofu::{Layer, MODULE};
use crate::RUNNER;
use crate::source::checkout::{commit_all, git};

async fn is_unchanged(layer: &Layer, state: &Value) {
    assert_eq!(layer.state("terraform.tfstate").await, *state);
    assert_eq!(layer.record().await, Value::Null);
    assert!(layer.sandbox.is_clean());
}

#[tokio::test(flavor = "multi_thread")]
async fn changes_of_either_plan_are_refused_and_named() {
    let layer = Layer::applied(&[], "").await;
    let state = layer.state("terraform.tfstate").await;
    let changed = ["migrate", "--to", "tofu", "--var", "input=two"];
    layer.refused(
        &changed,
        8,
        "terraform 1.11.4 plans changes: terraform_data.a (update), output o (update)",
    );
    assert_eq!(layer.report()["result"], "refused");
    assert!(layer.report()["reason"].as_str().unwrap().contains("terraform_data.a (update)"));
    is_unchanged(&layer, &state).await;
    assert!(!layer.tofu_calls().contains(&"plan".to_owned()), "{:?}", layer.tofu_calls());
    layer.refused(&[&changed[..], &["--dry-run"]].concat(), 8, "terraform_data.a (update)");
    is_unchanged(&layer, &state).await;

    layer.tofu("case $1 in plan) set -- \"$@\" -replace=terraform_data.a;; esac");
    layer.refused(
        &["migrate", "--to", "tofu"],
        8,
        " plans changes: terraform_data.a (delete and create)",
    );
    is_unchanged(&layer, &state).await;
    let dry = layer.run(&["migrate", "--to", "tofu", "--dry-run"]);
    assert_eq!(dry.code, 8, "{}", dry.stderr);
    assert!(dry.stderr.contains("+ terraform_data.a (delete and create)"), "{}", dry.stderr);
    is_unchanged(&layer, &state).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn unknown_path_is_refused_unless_a_table_allows_it() {
    let layer = Layer::applied(&[], "").await;
    let state = layer.state("terraform.tfstate").await;
    let migrate = ["migrate", "--to", "tofu", "--version-paths", "paths.json"];
    layer.sandbox.write("paths.json", r#"[{"from": "< 2", "refused": "wait for the guide"}]"#);
    layer.refused(&migrate, 8, "terraform 1.11.4 is not migrated to tofu");
    layer.sandbox.write("paths.json", "{}");
    layer.refused(&migrate, 8, "the table paths.json (--version-paths) cannot be used");
    is_unchanged(&layer, &state).await;
    layer.sandbox.write("paths.json", r#"[{"from": "< 2", "to": "> 1"}]"#);
    layer.ok(&migrate);
    assert_eq!(layer.report()["result"], "migrated");
}

#[tokio::test(flavor = "multi_thread")]
async fn state_that_is_gone_is_no_new_layer() {
    let layer = Layer::applied(&[], "").await;
    std::fs::remove_file(layer.file("terraform.tfstate")).unwrap();
    layer.refused(&["migrate", "--to", "tofu"], 8, "there is no state, but ");
    assert_eq!(layer.record().await, Value::Null);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_migrated_is_refused_by_name() {
    let layer = Layer::applied(&[], "").await;
    let state = layer.state("terraform.tfstate").await;
    for (args, code, text) in [
        (&["--to", "terraform"][..], 64, "a layer can be migrated to tofu"),
        (&["--to", "tofu@"], 64, "no version after the @"),
        (&[], 64, "--to <TOOL[@VERSION]>"),
        (&["--to", "tofu", "--rollback"], 64, "cannot be used with"),
        (&["--to", "tofu", "--target", "a.b"], 64, "leave them out"),
        (&["--to", "tofu", "--", "-refresh=false"], 64, "must not limit the plan"),
        (&["--to", "tofu", "--lock-platform", "linux"], 64, "expected a platform"),
        (&["--to", "tofu", "--state-in", "s"], 64, "takes no --state-in"),
        (&["--to", "tofu", "--work-dir", "w"], 64, "leave out --work-dir"),
        (&["--to", "tofu", "--tool", "tofu"], 64, "from which the layer is migrated"),
    ] {
        let mut command = layer.sandbox.command(&[&["migrate", "--name", "x"], args].concat());
        command.env("PLANCHA_DATASTORE_URL", layer.datastore.url.as_str());
        let ended = support::Ended::from(command.output().unwrap());
        assert_eq!(ended.code, code, "{args:?}: {}", ended.stderr);
        assert!(ended.stderr.contains(text), "{args:?}: {}", ended.stderr);
    }
    let absolute = layer.sandbox.path("data").display().to_string();
    let ended = layer.sandbox.command(&["migrate", "--to", "tofu"]);
    let ended = { ended }
        .env("PLANCHA_DATASTORE_URL", layer.datastore.url.as_str())
        .env("TF_DATA_DIR", absolute)
        .output()
        .unwrap();
    assert_eq!(ended.status.code(), Some(8), "{ended:?}");
    for (name, value, text) in [
        ("TF_ENCRYPTION", "state {}", "tofu would encrypt the state"),
        ("TF_CLI_ARGS_plan", "-target=a.b", "-target in TF_CLI_ARGS"),
    ] {
        let mut command = layer.sandbox.command(&["migrate", "--to", "tofu", "--name", "x"]);
        command.env("PLANCHA_DATASTORE_URL", layer.datastore.url.as_str()).env(name, value);
        let ended = support::Ended::from(command.output().unwrap());
        assert_eq!(ended.code, 8, "{name}: {}", ended.stderr);
        assert!(ended.stderr.contains(text), "{name}: {}", ended.stderr);
    }
    let without = layer.sandbox.run(&["migrate", "--to", "tofu"]);
    assert_eq!(without.code, 64, "{}", without.stderr);
    assert!(without.stderr.contains("needs a datastore"), "{}", without.stderr);
    is_unchanged(&layer, &state).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn local_state_of_a_checkout_is_refused() {
    let layer = Layer::new(&[], "").await;
    let origin = Sandbox::new(RUNNER);
    origin.write("main.tf", MODULE);
    git(&origin.work(), &["init", "--quiet"]);
    commit_all(&origin.work());
    let url = format!("file://{}", origin.work().display());
    layer.refused(
        &["migrate", "--to", "tofu", &url],
        8,
        "the backend is local, and its file terraform.tfstate is in a checkout",
    );
    assert_eq!(layer.record().await, Value::Null);
}
