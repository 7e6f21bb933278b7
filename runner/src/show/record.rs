//! `run.json` as people see it. Every field may be missing or of another type: the document may be of another version of
//! the runner.

use datastore_api::json::Plain;
use datastore_api::key::{AttemptFiles, Live};
use datastore_api::{Attempt, Client, ClientError, File, PlanFormat, RunKey};
use jiff::Timestamp;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value};

use crate::basis::place::PlanPlace;
use crate::process::text::one_line;
use crate::report::{Counts, EarlierApply, StateReport};
use crate::run::artifacts::{APPLIED, LEDGER, MAX_REPORT, REPORT, other};
use crate::show::terminal::colours::Style;
use crate::show::terminal::table::Cell;

/// A longer short text is not read.
const MAX_SHORT: usize = 64 << 10;

/// The fields of `run.json` that are shown.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Record {
    pub(super) version: Option<u64>,
    pub(super) action: Option<String>,
    pub(super) outcome: Option<String>,
    pub(super) exit: Option<i64>,
    pub(super) class: Option<String>,
    pub(super) message: Option<String>,
    #[serde(deserialize_with = "list")]
    pub(super) errors: Vec<Reported>,
    pub(super) next: Option<String>,
    #[serde(deserialize_with = "object")]
    pub(super) tool: Option<Program>,
    #[serde(deserialize_with = "object")]
    pub(super) terragrunt: Option<Program>,
    pub(super) revision: Option<String>,
    #[serde(deserialize_with = "object")]
    pub(super) plan: Option<Plan>,
    pub(super) lock_file_sha256: Option<String>,
    pub(super) configuration_sha256: Option<String>,
    pub(super) place: Option<PlanPlace>,
    pub(super) directory: Option<String>,
    pub(super) backend: Option<Plain>,
    pub(super) mocks: Vec<String>,
    pub(super) bound: bool,
    pub(super) applied: Option<String>,
    pub(super) applied_before: Option<EarlierApply>,
    #[serde(deserialize_with = "object")]
    pub(super) state: Option<StateReport>,
    pub(super) started: Option<Timestamp>,
    #[serde(deserialize_with = "list")]
    pub(super) steps: Vec<Step>,
}

/// Reads the fields of an object; those of another type have their defaults. `None`: it is no object.
fn fields<T: DeserializeOwned>(value: Value) -> Option<T> {
    let Value::Object(fields) = value else { return None };
    let is_known = |(name, value): &(String, Value)| {
        let alone = Map::from_iter([(name.clone(), value.clone())]);
        T::deserialize(Value::Object(alone)).is_ok()
    };
    T::deserialize(Value::Object(fields.into_iter().filter(is_known).collect())).ok()
}

fn object<'de, D: Deserializer<'de>, T: DeserializeOwned>(from: D) -> Result<Option<T>, D::Error> {
    Plain::deserialize(from).map(|Plain(value)| fields(value))
}

fn list<'de, D: Deserializer<'de>, T: DeserializeOwned>(from: D) -> Result<Vec<T>, D::Error> {
    let Plain(Value::Array(values)) = Plain::deserialize(from)? else { return Ok(Vec::new()) };
    Ok(values.into_iter().filter_map(fields).collect())
}

/// An error of the tool.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Reported {
    pub(super) summary: String,
    pub(super) file: Option<String>,
    pub(super) line: Option<u64>,
}

/// A program that ran.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Program {
    pub(super) name: String,
    pub(super) version: String,
    pub(super) sha256: Option<String>,
}

/// The plan that was made or applied.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Plan {
    pub(super) sha256: Option<String>,
    pub(super) run: Option<String>,
    pub(super) attempt: Option<Attempt>,
    pub(super) counts: Option<Counts>,
}

/// A step and its duration.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Step {
    pub(super) name: String,
    pub(super) seconds: f64,
    pub(super) exit: i64,
}

/// What is known of an attempt.
#[derive(Clone, Debug)]
pub(super) enum Known {
    /// Its `run.json`, and the same as it was stored.
    Record(Box<Record>, Value),
    /// It has a `run.json` that cannot be read.
    Unreadable,
    /// It has files, but no `run.json`. Burrito's own runner stores none.
    NoRecord(Box<Record>),
    /// It has no files, or only the ledger of an apply: its runner works now or was killed.
    Claimed,
    /// It has only a log that grows, and perhaps a ledger.
    Live(Live),
}

impl Known {
    /// What is known of the attempt, whichever file it is from.
    pub(super) fn record(&self) -> Option<&Record> {
        match self {
            Self::Record(record, _) | Self::NoRecord(record) => Some(record),
            Self::Unreadable | Self::Claimed | Self::Live(_) => None,
        }
    }

    /// The outcome in a few words.
    pub(super) fn outcome(&self) -> Cell {
        let record = match self {
            Self::Claimed => return Cell::styled("not finished", Style::Faint),
            Self::Live(Live::Running) => return Cell::styled("running", Style::Yellow),
            Self::Live(Live::Lost) => return Cell::styled("lost", Style::Red),
            Self::Unreadable => return Cell::styled("unreadable report", Style::Red),
            Self::Record(record, _) | Self::NoRecord(record) => record,
        };
        match record.outcome.as_deref() {
            Some("changes") => Cell::styled("changes", Style::Yellow),
            Some("no_changes") => Cell::styled("no changes", Style::Green),
            Some("applied") if let Some(earlier) = &record.applied_before => Cell::styled(
                format!("applied before, by {}", one_line(&earlier.to_string())),
                Style::Green,
            ),
            Some("applied") => Cell::styled("applied", Style::Green),
            Some(outcome @ ("failed" | "interrupted")) => {
                // `unknown` and `interrupted` add nothing to the outcome.
                let class = record.class.as_deref();
                let class = class.filter(|class| !["unknown", outcome].contains(class));
                let class = class.map(|class| format!(" ({})", one_line(class)));
                Cell::styled(format!("{outcome}{}", class.unwrap_or_default()), Style::Red)
            }
            Some(other) => Cell::new(one_line(other)),
            None => Cell::styled("unknown", Style::Faint),
        }
    }

    /// `run.json` as it was stored.
    pub(super) fn json(&self) -> Option<&Value> {
        match self {
            Self::Record(_, json) => Some(json),
            _ => None,
        }
    }
}

impl Record {
    /// The version of its format, if that is a later one than this program knows.
    pub(super) fn later_version(&self) -> Option<u64> {
        self.version.filter(|version| *version > u64::from(crate::report::VERSION))
    }

    /// The counts of the plan, if they are recorded.
    pub(super) fn counts(&self) -> Option<Counts> {
        self.plan.as_ref()?.counts
    }
}

/// Whether an attempt has this file.
pub(super) fn has(files: &AttemptFiles, name: &str) -> bool {
    files.artifacts.iter().any(|file| file.name == name)
}

/// The attempt to show where none was named: the latest with files.
pub(super) fn latest(attempts: &[AttemptFiles]) -> Option<&AttemptFiles> {
    let with_files = attempts.iter().rev().find(|files| !files.artifacts.is_empty());
    with_files.or(attempts.last())
}

/// Reads what is known of an attempt. A file that cannot be read is no error, unless the datastore fails.
pub(super) async fn read(
    client: &Client,
    run: &RunKey,
    files: &AttemptFiles,
) -> Result<Known, ClientError> {
    if files.artifacts.iter().all(|file| file.name == LEDGER) {
        return Ok(Known::Claimed);
    }
    let attempt = files.attempt;
    if let Some(live) = files.live
        && files.artifacts.iter().all(|file| [LEDGER, File::Log.name()].contains(&&*file.name))
    {
        return Ok(Known::Live(live));
    }
    if has(files, REPORT) {
        let json = read_file(client, run, attempt, &other(REPORT), MAX_REPORT).await?;
        let json = json.and_then(|json| serde_json::from_slice::<Plain>(&json).ok());
        let known =
            json.and_then(|Plain(json)| Some(Known::Record(Box::new(fields(json.clone())?), json)));
        return Ok(known.unwrap_or(Known::Unreadable));
    }
    let short = File::Plan(PlanFormat::Short);
    let text = if has(files, short.name()) {
        read_file(client, run, attempt, &short, MAX_SHORT).await?
    } else {
        None
    };
    let text = text.map(|text| String::from_utf8_lossy(&text).into_owned());
    Ok(Known::NoRecord(Box::new(of_short(text.as_deref(), has(files, APPLIED)))))
}

/// A file of an attempt. `None`: it does not exist, or cannot be read.
pub(super) async fn read_file(
    client: &Client,
    run: &RunKey,
    attempt: Attempt,
    file: &File,
    limit: usize,
) -> Result<Option<Vec<u8>>, ClientError> {
    let read = async {
        match client.get_file(run, Some(attempt), file).await? {
            Some(download) => Ok(Some(download.bytes(limit).await?.to_vec())),
            None => Ok(None),
        }
    };
    match read.await {
        Err(error) if !is_of_file(&error) => Err(error),
        Err(error) => {
            tracing::warn!("{} of {run}/{attempt} cannot be read: {error}", file.name());
            Ok(None)
        }
        read => read,
    }
}

/// Whether the error is one of this file, and another file may be readable.
pub(super) fn is_of_file(error: &ClientError) -> bool {
    match error {
        ClientError::Damaged { .. }
        | ClientError::Lost { .. }
        | ClientError::Answer { .. }
        | ClientError::Digest { .. } => true,
        // The token may have no rights for this kind of file.
        ClientError::Refused { status, .. } => status.as_u16() == 403,
        _ => false,
    }
}

/// The outcome and counts of the short text: Burrito's runner stores no other record.
fn of_short(text: Option<&str>, is_applied: bool) -> Record {
    let text = text.unwrap_or_default().trim();
    let record = Record::default();
    if is_applied || text == "Apply Successful" {
        let outcome = Some("applied".to_owned());
        return Record { action: Some("apply".to_owned()), outcome, ..record };
    }
    match counts(text) {
        Some(counts) => {
            let is_empty = counts == Counts::default();
            let outcome = if is_empty { "no_changes" } else { "changes" };
            let plan = Some(Plan { counts: Some(counts), ..Plan::default() });
            let (action, outcome) = (Some("plan".to_owned()), Some(outcome.to_owned()));
            Record { action, outcome, plan, ..record }
        }
        None => Record { message: Some(text.to_owned()).filter(|text| !text.is_empty()), ..record },
    }
}

/// `Plan: 1 to create, 2 to update, 3 to delete`
fn counts(text: &str) -> Option<Counts> {
    let mut parts = text.strip_prefix("Plan: ")?.split(", ");
    let mut count = |what: &str| parts.next()?.strip_suffix(what)?.parse().ok();
    let (create, update) = (count(" to create")?, count(" to update")?);
    Some(Counts { create, update, delete: count(" to delete")? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_text_of_burrito_is_understood() {
        let record = of_short(Some("Plan: 1 to create, 2 to update, 3 to delete"), false);
        assert_eq!(record.outcome.as_deref(), Some("changes"));
        let counts = Counts { create: 1, update: 2, delete: 3 };
        assert_eq!(record.plan.unwrap().counts, Some(counts));
        assert_eq!(Some(counts), super::counts(&counts.to_string()));
        let record = of_short(Some("Plan: 0 to create, 0 to update, 0 to delete"), false);
        assert_eq!(record.outcome.as_deref(), Some("no_changes"));
        assert_eq!(of_short(Some("Apply Successful"), false).action.as_deref(), Some("apply"));
        assert_eq!(of_short(None, true).outcome.as_deref(), Some("applied"));
        let record = of_short(Some("Error: no such version\n"), false);
        assert_eq!(
            (record.outcome, record.message.as_deref()),
            (None, Some("Error: no such version"))
        );
    }

    #[test]
    fn report_of_another_version_is_read() {
        let json = r#"{"version": 9, "outcome": "pondered", "plan": {"counts": null, "new": 1}, "steps": [{}]}"#;
        let record = serde_json::from_str::<Record>(json).unwrap();
        assert_eq!((record.outcome.as_deref(), record.steps.len()), (Some("pondered"), 1));
        assert_eq!(record.later_version(), Some(9));
        assert!(record.started.is_none() && record.plan.unwrap().sha256.is_none());
    }

    #[test]
    fn field_of_another_type_hides_no_other_field() {
        let json = serde_json::json!({
            "outcome": "failed", "exit": "8", "message": "no", "errors": null, "mocks": {"a": 1},
            "started": 0, "plan": {"sha256": "d1", "attempt": "last", "counts": [1, 2, 3]},
            "tool": "terraform", "steps": [{"name": "init", "seconds": null, "exit": 1}, "plan"],
        });
        let record = fields::<Record>(json).unwrap();
        assert_eq!(record.outcome.as_deref(), Some("failed"));
        assert_eq!((record.message.as_deref(), record.exit), (Some("no"), None));
        assert!(record.errors.is_empty() && record.mocks.is_empty() && record.tool.is_none());
        let plan = record.plan.unwrap();
        assert_eq!((plan.sha256.as_deref(), plan.attempt), (Some("d1"), None));
        let [step] = &*record.steps else { panic!("{:?}", record.steps) };
        assert_eq!((&*step.name, step.seconds.to_string().as_str(), step.exit), ("init", "0", 1));
        for json in ["[]", "null", "1", r#""text""#] {
            assert!(fields::<Record>(serde_json::from_str(json).unwrap()).is_none(), "{json}");
        }
    }
}
