//! The ledger of an apply in pods: an attempt that comes again continues it.

use serde_json::{Value, json};
use support::FaultyDatastore;

use super::tenant;

const APPLY: &str = "if [ $STEP = apply ]; then echo 'a_b.c: Creating...'; fi";

#[tokio::test(flavor = "multi_thread")]
async fn ledger_of_an_attempt_that_comes_again_is_continued() {
    let tenant = tenant!("again");
    let tenant = tenant.fake(APPLY);
    tenant.ready(json!({})).await;
    tenant.run("plan-1", json!({})).await;
    assert_eq!(tenant.start("plan", "plan-1").code, 0);
    tenant.run("apply-1", json!({"run": "plan-1", "attempt": "0"})).await;
    // As the runner of a killed pod leaves it.
    let resource = json!({"address": "a_b.c", "action": "create", "state": "started",
        "since": "2026-01-01T00:00:00Z", "try": 1});
    let (namespace, layer) = (&tenant.namespace, "vpc");
    let at = "2026-01-01T00:00:00Z";
    let before = json!({"version": 1, "namespace": namespace, "layer": layer, "run": "apply-1", "attempt": 0,
        "plan_sha256": null, "tool": null, "started": at, "updated": at, "tries": 1, "resources": [resource]});
    let stored = tenant.stored("apply-1");
    stored.put_artifact("ledger.json", 0, b"{\"version\": 2}".to_vec()).await;
    let ended = tenant.start("apply", "apply-1");
    assert_eq!(ended.code, 1, "{}", ended.stderr);
    assert!(ended.stderr.contains("nothing was applied, because its ledger"), "{}", ended.stderr);
    stored.put_artifact("ledger.json", 0, before.to_string().into_bytes()).await;

    let ended = tenant.start("apply", "apply-1");

    assert_eq!(ended.code, 0, "{}", ended.stderr);
    let ledger = serde_json::from_slice::<Value>(&stored.artifact("ledger.json", 0).await).unwrap();
    let states = ledger["resources"].as_array().unwrap().iter();
    let states = states.map(|one| format!("{} {}", one["state"], one["try"])).collect::<Vec<_>>();
    assert_eq!(states, ["\"unknown\" 1", "\"completed\" 2"], "{ledger}");
    assert_eq!((&ledger["tries"], &ledger["started"]), (&2.into(), &at.into()));
}

#[tokio::test(flavor = "multi_thread")]
async fn burritos_datastore_has_no_place_for_a_ledger_which_is_a_warning() {
    let tenant = tenant!("without");
    let tenant = tenant.fake(APPLY);
    tenant.ready(json!({})).await;
    tenant.run("plan-1", json!({})).await;
    assert_eq!(tenant.start("plan", "plan-1").code, 0);
    tenant.run("apply-1", json!({"run": "plan-1", "attempt": "0"})).await;
    let burritos = FaultyDatastore::burritos(&tenant.datastore.url).await;
    let ended = tenant.start_through(&burritos.url, "apply", "apply-1");
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    assert_eq!(ended.stderr.matches("cannot keep the ledger").count(), 1, "{}", ended.stderr);
    assert!(burritos.ledgers().is_empty());
    assert!(tenant.annotation("apply-sum").await.is_string());
}
