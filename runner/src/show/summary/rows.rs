//! The table of a plan's changes: addresses and actions, never values.

use std::fmt::Write as _;

use serde::de::IgnoredAny;

use crate::process::redact::Redaction;
use crate::run::plan::summary::{Changed, Collector};
use crate::show::summary::markdown::cell;

/// No more bytes of rows are kept in memory.
const MAX_ROWS: usize = 1 << 20;
const HEAD: &str = "| Address | Action |\n|---|---|\n";

/// The rows of the table.
#[derive(Debug, Default)]
pub(super) struct Rows {
    lines: Vec<String>,
    bytes: usize,
    /// The number of all changes.
    total: usize,
    /// An address may have a secret as a key. In Markdown it would be escaped.
    redaction: Redaction,
}

impl Collector for Rows {
    type After = IgnoredAny;
    type Rest = IgnoredAny;

    fn add(&mut self, changed: Changed) {
        let Some(action) = action(&changed, &self.redaction) else { return };
        self.total += 1;
        let address = changed.address.as_deref().unwrap_or("unknown");
        let deposed = changed.deposed.as_ref().map(|key| format!(" (deposed object {key})"));
        let address = self.redaction.text(&format!("{address}{}", deposed.unwrap_or_default()));
        let address = cell(&address);
        self.push(format!("| {address} | {action} |\n"));
    }
}

impl Rows {
    /// No rows yet. These secrets are masked in them.
    pub(super) fn new(redaction: &Redaction) -> Self {
        Self { redaction: redaction.clone(), ..Self::default() }
    }

    fn push(&mut self, row: String) {
        if self.bytes + row.len() <= MAX_ROWS {
            self.bytes += row.len();
            self.lines.push(row);
        }
    }

    /// Adds the changes of outputs.
    pub(super) fn with_outputs(mut self, outputs: Self) -> Self {
        self.total += outputs.total;
        for row in outputs.lines {
            self.push(row.replacen("<code>", "output <code>", 1));
        }
        self
    }

    /// The table of at most `room` bytes, empty if there is nothing to show.
    pub(super) fn table(&self, room: usize) -> String {
        const NOTE: usize = 60;
        if self.lines.is_empty() || room < HEAD.len() + NOTE {
            return String::new();
        }
        let mut table = HEAD.to_owned();
        let mut listed = 0;
        for row in &self.lines {
            if table.len() + row.len() + NOTE > room {
                break;
            }
            table.push_str(row);
            listed += 1;
        }
        if listed < self.total {
            // A `String` is always writable.
            let _ = writeln!(table, "\nand {} more changes", self.total - listed);
        }
        table.push('\n');
        table
    }
}

/// What is done, in a few words. `None`: nothing is changed.
fn action(changed: &Changed, redaction: &Redaction) -> Option<String> {
    let actions = changed.change.actions.iter().map(String::as_str).collect::<Vec<_>>();
    let mut words = Vec::new();
    if changed.change.is_import() {
        words.push("import".to_owned());
    }
    if let Some(previous) = changed.moved_from() {
        words.push(format!("move from {}", cell(&redaction.text(previous))));
    }
    match actions.as_slice() {
        [] | ["no-op" | "read"] => {}
        ["delete", "create"] => words.push("replace".to_owned()),
        ["create", "delete"] => words.push("replace, create first".to_owned()),
        [action @ ("create" | "update" | "delete" | "forget")] => words.push((*action).to_owned()),
        others => words.push(cell(&others.join(", "))),
    }
    (!words.is_empty()).then(|| words.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::plan::summary::{ChangesOf, read};

    fn rows(json: &str) -> Rows {
        let ChangesOf { resources, outputs, .. } = read::<Rows>(json.as_bytes()).unwrap();
        resources.with_outputs(outputs)
    }

    #[test]
    fn table_names_addresses_and_actions_but_no_values() {
        let rows = rows(
            r#"{"format_version": "1.2", "resource_changes": [
                {"address": "a.b[\"x|`\"]", "change": {"actions": ["create"], "after": {"password": "hunter2"}}},
                {"address": "a.r", "change": {"actions": ["delete", "create"]}},
                {"address": "a.c", "change": {"actions": ["create", "delete"]}},
                {"address": "a.n", "change": {"actions": ["no-op"]}},
                {"address": "data.x.y", "change": {"actions": ["read"]}},
                {"address": "a.new", "previous_address": "a.old", "change": {"actions": ["no-op"]}},
                {"address": "a.i", "change": {"actions": ["update"], "importing": {"id": "hunter2"}}},
                {"address": "a.d", "deposed": "0af1", "change": {"actions": ["delete"]}},
                {"address": "a.f", "change": {"actions": ["ponder|"]}}
            ], "output_changes": {"o": {"actions": ["update"], "after": "hunter2"}, "same": {"actions": ["no-op"]}}}"#,
        );
        insta::assert_snapshot!(rows.table(usize::MAX), @r#"
        | Address | Action |
        |---|---|
        | <code>a.b&#91;"x&#124;&#96;"&#93;</code> | create |
        | <code>a.r</code> | replace |
        | <code>a.c</code> | replace, create first |
        | <code>a.new</code> | move from <code>a.old</code> |
        | <code>a.i</code> | import, update |
        | <code>a.d (deposed object 0af1)</code> | delete |
        | <code>a.f</code> | <code>ponder&#124;</code> |
        | output <code>o</code> | update |
        "#);
    }

    #[test]
    fn long_table_is_cut_with_the_number_of_the_others() {
        let one = r#"{"address": "a.b", "change": {"actions": ["create"]}}"#;
        let all = vec![one; 1000].join(",");
        let rows = rows(&format!(r#"{{"format_version": "1.2", "resource_changes": [{all}]}}"#));
        let table = rows.table(1000);
        assert!(table.len() <= 1000, "{}", table.len());
        let listed = table.matches("a.b").count();
        assert!(
            listed > 20 && table.ends_with(&format!("\n\nand {} more changes\n\n", 1000 - listed)),
            "{table}"
        );
        assert_eq!(rows.table(usize::MAX).matches("a.b").count(), 1000);
        assert_eq!(rows.table(50), "");
    }
}
