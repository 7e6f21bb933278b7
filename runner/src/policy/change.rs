//! The changes of a plan, as a policy sees them.

use serde_json::Value;

use crate::policy::kind::Kind;
use crate::run::plan::summary::{Changed, Collector};

/// One change that is not nothing. `Debug` has no values: they may be secret.
#[derive(Clone)]
pub(super) struct PlannedChange {
    pub(super) address: String,
    pub(super) resource_type: String,
    pub(super) kind: Kind,
    /// As the tool names them, in its order.
    pub(super) actions: Vec<String>,
    pub(super) action_reason: Option<String>,
    pub(super) deposed: Option<String>,
    /// The values before and after, without sensitive and unknown ones.
    pub(super) before: Value,
    pub(super) after: Value,
}

impl std::fmt::Debug for PlannedChange {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.kind, self.address)
    }
}

/// Collects the changes of a plan.
#[derive(Debug, Default)]
pub(super) struct Planned {
    pub(super) changes: Vec<PlannedChange>,
}

/// What replaces a value that is sensitive, and one that is not known yet.
const SENSITIVE: &str = "(sensitive)";
const UNKNOWN: &str = "(known after apply)";

impl Collector for Planned {
    type After = Value;

    fn add(&mut self, changed: &Changed<Value>) {
        let Some(kind) = kind(changed) else { return };
        let change = &changed.change;
        let mut after = masked(&change.after, &change.after_sensitive, SENSITIVE);
        if change.after_unknown != Value::Null {
            after = masked(&after, &change.after_unknown, UNKNOWN);
        }
        // An update is never destructive, so its values do not matter and need no memory.
        let (before, after) = match kind {
            Kind::Create | Kind::Update | Kind::Import | Kind::Move
                if changed.resource_type.is_some() =>
            {
                (Value::Null, Value::Null)
            }
            _ => (masked(&change.before, &change.before_sensitive, SENSITIVE), after),
        };
        self.changes.push(PlannedChange {
            address: changed.address.clone().unwrap_or_default(),
            resource_type: changed.resource_type.clone().unwrap_or_default(),
            kind,
            actions: change.actions.clone(),
            action_reason: changed.action_reason.clone(),
            deposed: changed.deposed.clone(),
            before,
            after,
        });
    }
}

/// What a change does; `None`: nothing.
fn kind(changed: &Changed<Value>) -> Option<Kind> {
    let change = &changed.change;
    let actions = change.actions.iter().map(String::as_str).collect::<Vec<_>>();
    Some(match actions.as_slice() {
        [] | ["no-op" | "read"] if change.is_import() => Kind::Import,
        ["no-op"] if changed.moved_from().is_some() => Kind::Move,
        [] | ["no-op" | "read"] => return None,
        ["create"] => Kind::Create,
        ["update"] => Kind::Update,
        ["delete"] => Kind::Delete,
        ["delete", "create"] | ["create", "delete"] => Kind::Replace,
        // An object that is forgotten while another one is created in its place is lost to the state, too.
        ["forget"] | ["create", "forget"] | ["forget", "create"] => Kind::Forget,
        _ => Kind::Unknown,
    })
}

/// A value without the parts that a mask names. A mask is `true` for the whole value, or has the form of the value.
fn masked(value: &Value, mask: &Value, by: &str) -> Value {
    match (value, mask) {
        (_, Value::Bool(true)) => Value::from(by),
        (Value::Object(fields), Value::Object(masks)) => {
            let mut all = serde_json::Map::new();
            for (name, field) in fields {
                all.insert(
                    name.clone(),
                    masked(field, masks.get(name).unwrap_or(&Value::Null), by),
                );
            }
            // An unknown field is not among the values.
            for (name, mask) in masks.iter().filter(|(name, _)| !fields.contains_key(*name)) {
                if *mask == Value::Bool(true) {
                    all.insert(name.clone(), Value::from(by));
                }
            }
            Value::Object(all)
        }
        (Value::Array(items), Value::Array(masks)) => {
            let mask = |at: usize| masks.get(at).unwrap_or(&Value::Null);
            items.iter().enumerate().map(|(at, item)| masked(item, mask(at), by)).collect()
        }
        (value, _) => value.clone(),
    }
}
