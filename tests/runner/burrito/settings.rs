//! What the fields of Burrito's objects select: code, tool and version.

use datastore_api::Sha256;
use serde_json::{Value, json};
use support::FaultyDatastore;

use super::{Tenant, tenant};
use crate::source::checkout::git;

#[tokio::test(flavor = "multi_thread")]
async fn rn11_branches_and_tags_are_requested_and_cloned_exactly() {
    let tenant = tenant!("refs");
    let tenant = tenant
        .fake("if [ $STEP = plan ]; then git rev-parse --abbrev-ref HEAD; git status --short; fi");
    let [first, second, third] = tenant.repository.commits.clone();
    git(&tenant.repository.dir, &["tag", "-a", "-m", "annotated", "v2", &second]);
    let tag = git(&tenant.repository.dir, &["rev-parse", "v2"]);
    assert_ne!(tag, second);
    let cases = [
        ("main", "main", &second, "main\n"),
        ("refs/heads/main", "refs/heads/main", &first, "main\n"),
        ("refs/tags/v1", "refs/tags/v1", &first, "HEAD\n"),
        // Of an annotated tag the controllers know the tag itself, and compare it as a text.
        ("refs/tags/v2", "refs/tags/v2", &tag, "HEAD\n"),
        ("feat/side", "feat/side", &third, "feat/side\n"),
    ];
    for (number, (branch, cut, revision, head)) in cases.into_iter().enumerate() {
        let (layer, run) = (format!("layer-{number}"), format!("plan-{number}"));
        tenant.layer_named(&layer, json!({ "branch": branch })).await;
        tenant.bundle_of(cut, branch, revision).await;
        tenant.run_of(&run, json!({}), revision).await;
        let listening = FaultyDatastore::before(&tenant.datastore.url, vec![]).await;
        let ended = tenant.start_with(
            "plan",
            &run,
            &[
                ("BURRITO_RUNNER_LAYER_NAME", &layer),
                ("BURRITO_DATASTORE_HOSTNAME", listening.url.authority()),
            ],
        );
        assert_eq!(ended.code, 0, "{branch}: {}", ended.stderr);
        assert!(ended.stdout.contains(head), "{branch}: {}", ended.stdout);
        assert!(!ended.stdout.contains("??"), "nothing of ours is a change: {}", ended.stdout);
        let asked = format!("ref={}&", branch.replace('/', "%2F"));
        assert!(
            listening.seen().iter().any(|line| line.contains(&asked)),
            "{:?}",
            listening.seen()
        );
        let report =
            crate::stored_run::StoredRun::new(&tenant.datastore, &tenant.namespace, &layer, &run);
        let report = crate::json(&report.artifact("run.json", 0).await);
        assert_eq!(&report["revision"], revision, "{branch}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn revision_missing_from_the_bundle_is_not_planned() {
    let tenant = tenant!("astray");
    tenant.layer(json!({})).await;
    let third = tenant.repository.commits[2].clone();
    tenant.bundle_of("main", "main", &third).await;
    tenant.run_of("plan-1", json!({}), &third).await;
    let ended = tenant.start("plan", "plan-1");
    assert_eq!(ended.code, 1, "{}", ended.stderr);
    assert!(
        tenant.short("plan-1", 0).await.contains(&format!("does not contain its revision {third}"))
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn variables_of_an_apply_have_their_effect_in_a_pod_or_are_named() {
    let tenant = tenant!("variables").fake("");
    tenant.ready(json!({})).await;
    tenant.run("plan-1", json!({})).await;
    let ended = tenant.start_with("plan", "plan-1", &[("PLANCHA_SUMMARY", "summary.md")]);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    let named = "without effect in a pod of Burrito's, whose layer and run decide: PLANCHA_SUMMARY";
    assert!(ended.stderr.contains(named), "{}", ended.stderr);

    tenant.run("apply-1", json!({"run": "plan-1", "attempt": "0"})).await;
    let refused = [
        ("PLANCHA_STATE", "datastore", "remove PLANCHA_STATE"),
        ("PLANCHA_BEFORE_APPLY", "/bin/false", "refused it (exit code 1)"),
        ("PLANCHA_BEFORE_APPLY", "/nowhere", "--before-apply: /nowhere"),
        ("BURRITO_DATASTORE_TLS", "yes", "expected true or false"),
    ];
    for (name, value, reason) in refused {
        let ended = tenant.start_with("apply", "apply-1", &[(name, value)]);
        assert_eq!(ended.code, 1, "{name}: {}", ended.stderr);
        assert!(ended.stderr.contains(reason), "{name}: {}", ended.stderr);
        let calls = tenant.sandbox.calls();
        assert!(!calls.iter().any(|call| call.starts_with("apply")), "{name}: {calls:?}");
    }
    let ended = tenant.start_with("apply", "apply-1", &[("PLANCHA_BEFORE_APPLY", "/bin/true")]);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
}

/// What a run with this layer and repository had the tool do.
async fn chosen(tenant: &Tenant, name: &str, layer: Value, repository: Value) -> String {
    tenant.repository_object(name, repository).await;
    let place = json!({"repository": {"name": name, "namespace": tenant.namespace}});
    let mut layer = layer;
    layer.as_object_mut().unwrap().extend(place.as_object().unwrap().clone());
    tenant.layer_named(name, layer).await;
    let run = format!("run-{name}");
    tenant.run(&run, json!({})).await;
    assert_eq!(tenant.bundle_for(name).await, 200);
    let ended = tenant.start_with("plan", &run, &[("BURRITO_RUNNER_LAYER_NAME", name)]);
    match ended.code {
        0 => {
            let stored =
                crate::stored_run::StoredRun::new(&tenant.datastore, &tenant.namespace, name, &run);
            let report = crate::json(&stored.artifact("run.json", 0).await);
            let tool = &report["tool"];
            format!("{} {}", tool["name"].as_str().unwrap(), tool["version"].as_str().unwrap())
        }
        _ => ended.stderr,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn rn09_layer_settings_override_the_repositorys() {
    let tenant = tenant!("merged").fake("");
    for version in ["1.5.7", "1.9.8"] {
        tenant.prebaked("Terraform", version, "terraform");
        tenant.prebaked("OpenTofu", version, "tofu");
    }
    let on = |version: &str| json!({"enabled": true, "version": version});
    let cases = [
        (json!({}), json!({"terraform": on("1.5.7")}), "terraform 1.5.7"),
        (json!({}), json!({"opentofu": on("1.5.7")}), "tofu 1.5.7"),
        (
            json!({"opentofu": on("")}),
            json!({"terraform": on("1.5.7"), "opentofu": {"version": "1.9.8"}}),
            "tofu 1.9.8",
        ),
        (
            json!({"terraform": {"version": "1.9.8"}}),
            json!({"terraform": on("1.5.7")}),
            "terraform 1.9.8",
        ),
        (
            json!({"terraform": {"version": ""}}),
            json!({"terraform": on("1.5.7")}),
            "terraform 1.5.7",
        ),
        (
            json!({"terraform": {"enabled": false}, "opentofu": {"enabled": true}}),
            json!({"terraform": on("1.5.7"), "opentofu": {"version": "1.9.8"}}),
            "tofu 1.9.8",
        ),
        (json!({"terraform": on("~> 1.5.0")}), json!({}), "terraform 1.5.7"),
    ];
    for (number, (layer, repository, expected)) in cases.into_iter().enumerate() {
        let (name, shown) = (format!("case-{number}"), format!("{layer} {repository}"));
        assert_eq!(chosen(&tenant, &name, layer, repository).await, expected, "{shown}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn rn10_without_a_version_the_code_decides_and_preinstalled_tools_need_no_network() {
    let tenant = tenant!("asks").fake("");
    for version in ["1.5.7", "1.8.5", "1.9.8"] {
        tenant.prebaked("Terraform", version, "terraform");
    }
    // No site can be reached.
    let nowhere = [
        ("PLANCHA_OFFLINE", ""),
        ("TFENV_REMOTE", "http://127.0.0.1:1"),
        ("PATH", "/usr/bin:/bin"),
    ];
    let dir = tenant.repository.dir.clone();
    let required = "terraform {\n  required_version = \"< 1.9\"\n}\n";
    let cases = [
        ("the code's required_version", "live/vpc/v.tf", required, "1.8.5"),
        ("a file of a directory above", "live/.terraform-version", "1.5.7\n", "1.5.7"),
        ("one of its own goes before", "live/vpc/.terraform-version", "1.9.8\n", "1.9.8"),
        ("a constraint in it", "live/vpc/.terraform-version", "~> 1.8.0\n", "1.8.5"),
    ];
    tenant.layer(json!({})).await;
    for (number, (what, file, text, version)) in cases.into_iter().enumerate() {
        std::fs::write(dir.join(file), text).unwrap();
        git(&dir, &["add", "."]);
        git(&dir, &["commit", "--quiet", "-m", what]);
        let revision = git(&dir, &["rev-parse", "HEAD"]);
        tenant.bundle_of("main", "main", &revision).await;
        let run = format!("plan-{number}");
        tenant.run_of(&run, json!({}), &revision).await;
        let ended = tenant.start_with("plan", &run, &nowhere);
        assert_eq!(ended.code, 0, "{what}: {}", ended.stderr);
        let report = crate::json(&tenant.stored(&run).artifact("run.json", 0).await);
        assert_eq!(report["tool"]["version"], version, "{what}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn rn06_changes_are_counted_like_burritos() {
    let tenant = tenant!("counts");
    let tenant = tenant.fake(
        r#"case "$*" in *-json*) echo "{\"format_version\":\"1.2\",\"resource_changes\":[$CHANGES],\"output_changes\":{\"o\":{\"actions\":[\"create\"]}}}"; exit;; esac"#,
    );
    tenant.ready(json!({})).await;
    let change = |actions: &str| format!(r#"{{"change":{{"actions":[{actions}]}}}}"#);
    let all = [
        r#""create""#,
        r#""create""#,
        r#""create""#,
        r#""update""#,
        r#""update""#,
        r#""delete""#,
        r#""delete","create""#,
        r#""create","delete""#,
        r#""read""#,
        r#""no-op""#,
        r#""forget""#,
    ];
    let all = all.map(change).join(",");
    for (number, (changes, short)) in [
        (all.as_str(), "Plan: 5 to create, 2 to update, 3 to delete"),
        ("", "Plan: 0 to create, 0 to update, 0 to delete"),
    ]
    .into_iter()
    .enumerate()
    {
        let run = format!("plan-{number}");
        tenant.run(&run, json!({})).await;
        let ended = tenant.start_with("plan", &run, &[("CHANGES", changes)]);
        assert_eq!(ended.code, 0, "{}", ended.stderr);
        assert_eq!(tenant.short(&run, 0).await, short);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn rn08_apply_without_its_plan_still_fetches_it_and_annotates_its_digest() {
    let tenant = tenant!("noplan").fake("");
    let (yes, no) =
        (json!({"applyWithoutPlanArtifact": true}), json!({"applyWithoutPlanArtifact": false}));
    let tool = json!({"enabled": true});
    let repository = json!({"terraform": tool, "remediationStrategy": yes});
    tenant.repository_object("unplanned", repository).await;
    let of_unplanned = json!({"name": "unplanned", "namespace": tenant.namespace});
    let layers = [
        ("own", json!({"remediationStrategy": yes}), false),
        ("inherited", json!({"repository": of_unplanned}), false),
        ("refused", json!({"repository": of_unplanned, "remediationStrategy": no}), true),
    ];
    tenant.bundle().await;
    assert_eq!(tenant.bundle_for("unplanned").await, 200);
    tenant.run("plan-1", json!({})).await;
    tenant.run("apply-1", json!({"run": "plan-1", "attempt": "0"})).await;
    for (layer, spec, planned) in layers {
        tenant.layer_named(layer, spec).await;
        let named = ("BURRITO_RUNNER_LAYER_NAME", layer);
        assert_eq!(tenant.start_with("plan", "plan-1", &[named]).code, 0);
        let stored = crate::stored_run::StoredRun::new(
            &tenant.datastore,
            &tenant.namespace,
            layer,
            "plan-1",
        );
        let sum = Sha256::of(&stored.plan("bin", 0).await).to_base64();
        let listening = FaultyDatastore::before(&tenant.datastore.url, vec![]).await;
        let datastore = ("BURRITO_DATASTORE_HOSTNAME", listening.url.authority());
        let ended = tenant.start_with("apply", "apply-1", &[named, datastore]);
        assert_eq!(ended.code, 0, "{}", ended.stderr);
        let fetched = |line: &String| {
            line.starts_with("GET /api/plans") && line.contains("run=plan-1&attempt=0&format=bin")
        };
        assert!(listening.seen().iter().any(fetched), "{layer}: {:?}", listening.seen());
        let last = tenant.sandbox.calls().pop().unwrap();
        assert_eq!(last.contains("plan.bin"), planned, "{layer}: {last}");
        let annotations = tenant.annotations_of(layer).await;
        assert_eq!(annotations["runner.terraform.padok.cloud/apply-sum"], sum, "{layer}");
    }
    // Without a plan to fetch it is still applied, and the layer's digest is recorded.
    tenant.run("apply-2", json!({"run": "gone", "attempt": "0"})).await;
    let ended = tenant.start_with("apply", "apply-2", &[("BURRITO_RUNNER_LAYER_NAME", "own")]);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    let annotations = tenant.annotations_of("own").await;
    assert_eq!(
        annotations["runner.terraform.padok.cloud/apply-sum"],
        annotations["runner.terraform.padok.cloud/plan-sum"]
    );
}
