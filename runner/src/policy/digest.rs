//! The digest of a set of destructive changes: the same set has the same digest in every plan, whatever the order of its keys,
//! and it contains no sensitive value.

use datastore_api::Sha256;
use serde_json::{Value, json};

use crate::policy::change::PlannedChange;

/// A change in canonical form.
pub(super) fn of_change(change: &PlannedChange) -> String {
    let PlannedChange { address, resource_type, kind, deposed, before, after, .. } = change;
    let document = json!({
        "address": address, "type": resource_type, "action": kind.as_str(), "deposed": deposed,
        "before": before, "after": after,
    });
    canonical(&document)
}

/// The change of a watched output, `NAME` or `NAME.PATH`; `None` if it is another output, or does not change there. Lists are
/// compared without their order.
pub(super) fn of_output(output: &PlannedChange, watched: &str) -> Option<String> {
    let mut path = watched.split('.');
    if path.next() != Some(&*output.address) {
        return None;
    }
    let path = path.collect::<Vec<_>>();
    let at = |value: &Value| {
        let found = path.iter().try_fold(value, |value, part| match value {
            Value::Array(items) => items.get(part.parse::<usize>().ok()?),
            value => value.get(part),
        });
        canonical(&sorted(found.unwrap_or(&Value::Null)))
    };
    // A new output takes nothing away.
    if output.actions == ["create"] {
        return None;
    }
    let (before, after) = (at(&output.before), at(&output.after));
    (before != after)
        .then(|| canonical(&json!({ "output": watched, "before": before, "after": after })))
}

/// The digest of all of them; none of an empty set.
pub(super) fn of_set(mut changes: Vec<String>) -> Option<Sha256> {
    if changes.is_empty() {
        return None;
    }
    changes.sort();
    changes.dedup();
    Some(Sha256::of(changes.join("\n").as_bytes()))
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
