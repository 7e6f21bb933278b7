//! The changes of a plan, as a policy sees them: what it needs of each, and no values of resources, which may be large and secret.

use datastore_api::Sha256;
use serde_json::Value;

use crate::policy::digest;
use crate::policy::kind::Kind;
use crate::run::plan::summary::{Changed, Collector};

/// The change of a resource.
#[derive(Clone, Debug)]
pub(super) struct PlannedChange {
    pub(super) address: String,
    pub(super) resource_type: String,
    pub(super) kind: Kind,
    /// As the tool names them, in its order.
    pub(super) actions: Vec<String>,
    pub(super) action_reason: Option<String>,
    /// The digest of what is changed, without sensitive values.
    pub(super) content: Sha256,
}

/// The change of an output. `Debug` has no values.
pub(super) struct PlannedOutput {
    pub(super) name: String,
    /// Whether it is new.
    pub(super) is_new: bool,
    /// The values before and after, without sensitive and unknown parts.
    pub(super) before: Value,
    pub(super) after: Value,
}

/// Collects the changes of one list of a plan.
#[derive(Default)]
pub(super) struct Planned {
    is_of_outputs: bool,
    pub(super) changes: Vec<PlannedChange>,
    pub(super) outputs: Vec<PlannedOutput>,
}

impl Planned {
    /// Collects outputs.
    pub(super) fn of_outputs() -> Self {
        Self { is_of_outputs: true, ..Self::default() }
    }
}

/// What replaces a value that is sensitive, and one that is not known yet.
const SENSITIVE: &str = "(sensitive)";
const UNKNOWN: &str = "(known after apply)";

impl Collector for Planned {
    type After = Value;
    type Rest = Value;

    fn add(&mut self, changed: &Changed<Value, Value>) {
        let Some(kind) = kind(changed) else { return };
        let change = &changed.change;
        let before = masked(&change.before, &change.before_sensitive, SENSITIVE);
        let after = masked(&change.after, &change.after_sensitive, SENSITIVE);
        let after = masked(&after, &change.after_unknown, UNKNOWN);
        let address = changed.address.clone().unwrap_or_default();
        if self.is_of_outputs {
            self.outputs.push(PlannedOutput {
                name: address,
                is_new: kind == Kind::Create,
                before,
                after,
            });
            return;
        }
        let resource_type = changed.resource_type.clone().unwrap_or_default();
        let deposed = changed.deposed.as_deref();
        let content =
            digest::of_change((&address, &resource_type), kind, deposed, (&before, &after));
        self.changes.push(PlannedChange {
            address,
            resource_type,
            kind,
            actions: change.actions.clone(),
            action_reason: changed.action_reason.clone(),
            content,
        });
    }
}

/// What a change does; `None`: nothing.
fn kind(changed: &Changed<Value, Value>) -> Option<Kind> {
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
                let mask = masks.get(name).unwrap_or(&Value::Null);
                all.insert(name.clone(), masked(field, mask, by));
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
