//! The layers that take outputs of another one: L6, L7, L9, and the end of a layer.

use serde_json::Value;
use support::{Fault, FaultyDatastore};

use crate::layers::pair::{CLUSTER, Pair};

async fn stale(pair: &Pair) -> Value {
    pair.json("helm", "status.json").await["stale"].clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn l6_a_layer_must_run_again_only_if_what_it_took_has_changed() {
    let pair = Pair::applied().await;
    let before = pair.json("helm", "graph.json").await;
    pair.write("cluster", &CLUSTER.replace("\"one\"", "\"two\""));
    assert_eq!(pair.run(&["converge", "layers/cluster.yaml"]).code, 0);
    assert_eq!(stale(&pair).await, Value::Null, "it takes another output");
    let (ended, result) = pair.run_one("helm", &["check"]);
    assert_eq!((ended.code, &result["check"]["status"]), (0, &"ok".into()), "{}", ended.stderr);
    assert_eq!(result["inputs"]["sha256"], before["inputs"]["sha256"]);

    pair.write("cluster", &CLUSTER.replace("nodes = 2", "nodes = 3"));
    let ended = pair.run(&["converge", "layers/cluster.yaml"]);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    assert!(ended.stderr.contains("default/helm must run again"), "{}", ended.stderr);
    let why = stale(&pair).await;
    assert!(why.as_str().unwrap().contains("of default/cluster"), "{why}");
    let (_, result) = pair.run_one("helm", &["check"]);
    assert_eq!(result["check"]["status"], "changed");
    assert_ne!(result["inputs"]["sha256"], before["inputs"]["sha256"]);
    assert_eq!(stale(&pair).await, why, "a check applies nothing");
    let ended = pair.run(&["converge", "layers"]);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    assert_eq!(stale(&pair).await, Value::Null);
    assert_eq!(pair.json("helm", "outputs.json").await["release"]["value"], 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn l7_a_layer_is_destroyed_after_those_that_need_it_and_disappears() {
    let pair = Pair::applied().await;
    let (ended, result) = pair.run_one("cluster", &["destroy", "--auto-approve"]);
    assert_eq!((ended.code, &result["class"]), (12, &"blocked".into()), "{}", ended.stderr);
    assert!(ended.stderr.contains("blocked by default/helm"), "{}", ended.stderr);
    assert!(ended.stderr.contains("--force-with-dependants"), "{}", ended.stderr);
    let ended = pair.run(&["destroy", "layers", "--auto-approve"]);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    for layer in ["cluster", "helm"] {
        for name in ["status.json", "outputs.json", "outputs.env", "outputs.txt", "graph.json"] {
            assert_eq!(pair.document(layer, name).await, None, "{layer} {name}");
        }
    }
    // Nothing is left, so nothing of the cluster is needed.
    let ended = pair.run(&["destroy", "layers/helm.yaml", "--auto-approve"]);
    assert_eq!(ended.code, 0, "{}", ended.stderr);

    let pair = Pair::applied().await;
    let args = ["destroy", "layers/cluster.yaml", "--auto-approve", "--force-with-dependants"];
    let ended = pair.run(&args);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    let ended = pair.run(&["destroy", "layers/helm.yaml", "--auto-approve"]);
    assert_eq!(ended.code, 12, "it has lost what it needs: {}", ended.stderr);
    assert!(pair.state("helm").contains("terraform_data"));
    // What it takes can be given by hand.
    let values = ["--var", "nodes=2", "--var", "kubeconfig_path=/dev/null", "--auto-approve"];
    let (ended, _) = pair.run_one("helm", &[&["destroy"][..], &values].concat());
    assert_eq!(ended.code, 0, "{}", ended.stderr);
}

#[tokio::test(flavor = "multi_thread")]
async fn l7_a_layer_that_another_namespace_needs_is_not_destroyed() {
    let pair = Pair::new().await;
    assert_eq!(pair.run(&["converge", "layers/cluster.yaml"]).code, 0);
    pair.manifest(
        "helm",
        &[
            ("var-from", "default/cluster:nodes"),
            ("file-from", "default/cluster:kubeconfig=kubeconfig_path"),
        ],
    );
    let (ended, _) = pair.run_one("helm", &["converge", "--namespace", "other"]);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    let (ended, _) = pair.run_one("cluster", &["destroy", "--auto-approve"]);
    assert_eq!(ended.code, 12, "{}", ended.stderr);
    assert!(ended.stderr.contains("blocked by other/helm"), "{}", ended.stderr);
    let (ended, _) = pair.run_one("helm", &["destroy", "--namespace", "other", "--auto-approve"]);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    let (ended, _) = pair.run_one("cluster", &["destroy", "--auto-approve"]);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
}

/// Another cluster, which cannot be created before the file `created` exists.
fn replaced() -> String {
    CLUSTER.replace("\"v1\"", "\"v2\"").replace("v1-$", "v2-$").replace(
        "nodes = 2 }",
        "nodes = 2 }\n  provisioner \"local-exec\" { command = \"test -e created\" }",
    )
}

/// A caller need not have the right to list the statuses of layers.
#[tokio::test(flavor = "multi_thread")]
async fn outputs_are_withdrawn_although_nobody_can_be_told() {
    let pair = Pair::applied().await;
    let fault = Fault { method: "GET", part: "/api/statuses", status: 403, times: usize::MAX };
    let denying = FaultyDatastore::before(&pair.datastore.url, vec![fault]).await;
    pair.write("cluster", &replaced());
    let args = ["converge", "--source", "code", "layers/cluster.yaml", "--auto-approve"];
    let ended = pair.sandbox.run_with(&denying.url, &args);
    assert_eq!(ended.code, 1, "{}", ended.stderr);
    assert!(denying.seen().iter().any(|path| path.contains("/api/statuses")));
    let outputs = pair.json("cluster", "outputs.json").await;
    assert_eq!((&outputs["kubeconfig"], &outputs["note"]["value"]), (&Value::Null, &"one".into()));
    assert_eq!(pair.document("cluster", "outputs.env").await, None);
    assert_eq!(pair.json("cluster", "graph.json").await["outputs"], Value::Null);
}

#[tokio::test(flavor = "multi_thread")]
async fn l9_while_a_producer_is_replaced_nobody_gets_its_old_outputs() {
    let pair = Pair::applied().await;
    pair.write("cluster", &replaced());
    let ended = pair.run(&["converge", "layers/cluster.yaml", "--auto-approve"]);
    assert_eq!(ended.code, 1, "{}", ended.stderr);
    let why = stale(&pair).await;
    assert!(why.as_str().unwrap().contains("changes the output kubeconfig"), "{why}");
    let outputs = pair.json("cluster", "outputs.json").await;
    assert_eq!((&outputs["kubeconfig"], &outputs["note"]["value"]), (&Value::Null, &"one".into()));
    let (ended, result) = pair.run_one("helm", &["plan"]);
    assert_eq!((ended.code, &result["class"]), (12, &"waiting".into()), "{}", ended.stderr);
    assert!(ended.stderr.contains("or replaces it now"), "{}", ended.stderr);

    pair.sandbox.write("code/cluster/created", "");
    let ended = pair.run(&["converge", "layers", "--auto-approve"]);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    assert_eq!(stale(&pair).await, Value::Null);
    let helm = pair.json("helm", "graph.json").await;
    let cluster = pair.json("cluster", "graph.json").await;
    assert_eq!(helm["inputs"]["producers"][0]["run"], cluster["outputs"]["run"]);
    assert!(pair.document("cluster", "outputs.json").await.unwrap().contains("https://v2-2"));
}

/// As after an apply that failed when it had changed the output already.
#[tokio::test(flavor = "multi_thread")]
async fn outputs_that_an_apply_has_withdrawn_are_stored_by_the_next_one_that_does_not_change_them()
{
    let pair = Pair::applied().await;
    let mut graph = pair.json("cluster", "graph.json").await;
    graph["outputs"] = Value::Null;
    pair.put("cluster", "graph.json", graph.to_string()).await;
    pair.put("cluster", "outputs.json", "{}".to_owned()).await;
    let (waiting, _) = pair.run_one("helm", &["plan"]);
    assert_eq!(waiting.code, 12, "{}", waiting.stderr);
    pair.write("cluster", &format!("{CLUSTER}resource \"terraform_data\" \"new\" {{}}\n"));
    for action in ["plan", "apply"] {
        let (ended, _) = pair.run_one("cluster", &[action]);
        assert_eq!(ended.code, 0, "{action}: {}", ended.stderr);
    }
    let (planned, _) = pair.run_one("helm", &["plan"]);
    assert_eq!(planned.code, 0, "{}", planned.stderr);
}

/// Of a layer without outputs before, too.
#[tokio::test(flavor = "multi_thread")]
async fn new_output_of_an_apply_that_failed_is_stored_by_the_next_one() {
    let pair = Pair::applied().await;
    let fails = "\n  depends_on = [terraform_data.new]\n  provisioner \"local-exec\" { command = \"test -e created\" }\n";
    let new = format!(
        "resource \"terraform_data\" \"new\" {{ input = \"x\" }}\nresource \"terraform_data\" \"last\" {{{fails}}}\noutput \
         \"endpoint\" {{ value = terraform_data.new.output }}\n"
    );
    pair.write("cluster", &format!("{CLUSTER}{new}"));
    pair.manifest("alone", &[]);
    pair.write("alone", &new);
    for layer in ["cluster", "alone"] {
        for (action, code) in [("plan", 0), ("apply", 1)] {
            let (ended, _) = pair.run_one(layer, &[action]);
            assert_eq!(ended.code, code, "{layer}, {action}: {}", ended.stderr);
        }
        pair.sandbox.write(&format!("code/{layer}/created"), "");
        for action in ["plan", "apply"] {
            let (ended, _) = pair.run_one(layer, &[action]);
            assert_eq!(ended.code, 0, "{layer}, {action}: {}", ended.stderr);
        }
        assert_eq!(pair.json(layer, "outputs.json").await["endpoint"]["value"], "x", "{layer}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_converge_that_is_refused_is_not_the_plan_that_a_manifest_names() {
    let pair = Pair::applied().await;
    pair.write("cluster", &format!("{CLUSTER}resource \"terraform_data\" \"new\" {{}}\n"));
    let (planned, _) = pair.run_one("cluster", &["plan", "--run", "reviewed"]);
    assert_eq!(planned.code, 0, "{}", planned.stderr);
    let manifest = || pair.sandbox.read("layers/cluster.yaml");
    let reviewed = manifest();
    assert!(reviewed.contains("plan-run: reviewed/0"), "{reviewed}");
    pair.write("cluster", &replaced());
    // An approval of other changes does not make it one either.
    for approval in [&[][..], &["--approve-destructive", &"0".repeat(64)]] {
        let (refused, _) = pair.run_one("cluster", &[&["converge"], approval].concat());
        assert_eq!(refused.code, 3, "{}", refused.stderr);
        assert_eq!(manifest(), reviewed, "{approval:?}");
    }
    let (_, refused) = pair.run_one("cluster", &["converge"]);
    let approval = refused["check"]["approval"].as_str().unwrap();
    pair.sandbox.write("code/cluster/created", "");
    let (approved, _) = pair.run_one("cluster", &["converge", "--approve-destructive", approval]);
    assert_eq!(approved.code, 0, "{}", approved.stderr);
    assert!(!manifest().contains("reviewed"), "{}", manifest());
}

#[tokio::test(flavor = "multi_thread")]
async fn outputs_that_were_lost_are_stored_again_without_an_apply() {
    let pair = Pair::applied().await;
    for name in ["outputs.json", "graph.json"] {
        let query = format!("api/documents?namespace=default&layer=cluster&name={name}");
        let url = pair.datastore.url.join(&query).unwrap();
        assert!(reqwest::Client::new().delete(url).send().await.unwrap().status().is_success());
    }
    let ended = pair.run(&["converge", "layers"]);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    assert_eq!(pair.json("cluster", "outputs.json").await["nodes"]["value"], 2);
    // An apply that makes its own plan stores them, too.
    pair.write("cluster", &CLUSTER.replace("nodes = 2", "nodes = 5"));
    let (ended, _) = pair.run_one("cluster", &["apply", "--no-plan"]);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    assert_eq!(pair.json("cluster", "outputs.json").await["nodes"]["value"], 5);
}
