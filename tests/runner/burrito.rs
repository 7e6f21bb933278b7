//! `runner start` against a real Kubernetes API with Burrito's objects and rights, and a real datastore.
//! The rows of the contract that a test shows stand in its name.
//!
//! `scripts/e2e-kubernetes` starts the API and names its kubeconfig in `PLANCHA_TEST_KUBECONFIG`; without it
//! there is nothing to be seen here.

mod again;
mod deleted;
mod faults;
mod namespace;
mod order;
mod pod;
mod tools;

use datastore_api::Sha256;
use regex::Regex;
use serde_json::json;
use support::FaultyDatastore;

use self::namespace::Tenant;

macro_rules! tenant {
    ($name:literal) => {
        match $crate::burrito::Tenant::new($name).await {
            Some(tenant) => tenant,
            None => return eprintln!("not seen here: PLANCHA_TEST_KUBECONFIG names no cluster"),
        }
    };
}
use tenant;

#[tokio::test(flavor = "multi_thread")]
async fn rn05_rn07_burritos_plan_and_apply_leave_burritos_annotations_and_files() {
    let tenant = tenant!("flow");
    tenant.ready(json!({})).await;
    tenant.run("plan-1", json!({})).await;

    let ended = tenant.start("plan", "plan-1");

    assert_eq!(ended.code, 0, "{}", ended.stderr);
    assert!(ended.stdout.contains("x = \"first\""), "the revision, not the tip: {}", ended.stdout);
    let annotations = tenant.annotations().await;
    assert_eq!(annotations.as_object().unwrap().len(), 4, "{annotations}");
    let bin = tenant.stored("plan-1").plan("bin", 0).await;
    assert_eq!(tenant.annotation("plan-run").await, "plan-1/0");
    assert_eq!(tenant.annotation("plan-sum").await, Sha256::of(&bin).to_base64());
    assert_eq!(tenant.annotation("plan-commit").await, tenant.repository.commits[0]);
    // Go's UnixDate, which the controllers parse: the day padded with a space, and UTC.
    let date =
        Regex::new(r"^[A-Z][a-z]{2} [A-Z][a-z]{2} ( \d|\d\d) \d\d:\d\d:\d\d UTC \d{4}$").unwrap();
    let is_date = |value: serde_json::Value| date.is_match(value.as_str().unwrap());
    assert!(is_date(tenant.annotation("plan-date").await));
    assert_eq!(
        tenant.short("plan-1", 0).await,
        "Plan: 0 to create, 0 to update, 0 to delete",
        "outputs are not counted"
    );

    tenant.run("apply-1", json!({"run": "plan-1", "attempt": "0"})).await;
    let ended = tenant.start("apply", "apply-1");
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    assert!(ended.stdout.contains("Apply complete!"), "{}", ended.stdout);
    assert_eq!(tenant.annotations().await.as_object().unwrap().len(), 7);
    assert_eq!(tenant.annotation("apply-sum").await, tenant.annotation("plan-sum").await);
    assert_eq!(tenant.annotation("apply-commit").await, tenant.repository.commits[0]);
    assert!(is_date(tenant.annotation("apply-date").await));
    assert_eq!(tenant.short("apply-1", 0).await, "Apply Successful");
}

/// An empty attempt is the latest that has a plan.
#[tokio::test(flavor = "multi_thread")]
async fn rn07_an_apply_without_an_attempt_takes_the_latest() {
    let tenant = tenant!("latest");
    tenant.ready(json!({})).await;
    tenant.run("plan-1", json!({})).await;
    tenant.status("plan-1", json!({"retries": 3})).await;
    assert_eq!(tenant.start("plan", "plan-1").code, 0);
    assert_eq!(tenant.annotation("plan-run").await, "plan-1/3");
    tenant.run("apply-1", json!({"run": "plan-1", "attempt": ""})).await;
    let ended = tenant.start("apply", "apply-1");
    assert_eq!(ended.code, 0, "{}", ended.stderr);
}

#[tokio::test(flavor = "multi_thread")]
async fn rn01_a_plan_asks_the_api_three_gets_and_one_merge_patch() {
    let tenant = tenant!("asked");
    tenant.ready(json!({})).await;
    tenant.run("plan-1", json!({})).await;
    let api = FaultyDatastore::before(&tenant.server, vec![]).await;
    let kubeconfig = tenant.kubeconfig("through", &api.url, &tenant.token);

    let ended =
        tenant.start_with("plan", "plan-1", &[("KUBECONFIG", kubeconfig.to_str().unwrap())]);

    assert_eq!(ended.code, 0, "{}", ended.stderr);
    let base = format!(
        "/apis/config.terraform.padok.cloud/v1alpha1/namespaces/{}/terraform",
        tenant.namespace
    );
    let seen = api.seen().iter().map(|line| line.replace(&base, "")).collect::<Vec<_>>();
    assert_eq!(
        seen,
        ["GET layers/vpc", "GET runs/plan-1", "GET repositories/repo", "PATCH layers/vpc?"]
    );
    let kinds = api.header("content-type");
    assert_eq!(kinds, ["application/merge-patch+json"]);
}

/// A retry's pod is made before its number is saved ("openings" 2).
#[tokio::test(flavor = "multi_thread")]
async fn rn01_rn04_the_run_is_read_until_it_tells_of_our_pod() {
    let tenant = tenant!("race");
    tenant.ready(json!({})).await;
    tenant.run("plan-1", json!({})).await;
    let before = json!({"retries": 0, "runnerPod": "pod-0", "attempts": [{"podName": "pod-0", "number": 0}]});
    tenant.status("plan-1", before).await;
    let api = FaultyDatastore::before(&tenant.server, vec![]).await;
    let kubeconfig = tenant.kubeconfig("through", &api.url, &tenant.token);
    let (looked, noted) = tokio::join!(
        tokio::task::spawn_blocking({
            let mut command = tenant.command("plan", "plan-1");
            command.env("KUBECONFIG", kubeconfig).env("HOSTNAME", "pod-1");
            move || support::Ended::from(command.output().unwrap())
        }),
        async {
            while !api.seen().iter().any(|line| line.contains("terraformruns")) {
                tokio::time::sleep(std::time::Duration::from_millis(20)).await;
            }
            let after = json!({"retries": 1, "runnerPod": "pod-1", "attempts": [
                {"podName": "pod-0", "number": 0}, {"podName": "pod-1", "number": 1}]});
            tenant.status("plan-1", after).await;
        }
    );
    let ((), ended) = (noted, looked.unwrap());
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    assert_eq!(tenant.annotation("plan-run").await, "plan-1/1");
    let looks = |seen: Vec<String>| seen.iter().filter(|line| line.contains("runs/")).count();
    assert!((2..=5).contains(&looks(api.seen())), "{:?}", api.seen());

    // Nobody ever notes it: five looks, and the retries so far.
    let ended = tenant.start_with("plan", "plan-1", &[("HOSTNAME", "pod-2")]);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    assert_eq!(tenant.annotation("plan-run").await, "plan-1/1");
}

#[tokio::test(flavor = "multi_thread")]
async fn rn04_a_plan_fetches_its_bundle_and_puts_its_files_under_its_attempt() {
    let tenant = tenant!("calls");
    // The kubelet writes a new token while the tool works.
    let token = tenant.sandbox.path("token").display().to_string();
    let tenant = tenant.fake(&format!("if [ $STEP = plan ]; then echo rotated > {token}; fi"));
    tenant.ready(json!({})).await;
    tenant.run("plan-1", json!({})).await;
    tenant.status("plan-1", json!({"retries": 2})).await;
    let listening = FaultyDatastore::before(&tenant.datastore.url, vec![]).await;

    let ended = tenant.start_through(&listening.url, "plan", "plan-1");

    assert_eq!(ended.code, 0, "{}", ended.stderr);
    let seen = listening.seen();
    let has = |start: &str, end: &str| {
        seen.iter().filter(|line| line.starts_with(start) && line.ends_with(end)).count() == 1
    };
    assert!(has("GET /api/repository/revision/bundle?", &tenant.repository.commits[0]), "{seen:?}");
    for format in ["pretty", "json", "short", "bin"] {
        assert!(
            has("PUT /api/plans?", &format!("run=plan-1&attempt=2&format={format}")),
            "{seen:?}"
        );
    }
    let tokens = listening.authorizations();
    assert_eq!(tokens.first().unwrap(), "a datastore token", "raw, and trimmed");
    assert_eq!(tokens.last().unwrap(), "rotated");
    assert_eq!(tokens.len(), seen.len());
}

/// A token of the cluster's for the audience `burrito`, and a datastore that asks the cluster about it.
#[tokio::test(flavor = "multi_thread")]
async fn rn04_the_pods_own_token_is_what_the_datastore_lets_in() {
    let tenant = tenant!("token");
    tenant.ready(json!({})).await;
    tenant.run("plan-1", json!({})).await;
    tenant.account("datastore").await;
    tenant.may_review("datastore").await;
    let reviewer = tenant.token_of("datastore", None).await;
    let reviewer = tenant.kubeconfig("reviewer", &tenant.server, &reviewer);
    let guarded = support::TestDatastore::in_cluster(&reviewer).await;
    // As the controllers would: a runner may not write bundles.
    let commit = &tenant.repository.commits[0];
    let bundle = format!("repositories/{}/repo/main/{commit}.gitbundle", tenant.namespace);
    let bundle = guarded.root().join(bundle);
    std::fs::create_dir_all(bundle.parent().unwrap()).unwrap();
    std::fs::copy(tenant.sandbox.path("cut.gitbundle"), bundle).unwrap();
    let token = |text: &str| std::fs::write(tenant.sandbox.path("token"), text).unwrap();

    token(&tenant.token_of("burrito-runner", None).await);
    let ended = tenant.start_through(&guarded.url, "plan", "plan-1");
    assert_eq!(ended.code, 1, "a token for the API is none for the datastore");
    assert!(ended.stderr.contains("401 Unauthorized: invalid token"), "{}", ended.stderr);

    token(&tenant.token_of("burrito-runner", Some("burrito")).await);
    let ended = tenant.start_through(&guarded.url, "plan", "plan-1");
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    assert_eq!(tenant.annotation("plan-run").await, "plan-1/0");
}
