//! The summary of a plan: how many resources it changes, and whether there is anything to apply. The output of
//! `show -json` is read once, as a stream.
//!
//! The format is HashiCorp's and OpenTofu's "JSON plan representation", `format_version` 0.1 to 1.x.
//! Memory does not grow with the plan, except by its longest string.

use std::fmt;
use std::io::Read;

use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

use crate::report::Counts;

/// The summary of a plan.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Summary {
    pub(crate) counts: Counts,
    /// Whether applying it would change anything: resources, outputs or the state.
    pub(crate) changes: bool,
}

/// The JSON is not a plan, or of an unknown version.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PlanError {
    #[error("the plan's JSON cannot be read")]
    Json(#[from] serde_json::Error),
    #[error("the plan's JSON has format_version `{0}`; versions from 0.1 to 1.x can be read")]
    Format(String),
}

impl Summary {
    /// Reads the output of `show -json`.
    pub(crate) fn from_json(json: impl Read) -> Result<Self, PlanError> {
        let document: Document = serde_json::from_reader(std::io::BufReader::new(json))?;
        if !is_readable(&document.format_version) {
            return Err(PlanError::Format(document.format_version));
        }
        let Changes { counts, any } = document.resource_changes;
        let changes = document.applyable.unwrap_or(any || document.output_changes.0);
        Ok(Self { counts, changes })
    }
}

fn is_readable(format_version: &str) -> bool {
    let mut numbers = format_version.split('.').map(str::parse::<u32>);
    match (numbers.next(), numbers.next()) {
        (Some(Ok(0)), Some(Ok(minor))) => minor >= 1,
        (Some(Ok(1)), Some(Ok(_)) | None) => true,
        _ => false,
    }
}

#[derive(Deserialize)]
struct Document {
    #[serde(default)]
    format_version: String,
    /// terraform 1.8 and later: whether there is anything to apply.
    applyable: Option<bool>,
    #[serde(default)]
    resource_changes: Changes,
    #[serde(default)]
    output_changes: AnyOutput,
}

#[derive(Deserialize)]
struct ResourceChange {
    change: Change,
}

#[derive(Deserialize)]
struct Change {
    #[serde(default)]
    actions: Vec<String>,
    importing: Option<IgnoredAny>,
}

impl Change {
    fn is_change(&self) -> bool {
        let quiet = |action: &String| action == "no-op" || action == "read";
        self.importing.is_some() || !self.actions.iter().all(quiet)
    }
}

/// All resource changes, counted as they come.
#[derive(Default)]
struct Changes {
    counts: Counts,
    any: bool,
}

impl Changes {
    fn add(&mut self, change: &Change) {
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
        self.any |= change.is_change();
    }
}

impl<'de> Deserialize<'de> for Changes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Count;

        impl<'de> Visitor<'de> for Count {
            type Value = Changes;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list of resource changes")
            }

            fn visit_unit<E>(self) -> Result<Changes, E> {
                Ok(Changes::default())
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Changes, A::Error> {
                let mut changes = Changes::default();
                while let Some(ResourceChange { change }) = list.next_element()? {
                    changes.add(&change);
                }
                Ok(changes)
            }
        }

        deserializer.deserialize_any(Count)
    }
}

/// Whether any output changes.
#[derive(Default)]
struct AnyOutput(bool);

impl<'de> Deserialize<'de> for AnyOutput {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct AnyChange;

        impl<'de> Visitor<'de> for AnyChange {
            type Value = AnyOutput;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("output changes by name")
            }

            fn visit_unit<E>(self) -> Result<AnyOutput, E> {
                Ok(AnyOutput(false))
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<AnyOutput, A::Error> {
                let mut any = AnyOutput(false);
                while let Some((IgnoredAny, change)) = map.next_entry::<_, Change>()? {
                    any.0 |= change.is_change();
                }
                Ok(any)
            }
        }

        deserializer.deserialize_any(AnyChange)
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
