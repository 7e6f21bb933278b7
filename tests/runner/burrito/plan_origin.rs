//! A plan is applied at its own commit, and only to its own repository.

use serde_json::json;
use support::{Ended, FaultyDatastore};

use super::{Tenant, tenant};
use crate::json as parsed;
use crate::source::checkout::git;

const PRINTS_MAIN: &str = "if [ $STEP = apply ]; then cat main.tf; fi";

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

/// Commits a change, bundles it, and makes the run that is to apply the plan. Returns the commit.
async fn commit_and_order_apply(tenant: &Tenant, text: &str, anew: bool) -> String {
    let commit = commit(tenant, text, anew);
    tenant.bundle_of("main", "main", &commit).await;
    tenant.run_of("apply-1", json!({"run": "plan-1", "attempt": "0"}), &commit).await;
    commit
}

/// The apply used the code of the plan, and not that of the commit `later`.
async fn is_applied_at_the_plans_commit(tenant: &Tenant, ended: &Ended) {
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    let planned = &tenant.repository.commits[0];
    let log = tenant.stored("apply-1").log(0).await;
    assert!(log.contains(&format!("working on the plan's commit {planned}")), "{log}");
    assert!(log.contains("first") && !log.contains("later"), "{log}");
    assert_eq!(tenant.annotation("apply-commit").await, **planned);
}

#[tokio::test(flavor = "multi_thread")]
async fn apply_checks_out_the_plans_commit_if_the_bundle_has_it() {
    let tenant = tenant!("commit").fake(PRINTS_MAIN);
    planned(&tenant).await;
    commit_and_order_apply(&tenant, "later", false).await;

    let ended = tenant.start("apply", "apply-1");

    is_applied_at_the_plans_commit(&tenant, &ended).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn apply_uses_the_bundles_commit_and_logs_both_if_the_plans_is_missing() {
    let tenant = tenant!("lacks").fake(PRINTS_MAIN);
    planned(&tenant).await;
    let anew = commit_and_order_apply(&tenant, "anew", true).await;

    let ended = tenant.start("apply", "apply-1");

    assert_eq!(ended.code, 0, "{}", ended.stderr);
    let planned = &tenant.repository.commits[0];
    let text = format!("the bundle lacks the plan's commit {planned}: working on {anew}");
    let log = tenant.stored("apply-1").log(0).await;
    assert!(log.contains(&text) && ended.stderr.contains(&text), "{log}\n{}", ended.stderr);
    assert!(log.contains("# anew"), "{log}");
    // What was applied is the plan.
    assert_eq!(tenant.annotation("apply-commit").await, **planned);
    let report = parsed(&tenant.stored("apply-1").artifact("run.json", 0).await);
    assert_eq!((&report["outcome"], &report["revision"]), (&"applied".into(), &json!(planned)));
}

#[tokio::test(flavor = "multi_thread")]
async fn strict_pod_does_not_apply_the_plan_of_a_commit_that_the_bundle_lacks() {
    let tenant = tenant!("strict").fake(PRINTS_MAIN);
    planned(&tenant).await;
    let anew = commit_and_order_apply(&tenant, "anew", true).await;

    let ended = tenant.start_with("apply", "apply-1", &[("PLANCHA_STRICT", "true")]);

    assert_eq!(ended.code, 1, "{}", ended.stderr);
    for words in ["the commit has changed since the plan plan-1/0", &*anew] {
        assert!(ended.stderr.contains(words), "{words}: {}", ended.stderr);
    }
    assert!(!tenant.sandbox.calls().iter().any(|call| call.starts_with("apply")));
}

#[tokio::test(flavor = "multi_thread")]
async fn strict_pod_applies_a_plan_of_the_same_code() {
    let tenant = tenant!("same").fake(PRINTS_MAIN);
    planned(&tenant).await;
    commit_and_order_apply(&tenant, "later", false).await;

    let ended = tenant.start_with("apply", "apply-1", &[("PLANCHA_STRICT", "true")]);

    is_applied_at_the_plans_commit(&tenant, &ended).await;
}

/// The repository's URL in any spelling is one place, and another one is not.
#[tokio::test(flavor = "multi_thread")]
async fn pod_does_not_apply_a_plan_of_another_repository() {
    let tenant = tenant!("elsewhere").fake(PRINTS_MAIN);
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

/// The annotation is checked against the plan's digest, `run.json` is not.
#[tokio::test(flavor = "multi_thread")]
async fn plan_commit_of_the_layer_takes_precedence_over_run_json() {
    let tenant = tenant!("precedence").fake(PRINTS_MAIN);
    planned(&tenant).await;
    let [annotated, recorded, _] = tenant.repository.commits.clone();
    let report = parsed(&tenant.stored("plan-1").artifact("run.json", 0).await);
    assert_eq!(report["revision"], *annotated);
    let [bound, old] = ["plan-1", "plan-old"].map(|run| tenant.stored(run));
    let other_revision = |report: &mut serde_json::Value| report["revision"] = json!(recorded);
    bound.copy_as_of_an_earlier_release(&old, other_revision).await;
    let applies_at = async |run: &str, commit: &str| {
        tenant.run(run, json!({"run": "plan-old", "attempt": "0"})).await;
        let ended = tenant.start("apply", run);
        assert_eq!(ended.code, 0, "{}", ended.stderr);
        let log = tenant.stored(run).log(0).await;
        assert!(log.contains(&format!("working on the plan's commit {commit}")), "{log}");
        assert_eq!(tenant.annotation("apply-commit").await, *commit);
        let report = parsed(&tenant.stored(run).artifact("run.json", 0).await);
        assert_eq!(report["revision"], *commit);
    };

    applies_at("apply-1", &annotated).await;

    // Without `plan-sum` the annotation may be of another plan. Another plan, since one is applied once.
    assert_eq!(tenant.start("plan", "plan-1").code, 0);
    bound.copy_as_of_an_earlier_release(&old, other_revision).await;
    tenant.remove_annotation("plan-sum").await;
    applies_at("apply-2", &recorded).await;
}

/// Burrito's own datastore has no `run.json`: the layer's annotations remain.
#[tokio::test(flavor = "multi_thread")]
async fn apply_with_burritos_datastore_uses_the_plans_commit_and_warns_of_missing_records() {
    let tenant = tenant!("annotated").fake(PRINTS_MAIN);
    tenant.ready(json!({})).await;
    tenant.run("plan-1", json!({})).await;
    let burritos = FaultyDatastore::burritos(&tenant.datastore.url).await;
    let ended = tenant.start_through(&burritos.url, "plan", "plan-1");
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    commit_and_order_apply(&tenant, "later", false).await;

    let ended = tenant.start_through(&burritos.url, "apply", "apply-1");

    is_applied_at_the_plans_commit(&tenant, &ended).await;
    let warning = "WARN the place and the backend of the plan plan-1/0 are not recorded";
    assert!(ended.stderr.contains(warning), "{}", ended.stderr);
}

/// A plan of a version that did not record them yet.
#[tokio::test(flavor = "multi_thread")]
async fn fields_missing_in_run_json_are_a_warning_in_a_pod() {
    let tenant = tenant!("older").fake("");
    planned(&tenant).await;
    for (number, (fields, warning)) in [
        (&["backend"][..], "the backend is unknown, here or when the plan"),
        (
            &["place", "configuration_sha256"],
            "the place and the backend of the plan plan-old/0 are not recorded",
        ),
    ]
    .into_iter()
    .enumerate()
    {
        // Another plan, since one is applied once.
        assert_eq!(tenant.start("plan", "plan-1").code, 0);
        let [bound, old] = ["plan-1", "plan-old"].map(|run| tenant.stored(run));
        let without_fields = |report: &mut serde_json::Value| {
            for field in fields {
                report.as_object_mut().unwrap().shift_remove(*field);
            }
        };
        bound.copy_as_of_an_earlier_release(&old, without_fields).await;
        let run = format!("apply-{number}");
        tenant.run(&run, json!({"run": "plan-old", "attempt": "0"})).await;
        let ended = tenant.start("apply", &run);
        assert_eq!(ended.code, 0, "{}", ended.stderr);
        assert!(ended.stderr.contains(&format!("WARN {warning}")), "{}", ended.stderr);
        assert_eq!(tenant.short(&run, 0).await, "Apply Successful");
    }
}

/// The layer names another tool, or other versions, by the time of the apply.
#[tokio::test(flavor = "multi_thread")]
async fn apply_uses_the_plans_tool_and_versions_after_the_layers_have_changed() {
    // Terragrunt's arguments are taken out: the fake prints as terraform does.
    let tenant = tenant!("tool").fake(
        "[ $STEP = show ] || echo \"started as $0\"
         case \"$*\" in *-json*) set -- show -json;; *) set -- \"$STEP\";; esac",
    );
    for version in ["1.9.4", "1.9.5"] {
        tenant.prebaked("Terraform", version, "terraform");
        tenant.prebaked("OpenTofu", version, "tofu");
    }
    for version in ["0.99.0", "1.0.0"] {
        tenant.prebaked("Terragrunt", version, "terragrunt");
    }
    let on = |version: &str| json!({"enabled": true, "version": version});
    let off = || json!({"enabled": false});
    let (alone, both) = (off(), on("1.0.0"));
    tenant.ready(json!({"terraform": on("1.9.4"), "terragrunt": alone})).await;
    for (number, (planned_with, changed_to, tool, terragrunt)) in [
        (
            json!({"terraform": on("1.9.4"), "opentofu": off(), "terragrunt": alone}),
            json!({"terraform": on("1.9.5"), "opentofu": off(), "terragrunt": both}),
            "Terraform/1.9.4/terraform",
            None,
        ),
        (
            json!({"terraform": on("1.9.4"), "opentofu": off(), "terragrunt": both}),
            json!({"terraform": off(), "opentofu": on("1.9.5"), "terragrunt": on("0.99.0")}),
            "Terraform/1.9.4/terraform",
            Some("1.0.0"),
        ),
    ]
    .into_iter()
    .enumerate()
    {
        let [plan, apply] = ["plan", "apply"].map(|action| format!("{action}-{number}"));
        tenant.change_layer(planned_with).await;
        tenant.run(&plan, json!({})).await;
        let ended = tenant.start("plan", &plan);
        assert_eq!(ended.code, 0, "{}", ended.stderr);
        tenant.change_layer(changed_to).await;
        tenant.run(&apply, json!({"run": plan, "attempt": "0"})).await;

        let ended = tenant.start("apply", &apply);

        assert_eq!(ended.code, 0, "{}", ended.stderr);
        let report = parsed(&tenant.stored(&apply).artifact("run.json", 0).await);
        assert_eq!(report["tool"]["name"], "terraform", "{report}");
        assert_eq!(report["tool"]["version"], "1.9.4", "{report}");
        assert_eq!(report["terragrunt"]["version"].as_str(), terragrunt, "{report}");
        let program = terragrunt.map(|version| format!("Terragrunt/{version}/terragrunt"));
        let program = program.unwrap_or_else(|| tool.to_owned());
        let log = tenant.stored(&apply).log(0).await;
        assert!(log.contains("started as ") && log.contains(&program), "{log}");
        for line in log.lines().filter(|line| line.starts_with("started as ")) {
            assert!(line.ends_with(&program), "{line}");
        }
    }
}
