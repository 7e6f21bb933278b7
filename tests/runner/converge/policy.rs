//! The policy of a converge: rules, where they may be, and tainted objects of failed runs.

use crate::real_layer::Layer;

const TAINTING: &str = "resource \"terraform_data\" \"a\" {\n  provisioner \"local-exec\" { command = \"test -e CURED\" }\n}\n";

#[tokio::test(flavor = "multi_thread")]
async fn rules_allow_and_refuse_beside_the_default() {
    let layer = Layer::applied().await;
    layer.sandbox.write(
        "policy.yaml",
        "rules:\n  - {id: b, verdict: allow, actions: [delete], addresses: [terraform_data.b]}\n",
    );
    layer.write("resource \"terraform_data\" \"a\" { input = 1 }\n");
    let source = ["--source", "module", "--policy", "policy.yaml", "--name", "x"];
    let run = |args: &[&str]| {
        let args = [args, &source].concat();
        layer.sandbox.run_with(&layer.datastore.url, &args)
    };
    let ended = run(&["converge"]);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    assert_eq!(layer.objects(), ["a"]);
    layer.write("");
    let ended = run(&["converge"]);
    assert_eq!(ended.code, 3, "{}", ended.stderr);
    layer.sandbox.write("policy.yaml", "rules:\n  - {id: b, verdict: sometimes}\n");
    let ended = run(&["converge"]);
    assert_eq!(ended.code, 8, "{}", ended.stderr);
    assert!(ended.stderr.contains("policy.yaml"), "{}", ended.stderr);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_policy_in_the_source_is_refused() {
    let layer = Layer::applied().await;
    layer
        .sandbox
        .write("module/policy.yaml", "rules:\n  - {id: a, verdict: allow, actions: [update]}\n");
    let ended = layer.run(&["converge", "--policy", "module/policy.yaml"]);
    assert_eq!(ended.code, 8, "{}", ended.stderr);
    assert!(ended.stderr.contains("--policy-from-source"), "{}", ended.stderr);
    let ended = layer.run(&["converge", "--policy", "module/policy.yaml", "--policy-from-source"]);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tainted_object_of_a_failed_run_is_healed_and_no_other() {
    let layer = Layer::new().await;
    let cured = layer.sandbox.work().join("cured");
    layer.write(&TAINTING.replace("CURED", &cured.display().to_string()));
    let ended = layer.run(&["converge"]);
    assert_eq!(ended.code, 1, "{}", ended.stderr);
    layer.sandbox.write("cured", "");
    let ended = layer.run(&["converge"]);
    assert_eq!(ended.code, 0, "{}", ended.stderr);

    // The same object tainted by a person: no failed run has created it.
    let state = layer.sandbox.read("module/terraform.tfstate");
    assert!(!state.contains("tainted"), "{state}");
    let tainted = state.replacen(
        "\"schema_version\": 0,",
        "\"status\": \"tainted\", \"schema_version\": 0,",
        1,
    );
    layer.sandbox.write("module/terraform.tfstate", &tainted);
    let ended = layer.run(&["converge"]);
    assert_eq!(ended.code, 3, "{}", ended.stderr);
    assert!(ended.stderr.contains("replace_because_tainted): no ledger"), "{}", ended.stderr);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_rego_denies_no_approval_lifts_and_an_error_of_it_denies() {
    let layer = Layer::applied().await;
    layer.sandbox.write(
        "rego/main.rego",
        "package main\n\
         deny contains msg if { some c in input.resource_changes; c.change.actions == [\"delete\"]; msg := \"no deletions\" }\n\
         warn contains \"look at it\" if true\n",
    );
    layer.write("resource \"terraform_data\" \"a\" { input = 2 }\n");
    let converge = ["converge", "--policy", "rego", "--policy-from-source"];
    let ended = layer.run(&[&converge[..], &["--auto-approve"]].concat());
    assert_eq!(ended.code, 3, "{}", ended.stderr);
    assert!(ended.stderr.contains("policy: denied: no deletions"), "{}", ended.stderr);
    assert!(ended.stderr.contains("policy: warning: look at it"), "{}", ended.stderr);
    let check = &layer.result()["check"];
    assert_eq!(check["denials"], serde_json::json!(["no deletions"]));
    assert_eq!(check["warnings"], serde_json::json!(["look at it"]));
    assert_eq!(layer.objects(), ["a", "b"]);
    let ended = layer.run(&converge);
    assert_eq!(ended.code, 3, "{}", ended.stderr);
    assert!(
        !ended.stderr.contains("--approve-destructive"),
        "nothing to approve: {}",
        ended.stderr
    );

    layer.sandbox.write("rego/main.rego", "package main\ndeny contains 1 / 0 if true\n");
    let ended = layer.run(&converge);
    assert_eq!(ended.code, 8, "{}", ended.stderr);
    layer.sandbox.write("rego/main.rego", "package main\nallow := true\n");
    let ended = layer.run(&converge);
    assert_eq!(ended.code, 8, "{}", ended.stderr);
    assert_eq!(layer.objects(), ["a", "b"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_creation_is_no_evidence_after_the_layer_was_as_declared() {
    let layer = Layer::new().await;
    let cured = layer.sandbox.work().join("cured");
    layer.write(&TAINTING.replace("CURED", &cured.display().to_string()));
    assert_eq!(layer.run(&["converge"]).code, 1);
    // A person repairs it.
    layer.sandbox.write("cured", "");
    let taint = |tainted: bool| {
        let state = layer.sandbox.read("module/terraform.tfstate");
        let (from, to) =
            ("\"schema_version\": 0,", "\"status\": \"tainted\", \"schema_version\": 0,");
        let (from, to) = if tainted { (from, to) } else { ("\"status\": \"tainted\",", "") };
        assert!(state.contains(from), "{state}");
        layer.sandbox.write("module/terraform.tfstate", &state.replacen(from, to, 1));
    };
    taint(false);
    let ended = layer.run(&["converge"]);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    taint(true);
    for _ in 0..2 {
        let ended = layer.run(&["converge"]);
        assert_eq!(ended.code, 3, "{}", ended.stderr);
    }
}
