//! Failed runs, and what the controllers see of them.

use serde_json::json;
use support::{Ended, Fault, FaultyDatastore};

use super::tenant;

const ALWAYS: usize = usize::MAX;

#[tokio::test(flavor = "multi_thread")]
async fn rn12_failure_exits_1_stores_its_reason_as_short_text_and_annotates_nothing() {
    let tenant = tenant!("fail");
    tenant.layer(json!({})).await;
    tenant.run("plan-1", json!({})).await;

    assert_eq!(tenant.start("plan", "plan-1").code, 1);
    let missing = format!(
        "the datastore has no bundle of {}/repo main at {}",
        tenant.namespace, tenant.repository.commits[0]
    );
    assert_eq!(tenant.short("plan-1", 0).await, missing);
    tenant.bundle().await;
    tenant.layer_named("astray", json!({"path": "nowhere"})).await;
    let ended = tenant.start_with("plan", "plan-1", &[("BURRITO_RUNNER_LAYER_NAME", "astray")]);
    assert_eq!(ended.code, 1);
    assert!(ended.stderr.contains("the source has no directory `nowhere`"), "{}", ended.stderr);
    assert!(tenant.annotations().await.is_null());
    assert_eq!(tenant.start("destroy", "plan-1").code, 1, "an unknown action");
    assert_eq!(tenant.start("plan", "missing").code, 1, "no such run");
    let ended = tenant.start_with("plan", "plan-1", &[("BURRITO_RUNNER_LAYER_NAME", "missing")]);
    assert_eq!(ended.code, 1, "no such layer");
}

#[tokio::test(flavor = "multi_thread")]
async fn rn12_tool_failure_in_any_step_stores_its_message_and_annotates_nothing() {
    let tenant = tenant!("steps");
    let tenant =
        tenant.fake("if [ \"$STEP\" = \"$FAIL\" ]; then echo 'Error: as ordered' >&2; exit 1; fi");
    tenant.ready(json!({})).await;
    for step in ["init", "plan", "show"] {
        let run = format!("plan-{step}");
        tenant.run(&run, json!({})).await;
        let ended = tenant.start_with("plan", &run, &[("FAIL", step)]);
        assert_eq!(ended.code, 1, "{step}: {}", ended.stderr);
        let short = tenant.short(&run, 0).await;
        assert!(short.starts_with("terraform ") && short.contains("as ordered"), "{short}");
        assert!(tenant.annotations().await.is_null(), "{step}");
    }
    tenant.run("plan-1", json!({})).await;
    assert_eq!(tenant.start("plan", "plan-1").code, 0);
    tenant.run("apply-1", json!({"run": "plan-1", "attempt": "0"})).await;
    let ended = tenant.start_with("apply", "apply-1", &[("FAIL", "apply")]);
    assert_eq!(ended.code, 1, "{}", ended.stderr);
    assert!(tenant.annotation("apply-sum").await.is_null());
    assert_eq!(
        tenant.short("apply-1", 0).await,
        "terraform apply failed with exit code 1: as ordered"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn rn12_rn13_a_plan_file_that_cannot_be_stored_fails_the_plan_after_retries() {
    let tenant = tenant!("puts");
    tenant.ready(json!({})).await;
    for part in ["format=bin", "format=json", "format=pretty", "format=short"] {
        let format = part.trim_start_matches("format=");
        let run = format!("plan-{format}");
        tenant.run(&run, json!({})).await;
        let fault = |times| Fault { method: "PUT", part, status: 500, times };
        let lost = FaultyDatastore::before(&tenant.datastore.url, vec![fault(ALWAYS)]).await;
        let ended = tenant.start_through(&lost.url, "plan", &run);
        assert_eq!(ended.code, 1, "{format}: {}", ended.stderr);
        let tries = lost.seen().iter().filter(|line| line.contains(part)).count();
        assert!(tries >= 5, "{format}: {tries}");
        assert!(tenant.annotations().await.is_null(), "{format}");
    }
    tenant.run("plan-2", json!({})).await;
    let part = "format=";
    let passes = Fault { method: "PUT", part, status: 500, times: 3 };
    let sick = FaultyDatastore::before(&tenant.datastore.url, vec![passes]).await;
    let ended = tenant.start_through(&sick.url, "plan", "plan-2");
    assert_eq!(ended.code, 0, "{}", ended.stderr);
}

#[tokio::test(flavor = "multi_thread")]
async fn rn12_annotations_that_are_refused_fail_the_run() {
    let tenant = tenant!("patch");
    tenant.ready(json!({})).await;
    tenant.run("plan-1", json!({})).await;
    let refused = Fault { method: "PATCH", part: "", status: 403, times: ALWAYS };
    let api = FaultyDatastore::before(&tenant.server, vec![refused]).await;
    let kubeconfig = tenant.kubeconfig("refusing", &api.url, &tenant.token);
    let ended =
        tenant.start_with("plan", "plan-1", &[("KUBECONFIG", kubeconfig.to_str().unwrap())]);
    assert_eq!(ended.code, 1, "{}", ended.stderr);
    assert!(tenant.annotations().await.is_null());
    let short = tenant.short("plan-1", 0).await;
    assert!(short.starts_with("the annotations could not be written"), "{short}");
}

/// After seven tries, and each of them is logged: kube's own retries would take minutes.
#[tokio::test(flavor = "multi_thread")]
async fn rn12_kubernetes_api_that_stays_unavailable_fails_the_plan() {
    let tenant = tenant!("down");
    let tenant = tenant.fake("");
    tenant.ready(json!({})).await;
    tenant.run("plan-1", json!({})).await;
    let down = |status, times| Fault { method: "PATCH", part: "", status, times };
    // More than seven, but not too many for a client that retries without end.
    let down = vec![down(429, 2), down(503, 2), down(504, 6)];
    let api = FaultyDatastore::before(&tenant.server, down).await;
    let kubeconfig = tenant.kubeconfig("down", &api.url, &tenant.token);
    let kubeconfig = [("KUBECONFIG", kubeconfig.to_str().unwrap())];
    let ended = tenant.start_with("plan", "plan-1", &kubeconfig);
    assert_eq!(ended.code, 1, "{}", ended.stderr);
    assert_eq!(ended.stderr.matches("; trying again in ").count(), 6, "{}", ended.stderr);
    assert_eq!(api.seen().iter().filter(|line| line.starts_with("PATCH")).count(), 7);
    assert!(tenant.annotations().await.is_null());
}

#[tokio::test(flavor = "multi_thread")]
async fn reason_that_could_not_be_stored_is_kept_with_the_log() {
    let tenant =
        tenant!("kept").fake("[ $STEP != plan ] || { echo 'Error: as ordered' >&2; exit 1; }");
    tenant.ready(json!({})).await;
    tenant.run("plan-1", json!({})).await;
    let lost = Fault { method: "PUT", part: "", status: 403, times: ALWAYS };
    let lossy = FaultyDatastore::before(&tenant.datastore.url, vec![lost]).await;
    let ended = tenant.start_through(&lossy.url, "plan", "plan-1");
    assert_eq!(ended.code, 1, "{}", ended.stderr);
    assert!(ended.stderr.contains("`burrito runner upload --datastore"), "{}", ended.stderr);
    let unsent = tenant.sandbox.path("home/.local/state/plancha/unsent");
    let dir = unsent.join(&tenant.namespace).join("vpc/plan-1/0");
    let short = std::fs::read_to_string(dir.join("short.diff")).unwrap();
    assert!(short.contains("as ordered"), "{short}");
    let url = tenant.datastore.url.as_str();
    let ended = tenant.sandbox.run(&["upload", "--datastore", url, dir.to_str().unwrap()]);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    assert_eq!(tenant.short("plan-1", 0).await, short);
}

/// What was refused before there was a job: upstream's most frequent mistakes.
#[tokio::test(flavor = "multi_thread")]
async fn invalid_run_is_explained_in_its_short_text() {
    let tenant = tenant!("order");
    tenant.repository_object("bare", json!({})).await;
    tenant.run("plan-1", json!({})).await;
    for (layer, attempt, repository, expected) in [
        ("none", 1, "bare", "Please enable either Terraform or OpenTofu"),
        (
            "gone",
            2,
            "gone",
            "terraformrepositories.config.terraform.padok.cloud \"gone\" not found",
        ),
    ] {
        let place = json!({"name": repository, "namespace": tenant.namespace});
        tenant.layer_named(layer, json!({ "repository": place })).await;
        tenant.status("plan-1", json!({"retries": attempt})).await;
        let ended = tenant.start_with("plan", "plan-1", &[("BURRITO_RUNNER_LAYER_NAME", layer)]);
        assert_eq!(ended.code, 1, "{}", ended.stderr);
        let stored = crate::stored_run::StoredRun::new(
            &tenant.datastore,
            &tenant.namespace,
            layer,
            "plan-1",
        );
        let short = String::from_utf8(stored.plan("short", attempt).await).unwrap();
        assert!(short.contains(expected) && !short.contains("Status"), "{short}");
    }
    // The rights end at the namespace, as upstream binds them.
    let elsewhere = json!({"name": "repo", "namespace": "default"});
    tenant.layer_named("elsewhere", json!({ "repository": elsewhere })).await;
    let ended = tenant.start_with("plan", "plan-1", &[("BURRITO_RUNNER_LAYER_NAME", "elsewhere")]);
    assert_eq!(ended.code, 1);
    assert!(ended.stderr.contains("403 Forbidden"), "{}", ended.stderr);
}

#[tokio::test(flavor = "multi_thread")]
async fn rn19_transient_datastore_errors_are_retried() {
    let tenant = tenant!("sick");
    tenant.ready(json!({})).await;
    tenant.run("plan-1", json!({})).await;
    let faults = [
        ("GET", "/api/attempts"),
        ("GET", "/bundle"),
        ("PUT", "format=bin"),
        ("PUT", "/api/artifacts"),
    ];
    let faults = faults.map(|(method, part)| Fault { method, part, status: 503, times: 2 });
    let sick = FaultyDatastore::before(&tenant.datastore.url, faults.to_vec()).await;
    let ended = tenant.start_through(&sick.url, "plan", "plan-1");
    assert_eq!(ended.code, 0, "{}", ended.stderr);
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a minute"]
async fn rn19_hanging_connection_times_out_after_30_s_and_is_retried() {
    let tenant = tenant!("hung");
    tenant.ready(json!({})).await;
    tenant.run("plan-1", json!({})).await;
    let hangs = Fault { method: "GET", part: "/bundle", status: 0, times: 1 };
    let hung = FaultyDatastore::before(&tenant.datastore.url, vec![hangs]).await;
    let started = std::time::Instant::now();
    let ended = tenant.start_through(&hung.url, "plan", "plan-1");
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    let took = started.elapsed().as_secs();
    assert!((30..70).contains(&took), "{took} s");
}

#[tokio::test(flavor = "multi_thread")]
async fn rn20_plan_with_another_digest_than_annotated_is_not_applied() {
    let tenant = tenant!("swap");
    tenant.ready(json!({})).await;
    tenant.run("plan-1", json!({})).await;
    assert_eq!(tenant.start("plan", "plan-1").code, 0);
    tenant.stored("plan-1").put_plan_bin(0, b"another plan").await;
    tenant.run("apply-1", json!({"run": "plan-1", "attempt": "0"})).await;

    let ended = tenant.start("apply", "apply-1");

    assert_eq!(ended.code, 1);
    assert!(ended.stderr.contains("the annotation plan-sum has"), "{}", ended.stderr);
    assert!(!ended.stdout.contains("Apply complete"));
    assert!(tenant.short("apply-1", 0).await.contains("is not the one that was made"));
}

/// Where only the runner's image was swapped: Burrito's own datastore knows Burrito's routes alone.
#[tokio::test(flavor = "multi_thread")]
async fn runner_works_with_burritos_own_datastore() {
    let tenant = tenant!("upstream");
    tenant.ready(json!({})).await;
    tenant.run("plan-1", json!({})).await;
    let upstream = FaultyDatastore::burritos(&tenant.datastore.url).await;
    let key = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(key.path(), "0123456789abcdef0123456789abcdef").unwrap();
    let signed = [
        ("BURRITO_DATASTORE_HOSTNAME", upstream.url.authority()),
        ("PLANCHA_SIGNING_KEY", key.path().to_str().unwrap()),
    ];
    let ended = tenant.start_with("plan", "plan-1", &signed);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    assert!(ended.stderr.contains("the plan is not signed"), "{}", ended.stderr);
    for attempt in ["0", ""] {
        let run = format!("apply-{attempt}x");
        tenant.run(&run, json!({"run": "plan-1", "attempt": attempt})).await;
        let ended = tenant.start_through(&upstream.url, "apply", &run);
        assert_eq!(ended.code, 0, "{}", ended.stderr);
        assert_eq!(tenant.short(&run, 0).await, "Apply Successful");
    }
    assert_eq!(tenant.annotation("apply-sum").await, tenant.annotation("plan-sum").await);
}

/// A namespace's policy may keep its bundles from other namespaces' accounts.
#[tokio::test(flavor = "multi_thread")]
async fn bundle_refused_with_403_names_the_policy() {
    let tenant = tenant!("policy");
    tenant.ready(json!({})).await;
    tenant.run("plan-1", json!({})).await;
    let refused = Fault { method: "GET", part: "/bundle", status: 403, times: ALWAYS };
    let refusing = FaultyDatastore::before(&tenant.datastore.url, vec![refused]).await;
    let mut burrito = tenant.command("plan", "plan-1");
    burrito.env("BURRITO_DATASTORE_HOSTNAME", refusing.url.authority());
    let runner = tenant.as_runner(&burrito);
    for (mut command, code) in [(burrito, 1), (runner, 5)] {
        let ended = Ended::from(command.output().unwrap());
        assert_eq!(ended.code, code, "{}", ended.stderr);
        assert!(ended.stderr.contains("403 Forbidden"), "{}", ended.stderr);
        assert!(ended.stderr.contains("policy (PLANCHA_POLICY) must let"), "{}", ended.stderr);
    }
    assert!(tenant.short("plan-1", 0).await.contains("403"));
}
