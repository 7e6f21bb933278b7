//! The ID with which an existing resource is imported: exactly the one that the error names, or none.

use regex::bytes::Captures;

use crate::process::redact::is_masked;
use crate::process::text::is_visible;
use crate::tool::diagnosis::rule_file::{ImportId, Rule, groups};
use crate::tool::diagnostics::Diagnostic;

/// The import ID that an error names, if the rule knows that it is the ID of this very resource.
pub(super) fn exact(rule: &Rule, error: &Diagnostic, text: &str) -> Option<String> {
    let (import, found) = of_resource(rule, error, text)?;
    let id = match &import.format {
        None => unquoted(&group(&found, "id")?)?,
        Some(format) => {
            // Part of the ID is missing where an optional group matches nothing.
            if groups(format).into_iter().any(|name| found.name(name).is_none()) {
                return None;
            }
            let mut id = Vec::new();
            found.expand(format.as_bytes(), &mut id);
            String::from_utf8(id).ok()?
        }
    };
    let is_complete = !id.is_empty() && id.chars().all(|c| is_visible(c) && c != '\u{2026}');
    (is_complete && !is_masked(&id)).then_some(id)
}

/// How the import ID follows from the planned values of the resource, if the rule knows that.
pub(super) fn planned(rule: &Rule, error: &Diagnostic, text: &str) -> Option<String> {
    of_resource(rule, error, text)?.0.planned.clone()
}

/// What the rule says of import IDs, if that is for resources of this type.
fn of_resource<'a, 't>(
    rule: &'a Rule,
    error: &Diagnostic,
    text: &'t str,
) -> Option<(&'a ImportId, Captures<'t>)> {
    let import = rule.import_id.as_ref()?;
    let found = rule.regex.captures(text.as_bytes())?;
    let kind = error.resource_type();
    // The message names a type, which must not be another one.
    let is_of = match group(&found, "type") {
        Some(named) => kind.is_none_or(|kind| kind == named) && import.is_of(&named),
        None => kind.map_or(import.types.is_empty(), |kind| import.is_of(&kind)),
    };
    is_of.then_some((import, found))
}

impl ImportId {
    /// Whether it names this type, and is not that of all types.
    pub(super) fn names(&self, kind: &str) -> bool {
        !self.types.is_empty() && self.is_of(kind)
    }

    /// Whether this is the import ID of resources of a type.
    fn is_of(&self, kind: &str) -> bool {
        let matches = |pattern: &String| match pattern.strip_suffix('*') {
            Some(start) => kind.starts_with(start),
            None => kind == pattern,
        };
        (self.types.is_empty() || self.types.iter().any(matches))
            && !self.not_types.iter().any(matches)
    }
}

fn group(found: &Captures<'_>, name: &str) -> Option<String> {
    String::from_utf8(found.name(name)?.as_bytes().to_vec()).ok()
}

/// A text without the escapes that Go writes within quotes. `None` for one that this function does not know.
fn unquoted(text: &str) -> Option<String> {
    let (mut plain, mut chars) = (String::new(), text.chars());
    while let Some(c) = chars.next() {
        plain.push(match c {
            '\\' => match chars.next()? {
                c @ ('"' | '\\' | '\'') => c,
                'u' => {
                    let digits = chars.by_ref().take(4).collect::<String>();
                    char::from_u32(u32::from_str_radix(&digits, 16).ok()?)?
                }
                _ => return None,
            },
            c => c,
        });
    }
    Some(plain)
}

/// A configuration that imports the resource. Without an ID it contains a remark.
pub(crate) fn import_block(address: &str, id: Option<&str>) -> String {
    let id = match id {
        Some(id) => {
            let escaped = id.replace('\\', "\\\\").replace('"', "\\\"");
            format!("\"{}\"", escaped.replace("${", "$${").replace("%{", "%%{"))
        }
        None => "\"\" # the error does not name it".to_owned(),
    };
    format!("import {{\n  to = {address}\n  id = {id}\n}}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_written_as_hcl_and_read_as_go_writes_it() {
        assert_eq!(
            import_block("a_b.c[\"d\"]", Some("x\"${y}\\")),
            "import {\n  to = a_b.c[\"d\"]\n  id = \"x\\\"$${y}\\\\\"\n}"
        );
        assert!(import_block("a_b.c", None).contains("# the error does not name it"));
        for (text, plain) in [
            ("/a/b", Some("/a/b")),
            ("a\\\"b\\\\", Some("a\"b\\")),
            ("a\\u00e9", Some("a\u{e9}")),
            ("a\\x00", None),
            ("a\\", None),
        ] {
            assert_eq!(unquoted(text).as_deref(), plain, "{text}");
        }
    }
}
