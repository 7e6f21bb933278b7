//! Objects that a run imports, because their creation found that they exist: what a plan may do with them.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;

use serde_json::Value;
use serde_json::value::RawValue;

use crate::run::apply::remainder::differences::Differences;
use crate::run::apply::remainder::document::{Change, Changed, Visit, read};
use crate::run::apply::remainder::planned::{self, attribute};
use crate::run::plan::summary::PlanError;

/// One such object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::run::apply) struct Imported {
    /// Its import ID.
    pub(in crate::run::apply) id: String,
    /// Whether the next plan has to import it: no apply has imported it so far.
    pub(in crate::run::apply) is_pending: bool,
}

/// By address.
pub(in crate::run::apply) type Imports = BTreeMap<String, Imported>;

/// What keeps a plan from importing these objects: each of them must be kept or updated in place, and nothing else be
/// imported by it.
pub(super) fn differences(plan: impl Read, imports: &Imports) -> Result<Differences, PlanError> {
    let differences = Differences::default();
    let mut visit = OnlyImports { left: imports.clone(), imports, differences };
    read(plan, &mut visit)?;
    let OnlyImports { left, mut differences, .. } = visit;
    if let Some(address) = missing(&left) {
        differences.add(&format!("{address}:"), NOT_IMPORTED);
    }
    Ok(differences)
}

/// An object that the plan has to import, and does not.
pub(super) fn missing(left: &Imports) -> Option<&String> {
    left.iter().find(|(_, imported)| imported.is_pending).map(|(address, _)| address)
}

/// What is said of it.
pub(super) const NOT_IMPORTED: &str = "the new plan does not import the object that exists";

impl Imported {
    /// Why the change at the imported address is not allowed.
    pub(super) fn difference(&self, change: &Change) -> serde_json::Result<Option<String>> {
        if !change.actions.iter().all(|action| action == "no-op" || action == "update") {
            let actions = change.actions.join(" and ");
            return Ok(Some(format!("{actions} is planned for an object that is imported")));
        }
        let Some(importing) = &change.importing else { return Ok(None) };
        let id = attribute(importing, "id")?;
        let id = id.and_then(|id| serde_json::from_str::<String>(id.get()).ok());
        let is_other = id.as_deref() != Some(&*self.id);
        Ok(is_other.then(|| "another object is imported".to_owned()))
    }
}

/// The planned values of an object that the reviewed plan creates.
#[derive(Debug)]
pub(super) struct Creation {
    after: Value,
    unknown: Value,
    sensitive: Value,
}

impl Creation {
    pub(super) fn new(values: planned::Value<'_>) -> serde_json::Result<Self> {
        let of = |raw: Option<&RawValue>| match raw {
            Some(raw) => serde_json::from_str(raw.get()),
            None => Ok(Value::Null),
        };
        let planned::Value { known, unknown, sensitive } = values;
        Ok(Self { after: of(known)?, unknown: of(unknown)?, sensitive: of(sensitive)? })
    }

    /// What of the planned values differs, if the object is imported instead of created.
    ///
    /// Providers do not tell an attribute that is not set from one with the empty value of its type, and report
    /// default values. So those count as equal, and where nothing was planned the object may keep what it has.
    pub(super) fn difference(&self, change: &Change) -> serde_json::Result<Option<String>> {
        let new = Self::new(change.planned())?;
        let before = match &change.before {
            Some(before) => serde_json::from_str(before.get())?,
            None => Value::Null,
        };
        let (Value::Object(ours), Value::Object(theirs)) = (&self.after, &new.after) else {
            return Ok(Some("its planned values differ".to_owned()));
        };
        let names = ours.keys().chain(theirs.keys()).collect::<BTreeSet<_>>();
        let differing = names.into_iter().filter(|name| {
            let of = |values: &Value| values.get(name.as_str()).cloned().unwrap_or_default();
            let (planned, unknown, value) = (of(&self.after), of(&self.unknown), of(&new.after));
            let is_shown = of(&self.sensitive) == true && of(&new.sensitive) != true;
            let is_known = unknown == true || !has_true(&of(&new.unknown));
            let is_kept = is_empty_value(&planned) && value == of(&before);
            is_shown || !is_known || !(agrees(&planned, &unknown, &value) || is_kept)
        });
        let differing = differing.cloned().collect::<Vec<_>>().join(", ");
        Ok((!differing.is_empty()).then(|| format!("its planned values differ in {differing}")))
    }
}

fn has_true(marks: &Value) -> bool {
    match marks {
        Value::Bool(mark) => *mark,
        Value::Array(marks) => marks.iter().any(has_true),
        Value::Object(marks) => marks.values().any(has_true),
        _ => false,
    }
}

/// Whether it is null, or the empty value of its type.
fn is_empty_value(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => true,
        Value::Bool(true) => false,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        Value::Array(elements) => elements.is_empty(),
        Value::Object(attributes) => attributes.values().all(is_empty_value),
    }
}

/// Whether a value is the planned one, as far as that was known.
fn agrees(planned: &Value, unknown: &Value, value: &Value) -> bool {
    if *unknown == true || is_empty_value(planned) && is_empty_value(value) {
        return true;
    }
    match (planned, value) {
        (Value::Array(ours), Value::Array(theirs)) => {
            let unknown = |at: usize| unknown.get(at).unwrap_or(&Value::Null);
            let mut pairs = ours.iter().zip(theirs).enumerate();
            ours.len() == theirs.len()
                && pairs.all(|(at, (ours, theirs))| agrees(ours, unknown(at), theirs))
        }
        (Value::Object(ours), Value::Object(theirs)) => {
            let of = |values: &Value, name: &str| values.get(name).cloned().unwrap_or_default();
            let mut names = ours.keys().chain(theirs.keys());
            names.all(|name| agrees(&of(planned, name), &of(unknown, name), &of(value, name)))
        }
        // Documents of JSON, of which a service may change the form.
        (Value::String(ours), Value::String(theirs)) if ours.starts_with(['{', '[']) => {
            let document = |text: &String| serde_json::from_str::<Value>(text).ok();
            ours == theirs || document(ours).is_some_and(|ours| Some(ours) == document(theirs))
        }
        _ => planned == value,
    }
}

struct OnlyImports<'a> {
    imports: &'a Imports,
    left: Imports,
    differences: Differences,
}

impl Visit for OnlyImports<'_> {
    fn resource(&mut self, changed: &Changed) -> serde_json::Result<()> {
        let Changed { address, deposed: None, change, .. } = changed else { return Ok(()) };
        let Some(imported) = self.imports.get(address) else { return Ok(()) };
        if change.importing.is_some() {
            self.left.remove(address);
        }
        if let Some(difference) = imported.difference(change)? {
            self.differences.add(&format!("{address}:"), &difference);
        }
        Ok(())
    }

    fn output(&mut self, _: &str, _: &Change) -> serde_json::Result<()> {
        Ok(())
    }

    fn drift(&mut self) {}

    fn action(&mut self) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(json: Value) -> Change {
        serde_json::from_value(json).unwrap()
    }

    /// Values of a role, a user and a table of the provider hashicorp/aws 5.100, planned and imported.
    #[test]
    fn imported_object_has_the_planned_values_or_keeps_what_was_not_planned() {
        let reviewed = change(serde_json::json!({
            "actions": ["create"],
            "after": {
                "name": "x", "description": null, "force_destroy": false, "table_class": null, "tags": null,
                "max_session_duration": 3600, "policy": "{\"a\":1, \"b\":2}", "attribute": [{"name": "k", "note": null}],
                "secret": "s",
            },
            "after_unknown": {"id": true, "arn": true, "attribute": [{"hash": true}]},
            "after_sensitive": {"secret": true},
        }));
        let creation = Creation::new(reviewed.planned()).unwrap();
        let imported = serde_json::json!({
            "name": "x", "description": "", "force_destroy": null, "table_class": "STANDARD", "tags": {},
            "max_session_duration": 3600, "policy": "{\"b\":2,\"a\":1}",
            "attribute": [{"name": "k", "note": "", "hash": "h"}], "secret": "s", "id": "x", "arn": "arn:x",
        });
        let difference = |name: &str, value: Value, unknown: Value, sensitive: bool| {
            let mut after = imported.clone();
            after[name] = value;
            let new = change(serde_json::json!({
                "actions": ["update"], "before": imported, "after": after, "after_unknown": unknown,
                "after_sensitive": {"secret": sensitive}, "importing": {"id": "x"},
            }));
            creation.difference(&new).unwrap().unwrap_or_default()
        };
        let none = || serde_json::json!({});
        assert_eq!(difference("arn", "arn:y".into(), none(), true), "");
        for (name, value) in [
            ("name", "y".into()),
            ("description", "of another plan".into()),
            ("force_destroy", true.into()),
            ("table_class", "INFREQUENT".into()),
            ("tags", serde_json::json!({"a": "b"})),
            ("max_session_duration", 7200.into()),
            ("policy", "{\"a\":1}".into()),
            ("attribute", serde_json::json!([{"name": "l"}])),
            ("attribute", serde_json::json!([])),
            ("secret", "t".into()),
        ] {
            let found = difference(name, value, none(), true);
            assert_eq!(found, format!("its planned values differ in {name}"));
        }
        let unknown = serde_json::json!({"arn": true, "name": true});
        assert_eq!(
            difference("arn", Value::Null, unknown, true),
            "its planned values differ in name"
        );
        let shown = "its planned values differ in secret";
        assert_eq!(difference("arn", Value::Null, none(), false), shown);
    }

    #[test]
    fn only_the_object_itself_is_imported_and_neither_replaced_nor_deleted() {
        let imports = Imports::from([(
            "a_b.c".to_owned(),
            Imported { id: "x".to_owned(), is_pending: true },
        )]);
        let found = |actions: &str, importing: &str, address: &str| {
            let plan = format!(
                r#"{{"format_version":"1.2","resource_changes":[{{"address":"{address}","change":{{"actions":{actions}{importing}}}}}]}}"#
            );
            differences(plan.as_bytes(), &imports).unwrap().to_string()
        };
        let (of_x, of_y) = (r#","importing":{"id":"x"}"#, r#","importing":{"id":"y"}"#);
        assert_eq!(found(r#"["no-op"]"#, of_x, "a_b.c"), "");
        assert_eq!(found(r#"["update"]"#, of_x, "a_b.c"), "");
        let replaced = found(r#"["delete","create"]"#, of_x, "a_b.c");
        assert!(replaced.contains("delete and create is planned"), "{replaced}");
        assert!(found(r#"["update"]"#, of_y, "a_b.c").contains("another object is imported"));
        for (actions, importing, address) in
            [(r#"["update"]"#, "", "a_b.c"), (r#"["no-op"]"#, of_x, "a_b.d")]
        {
            assert!(found(actions, importing, address).contains("does not import"), "{address}");
        }
    }
}
