//! After a successful apply, no later pod applies again.

use serde_json::json;
use support::{Ended, Fault, FaultyDatastore, Started, eventually};

use super::Tenant;
use super::tenant;
use crate::json as parsed;

/// A layer whose plan is stored, and a run that applies it.
async fn planned(tenant: &Tenant, layer: serde_json::Value) {
    tenant.ready(layer).await;
    tenant.run("plan-1", json!({})).await;
    let ended = tenant.start("plan", "plan-1");
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    tenant.run("apply-1", json!({"run": "plan-1", "attempt": "0"})).await;
}

/// Kills an apply while it waits for the API to take its annotations.
async fn killed_before_the_annotations(tenant: &Tenant) {
    let hangs = Fault { method: "PATCH", part: "", status: 0, times: usize::MAX };
    let api = FaultyDatastore::before(&tenant.server, vec![hangs]).await;
    let kubeconfig = tenant.kubeconfig("hanging", &api.url, &tenant.token);
    let mut command = tenant.command("apply", "apply-1");
    command.env("KUBECONFIG", kubeconfig);
    let runner = Started::spawn(command);
    tokio::task::block_in_place(|| {
        eventually("the annotations are on their way", || {
            api.seen().iter().any(|line| line.starts_with("PATCH"))
        });
    });
    assert!(runner.said("Apply complete!"));
    runner.signal("KILL");
    assert_eq!(runner.wait().code, -1);
    let record = parsed(&tenant.stored("apply-1").artifact("applied.json", 0).await);
    assert_eq!(record["applied"], record["plan"]["sha256"], "{record}");
    assert!(tenant.annotation("apply-sum").await.is_null());
}

async fn only_noted(tenant: &Tenant, ended: &Ended, attempt: u32) {
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    assert!(!ended.stdout.contains("Apply complete!"), "{}", ended.stdout);
    assert!(ended.stderr.contains("attempt 0 of run apply-1 has applied this"), "{}", ended.stderr);
    assert_eq!(tenant.annotation("apply-sum").await, tenant.annotation("plan-sum").await);
    assert_eq!(tenant.annotation("apply-commit").await, tenant.repository.commits[0]);
    assert_eq!(tenant.short("apply-1", attempt).await, "Apply Successful");
    let report = parsed(&tenant.stored("apply-1").artifact("run.json", attempt).await);
    assert_eq!(report["outcome"], "applied");
}

#[tokio::test(flavor = "multi_thread")]
async fn apply_killed_before_its_annotations_is_only_recorded_by_the_next_attempt() {
    let tenant = tenant!("killed");
    planned(&tenant, json!({})).await;
    killed_before_the_annotations(&tenant).await;
    tenant.status("apply-1", json!({"retries": 1})).await;
    let ended = tenant.start("apply", "apply-1");
    only_noted(&tenant, &ended, 1).await;
}

/// The pod was lost, and another came before the controller had counted.
#[tokio::test(flavor = "multi_thread")]
async fn completed_apply_is_only_recorded_by_an_attempt_with_the_same_number() {
    let tenant = tenant!("same");
    planned(&tenant, json!({})).await;
    killed_before_the_annotations(&tenant).await;
    let ended = tenant.start("apply", "apply-1");
    only_noted(&tenant, &ended, 0).await;
}

/// The applied plan is recorded, whether or not it and the code are still available.
#[tokio::test(flavor = "multi_thread")]
async fn recording_an_apply_needs_neither_bundle_nor_plan() {
    let tenant = tenant!("bare");
    planned(&tenant, json!({})).await;
    killed_before_the_annotations(&tenant).await;
    let gone = |part| Fault { method: "GET", part, status: 404, times: usize::MAX };
    let gone = vec![gone("/api/repository"), gone("format=bin")];
    let faulty = FaultyDatastore::before(&tenant.datastore.url, gone).await;
    for attempt in [0, 1] {
        tenant.status("apply-1", json!({ "retries": attempt })).await;
        let ended = tenant.start_through(&faulty.url, "apply", "apply-1");
        only_noted(&tenant, &ended, attempt).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn unreadable_apply_record_is_not_replaced() {
    let tenant = tenant!("unread");
    planned(&tenant, json!({})).await;
    killed_before_the_annotations(&tenant).await;
    let unread = Fault { method: "GET", part: "name=applied.json", status: 403, times: usize::MAX };
    let faulty = FaultyDatastore::before(&tenant.datastore.url, vec![unread]).await;
    let ended = tenant.start_through(&faulty.url, "apply", "apply-1");
    assert_eq!(ended.code, 1, "{}", ended.stderr);
    tenant.status("apply-1", json!({"retries": 1})).await;
    only_noted(&tenant, &tenant.start("apply", "apply-1"), 1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn apply_of_a_run_happens_once_however_it_is_requested_later() {
    let tenant = tenant!("toggled");
    planned(&tenant, json!({})).await;
    killed_before_the_annotations(&tenant).await;
    let unplanned = json!({"remediationStrategy": {"applyWithoutPlanArtifact": true}});
    tenant.change_layer(unplanned).await;
    tenant.status("apply-1", json!({"retries": 1})).await;
    only_noted(&tenant, &tenant.start("apply", "apply-1"), 1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn apply_without_a_plan_happens_once_per_run() {
    let tenant = tenant!("unplanned");
    planned(&tenant, json!({"remediationStrategy": {"applyWithoutPlanArtifact": true}})).await;
    assert_eq!(tenant.start("apply", "apply-1").code, 0);
    tenant.status("apply-1", json!({"retries": 1})).await;
    let ended = tenant.start("apply", "apply-1");
    only_noted(&tenant, &ended, 1).await;
}

/// What was lost after the apply is a warning: the controllers would answer a failure by another apply.
#[tokio::test(flavor = "multi_thread")]
async fn lost_upload_after_an_apply_does_not_fail_it() {
    let tenant = tenant!("lost");
    planned(&tenant, json!({})).await;
    let lost = Fault { method: "PUT", part: "format=short", status: 500, times: usize::MAX };
    let losing = FaultyDatastore::before(&tenant.datastore.url, vec![lost]).await;
    let ended = tenant.start_through(&losing.url, "apply", "apply-1");
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    assert!(ended.stderr.contains("applied, but not all of it is stored"), "{}", ended.stderr);
    assert_eq!(tenant.annotation("apply-sum").await, tenant.annotation("plan-sum").await);
}

/// A repeated number: the pod was lost, and another came before the controller had counted.
#[tokio::test(flavor = "multi_thread")]
async fn failed_pod_with_the_same_number_keeps_log_and_report_of_a_finished_plan() {
    let tenant = tenant!("kept");
    tenant.ready(json!({})).await;
    tenant.run("plan-1", json!({})).await;
    assert_eq!(tenant.start("plan", "plan-1").code, 0);
    let stored = tenant.stored("plan-1");
    let all = async || {
        let (report, log) = (stored.artifact("run.json", 0).await, stored.log(0).await);
        (report, log, stored.plan("short", 0).await, stored.plan("bin", 0).await)
    };
    let before = all().await;
    let fails = tenant.sandbox.path("bin/terraform");
    let tenant = tenant.fake("exit 1");
    assert_eq!(tenant.start("plan", "plan-1").code, 1);
    assert_eq!(all().await, before);
    std::fs::remove_file(fails).unwrap();
    // One that replaces the plan replaces them all. A plan file holds its time, in seconds: two of the same
    // second are the same file.
    tokio::time::sleep(std::time::Duration::from_millis(1100)).await;
    assert_eq!(tenant.start("plan", "plan-1").code, 0);
    let after = all().await;
    assert!(after.0 != before.0 && after.3 != before.3);
    assert_eq!(parsed(&after.0)["plan"]["sha256"], datastore_api::Sha256::of(&after.3).to_string());
}

/// A controller whose layer is not annotated orders the plan again, under another name.
#[tokio::test(flavor = "multi_thread")]
async fn annotations_refused_after_an_apply_are_written_by_the_next_run() {
    let tenant = tenant!("reorder");
    planned(&tenant, json!({})).await;
    let refused = Fault { method: "PATCH", part: "", status: 403, times: usize::MAX };
    let api = FaultyDatastore::before(&tenant.server, vec![refused]).await;
    let kubeconfig = tenant.kubeconfig("refusing", &api.url, &tenant.token);
    let kubeconfig = kubeconfig.to_str().unwrap();
    let ended = tenant.start_with("apply", "apply-1", &[("KUBECONFIG", kubeconfig)]);
    assert_eq!(ended.code, 1, "{}", ended.stderr);
    assert!(tenant.annotation("apply-sum").await.is_null());
    tenant.run("apply-2", json!({"run": "plan-1", "attempt": "0"})).await;
    let ended = tenant.start("apply", "apply-2");
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    assert!(!ended.stdout.contains("Apply complete!"), "{}", ended.stdout);
    assert_eq!(tenant.annotation("apply-sum").await, tenant.annotation("plan-sum").await);

    // Without a record another pod would apply again: so this one does not fail.
    let burritos = FaultyDatastore::burritos(&tenant.datastore.url).await;
    tenant.run("plan-2", json!({})).await;
    assert_eq!(tenant.start("plan", "plan-2").code, 0);
    tenant.run("apply-3", json!({"run": "plan-2", "attempt": "0"})).await;
    let mut command = tenant.command("apply", "apply-3");
    command.env("KUBECONFIG", kubeconfig);
    command.env("BURRITO_DATASTORE_HOSTNAME", burritos.url.authority());
    let ended = Ended::from(command.output().unwrap());
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    assert!(ended.stderr.contains("annotations could not be written"), "{}", ended.stderr);
}

/// RN17.
#[tokio::test(flavor = "multi_thread")]
async fn rn17_sigterm_becomes_one_sigint_to_the_tool_which_is_waited_for() {
    let tenant = tenant!("term");
    let tenant = tenant.fake(
        "if [ $STEP = apply ]; then trap 'sleep 0.5; echo interrupted in good order; exit 1' INT; \
         echo applying; while :; do sleep 0.05; done; fi",
    );
    planned(&tenant, json!({})).await;
    let runner = Started::spawn(tenant.command("apply", "apply-1"));
    tokio::task::block_in_place(|| eventually("it applies", || runner.said("applying")));
    runner.signal("TERM");
    let ended = runner.wait();
    assert_eq!(ended.code, 1, "{}", ended.stderr);
    assert!(ended.stdout.contains("interrupted in good order"), "{}", ended.stdout);
    assert!(tenant.annotation("apply-sum").await.is_null());
    let short = tenant.short("apply-1", 0).await;
    assert!(
        short.starts_with("terraform apply was stopped by SIGTERM; it had created 0"),
        "{short}"
    );
}

/// The API server is restarted, say, and a proxy before it answers with a page.
#[tokio::test(flavor = "multi_thread")]
async fn annotations_after_an_apply_are_retried() {
    let tenant = tenant!("retried");
    planned(&tenant, json!({})).await;
    let faults =
        [500, 503, 200].map(|status| Fault { method: "PATCH", part: "", status, times: 1 });
    let api = FaultyDatastore::before(&tenant.server, faults.to_vec()).await;
    let kubeconfig = tenant.kubeconfig("restarted", &api.url, &tenant.token);
    let kubeconfig = [("KUBECONFIG", kubeconfig.to_str().unwrap())];

    let ended = tenant.start_with("apply", "apply-1", &kubeconfig);

    assert_eq!(ended.code, 0, "{}", ended.stderr);
    assert_eq!(ended.stdout.matches("Apply complete!").count(), 1, "{}", ended.stdout);
    assert_eq!(api.seen().iter().filter(|line| line.starts_with("PATCH")).count(), 4);
    let retried = format!("the annotations of TerraformLayer {}/vpc: ", tenant.namespace);
    let retried = ended.stderr.lines().filter(|line| line.contains(&retried));
    assert_eq!(retried.filter(|line| line.contains("trying again in")).count(), 2, "{ended:?}");
    assert_eq!(tenant.annotation("apply-sum").await, tenant.annotation("plan-sum").await);
}

/// D8: a plan file differs each time, so each drift plan would be applied.
#[tokio::test(flavor = "multi_thread")]
async fn empty_plan_keeps_the_apply_sum_and_an_apply_of_it_starts_no_tool() {
    let tenant = tenant!("empty");
    let tenant =
        tenant.fake("case \"$*\" in *-json*) echo '{\"format_version\":\"1.2\"}'; exit 0;; esac");
    planned(&tenant, json!({})).await;
    let first = tenant.start("apply", "apply-1");
    assert!(first.code == 0 && first.stdout.contains("apply is done"), "{}", first.stderr);
    let sum = tenant.annotation("apply-sum").await;
    let skip = [("PLANCHA_SKIP_EMPTY_PLANS", "true")];
    tenant.run("plan-2", json!({})).await;
    let ended = tenant.start_with("plan", "plan-2", &skip);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    assert_eq!(tenant.annotation("plan-sum").await, sum);
    assert_eq!(tenant.annotation("plan-run").await, "plan-2/0");

    tenant.run("apply-2", json!({"run": "plan-2", "attempt": "0"})).await;
    let ended = tenant.start("apply", "apply-2");
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    assert!(!ended.stdout.contains("apply is done"), "{}", ended.stdout);
    assert_eq!(tenant.annotation("apply-sum").await, sum);
    assert_eq!(tenant.annotation("plan-sum").await, sum);
    assert_eq!(tenant.short("apply-2", 0).await, "Apply Successful");
}

/// Otherwise `apply-sum` would differ from `plan-sum` after each apply, and the controllers would never stop.
#[tokio::test(flavor = "multi_thread")]
async fn apply_without_a_plan_that_is_ordered_for_an_empty_plan_writes_the_kept_sum() {
    let tenant = tenant!("kept-sum");
    let tenant =
        tenant.fake("case \"$*\" in *-json*) echo '{\"format_version\":\"1.2\"}'; exit 0;; esac");
    planned(&tenant, json!({"remediationStrategy": {"applyWithoutPlanArtifact": true}})).await;
    assert_eq!(tenant.start("apply", "apply-1").code, 0);
    tenant.run("plan-2", json!({})).await;
    let skip = [("PLANCHA_SKIP_EMPTY_PLANS", "true")];
    assert_eq!(tenant.start_with("plan", "plan-2", &skip).code, 0);
    tenant.run("apply-2", json!({"run": "plan-2", "attempt": "0"})).await;
    let ended = tenant.start("apply", "apply-2");
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    assert_eq!(tenant.annotation("apply-sum").await, tenant.annotation("plan-sum").await);
}
