//! What `datastore state` prints. It knows no storage.

use std::io::Write;

use datastore_api::state::{Lease, Migration, StateHead, StateVersion, ToolRecord};
use datastore_api::{StateKey, VersionId};
use serde_json::{Value, json};

use crate::cli::error::CommandError;

pub(super) const STATES: &[&str] = &["STATE", "SERIAL", "SIZE", "TIME", "IN USE BY"];
pub(super) const VERSIONS: &[&str] =
    &["VERSION", "KIND", "SERIAL", "LINEAGE", "SIZE", "RESOURCES", "RUN", "TOOL", "TIME", "REASON"];

/// Shown for something that is not known, or that there is none of.
const NONE: &str = "-";
/// How much of a lineage, which is a UUID, is shown in a listing.
const LINEAGE: usize = 8;

/// Prints rows in columns.
pub(super) fn print(
    header: &[&str],
    rows: &[Vec<String>],
    out: &mut impl Write,
) -> Result<(), CommandError> {
    let header = header.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
    let width = |column: usize| {
        let cells = rows.iter().chain([&header]).filter_map(|row| row.get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or_default()
    };
    let widths = (0..header.len()).map(width).collect::<Vec<_>>();
    for row in [&header].into_iter().chain(rows) {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}"));
        writeln!(out, "{}", cells.collect::<Vec<_>>().join("  ").trim_end())?;
    }
    Ok(())
}

pub(super) fn print_json(value: &Value, out: &mut impl Write) -> Result<(), CommandError> {
    Ok(writeln!(out, "{value:#}")?)
}

/// A state in the listing of all states. `last` is the last version also of a deleted one.
pub(super) fn state_row(
    name: &str,
    head: &StateHead,
    last: Option<&StateVersion>,
    lease: Option<&Lease>,
) -> Vec<String> {
    let lock = head.lock.as_ref().map(|lock| format!("lock {}", lock_text(lock)));
    let lease = lease.filter(|lease| lease.valid);
    let lease = lease.map(|lease| format!("lease {}", lease_holder(lease)));
    let in_use = lock.into_iter().chain(lease).collect::<Vec<_>>().join("; ");
    let deleted = head.deleted.as_ref().map(|deleted| format!("deleted {deleted}"));
    let time = deleted.or_else(|| last.map(|version| version.created.clone()));
    vec![
        clean(name),
        shown(last.map(|version| version.serial)),
        shown(last.map(|version| version.size)),
        clean(&shown(time)),
        shown(Some(clean(&in_use)).filter(|text| !text.is_empty())),
    ]
}

/// A version in the listing of a state. The one that is the state has a `*`.
pub(super) fn version_row(version: &StateVersion, present: Option<&VersionId>) -> Vec<String> {
    let is_present = present == Some(&version.version);
    let kind = version.kind.as_str();
    let lineage = version.lineage.chars().take(LINEAGE).collect::<String>();
    let cells = [
        version.version.to_string(),
        if is_present { format!("{kind}*") } else { kind.to_owned() },
        version.serial.to_string(),
        lineage,
        version.size.to_string(),
        shown(version.resources),
        shown(version.run.clone()),
        tool_text(version),
        version.created.clone(),
        version.reason.clone().unwrap_or_default(),
    ];
    cells.map(|cell| clean(&cell)).to_vec()
}

/// A state: its version, and who works with it.
pub(super) fn head(
    key: &StateKey,
    head: &StateHead,
    lease: Result<Option<&Lease>, &String>,
    tool: Option<&ToolRecord>,
    out: &mut impl Write,
) -> Result<(), CommandError> {
    let mut fields = vec![("state", key.to_string())];
    match (&head.version, &head.deleted) {
        (Some(version), _) => fields.extend(version_fields(version)),
        (None, Some(deleted)) => fields.push(("deleted", deleted.clone())),
        (None, None) => fields.push(("version", "none was written yet".to_owned())),
    }
    fields.push(("lock", head.lock.as_ref().map_or_else(|| NONE.to_owned(), lock_text)));
    let lease = match lease {
        Ok(lease) => lease.map_or_else(|| NONE.to_owned(), lease_text),
        Err(reason) => format!("not known: {reason}"),
    };
    fields.push(("lease", lease));
    fields.push(("place", shown(head.place.clone())));
    fields.push(("tool of layer", shown(tool.map(|record| record.tool.to_string()))));
    if let Some(migration) = tool.and_then(|record| record.migrations.get(key.workspace.as_ref())) {
        let Migration { from, to, backup, unfinished, started, .. } = migration;
        let backup = backup.as_ref().map(|backup| format!(", backup {}", backup.version));
        let text = format!("{from} to {to}, began {started}{}", backup.unwrap_or_default());
        fields.push((if *unfinished { "unfinished migration" } else { "migration" }, text));
    }
    print_fields(&fields, out)
}

/// One version of a state.
pub(super) fn version(
    key: &StateKey,
    version: &StateVersion,
    as_json: bool,
    out: &mut impl Write,
) -> Result<(), CommandError> {
    if as_json {
        return print_json(&json!(version), out);
    }
    let mut fields = vec![("state", key.to_string())];
    fields.extend(version_fields(version));
    print_fields(&fields, out)
}

fn version_fields(version: &StateVersion) -> Vec<(&'static str, String)> {
    let resources = match version.resources {
        Some(resources) => resources.to_string(),
        None if version.encrypted => "not known: tofu has encrypted the state".to_owned(),
        None => NONE.to_owned(),
    };
    let mut fields = vec![
        ("version", version.version.to_string()),
        ("kind", version.kind.as_str().to_owned()),
        ("serial", version.serial.to_string()),
        ("lineage", version.lineage.clone()),
        ("generation", version.generation.to_string()),
        ("size", version.size.to_string()),
        ("sha256", version.sha256.to_string()),
        ("resources", resources),
        ("run", shown(version.run.clone())),
        ("tool", tool_text(version)),
        ("caller", shown(version.caller.clone())),
        ("time", version.created.clone()),
    ];
    fields.extend(version.fence.map(|fence| ("fence", fence.to_string())));
    fields.extend(version.reason.clone().map(|reason| ("reason", reason)));
    fields
}

fn print_fields(fields: &[(&str, String)], out: &mut impl Write) -> Result<(), CommandError> {
    for (name, value) in fields {
        writeln!(out, "{name:<14} {}", clean(value))?;
    }
    Ok(())
}

/// The tool that wrote a version: as the writer named it, else as the document does.
fn tool_text(version: &StateVersion) -> String {
    match (&version.tool, &version.terraform_version) {
        (Some(tool), _) => tool.to_string(),
        (None, Some(version)) => version.clone(),
        (None, None) => NONE.to_owned(),
    }
}

fn lock_text(lock: &Value) -> String {
    let text = |name: &str| lock.get(name).and_then(Value::as_str).filter(|text| !text.is_empty());
    let part =
        |name, before: &str| text(name).map(|text| format!("{before}{text}")).unwrap_or_default();
    let fence = lock.get("fence").and_then(Value::as_u64);
    let fence = fence.map(|fence| format!(", under the lease {fence}")).unwrap_or_default();
    let id = text("ID").unwrap_or(NONE);
    let parts = [part("Who", " of "), part("Operation", " for "), part("Created", " since ")];
    format!("{id}{}{fence}", parts.concat())
}

fn lease_holder(lease: &Lease) -> String {
    format!("{} of {} on {}", lease.number, lease.request.holder, lease.request.host)
}

fn lease_text(lease: &Lease) -> String {
    let run = lease.request.run.as_ref().map(|run| format!(" for the run {run}"));
    let until = if lease.valid { "valid until" } else { "expired at" };
    let took_over = lease.took_over.as_ref().map(|dead| format!(", taken over from {dead}"));
    format!(
        "{}{}, {until} {}{}",
        lease_holder(lease),
        run.unwrap_or_default(),
        lease.expires,
        took_over.unwrap_or_default()
    )
}

fn shown<T: ToString>(value: Option<T>) -> String {
    value.map_or_else(|| NONE.to_owned(), |value| value.to_string())
}

/// Others wrote these texts: nothing in them controls a terminal.
pub(super) fn clean(text: &str) -> String {
    text.replace(char::is_control, " ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let rows = [["a/b/default", "7"], ["a/é", "10"]].map(|row| row.map(str::to_owned).to_vec());
        let mut printed = Vec::new();
        print(&["STATE", "SERIAL"], &rows, &mut printed).unwrap();
        insta::assert_snapshot!(String::from_utf8(printed).unwrap(), @r"
        STATE        SERIAL
        a/b/default  7
        a/é          10
        ");
    }

    #[test]
    fn what_others_wrote_does_not_control_the_terminal() {
        let lock = json!({"ID": "x", "Who": "a\u{1b}[2Jb\nc", "Created": "now", "fence": 7});
        let head = StateHead { lock: Some(lock), ..StateHead::default() };
        let row = state_row("a/b/default", &head, None, None);
        assert_eq!(row[4], "lock x of a [2Jb c since now, under the lease 7");
    }
}
