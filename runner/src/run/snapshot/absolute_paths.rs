//! Finds the values of a plan that contain the absolute path of the directory in which it was made. In another directory
//! they would be wrong. Only their names are returned: the values may be secret.
//!
//! The output of `show -json` is read once, as a stream. Memory grows with the largest resource.

use std::fmt;
use std::io::Read;

use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::Value;

/// At most as many names are returned.
const MAX_FOUND: usize = 20;

/// The names of planned values that contain `directory`: `ADDRESS.ATTRIBUTE` of resources that change, and `output.NAME`.
pub(super) fn find(json: impl Read, directory: &str) -> Result<Vec<String>, serde_json::Error> {
    let mut search = Search { directory, found: Vec::new() };
    let mut json = serde_json::Deserializer::from_reader(std::io::BufReader::new(json));
    Part::Document.of(&mut search).deserialize(&mut json)?;
    search.found.truncate(MAX_FOUND);
    Ok(search.found)
}

struct Search<'a> {
    directory: &'a str,
    found: Vec<String>,
}

impl Search<'_> {
    fn change(&mut self, name: &str, change: &Change) {
        if change.actions.iter().any(|action| !matches!(&**action, "no-op" | "read")) {
            self.value(name, &change.after);
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

#[derive(Deserialize)]
struct ResourceChange {
    #[serde(default)]
    address: String,
    change: Change,
}

#[derive(Deserialize)]
struct Change {
    #[serde(default)]
    actions: Vec<String>,
    #[serde(default)]
    after: Value,
}

/// The parts of the document that are searched.
#[derive(Clone, Copy)]
enum Part {
    Document,
    Resources,
    Outputs,
}

impl Part {
    fn of<'a, 's>(self, search: &'a mut Search<'s>) -> Reader<'a, 's> {
        Reader { part: self, search }
    }
}

struct Reader<'a, 's> {
    part: Part,
    search: &'a mut Search<'s>,
}

impl<'de> DeserializeSeed<'de> for Reader<'_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Reader<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a plan as JSON")
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        while let Some(ResourceChange { address, change }) = list.next_element()? {
            self.search.change(&address, &change);
        }
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(key) = map.next_key::<String>()? {
            match (self.part, key.as_str()) {
                (Part::Document, "resource_changes") => {
                    map.next_value_seed(Part::Resources.of(self.search))?;
                }
                (Part::Document, "output_changes") => {
                    map.next_value_seed(Part::Outputs.of(self.search))?;
                }
                (Part::Outputs, name) => {
                    let change = map.next_value::<Change>()?;
                    self.search.change(&format!("output.{name}"), &change);
                }
                _ => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        Ok(())
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
        assert!(find(&br#"{"resource_changes": null}"#[..], "/").unwrap().is_empty());
        find(&json.as_bytes()[..json.len() - 2], "/").unwrap_err();
    }
}
