//! Plans of a real terraform before and after an apply that failed: `tests/fixtures/remainder`.

use std::path::Path;

use crate::report::Counts;
use crate::run::apply::remainder::compare::compare;
use crate::run::apply::remainder::done::Done;

fn fixture(name: &str) -> String {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures/remainder");
    fs_err::read_to_string(fixtures.join(name)).unwrap()
}

/// What the apply of a fixture has done.
fn done(name: &str) -> Done {
    done_by(&fixture(&format!("{name}/apply.txt")))
}

fn done_by(output: &str) -> Done {
    let mut done = Done::default();
    done.add(output.as_bytes(), false).unwrap();
    done
}

fn differences(reviewed: &str, new: &str, done: &Done) -> String {
    compare(reviewed.as_bytes(), new.as_bytes(), done).unwrap().to_string()
}

/// The differences of a fixture after a change of its new plan.
fn changed(name: &str, from: &str, to: &str) -> String {
    let (reviewed, new) =
        (fixture(&format!("{name}/reviewed.json")), fixture(&format!("{name}/new.json")));
    assert!(new.contains(from), "{from}");
    differences(&reviewed, &new.replace(from, to), &done(name))
}

#[test]
fn plan_after_a_failed_apply_is_a_remainder() {
    for name in ["created", "replaced"] {
        let (reviewed, new) =
            (fixture(&format!("{name}/reviewed.json")), fixture(&format!("{name}/new.json")));
        assert_eq!(differences(&reviewed, &new, &done(name)), "", "{name}");
        assert_eq!(differences(&reviewed, &reviewed, &Done::default()), "", "{name}");
    }
}

#[test]
fn the_whole_plan_is_no_remainder_of_its_remainder() {
    let (reviewed, new) = (fixture("created/new.json"), fixture("created/reviewed.json"));
    let found = differences(&reviewed, &new, &Done::default());
    assert!(found.contains("terraform_data.first: create is not in the reviewed plan"), "{found}");
    assert!(
        found.contains("terraform_data.failing: create is planned, and replace was reviewed"),
        "{found}"
    );
    assert!(found.contains("output first: its change is not in the reviewed plan"), "{found}");
    let sensitive = "terraform_data.after[\"a\"]: its planned values differ in input";
    assert!(found.contains(sensitive), "a known value is unknown: {found}");
}

/// Only what this run's apply has left tainted, or half replaced.
#[test]
fn tainted_object_that_the_apply_has_not_started_is_a_difference() {
    let compared = |name: &str, output: &str| {
        let done = done_by(output);
        differences(
            &fixture(&format!("{name}/reviewed.json")),
            &fixture(&format!("{name}/new.json")),
            &done,
        )
    };
    let first = "terraform_data.first: Creation complete after 0s [id=1]\n";
    assert_eq!(
        compared("created", &format!("terraform_data.other: Creating...\n{first}")),
        "terraform_data.failing: replace is planned, and create was reviewed"
    );
    // The tool has reported that it is complete: another process has tainted it.
    let whole = "terraform_data.failing: Creation complete after 0s [id=1]\n";
    assert_eq!(
        compared("created", &format!("terraform_data.failing: Creating...\n{first}{whole}")),
        "terraform_data.failing: a failed try has created it, and it is to be created again"
    );
    let quoted = "terraform_data.x (local-exec): terraform_data.failing: Creating...\n";
    assert_ne!(compared("created", quoted), "", "a provisioner prints it");
    let found = compared("replaced", "");
    for difference in [
        "terraform_data.created_first: it is another object than the reviewed one",
        "terraform_data.created_first (deposed object a38338d3): delete is not in the reviewed plan",
        "terraform_data.waiting: create is planned, and replace was reviewed",
        "terraform_data.undestroyed: its reviewed replacement was not made, and is not planned any more",
    ] {
        assert!(found.contains(difference), "{difference}: {found}");
    }
}

#[test]
fn every_change_of_a_planned_value_is_a_difference() {
    for (from, to, name) in [
        ("\"known\"", "\"other\"", "input"),
        ("00000000-known", "11111111-known", "input"),
        ("12345678901234567890123", "12345678901234567890124", "input"),
        ("[1.5,", "[1.50001,", "input"),
        ("\"do not show\"", "\"shown\"", "input"),
        ("\"secret\":true", "\"secret\":false", "input"),
        (
            "\"triggers_replace\":null},\"after_unknown\":{\"id\":true,\"input\"",
            "\"triggers_replace\":1},\"after_unknown\":{\"id\":true,\"input\"",
            "triggers_replace",
        ),
        (
            "\"triggers_replace\":null},\"after_unknown\":{\"id\":true,\"input\"",
            "\"more\":1},\"after_unknown\":{\"id\":true,\"input\"",
            "more",
        ),
        ("\"numbers\":[false,", "\"numbers\":[true,", "input"),
    ] {
        let found = changed("created", from, to);
        let expected = format!("terraform_data.after[\"a\"]: its planned values differ in {name}");
        assert!(found.contains(&expected), "{from}: {found}");
        assert!(!found.contains("do not show") && !found.contains("shown"), "{found}");
    }
    let from = "\"triggers_replace\":\"2\"},\"after_unknown\":{\"id\":true}";
    let found = changed("replaced", from, &from.replace('2', "3"));
    assert!(
        found.contains("terraform_data.replaced: its planned values differ in triggers"),
        "{found}"
    );
}

#[test]
fn every_other_action_object_or_reason_is_a_difference() {
    let id = fixture("replaced/new.json");
    let id =
        id.split("terraform_data.removed[0]").nth(1).unwrap().split("\"id\":\"").nth(1).unwrap();
    let id = &id[..36];
    for (from, to, difference) in [
        (
            "delete_because_count_index",
            "delete_because_no_resource_config",
            "removed[0]: the reason is delete_because_no_resource_config, and delete_because_count_index was reviewed",
        ),
        (
            id,
            "ffffffff-0000-0000-0000-000000000000",
            "removed[0]: it is another object than the reviewed one",
        ),
        (
            "\"deposed\":\"a38338d3\"",
            "\"deposed\":null",
            "created_first: delete is planned, and replace was reviewed",
        ),
        (
            "terraform_data.removed[0]",
            "terraform_data.removed[1]",
            "removed[1]: delete is not in the reviewed plan",
        ),
        (
            "{\"actions\":[\"no-op\"]",
            "{\"actions\":[\"forget\"]",
            "kept: forget is not in the reviewed plan",
        ),
        (
            "{\"actions\":[\"no-op\"]",
            "{\"importing\":{\"id\":\"x\"},\"actions\":[\"no-op\"]",
            "kept: no-op is not in the reviewed plan",
        ),
        (
            "\"address\":\"terraform_data.kept\"",
            "\"address\":\"terraform_data.kept\",\"previous_address\":\"terraform_data.old\"",
            "kept: no-op is not in the reviewed plan",
        ),
        (
            "\"output_changes\": {}",
            "\"output_changes\": {\"o\":{\"actions\":[\"create\"],\"after\":1}}",
            "output o: its change is not in the reviewed plan",
        ),
        (
            "\"errored\"",
            "\"action_invocations\": [{}], \"errored\"",
            "the plan invokes actions, which are not compared",
        ),
    ] {
        let found = changed("replaced", from, to);
        assert!(found.contains(difference), "{difference}: {found}");
    }
}

#[test]
fn outputs_are_compared_by_value_and_their_deletion() {
    let plan =
        |outputs: &str| format!("{{\"format_version\":\"1.2\",\"output_changes\":{{{outputs}}}}}");
    let create = plan(r#""o":{"actions":["create"],"after":"a","after_unknown":false}"#);
    for (reviewed, new, difference) in [
        (create.clone(), plan(r#""o":{"actions":["update"],"after":"a"}"#), ""),
        (create.clone(), plan(r#""o":{"actions":["no-op"],"after":"b"}"#), ""),
        (
            create.clone(),
            plan(r#""o":{"actions":["create"],"after":"b"}"#),
            "output o: its planned value differs",
        ),
        (
            create.clone(),
            plan(r#""o":{"actions":["create"],"after_unknown":true}"#),
            "output o: its planned value differs",
        ),
        (
            create.clone(),
            plan(r#""o":{"actions":["create"],"after":"a","after_sensitive":true}"#),
            "output o: its planned value differs",
        ),
        (
            create,
            plan(r#""o":{"actions":["delete"],"after":null}"#),
            "output o: it is deleted in only one of the plans",
        ),
        (
            plan(r#""o":{"actions":["create"],"after_unknown":true}"#),
            plan(r#""o":{"actions":["create"],"after":{"a":[1]}}"#),
            "",
        ),
        (
            plan(r#""o":{"actions":["create"],"after_unknown":true,"after_sensitive":true}"#),
            plan(r#""o":{"actions":["create"],"after":1}"#),
            "output o: its planned value differs",
        ),
    ] {
        assert_eq!(differences(&reviewed, &new, &Done::default()), difference, "{new}");
    }
}

#[test]
fn moves_imports_and_reads_are_compared_with_the_reviewed_ones() {
    let plan = |change: &str| {
        format!(
            "{{\"format_version\":\"1.2\",\"resource_changes\":[{{\"address\":\"a.b\",{change}}}]}}"
        )
    };
    let moved = |from: &str| {
        plan(&format!(
            r#""previous_address":"{from}","change":{{"actions":["no-op"],"before":{{"id":"1"}}}}"#
        ))
    };
    let import = |id: &str| {
        plan(&format!(
            r#""change":{{"actions":["update"],"importing":{{"id":"{id}"}},"before":{{"id":"1"}}}}"#
        ))
    };
    let read = |q: &str| {
        plan(&format!(
            r#""action_reason":"{q}","change":{{"actions":["read"],"after":{{"q":1}},"after_unknown":{{"r":true}}}}"#
        ))
    };
    let replace = |path: &str| {
        plan(&format!(
            r#""change":{{"actions":["delete","create"],"before":{{"id":"1"}},"replace_paths":[["{path}"]]}}"#
        ))
    };
    for (reviewed, new, difference) in [
        (moved("a.c"), moved("a.c"), ""),
        (moved("a.c"), moved("a.b"), ""),
        (moved("a.c"), moved("a.d"), "a.b: it is moved, and was not in the reviewed plan"),
        (import("1"), import("1"), ""),
        (import("1"), import("2"), "a.b: it is imported, and was not so in the reviewed plan"),
        (read("x"), read("y"), ""),
        (moved("a.c"), read("x"), "a.b: read is planned, and no-op was reviewed"),
        (replace("p"), replace("p"), ""),
        (replace("p"), replace("q"), "a.b: it is replaced because of other attributes"),
    ] {
        assert_eq!(differences(&reviewed, &new, &Done::default()), difference, "{new}");
    }
}

/// A plan of changes, each an address, its key of a deposed object, its actions, its reason and the ID of its object.
fn plan(changes: &[(&str, &str, &[&str], &str, &str)]) -> String {
    let change = |(address, deposed, actions, reason, id): &(_, &str, &[&str], _, &str)| {
        let before = if id.is_empty() { "null".into() } else { serde_json::json!({ "id": id }) };
        serde_json::json!({
            "address": address,
            "deposed": Some(deposed).filter(|key| !key.is_empty()),
            "action_reason": reason,
            "change": { "actions": actions, "before": before, "after": { "x": 1 } },
        })
    };
    let changes = changes.iter().map(change).collect::<Vec<_>>();
    serde_json::json!({ "format_version": "1.2", "resource_changes": changes }).to_string()
}

#[test]
fn what_a_try_has_completed_is_not_done_again() {
    let (create, delete, update) = (&["create"][..], &["delete"][..], &["update"][..]);
    let replace = &["delete", "create"][..];
    let created = "a.b: Creating...\na.b: Creation complete after 1s [id=2]\n";
    let deleted = "a.b: Destroying... [id=1]\na.b: Destruction complete after 1s\n";
    let updated = "a.b: Modifying... [id=1]\na.b: Modifications complete after 1s [id=1]\n";
    let half = format!("{deleted}a.b: Creating...\n");
    let whole = format!("{deleted}{created}");
    let again = |what: &str| format!("a.b: a failed try has {what}");
    let made = again("created it, and it is to be created again");
    for (output, reviewed, new, expected) in [
        ("a.b: Creating...\n", (create, "", ""), (create, "", ""), ""),
        (created, (create, "", ""), (create, "", ""), &made),
        (created, (create, "", ""), (replace, "replace_because_tainted", "2"), &made),
        (
            deleted,
            (delete, "", "1"),
            (delete, "", "1"),
            &again("deleted it, and it is to be deleted again"),
        ),
        (updated, (update, "", "1"), (update, "", "1"), ""),
        (deleted, (replace, "", "1"), (create, "", ""), ""),
        (&half, (replace, "", "1"), (replace, "replace_because_tainted", "2"), ""),
        (
            deleted,
            (replace, "", "1"),
            (replace, "", "1"),
            &again("deleted its object, and it is to be replaced again"),
        ),
        (
            &half,
            (replace, "", "1"),
            (replace, "replace_because_tainted", "1"),
            &again("deleted its object, and it is to be replaced again"),
        ),
        (&whole, (replace, "", "1"), (create, "", ""), &made),
        (&whole, (replace, "", "1"), (replace, "replace_because_tainted", "2"), &made),
        // It was not this run that has created the tainted object.
        (
            deleted,
            (replace, "", "1"),
            (replace, "replace_because_tainted", "2"),
            &again("deleted its object, and it is to be replaced again"),
        ),
    ] {
        let of = |(actions, reason, id)| plan(&[("a.b", "", actions, reason, id)]);
        let found = differences(&of(reviewed), &of(new), &done_by(output));
        assert_eq!(found, expected, "{output} {reviewed:?} {new:?}");
    }
}

/// The tool names the key of a deposed object where it begins to delete it, and not where it has.
#[test]
fn deposed_object_and_its_successor_are_told_apart() {
    let started = "a.b (deposed object 1): Destroying... [id=1]\n";
    let deleted = format!("{started}a.b: Destruction complete after 1s\n");
    let both = format!("a.b: Destroying... [id=2]\n{deleted}");
    let reviewed = plan(&[("a.b", "", &["delete"], "", "2"), ("a.b", "1", &["delete"], "", "1")]);
    for (output, current, deposed) in [
        (started, "", ""),
        (
            &deleted,
            "",
            "a.b (deposed object 1): a failed try has deleted it, and it is to be deleted again",
        ),
        (&both, "", ""),
    ] {
        let of = |key, id| plan(&[("a.b", key, &["delete"], "", id)]);
        let found = |new: &str| differences(&reviewed, new, &done_by(output));
        assert_eq!(found(&of("", "2")), current, "{output}");
        assert_eq!(found(&of("1", "1")), deposed, "{output}");
    }
}

#[test]
fn reviewed_creation_that_is_neither_made_nor_planned_is_a_difference() {
    let reviewed = plan(&[
        ("a.b", "", &["create"], "", ""),
        ("a.c", "", &["update"], "", "1"),
        ("a.d", "", &["delete"], "", "1"),
        ("a.e", "", &["read"], "", ""),
    ]);
    let found = differences(&reviewed, &plan(&[]), &Done::default());
    assert_eq!(found, "a.b: its reviewed creation was not made, and is not planned any more");
    let done = done_by("a.b: Creation complete after 0s [id=1]\n");
    assert_eq!(differences(&reviewed, &plan(&[]), &done), "");
}

#[test]
fn variables_have_the_same_values() {
    let plan = |values: &str| format!("{{\"format_version\":\"1.2\",\"variables\":{values}}}");
    let one = plan(r#"{"v":{"value":{"a":1,"b":"secret"}}}"#);
    let reordered = plan(r#"{"v":{"value":{"b":"secret", "a": 1}}}"#);
    for (reviewed, new, difference) in [
        (&one, &reordered, ""),
        (&plan("null"), &plan("{}"), ""),
        (&one, &plan(r#"{"v":{"value":{"a":1,"b":"other"}}}"#), "variable v: its value differs"),
        (&one, &plan("{}"), "variable v: its value differs"),
        (&plan("{}"), &one, "variable v: its value differs"),
    ] {
        assert_eq!(&differences(reviewed, new, &Done::default()), difference, "{new}");
    }
}

#[test]
fn data_sources_return_what_was_reviewed_but_for_what_is_sensitive_or_of_the_request() {
    let plan = |kind: &str, values: &str| {
        let data = format!(
            r#"{{"address":"module.m.data.{kind}.x","mode":"data","type":"{kind}","values":{values},"sensitive_values":{{"secret":true,"out":{{"s":true}}}}}}"#
        );
        let managed = r#"{"address":"a.b","mode":"managed","values":{"v":1}}"#;
        format!(
            r#"{{"format_version":"1.2","prior_state":{{"format_version":"1.0","values":{{"root_module":{{"resources":[{managed}],"child_modules":[{{"resources":[{data}]}}]}}}}}}}}"#
        )
    };
    let one = r#"{"v":1,"secret":"a","out":{"s":"a","o":[1]},"arn":"x","lease_id":"1"}"#;
    for (kind, from, to, names) in [
        ("y", "\"v\":1", "\"v\":1", ""),
        ("y", "\"v\":1", "\"v\":2", "v"),
        ("y", "\"secret\":\"a\"", "\"secret\":\"b\"", ""),
        ("y", "\"s\":\"a\"", "\"s\":\"b\"", ""),
        ("y", "[1]", "[2]", "out"),
        ("y", "\"x\"", "\"y\"", "arn"),
        ("aws_caller_identity", "\"x\"", "\"y\"", ""),
        ("y", "\"lease_id\":\"1\"", "\"lease_id\":\"2\"", ""),
        ("y", "\"v\":1,", "", "v"),
    ] {
        let (reviewed, new) = (plan(kind, one), plan(kind, &one.replace(from, to)));
        let found = differences(&reviewed, &new, &Done::default());
        let expected = match names {
            "" => String::new(),
            names => format!("module.m.data.{kind}.x: what is read differs in {names}"),
        };
        assert_eq!(found, expected, "{kind} {from} {to}");
    }
    let unread = r#"{"format_version":"1.2","prior_state":null}"#;
    assert_eq!(differences(unread, &plan("y", one), &Done::default()), "");
    assert_eq!(differences(&plan("y", one), unread, &Done::default()), "");
}

#[test]
fn changes_outside_of_the_tool_are_compared_only_where_the_plan_has_no_others() {
    let drift = r#"{"format_version":"1.2","resource_drift":[{"address":"a.b","change":{"actions":["update"]}}]}"#;
    let found = differences(drift, drift, &Done::default());
    assert!(found.contains("only changes that were made outside of the tool"), "{found}");
    let found = changed("created", "\"errored\"", "\"resource_drift\": [{}], \"errored\"");
    assert_eq!(found, "");
}

#[test]
fn creation_without_an_answer_is_repeated_only_where_its_id_is_unique() {
    let [start, end] =
        [r#"{"format_version":"1.2","resource_changes":[{"address":"a_b.c","change":"#, "}]}"];
    let plan = |name: &str| format!(r#"{start}{{"actions":["create"],{name}}}{end}"#);
    let named = plan(r#""after":{"name":"n"}"#);
    let generated = plan(r#""after":{"prefix":"n"},"after_unknown":{"name":true}"#);
    let secret = plan(r#""after":{"name":"n"},"after_sensitive":{"name":true}"#);
    let template = Some("${name}");
    for (new, template, is_repeated) in [
        (&named, template, true),
        (&named, None, false),
        (&generated, template, false),
        (&secret, template, false),
    ] {
        let mut done = Done::default();
        done.unanswered.insert("a_b.c".to_owned(), template.map(str::to_owned));
        // With the second one the tool has restored the old object.
        for new in [new.clone(), new.replace("[\"create\"]", "[\"create\",\"delete\"]")] {
            let found = differences(&new, &new, &done);
            assert_eq!(found.contains("a_b.c: a failed try was to create"), !is_repeated, "{new}");
        }
    }
}

#[test]
fn many_differences_are_counted() {
    let change =
        |n: usize| format!(r#"{{"address":"a.b[{n}]","change":{{"actions":["create"]}}}}"#);
    let changes = (0..100).map(change).collect::<Vec<_>>().join(",");
    let new = format!("{{\"format_version\":\"1.2\",\"resource_changes\":[{changes}]}}");
    let found = differences(r#"{"format_version":"1.2"}"#, &new, &Done::default());
    assert!(found.ends_with("a.b[19]: create is not in the reviewed plan; and 80 more"), "{found}");
}

#[test]
fn documents_that_are_no_plans_are_errors() {
    let plan = r#"{"format_version":"1.2"}"#;
    let deep = format!(
        r#"{{"format_version":"1.2","output_changes":{{"o":{{"actions":["create"],"after":{}1{}}}}}}}"#,
        "[".repeat(1000),
        "]".repeat(1000)
    );
    for json in ["", "[]", "{}", r#"{"format_version":"2.0"}"#, &deep] {
        assert!(compare(json.as_bytes(), plan.as_bytes(), &Done::default()).is_err(), "{json}");
        assert!(
            compare(plan.as_bytes(), json.as_bytes(), &Done::default()).is_err() || json == deep
        );
    }
}

#[test]
fn changes_of_each_try_are_counted_by_the_lines_of_the_tool() {
    let mut done = Done::default();
    let counts = done.add(fixture("replaced/apply.txt").as_bytes(), false).unwrap();
    assert_eq!(counts.to_string(), "Plan: 1 to create, 1 to update, 3 to delete");
    let error = "Error: x\n\nterraform_data.a: Creation complete after 0s [id=1]\n";
    assert_eq!(done.add(error.as_bytes(), false).unwrap(), Counts::default());
    let more = "terraform_data.a[\"b: c\"]: Creation complete after 0s [id=1]\n";
    assert_eq!(done.add(more.as_bytes(), false).unwrap().create, 1);
    assert!(done.created.contains("terraform_data.a[\"b: c\"]"));
}
