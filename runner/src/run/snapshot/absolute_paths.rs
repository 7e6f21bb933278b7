//! Finds the values of a plan that contain the absolute path of the directory in which it was made. In another directory
//! they would be wrong. Only their names are returned: the values may be secret.
//!
//! Memory grows with the largest resource. A value that is nested more than about 120 times cannot be read.

use std::io::Read;
use std::path::Path;

use datastore_api::json::Plain;
use serde_json::Value;

use crate::basis::plan_file;
use crate::run::plan::summary::{Changed, ChangesOf, Collector, PlanError, read_into};

/// At most as many names are returned.
const MAX_FOUND: usize = 20;

/// The names of planned values that contain `directory`: `ADDRESS.ATTRIBUTE` of resources that change, and `output.NAME`.
/// `json` is what the tool shows of the plan.
pub(super) fn find(
    json: impl Read,
    plan: &Path,
    directory: &str,
) -> Result<Vec<String>, SearchError> {
    let mut found = in_json(json, directory)?;
    // Values whose end is not known yet are only in the plan itself.
    let mut search = Search { directory, prefix: "", found: Vec::new() };
    plan_file::each_value(plan, |name, value| search.top(name, value))?;
    for name in search.found {
        let is_part = |other: &String| {
            other
                .strip_prefix(&*name)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
        };
        if !found.iter().any(is_part) {
            found.push(name);
        }
    }
    found.truncate(MAX_FOUND);
    Ok(found)
}

/// A plan cannot be searched.
#[derive(Debug, thiserror::Error)]
pub(super) enum SearchError {
    #[error(transparent)]
    Json(#[from] PlanError),
    #[error("the plan cannot be read")]
    Plan(#[from] std::io::Error),
}

fn in_json(json: impl Read, directory: &str) -> Result<Vec<String>, PlanError> {
    let search = |prefix| Search { directory, prefix, found: Vec::new() };
    let ChangesOf { resources, outputs, .. } = read_into(search(""), search("output."), json)?;
    Ok([resources.found, outputs.found].concat())
}

struct Search<'a> {
    directory: &'a str,
    /// How the names begin.
    prefix: &'static str,
    found: Vec<String>,
}

impl Collector for Search<'_> {
    type After = Plain;
    type Rest = serde::de::IgnoredAny;

    fn add(&mut self, Changed { address, change, .. }: Changed<Plain>) {
        if change.actions.iter().any(|action| !matches!(&**action, "no-op" | "read")) {
            let address = address.as_deref().unwrap_or_default();
            self.value(&format!("{}{address}", self.prefix), &change.after);
        }
    }
}

impl Search<'_> {
    /// Finds the attributes of a value that contain the directory anywhere, or the value itself if it has none.
    fn top(&mut self, name: &str, value: &Value) {
        let mut attribute = |name: String, value: &Value| {
            let mut search = Self { directory: self.directory, prefix: "", found: Vec::new() };
            search.value("", value);
            if !search.found.is_empty() && self.found.len() < MAX_FOUND {
                self.found.push(name);
            }
        };
        match value {
            Value::Object(fields) => {
                for (field, value) in fields {
                    attribute(format!("{name}.{field}"), value);
                }
            }
            value => attribute(name.to_owned(), value),
        }
    }

    fn value(&mut self, name: &str, value: &Value) {
        if self.found.len() >= MAX_FOUND {
            return;
        }
        match value {
            Value::String(text) if self.contains(text) => self.found.push(name.to_owned()),
            Value::Array(items) => {
                for (index, item) in items.iter().enumerate() {
                    self.value(&format!("{name}[{index}]"), item);
                }
            }
            Value::Object(fields) => {
                for (field, value) in fields {
                    self.value(&format!("{name}.{field}"), value);
                }
            }
            _ => {}
        }
    }

    /// Whether a text contains the directory as a whole path or the beginning of one.
    fn contains(&self, text: &str) -> bool {
        let ends = |next: char| !next.is_alphanumeric() && !matches!(next, '-' | '_' | '.');
        text.match_indices(self.directory).any(|(at, found)| {
            let before = text[..at].chars().next_back();
            let next = text[at + found.len()..].chars().next();
            before.is_none_or(ends) && next.is_none_or(ends)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn planned_values_with_the_directory_are_named_without_their_content() {
        let json = r#"{
            "format_version": "1.2",
            "resource_changes": [
                {"address": "local_file.a", "change": {"actions": ["create"],
                    "after": {"filename": "/work/d/x", "tags": ["", "see /work/d"], "secret": "/work/dd"}}},
                {"address": "local_file.b", "change": {"actions": ["no-op"], "after": {"filename": "/work/d/y"}}},
                {"address": "local_file.c", "change": {"actions": ["delete"], "after": null}}
            ],
            "output_changes": {
                "here": {"actions": ["create"], "after": "/work/d"},
                "there": {"actions": ["create"], "after": {"x": "/work/other", "y": "https://host/work/d/x"}}
            },
            "prior_state": {"x": ["/work/d"]}
        }"#;
        assert_eq!(
            in_json(json.as_bytes(), "/work/d").unwrap(),
            ["local_file.a.filename", "local_file.a.tags[1]", "output.here"]
        );
        assert!(in_json(json.as_bytes(), "/elsewhere").unwrap().is_empty());
        let none = br#"{"format_version": "1.2", "resource_changes": null}"#;
        assert!(in_json(&none[..], "/").unwrap().is_empty());
        in_json(&json.as_bytes()[..json.len() - 2], "/").unwrap_err();
    }
}
