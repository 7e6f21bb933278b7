//! Verdicts of real plans, and of what rules say of them.

use std::io::Write as _;

use super::*;

fn judge(args: &PolicyArgs, plan: &str, evidence: &[&str]) -> Verdict {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(plan.as_bytes()).unwrap();
    let created_by_failed_run = evidence.iter().map(|address| (*address).to_owned()).collect();
    let policy = Policy::load(args, None).unwrap();
    policy.judge(file.path(), &Evidence { created_by_failed_run }).unwrap()
}

fn with_rules(yaml: &str) -> (PolicyArgs, tempfile::NamedTempFile) {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(yaml.as_bytes()).unwrap();
    (PolicyArgs { policy: vec![file.path().to_owned()], ..PolicyArgs::default() }, file)
}

/// A plan with these resource changes: address, actions, reason.
fn plan(changes: &[(&str, &str, &str)]) -> String {
    let change = |(address, actions, reason): &(&str, &str, &str)| {
        let actions = actions.split(',').collect::<Vec<_>>();
        serde_json::json!({
            "address": address, "mode": "managed", "type": address.split('.').next(),
            "action_reason": (!reason.is_empty()).then_some(reason),
            "change": {
                "actions": actions, "before": {"id": "old", "password": "hunter2"}, "after": {"id": "new"},
                "before_sensitive": {"password": true}, "after_sensitive": {}, "after_unknown": {},
            },
        })
    };
    let changes = changes.iter().map(change).collect::<Vec<_>>();
    serde_json::json!({ "format_version": "1.2", "resource_changes": changes }).to_string()
}

/// Each refused change with its kind.
fn refused(verdict: &Verdict) -> Vec<String> {
    let refused = verdict.changes.iter().filter(|change| !change.refused.is_empty());
    refused.map(|change| format!("{} {}", change.kind, change.address)).collect()
}

#[test]
fn the_default_refuses_what_destroys_or_forgets() {
    let all = plan(&[
        ("a.noop", "no-op", ""),
        ("a.created", "create", ""),
        ("a.updated", "update", ""),
        ("a.deleted", "delete", "delete_because_no_resource_config"),
        ("a.replaced", "delete,create", "replace_because_cannot_update"),
        ("a.replaced_first", "create,delete", ""),
        ("a.forgotten", "forget", ""),
        ("a.odd", "explode", ""),
    ]);
    let verdict = judge(&PolicyArgs::default(), &all, &[]);
    assert_eq!(
        refused(&verdict),
        [
            "delete a.deleted",
            "replace a.replaced",
            "replace a.replaced_first",
            "forget a.forgotten",
            "unknown a.odd"
        ]
    );
    assert!(!verdict.is_allowed() && verdict.is_allowed_with_approval());
    let harmless = plan(&[("a.created", "create", ""), ("a.updated", "update", "")]);
    assert!(judge(&PolicyArgs::default(), &harmless, &[]).is_allowed());
    assert!(verdict.lines().iter().any(|line| line.contains("delete_because_no_resource_config")));
}

#[test]
fn a_tainted_object_is_replaced_only_if_a_failed_run_has_created_it() {
    let tainted = plan(&[("a.b", "delete,create", "replace_because_tainted")]);
    assert_eq!(refused(&judge(&PolicyArgs::default(), &tainted, &[])), ["replace a.b"]);
    assert!(judge(&PolicyArgs::default(), &tainted, &["a.b"]).is_allowed());
    assert!(!judge(&PolicyArgs::default(), &tainted, &["a.c"]).is_allowed());
    let other = plan(&[("a.b", "delete,create", "replace_because_cannot_update")]);
    assert!(!judge(&PolicyArgs::default(), &other, &["a.b"]).is_allowed());
}

#[test]
fn the_first_rule_decides_and_protected_objects_need_an_approval() {
    let (args, _file) = with_rules(
        "rules:\n  - {effect: refuse, actions: [update], types: [aws_db_*]}\n  - {effect: allow, actions: [delete, replace]}\n\
         protected:\n  - {types: [aws_kms_key]}\n",
    );
    let verdict = judge(
        &args,
        &plan(&[
            ("aws_db_instance.a", "update", ""),
            ("aws_vpc.a", "delete", ""),
            ("aws_kms_key.a", "delete", ""),
            ("aws_kms_key.b", "update", ""),
            ("aws_vpc.b", "forget", ""),
        ]),
        &[],
    );
    assert_eq!(
        refused(&verdict),
        ["update aws_db_instance.a", "delete aws_kms_key.a", "forget aws_vpc.b"]
    );
}

#[test]
fn of_several_files_the_strictest_decides_and_a_limit_is_no_matter_of_approval() {
    let (mut args, _file) = with_rules("rules:\n  - {effect: allow}\nmax_changes: 1\n");
    let (other, _other) = with_rules("rules:\n  - {effect: refuse, addresses: ['aws_vpc.*']}\n");
    let deleted = plan(&[("aws_vpc.a", "delete", "")]);
    assert!(judge(&args, &deleted, &[]).is_allowed());
    args.policy.extend(other.policy);
    assert!(!judge(&args, &deleted, &[]).is_allowed());
    let two = plan(&[("a.a", "create", ""), ("a.b", "create", "")]);
    let verdict = judge(&args, &two, &[]);
    assert!(!verdict.is_allowed_with_approval(), "{verdict:?}");
}

#[test]
fn a_broken_policy_is_an_error() {
    for yaml in [
        "",
        "rules: 1",
        "rule: []",
        "rules:\n  - {effect: perhaps}",
        "rules:\n  - {effect: allow, action: [delete]}",
        "rules:\n  - {effect: allow, actions: [unknown]}",
        "protected:\n  - {}",
    ] {
        let (args, _file) = with_rules(yaml);
        let error = Policy::load(&args, None).unwrap_err();
        assert!(matches!(error, PolicyError::Invalid { .. }), "{yaml}: {error}");
    }
    let missing = PolicyArgs { policy: vec!["/missing".into()], ..PolicyArgs::default() };
    assert!(matches!(Policy::load(&missing, None).unwrap_err(), PolicyError::Read { .. }));
}

#[test]
fn a_policy_inside_of_the_source_is_refused() {
    let source = tempfile::tempdir().unwrap();
    let inside = source.path().join("policy.yaml");
    fs::write(&inside, "max_changes: 3\n").unwrap();
    let elsewhere = tempfile::tempdir().unwrap();
    let link = elsewhere.path().join("policy.yaml");
    std::os::unix::fs::symlink(&inside, &link).unwrap();
    for file in [&inside, &link] {
        let mut args = PolicyArgs { policy: vec![file.clone()], ..PolicyArgs::default() };
        let error = Policy::load(&args, Some(source.path())).unwrap_err();
        assert!(matches!(error, PolicyError::InSource { .. }), "{error}");
        args.policy_from_source = true;
        Policy::load(&args, Some(source.path())).unwrap();
    }
}

#[test]
fn the_digest_is_that_of_the_destructive_set_without_secrets() {
    let digest = |plan: &str| judge(&PolicyArgs::default(), plan, &[]).destructive_sha256;
    let two = [("a.a", "delete", ""), ("a.b", "delete,create", "")];
    let set = digest(&plan(&two));
    let [first, second] = two;
    assert_eq!(
        digest(&plan(&[second, ("a.c", "create", ""), first])),
        set,
        "order and harmless changes"
    );
    let secret = plan(&two).replace("hunter2", "another secret");
    assert_eq!(digest(&secret), set);
    assert_ne!(digest(&plan(&two).replace("old", "older")), set);
    assert_ne!(digest(&plan(&two[..1])), set);
    assert_eq!(digest(&plan(&[("a.c", "create", "")])), None);
    let verdict = judge(&PolicyArgs::default(), &plan(&two), &[]);
    assert!(!format!("{verdict:?}").contains("hunter2"));
}

#[test]
fn a_watched_output_is_compared_without_the_order_of_lists() {
    let plan = |before: &str, after: &str| {
        format!(
            r#"{{"format_version": "1.2", "output_changes": {{"discovery": {{"actions": ["update"],
                "before": {{"zones": {before}, "x": 1}}, "after": {{"zones": {after}, "x": 2}},
                "before_sensitive": false, "after_sensitive": false, "after_unknown": false}}}}}}"#
        )
    };
    let watching = |output: &str| PolicyArgs {
        destructive_output: vec![output.to_owned()],
        ..PolicyArgs::default()
    };
    let (same, other) = (plan(r#"["a","b"]"#, r#"["b","a"]"#), plan(r#"["a"]"#, r#"["a","c"]"#));
    assert!(judge(&PolicyArgs::default(), &other, &[]).is_allowed());
    assert!(judge(&watching("discovery.zones"), &same, &[]).is_allowed());
    assert_eq!(judge(&watching("discovery.zones"), &other, &[]).outputs, ["discovery.zones"]);
    assert_eq!(judge(&watching("discovery"), &same, &[]).outputs, ["discovery"]);
    assert!(judge(&watching("another"), &other, &[]).is_allowed());
}

/// The plans of a real terraform, where they are.
#[test]
fn real_plans_get_their_verdicts() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/data/plan_fixtures");
    if !dir.exists() {
        assert!(option_env!("CI").is_none(), "CI needs ../shared/data");
        return;
    }
    for (name, expected) in [
        ("no_changes", 0),
        ("output_only", 0),
        ("update_replace_delete", 3),
        ("forget", 1),
        ("tainted_after_failed_create", 1),
    ] {
        let plan = fs::read_to_string(dir.join(format!("{name}.json"))).unwrap();
        let verdict = judge(&PolicyArgs::default(), &plan, &[]);
        assert_eq!(refused(&verdict).len(), expected, "{name}: {verdict:?}");
        assert_eq!(verdict.is_allowed(), expected == 0, "{name}");
    }
    for name in ["create_before_destroy_and_moved", "destroy"] {
        let plan = fs::read_to_string(dir.join(format!("{name}.json"))).unwrap();
        let verdict = judge(&PolicyArgs::default(), &plan, &[]);
        let moved = verdict.changes.iter().filter(|change| change.kind == Kind::Move);
        assert!(moved.clone().all(|change| change.refused.is_empty()), "{name}: {verdict:?}");
        assert!(!verdict.is_allowed(), "{name}");
    }
    let tainted = fs::read_to_string(dir.join("tainted_after_failed_create.json")).unwrap();
    let verdict = judge(&PolicyArgs::default(), &tainted, &[]);
    let addresses = verdict.changes.iter().map(|change| &*change.address).collect::<Vec<_>>();
    assert!(judge(&PolicyArgs::default(), &tainted, &addresses).is_allowed());
}
