//! Needs that are not among the layers of the command: L4, by the statuses in the datastore.

use crate::layers::pair::{CLUSTER, Pair, row};

#[tokio::test(flavor = "multi_thread")]
async fn l4_a_layer_is_blocked_until_what_it_needs_elsewhere_is_as_declared() {
    let pair = Pair::new().await;
    pair.manifest("helm", &[("needs", "cluster")]);
    pair.write("helm", "resource \"terraform_data\" \"a\" {}\n");
    let blocked = |why: &str| {
        let ended = pair.run(&["converge", "layers/helm.yaml"]);
        assert_eq!(ended.code, 12, "{}", ended.stderr);
        let line = row(&ended, "helm").to_owned();
        assert!(line.contains("blocked") && line.contains(why), "{line}");
        assert_eq!(pair.state("helm"), "");
        assert!(!pair.sandbox.work().join("code/helm/.terraform").exists());
    };
    blocked("default/cluster, of which no status is recorded");
    assert!(
        pair.run(&["converge", "layers/helm.yaml"]).stderr.contains("converge that layer first")
    );
    pair.write("cluster", "resource \"terraform_data\" \"a\" {");
    assert_eq!(pair.run(&["converge", "layers/cluster.yaml"]).code, 8);
    blocked("whose last run was a failure");
    let status = pair.json("helm", "status.json").await;
    assert_eq!((&status["result"], &status["class"]), (&"blocked".into(), &"blocked".into()));
    assert_eq!(pair.run(&["converge", "layers"]).code, 8);
    let status = pair.json("helm", "status.json").await;
    assert_eq!((&status["result"], &status["class"]), (&"blocked".into(), &"blocked".into()));
    assert_eq!(status["message"], "default/cluster has failed or was not started");

    pair.write("cluster", CLUSTER);
    assert_eq!(pair.run(&["converge", "layers/cluster.yaml"]).code, 0);
    let ended = pair.run(&["converge", "layers/helm.yaml"]);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    pair.write("cluster", "");
    assert_eq!(pair.run(&["check", "layers/cluster.yaml"]).code, 3);
    let (ended, result) = pair.run_one("helm", &["check"]);
    assert_eq!((ended.code, &result["class"]), (12, &"blocked".into()), "{}", ended.stderr);
    let ended = pair.run(&["converge", "layers/helm.yaml", "--needs", "helm=dns"]);
    assert!(row(&ended, "helm").contains("default/dns, of which no status"), "{}", ended.stderr);
    // A plan of a person is not held up.
    assert_eq!(pair.run_one("helm", &["plan"]).0.code, 0);
}
