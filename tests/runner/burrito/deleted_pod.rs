//! A pod that is deleted during its run: what it does within Kubernetes' grace period.

use std::time::{Duration, Instant};

use serde_json::json;
use support::{Fault, FaultyDatastore, Started, eventually};

use super::{Tenant, tenant};

#[tokio::test(flavor = "multi_thread")]
async fn deleted_pod_finishes_its_apply_in_time_with_a_silent_datastore() {
    assert_finishes_in_time(tenant!("deleted"), 0).await;
}

/// It asks for a longer pause than there is time.
#[tokio::test(flavor = "multi_thread")]
async fn deleted_pod_writes_its_annotations_though_the_datastore_is_busy() {
    assert_finishes_in_time(tenant!("deleted-busy"), 429).await;
}

/// The apply of a pod is done when SIGTERM comes, and the datastore answers uploads with this status (see [`Fault`]).
/// Kubernetes kills a pod 30 s after SIGTERM: the tool has 20 s of them, and what follows it 8 s.
async fn assert_finishes_in_time(tenant: Tenant, status: u16) {
    let [started, done] = ["started", "done"].map(|name| tenant.sandbox.path(name));
    let tenant = tenant.fake(&format!(
        "if [ $STEP = apply ]; then trap '' INT; touch {}; sleep 2; touch {}; fi",
        started.display(),
        done.display()
    ));
    tenant.ready(json!({})).await;
    tenant.run("plan-1", json!({})).await;
    assert_eq!(tenant.start("plan", "plan-1").code, 0);
    tenant.run("apply-1", json!({"run": "plan-1", "attempt": "0"})).await;
    let silent = Fault { method: "PUT", part: "run=apply-1", status, times: usize::MAX };
    let silent = FaultyDatastore::before(&tenant.datastore.url, vec![silent]).await;
    let mut command = tenant.command("apply", "apply-1");
    command.env("BURRITO_DATASTORE_HOSTNAME", silent.url.authority());
    let runner = Started::spawn(command);
    eventually("apply runs", || started.exists());
    runner.signal("TERM");
    eventually("apply has ended", || done.exists());
    let applied = Instant::now();
    let ended = runner.wait();
    // Not a matter of speed: the pod of a tool that takes its 20 s would be killed then.
    assert!(applied.elapsed() < Duration::from_secs(10), "{}", ended.stderr);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    assert!(tenant.annotation("apply-sum").await.is_string(), "{}", ended.stderr);
}
