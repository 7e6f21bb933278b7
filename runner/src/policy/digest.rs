//! The digest of a set of destructive changes: the same set has the same digest in every plan, whatever the order of its keys,
//! and it contains no sensitive value.

use datastore_api::Sha256;
use serde_json::{Value, json};

use crate::policy::kind::Kind;

/// The digest of the change of a resource.
pub(super) fn of_change(
    (address, resource_type): (&str, &str),
    kind: Kind,
    deposed: Option<&str>,
    (before, after): (&Value, &Value),
) -> Sha256 {
    digest(&json!({
        "address": address, "type": resource_type, "action": kind.as_str(), "deposed": deposed,
        "before": before, "after": after,
    }))
}

/// The digest of the change of an output at this path in its value; `None` if it does not change there. Lists are compared without
/// their order.
pub(super) fn of_output(
    watched: &str,
    path: &[&str],
    before: &Value,
    after: &Value,
) -> Option<Sha256> {
    let at = |value: &Value| {
        let found = path.iter().try_fold(value, |value, part| match value {
            Value::Array(items) => items.get(part.parse::<usize>().ok()?),
            value => value.get(part),
        });
        canonical(&sorted(found.unwrap_or(&Value::Null)))
    };
    let (before, after) = (at(before), at(after));
    (before != after)
        .then(|| digest(&json!({ "output": watched, "before": before, "after": after })))
}

/// The digest of a set of changes; none of an empty set.
pub(super) fn of_set(mut changes: Vec<Sha256>) -> Option<Sha256> {
    if changes.is_empty() {
        return None;
    }
    changes.sort_by_key(|change| change.0);
    changes.dedup();
    let lines = changes.iter().map(ToString::to_string).collect::<Vec<_>>();
    Some(Sha256::of(lines.join("\n").as_bytes()))
}

fn digest(document: &Value) -> Sha256 {
    Sha256::of(canonical(document).as_bytes())
}

fn sorted(value: &Value) -> Value {
    let Value::Array(items) = value else { return value.clone() };
    let mut items = items.clone();
    items.sort_by_key(canonical);
    Value::Array(items)
}

/// JSON with sorted keys and without spaces.
fn canonical(value: &Value) -> String {
    match value {
        Value::Object(fields) => {
            let mut fields = fields.iter().collect::<Vec<_>>();
            fields.sort_by_key(|(name, _)| *name);
            let fields = fields.into_iter().map(|(name, value)| {
                format!("{}:{}", Value::from(name.as_str()), canonical(value))
            });
            format!("{{{}}}", fields.collect::<Vec<_>>().join(","))
        }
        Value::Array(items) => {
            format!("[{}]", items.iter().map(canonical).collect::<Vec<_>>().join(","))
        }
        value => value.to_string(),
    }
}
