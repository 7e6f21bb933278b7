//! The facts of an attempt, one on each line.

use std::fmt::Write as _;

use datastore_api::json::PlainObject;
use jiff::Timestamp;
use serde::{Serialize, Serializer};
use serde_json::Value;

use crate::process::text::one_line;
use crate::report::ledger::Ledger;
use crate::report::{AppliedRecord, Counts};
use crate::show::ledger;
use crate::show::record::{Known, Program, Record};
use crate::show::signature::Signature;
use crate::show::target::Target;
use crate::show::terminal::colours::{Colours, Style};
use crate::show::time::{age, duration, in_utc};

/// A header shows no more errors of the tool.
const SHOWN_ERRORS: usize = 20;

/// Whether a plan was applied.
#[derive(Debug, Serialize)]
#[serde(untagged)]
pub(super) enum Applied {
    /// The record of its apply.
    Yes(Value),
    /// The record waits on this machine; the command that sends it.
    Unsent(#[serde(serialize_with = "record_of")] (Value, String)),
    No,
    Unknown,
}

impl Applied {
    /// Reads the record of an apply. A damaged one is of an apply, too.
    pub(super) fn parse(record: &[u8]) -> Self {
        let PlainObject(record) = serde_json::from_slice(record).unwrap_or_default();
        Self::Yes(Value::Object(record))
    }

    /// A record that the datastore does not have yet.
    pub(super) fn unsent(record: &AppliedRecord, command: String) -> Self {
        match Self::parse(record.to_json().as_bytes()) {
            Self::Yes(record) => Self::Unsent((record, command)),
            other => other,
        }
    }

    pub(super) fn is_unknown(&self) -> bool {
        matches!(self, Self::Unknown)
    }

    /// The run that applied it, and when.
    fn describe(&self, when: impl Fn(Timestamp) -> String) -> String {
        let (record, command) = match self {
            Self::Yes(record) => (record, None),
            Self::Unsent((record, command)) => (record, Some(command)),
            Self::No => return "no".to_owned(),
            Self::Unknown => return String::new(),
        };
        let run = record["run"].as_str().unwrap_or("an unknown run");
        let attempt = record["attempt"].as_u64().map(|attempt| format!("/{attempt}"));
        let at = record["at"].as_str().and_then(|at| at.parse().ok());
        let at = at.map(|at| format!(", {}", when(at)));
        let by = format!("by {run}{}{}", attempt.unwrap_or_default(), at.unwrap_or_default());
        match command {
            None => by,
            Some(command) => format!("{by}; its record is not sent yet: `{command}`"),
        }
    }
}

/// Only the record: the command is for people.
fn record_of<S: Serializer>((record, _): &(Value, String), to: S) -> Result<S::Ok, S::Error> {
    record.serialize(to)
}

/// Lines of a label and a value. Values are cleaned.
struct Lines {
    text: String,
    colours: Colours,
}

impl Lines {
    fn add(&mut self, label: &str, value: impl AsRef<str>) {
        let value = one_line(value.as_ref());
        if !value.is_empty() {
            self.add_clean(label, &value);
        }
    }

    /// Adds a value that is clean, and may have colours.
    fn add_clean(&mut self, label: &str, value: &str) {
        let label = self.colours.paint(Style::Faint, &format!("{label:<15}"));
        // A `String` is always writable.
        let _ = writeln!(self.text, "{label}{value}");
    }
}

/// The facts of an attempt.
pub(super) fn header(
    target: &Target,
    known: &Known,
    (applied, signature, ledger): (&Applied, &Signature, Option<&Ledger>),
    colours: Colours,
    now: Timestamp,
) -> String {
    let Target { run, files, attempts, unsent, .. } = target;
    let action = known.record().and_then(|record| record.action.as_deref());
    let action = action.map(|action| format!(" ({})", one_line(action))).unwrap_or_default();
    let title = format!("run {}/{}{action}", one_line(run.run.as_ref()), files.attempt);
    let mut lines = Lines { text: colours.paint(Style::Yellow, &title) + "\n", colours };
    lines.add("Layer:", format!("{}/{}", run.namespace, run.layer));
    let outcome = known.outcome();
    let mut text = outcome
        .style
        .map_or_else(|| outcome.text.clone(), |style| colours.paint(style, &outcome.text));
    if let Some(counts) = known.record().and_then(Record::counts) {
        let Counts { create, update, delete } = counts;
        let _ = if known.record().is_some_and(|record| record.outcome.as_deref() == Some("applied"))
        {
            write!(text, ": {create} created, {update} updated, {delete} deleted")
        } else {
            write!(text, ": {create} to create, {update} to update, {delete} to delete")
        };
    }
    lines.add_clean("Outcome:", &text);
    let unfinished = ledger.and_then(|ledger| ledger::describe(ledger, known.record().is_some()));
    lines.add("Unfinished:", unfinished.unwrap_or_default());
    if let Some(record) = known.record() {
        describe(record, applied, &mut lines, now);
    }
    lines.add("Signature:", signature.describe());
    if attempts.len() > 1 {
        let all = attempts.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        lines.add("Attempts:", format!("{all} (this is {})", files.attempt));
    }
    let files = files.artifacts.iter().map(|file| format!("{} ({})", file.name, size(file.size)));
    let unsent =
        unsent.as_ref().map(|command| format!("files wait here; send them with `{command}`"));
    lines.add("Unsent:", unsent.unwrap_or_default());
    lines.add("Files:", files.collect::<Vec<_>>().join(", "));
    lines.text
}

fn describe(record: &Record, applied: &Applied, lines: &mut Lines, now: Timestamp) {
    if let Some(version) = record.later_version() {
        lines.add(
            "Report:",
            format!("version {version}, of which this runner does not know all: update it"),
        );
    }
    let when = |time: Timestamp| format!("{} ({})", in_utc(time), age(time, now));
    if let Some(message) = &record.message {
        let errors = record.errors.iter().skip(1).take(SHOWN_ERRORS);
        lines.add("Error:", message);
        for error in errors {
            let line = error.line.map(|line| format!(":{line}")).unwrap_or_default();
            let place = error.file.as_ref().map(|file| format!(" ({file}{line})"));
            lines.add("  also:", format!("{}{}", error.summary, place.unwrap_or_default()));
        }
        let more = record.errors.len().saturating_sub(1 + SHOWN_ERRORS);
        if more > 0 {
            lines.add("  also:", format!("{more} more"));
        }
    }
    lines.add("Next:", record.next.as_deref().unwrap_or_default());
    if let Some(started) = record.started {
        lines.add("Started:", when(started));
    }
    lines.add("Took:", steps(record));
    lines.add("Tool:", record.tool.as_ref().map(program).unwrap_or_default());
    lines.add("Terragrunt:", record.terragrunt.as_ref().map(program).unwrap_or_default());
    lines.add("Revision:", record.revision.as_deref().unwrap_or_default());
    if let Some(place) = &record.place {
        lines.add("Repository:", place.repository.as_deref().unwrap_or_default());
        lines.add("Path:", place.shown_path().unwrap_or_default());
        lines.add("Workspace:", place.workspace.as_deref().unwrap_or_default());
    }
    lines.add("Directory:", record.directory.as_deref().unwrap_or_default());
    lines.add("Backend:", record.backend.as_deref().map(backend).unwrap_or_default());
    lines.add("State:", record.state.as_ref().map(ToString::to_string).unwrap_or_default());
    lines.add("Mock outputs:", record.mocks.join(", "));
    if let Some(plan) = &record.plan {
        lines.add(
            "Plan:",
            plan.sha256.as_ref().map(|digest| format!("sha256:{digest}")).unwrap_or_default(),
        );
        // Of the attempts of a destroy, that of the plan has a binding.
        let is_apply = match record.action.as_deref() {
            Some("apply") => true,
            Some("destroy") => !record.bound,
            _ => false,
        };
        if is_apply {
            let attempt = plan.attempt.map(|attempt| format!("/{attempt}")).unwrap_or_default();
            let made_by = plan.run.as_ref().map(|run| format!("{run}{attempt}"));
            lines.add("Planned by:", made_by.unwrap_or_default());
        } else {
            lines.add("Applied:", applied.describe(when));
        }
    }
    let digest = |of: &Option<String>| of.as_ref().map(|digest| format!("sha256:{digest}"));
    lines.add("Lock file:", digest(&record.lock_file_sha256).unwrap_or_default());
    lines.add("Configuration:", digest(&record.configuration_sha256).unwrap_or_default());
}

/// All steps together, and each of them.
fn steps(record: &Record) -> String {
    if record.steps.is_empty() {
        return String::new();
    }
    let total = record.steps.iter().map(|step| step.seconds).sum::<f64>();
    let each = record.steps.iter().map(|step| {
        let exit =
            if step.exit == 0 { String::new() } else { format!(", exit code {}", step.exit) };
        format!("{} {}{exit}", step.name, duration(step.seconds))
    });
    format!("{} ({})", duration(total), each.collect::<Vec<_>>().join(", "))
}

fn program(program: &Program) -> String {
    let Program { name, version, sha256 } = program;
    let digest = sha256.as_ref().map(|digest| format!(" (sha256:{digest})")).unwrap_or_default();
    format!("{name} {version}{digest}")
}

/// The type of a backend, and what identifies the state.
fn backend(backend: &Value) -> String {
    let Some(fields) = backend.as_object() else { return String::new() };
    let mut kind = String::new();
    let mut facts = Vec::new();
    for (name, value) in fields {
        match value {
            Value::String(text) if name == "type" => kind.clone_from(text),
            Value::String(text) if !text.is_empty() => facts.push(format!("{name} {text}")),
            _ => {}
        }
    }
    if facts.is_empty() { kind } else { format!("{kind}: {}", facts.join(", ")) }
}

/// A size: `812 B`, `4.2 KiB`, `3.0 MiB`.
fn size(bytes: u64) -> String {
    #[expect(clippy::cast_precision_loss, reason = "it is rounded to a tenth anyway")]
    let number = bytes as f64;
    match bytes {
        0..1024 => format!("{bytes} B"),
        1024..1_048_576 => format!("{:.1} KiB", number / 1024.0),
        1_048_576..1_073_741_824 => format!("{:.1} MiB", number / 1_048_576.0),
        _ => format!("{:.1} GiB", number / 1_073_741_824.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_missing_record_denies_an_apply() {
        let json = |applied: &Applied| serde_json::to_value(applied).unwrap();
        assert_eq!(Applied::No.describe(in_utc), "no");
        assert!(json(&Applied::No).is_null() && !Applied::No.is_unknown());
        assert_eq!(Applied::Unknown.describe(in_utc), "");
        let record = Applied::parse(br#"{"run": "a", "attempt": 1}"#);
        assert_eq!(record.describe(in_utc), "by a/1");
        assert_eq!(json(&record)["run"], "a");
        for damaged in [&b"not json"[..], b"", b"null", b"[1]"] {
            let record = Applied::parse(damaged);
            assert_eq!(record.describe(in_utc), "by an unknown run");
            assert!(json(&record).is_object(), "{record:?}");
        }
    }

    #[test]
    fn errors_that_are_not_shown_are_counted() {
        let errors = (0..30).map(|n| serde_json::json!({"summary": format!("error {n}")}));
        let json = serde_json::json!({"message": "error 0", "errors": errors.collect::<Vec<_>>()});
        let record = serde_json::from_value::<Record>(json).unwrap();
        let mut lines = Lines { text: String::new(), colours: Colours(false) };
        describe(&record, &Applied::Unknown, &mut lines, Timestamp::now());
        assert!(lines.text.contains("error 20\n") && !lines.text.contains("error 21"));
        assert!(lines.text.contains("  also:        9 more\n"), "{}", lines.text);
    }
}
