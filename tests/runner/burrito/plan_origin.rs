//! A plan is applied at its own commit, and only to its own repository.

use serde_json::json;

use super::{Tenant, tenant};
use crate::json as parsed;
use crate::source::checkout::git;

const SHOWS: &str = "if [ $STEP = apply ]; then cat main.tf; fi";

async fn planned(tenant: &Tenant) {
    tenant.ready(json!({})).await;
    tenant.run("plan-1", json!({})).await;
    let ended = tenant.start("plan", "plan-1");
    assert_eq!(ended.code, 0, "{}", ended.stderr);
}

/// Commits a change on `main`, without history where `anew`: as a force push leaves it.
fn commit(tenant: &Tenant, text: &str, anew: bool) -> String {
    let dir = &tenant.repository.dir;
    if anew {
        git(dir, &["checkout", "--quiet", "--orphan", "anew"]);
    }
    std::fs::write(dir.join("live/vpc/main.tf"), format!("# {text}\n")).unwrap();
    git(dir, &["add", "."]);
    git(dir, &["commit", "--quiet", "-m", text]);
    git(dir, &["branch", "-M", "main"]);
    git(dir, &["rev-parse", "HEAD"])
}

/// The bundle of the apply is of a later commit than the plan.
#[tokio::test(flavor = "multi_thread")]
async fn apply_checks_out_the_plans_commit_if_the_bundle_has_it() {
    let tenant = tenant!("commit").fake(SHOWS);
    planned(&tenant).await;
    let later = commit(&tenant, "later", false);
    tenant.bundle_of("main", "main", &later).await;
    tenant.run_of("apply-1", json!({"run": "plan-1", "attempt": "0"}), &later).await;

    let ended = tenant.start("apply", "apply-1");

    assert_eq!(ended.code, 0, "{}", ended.stderr);
    let planned = &tenant.repository.commits[0];
    let log = tenant.stored("apply-1").log(0).await;
    assert!(log.contains(&format!("working on the plan's commit {planned}")), "{log}");
    assert!(log.contains("first") && !log.contains("later"), "{log}");
    assert_eq!(tenant.annotation("apply-commit").await, **planned);
}

#[tokio::test(flavor = "multi_thread")]
async fn apply_uses_the_bundles_commit_and_logs_both_if_the_plans_is_missing() {
    let tenant = tenant!("lacks").fake(SHOWS);
    planned(&tenant).await;
    let anew = commit(&tenant, "anew", true);
    tenant.bundle_of("main", "main", &anew).await;
    tenant.run_of("apply-1", json!({"run": "plan-1", "attempt": "0"}), &anew).await;

    let ended = tenant.start("apply", "apply-1");

    assert_eq!(ended.code, 0, "{}", ended.stderr);
    let planned = &tenant.repository.commits[0];
    let says = format!("the bundle lacks the plan's commit {planned}: working on {anew}");
    let log = tenant.stored("apply-1").log(0).await;
    assert!(log.contains(&says) && ended.stderr.contains(&says), "{log}\n{}", ended.stderr);
    assert!(log.contains("# anew"), "{log}");
    // What was applied is the plan.
    assert_eq!(tenant.annotation("apply-commit").await, **planned);
    let report = parsed(&tenant.stored("apply-1").artifact("run.json", 0).await);
    assert_eq!((&report["outcome"], &report["revision"]), (&"applied".into(), &json!(planned)));
}

/// The repository's URL in any spelling is one place, and another one is not.
#[tokio::test(flavor = "multi_thread")]
async fn pod_does_not_apply_a_plan_of_another_repository() {
    let tenant = tenant!("elsewhere").fake(SHOWS);
    planned(&tenant).await;
    let report = parsed(&tenant.stored("plan-1").artifact("run.json", 0).await);
    let place = json!({"repository": "git.example.com/platform/infra", "path": "live/vpc",
        "workspace": "default"});
    assert_eq!(report["place"], place);
    let on = json!({"enabled": true});
    for (name, url) in [
        ("other", "https://git.example.com/platform/other.git"),
        ("same", "git@git.example.com:platform/infra"),
    ] {
        let spec = json!({"repository": {"url": url}, "terraform": on});
        tenant.repository_object(name, spec).await;
        assert_eq!(tenant.bundle_for(name).await, 200);
    }
    let moved = async |repository: &str, run: &str| {
        let place = json!({"name": repository, "namespace": tenant.namespace});
        tenant.change_layer(json!({ "repository": place })).await;
        tenant.run(run, json!({"run": "plan-1", "attempt": "0"})).await;
        tenant.start("apply", run)
    };

    let ended = moved("other", "apply-1").await;

    assert_eq!(ended.code, 1, "{}", ended.stderr);
    for text in [
        "made for another place",
        "git.example.com/platform/infra",
        "git.example.com/platform/other",
    ] {
        assert!(ended.stderr.contains(text), "{text}: {}", ended.stderr);
    }
    assert!(!tenant.sandbox.calls().iter().any(|call| call.starts_with("apply")));
    assert!(tenant.annotation("apply-sum").await.is_null());
    let ended = moved("same", "apply-2").await;
    assert_eq!(ended.code, 0, "{}", ended.stderr);
}
