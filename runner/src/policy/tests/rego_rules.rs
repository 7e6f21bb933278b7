//! Policies in Rego.

use fs_err as fs;

use proptest::prelude::*;
use serde_json::json;

use super::{fixture, judge, load, message, policy_of, rego};
use crate::policy::{Evidence, Policy};

/// The value of the fixtures' sensitive variable.
const SECRET: &str = "correct-horse-battery";

#[test]
fn rules_of_rego_are_conftests() {
    let text = "package main
deny contains \"a\" if true
deny contains {\"msg\": \"b\", \"severity\": 3} if true
deny_with_suffix := [\"c\"]
violation contains {\"msg\": \"d\"} if true
violation_x contains \"e\" if true
warn contains \"w\" if true
warn_y := {{\"msg\": \"v\"}}
denying contains \"no\" if true
deny__ contains \"no\" if true
helper := 1
";
    let verdict = judge(&rego(text).unwrap(), "no_changes.json");
    assert_eq!(verdict.denials, ["a", "b", "c", "d", "e"]);
    assert_eq!(verdict.warnings, ["w", "v"]);
    assert!(verdict.changes.is_empty() && !verdict.is_allowed_with_approval());
    let other = "package other\ndeny contains \"x\" if true";
    let both = load(&[("a.rego", other), ("b.rego", "package main\ndeny contains \"y\" if false")]);
    assert!(judge(&both.unwrap(), "no_changes.json").is_allowed());
}

#[test]
fn rego_that_could_fail_unseen_is_refused_with_file_and_line() {
    let deny = "deny contains msg if {";
    for (text, expected) in [
        ("package main\ndeny[msg] { msg := 1 }".to_owned(), "main.rego:2:11: `if` keyword"),
        ("package main\nallow := true".to_owned(), "no rule `deny` or `violation`"),
        ("package main\nwarn contains \"x\" if true".to_owned(), "no rule `deny`"),
        ("package policy\ndeny contains \"x\" if true".to_owned(), "no rule `deny`"),
        (
            "package main\ndeny(x) := \"no\" if x".to_owned(),
            "main.rego:2:1: the rule deny is no set of messages",
        ),
        (
            "package main\ndeny if { input.x }".to_owned(),
            "main.rego:2:1: the rule deny is no set of messages",
        ),
        (
            "package main\ndeny[x] if { x := 1 }".to_owned(),
            "main.rego:2:1: the rule deny is no set",
        ),
        (
            format!("package main\n{deny} false; msg := http.send({{}}) }}"),
            "there is no function http.send",
        ),
        (format!("package main\n{deny} false; msg := crypto.md5(\"x\") }}"), "main.rego:2:"),
        (format!("package main\n{deny} false; opa.runtime(); msg := \"\" }}"), "opa.runtime"),
        (format!("package main\n{deny} false; lib.f(1); msg := \"\" }}"), "lib.f"),
        ("package main\ndeny.key := \"x\"".to_owned(), "main.rego:2:1: the rule deny is no set"),
        ("not rego".to_owned(), "main.rego:1:"),
        (String::new(), "main.rego"),
    ] {
        let error = message(rego(&text));
        assert!(error.contains(expected), "{text}: {error}");
        assert!(!error.contains('\n'), "{error}");
    }
}

#[test]
fn results_of_rego_that_are_no_messages_are_refused() {
    for (rule, expected) in [
        ("deny := true", "the rule deny is a boolean"),
        ("deny := \"text\"", "the rule deny is a text"),
        ("deny contains 7 if true", "a result of the rule deny is a number"),
        ("deny contains {\"message\": \"x\"} if true", "an object without it"),
        ("deny contains {\"msg\": 1} if true", "an object without it"),
        ("deny contains \"x\" if true\nwarn contains 1 if true", "the rule warn is a number"),
        ("deny contains startswith(null, \"x\") if true", "main.rego:2:"),
        ("deny contains msg if { msg := nosuch }", "main.rego:2:"),
        ("deny contains to_number(\"x\") if true", "main.rego:2:"),
    ] {
        let policy = rego(&format!("package main\n{rule}")).unwrap();
        let error = policy.judge(&fixture("no_changes.json"), &Evidence::default()).unwrap_err();
        let text = datastore_api::chain(&error);
        assert!(text.contains(expected), "{rule}: {text}");
        assert!(!error.is_of_plan(), "{text}");
    }
}

#[test]
fn functions_of_other_packages_and_data_are_found() {
    let (dir, mut args) = policy_of(&[
        (
            "main.rego",
            "package main\nimport data.lib.tags as t\nimport data.lib\n\
             deny contains msg if { t.bad(data.limit); lib.tags.bad(9); data.lib.tags.bad(9); own(1); msg := data.net.name }\n\
             own(x) if x == 1\n",
        ),
        ("lib.rego", "package lib.tags\nbad(x) if { print(x); x > 3 }\n"),
        ("skipped_test.rego", "package main\ntest_x if { nosuch.function(1) }"),
    ]);
    args.policy = vec![dir.path().to_owned()];
    let data = tempfile::tempdir().unwrap();
    fs::create_dir(data.path().join("net")).unwrap();
    fs::write(data.path().join("limit.yaml"), "limit: 5\n").unwrap();
    fs::write(data.path().join("net/x.json"), r#"{"name": "from data"}"#).unwrap();
    args.options.policy_data = vec![data.path().to_owned()];
    let verdict = judge(&Policy::load(&args, None).unwrap(), "no_changes.json");
    assert_eq!(verdict.denials, ["from data"]);
    fs::write(data.path().join("bad.yml"), "- 1\n").unwrap();
    let error = message(Policy::load(&args, None));
    assert!(error.contains("bad.yml: data is an object"), "{error}");
    fs::write(data.path().join("bad.yml"), "limit: 6\n").unwrap();
    let error = message(Policy::load(&args, None));
    assert!(error.contains("limit.yaml: "), "the documents contradict each other: {error}");
}

#[test]
fn sensitive_values_are_nowhere_in_a_verdict() {
    let (_dir, mut args) = policy_of(&[(
        "main.rego",
        "package main\ndeny contains msg if { msg := sprintf(\"password %s\", [input.variables.password.value]) }\n\
         warn contains sprintf(\"%v\", [r.change.before]) if { some r in input.resource_changes }",
    )]);
    args.options.destructive_output = vec!["password".to_owned()];
    let policy = Policy::load(&args, None).unwrap();
    for name in ["destroy.json", "update_replace_delete.json", "create.json"] {
        assert!(fs::read_to_string(fixture(name)).unwrap().contains(SECRET));
        let verdict = judge(&policy, name);
        let text = format!("{verdict:?} {:?} {}", verdict.lines(), json!(verdict));
        assert!(!text.contains(SECRET), "{name}: {text}");
        assert!(text.contains("password"), "{name}: {text}");
    }
    let failing = rego(
        "package main\ndeny contains msg if { msg := numbers.range(1, input.variables.password.value) }",
    );
    let error = failing.unwrap().judge(&fixture("create.json"), &Evidence::default()).unwrap_err();
    let text = datastore_api::chain(&error);
    assert!(text.contains("main.rego:2:") && !text.contains(SECRET), "{text}");
}

proptest! {
    #[test]
    fn no_rego_is_a_panic(text in "[a-z \n{}\\[\\]():=,.\"0-9]{0,60}") {
        let _answer = rego(&format!("package main\n{text}"));
    }
}
