//! What a policy reads of a plan: the output of `show -json`, read once, as a stream. Values of resources are not kept,
//! because they may be large and sensitive; only those before a drift are, to recognise its correction.

use std::collections::BTreeMap;
use std::io::Read;

use datastore_api::Sha256;
use datastore_api::json::Plain;
use serde_json::{Value, json};

use crate::policy::canonical::{canonical, is_equal_where_known, masked};
use crate::policy::verdict::{JudgedChange, Kind};
use crate::run::plan::summary::{
    self, Changed, ChangesOf, Collector, Invocation, PlanError, read_into,
};

/// The change of an output. There is no `Debug` of a plan, because values may be sensitive.
pub(super) type Change = summary::Change<Plain, Plain>;

/// The changes of a plan.
#[derive(Default)]
pub(super) struct Plan {
    pub(super) changes: Vec<PlannedChange>,
    /// The outputs that change, and those that stay, by name.
    pub(super) outputs: BTreeMap<String, Change>,
}

/// The change of a resource, about which nothing is decided yet.
pub(super) struct PlannedChange {
    pub(super) change: JudgedChange,
    /// The digest of what an approval of it is about.
    pub(super) content: Sha256,
}

impl Plan {
    /// Reads the output of `show -json`.
    pub(super) fn read(json: impl Read) -> Result<Self, PlanError> {
        let ChangesOf { resources, outputs, .. } =
            read_into(Resources::default(), Outputs::default(), json)?;
        Ok(Self { changes: resources.changes, outputs: outputs.0 })
    }
}

/// Collects the changes of resources.
#[derive(Default)]
struct Resources {
    changes: Vec<PlannedChange>,
    /// What was changed outside of the tool: the values before that, by address and deposed key.
    drift: BTreeMap<(String, Option<String>), Value>,
}

impl Collector for Resources {
    type After = Plain;
    type Rest = Plain;

    fn add(&mut self, changed: Changed<Plain, Plain>) {
        let Some(kind) = kind(&changed) else { return };
        let content = Sha256::of(canonical(&subject(&changed, kind)).as_bytes());
        let corrects_drift = self.is_correction(&changed);
        let previous_address = changed.moved_from().map(str::to_owned);
        let imported = changed.change.is_import();
        let change = JudgedChange {
            address: changed.address.unwrap_or_default(),
            resource_type: changed.resource_type.unwrap_or_default(),
            mode: changed.mode,
            actions: changed.change.actions,
            action_reason: changed.action_reason,
            deposed: changed.deposed,
            kind,
            previous_address,
            imported,
            corrects_drift,
            refused: Vec::new(),
            destructive: kind.is_destructive(),
        };
        self.changes.push(PlannedChange { change, content });
    }

    fn add_invocation(&mut self, invocation: Invocation) {
        let kind = Kind::Invoke;
        let content = Sha256::of(canonical(&invoked(&invocation)).as_bytes());
        let change = JudgedChange {
            address: invocation.address,
            resource_type: invocation.action_type,
            mode: None,
            actions: vec![kind.name().to_owned()],
            action_reason: None,
            deposed: None,
            kind,
            previous_address: None,
            imported: false,
            corrects_drift: false,
            refused: Vec::new(),
            destructive: kind.is_destructive(),
        };
        self.changes.push(PlannedChange { change, content });
    }

    fn add_drift(&mut self, drift: Changed<Plain, Plain>) {
        if !drift.change.is_no_op() {
            self.drift.insert(key(&drift), drift.change.before.0);
        }
    }
}

impl Resources {
    /// Whether the change only restores what was changed outside of the tool: the object becomes what it was before.
    fn is_correction(&self, changed: &Changed<Plain, Plain>) -> bool {
        let Change { after, after_unknown, .. } = &changed.change;
        self.drift.get(&key(changed)).is_some_and(|before| {
            !before.is_null()
                && !after.is_null()
                && is_equal_where_known(before, after, after_unknown)
        })
    }
}

/// Collects the changes of outputs.
#[derive(Default)]
struct Outputs(BTreeMap<String, Change>);

impl Collector for Outputs {
    type After = Plain;
    type Rest = Plain;

    fn add(&mut self, changed: Changed<Plain, Plain>) {
        self.0.insert(changed.address.unwrap_or_default(), changed.change);
    }
}

/// An object, by its address and the key of a deposed one.
fn key(changed: &Changed<Plain, Plain>) -> (String, Option<String>) {
    (changed.address.clone().unwrap_or_default(), changed.deposed.clone())
}

/// What a change does; `None`: the object stays as it is. A change without actions is none that is known.
fn kind(changed: &Changed<Plain, Plain>) -> Option<Kind> {
    let actions = changed.change.actions.iter().map(String::as_str).collect::<Vec<_>>();
    Some(match actions.as_slice() {
        ["no-op" | "read"] if changed.change.is_import() => Kind::Import,
        ["no-op" | "read"] if changed.moved_from().is_some() => Kind::Move,
        ["no-op" | "read"] => return None,
        ["create"] => Kind::Create,
        ["update"] => Kind::Update,
        ["delete"] => Kind::Delete,
        ["delete", "create"] | ["create", "delete"] => Kind::Replace,
        // OpenTofu and later terraforms create another object beside the one that is forgotten.
        ["forget"] | ["forget", "create"] | ["create", "forget"] => Kind::Forget,
        _ => Kind::Unknown,
    })
}

/// What an approval of a change is about.
fn subject(changed: &Changed<Plain, Plain>, kind: Kind) -> Value {
    let change = &changed.change;
    json!({
        "type": changed.resource_type,
        "address": changed.address,
        "previous_address": changed.moved_from(),
        "deposed": changed.deposed,
        "kind": kind.name(),
        "actions": change.actions,
        "before": masked(&change.before, &change.before_sensitive, &Value::Null),
        "after": masked(&change.after, &change.after_sensitive, &change.after_unknown),
    })
}

/// What an approval of an invocation is about.
fn invoked(invocation: &Invocation) -> Value {
    json!({
        "type": invocation.action_type,
        "address": invocation.address,
        "kind": Kind::Invoke.name(),
        "trigger": *invocation.lifecycle_action_trigger,
        "config": masked(&invocation.config_values, &invocation.config_sensitive, &invocation.config_unknown),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_map_with_a_name_of_the_parser_is_not_the_value_in_it() {
        let content = |before: Value| {
            let change = json!({"actions": ["delete"], "before": before, "after": null});
            let changes = json!([{"address": "a.b", "type": "a", "change": change}]);
            let plan = json!({"format_version": "1.2", "resource_changes": changes}).to_string();
            Plan::read(plan.as_bytes()).ok().unwrap().changes.remove(0).content
        };
        let map = json!({"$serde_json::private::RawValue": "1"});
        assert_ne!(content(json!({"x": map})), content(json!({"x": 1})));
    }
}
