//! The summary of a run: Markdown that is appended to a file, for GitHub's page of a job or a comment on a change.

mod markdown;
mod rows;

use std::fmt::Write as _;
use std::fs::{File, TryLockError};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::time::{Duration, Instant};

use datastore_api::{Attempt, RunKey};
use fs_err as fs;

use crate::process::redact::Redaction;
use crate::report::{Counts, Outcome, Report};
use crate::run::Renderings;
use crate::run::plan::summary::{ChangesOf, read_into};
use crate::show::summary::markdown::{block, code, cut_block, inline};
use crate::show::summary::rows::Rows;

/// GitHub refuses a larger file.
const MAX_SIZE: usize = 1 << 20;
/// A reason takes no more room than this.
const MAX_REASON: usize = 64 << 10;
/// How long other runs may write to the file.
const LOCK_TIMEOUT: Duration = Duration::from_secs(5);
const LOCK_PAUSE: Duration = Duration::from_millis(20);

/// What a summary is made of.
#[derive(Debug)]
pub(crate) struct Facts<'a> {
    pub(crate) report: &'a Report,
    /// The run, if the arguments made one.
    pub(crate) run: Option<&'a RunKey>,
    /// The attempt that the run is stored under.
    pub(crate) attempt: Option<Attempt>,
    /// The command that applies the plan.
    pub(crate) apply: Option<String>,
    /// Why the run failed, with all errors of the tool.
    pub(crate) reason: Option<String>,
    pub(crate) renderings: Renderings,
}

impl<'a> Facts<'a> {
    /// Those of a run that could not start.
    pub(crate) fn of_rejection(report: &'a Report, reason: String) -> Self {
        let reason = Some(reason);
        Self {
            report,
            run: None,
            attempt: None,
            apply: None,
            reason,
            renderings: Renderings::default(),
        }
    }
}

/// Appends the summary to a file. An error is only a warning.
pub(crate) fn append(path: &Path, facts: &Facts<'_>, redaction: &Redaction) {
    if let Err(error) = try_append(path, facts, redaction) {
        tracing::warn!("the summary {} is not written: {error}", path.display());
    }
}

fn try_append(path: &Path, facts: &Facts<'_>, redaction: &Redaction) -> io::Result<()> {
    if fs::metadata(path).is_ok_and(|file| !file.is_file()) {
        return Err(io::Error::other("it is not a file"));
    }
    let summary = Summary::of(facts, redaction);
    let mut options = std::fs::OpenOptions::new();
    let mut file = options.append(true).create(true).mode(0o600).open(path)?;
    // Several runs may share the file.
    lock(&file);
    let existing = file.metadata()?.len();
    let gap = if existing > 0 { "\n" } else { "" };
    let existing = usize::try_from(existing).unwrap_or(usize::MAX);
    let room = MAX_SIZE.saturating_sub(existing).saturating_sub(gap.len());
    let text = summary
        .to_markdown(room)
        .ok_or_else(|| io::Error::other("it has no more room; GitHub takes at most 1 MiB"))?;
    file.write_all(redaction.text(&format!("{gap}{text}")).as_bytes())
}

/// Locks the file until it is closed. Without the lock, which may never come, the file may grow too large.
fn lock(file: &File) {
    let start = Instant::now();
    while let Err(TryLockError::WouldBlock) = file.try_lock() {
        if start.elapsed() > LOCK_TIMEOUT {
            return;
        }
        std::thread::sleep(LOCK_PAUSE);
    }
}

/// The parts of a summary.
#[derive(Debug)]
struct Summary {
    head: String,
    rows: Rows,
    folded: Folded,
    tail: String,
}

impl Summary {
    fn of(facts: &Facts<'_>, redaction: &Redaction) -> Self {
        let rows = facts.renderings.json.as_deref().and_then(|json| read_rows(json, redaction));
        let mut head = format!("### {}\n\n", title(facts));
        if let Some(reason) = &facts.reason {
            head.push_str(&block(reason, MAX_REASON).unwrap_or_default());
            head.push('\n');
        }
        if let Some(next) = &facts.report.hint {
            // A `String` is always writable.
            let _ = writeln!(head, "Next: {}\n", inline(next));
        }
        Self {
            head,
            rows: rows.unwrap_or_default(),
            folded: Folded::read(&facts.renderings),
            tail: details(facts),
        }
    }

    /// The summary in at most `room` bytes. `None`: it does not fit, not even without table and plan.
    fn to_markdown(&self, room: usize) -> Option<String> {
        let Self { head, rows, folded, tail } = self;
        let room = room.checked_sub(head.len() + tail.len())?;
        // The table gets what the plan leaves, but at least half.
        let table = rows.table((room / 2).max(room.saturating_sub(folded.size())));
        let folded = folded.to_markdown(room.saturating_sub(table.len()));
        Some(format!("{head}{table}{folded}{tail}"))
    }
}

/// What was done to which layer, and the result.
fn title(facts: &Facts<'_>) -> String {
    let report = facts.report;
    let counts = report.plan.as_ref().and_then(|plan| plan.counts);
    let result = match (report.outcome, counts) {
        (Outcome::NoChanges, _) if report.state.as_ref().is_some_and(|state| state.empty) => {
            "there is nothing to destroy".to_owned()
        }
        (Outcome::NoChanges, _) => "no changes".to_owned(),
        (Outcome::Changes, Some(counts)) if counts == Counts::default() => {
            "changes of outputs or the state, but of no resource".to_owned()
        }
        (Outcome::Changes, Some(Counts { create, update, delete })) => {
            format!("{create} to create, {update} to update, {delete} to delete")
        }
        (Outcome::Changes, None) => "changes".to_owned(),
        (Outcome::Applied, _) if !report.has_step("apply") => match &report.applied_before {
            Some(earlier) => {
                let earlier = inline(&earlier.to_string());
                format!("was applied before by {earlier}, nothing is applied again")
            }
            None if report.kept_sum.is_some() => "changes nothing, nothing is applied".to_owned(),
            None => "was applied before, nothing is applied again".to_owned(),
        },
        (Outcome::Applied, Some(Counts { create, update, delete })) => {
            format!("applied: {create} created, {update} updated, {delete} deleted")
        }
        (Outcome::Applied, None) => "applied".to_owned(),
        (Outcome::Failed, _) => format!("failed (exit code {})", report.exit),
        (Outcome::Interrupted, _) => "interrupted".to_owned(),
    };
    let action = match &*report.action {
        "plan" => "Plan",
        "apply" => "Apply",
        "destroy" => "Destroy",
        _ => "Run",
    };
    let layer = facts.run.map(|run| inline(&format!("{}/{}", run.namespace, run.layer)));
    let layer = layer.map(|layer| format!(" of {layer}")).unwrap_or_default();
    format!("{action}{layer}: {result}")
}

/// The run, the tool, the revision and the plan, and the command that applies it.
fn details(facts: &Facts<'_>) -> String {
    let report = facts.report;
    let mut details = Vec::new();
    if let Some(run) = facts.run {
        let attempt = facts.attempt.map(|attempt| format!("/{attempt}")).unwrap_or_default();
        details.push(format!("run {}", code(&format!("{run}{attempt}"))));
    }
    for tool in [&report.tool, &report.terragrunt].into_iter().flatten() {
        details.push(format!("{} {}", inline(&tool.name), inline(&tool.version)));
    }
    details.extend(report.revision.iter().map(|revision| format!("revision {}", code(revision))));
    if let Some(plan) = &report.plan {
        let attempt = plan.attempt.map(|attempt| format!("/{attempt}")).unwrap_or_default();
        let is_applied = report.action == "apply" || report.applied.is_some();
        let made_by = plan.run.as_ref().filter(|_| is_applied);
        let made_by = made_by.map(|run| format!("{} ", code(&format!("{run}{attempt}"))));
        let digest = code(&format!("sha256:{}", plan.sha256));
        details.push(format!("plan {}{digest}", made_by.unwrap_or_default()));
    }
    let mut text = details.join(", ");
    if let Some(first) = text.get_mut(..1) {
        first.make_ascii_uppercase();
        text.push('\n');
    }
    if let Some(command) = facts.apply.as_ref().and_then(|command| block(command, MAX_REASON)) {
        text.push_str("\nApply it with:\n\n");
        text.push_str(&command);
    }
    text
}

/// A text that is shown on a click.
#[derive(Debug, Default)]
struct Folded {
    title: &'static str,
    text: String,
    /// Whether the text is only the beginning.
    is_cut: bool,
}

impl Folded {
    /// The plan, or the log if there is no plan, as far as a summary has room for it.
    fn read(renderings: &Renderings) -> Self {
        let Renderings { pretty, log, .. } = renderings;
        let (path, title) = match (pretty, log) {
            (Some(pretty), _) => (pretty, "Plan"),
            (None, Some(log)) => (log, "Log"),
            (None, None) => return Self::default(),
        };
        let mut bytes = Vec::new();
        let file = fs::File::open(path);
        match file.and_then(|file| file.take(MAX_SIZE as u64 + 1).read_to_end(&mut bytes)) {
            Ok(_) => {
                let text = String::from_utf8_lossy(&bytes).trim_matches('\n').to_owned();
                Self { title, text, is_cut: bytes.len() > MAX_SIZE }
            }
            Err(error) => {
                tracing::warn!("the summary lacks the plan: {error}");
                Self::default()
            }
        }
    }

    /// About the size of the Markdown in bytes.
    fn size(&self) -> usize {
        self.text.len() + 512
    }

    /// The Markdown in at most `room` bytes, empty if that is too little.
    fn to_markdown(&self, room: usize) -> String {
        if self.text.is_empty() {
            return String::new();
        }
        let (start, end) =
            (format!("<details><summary>{}</summary>\n\n", self.title), "\n</details>\n\n");
        let room = room.saturating_sub(start.len() + end.len());
        let block = cut_block(&self.text, self.is_cut, room);
        block.map(|block| format!("{start}{block}{end}")).unwrap_or_default()
    }
}

fn read_rows(path: &Path, redaction: &Redaction) -> Option<Rows> {
    let [resources, outputs] = [(), ()].map(|()| Rows::new(redaction));
    let changes = fs::File::open(path)
        .map_err(|error| error.to_string())
        .and_then(|file| read_into(resources, outputs, file).map_err(|error| error.to_string()));
    match changes {
        Ok(ChangesOf { resources, outputs, .. }) => Some(resources.with_outputs(outputs)),
        Err(error) => {
            tracing::warn!("the summary lacks the table of changes: {error}");
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;

    use super::*;
    use crate::report::PlanReport;

    fn report(action: &str) -> Report {
        Report::new(action, "2026-11-22T10:00:00Z".parse().unwrap())
    }

    /// The summary of a run that could not start.
    fn of_rejection(report: &Report, reason: &str) -> String {
        let facts = Facts::of_rejection(report, reason.to_owned());
        Summary::of(&facts, &Redaction::default()).to_markdown(MAX_SIZE).unwrap()
    }

    #[test]
    fn next_step_is_whole_and_a_long_reason_is_cut() {
        let long = format!("first {}last", "a long command, ".repeat(200));
        let mut report = report("apply");
        report.hint = Some(long.clone());
        let text = of_rejection(&report, &"r".repeat(2 * MAX_REASON));
        assert!(text.contains(&format!("Next: {long}\n")), "{text}");
        assert!(text.contains(&"r".repeat(MAX_REASON / 2)) && text.contains("… (cut"), "{text}");
        assert!(text.len() < MAX_REASON + 2 * long.len(), "{}", text.len());
    }

    #[test]
    fn only_an_apply_of_a_kept_plan_is_called_one_that_changes_nothing() {
        let counts = Some(Counts::default());
        let sha256 = datastore_api::Sha256::of(b"plan");
        let plan = Some(PlanReport { sha256, run: None, attempt: None, counts });
        let mut report = report("apply");
        (report.outcome, report.plan) = (Outcome::Applied, plan);
        // A plan that changes only outputs has no counts either.
        let expected = "### Apply: was applied before, nothing is applied again\n";
        let text = of_rejection(&report, "");
        assert!(text.starts_with(expected), "{text}");
        report.kept_sum = Some("sum".to_owned());
        let text = of_rejection(&report, "");
        assert!(text.starts_with("### Apply: changes nothing, nothing is applied\n"), "{text}");
    }

    #[test]
    fn plan_that_is_cut_has_the_note_although_its_text_becomes_shorter() {
        let dir = TempDir::new().unwrap();
        let pretty = dir.path().join("plan");
        fs::write(&pretty, format!("begin\n{}\nend", "`".repeat(2 * MAX_SIZE))).unwrap();
        let report = report("plan");
        let mut facts = Facts::of_rejection(&report, String::new());
        facts.renderings.pretty = Some(pretty);
        let text = Summary::of(&facts, &Redaction::default()).to_markdown(MAX_SIZE).unwrap();
        assert!(text.contains("begin\n") && text.contains("… (cut"), "{text}");
        assert!(text.len() < 1000, "{}", text.len());
    }

    #[test]
    fn summaries_of_several_runs_leave_the_file_below_its_limit() {
        let dir = TempDir::new().unwrap();
        let path = dir.path().join("summary.md");
        let mut other = File::create(&path).unwrap();
        other.lock().unwrap();
        let appended = std::thread::spawn({
            let path = path.clone();
            move || {
                let report = report("plan");
                {
                    let facts = Facts::of_rejection(&report, "no".repeat(10_000));
                    try_append(&path, &facts, &Redaction::default())
                }
            }
        });
        std::thread::sleep(10 * LOCK_PAUSE);
        other.write_all(&vec![b'a'; MAX_SIZE - 10_000]).unwrap();
        drop(other);
        let error = appended.join().unwrap().unwrap_err();
        assert!(error.to_string().contains("no more room"), "{error}");
        assert_eq!(fs::metadata(&path).unwrap().len(), (MAX_SIZE - 10_000) as u64);
    }
}
