//! Values of a plan in a form that is the same for every run: without what is sensitive or not known yet, and with sorted
//! keys.

use serde_json::{Map, Value};

/// Replaces a sensitive value. A change of it does not show.
const SENSITIVE: &str = "(sensitive value)";
/// Replaces a value that is known only after the apply.
const UNKNOWN: &str = "(known after apply)";

/// The value without what its masks mark. A mask has the shape of the value, and `true` marks all below.
pub(super) fn masked(value: &Value, sensitive: &Value, unknown: &Value) -> Value {
    if *sensitive == Value::Bool(true) {
        return SENSITIVE.into();
    }
    if *unknown == Value::Bool(true) {
        return UNKNOWN.into();
    }
    match value {
        Value::Object(fields) => {
            let names = fields.keys().chain(unknown.as_object().into_iter().flat_map(Map::keys));
            let field = |name: &String| {
                let value = masked(&value[name], &sensitive[name], &unknown[name]);
                (name.clone(), value)
            };
            Value::Object(names.map(field).collect())
        }
        Value::Array(list) => {
            let item = |(at, item)| masked(item, &sensitive[at], &unknown[at]);
            Value::Array(list.iter().enumerate().map(item).collect())
        }
        scalar => scalar.clone(),
    }
}

/// Whether both values are equal, as far as the second one is known.
pub(super) fn is_equal_where_known(before: &Value, after: &Value, unknown: &Value) -> bool {
    if *unknown == Value::Bool(true) {
        return true;
    }
    match (before, after) {
        (Value::Object(a), Value::Object(b)) => {
            let mut names = a.keys().chain(b.keys());
            names.all(|name| is_equal_where_known(&before[name], &after[name], &unknown[name]))
        }
        (Value::Array(a), Value::Array(b)) => {
            let mut pairs = a.iter().zip(b).enumerate();
            a.len() == b.len() && pairs.all(|(at, (a, b))| is_equal_where_known(a, b, &unknown[at]))
        }
        _ => before == after,
    }
}

/// JSON with sorted keys and without spaces.
pub(super) fn canonical(value: &Value) -> String {
    fn write(value: &Value, text: &mut String) {
        match value {
            Value::Object(fields) => {
                let mut fields = fields.iter().collect::<Vec<_>>();
                fields.sort_by_key(|(name, _)| *name);
                text.push('{');
                for (at, (name, value)) in fields.into_iter().enumerate() {
                    if at > 0 {
                        text.push(',');
                    }
                    text.push_str(&Value::from(name.as_str()).to_string());
                    text.push(':');
                    write(value, text);
                }
                text.push('}');
            }
            Value::Array(list) => {
                text.push('[');
                for (at, item) in list.iter().enumerate() {
                    if at > 0 {
                        text.push(',');
                    }
                    write(item, text);
                }
                text.push(']');
            }
            scalar => text.push_str(&scalar.to_string()),
        }
    }
    let mut text = String::new();
    write(value, &mut text);
    text
}

/// A list in a fixed order; anything else as it is.
pub(super) fn sorted(mut value: Value) -> Value {
    if let Value::Array(list) = &mut value {
        list.sort_by_cached_key(canonical);
    }
    value
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[test]
    fn keys_are_sorted_at_every_depth() {
        let value = json!({"b": [1, {"z": null, "a": "x\"\n"}], "a": {}, "c": []});
        assert_eq!(canonical(&value), r#"{"a":{},"b":[1,{"a":"x\"\n","z":null}],"c":[]}"#);
        assert_eq!(serde_json::from_str::<Value>(&canonical(&value)).unwrap(), value);
    }

    #[test]
    fn what_is_sensitive_or_unknown_is_replaced() {
        let value = json!({"password": "hunter2", "list": ["s", "t"], "id": null});
        let sensitive = json!({"password": true, "list": [true, false]});
        let unknown = json!({"id": true, "arn": true});
        let expected =
            json!({"password": SENSITIVE, "list": [SENSITIVE, "t"], "id": UNKNOWN, "arn": UNKNOWN});
        assert_eq!(masked(&value, &sensitive, &unknown), expected);
        assert_eq!(masked(&value, &json!(true), &json!({})), json!(SENSITIVE));
        assert_eq!(masked(&value, &json!({}), &json!({}))["password"], "hunter2");
    }

    #[test]
    fn unknown_values_are_equal_to_any() {
        let equal = |a, b, unknown| is_equal_where_known(&a, &b, &unknown);
        assert!(equal(json!({"a": 1, "id": "x"}), json!({"a": 1}), json!({"id": true})));
        assert!(!equal(json!({"a": 1, "id": "x"}), json!({"a": 1}), json!({})));
        assert!(!equal(json!({"a": [1]}), json!({"a": [1, 2]}), json!({})));
        assert!(equal(json!({"a": [1, 2]}), json!({"a": [1, null]}), json!({"a": [false, true]})));
        assert!(!equal(json!(null), json!({"a": 1}), json!({"a": true})));
    }

    fn any_json() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            ".{0,5}".prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 32, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::btree_map(".{0,4}", inner, 0..4)
                    .prop_map(|fields| Value::Object(fields.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn canonical_text_is_the_same_value(value in any_json()) {
            prop_assert_eq!(serde_json::from_str::<Value>(&canonical(&value)).unwrap(), value);
        }

        #[test]
        fn masks_of_any_shape_are_no_panic(value in any_json(), a in any_json(), b in any_json()) {
            let once = masked(&value, &a, &b);
            is_equal_where_known(&once, &value, &a);
        }
    }
}
