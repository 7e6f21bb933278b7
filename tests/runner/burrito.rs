//! `burrito runner start` against a Kubernetes API with Burrito's objects and rights, and a real datastore.
//! The name of a test begins with the ids of `docs/contract/checks.md` that it covers.
//!
//! The API is a double, which applies Burrito's own resource definitions to every object where they are at
//! hand. `scripts/e2e kubernetes` runs the same tests over a real API server, which it names in
//! `PLANCHA_TEST_KUBECONFIG`.

mod apply_once;
mod apply_retries;
mod deleted_pod;
mod doctor;
mod failures;
mod ledger;
mod namespace;
mod plan_origin;
mod pod_mounts;
mod settings;
mod snapshot;
mod tools;

use datastore_api::Sha256;
use regex::Regex;
use serde_json::json;
use support::{CrdSchemas, FaultyDatastore};

use self::namespace::Tenant;

/// A namespace for one test, by a short name.
macro_rules! tenant {
    ($name:literal) => {
        $crate::burrito::Tenant::new($name).await
    };
}
use tenant;

#[tokio::test(flavor = "multi_thread")]
async fn rn05_rn07_plan_and_apply_write_burritos_annotations_and_files() {
    let tenant = Tenant::new("flow").await;
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
async fn rn07_apply_without_an_attempt_uses_the_latest() {
    let tenant = Tenant::new("latest").await;
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
async fn rn01_plan_makes_three_gets_and_one_merge_patch() {
    let tenant = Tenant::new("asked").await;
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
    // Layer and run are asked for at the same time.
    let (mut first, rest) = (seen[..2].to_vec(), &seen[2..]);
    first.sort();
    assert_eq!(first, ["GET layers/vpc", "GET runs/plan-1"]);
    assert_eq!(rest, ["GET repositories/repo", "PATCH layers/vpc?"]);
    let kinds = api.header("content-type");
    assert_eq!(kinds, ["application/merge-patch+json"]);
}

/// A retry's pod is created before its number is saved ("openings" 2).
#[tokio::test(flavor = "multi_thread")]
async fn rn01_rn04_run_is_polled_until_it_lists_our_pod() {
    let tenant = Tenant::new("race").await;
    tenant.ready(json!({})).await;
    tenant.run("plan-1", json!({})).await;
    let first = json!({"podName": "pod-0", "number": 0});
    let before = json!({"retries": 0, "runnerPod": "pod-0", "attempts": [first]});
    tenant.status("plan-1", before).await;
    let api = FaultyDatastore::before(&tenant.server, vec![]).await;
    let kubeconfig = tenant.kubeconfig("through", &api.url, &tenant.token);
    let looks = || api.seen().iter().filter(|line| line.contains("terraformruns")).count();
    let (ended, ()) = tokio::join!(
        tokio::task::spawn_blocking({
            let mut command = tenant.command("plan", "plan-1");
            command.env("KUBECONFIG", kubeconfig).env("HOSTNAME", "pod-1");
            move || support::Ended::from(command.output().unwrap())
        }),
        async {
            // Later than 2.5 s, after which the runner used to give up.
            for _ in 0..1000 {
                if looks() >= 7 {
                    break;
                }
                tokio::time::sleep(std::time::Duration::from_millis(20)).await;
            }
            let second = json!({"podName": "pod-1", "number": 1});
            let after = json!({"retries": 1, "runnerPod": "pod-1", "attempts": [first, second]});
            tenant.status("plan-1", after).await;
        }
    );
    let ended = ended.unwrap();
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    assert_eq!(tenant.annotation("plan-run").await, "plan-1/1");
    assert!(ended.stderr.contains("does not list this pod yet"), "{}", ended.stderr);
}

/// The controller ended before it recorded the pod of a retry.
#[tokio::test(flavor = "multi_thread")]
async fn unrecorded_pod_never_uses_another_attempts_number() {
    let tenant = Tenant::new("unrecorded").await;
    tenant.ready(json!({})).await;
    tenant.run("plan-1", json!({})).await;
    let first = json!({"podName": "pod-0", "number": 0});
    let status = json!({"retries": 0, "runnerPod": "pod-0", "attempts": [first]});
    tenant.status("plan-1", status).await;

    let ended = tenant.start_with("plan", "plan-1", &[("HOSTNAME", "pod-1")]);

    assert_eq!(ended.code, 0, "{}", ended.stderr);
    assert_eq!(tenant.annotation("plan-run").await, "plan-1/1", "pod-0 stored nothing, but had 0");
}

/// Objects as users and controllers write them: every documented field is set.
#[tokio::test(flavor = "multi_thread")]
async fn rn05_objects_with_every_documented_field_are_planned_and_applied() {
    let tenant = Tenant::new("whole").await.fake("");
    tenant.prebaked("OpenTofu", "1.9.4", "tofu");
    tenant.prebaked("Terragrunt", "1.0.0", "terragrunt");
    let whole = |text| -> serde_json::Value { serde_saphyr::from_str(text).unwrap() };
    let layer = whole(include_str!("../fixtures/burrito/layer.yaml"));
    let repository = whole(include_str!("../fixtures/burrito/repository.yaml"));
    tenant.repository_object("infra", repository["spec"].clone()).await;
    let mut spec = layer["spec"].clone();
    spec["repository"] = json!({"name": "infra", "namespace": tenant.namespace});
    tenant.layer(spec).await;
    assert_eq!(tenant.bundle_for("infra").await, 200);
    tenant.run("plan-1", json!({})).await;
    let ended = tenant.start("plan", "plan-1");
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    tenant.run("apply-1", json!({"run": "plan-1", "attempt": "0"})).await;
    let ended = tenant.start("apply", "apply-1");
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    assert_eq!(tenant.annotation("apply-sum").await, tenant.annotation("plan-sum").await);
}

/// An answer of the API that is not an object of this kind: nothing that passes by itself.
#[tokio::test(flavor = "multi_thread")]
async fn unreadable_object_is_a_configuration_error() {
    let tenant = Tenant::new("unread-object").await;
    tenant.ready(json!({})).await;
    tenant.run("plan-1", json!({})).await;
    for (field, unreadable, object, path) in [
        ("\"path\"", "\"path\":[],\"was\"", "TerraformLayer NAMESPACE/vpc", "spec.path"),
        (
            "\"url\"",
            "\"url\":[],\"was\"",
            "TerraformRepository NAMESPACE/repo",
            "spec.repository.url",
        ),
        (
            "\"revision\"",
            "\"revision\":[],\"was\"",
            "TerraformRun NAMESPACE/plan-1",
            "spec.layer.revision",
        ),
    ] {
        let api = FaultyDatastore::replacing(&tenant.server, field, unreadable).await;
        let kubeconfig = tenant.kubeconfig("replacing", &api.url, &tenant.token);
        for as_burrito in [true, false] {
            let mut command = tenant.command("plan", "plan-1");
            if !as_burrito {
                command = tenant.as_runner(&command);
            }
            command.env("KUBECONFIG", &kubeconfig);
            let ended = support::Ended::from(command.output().unwrap());
            assert_eq!(ended.code, if as_burrito { 1 } else { 8 }, "{field}: {}", ended.stderr);
            let object = object.replace("NAMESPACE", &tenant.namespace);
            let reason = format!("{object} cannot be used: {path}: invalid type: sequence");
            assert!(ended.stderr.contains(&reason), "{reason}: {}", ended.stderr);
            assert!(ended.stderr.contains("next: correct that field"), "{}", ended.stderr);
        }
    }
}

const FIXTURES: [(&str, &str); 3] = [
    ("terraformlayers", include_str!("../fixtures/burrito/layer.yaml")),
    ("terraformrepositories", include_str!("../fixtures/burrito/repository.yaml")),
    ("terraformruns", include_str!("../fixtures/burrito/run.yaml")),
];

/// Every field of a fixture is in the schema, and every field of the schema is in the fixture.
fn assert_agree(schemas: &CrdSchemas) {
    for (plural, text) in FIXTURES {
        let mut object: serde_json::Value = serde_saphyr::from_str(text).unwrap();
        assert_eq!(schemas.admit(plural, &mut object), Ok(vec![]), "{plural}");
        for field in ["spec", "status"] {
            assert_covers(&object[field], &schemas.of(plural)["properties"][field], field);
        }
    }
}

#[test]
fn fixtures_set_every_field_of_our_schemas() {
    assert_agree(&CrdSchemas::own());
}

#[test]
#[ignore = "needs ../shared/data"]
fn fixtures_set_every_field_of_burritos_definitions() {
    assert_agree(&CrdSchemas::burritos(&support::shared_data("burrito_crds").unwrap()));
}

/// Below `overrideRunnerSpec` the fields are Kubernetes' own, hundreds of them: one of each kind is enough.
fn assert_covers(value: &serde_json::Value, schema: &serde_json::Value, path: &str) {
    if let Some(item) = value.get(0) {
        return assert_covers(item, &schema["items"], path);
    }
    for (name, schema) in schema["properties"].as_object().into_iter().flatten() {
        let path = format!("{path}.{name}");
        assert!(!value[name].is_null(), "{path} is documented, and not in the fixture");
        if !path.contains("overrideRunnerSpec.") {
            assert_covers(&value[name], schema, &path);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn rn04_a_plan_fetches_its_bundle_and_puts_its_files_under_its_attempt() {
    let tenant = Tenant::new("calls").await;
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
async fn rn04_pods_own_token_authenticates_at_the_datastore() {
    let tenant = Tenant::new("token").await;
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
