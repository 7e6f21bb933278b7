//! Modules that have a local state before their state is in the datastore.

#![expect(clippy::disallowed_types, reason = "tests make local states with terraform itself")]

use std::path::Path;
use std::process::Command;

use support::{Sandbox, TestDatastore, on_path};

use super::machines::{Origin, module, run, run_in, states};
use crate::RUNNER;

/// Has terraform itself apply the module, in this workspace.
fn apply(machine: &Sandbox, dir: &Path, workspace: &str) {
    for args in [&["init", "-input=false"][..], &["apply", "-auto-approve", "-input=false"]] {
        let mut command = Command::new(on_path("terraform").unwrap());
        command.args(args).current_dir(dir).env("TF_WORKSPACE", workspace);
        command.env("TF_CLI_CONFIG_FILE", machine.path("terraformrc"));
        let output = command.output().unwrap();
        assert!(output.status.success(), "{output:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn local_state_is_refused_and_moved_on_request() {
    let datastore = TestDatastore::memory().await;
    let machine = Origin::new().machine();
    let dir = module(&machine);
    for (workspace, file) in
        [("default", "terraform.tfstate"), ("blue", "terraform.tfstate.d/blue/terraform.tfstate")]
    {
        apply(&machine, &dir, workspace);
        let variables = [("TF_WORKSPACE", workspace)];
        let in_workspace = |args: &[&str]| run_in(&dir, &machine, &datastore.url, &variables, args);
        for action in [&["plan"][..], &["apply", "--no-plan"]] {
            let refused = in_workspace(action);
            assert_eq!(refused.code, 8, "{}", refused.stderr);
            for text in [file, "the datastore has no state", "--migrate-state"] {
                assert!(refused.stderr.contains(text), "{text}: {}", refused.stderr);
            }
        }
        let local = std::fs::read(dir.join(file)).unwrap();
        let moved = in_workspace(&["plan", "--migrate-state", "--detailed-exitcode"]);
        assert_eq!(moved.code, 0, "no changes: {}", moved.stderr);
        assert!(!dir.join(file).exists());
        assert_eq!(std::fs::read(dir.join(format!("{file}.moved.backup"))).unwrap(), local);
        let version = states(&datastore, "-", workspace).await["head"]["version"].clone();
        assert_eq!(version["sha256"], datastore_api::Sha256::of(&local).to_string());
        assert_eq!(in_workspace(&["plan", "--detailed-exitcode"]).code, 0);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn apply_moves_a_local_state_under_its_lease() {
    let datastore = TestDatastore::memory().await;
    let machine = Origin::new().machine();
    let dir = module(&machine);
    apply(&machine, &dir, "default");
    let applied = run(&machine, &datastore.url, &["apply", "--no-plan", "--migrate-state"]);
    assert_eq!(applied.code, 0, "{}", applied.stderr);
    let head = states(&datastore, "-", "default").await["head"].clone();
    assert_eq!((&head["version"]["fence"], &head["version"]["resources"]), (&1.into(), &1.into()));
}

#[tokio::test(flavor = "multi_thread")]
async fn state_in_the_datastore_wins_over_a_local_one() {
    let datastore = TestDatastore::memory().await;
    let machine = Origin::new().machine();
    assert_eq!(run(&machine, &datastore.url, &["apply", "--no-plan"]).code, 0);
    let dir = module(&machine);
    apply(&machine, &dir, "default");
    let local = std::fs::read(dir.join("terraform.tfstate")).unwrap();
    for args in [&["plan", "--detailed-exitcode"][..], &["plan", "--migrate-state"]] {
        let planned = run(&machine, &datastore.url, args);
        assert_eq!(planned.code, 0, "{}", planned.stderr);
        assert!(planned.stderr.contains("terraform.tfstate is not used"), "{}", planned.stderr);
    }
    assert_eq!(std::fs::read(dir.join("terraform.tfstate")).unwrap(), local);
}

#[tokio::test(flavor = "multi_thread")]
async fn recorded_backend_of_an_earlier_init_is_refused() {
    let datastore = TestDatastore::memory().await;
    let machine = Origin::new().machine();
    let data = module(&machine).join(".terraform");
    std::fs::create_dir(&data).unwrap();
    let record = r#"{"version": 3, "backend": {"type": "s3", "config": {"bucket": "b"}}}"#;
    std::fs::write(data.join("terraform.tfstate"), record).unwrap();
    let refused = run(&machine, &datastore.url, &["plan", "--migrate-state"]);
    assert_eq!(refused.code, 8, "{}", refused.stderr);
    assert!(refused.stderr.contains("the state in the backend s3"), "{}", refused.stderr);
}

#[tokio::test(flavor = "multi_thread")]
async fn state_that_a_process_works_with_is_not_moved() {
    let datastore = TestDatastore::memory().await;
    let machine = Origin::new().machine();
    let dir = module(&machine);
    apply(&machine, &dir, "default");
    std::fs::write(dir.join(".terraform.tfstate.lock.info"), "{}").unwrap();
    let refused = run(&machine, &datastore.url, &["plan", "--migrate-state"]);
    assert_eq!(refused.code, 4, "{}", refused.stderr);
    assert!(dir.join("terraform.tfstate").exists());
    assert_eq!(
        states(&datastore, "-", "default").await["head"]["version"],
        serde_json::Value::Null
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn apply_that_would_lose_its_local_state_names_the_datastore() {
    let datastore = TestDatastore::memory().await;
    let origin = Origin::new();
    let machine = Sandbox::new(RUNNER);
    let url = format!("file://{}", origin.dir().display());
    let args = ["apply", &url, "--path", "live/vpc", "--no-plan"];
    let refused = machine.run_with(&datastore.url, &args);
    assert_eq!(refused.code, 8, "{}", refused.stderr);
    assert!(refused.stderr.contains("--state datastore"), "{}", refused.stderr);
    let args = [&args[..], &["--name", "vpc", "--state", "datastore"]].concat();
    let applied = machine.run_with(&datastore.url, &args);
    assert_eq!(applied.code, 0, "{}", applied.stderr);
    assert_eq!(states(&datastore, "-", "default").await["head"]["version"]["resources"], 1);
}
