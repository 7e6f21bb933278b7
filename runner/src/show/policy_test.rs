//! `runner policy test`: what a policy says of stored plans, and of plans in files.

use std::fs::File;
use std::io::Write as _;
use std::path::PathBuf;
use std::sync::Arc;

use datastore_api::client::Download;
use datastore_api::key::AttemptFiles;
use datastore_api::{Attempt, Client, File as Stored, Name, PlanFormat, RunKey};
use serde::Serialize;
use tempfile::NamedTempFile;

use crate::cli::{Environment, PolicyTestArgs};
use crate::order::lookup::{find_datastore, find_layer};
use crate::policy::{Evidence, Policy, Verdict};
use crate::process::text::{json, one_line};
use crate::show::error::ShowError;
use crate::show::record::{has, is_of_file};
use crate::show::terminal::colours::{Colours, Style};
use crate::show::terminal::screen::{Screen, with_screen};
use crate::show::terminal::table::{Cell, aligned};

/// How many stored plans are judged, if no number is given.
const LAST: usize = 10;
/// A row of the table names this many reasons.
const SHOWN: usize = 3;

/// A plan that was judged.
#[derive(Debug, Serialize)]
struct Row {
    /// `RUN/ATTEMPT`, or the file.
    plan: String,
    verdict: Word,
    /// The digest that an approval would name.
    destructive_sha256: Option<String>,
    /// What is refused, with the reasons.
    reasons: Vec<String>,
    warnings: Vec<String>,
    /// All of it; null if the plan is unreadable.
    details: Option<Verdict>,
}

/// The verdict in a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Word {
    Allowed,
    NeedsApproval,
    Denied,
    Unreadable,
}

/// Judges plans, and prints the verdicts.
pub(crate) async fn policy_test(
    args: &PolicyTestArgs,
    environment: &Environment,
) -> Result<(), ShowError> {
    let policy = args.policy();
    let policy = blocking(move || Policy::load(&policy, None)).await??;
    tracing::info!("the policy has the digest {}", policy.sha256());
    let policy = Arc::new(policy);
    let mut rows = Vec::new();
    for path in &args.plan_json {
        let name = one_line(&path.display().to_string());
        rows.push(judge(&policy, name, path.clone()).await?);
    }
    let last = args.last.map_or(if args.plan_json.is_empty() { LAST } else { 0 }, usize::from);
    if last > 0 {
        rows.extend(stored(args, environment, &policy, last).await?);
    }
    let no_pager = args.common.no_pager;
    with_screen(environment, no_pager, async |screen: &mut Screen| {
        let mut text = if args.json {
            json(&rows).map_err(std::io::Error::from)?
        } else {
            table(&rows, screen.colours())
        };
        environment.redaction.mask(&mut text);
        screen.write(&text).await
    })
    .await?;
    let unreadable = rows.iter().filter(|row| row.verdict == Word::Unreadable).count();
    if unreadable > 0 || rows.is_empty() {
        return Err(ShowError::NotJudged { unreadable, count: rows.len() });
    }
    Ok(())
}

/// Judges the newest plans of the layer.
async fn stored(
    args: &PolicyTestArgs,
    environment: &Environment,
    policy: &Arc<Policy>,
    last: usize,
) -> Result<Vec<Row>, ShowError> {
    let client = find_datastore(&args.common.remote, environment)?;
    let (namespace, layer) = find_layer(&args.common, None, environment).await?;
    let mut rows = Vec::new();
    let mut cursor = None;
    while rows.len() < last {
        let page = client.runs(&namespace, &layer, cursor.as_deref()).await?;
        for run in page.runs.iter().filter_map(|run| run.run.parse::<Name>().ok()) {
            let run = RunKey { namespace: namespace.clone(), layer: layer.clone(), run };
            let attempts = client.attempts(&run).await?.attempts;
            if let Some(attempt) = newest_plan(&attempts)
                && rows.len() < last
            {
                rows.push(judge_stored(&client, &run, attempt, policy).await?);
            }
        }
        cursor = page.next;
        if cursor.is_none() {
            break;
        }
    }
    if rows.is_empty() {
        tracing::info!("layer {namespace}/{layer} has no stored plans in this datastore");
    }
    Ok(rows)
}

/// The latest attempt that has stored a plan's JSON.
fn newest_plan(attempts: &[AttemptFiles]) -> Option<Attempt> {
    let name = Stored::Plan(PlanFormat::Json).name();
    let newest = attempts.iter().rev().find(|files| has(files, name));
    newest.map(|files| files.attempt)
}

async fn judge_stored(
    client: &Client,
    run: &RunKey,
    attempt: Attempt,
    policy: &Arc<Policy>,
) -> Result<Row, ShowError> {
    let name = format!("{}/{attempt}", run.run);
    let file = NamedTempFile::new()?;
    let download = async {
        match client.get_file(run, Some(attempt), &Stored::Plan(PlanFormat::Json)).await? {
            Some(download) => save(download, file.as_file()).await,
            None => Ok(()),
        }
    };
    match download.await {
        Err(ShowError::Datastore(error)) if is_of_file(&error) => {
            Ok(Row::unreadable(name, &error.to_string()))
        }
        Err(error) => Err(error),
        Ok(()) => judge(policy, name, file.path().to_owned()).await,
    }
}

async fn save(mut download: Download, mut to: &File) -> Result<(), ShowError> {
    while let Some(piece) = download.piece().await? {
        to.write_all(&piece)?;
    }
    Ok(())
}

async fn judge(policy: &Arc<Policy>, plan: String, path: PathBuf) -> Result<Row, ShowError> {
    let policy = Arc::clone(policy);
    match blocking(move || policy.judge(&path, &Evidence::default())).await? {
        Ok(verdict) => Ok(Row::new(plan, verdict)),
        Err(error) if error.is_of_plan() => {
            Ok(Row::unreadable(plan, &datastore_api::chain(&error)))
        }
        Err(source) => Err(ShowError::Judged { plan, source }),
    }
}

/// Runs what takes time beside the runtime.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, ShowError> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|error| ShowError::Io(std::io::Error::other(error)))
}

impl Row {
    fn new(plan: String, verdict: Verdict) -> Self {
        let word = if verdict.is_allowed() {
            Word::Allowed
        } else if verdict.is_allowed_with_approval() {
            Word::NeedsApproval
        } else {
            Word::Denied
        };
        Self {
            plan,
            verdict: word,
            destructive_sha256: verdict.destructive_sha256.map(|sha256| sha256.to_string()),
            reasons: verdict.lines(),
            warnings: verdict.warnings.clone(),
            details: Some(verdict),
        }
    }

    fn unreadable(plan: String, reason: &str) -> Self {
        let (verdict, reasons) = (Word::Unreadable, vec![one_line(reason)]);
        Self {
            plan,
            verdict,
            destructive_sha256: None,
            reasons,
            warnings: Vec::new(),
            details: None,
        }
    }

    fn cells(&self) -> Vec<[Cell; 3]> {
        let (word, style) = match self.verdict {
            Word::Allowed => ("allowed", Style::Green),
            Word::NeedsApproval => ("needs approval", Style::Yellow),
            Word::Denied => ("denied", Style::Red),
            Word::Unreadable => ("unreadable", Style::Red),
        };
        let warnings = self.warnings.iter().map(|text| format!("warning: {}", one_line(text)));
        let mut reasons = self.reasons.iter().cloned().chain(warnings).collect::<Vec<_>>();
        let more = reasons.len().saturating_sub(SHOWN);
        reasons.truncate(SHOWN);
        if more > 0 {
            reasons.push(format!("and {more} more: --json prints all"));
        }
        let mut reasons = reasons.into_iter();
        let first = reasons.next().unwrap_or_default();
        let head = [Cell::new(&*self.plan), Cell::styled(word, style), Cell::new(first)];
        let rest = reasons.map(|reason| [Cell::new(""), Cell::new(""), Cell::new(reason)]);
        [head].into_iter().chain(rest).collect()
    }
}

fn table(rows: &[Row], colours: Colours) -> String {
    let rows = rows.iter().flat_map(Row::cells).collect::<Vec<_>>();
    aligned(["PLAN", "VERDICT", "REASONS"], &rows, colours)
}
