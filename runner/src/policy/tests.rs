//! The policy as a whole.

mod policy_files;
mod rego_rules;

use std::path::{Path, PathBuf};

use proptest::prelude::*;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::*;
use crate::cli::PolicyOptions;
use crate::policy::verdict::Kind;

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures/plans").join(name)
}

/// A directory with these files, and arguments with all of them as the policy.
fn policy_of(files: &[(&str, &str)]) -> (TempDir, PolicyArgs) {
    let dir = tempfile::tempdir().unwrap();
    for (name, text) in files {
        fs::write(dir.path().join(name), text).unwrap();
    }
    let policy = files.iter().map(|(name, _)| dir.path().join(name)).collect();
    (dir, PolicyArgs { policy, ..PolicyArgs::default() })
}

fn load(files: &[(&str, &str)]) -> Result<Policy, PolicyError> {
    let (_dir, args) = policy_of(files);
    Policy::load(&args, None)
}

fn rules(text: &str) -> Policy {
    load(&[("rules.yaml", text)]).unwrap()
}

fn rego(text: &str) -> Result<Policy, PolicyError> {
    load(&[("main.rego", text)])
}

fn by_default() -> Policy {
    Policy::load(&PolicyArgs::default(), None).unwrap()
}

fn judge(policy: &Policy, name: &str) -> Verdict {
    policy.judge(&fixture(name), &Evidence::default()).unwrap()
}

fn judge_json(policy: &Policy, plan: &Value) -> Verdict {
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), plan.to_string()).unwrap();
    policy.judge(file.path(), &Evidence::default()).unwrap()
}

fn message(result: Result<Policy, PolicyError>) -> String {
    datastore_api::chain(&result.unwrap_err())
}

/// A plan with one change of `x_y.z`.
fn one(actions: &[&str], more: &Value) -> Value {
    let mut resource = json!({"address": "x_y.z", "type": "x_y", "mode": "managed", "change": {
        "actions": actions, "before": {"a": 1}, "after": {"a": 2}}});
    resource.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    json!({"format_version": "1.2", "resource_changes": [resource]})
}

#[test]
fn fixtures_get_their_verdicts_by_default() {
    let policy = by_default();
    let text = |name: &str| {
        let verdict = judge(&policy, name);
        let counts = verdict.counts.iter().filter(|(_, count)| **count > 0);
        let counts = counts.map(|(kind, count)| format!("{kind}={count}")).collect::<Vec<_>>();
        let mut lines = vec![format!(
            "{name}: allowed={} with approval={} {}",
            verdict.is_allowed(),
            verdict.is_allowed_with_approval(),
            counts.join(" ")
        )];
        lines.extend(verdict.lines().into_iter().map(|line| format!("  {line}")));
        lines.join("\n")
    };
    let names = [
        "create.json",
        "no_changes.json",
        "output_only.json",
        "update_replace_delete.json",
        "forget_and_moved.json",
        "tainted.json",
        "destroy.json",
    ];
    let all = names.map(text).join("\n");
    insta::assert_snapshot!(all);
}

#[test]
fn order_of_actions_and_the_move_are_kept() {
    let verdict = judge(&by_default(), "update_replace_delete.json");
    let first =
        verdict.changes.iter().find(|change| change.address == "terraform_data.first").unwrap();
    assert_eq!(first.actions, ["create", "delete"]);
    let verdict = judge(&by_default(), "forget_and_moved.json");
    let moved = verdict.changes.iter().find(|change| change.kind == Kind::Move).unwrap();
    assert_eq!(moved.previous_address.as_deref(), Some("terraform_data.keep"));
    assert!(moved.refused.is_empty() && !moved.destructive);
}

#[test]
#[ignore = "needs ../shared/data"]
fn shared_fixtures_get_the_verdicts_of_their_table() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/data/plan_fixtures");
    let policy = by_default();
    let tainted = ["terraform_data.slow"];
    for (name, refused, with_evidence) in [
        ("no_changes", vec![], true),
        ("output_only", vec![], true),
        (
            "update_replace_delete",
            vec!["terraform_data.gone[0]", "terraform_data.repl", "terraform_data.slow"],
            false,
        ),
        ("create_before_destroy_and_moved", vec!["terraform_data.cbd"], false),
        ("forget", vec!["terraform_data.keep"], false),
        ("tainted_after_failed_create", tainted.to_vec(), true),
        (
            "destroy",
            vec![
                "terraform_data.keep",
                "terraform_data.many[\"a,b\"]",
                "terraform_data.many[\"c\"]",
                "terraform_data.repl",
                "terraform_data.slow",
            ],
            false,
        ),
    ] {
        let path = dir.join(format!("{name}.json"));
        let verdict = policy.judge(&path, &Evidence::default()).unwrap();
        let changes = verdict.changes.iter().filter(|change| !change.refused.is_empty());
        let addresses = changes.map(|change| change.address.as_str()).collect::<Vec<_>>();
        assert_eq!(addresses, refused, "{name}");
        assert_eq!(verdict.is_allowed(), refused.is_empty(), "{name}");
        assert_eq!(verdict.destructive_sha256.is_some(), !refused.is_empty(), "{name}");
        let created_by_failed_run = tainted.map(str::to_owned).into();
        let evidence = Evidence { created_by_failed_run };
        let verdict = policy.judge(&path, &evidence).unwrap();
        assert_eq!(verdict.is_allowed(), with_evidence, "{name}");
    }
}

#[test]
fn tainted_resources_are_replaced_only_with_evidence_and_never_if_protected() {
    let created_by_failed_run = ["terraform_data.keep".to_owned()].into();
    let evidence = Evidence { created_by_failed_run };
    let of = |policy: &Policy| policy.judge(&fixture("tainted.json"), &evidence).unwrap();
    let healed = of(&by_default());
    assert!(healed.is_allowed() && healed.destructive_sha256.is_none());
    assert!(healed.changes[0].destructive);
    let protected = of(&rules("protected: {types: [terraform_*]}"));
    assert!(!protected.is_allowed() && protected.is_allowed_with_approval());
    assert!(protected.destructive_sha256.is_some());
    // Where the new object is created first, the failed creation may have been that of another one.
    let created_by_failed_run = ["x_y.z".to_owned()].into();
    let evidence = Evidence { created_by_failed_run };
    for (actions, expected) in [(["delete", "create"], true), (["create", "delete"], false)] {
        let file = tempfile::NamedTempFile::new().unwrap();
        let plan = one(&actions, &json!({"action_reason": "replace_because_tainted"}));
        fs::write(file.path(), plan.to_string()).unwrap();
        let verdict = by_default().judge(file.path(), &evidence).unwrap();
        assert_eq!(verdict.is_allowed(), expected, "{actions:?}");
    }
    // Evidence is about failed creations, not about other replacements.
    let created_by_failed_run = ["terraform_data.first".to_owned()].into();
    let path = fixture("update_replace_delete.json");
    let verdict = by_default().judge(&path, &Evidence { created_by_failed_run }).unwrap();
    assert_eq!(verdict.lines().len(), 3, "{:?}", verdict.lines());
}

#[test]
fn unknown_actions_and_deposed_objects_are_refused() {
    for actions in
        [&["evaporate"][..], &[], &["delete", "delete"], &["no-op", "delete"], &["Delete"]]
    {
        let verdict = judge_json(&by_default(), &one(actions, &json!({})));
        assert!(!verdict.is_allowed(), "{actions:?}");
        assert_eq!(verdict.changes[0].kind, Kind::Unknown, "{actions:?}");
        let allowing = rules(
            "rules: [{id: all, verdict: allow, actions: [create, update, delete, replace, forget, import, move]},
                     {id: more, verdict: allow, reasons: ['*']}]",
        );
        assert!(!judge_json(&allowing, &one(actions, &json!({}))).is_allowed(), "{actions:?}");
    }
    let deposed = one(&["delete"], &json!({"deposed": "d3adb33f"}));
    let evidence = Evidence { created_by_failed_run: ["x_y.z".to_owned()].into() };
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), deposed.to_string()).unwrap();
    let verdict = by_default().judge(file.path(), &evidence).unwrap();
    assert_eq!(
        verdict.lines(),
        ["x_y.z (deposed d3adb33f): delete: a deposed object would be destroyed"]
    );
    let policy = rules("rules: [{id: old, verdict: allow, actions: [delete], deposed: true}]");
    assert!(judge_json(&policy, &deposed).is_allowed());
    assert!(!judge_json(&policy, &one(&["delete"], &json!({}))).is_allowed());
    for actions in [&["forget", "create"], &["create", "forget"]] {
        let verdict = judge_json(&by_default(), &one(actions, &json!({})));
        assert!(!verdict.is_allowed() && verdict.changes[0].kind == Kind::Forget);
    }
}

#[test]
fn imports_and_moves_count_beside_the_change_that_they_are_part_of() {
    let importing = json!({"change": {"actions": ["update"], "importing": {"id": "i"}, "before": {}, "after": {}},
        "previous_address": "x_y.old"});
    let verdict = judge_json(&by_default(), &one(&[], &importing));
    assert!(verdict.is_allowed());
    let counts = ["update", "import", "move", "create"].map(|kind| verdict.counts[kind]);
    assert_eq!(counts, [1, 1, 1, 0]);
    let only = json!({"change": {"actions": ["no-op"], "importing": {"id": "i"}}});
    let verdict = judge_json(&by_default(), &one(&[], &only));
    assert_eq!((verdict.changes[0].kind, verdict.counts["import"]), (Kind::Import, 1));
}

#[test]
fn the_first_rule_of_a_file_and_the_strictest_file_decide() {
    let many = "rules:
- {id: one, verdict: refuse, addresses: ['terraform_data.many[\"c\"]'], message: it is needed}
- {id: all, verdict: allow, actions: [delete], types: [terraform_data]}
";
    let verdict = judge(&rules(many), "destroy.json");
    assert_eq!(
        verdict.lines(),
        ["terraform_data.many[\"c\"]: delete: refused by the rule `one`: it is needed"]
    );
    let deny = ("deny.yaml", "rules: [{id: never, verdict: deny, addresses: ['*.keep']}]");
    let both = load(&[("many.yaml", many), deny]).unwrap();
    let verdict = judge(&both, "destroy.json");
    assert_eq!(verdict.denials, ["terraform_data.keep: delete: denied by the rule `never`"]);
    assert!(!verdict.is_allowed_with_approval());
    let refused = verdict.changes.iter().filter(|change| !change.refused.is_empty()).count();
    assert_eq!(refused, 2, "{:?}", verdict.lines());
    // A file that is silent has no opinion; where all are, the default decides.
    let limit = ("limit.yaml", "max_changes: 100");
    let verdict =
        judge(&load(&[("many.yaml", many), limit]).unwrap(), "update_replace_delete.json");
    let refused = verdict.changes.iter().filter(|change| !change.refused.is_empty());
    let kinds = refused.map(|change| change.kind).collect::<Vec<_>>();
    assert_eq!(kinds, [Kind::Replace, Kind::Replace]);
}

#[test]
fn updates_and_creations_can_be_refused_by_reason_and_address() {
    let policy = rules("rules: [{id: u, verdict: refuse, actions: [update, create]}]");
    let verdict = judge(&policy, "create.json");
    assert!(!verdict.is_allowed() && verdict.counts["delete"] == 0);
    let sha256 = verdict.destructive_sha256.unwrap();
    assert_ne!(Some(sha256), judge(&policy, "update_replace_delete.json").destructive_sha256);
    let policy = rules("rules: [{id: r, verdict: allow, reasons: [replace_because_cannot_*]}]");
    let verdict = judge(&policy, "update_replace_delete.json");
    assert_eq!(verdict.lines().len(), 1, "{:?}", verdict.lines());
}

#[test]
fn protected_objects_need_an_approval_whatever_rules_say() {
    let text = "protected: {addresses: ['*.keep']}
rules: [{id: all, verdict: allow, actions: [delete, replace, update, move, forget]}]";
    let policy = rules(text);
    let verdict = judge(&policy, "destroy.json");
    assert_eq!(
        verdict.lines(),
        ["terraform_data.keep: delete: it is protected: only an approval lifts that"]
    );
    assert!(verdict.is_allowed_with_approval());
    assert!(judge(&policy, "output_only.json").is_allowed());
    let kept = judge(&policy, "forget_and_moved.json");
    assert!(kept.is_allowed(), "a move destroys nothing: {:?}", kept.lines());
    // Under its new address it is still the protected object.
    let moved = one(&["delete", "create"], &json!({"previous_address": "x.keep"}));
    assert!(!judge_json(&policy, &moved).is_allowed());
}

#[test]
fn limits_are_denials() {
    let verdict = judge(&rules("max_changes: 4"), "create.json");
    assert_eq!(verdict.denials, ["the plan has 5 changes; max_changes is 4"]);
    assert!(judge(&rules("max_changes: 5"), "create.json").is_allowed());
    let both = load(&[("a.yaml", "max_changes: 5"), ("b.yaml", "max_changes: 4")]).unwrap();
    assert!(!judge(&both, "create.json").is_allowed_with_approval());
    let verdict = judge(&rules("max_changes: 1"), "forget_and_moved.json");
    assert!(verdict.denials.is_empty(), "moves are not counted: {:?}", verdict.denials);
}

#[test]
fn corrections_of_drift_are_told_from_other_changes() {
    let of = |drift: Value, after: Value, unknown: Value| {
        let drift = json!([{"address": "x_y.z", "type": "x_y", "change": drift}]);
        let changes = one(&["update"], &json!({}))["resource_changes"].clone();
        // As the tools write it: the drift first.
        let mut plan = json!({
            "format_version": "1.2", "resource_drift": drift, "resource_changes": changes,
        });
        plan["resource_changes"][0]["change"]["after"] = after;
        plan["resource_changes"][0]["change"]["after_unknown"] = unknown;
        judge_json(&rules("drift_only: true"), &plan)
    };
    let drift = || json!({"actions": ["update"], "before": {"a": 2, "id": "i"}, "after": {"a": 1, "id": "i"}});
    let verdict = of(drift(), json!({"a": 2, "id": "i"}), json!({}));
    assert!(verdict.is_allowed() && verdict.changes[0].corrects_drift, "{:?}", verdict.lines());
    let verdict = of(drift(), json!({"a": 3, "id": "i"}), json!({}));
    assert_eq!(
        verdict.denials,
        ["x_y.z: update: it is not a correction of drift, and drift_only is set"]
    );
    // Deleted by hand, and created again: what only the apply knows does not count.
    let deleted = json!({"actions": ["delete"], "before": {"a": 2, "id": "i"}, "after": null});
    assert!(of(deleted, json!({"a": 2}), json!({"id": true})).is_allowed());
    let no_op = json!({"actions": ["no-op"], "before": {"a": 2}, "after": {"a": 2}});
    assert!(!of(no_op, json!({"a": 2}), json!({})).is_allowed());
    assert!(!judge(&rules("drift_only: true"), "create.json").is_allowed());
    assert!(judge(&rules("drift_only: true"), "no_changes.json").is_allowed());
}

#[test]
fn watched_outputs_are_destructive_and_part_of_the_digest() {
    let args = |names: &[&str]| {
        let destructive_output = names.iter().map(|name| (*name).to_owned()).collect();
        PolicyArgs {
            options: PolicyOptions { destructive_output, ..PolicyOptions::default() },
            ..PolicyArgs::default()
        }
    };
    let of = |names: &[&str], plan| judge(&Policy::load(&args(names), None).unwrap(), plan);
    let verdict = of(&["cluster.version"], "output_only.json");
    assert_eq!(verdict.lines(), ["output cluster: cluster.version is watched, and changes"]);
    assert!(verdict.is_allowed_with_approval() && verdict.destructive_sha256.is_some());
    assert!(of(&["cluster.zones"], "output_only.json").is_allowed());
    assert!(of(&["cluster"], "create.json").is_allowed(), "nothing relies on a new output");
    let plain = of(&[], "update_replace_delete.json").destructive_sha256;
    assert_ne!(of(&["cluster.zones"], "update_replace_delete.json").destructive_sha256, plain);
    let verdict = of(&["clutser"], "output_only.json");
    assert_eq!(verdict.warnings, ["the plan has no output clutser, which is watched"]);
    let verdict = of(&["cluster.zonse", "cluster.version"], "output_only.json");
    assert_eq!(verdict.warnings, ["the output cluster has no cluster.zonse, which is watched"]);
    let file = rules("watched_outputs: [cluster.version, cluster]");
    assert_eq!(judge(&file, "output_only.json").lines().len(), 1);
    let error = Policy::load(&args(&["a..b"]), None).map(drop).unwrap_err();
    assert!(error.to_string().contains("`a..b`"), "{error}");
}

#[test]
fn actions_of_providers_are_refused_unless_a_rule_or_an_approval_allows_them() {
    let invoked = |payload: &str, reordered: bool| {
        let trigger = json!({"lifecycle_action_trigger": {
            "triggering_resource_address": "x_y.z", "action_trigger_event": "AfterCreate",
        }});
        let action = json!({
            "address": "action.aws_lambda_invoke.notify", "type": "aws_lambda_invoke", "name": "notify",
            "config_values": {"payload": payload, "secret": payload}, "config_sensitive": {"secret": true},
        });
        let mut action = action.as_object().unwrap().clone();
        action.extend(trigger.as_object().unwrap().clone());
        let create = json!({"address": "x_y.z", "mode": "managed", "type": "x_y", "name": "z",
            "change": {"actions": ["create"], "before": null, "after": {}}});
        let plan = json!({"format_version": "1.2", "applyable": true, "resource_changes": [create], "action_invocations": [action]});
        if reordered { rewritten(&plan) } else { plan }
    };
    let of = |policy: &Policy, payload| judge_json(policy, &invoked(payload, false));
    let verdict = of(&by_default(), "a");
    assert_eq!(
        verdict.lines(),
        [
            "action.aws_lambda_invoke.notify: invoke: an action would be run, and the plan does not say what it changes"
        ]
    );
    assert!(verdict.is_allowed_with_approval() && verdict.counts["invoke"] == 1);
    assert_ne!(verdict.destructive_sha256, of(&by_default(), "b").destructive_sha256);
    let same = judge_json(&by_default(), &invoked("a", true));
    assert_eq!(verdict.destructive_sha256, same.destructive_sha256);
    let rule = |types: &str| {
        rules(&format!(
            "rules:\n- id: a\n  verdict: allow\n  actions: [invoke]\n  types: [{types}]\n"
        ))
    };
    assert!(of(&rule("aws_lambda_invoke"), "a").is_allowed());
    assert!(!of(&rule("aws_sns_publish"), "a").is_allowed());
    assert!(!of(&rules("drift_only: true"), "a").is_allowed_with_approval());
}

/// The plan with its object keys in another order, and other values where none belongs to the destructive set.
fn rewritten(value: &Value) -> Value {
    match value {
        Value::Object(fields) => {
            fields.iter().rev().map(|(name, value)| (name.clone(), rewritten(value))).collect()
        }
        Value::Array(list) => list.iter().map(rewritten).collect(),
        scalar => scalar.clone(),
    }
}

#[test]
fn the_digest_depends_on_the_destructive_set_alone() {
    let name = "update_replace_delete.json";
    let digest = |plan: &Value| judge_json(&by_default(), plan).destructive_sha256.unwrap();
    let plan = serde_json::from_slice::<Value>(&fs::read(fixture(name)).unwrap()).unwrap();
    let first = digest(&plan);
    assert_eq!(Some(first), judge(&by_default(), name).destructive_sha256);
    let mut other = rewritten(&plan);
    other["timestamp"] = json!("2030-01-01T00:00:00Z");
    other["terraform_version"] = json!("1.12.0");
    other["prior_state"] = json!(null);
    other["resource_changes"].as_array_mut().unwrap().reverse();
    assert_eq!(digest(&other), first, "order, time and what is not destructive");
    let index = |plan: &Value, address: &str| {
        let list = plan["resource_changes"].as_array().unwrap();
        list.iter().position(|change| change["address"] == address).unwrap()
    };
    let at = index(&plan, "terraform_data.keep");
    let mut other = plan.clone();
    other["resource_changes"][at]["change"]["after"]["input"] = json!("3");
    assert_eq!(digest(&other), first, "an update that is allowed");
    let at = index(&plan, "terraform_data.secret");
    other["resource_changes"][at]["change"]["before"]["input"] = json!("another secret");
    assert_eq!(digest(&other), first, "a sensitive value");
    let at = index(&plan, "terraform_data.first");
    for (field, value) in
        [("address", json!("terraform_data.f")), ("type", json!("x")), ("deposed", json!("d"))]
    {
        let mut other = plan.clone();
        other["resource_changes"][at][field] = value;
        assert_ne!(digest(&other), first, "{field}");
    }
    for (field, value) in [
        ("actions", json!(["delete", "create"])),
        ("before", json!({"id": "other"})),
        ("after", json!({"triggers_replace": 9})),
    ] {
        let mut other = plan.clone();
        other["resource_changes"][at]["change"][field] = value;
        assert_ne!(digest(&other), first, "{field}");
    }
    let mut other = plan.clone();
    other["resource_changes"].as_array_mut().unwrap().remove(at);
    assert_ne!(digest(&other), first);
}

#[test]
fn what_is_no_plan_is_an_error_of_the_plan() {
    for text in [
        "",
        "{}",
        "[]",
        "null",
        "{\"format_version\": \"2.0\"}",
        "{\"format_version\": \"1.2\"",
        r#"{"format_version": "1.2", "resource_changes": {}}"#,
        r#"{"format_version": "1.2", "resource_changes": [{"change": {"actions": "delete"}}]}"#,
        r#"{"format_version": "1.2", "resource_changes": [7]}"#,
    ] {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), text).unwrap();
        let error = by_default().judge(file.path(), &Evidence::default()).unwrap_err();
        assert!(error.is_of_plan(), "{text}: {error}");
    }
    let error = by_default().judge(Path::new("/nonexistent"), &Evidence::default()).unwrap_err();
    assert!(error.is_of_plan());
}

#[test]
fn verdicts_survive_json_and_lines_have_no_control_characters() {
    let plan = one(&["delete"], &json!({"address": "x.y[\"\u{1b}[2J\n\"]"}));
    let verdict = judge_json(&by_default(), &plan);
    let again = serde_json::from_value::<Verdict>(json!(verdict)).unwrap();
    assert_eq!(json!(again), json!(verdict));
    assert!(verdict.lines().iter().all(|line| !line.contains(char::is_control)));
}

proptest! {
    #[test]
    fn no_plan_is_a_panic(actions in prop::collection::vec("[a-z-]{0,7}", 0..3), depth in 0..200_usize, text in "[\\[\\]{}\",:0-9a-z]{0,60}") {
        let deep = format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        let plan = format!(
            r#"{{"format_version": "1.2", "resource_changes": [{{"address": "a", "change": {{"actions": {}, "before": {deep}, "after": {text}}}}}]}}"#,
            json!(actions)
        );
        let _read = Plan::read(plan.as_bytes());
        let _read = Plan::read(text.as_bytes());
    }

    #[test]
    fn only_what_is_known_to_be_harmless_is_allowed(actions in prop::collection::vec("create|update|delete|forget|no-op|read|open", 0..4)) {
        let words = actions.iter().map(String::as_str).collect::<Vec<_>>();
        let verdict = judge_json(&by_default(), &one(&words, &json!({})));
        let harmless = matches!(words.as_slice(), ["create" | "update" | "no-op" | "read"]);
        prop_assert_eq!(verdict.is_allowed(), harmless, "{:?}", words);
    }
}
