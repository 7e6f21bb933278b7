//! Outputs whose change counts as destructive.

use std::str::FromStr;

use serde_json::{Value, json};

use crate::policy::canonical::{masked, sorted};
use crate::policy::plan::Change;

/// An output, or a part of its value: `NAME[.PATH]`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Watched {
    pub(super) name: String,
    path: Vec<String>,
}

impl FromStr for Watched {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut parts = text.split('.').map(str::to_owned);
        let name = parts.next().unwrap_or_default();
        let path = parts.collect::<Vec<_>>();
        let is_name = |c: char| c.is_alphanumeric() || c == '_' || c == '-';
        if name.is_empty() || !name.chars().all(is_name) {
            return Err("it begins with no name of an output");
        }
        if path.iter().any(String::is_empty) {
            return Err("a part of its path is empty");
        }
        Ok(Self { name, path })
    }
}

impl Watched {
    /// `cluster.zones`
    pub(super) fn label(&self) -> String {
        let parts = [&self.name].into_iter().chain(&self.path);
        parts.map(String::as_str).collect::<Vec<_>>().join(".")
    }

    /// Whether the change of this output is one of what is watched. A new output is none: nothing relies on it yet.
    pub(super) fn is_changed(&self, change: &Change) -> bool {
        if change.is_no_op() || change.actions == ["create"] {
            return false;
        }
        let Change { before, after, after_unknown, .. } = change;
        self.holds_unknown(after_unknown)
            || sorted(self.part(before).clone()) != sorted(self.part(after).clone())
    }

    /// Whether the value has no such part, neither before nor after, as if its path were misspelt.
    pub(super) fn is_missing(&self, change: &Change) -> bool {
        let Change { before, after, after_unknown, .. } = change;
        !self.path.is_empty()
            && self.part(before).is_null()
            && self.part(after).is_null()
            && !self.holds_unknown(after_unknown)
    }

    /// What an approval is about: the values before and after, without what is sensitive.
    pub(super) fn subject(&self, change: &Change) -> Value {
        let Change { before, after, after_unknown, before_sensitive, after_sensitive, .. } = change;
        let before = masked(before, before_sensitive, &Value::Null);
        let after = masked(after, after_sensitive, after_unknown);
        let part = |value: &Value| sorted(self.part(value).clone());
        json!({
            "output": self.label(), "actions": change.actions, "before": part(&before), "after": part(&after),
        })
    }

    /// The part of a value. What is not there is null.
    fn part<'a>(&self, value: &'a Value) -> &'a Value {
        // A masked value is masked in all of its parts.
        let is_masked = |value: &Value| value.is_string();
        self.path.iter().fold(value, |at, name| if is_masked(at) { at } else { step(at, name) })
    }

    /// Whether a part of what is watched is known only after the apply.
    fn holds_unknown(&self, unknown: &Value) -> bool {
        fn any(unknown: &Value) -> bool {
            match unknown {
                Value::Bool(is) => *is,
                Value::Array(list) => list.iter().any(any),
                Value::Object(fields) => fields.values().any(any),
                _ => false,
            }
        }
        let mut at = unknown;
        for name in &self.path {
            match at {
                Value::Bool(true) => return true,
                _ => at = step(at, name),
            }
        }
        any(at)
    }
}

/// The field or item of this name.
fn step<'a>(value: &'a Value, name: &str) -> &'a Value {
    let found = match value {
        Value::Array(list) => name.parse::<usize>().ok().and_then(|at| list.get(at)),
        Value::Object(fields) => fields.get(name),
        _ => None,
    };
    found.unwrap_or(&Value::Null)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(json: Value) -> Change {
        serde_json::from_value(json).unwrap()
    }

    fn watched(text: &str) -> Watched {
        text.parse().unwrap()
    }

    #[test]
    fn lists_are_compared_without_their_order() {
        let zones = |before: Value, after: Value| {
            let (before, after) =
                (json!({"zones": before, "x": 1}), json!({"zones": after, "x": 2}));
            change(json!({"actions": ["update"], "before": before, "after": after}))
        };
        let same = zones(json!(["a", "b"]), json!(["b", "a"]));
        assert!(!watched("cluster.zones").is_changed(&same));
        assert!(watched("cluster").is_changed(&same));
        assert!(watched("cluster.x").is_changed(&same));
        assert!(!watched("cluster.none").is_changed(&same));
        assert!(watched("cluster.zones").is_changed(&zones(json!(["a"]), json!(["a", "b"]))));
        assert!(watched("cluster.zones").is_changed(&zones(json!(null), json!(["a"]))));
        assert!(watched("cluster.zones.0").is_changed(&same));
    }

    #[test]
    fn new_outputs_are_no_change_and_removed_or_unknown_ones_are() {
        let of = |json| watched("o.a").is_changed(&change(json));
        assert!(!of(json!({"actions": ["create"], "before": null, "after": {"a": 1}})));
        assert!(!of(json!({"actions": ["no-op"], "before": {"a": 1}, "after": {"a": 1}})));
        assert!(of(json!({"actions": ["delete"], "before": {"a": 1}, "after": null})));
        assert!(of(json!({"actions": ["update"], "before": {"a": 1}, "after_unknown": true})));
        let nested = json!({"actions": ["update"], "before": {"a": [1]}, "after": {"a": [1]}, "after_unknown": {"a": [true]}});
        assert!(of(nested));
        let other = json!({"actions": ["update"], "before": {"a": 1}, "after": {"a": 1}, "after_unknown": {"b": true}});
        assert!(!of(other));
    }

    #[test]
    fn sensitive_values_are_compared_but_not_shown() {
        let secret = change(json!({
            "actions": ["update"], "before": {"a": "old-secret"}, "after": {"a": "new-secret"},
            "before_sensitive": true, "after_sensitive": {"a": true},
        }));
        assert!(watched("o.a").is_changed(&secret));
        let subject = watched("o.a").subject(&secret).to_string();
        assert!(!subject.contains("secret\""), "{subject}");
        assert!(!subject.contains("old-") && !subject.contains("new-"), "{subject}");
    }

    #[test]
    fn names_and_paths_are_parsed() {
        for text in ["o", "o-1.a", "o.a.0.b c"] {
            assert_eq!(watched(text).label(), text);
        }
        for text in ["", ".a", "o.", "o..a", "o p", "o[0]"] {
            text.parse::<Watched>().unwrap_err();
        }
    }
}
