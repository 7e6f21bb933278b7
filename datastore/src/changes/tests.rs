mod secrets;

use serde_json::{Value, json};

use super::*;

fn list_text(plan: &str) -> Result<String, UnreadablePlan> {
    list(plan.as_bytes()).map(|json| String::from_utf8(json).unwrap())
}

fn listed(plan: &Value) -> Value {
    serde_json::from_str(&list_text(&plan.to_string()).unwrap()).unwrap()
}

/// A plan with one resource.
fn plan(change: &Value) -> Value {
    let resource = json!({
        "address": "a.b", "mode": "managed", "type": "a", "name": "b", "change": change,
    });
    json!({"format_version": "1.2", "resource_changes": [resource]})
}

/// A change of values without marks.
fn update(before: &Value, after: &Value) -> Value {
    let (hidden_before, hidden_after) = (marks_of(before), marks_of(after));
    json!({
        "actions": ["update"], "before": before, "after": after, "after_unknown": {},
        "before_sensitive": hidden_before, "after_sensitive": hidden_after,
    })
}

/// What terraform writes of a value without marks.
fn marks_of(value: &Value) -> Value {
    match value {
        Value::Object(members) => {
            let inner = members.iter().filter(|(_, value)| value.is_array() || value.is_object());
            inner
                .map(|(key, value)| (key.clone(), marks_of(value)))
                .collect::<serde_json::Map<_, _>>()
                .into()
        }
        Value::Array(list) => list.iter().map(marks_of).collect::<Vec<_>>().into(),
        _ => false.into(),
    }
}

/// Each attribute in one line.
fn attributes(change: &Value) -> Vec<String> {
    let listed = listed(&plan(change));
    let attributes = listed["resources"][0]["attributes"].as_array().cloned().unwrap_or_default();
    let line = |attribute: Value| {
        let Value::Object(mut members) = attribute else { panic!() };
        let path = members.shift_remove("path").unwrap();
        format!("{path} {}", Value::Object(members))
    };
    attributes.into_iter().map(line).collect()
}

#[test]
fn each_attribute_that_changes_is_listed_with_its_values() {
    let before = json!({
        "same": 1, "number": 1, "gone": "x", "nothing": null, "tags": {"a": "1", "b": "2"},
        "short": ["a", "b"], "blocks": [{"port": 1}, {"port": 2}, {"port": 3}], "kind": "text",
        "empty": [],
    });
    let after = json!({
        "same": 1, "number": 2, "gone": null, "nothing": null, "tags": {"a": "1", "c": "é"},
        "short": ["b"], "blocks": [{"port": 1}, {"port": 3}], "kind": {"x": true},
        "empty": {},
    });
    insta::assert_snapshot!(attributes(&update(&before, &after)).join("\n"), @r#"
    ["blocks",1,"port"] {"before":2,"after":null}
    ["empty"] {"before":[],"after":{}}
    ["gone"] {"before":"x","after":null}
    ["kind"] {"before":"text","after":{"x":true}}
    ["number"] {"before":1,"after":2}
    ["short"] {"before":["a","b"],"after":["b"]}
    ["tags","b"] {"before":"2","after":null}
    ["tags","c"] {"before":null,"after":"é"}
    "#);
}

#[test]
fn a_created_resource_lists_what_is_set_and_a_deleted_one_what_it_had() {
    let create = json!({
        "actions": ["create"], "before": null, "after": {"a": 1, "none": null, "l": [], "deep": {"x": ["y"]}},
        "after_unknown": {"id": true, "deep": {"z": true, "x": [false]}, "l": []},
        "before_sensitive": false, "after_sensitive": {"l": [], "deep": {"x": [false]}},
    });
    insta::assert_snapshot!(attributes(&create).join("\n"), @r#"
    ["a"] {"before":null,"after":1}
    ["deep","x"] {"before":null,"after":["y"]}
    ["deep","z"] {"before":null,"unknown":true}
    ["id"] {"before":null,"unknown":true}
    ["l"] {"before":null,"after":[]}
    "#);
    let delete = json!({
        "actions": ["delete"], "before": {"a": 1, "none": null}, "after": null, "after_unknown": {},
        "before_sensitive": {}, "after_sensitive": false,
    });
    insta::assert_snapshot!(attributes(&delete).join("\n"), @r#"["a"] {"before":1,"after":null}"#);
}

#[test]
fn replacing_attributes_are_marked_and_numbers_and_long_texts_are_exact() {
    let long = |end: &str| format!("{}{end}", "é".repeat(5000));
    let before = json!({"zone": "a", "list": [{"x": 1}], "long": long("a"), "same": long("s")});
    let after = json!({"zone": "b", "list": [{"x": 2}], "long": long("bb"), "same": long("s")});
    let mut change = update(&before, &after);
    change["replace_paths"] = json!([["zone"], ["list", 0], []]);
    let text =
        plan(&change).to_string().replace("\"x\":1", "\"x\":123456789012345678901234567890.50");
    let listed = list_text(&text).unwrap();
    assert!(listed.contains(r#""path":["list",0,"x"],"before":123456789012345678901234567890.50,"after":2,"replaces":true"#), "{listed}");
    let listed: Value = serde_json::from_str(&listed).unwrap();
    let attributes = listed["resources"][0]["attributes"].as_array().unwrap();
    assert_eq!(attributes.len(), 3);
    let long = &attributes[1];
    assert_eq!((&long["before_length"], &long["after_length"]), (&json!(5001), &json!(5002)));
    assert_eq!(long["before"].as_str().unwrap().chars().count(), 4096);
    assert_eq!(attributes[2]["replaces"], true);
    assert_eq!(long.get("replaces"), None);
}

#[test]
fn import_by_identity_is_shown_with_it() {
    let mut change = update(&json!({"a": 1}), &json!({"a": 1}));
    change["importing"] = json!({"identity": {"arn": "x"}});
    let listed = list_text(&plan(&change).to_string()).unwrap();
    assert!(listed.contains(r#""importing":{"arn":"x"}"#), "{listed}");
}

#[test]
fn resources_outputs_drift_and_checks_are_listed_and_counted() {
    let change = |actions: &[&str]| json!({"actions": actions, "before": null, "after": null, "before_sensitive": false, "after_sensitive": false});
    let resource =
        |address: &str, actions: &[&str]| json!({"address": address, "change": change(actions)});
    let mut moved = resource("m.new", &["no-op"]);
    moved["previous_address"] = "m.old".into();
    let mut imported = resource("module.x[\"k\"].data.i.j[0]", &["update"]);
    imported["change"]["importing"] = json!({"id": "i-1"});
    imported["module_address"] = "module.x[\"k\"]".into();
    imported["index"] = 0.into();
    imported["mode"] = "data".into();
    imported["action_reason"] = "read_because_config_unknown".into();
    imported["deposed"] = "abc".into();
    let document = json!({
        "format_version": "1.2",
        "resource_changes": [
            resource("c", &["create"]), resource("d", &["delete"]), resource("f", &["forget"]),
            resource("r1", &["delete", "create"]), resource("r2", &["create", "delete"]),
            resource("read", &["read"]), resource("no", &["no-op"]), moved, imported,
        ],
        "action_invocations": [{
            "address": "module.x.action.aws_lambda_invoke.notify[0]", "type": "aws_lambda_invoke", "name": "notify", "index": 0,
            "module_address": "module.x", "config_values": {"payload": "payload-of-notify", "name": "name-of-notify"}, "config_sensitive": {"payload": true},
            "lifecycle_action_trigger": {"triggering_resource_address": "module.x.a.b", "action_trigger_event": "AfterCreate"},
        }],
        "resource_drift": [resource("drifted", &["update"]), resource("m.new", &["no-op"])],
        "output_changes": {
            "o": {"actions": ["update"], "before": {"a": [1]}, "after": "x", "before_sensitive": false, "after_sensitive": false},
            "s": {"actions": ["create"], "before": null, "after": "sensitive-x", "before_sensitive": false, "after_sensitive": true},
            "u": {"actions": ["create"], "before": null, "after_unknown": true, "before_sensitive": false, "after_sensitive": false},
            "p": {"actions": ["create"], "before": null, "after": "payload-of-notify", "before_sensitive": false, "after_sensitive": false},
            "q": {"actions": ["create"], "before": null, "after": "name-of-notify", "before_sensitive": false, "after_sensitive": false},
            "n": {"actions": ["no-op"], "before": 1, "after": 1, "before_sensitive": false, "after_sensitive": false},
        },
        "checks": [{"address": {"to_display": "check.c"}, "status": "fail", "instances": [
            {"problems": [{"message": "bad"}, {"message": "has sensitive-x"}]}, {"status": "pass"},
        ]}],
    });
    let mut listed = listed(&document);
    assert_eq!(listed["truncated"], Value::Null);
    insta::assert_snapshot!(listed["counts"], @r#"{"create":1,"update":1,"delete":1,"replace":2,"read":1,"forget":1,"move":1,"import":1,"invoke":1}"#);
    let addresses = |list: &Value| {
        let list = list.as_array().unwrap().iter();
        list.map(|resource| resource["address"].as_str().unwrap().to_owned())
            .collect::<Vec<_>>()
            .join(" ")
    };
    assert_eq!(
        addresses(&listed["resources"]),
        "c d f r1 r2 read m.new module.x[\"k\"].data.i.j[0] module.x.action.aws_lambda_invoke.notify[0]"
    );
    assert_eq!(addresses(&listed["drift"]), "drifted");
    insta::assert_snapshot!(listed["resources"][6], @r#"{"address":"m.new","module":"","mode":null,"type":null,"name":null,"index":null,"reason":null,"deposed":null,"actions":["no-op"],"previous_address":"m.old","importing":null,"attributes":[]}"#);
    insta::assert_snapshot!(listed["resources"][7].take(), @r#"{"address":"module.x[\"k\"].data.i.j[0]","module":"module.x[\"k\"]","mode":"data","type":null,"name":null,"index":0,"reason":"read_because_config_unknown","deposed":"abc","actions":["update"],"previous_address":null,"importing":"i-1","attributes":[]}"#);
    insta::assert_snapshot!(listed["resources"][8], @r#"{"address":"module.x.action.aws_lambda_invoke.notify[0]","module":"module.x","type":"aws_lambda_invoke","name":"notify","index":0,"mode":"action","reason":"AfterCreate of module.x.a.b","deposed":null,"actions":["invoke"],"previous_address":null,"importing":null,"attributes":[]}"#);
    insta::assert_snapshot!(listed["outputs"], @r#"[{"name":"o","actions":["update"],"before":{"a":[1]},"after":"x"},{"name":"s","actions":["create"],"sensitive":true},{"name":"u","actions":["create"],"before":null,"unknown":true},{"name":"p","actions":["create"],"sensitive":true},{"name":"q","actions":["create"],"before":null,"after":"name-of-notify"}]"#);
    insta::assert_snapshot!(listed["checks"], @r#"[{"address":"check.c","status":"fail","problems":["bad","(sensitive value)"]}]"#);
}

const SECRET: &str = "do-not-show-\"me\"<1>";

/// Marks and values with a secret `S`, in every way that they can go together: the value before, its marks, the value after, its
/// marks, and what is not known.
const SECRETS: [&str; 21] = [
    r#"{"p":S} | {"p":true} | {"p":"x"} | {} | {}"#,
    r#"{"p":"x"} | {} | {"p":S} | {"p":true} | {}"#,
    r#"{"p":S} | {"p":true} | {} | {} | {"p":true}"#,
    r#"{"p":{"a":[S,1]}} | {"p":true} | {"p":{"a":[1]}} | {"p":{"a":[false]}} | {}"#,
    r#"{"p":{"a":[S,1]}} | {"p":{"a":[true,false]}} | {} | {} | {"p":true}"#,
    r#"{"p":{"a":[S,1]}} | {"p":{"a":[true,false]}} | {"p":1} | {} | {}"#,
    r#"{"p":[{"a":S}]} | {"p":[{"a":true}]} | {"p":[]} | {"p":[]} | {}"#,
    r#"{"p":[{"a":S}]} | {"p":[{"a":true}]} | {"p":["n",{"a":S}]} | {"p":[false,{"a":true}]} | {}"#,
    r#"{"p":S} | true | {"p":"x"} | {} | {}"#,
    // Marks that are lost, or have another form.
    r#"{"p":S} | null | {"p":"x"} | {} | {}"#,
    r#"{"p":S} | "yes" | {"p":"x"} | {} | {}"#,
    r#"{"p":S} | [] | {"p":"x"} | {} | {}"#,
    r#"{"p":S} | {"p":{}} | {"p":"x"} | {} | {}"#,
    r#"{"p":[S]} | {"p":[]} | {"p":[]} | {"p":[]} | {}"#,
    r#"{"p":[S,1]} | {"p":[false]} | {"p":[]} | {"p":[]} | {}"#,
    r#"{"p":[S]} | {"p":{}} | {"p":[]} | {"p":[]} | {}"#,
    r#"{"p":{"x":S}} | {"p":[false]} | {} | {} | {}"#,
    // The same text without marks: as it is, in a longer text, in a document of JSON, as a key, as a line.
    r#"{"p":S,"q":S} | {"p":true} | {"p":S} | {"p":true} | {}"#,
    r#"{"p":S,"q":URL,"r":DOCUMENT} | {"p":true} | {} | {} | {}"#,
    r#"{"p":S,"q":{S:1}} | {"p":true,"q":{}} | {} | {} | {}"#,
    r#"{"p":LINES,"q":[S]} | {"p":true,"q":[false]} | {"q":[]} | {"q":[]} | {}"#,
];

/// The change of a case.
fn change_with_secret(case: &str) -> Value {
    let [url, document, lines] = [
        format!("url://{SECRET}@x"),
        json!({"k": SECRET}).to_string(),
        format!("first-line\n{SECRET}"),
    ];
    let values = case.split(" | ").map(|text| {
        let text = text.replace("URL", &json!(url).to_string());
        let text = text.replace("DOCUMENT", &json!(document).to_string());
        let text = text.replace("LINES", &json!(lines).to_string());
        let text = text.replace(":S", &format!(":{}", json!(SECRET)));
        let text = text.replace("[S", &format!("[{}", json!(SECRET)));
        let text = text.replace("{S", &format!("{{{}", json!(SECRET)));
        serde_json::from_str::<Value>(&text).unwrap()
    });
    let [before, hidden_before, after, hidden_after, unknown] =
        values.collect::<Vec<_>>().try_into().unwrap();
    json!({
        "actions": ["update"], "before": before, "after": after, "after_unknown": unknown,
        "before_sensitive": hidden_before, "after_sensitive": hidden_after,
        "replace_paths": [["p", SECRET]],
    })
}

#[test]
fn no_value_that_is_marked_or_whose_marks_do_not_fit_is_listed() {
    for case in SECRETS {
        let change = change_with_secret(case);
        let resources = plan(&change);
        let drift =
            json!({"format_version": "1.2", "resource_drift": resources["resource_changes"]});
        let outputs = json!({"format_version": "1.2", "output_changes": {"o": change}});
        for document in [resources, drift, outputs] {
            assert!(document.to_string().contains("do-not-show"), "{case}");
            let listed = list_text(&document.to_string()).unwrap();
            assert!(!listed.contains("do-not-show"), "{case}: {listed}");
            assert!(listed.contains("\"sensitive\":true"), "{case}: {listed}");
        }
    }
}

#[test]
fn a_sensitive_text_hides_other_attributes_only_if_it_is_long_or_the_whole_value() {
    let before = json!({"a": "no", "b": "hunter2", "c": "long-enough", "n": 1_234_567_890, "x": 1});
    let after = json!({
        "a": "no", "b": "hunter2", "c": "long-enough", "n": 1_234_567_890, "v": 1_234_567_890, "w": "no", "x": "hunter2", "y": "a hunter2 here", "z": "a long-enough one",
    });
    let mut change = update(&before, &after);
    change["before_sensitive"] = json!({"a": true, "b": true, "c": true, "n": true});
    insta::assert_snapshot!(attributes(&change).join("\n"), @r#"
    ["v"] {"sensitive":true}
    ["w"] {"before":null,"after":"no"}
    ["x"] {"sensitive":true}
    ["y"] {"before":null,"after":"a hunter2 here"}
    ["z"] {"sensitive":true}
    "#);
}

#[test]
fn a_sensitive_text_is_found_however_json_escapes_it() {
    const TEXT: &str = "é\"quote\\n<&>\u{1f32f}\n";
    let escaped = serde_json::to_string(TEXT).unwrap();
    // As terraform's `jsonencode` writes it, and Python's `json`.
    let of_go = escaped.replace('<', "\\u003c").replace('&', "\\u0026").replace('>', "\\u003E");
    let of_python = escaped.replace('é', "\\u00e9").replace('\u{1f32f}', "\\ud83c\\udf2f");
    let mut after = json!({"secret": TEXT});
    for (name, form) in [("plain", escaped), ("go", of_go), ("python", of_python)] {
        let document = format!("{{\"p\":{form}}}");
        after[format!("{name}_twice")] = serde_json::to_string(&document).unwrap().into();
        after[name] = document.into();
    }
    let mut change = update(&json!({}), &after);
    change["after_sensitive"]["secret"] = true.into();
    for line in attributes(&change) {
        assert!(line.ends_with("{\"sensitive\":true}"), "{line}");
    }
    assert_eq!(attributes(&change).len(), 7);
}

#[test]
fn sensitive_texts_of_resources_without_changes_hide_them_elsewhere() {
    let mut document = plan(&update(&json!({"x": "the-password-1"}), &json!({"x": "other"})));
    let marked = json!({"actions": ["no-op"], "before": {"p": "the-password-1"}, "after": {"p": "the-password-1"}, "before_sensitive": {"p": true}, "after_sensitive": {"p": true}});
    document["resource_changes"]
        .as_array_mut()
        .unwrap()
        .push(json!({"address": "later", "change": marked}));
    let listed = list_text(&document.to_string()).unwrap();
    assert!(!listed.contains("the-password-1"), "{listed}");
}

/// Documents that are no plans, around a whole one with this change.
fn hostile(whole: &str, change: &str) -> Vec<String> {
    let deep = |open: &str, close: &str, levels| {
        format!("{}{}", open.repeat(levels), close.repeat(levels))
    };
    let with = |name: &str, value: &str| format!(r#"{{"format_version":"1.2","{name}":{value}}}"#);
    vec![
        "no json".to_owned(),
        format!("{whole}x"),
        "[]".to_owned(),
        "null".to_owned(),
        "{}".to_owned(),
        r#"{"format_version":"2.0"}"#.to_owned(),
        r#"{"format_version":"secret\n"}"#.to_owned(),
        r#"{"format_version":"1.0","values":{"secret":1}}"#.to_owned(),
        r#"{"format_version":{"secret":1}}"#.to_owned(),
        with("resource_changes", r#""secret""#),
        with("resource_changes", r#"["secret"]"#),
        with("resource_changes", "[{}]"),
        with("resource_changes", r#"[{"change":"secret"}]"#),
        with("resource_changes", &format!(r#"[{{"change":{change},"change":{change}}}]"#)),
        with("resource_changes", r#"[{"change":{"before":1,"before":2}}]"#),
        with("resource_changes", r#"[{"change":{"before_sensitive":{"p":true,"p":false}}}]"#),
        with("resource_changes", r#"[],"resource_changes":[]"#),
        with(
            "resource_changes",
            &format!(r#"[{{"change":{{"before":{}}}}}]"#, deep("[", "]", 200)),
        ),
        with("other", &deep("[", "]", 100_000)),
        with("other", &deep("{\"a\":", "1}", 100_000)),
        with("other", &"1".repeat(1000)),
        with("other", "\"\u{0}\""),
    ]
}

#[test]
fn what_is_not_a_whole_plan_is_an_error_that_quotes_nothing() {
    let change = r#"{"actions":["create"],"before":null,"after":{"p":"secret"},"before_sensitive":false,"after_sensitive":{}}"#;
    let whole = format!(
        r#"{{"format_version":"1.2","resource_changes":[{{"address":"a","change":{change}}}]}}"#
    );
    assert!(list_text(&whole).is_ok());
    for end in 0..whole.len() {
        let error = list_text(&whole[..end]).unwrap_err();
        assert_eq!(error, UnreadablePlan::Incomplete(end as u64));
    }
    let hostile = hostile(&whole, change);
    let errors = hostile.iter().map(|text| list_text(text).unwrap_err().to_string());
    let errors = errors.collect::<Vec<_>>();
    assert!(!errors.iter().any(|error| error.contains("secret\"")), "{errors:?}");
    insta::assert_snapshot!(errors.join("\n"), @r"
    it is not JSON: at byte 2 is something else
    it is not JSON: at byte 177 is something else
    it is JSON, but not a plan: at byte 1 is another value than a plan has there, or a repeated key
    it is JSON, but not a plan: at byte 4 is another value than a plan has there, or a repeated key
    it is JSON, but not a plan: at byte 2 is another value than a plan has there, or a repeated key
    its format_version is `2.0`; versions from 0.1 to 1.x can be listed
    its format_version is `secret\n`; versions from 0.1 to 1.x can be listed
    it is a state, not a plan: `terraform show -json PLAN` needs the name of a plan
    it is JSON, but not a plan: at byte 19 is another value than a plan has there, or a repeated key
    it is JSON, but not a plan: at byte 52 is another value than a plan has there, or a repeated key
    it is JSON, but not a plan: at byte 54 is another value than a plan has there, or a repeated key
    it is JSON, but not a plan: at byte 48 is another value than a plan has there, or a repeated key
    it is JSON, but not a plan: at byte 65 is another value than a plan has there, or a repeated key
    it is JSON, but not a plan: at byte 277 is another value than a plan has there, or a repeated key
    it is JSON, but not a plan: at byte 80 is another value than a plan has there, or a repeated key
    it is JSON, but not a plan: at byte 98 is another value than a plan has there, or a repeated key
    it is JSON, but not a plan: at byte 65 is another value than a plan has there, or a repeated key
    its values are nested too deeply: more than 127 levels at byte 188
    its values are nested too deeply: more than 1000 levels at byte 1033
    its values are nested too deeply: more than 1000 levels at byte 5029
    a number has more than 512 characters, at byte 546
    it is not JSON: at byte 35 is something else
    ");
}

#[test]
fn a_plan_that_is_only_a_part_says_so() {
    let mut document = plan(&update(&json!({}), &json!({"a": 1})));
    assert_eq!(listed(&document).get("errored"), None);
    document["errored"] = true.into();
    assert_eq!(listed(&document)["errored"], true);
}

#[test]
fn huge_values_leave_the_rest_of_the_list_whole() {
    let long = "x".repeat(1 << 20);
    let document = json!({"format_version": "1.2", "planned_values": long, "resource_changes": [
        {"address": "long", "change": update(&json!({"a": "b"}), &json!({"a": long}))},
        {"address": "many", "change": update(&json!({"a": vec![0; 300_000]}), &json!({"p": "secret"}))},
        {"address": long, "change": update(&json!({}), &json!({"a": 1}))},
        {"address": "key", "change": update(&json!({}), &json!({long.as_str(): "secret"}))},
        {"address": "last", "change": update(&json!({}), &json!({"a": 1}))},
    ]});
    let listed = listed(&document);
    let resources = listed["resources"].as_array().unwrap();
    assert_eq!(resources[0]["attributes"][0]["after_length"], 1 << 20);
    for at in [1, 3] {
        assert_eq!(
            (&resources[at]["too_large"], &resources[at]["attributes"]),
            (&json!(true), &json!([]))
        );
    }
    assert_eq!(resources[2]["address"].as_str().unwrap().len(), 4096);
    assert_eq!(resources[4]["attributes"].as_array().unwrap().len(), 1);
    assert_eq!(listed["truncated"], json!({"resources": 0, "attributes": 2}));
    assert_eq!(listed["counts"]["update"], 5);
}

#[test]
fn more_than_can_be_listed_is_counted() {
    let resource = |address: String, after: &Value| json!({"address": address, "change": update(&json!({}), after)});
    let (values, long) = (json!({"v": "y".repeat(4000), "w": "z".repeat(4000)}), "x".repeat(4000));
    let large = (0..1100).map(|at| resource(format!("a.b[{at}]"), &values));
    let many = (0..1600).map(|at| resource(format!("a.c[{at}]{long}"), &json!({"v": 1})));
    let resources = large.chain(many).collect::<Vec<_>>();
    let document = json!({"format_version": "1.2", "resource_changes": resources});
    let text = list_text(&document.to_string()).unwrap();
    assert!(text.len() < 15 << 20, "{}", text.len());
    let listed: Value = serde_json::from_str(&text).unwrap();
    let shown = listed["resources"].as_array().unwrap();
    let attributes = |shown: &[Value]| {
        shown.iter().map(|shown| shown["attributes"].as_array().unwrap().len()).sum::<usize>()
    };
    let of_large = attributes(&shown[..1100]);
    assert!(of_large > 2000 && of_large < 2200 && shown.len() > 2500 && shown.len() < 2700);
    let left_out = 2200 - of_large + shown.len() - 1100 - attributes(&shown[1100..]);
    assert_eq!(
        listed["truncated"],
        json!({"resources": 2700 - shown.len(), "attributes": left_out})
    );
    assert_eq!(listed["counts"]["update"], 2700);

    let many = (0..1500).map(|at| (format!("k{at}"), json!(at))).collect::<serde_json::Map<_, _>>();
    let listed = listed_of_one(&many.into());
    assert_eq!(listed["resources"][0]["attributes"].as_array().unwrap().len(), 1000);
    assert_eq!(listed["truncated"], json!({"resources": 0, "attributes": 500}));
}

#[test]
fn limits_count_what_is_shown_of_long_texts_and_bound_what_is_searched() {
    let listed_with = |text: &str, count: usize| {
        let resource = json!({"address": "a.b", "change": update(&json!({}), &json!({"v": text}))});
        listed(&json!({"format_version": "1.2", "resource_changes": vec![resource; count]}))
    };
    let long = listed_with(&"y".repeat(6400), 1900);
    assert_eq!(long["truncated"], json!(null));
    let last = &long["resources"][1899]["attributes"][0];
    assert_eq!(
        (last["after"].as_str().unwrap().len(), &last["after_length"]),
        (4096, &json!(6400))
    );
    let escaped = format!("{}{}", "y".repeat(4096), "\u{1}".repeat(2304));
    let left_out = listed_with(&escaped, 1100)["truncated"]["attributes"].as_u64().unwrap();
    assert!((300..400).contains(&left_out), "{left_out}");
}

fn listed_of_one(after: &Value) -> Value {
    listed(&plan(&update(&json!({}), after)))
}
