//! The variables that a root module declares as sensitive.

use std::collections::BTreeSet;
use std::path::Path;

use hcl_edit::expr::Expression;
use hcl_edit::structure::Body;
use serde_json::Value;

use crate::tool::file_names::{is_code, is_ignored};
use crate::tool::sensitive::values::text_of;

/// The names of the variables that at least one file of a directory declares as sensitive.
pub(super) fn names(dir: &Path) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for entry in fs_err::read_dir(dir).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let name = name.as_encoded_bytes();
        if !is_code(name) || is_ignored(name) {
            continue;
        }
        // A file that cannot be read is an error of the tool.
        let Some(text) = text_of(&entry.path()) else { continue };
        if name.ends_with(b".json") {
            if let Ok(value) = serde_json::from_str(&text) {
                add_json(&value, &mut names);
            }
        } else {
            match hcl_edit::parser::parse_body(&text) {
                Ok(body) => add_hcl(&body, &mut names),
                Err(_) => add_text(&text, &mut names),
            }
        }
    }
    names
}

fn add_hcl(body: &Body, names: &mut BTreeSet<String>) {
    for block in body.blocks().filter(|block| block.ident.as_str() == "variable") {
        let Some(name) = block.labels.first() else { continue };
        let mut set = block.body.attributes().filter(|set| set.key.as_str() == "sensitive");
        if set.any(|set| is_set(&set.value)) {
            names.insert(name.as_str().to_owned());
        }
    }
}

/// Whether `sensitive` has another value than `false`. Anything but a literal is an error of the tool.
fn is_set(value: &Expression) -> bool {
    match value {
        Expression::Bool(value) => *value.value(),
        Expression::String(text) => text.as_str() != "false",
        Expression::Null(_) => false,
        _ => true,
    }
}

/// Blocks of JSON are objects, or lists of them.
fn add_json(document: &Value, names: &mut BTreeSet<String>) {
    let one_or_more = |value: &Value| match value {
        Value::Array(list) => list.clone(),
        one => vec![one.clone()],
    };
    let blocks = one_or_more(document).into_iter().filter_map(|file| file.get("variable").cloned());
    for variables in blocks.flat_map(|blocks| one_or_more(&blocks)) {
        for (name, bodies) in variables.as_object().into_iter().flatten() {
            let set = |body: &Value| {
                !matches!(body["sensitive"].as_str(), Some("false"))
                    && !matches!(body["sensitive"], Value::Null | Value::Bool(false))
            };
            if one_or_more(bodies).iter().any(set) {
                names.insert(name.clone());
            }
        }
    }
}

/// Code that the parser rejects, and the tool perhaps not. Every declaration counts, up to the next one.
fn add_text(text: &str, names: &mut BTreeSet<String>) {
    for part in text.split("variable").skip(1) {
        let name = part.trim_start().trim_start_matches('"');
        let end = name.find(|c: char| !c.is_alphanumeric() && c != '_' && c != '-');
        let (name, body) = name.split_at(end.unwrap_or_default());
        let is_set = body.match_indices("sensitive").any(|(at, word)| {
            let value = body[at + word.len()..].trim_start().strip_prefix('=');
            value.is_some_and(|value| !value.trim_start().starts_with("false"))
        });
        if !name.is_empty() && is_set {
            names.insert(name.to_owned());
        }
    }
}
