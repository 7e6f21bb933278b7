//! Migrations from terraform to tofu, and back.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::Value;

use super::tofu::{Layer, contents};
use crate::state_server::StateServer;

/// All files below a directory, with their contents.
fn files(dir: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut found = BTreeMap::new();
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files(&path));
        } else {
            found.insert(path.display().to_string(), std::fs::read(&path).unwrap());
        }
    }
    found
}

/// Migrates a layer there and back. `file` has its state, unless the datastore has it. Each write raises the serial by `step`.
async fn there_and_back(layer: &Layer, file: &str, step: u64) {
    let before = layer.state(file).await;
    let serial = before["serial"].as_u64().unwrap();
    layer.sandbox.write("result.json", "");
    let all = files(&layer.sandbox.work());

    let dry = layer.ok(&["migrate", "--to", "tofu", "--dry-run"]);
    assert!(dry.stderr.contains("the plans of both tools are the same"), "{}", dry.stderr);
    assert_eq!(layer.report()["result"], "ready");
    layer.sandbox.write("result.json", "");
    assert_eq!(files(&layer.sandbox.work()), all, "nothing was changed");
    assert_eq!(layer.record().await, Value::Null);

    layer.ok(&["migrate", "--to", "tofu"]);
    let (report, record, after) = (layer.report(), layer.record().await, layer.state(file).await);
    assert_eq!(report["result"], "migrated");
    assert_eq!(
        (&report["serial_before"], &report["serial_after"]),
        (&serial.into(), &(serial + step).into())
    );
    assert_eq!((&after["serial"], contents(&after)), (&(serial + step).into(), contents(&before)));
    assert_eq!(record["name"], "tofu");
    let migration = &record["migrations"][layer.workspace];
    assert_eq!(
        (&migration["from"]["name"], &migration["unfinished"]),
        (&"terraform".into(), &Value::Null)
    );
    assert_eq!(migration["backup"]["version"], report["backup"]);

    layer.refused(&["plan", "--tool", "terraform"], 8, "the states of default/x belong to tofu");
    let planned = layer.ok(&["plan", "--tool", "tofu", "--detailed-exitcode"]);
    assert!(planned.stdout.contains("No changes"), "{}", planned.stdout);
    layer.ok(&["migrate", "--to", "tofu"]);
    assert_eq!(layer.report()["result"], "already");

    layer.ok(&["migrate", "--rollback"]);
    let (record, restored) = (layer.record().await, layer.state(file).await);
    assert_eq!(layer.report()["result"], "rolled_back");
    assert_eq!(
        (&restored["serial"], contents(&restored)),
        (&(serial + 2 * step).into(), contents(&before))
    );
    assert_eq!(restored["terraform_version"], before["terraform_version"]);
    assert_eq!((&record["name"], &record["migrations"]), (&"terraform".into(), &Value::Null));
    layer.ok(&["plan", "--tool", "terraform", "--detailed-exitcode"]);
    layer.refused(&["plan", "--tool", "tofu"], 8, "belong to terraform");
    layer.refused(&["migrate", "--rollback"], 8, "no migration of default/x/");
    // A second migration begins from there.
    layer.ok(&["migrate", "--to", "tofu"]);
    assert_eq!(layer.state(file).await["serial"], serial + 3 * step);
    assert!(layer.sandbox.is_clean());
}

#[tokio::test(flavor = "multi_thread")]
async fn state_beside_the_code_is_migrated_and_back() {
    there_and_back(&Layer::applied(&[], "").await, "terraform.tfstate", 1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn state_in_the_datastore_is_migrated_and_back() {
    there_and_back(&Layer::applied(&["--state", "datastore"], "").await, "", 2).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn state_of_a_workspace_in_another_directory_is_migrated_and_back() {
    let backend = "terraform {\n  backend \"local\" {\n    path = \"st$${x}/s\"\n    workspace_dir = \"spaces\"\n  }\n}\n";
    let mut layer = Layer::new(&[], backend).await;
    layer.ok(&["apply", "--no-plan", "--tool", "terraform"]);
    there_and_back(&layer, "st${x}/s", 1).await;
    layer.workspace = "blue";
    layer.ok(&["apply", "--no-plan", "--tool", "tofu"]);
    let before = layer.state("spaces/blue/terraform.tfstate").await;
    layer.ok(&["migrate", "--to", "tofu"]);
    let after = layer.state("spaces/blue/terraform.tfstate").await;
    assert_eq!(after["serial"], before["serial"].as_u64().unwrap() + 1);
    // The other workspace stays with tofu, and so does the layer.
    layer.ok(&["migrate", "--rollback"]);
    assert_eq!(layer.record().await["name"], "tofu");
    assert!(layer.record().await["migrations"]["default"].is_object());
}

#[tokio::test(flavor = "multi_thread")]
async fn state_in_a_backend_is_migrated_by_the_tools() {
    let (server, backend) = StateServer::start();
    let layer = Layer::applied(&[], &backend).await;
    let state = || crate::json(server.contents().state.as_ref().unwrap());
    let before = state();
    assert!(layer.file(".terraform/terraform.tfstate").exists());
    layer.ok(&["migrate", "--to", "tofu"]);
    assert!(!layer.file(".terraform/terraform.tfstate").exists(), "tofu would refuse it");
    layer.ok(&["plan", "--tool", "tofu"]);
    let after = state();
    assert_eq!(after["serial"], before["serial"].as_u64().unwrap() + 2);
    assert_eq!(contents(&after), contents(&before));
    assert!(server.contents().lock.is_none());
    layer.ok(&["migrate", "--rollback"]);
    assert_eq!(layer.report()["serial_after"], state()["serial"]);
    layer.ok(&["plan", "--tool", "terraform"]);
    assert_eq!(state()["serial"], before["serial"].as_u64().unwrap() + 4);
    assert_eq!(contents(&state()), contents(&before));
}

#[tokio::test(flavor = "multi_thread")]
async fn layer_without_a_state_is_only_recorded() {
    let layer = Layer::new(&["--state", "datastore"], "").await;
    layer.ok(&["migrate", "--to", "tofu"]);
    assert_eq!(layer.report()["result"], "migrated");
    assert_eq!(layer.record().await["name"], "tofu");
    layer.refused(&["apply", "--no-plan", "--tool", "terraform"], 8, "belong to tofu");
    layer.ok(&["migrate", "--rollback"]);
    layer.ok(&["migrate", "--to", "tofu"]);
    layer.ok(&["apply", "--no-plan", "--tool", "tofu"]);
    layer.refused(&["migrate", "--rollback"], 8, "has changed since the migration");
}

#[tokio::test(flavor = "multi_thread")]
async fn state_that_has_changed_since_is_not_rolled_back() {
    let layer = Layer::applied(&[], "").await;
    layer.ok(&["migrate", "--to", "tofu"]);
    layer.ok(&["apply", "--no-plan", "--tool", "tofu", "--var", "input=two"]);
    let state = layer.state("terraform.tfstate").await;
    layer.refused(
        &["migrate", "--rollback"],
        8,
        "the state of default/x/default has changed since",
    );
    assert_eq!(layer.report()["result"], "refused");
    assert_eq!(layer.state("terraform.tfstate").await, state);
    assert_eq!(layer.record().await["name"], "tofu");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_lock_file_of_the_user_keeps_both_registries() {
    let layer = Layer::applied(&[], "").await;
    let block = "provider \"registry.terraform.io/hashicorp/null\" {\n  version = \"3.2.3\"\n  hashes = [\n    \"h1:a\",\n  ]\n}\n";
    // What tofu's init would write for a module with this provider.
    let theirs = block.replace("terraform.io", "opentofu.org").replace("h1:a", "h1:b");
    layer.sandbox.write(".terraform.lock.hcl", block);
    let real = support::on_path("terraform").unwrap();
    layer.sandbox.script("terraform", &writing_lock_file(&real, "init", block));
    layer.sandbox.script("second", &writing_lock_file(&real, "show", &theirs));
    layer.tofu("exec second \"$@\"");
    layer.ok(&["migrate", "--to", "tofu"]);
    let lock_file = layer.sandbox.read(".terraform.lock.hcl");
    assert!(lock_file.contains(&theirs) && lock_file.contains(block), "{lock_file}");
}

/// A terraform that leaves this lock file after a command, and has none during others: the module needs no provider.
fn writing_lock_file(real: &Path, after: &str, text: &str) -> String {
    format!(
        "#!/bin/sh\nrm -f .terraform.lock.hcl\n{} \"$@\"; code=$?\n[ \"$1\" != {after} ] || printf '%s' '{text}' > \
         .terraform.lock.hcl\nexit $code\n",
        real.display()
    )
}
