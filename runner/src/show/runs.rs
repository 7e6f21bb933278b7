//! `runner runs`: a layer's runs, newest first, each with its latest attempt.

use datastore_api::key::RunInfo;
use datastore_api::{Attempt, Client, Name, RunKey};
use futures::stream::{self, StreamExt as _, TryStreamExt as _};
use jiff::Timestamp;
use serde::Serialize;

use crate::cli::{Environment, RunsArgs};
use crate::order::lookup::{find_datastore, find_layer};
use crate::process::text::{json, one_line};
use crate::report::{Counts, EarlierApply};
use crate::show::error::ShowError;
use crate::show::record::{Known, Program, Record, latest, read};
use crate::show::terminal::colours::{Colours, Style};
use crate::show::terminal::screen::{Screen, with_screen};
use crate::show::terminal::table::{Cell, aligned};
use crate::show::time::age;

/// The number of runs that are read at the same time.
const AT_ONCE: usize = 8;

/// A run and its latest attempt.
#[derive(Debug)]
struct Row {
    run: String,
    /// When the datastore got the first file of the newest attempt.
    stored: Option<Timestamp>,
    attempt: Option<Attempt>,
    known: Known,
}

/// A run in the JSON list. What is not known is null.
#[derive(Serialize)]
struct RunJson<'a> {
    namespace: &'a str,
    layer: &'a str,
    run: &'a str,
    attempt: Option<Attempt>,
    started: Option<Timestamp>,
    action: Option<&'a str>,
    outcome: Option<&'a str>,
    exit: Option<i64>,
    class: Option<&'a str>,
    message: Option<&'a str>,
    counts: Option<Counts>,
    revision: Option<&'a str>,
    tool: Option<&'a Program>,
    applied: Option<&'a str>,
    applied_before: Option<&'a EarlierApply>,
}

/// Prints the runs of a layer.
pub(crate) async fn runs(args: &RunsArgs, environment: &Environment) -> Result<(), ShowError> {
    let client = find_datastore(&args.common.remote, environment)?;
    let (namespace, layer) = find_layer(&args.common, args.dir.as_deref(), environment).await?;
    let limit = args.limit.get();
    let (listed, has_more) = list(&client, &namespace, &layer, limit).await?;
    let rows = stream::iter(listed)
        .map(|run| read_row(&client, &namespace, &layer, run))
        .buffered(AT_ONCE)
        .try_collect::<Vec<_>>()
        .await?;
    if rows.is_empty() && !args.json {
        tracing::info!("layer {namespace}/{layer} has no runs in this datastore");
        return Ok(());
    }
    with_screen(environment, args.common.no_pager, async |screen: &mut Screen| {
        let text = if args.json {
            let rows = rows.iter().map(|row| row.to_json(&namespace, &layer)).collect::<Vec<_>>();
            json(&rows).map_err(std::io::Error::from)?
        } else {
            table(&rows, screen.colours(), Timestamp::now())
        };
        screen.write(&text).await
    })
    .await?;
    let unknown = rows.iter().filter_map(|row| row.known.record()?.later_version());
    if let Some(version) = unknown.max() {
        tracing::warn!(
            "reports of version {version} are listed, of which this runner does not know all: update it"
        );
    }
    if has_more && !args.json {
        tracing::info!("there are older runs: --limit prints more than {limit}");
    }
    Ok(())
}

/// The newest runs, at most `limit`, and whether there are more.
async fn list(
    client: &Client,
    namespace: &Name,
    layer: &Name,
    limit: usize,
) -> Result<(Vec<RunInfo>, bool), ShowError> {
    let (mut listed, mut cursor) = (Vec::new(), None);
    loop {
        let page = client.runs(namespace, layer, cursor.as_deref()).await?;
        listed.extend(page.runs);
        if listed.len() > limit || page.next.is_none() {
            let has_more = listed.len() > limit;
            listed.truncate(limit);
            return Ok((listed, has_more));
        }
        cursor = page.next;
    }
}

async fn read_row(
    client: &Client,
    namespace: &Name,
    layer: &Name,
    info: RunInfo,
) -> Result<Row, ShowError> {
    let stored = info.started.parse().ok();
    let (namespace, layer) = (namespace.clone(), layer.clone());
    let mut row = Row { run: info.run, stored, attempt: None, known: Known::Unreadable };
    // A name that no run can have is shown all the same.
    let Ok(run) = row.run.parse() else { return Ok(row) };
    let run = RunKey { namespace, layer, run };
    let attempts = client.attempts(&run).await?.attempts;
    let Some(files) = latest(&attempts) else {
        // The datastore lists a run before its first file.
        row.known = Known::Claimed;
        return Ok(row);
    };
    row.attempt = Some(files.attempt);
    row.known = read(client, &run, files).await?;
    Ok(row)
}

impl Row {
    fn started(&self) -> Option<Timestamp> {
        self.known.record().and_then(|record| record.started).or(self.stored)
    }

    fn to_json<'a>(&'a self, namespace: &'a Name, layer: &'a Name) -> RunJson<'a> {
        let record = self.known.record();
        let text = |field: fn(&Record) -> &Option<String>| record.and_then(|r| field(r).as_deref());
        RunJson {
            namespace: namespace.as_ref(),
            layer: layer.as_ref(),
            run: &self.run,
            attempt: self.attempt,
            started: self.started(),
            action: text(|record| &record.action),
            outcome: text(|record| &record.outcome),
            exit: record.and_then(|record| record.exit),
            class: text(|record| &record.class),
            message: text(|record| &record.message),
            counts: record.and_then(Record::counts),
            revision: text(|record| &record.revision),
            tool: record.and_then(|record| record.tool.as_ref()),
            applied: text(|record| &record.applied),
            applied_before: record.and_then(|record| record.applied_before.as_ref()),
        }
    }

    fn cells(&self, now: Timestamp) -> [Cell; 6] {
        let record = self.known.record();
        let text =
            |text: Option<&String>| Cell::new(text.map(|text| one_line(text)).unwrap_or_default());
        let run = match self.attempt {
            Some(attempt) => format!("{}/{attempt}", one_line(&self.run)),
            None => one_line(&self.run),
        };
        let revision = record.and_then(|record| record.revision.as_deref()).map(short_revision);
        let counts = record.and_then(Record::counts);
        [
            Cell::styled(run, Style::Yellow),
            text(record.and_then(|record| record.action.as_ref())),
            self.known.outcome(),
            Cell::new(counts.map(short_counts).unwrap_or_default()),
            Cell::new(revision.unwrap_or_default()),
            Cell::styled(
                self.started().map(|time| age(time, now)).unwrap_or_default(),
                Style::Faint,
            ),
        ]
    }
}

fn table(rows: &[Row], colours: Colours, now: Timestamp) -> String {
    let rows = rows.iter().map(|row| row.cells(now)).collect::<Vec<_>>();
    aligned(["RUN", "ACTION", "OUTCOME", "CHANGES", "REVISION", "STARTED"], &rows, colours)
}

/// `+1 ~2 -3`
fn short_counts(counts: Counts) -> String {
    let Counts { create, update, delete } = counts;
    format!("+{create} ~{update} -{delete}")
}

/// The first characters of a commit, and whether files differed from it.
fn short_revision(revision: &str) -> String {
    let revision = one_line(revision);
    let (commit, dirty) = match revision.strip_suffix("-dirty") {
        Some(commit) => (commit, "-dirty"),
        None => (&*revision, ""),
    };
    format!("{}{dirty}", commit.chars().take(8).collect::<String>())
}

#[cfg(test)]
mod tests {
    use datastore_api::key::Live;

    use super::*;

    #[test]
    fn table_shows_what_is_known_of_each_run() {
        let now = "2026-11-22T10:00:00Z".parse().unwrap();
        let record = |json: serde_json::Value| {
            let record = serde_json::from_value::<Record>(json.clone()).unwrap();
            Known::Record(Box::new(record), json)
        };
        let row = |run: &str, attempt, known| Row {
            run: run.to_owned(),
            stored: "2026-11-22T09:00:00Z".parse().ok(),
            attempt,
            known,
        };
        let planned = serde_json::json!({
            "action": "plan", "outcome": "changes", "started": "2026-11-22T09:57:00Z",
            "revision": "0123456789abcdef-dirty", "plan": {"counts": {"create": 1, "update": 20, "delete": 0}},
        });
        let failed = serde_json::json!({"action": "apply", "outcome": "failed", "class": "lock"});
        let rows = [
            row("vpc-plan-x4k2q", Some(Attempt(1)), record(planned)),
            row("vpc-apply-1", Some(Attempt(0)), record(failed)),
            row("new", Some(Attempt(0)), Known::Claimed),
            row("now", Some(Attempt(0)), Known::Live(Live::Running)),
            row("killed", Some(Attempt(2)), Known::Live(Live::Lost)),
            row("b\u{1b}[2Jad", None, Known::Unreadable),
        ];
        insta::assert_snapshot!(table(&rows, Colours(false), now), @r"
        RUN               ACTION  OUTCOME            CHANGES    REVISION        STARTED
        vpc-plan-x4k2q/1  plan    changes            +1 ~20 -0  01234567-dirty  3 minutes ago
        vpc-apply-1/0     apply   failed (lock)                                 1 hour ago
        new/0                     not finished                                  1 hour ago
        now/0                     running                                       1 hour ago
        killed/2                  lost                                          1 hour ago
        b^[[2Jad                  unreadable report                             1 hour ago
        ");
    }
}
