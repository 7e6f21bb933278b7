//! Snapshots in pods: only on request (`PLANCHA_SNAPSHOT=always`).

use serde_json::json;

use super::tenant;
use crate::source::checkout::git;

const ALWAYS: [(&str, &str); 1] = [("PLANCHA_SNAPSHOT", "always")];
const PRINTS_MAIN: &str = "if [ $STEP = apply ]; then cat main.tf; fi";

#[tokio::test(flavor = "multi_thread")]
async fn an_apply_in_a_pod_works_in_the_snapshot_of_its_plan_on_request() {
    let tenant = tenant!("snapshot").fake(PRINTS_MAIN);
    tenant.ready(json!({})).await;
    tenant.run("plan-1", json!({})).await;
    let planned = tenant.start("plan", "plan-1");
    assert_eq!(planned.code, 0, "{}", planned.stderr);
    let has_snapshot =
        async || tenant.stored("plan-1").names(0).await.contains(&"workspace.tar.zst".to_owned());
    assert!(!has_snapshot().await);
    // The controller repeats the number: the plan and its binding are replaced, and a snapshot is added.
    let planned = tenant.start_with("plan", "plan-1", &ALWAYS);
    assert_eq!(planned.code, 0, "{}", planned.stderr);
    assert!(has_snapshot().await);
    // The branch was replaced, and its bundle no longer has the plan's commit.
    let dir = &tenant.repository.dir;
    git(dir, &["checkout", "--quiet", "--orphan", "anew"]);
    std::fs::write(dir.join("live/vpc/main.tf"), "# anew\n").unwrap();
    git(dir, &["add", "."]);
    git(dir, &["commit", "--quiet", "-m", "anew"]);
    git(dir, &["branch", "-M", "main"]);
    let anew = git(dir, &["rev-parse", "HEAD"]);
    tenant.bundle_of("main", "main", &anew).await;
    tenant.run_of("apply-1", json!({"run": "plan-1", "attempt": "0"}), &anew).await;

    let applied = tenant.start_with("apply", "apply-1", &ALWAYS);

    assert_eq!(applied.code, 0, "{}", applied.stderr);
    let log = tenant.stored("apply-1").log(0).await;
    assert!(log.contains("first") && !log.contains("anew"), "{log}");
    assert_eq!(tenant.annotation("apply-commit").await, *tenant.repository.commits[0]);
    let calls = tenant.sandbox.calls();
    assert!(
        calls.iter().any(|call| call.starts_with("init") && call.contains("readonly")),
        "{calls:?}"
    );
}
