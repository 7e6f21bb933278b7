//! An apply with transient errors is finished in its pod, under the number that the controllers decided.

use serde_json::{Value, json};
use support::FaultyDatastore;

use super::Tenant;
use super::tenant;
use crate::failure::apply_retries::{BROKEN, applies, failing_module, made};
use crate::json as parsed;
use crate::source::checkout::git;

/// A stored plan of a module that fails once, and a run that applies it.
async fn planned(tenant: &Tenant) {
    let (dir, sandbox) = (&tenant.repository.dir, &tenant.sandbox);
    let state = sandbox.path("terraform.tfstate");
    let backend = format!(
        "terraform {{\n  backend \"local\" {{\n    path = \"{}\"\n  }}\n}}\n",
        state.display()
    );
    let module = failing_module(sandbox, 1, BROKEN);
    std::fs::write(dir.join("live/vpc/main.tf"), format!("{backend}{module}")).unwrap();
    git(dir, &["commit", "--quiet", "-am", "failing"]);
    let commit = git(dir, &["rev-parse", "HEAD"]);
    tenant.layer(json!({})).await;
    tenant.bundle_of("main", "main", &commit).await;
    tenant.run_of("plan-1", json!({}), &commit).await;
    let ended = tenant.start("plan", "plan-1");
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    tenant.run_of("apply-1", json!({"run": "plan-1", "attempt": "0"}), &commit).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rest_of_an_apply_is_stored_and_applied_in_the_same_attempt() {
    let tenant = tenant!("remainder");
    planned(&tenant).await;

    let ended = tenant.start("apply", "apply-1");

    assert_eq!((ended.code, applies(&tenant.sandbox)), (0, 2), "{}", ended.stderr);
    assert_eq!(made(&tenant.sandbox), "first second third");
    assert_eq!(tenant.annotation("apply-sum").await, tenant.annotation("plan-sum").await);
    let stored = tenant.stored("apply-1");
    let names = stored.names(0).await;
    for name in ["applied.json", "remainder-1.bin", "remainder-1.json", "run.json"] {
        assert!(names.contains(&name.to_owned()), "{name}: {names:?}");
    }
    assert_eq!(stored.names(1).await, [""; 0]);
    let report = parsed(&stored.artifact("run.json", 0).await);
    let plan =
        parsed(&tenant.stored("plan-1").artifact("run.json", 0).await)["plan"]["sha256"].clone();
    assert_eq!((&report["applied"], &report["parent"]), (&plan, &plan));
    let tries = report["tries"].as_array().unwrap();
    assert_eq!(tries.iter().map(|of| of["attempt"].clone()).collect::<Vec<Value>>(), [0, 0]);
}

/// It cannot store the plan for the rest.
#[tokio::test(flavor = "multi_thread")]
async fn apply_with_burritos_own_datastore_is_not_tried_again() {
    let tenant = tenant!("remainder-burritos");
    planned(&tenant).await;
    let burritos = FaultyDatastore::burritos(&tenant.datastore.url).await;

    let ended = tenant.start_through(&burritos.url, "apply", "apply-1");

    assert_eq!((ended.code, applies(&tenant.sandbox)), (1, 1), "{}", ended.stderr);
    let says =
        "the apply is not tried again: Burrito's datastore cannot store the plan for the rest";
    assert!(ended.stderr.contains(says), "{}", ended.stderr);
}
