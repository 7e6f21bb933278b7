//! Sensitive numbers, and sensitive texts across the end of what is shown.

use super::*;

#[test]
fn a_short_sensitive_number_hides_each_value_that_is_exactly_it_as_number_or_text() {
    let listed = |secret: Value| {
        let after = json!({
            "s": secret, "a": 123_456, "b": "123456", "c": [1, 123_456], "d": "{\"pin\": 123456}",
            "e": [{"deep": 123_456}], "f": "[1,123456]", "g": json!({"x": [{"pin": 123_456}, 1]}).to_string(),
            "v": 1_234_567, "w": "at 123456, not", "x": "a: 123456", "y": 12, "z": -123_456,
        });
        let mut change = update(&json!({}), &after);
        change["after_sensitive"]["s"] = true.into();
        attributes(&change)
    };
    for secret in [json!(123_456), json!("123456")] {
        insta::allow_duplicates! {
            insta::assert_snapshot!(listed(secret).join("\n"), @r#"
            ["a"] {"sensitive":true}
            ["b"] {"sensitive":true}
            ["c"] {"sensitive":true}
            ["d"] {"sensitive":true}
            ["e",0,"deep"] {"sensitive":true}
            ["f"] {"sensitive":true}
            ["g"] {"sensitive":true}
            ["s"] {"sensitive":true}
            ["v"] {"before":null,"after":1234567}
            ["w"] {"before":null,"after":"at 123456, not"}
            ["x"] {"before":null,"after":"a: 123456"}
            ["y"] {"before":null,"after":12}
            ["z"] {"before":null,"after":-123456}
            "#);
        }
    }
    assert_eq!(listed(json!(12)).iter().filter(|line| line.contains("sensitive")).count(), 1);
}

#[test]
fn what_is_shown_of_a_long_text_has_no_beginning_of_a_sensitive_text() {
    let secret = format!("hunter2-\u{1}\"correct\"\n-{}", "horse-".repeat(50));
    let nested = |levels: usize| {
        (0..levels).fold(secret.clone(), |text, _| serde_json::to_string(&text).unwrap())
    };
    for (levels, before) in [(0, 4085), (0, 4095), (1, 4085), (2, 4089), (3, 4080)] {
        let text = format!("{}{} tail{}", "y".repeat(before), nested(levels), "z".repeat(9000));
        let after = json!({"p": secret, "open": text, "list": [text, 1], "none": "y".repeat(9000)});
        let mut change = update(&json!({}), &after);
        change["after_sensitive"]["p"] = true.into();
        let mut document = plan(&change);
        document["output_changes"] = json!({"o": update(&json!(null), &json!(text))});
        document["checks"] = json!([{"address": {"to_display": "check.c"}, "status": "fail", "instances": [
            {"problems": [{"message": text}, {"message": "y".repeat(9000)}]},
        ]}]);
        let listed = list_text(&document.to_string()).unwrap();
        assert!(!listed.contains("yh") && !listed.contains("y\\"), "{levels} {before}: {listed}");
        let listed: Value = serde_json::from_str(&listed).unwrap();
        let attributes = listed["resources"][0]["attributes"].as_array().unwrap();
        assert_eq!(attributes.iter().filter(|one| one["sensitive"] == true).count(), 3);
        assert_eq!(attributes[2]["after"], "y".repeat(4096));
        assert_eq!(attributes[2]["after_length"], 9000);
        let problems = json!(["(sensitive value)", "y".repeat(4096)]);
        assert_eq!(listed["checks"][0]["problems"], problems);
    }
    // After what is shown, it hides nothing else.
    let text = format!("{}{secret}", "y".repeat(7000));
    let mut change = update(&json!({}), &json!({"p": secret, "open": text}));
    change["after_sensitive"]["p"] = true.into();
    assert_eq!(attributes(&change)[0].matches('y').count(), 4096);
}
