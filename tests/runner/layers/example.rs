//! The example of the documentation: a cluster, and releases in it.

use std::path::Path;

use support::{Sandbox, TestDatastore};

use crate::{RUNNER, json};

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let to = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &to);
        } else {
            std::fs::copy(entry.path(), to).unwrap();
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_releases_of_the_example_read_the_kubeconfig_of_its_cluster() {
    let (datastore, sandbox) = (TestDatastore::memory().await, Sandbox::new(RUNNER));
    let example =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/examples/cluster-and-releases");
    copy(&example, &sandbox.work());
    let run = |args: &[&str]| {
        let args = [&args[..1], &["--source", "."], &args[1..]].concat();
        let ended = sandbox.run_with(&datastore.url, &args);
        assert_eq!(ended.code, 0, "{}", ended.stderr);
        // The tool itself shows the token of the cluster's object where it destroys that.
        let of_releases = |line: &&str| line.contains("default/helm-releases");
        let output = format!("{}{}", ended.stdout, ended.stderr);
        let shown = output.lines().filter(of_releases).find(|line| line.contains("not-a-real"));
        assert_eq!(shown, None);
    };
    run(&["converge", "layers/"]);
    let state = json(sandbox.read("helm_releases/terraform.tfstate").as_bytes());
    let releases = serde_json::json!(["agent-default", "agent-spot"]);
    assert_eq!(state["outputs"]["releases"]["value"], releases);
    assert!(state.to_string().contains("https://cluster.example:6443"));
    run(&["converge", "layers/helm-releases.yaml"]);
    run(&["destroy", "layers/", "--auto-approve"]);
    let state = json(sandbox.read("cluster/terraform.tfstate").as_bytes());
    assert_eq!(state["resources"], serde_json::json!([]));
}
