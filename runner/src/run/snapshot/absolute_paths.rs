//! Finds the values of a plan that contain the absolute path of the directory in which it was made. In another directory
//! they would be wrong. Only their names are returned: the values may be secret.
//!
//! Memory grows with the largest resource. A value that is nested more than about 120 times cannot be read.

use std::io::Read;

use serde_json::Value;

use crate::run::plan_summary::{Changed, ChangesOf, Collector, PlanError, read_into};

/// At most as many names are returned.
const MAX_FOUND: usize = 20;

/// The names of planned values that contain `directory`: `ADDRESS.ATTRIBUTE` of resources that change, and `output.NAME`.
pub(super) fn find(json: impl Read, directory: &str) -> Result<Vec<String>, PlanError> {
    let search = |prefix| Search { directory, prefix, found: Vec::new() };
    let ChangesOf { resources, outputs, .. } = read_into(search(""), search("output."), json)?;
    let mut found = [resources.found, outputs.found].concat();
    found.truncate(MAX_FOUND);
    Ok(found)
}

struct Search<'a> {
    directory: &'a str,
    /// How the names begin.
    prefix: &'static str,
    found: Vec<String>,
}

impl Collector for Search<'_> {
    type After = Value;

    fn add(&mut self, Changed { address, change, .. }: &Changed<Value>) {
        if change.actions.iter().any(|action| !matches!(&**action, "no-op" | "read")) {
            let address = address.as_deref().unwrap_or_default();
            self.value(&format!("{}{address}", self.prefix), &change.after);
        }
    }
}

impl Search<'_> {
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
            find(json.as_bytes(), "/work/d").unwrap(),
            ["local_file.a.filename", "local_file.a.tags[1]", "output.here"]
        );
        assert!(find(json.as_bytes(), "/elsewhere").unwrap().is_empty());
        let none = br#"{"format_version": "1.2", "resource_changes": null}"#;
        assert!(find(&none[..], "/").unwrap().is_empty());
        find(&json.as_bytes()[..json.len() - 2], "/").unwrap_err();
    }
}
