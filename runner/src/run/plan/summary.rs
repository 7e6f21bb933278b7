//! The summary of a plan: how many resources it changes, and whether there is anything to apply. The output of
//! `show -json` is read once, as a stream.
//!
//! The format is HashiCorp's and OpenTofu's "JSON plan representation", `format_version` 0.1 to 1.x.
//! Memory does not grow with the plan, except by its longest string.

use std::collections::BTreeSet;
use std::fmt;
use std::io::Read;

use datastore_api::json::Plain;
use datastore_api::plan::is_readable;
use serde::Deserialize;
use serde::de::{
    DeserializeOwned, DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor,
};

use crate::report::Counts;

/// The summary of a plan.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Summary {
    pub(crate) counts: Counts,
    /// Whether applying it would change anything: resources, outputs or the state.
    pub(crate) changes: bool,
    /// Whether the tool itself finds nothing to do: its own `-detailed-exitcode` is 0. A data source that is read at the
    /// apply is something to do, unless the tool reports that nothing is.
    pub(crate) is_empty: bool,
    /// Where there are objects.
    pub(crate) objects: Objects,
    /// The names of the outputs that are changed, or not known before the apply.
    pub(crate) changed_outputs: BTreeSet<String>,
}

/// Where there are objects, by the changes of a plan, which names also those that stay as they are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Objects {
    /// In the state: the plan keeps, changes or removes one.
    pub(crate) in_state: bool,
    /// In the code: not every change only removes one.
    pub(crate) in_code: bool,
}

/// The JSON is not a plan, or of an unknown version.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PlanError {
    #[error("the plan's JSON cannot be read")]
    Json(#[from] serde_json::Error),
    #[error("the plan's JSON has format_version `{0}`; versions from 0.1 to 1.x can be read")]
    Format(String),
    #[error(
        "the plan is incomplete: the tool has failed while it planned, by the plan's JSON (`errored`)"
    )]
    Errored,
}

impl Summary {
    /// Reads the output of `show -json`.
    pub(crate) fn from_json(json: impl Read) -> Result<Self, PlanError> {
        let ChangesOf { resources, outputs, applyable } = read::<Changes>(json)?;
        let any = resources.any || outputs.any;
        let is_empty = match applyable {
            Some(applyable) => !applyable && !any,
            None => !any && !resources.reads,
        };
        let Changes { counts, objects, .. } = resources;
        let (changes, changed_outputs) = (applyable.unwrap_or(any), outputs.names);
        Ok(Self { counts, changes, is_empty, objects, changed_outputs })
    }
}

/// Collects the changes of a plan, one at a time.
pub(crate) trait Collector {
    /// What is read of a planned value.
    type After: DeserializeOwned + Default;
    /// What is read of the value before, and of the marks of sensitive and unknown parts.
    type Rest: DeserializeOwned + Default;

    /// Adds the change of a resource or output.
    fn add(&mut self, change: Changed<Self::After, Self::Rest>);

    /// Adds what was changed outside of the tool. Tools write it before the changes.
    fn add_drift(&mut self, _drift: Changed<Self::After, Self::Rest>) {}

    /// Adds an action of a provider that the apply runs.
    fn add_invocation(&mut self, _invocation: Invocation) {}
}

/// The changes of a plan.
#[derive(Debug)]
pub(crate) struct ChangesOf<R, O = R> {
    pub(crate) resources: R,
    pub(crate) outputs: O,
    /// terraform 1.8 and later: whether there is anything to apply.
    applyable: Option<bool>,
}

/// Reads the changes in the output of `show -json` into new collectors.
pub(crate) fn read<C: Collector + Default>(json: impl Read) -> Result<ChangesOf<C>, PlanError> {
    read_into(C::default(), C::default(), json)
}

/// Reads the changes in the output of `show -json` into these collectors.
pub(crate) fn read_into<R: Collector, O: Collector>(
    resources: R,
    outputs: O,
    json: impl Read,
) -> Result<ChangesOf<R, O>, PlanError> {
    let changes = ChangesOf { resources, outputs, applyable: None };
    let document = Document { format_version: String::new(), errored: false, changes };
    let mut json = serde_json::Deserializer::from_reader(std::io::BufReader::new(json));
    let Document { format_version, errored, changes } = json.deserialize_map(document)?;
    json.end()?;
    if !is_readable(&format_version) {
        return Err(PlanError::Format(format_version));
    }
    if errored {
        return Err(PlanError::Errored);
    }
    Ok(changes)
}

/// The document, as far as it has been read.
struct Document<R, O> {
    format_version: String,
    /// Whether the tool has failed while it planned: an apply refuses such a plan.
    errored: bool,
    changes: ChangesOf<R, O>,
}

/// The change of a resource or output.
#[derive(Debug, Default, Deserialize)]
#[serde(default, bound = "After: DeserializeOwned + Default, Rest: DeserializeOwned + Default")]
pub(crate) struct Changed<After = IgnoredAny, Rest = IgnoredAny> {
    /// The address of a resource, the name of an output.
    pub(crate) address: Option<String>,
    previous_address: Option<String>,
    /// `managed` or `data`.
    pub(crate) mode: Option<String>,
    /// The type of a resource; none of an output.
    #[serde(rename = "type")]
    pub(crate) resource_type: Option<String>,
    /// Why the tool plans it.
    pub(crate) action_reason: Option<String>,
    /// The key of an object that an earlier apply could not destroy.
    pub(crate) deposed: Option<String>,
    pub(crate) change: Change<After, Rest>,
}

impl<After, Rest> Changed<After, Rest> {
    /// The address before, if the resource is moved.
    pub(crate) fn moved_from(&self) -> Option<&str> {
        let previous = self.previous_address.as_deref();
        previous.filter(|previous| self.address.as_deref() != Some(previous))
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, bound = "After: DeserializeOwned + Default, Rest: DeserializeOwned + Default")]
pub(crate) struct Change<After = IgnoredAny, Rest = IgnoredAny> {
    pub(crate) actions: Vec<String>,
    importing: Option<IgnoredAny>,
    /// The value before.
    pub(crate) before: Rest,
    /// The planned value.
    pub(crate) after: After,
    /// Which parts of them are sensitive, or not known yet.
    pub(crate) before_sensitive: Rest,
    pub(crate) after_sensitive: Rest,
    pub(crate) after_unknown: Rest,
}

impl<After, Rest> Change<After, Rest> {
    pub(crate) fn is_import(&self) -> bool {
        self.importing.is_some()
    }

    pub(crate) fn is_no_op(&self) -> bool {
        self.actions == ["no-op"]
    }

    pub(crate) fn is_change(&self) -> bool {
        let quiet = |action: &String| action == "no-op" || action == "read";
        self.is_import() || !self.actions.iter().all(quiet)
    }
}

/// An action of a provider, of terraform 1.14 and later. It changes nothing in the state; what it changes elsewhere, the plan does
/// not say. There is no `Debug`, because values may be sensitive.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(crate) struct Invocation {
    pub(crate) address: String,
    #[serde(rename = "type")]
    pub(crate) action_type: String,
    /// Before or after what it runs.
    pub(crate) lifecycle_action_trigger: Plain,
    pub(crate) config_values: Plain,
    pub(crate) config_sensitive: Plain,
    pub(crate) config_unknown: Plain,
}

/// All changes, counted as they come.
#[derive(Default)]
struct Changes {
    counts: Counts,
    any: bool,
    reads: bool,
    objects: Objects,
    /// Of outputs: the names of those that change.
    names: BTreeSet<String>,
}

impl Collector for Changes {
    type After = IgnoredAny;
    type Rest = IgnoredAny;

    fn add(&mut self, changed: Changed) {
        let change = &changed.change;
        let actions = change.actions.iter().map(String::as_str).collect::<Vec<_>>();
        let Counts { create, update, delete } = &mut self.counts;
        match actions.as_slice() {
            ["create"] => *create += 1,
            ["update"] => *update += 1,
            ["delete"] => *delete += 1,
            ["delete", "create"] | ["create", "delete"] => {
                *create += 1;
                *delete += 1;
            }
            _ => {}
        }
        if changed.mode.as_deref() != Some("data") {
            self.objects.in_state |= actions != ["create"];
            self.objects.in_code |= !matches!(actions.as_slice(), ["delete" | "forget"]);
        }
        // A move changes the state.
        self.any |= change.is_change() || changed.moved_from().is_some();
        self.reads |= change.actions.iter().any(|action| action == "read");
        if changed.resource_type.is_none() && change.is_change() {
            self.names.extend(changed.address.clone());
        }
    }
}

impl<'de, R: Collector, O: Collector> Visitor<'de> for Document<R, O> {
    type Value = Self;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a plan as JSON")
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut map: A) -> Result<Self, A::Error> {
        let changes = &mut self.changes;
        while let Some(key) = map.next_key::<String>()? {
            match key.as_str() {
                "format_version" => self.format_version = map.next_value()?,
                "errored" => self.errored = map.next_value::<Option<bool>>()?.unwrap_or_default(),
                "applyable" => changes.applyable = map.next_value()?,
                "resource_changes" => {
                    map.next_value_seed(List(&mut changes.resources, R::add))?;
                }
                "resource_drift" => {
                    map.next_value_seed(List(&mut changes.resources, R::add_drift))?;
                }
                "action_invocations" => {
                    map.next_value_seed(List(&mut changes.resources, R::add_invocation))?;
                }
                "output_changes" => map.next_value_seed(Outputs(&mut changes.outputs))?,
                _ => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        Ok(self)
    }
}

/// A list of changes, and what adds one of them.
struct List<'a, C, T>(&'a mut C, fn(&mut C, T));

impl<'de, C, T: Deserialize<'de>> DeserializeSeed<'de> for List<'_, C, T> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de, C, T: Deserialize<'de>> Visitor<'de> for List<'_, C, T> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of changes")
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        while let Some(changed) = list.next_element()? {
            (self.1)(self.0, changed);
        }
        Ok(())
    }
}

/// The changes of outputs, by name.
struct Outputs<'a, C>(&'a mut C);

impl<'de, C: Collector> DeserializeSeed<'de> for Outputs<'_, C> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de, C: Collector> Visitor<'de> for Outputs<'_, C> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("output changes by name")
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some((name, change)) = map.next_entry()? {
            self.0.add(Changed { address: Some(name), change, ..Changed::default() });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(resources: &[&str], outputs: &[&str]) -> Summary {
        let list = |actions: &str| format!(r#"{{"change": {{"actions": [{actions}], "x": 1}}}}"#);
        let resources = resources.iter().map(|r| list(r)).collect::<Vec<_>>().join(",");
        let outputs = outputs
            .iter()
            .enumerate()
            .map(|(i, actions)| format!(r#""o{i}": {{"actions": [{actions}]}}"#))
            .collect::<Vec<_>>()
            .join(",");
        let json = format!(
            r#"{{"format_version": "1.2", "resource_changes": [{resources}],
                "output_changes": {{{outputs}}}, "planned_values": {{"deep": [1, 2]}}}}"#
        );
        Summary::from_json(json.as_bytes()).unwrap()
    }

    #[test]
    fn every_kind_of_change_is_counted_as_burrito_counts_it() {
        let cases: [(&[&str], &str, bool); 9] = [
            (&[], "Plan: 0 to create, 0 to update, 0 to delete", false),
            (&[r#""create""#], "Plan: 1 to create, 0 to update, 0 to delete", true),
            (&[r#""update""#], "Plan: 0 to create, 1 to update, 0 to delete", true),
            (&[r#""delete""#], "Plan: 0 to create, 0 to update, 1 to delete", true),
            (&[r#""delete","create""#], "Plan: 1 to create, 0 to update, 1 to delete", true),
            (&[r#""create","delete""#], "Plan: 1 to create, 0 to update, 1 to delete", true),
            (&[r#""no-op""#, r#""read""#], "Plan: 0 to create, 0 to update, 0 to delete", false),
            (&[r#""forget""#], "Plan: 0 to create, 0 to update, 0 to delete", true),
            (&[r#""create""#, r#""create""#], "Plan: 2 to create, 0 to update, 0 to delete", true),
        ];
        for (resources, short, changes) in cases {
            let summary = plan(resources, &[]);
            assert_eq!((summary.counts.to_string().as_str(), summary.changes), (short, changes));
        }
    }

    #[test]
    fn moves_and_imports_are_changes_and_a_plan_without_any_is_empty() {
        let empty = |resource: &str, rest: &str| {
            let json = format!(
                r#"{{"format_version": "1.2"{rest}, "resource_changes": [{resource}], "output_changes": {{}}}}"#
            );
            let summary = Summary::from_json(json.as_bytes()).unwrap();
            (summary.changes, summary.is_empty)
        };
        let no_op = r#"{"change": {"actions": ["no-op"]}}"#;
        let read = r#"{"change": {"actions": ["read"]}}"#;
        let moved = r#"{"previous_address": "a.b", "change": {"actions": ["no-op"]}}"#;
        let imported = r#"{"change": {"actions": ["no-op"], "importing": {"id": "x"}}}"#;
        assert_eq!(empty(no_op, ""), (false, true));
        assert_eq!(empty(read, ""), (false, false), "tofu, and terraform before 1.8");
        assert_eq!(empty(read, r#", "applyable": false"#), (false, true));
        assert_eq!(empty(no_op, r#", "applyable": true"#), (true, false));
        let in_place =
            r#"{"address": "a.b", "previous_address": "a.b", "change": {"actions": ["no-op"]}}"#;
        assert_eq!(empty(in_place, ""), (false, true));
        for change in [moved, imported] {
            assert_eq!(empty(change, ""), (true, false), "{change}");
            assert_eq!(empty(change, r#", "applyable": false"#), (false, false), "{change}");
        }
    }

    #[test]
    fn objects_of_the_state_and_of_the_code_are_known_and_data_are_none() {
        let facts = |resources: &[(&str, &str)]| {
            let change = |(mode, actions): &(&str, &str)| {
                format!(r#"{{"mode": "{mode}", "change": {{"actions": [{actions}]}}}}"#)
            };
            let list = resources.iter().map(change).collect::<Vec<_>>().join(",");
            let json = format!(r#"{{"format_version": "1.2", "resource_changes": [{list}]}}"#);
            let summary = Summary::from_json(json.as_bytes()).unwrap();
            (summary.objects.in_state, summary.objects.in_code)
        };
        let data = ("data", r#""read""#);
        assert_eq!(facts(&[data]), (false, false));
        assert_eq!(facts(&[data, ("managed", r#""create""#)]), (false, true));
        assert_eq!(facts(&[("managed", r#""delete""#), ("managed", r#""forget""#)]), (true, false));
        for actions in [r#""no-op""#, r#""update""#, r#""delete","create""#] {
            assert_eq!(facts(&[("managed", actions)]), (true, true), "{actions}");
        }
    }

    #[test]
    fn outputs_are_changes_that_do_not_count() {
        let summary = plan(&[r#""no-op""#], &[r#""no-op""#, r#""create""#]);
        assert_eq!((summary.counts, summary.changes), (Counts::default(), true));
        assert!(!plan(&[], &[r#""no-op""#]).changes);
    }

    #[test]
    fn the_tools_own_verdict_wins() {
        let json = r#"{"format_version": "1.2", "applyable": true, "resource_changes": null}"#;
        assert!(Summary::from_json(json.as_bytes()).unwrap().changes);
    }

    #[test]
    fn plan_of_a_tool_that_has_failed_is_refused() {
        let read = |value: &str| {
            let json = format!(
                r#"{{"format_version": "1.2", "resource_changes": [], "applyable": false, "errored": {value}}}"#
            );
            Summary::from_json(json.as_bytes()).map_err(|error| error.to_string())
        };
        assert!(read("true").unwrap_err().starts_with("the plan is incomplete"));
        for value in ["false", "null"] {
            assert!(!read(value).unwrap().changes);
        }
    }

    #[test]
    fn formats_of_another_age_are_refused() {
        for (version, readable) in
            [("0.1", true), ("0.2", true), ("1.0", true), ("1.99", true), ("0.0", false)]
        {
            let json = format!(r#"{{"format_version": "{version}"}}"#);
            assert_eq!(Summary::from_json(json.as_bytes()).is_ok(), readable, "{version}");
        }
        for json in ["", "{}", "[]", r#"{"format_version": "2.0"}"#, r#"{"format_version": "1.2""#]
        {
            Summary::from_json(json.as_bytes()).unwrap_err();
        }
    }
}
