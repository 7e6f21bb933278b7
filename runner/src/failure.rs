//! The one table from errors to exit codes, classes and hints. Only the top of the program uses it.

mod advice;
mod checkout;
mod classify;
mod datastore;
mod inputs;
pub(crate) mod last_line;
mod lease;
mod migration;
mod order;
mod plan;
mod policy;
mod scratch;
mod show;
mod state;
mod step;
mod tool;

use std::error::Error;
use std::io;
use std::path::{Path, PathBuf};

use datastore_api::chain;

use crate::process::Stop;
use crate::process::redact::Redaction;
use crate::report::{OUTPUT_BROKEN, Outcome, Report};
use crate::run::artifacts::OpenError;
use crate::run::check::status::{BLOCKED, REFUSED, WAITING};
use crate::run::error::{AppliedError, LayerToolError, RunError};
use crate::run::step::found_lock::FoundLock;
use crate::source::snapshot::SnapshotError;
use crate::tool::diagnostics::Diagnostic;

/// A run, or another command, that failed.
#[derive(Clone, Debug)]
pub(crate) struct Failure {
    kind: Kind,
    message: String,
    hint: Option<String>,
    /// The errors that the tool reported, if the tool failed.
    errors: Vec<Diagnostic>,
    /// The directory in which the tool failed.
    dir: Option<PathBuf>,
}

/// A message contains no more errors of the tool. The log and `run.json` have all of them.
const SHOWN_ERRORS: usize = 20;

/// What to do about an attempt that cannot be taken.
const TAKEN: &str = "leave out --attempt for the next free one, or name another";
const NONE_FREE: &str = "use another --run";
const ALL_CLAIMED: &str = "check that a datastore answers, not a proxy; then use another --run";
/// What to do about an order that was applied under the same name, or that cannot be compared.
const SAME_PLAN: &str =
    "plan again, which makes another plan; give other code a name of its own with --name";
const PRINTS_ONLY: &str = "nothing was planned or applied; remove the option from the variable";
const SEVERAL_UNITS: &str = "nothing was run; unset the variable, and use one run for each unit";
const NO_ORDER_KEYS: &str = "nothing was applied; update the datastore, or leave out --order-key";

/// The kinds of failure, each with an exit code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Unclassified,
    /// Another process holds the lock of the state, or the lock could not be taken or released.
    Locked,
    Credentials,
    Network,
    Quota,
    Config,
    Integrity,
    Datastore,
    /// The datastore did not answer, or not now.
    DatastoreUnanswered,
    /// An object that the tool was to create exists.
    AlreadyExists,
    /// The tool was interrupted, and the runner was not.
    ToolInterrupted,
    Usage,
    /// A limit of time was reached.
    Timeout,
    /// The policy, or a missing approval, refuses the changes.
    Refused,
    /// A layer that is needed is not as declared, or this one is needed.
    Blocked,
    /// An output of another layer does not exist yet.
    Waiting,
    /// A required output has no value after the apply.
    OutputBroken,
    Stopped(Stop),
}

impl Failure {
    fn new(kind: Kind, error: &dyn Error) -> Self {
        Self { kind, message: chain(error), hint: None, errors: Vec::new(), dir: None }
    }

    fn with_hint(mut self, hint: &str) -> Self {
        self.hint = Some(hint.to_owned());
        self
    }

    /// The runner's exit code (`--help` has the list).
    pub(crate) fn exit_code(&self) -> u8 {
        match self.kind {
            Kind::Unclassified
            | Kind::AlreadyExists
            | Kind::ToolInterrupted
            | Kind::OutputBroken => 1,
            Kind::Refused => 3,
            Kind::Locked | Kind::Stopped(Stop::LeaseLost) => 4,
            Kind::Credentials => 5,
            Kind::Network => 6,
            Kind::Quota => 7,
            Kind::Config => 8,
            Kind::Integrity => 9,
            Kind::Datastore | Kind::DatastoreUnanswered => 10,
            Kind::Timeout | Kind::Stopped(Stop::Timeout(_)) => 11,
            Kind::Blocked | Kind::Waiting => 12,
            Kind::Usage => 64,
            Kind::Stopped(Stop::Interrupt) => 130,
            Kind::Stopped(Stop::Terminate | Stop::Hangup) => 143,
        }
    }

    /// The class: `class` in `run.json`.
    fn class(&self) -> &'static str {
        match self.kind {
            Kind::Unclassified | Kind::Datastore => "unknown",
            Kind::Integrity => "mismatch",
            Kind::Refused => REFUSED,
            Kind::Blocked => BLOCKED,
            Kind::Waiting => WAITING,
            Kind::OutputBroken => OUTPUT_BROKEN,
            Kind::Locked | Kind::Stopped(Stop::LeaseLost) => "lock",
            Kind::Credentials => "auth",
            Kind::Network | Kind::DatastoreUnanswered => "transient",
            Kind::Config | Kind::Usage => "config",
            Kind::Timeout | Kind::Stopped(Stop::Timeout(_)) => "timeout",
            Kind::Quota => "quota",
            Kind::AlreadyExists => "already_exists",
            Kind::Stopped(_) | Kind::ToolInterrupted => "interrupted",
        }
    }

    fn outcome(&self) -> Outcome {
        match self.kind {
            Kind::Stopped(Stop::Interrupt | Stop::Terminate | Stop::Hangup) => Outcome::Interrupted,
            _ => Outcome::Failed,
        }
    }

    /// The error and its causes, on one line.
    pub(crate) fn message(&self) -> &str {
        &self.message
    }

    /// The message, and on further lines the other errors that the tool reported.
    pub(crate) fn reason(&self) -> String {
        let mut text = self.message.clone();
        for error in self.errors.iter().skip(1).take(SHOWN_ERRORS) {
            text = format!("{text}\n  also: {error}");
        }
        let more = self.errors.len().saturating_sub(1 + SHOWN_ERRORS);
        if more > 0 {
            text = format!("{text}\n  and {more} more");
        }
        text
    }

    /// The errors of the tool beside the one in the message.
    pub(crate) fn further_errors(&self) -> Option<String> {
        let reason = self.reason();
        let (_, further) = reason.split_once("\n  also: ")?;
        Some(format!("the tool reported {} errors\n  also: {further}", self.errors.len()))
    }

    /// Where the tool found the first error: its directory, the file and the line.
    pub(crate) fn place(&self) -> Option<(&Path, &str, Option<u32>)> {
        let first = self.errors.first()?;
        Some((self.dir.as_deref()?, first.file.as_deref()?, first.line))
    }

    /// Adds the resources that the tool has started, and of which no result is known.
    pub(crate) fn with_unanswered(mut self, resources: Option<String>) -> Self {
        let Some(resources) = resources else { return self };
        self.message = format!("{}; it is not known how these ended: {resources}", self.message);
        let hint = self.hint.unwrap_or_default();
        let known = hint.contains("resources may exist");
        self.hint = Some(match (&*hint, known) {
            ("", _) => COMPARE.to_owned(),
            (_, true) => hint,
            (_, false) => format!("{COMPARE}; {hint}"),
        });
        self
    }

    /// The advice for a destroy, which makes its own plan.
    pub(crate) fn of_destroy(mut self) -> Self {
        const AGAIN: &str = "run `runner destroy` again";
        if let Some(hint) = &mut self.hint {
            for plan in [
                "plan again, and apply the new plan",
                "plan again, and apply what is left",
                PLAN_AGAIN,
                "plan again",
            ] {
                *hint = hint.replace(plan, AGAIN);
            }
        }
        self
    }

    /// The failure with its secrets masked. In the log, where the errors of the tool are read, a secret may have been
    /// broken into lines.
    pub(crate) fn masked(mut self, redaction: &Redaction) -> Self {
        redaction.mask(&mut self.message);
        self.errors.iter_mut().flat_map(Diagnostic::texts).for_each(|text| redaction.mask(text));
        self.hint.iter_mut().for_each(|hint| redaction.mask(hint));
        self
    }

    /// What to do about it.
    pub(crate) fn hint(&self) -> Option<&str> {
        self.hint.as_deref()
    }

    /// Writes the failure into the report of its run.
    pub(crate) fn record(&self, report: &mut Report) {
        report.outcome = self.outcome();
        report.exit = self.exit_code();
        report.class = Some(self.class().to_owned());
        report.message = Some(self.message.clone());
        report.errors.clone_from(&self.errors);
        report.hint.clone_from(&self.hint);
    }
}

impl From<&RunError> for Failure {
    fn from(error: &RunError) -> Self {
        match error {
            RunError::Checkout(cause) => cause.into(),
            RunError::Version(cause) => cause.into(),
            RunError::Release(cause) => cause.into(),
            RunError::State(cause) => (&**cause).into(),
            RunError::Migration(cause) => (&**cause).into(),
            RunError::Datastore(cause)
            | RunError::Ledger(cause)
            | RunError::Open(OpenError::Datastore(cause)) => Self::of_datastore(cause, error),
            RunError::Open(OpenError::Taken { .. }) => Self::of_config(error, TAKEN),
            RunError::Open(OpenError::NoneFree { .. }) => Self::of_config(error, NONE_FREE),
            RunError::Open(OpenError::AllClaimed { .. }) => Self::of_config(error, ALL_CLAIMED),
            RunError::Applied(cause) => Self::of_applied(error, cause),
            RunError::Tool { .. }
            | RunError::LeftOut { .. }
            | RunError::Killed { .. }
            | RunError::TimedOut { .. } => Self::of_step(error),
            RunError::Scratch(cause) => Self::of_scratch(cause, error),
            RunError::Lease(cause) => (&**cause).into(),
            RunError::Plan(_) | RunError::Annotate { .. } => Self::of_plan(error),
            RunError::Incomplete { cause, .. } | RunError::Io(cause) => Self::of_io(error, cause),
            RunError::StoredPlan(cause) => cause.into(),
            RunError::Basis(cause) => cause.into(),
            RunError::Binding(cause) => cause.into(),
            RunError::Snapshot(cause) => snapshot_failure(cause, error),
            RunError::Credentials(why) => Self::new(Kind::Credentials, error).with_hint(&why.hint),
            RunError::StateFile(cause) => Self::of_config(error, cause.hint()),
            RunError::Unwritten { cause, state } => Self::of_kept_state(error, cause, state.hint()),
            RunError::Errored { cause, errored } => {
                Self::of_kept_state(error, cause, errored.hint())
            }
            RunError::Rest { cause, .. } => Self::of_rest(error, cause),
            RunError::NoRemainder(_) | RunError::Changed(_) => Self::of_difference(error),
            RunError::Unpushed(unpushed) => Self::of_config(error, &unpushed.hint()),
            RunError::MissingState(lost) => Self::of_config(error, &lost.hint()),
            RunError::LayerTool(cause) => Self::of_layer_tool(error, cause),
            RunError::LocalState(_)
            | RunError::PlannedState(_)
            | RunError::AbsentState(_)
            | RunError::UnreadableState(_)
            | RunError::UnreadableDirectory(_)
            | RunError::Spool { .. } => Self::of_files(error),
            RunError::OrphanedTool(_) => Self::new(Kind::Locked, error).with_hint(ORPHANED_TOOL),
            RunError::LeftImport { is_working, .. } => Self::of_left_import(error, *is_working),
            RunError::Unreadable(cause) => cause.into(),
            RunError::Rules(cause) => cause.into(),
            RunError::AppliedElsewhere { .. }
            | RunError::SamePlan { .. }
            | RunError::OtherOrder { .. } => Self::of_other_order(error),
            RunError::EarlierCreates { next, lock, .. } => Self::of_earlier(error, next, lock),
            RunError::PrintsOnly { .. } => Self::of_config(error, PRINTS_ONLY),
            RunError::SeveralUnits(_) => Self::of_config(error, SEVERAL_UNITS),
            RunError::NoOrderKeys => Self::of_config(error, NO_ORDER_KEYS),
            RunError::Policy(cause) => (&**cause).into(),
            RunError::Inputs(cause) => (&**cause).into(),
            RunError::Stopped(stop)
            | RunError::StoppedStep { stop, .. }
            | RunError::StoppedApply { stop, .. } => Self::of_stop(*stop, error),
        }
    }
}

impl Failure {
    /// What an apply that failed has left could not be applied.
    fn of_rest(error: &RunError, cause: &RunError) -> Self {
        let failure = Self::from(cause);
        let next = Self::after(cause, "apply").or(failure.hint.clone());
        let next = next.as_deref().unwrap_or(PLAN_AGAIN);
        let hint = Some(format!("what was applied is in the state; {next}"));
        Self { message: chain(error), hint, ..failure }
    }

    /// A plan that cannot be read, or whose annotations could not be written.
    fn of_plan(error: &RunError) -> Self {
        let hint = matches!(error, RunError::Annotate { .. }).then(|| UNANNOTATED.to_owned());
        Self { hint, ..Self::new(Kind::Unclassified, error) }
    }

    /// What would be applied is not what was reviewed.
    fn of_difference(error: &RunError) -> Self {
        Self::new(Kind::Integrity, error).with_hint(PLAN_AGAIN)
    }

    /// Another tool than that of the layer.
    fn of_layer_tool(error: &RunError, cause: &LayerToolError) -> Self {
        let (LayerToolError::Other { theirs, .. } | LayerToolError::Older { theirs, .. }) = cause;
        let (name, version) = theirs.split_once(' ').unwrap_or((theirs, "VERSION"));
        Self::of_config(
            error,
            &format!(
                "the tool was not started; use it: --tool {name} --tool-version {version}, or a later version"
            ),
        )
    }

    /// A step after an apply failed.
    fn of_applied(error: &RunError, cause: &AppliedError) -> Self {
        let kind = match cause {
            AppliedError::Unsent { .. } => Kind::Datastore,
            AppliedError::OutputBroken { .. } => Kind::OutputBroken,
            _ => Kind::Unclassified,
        };
        Self::new(kind, error).with_hint(cause.hint())
    }

    /// A state that should be there, would be lost, or is in another format; a directory that cannot be used.
    fn of_files(error: &RunError) -> Self {
        match error {
            RunError::LocalState(_) => Self::of_config(error, LOST_STATE),
            RunError::PlannedState(_) => Self::of_config(error, LOST_AFTER_PLAN),
            RunError::AbsentState(_) => Self::of_config(error, ABSENT_STATE),
            RunError::UnreadableDirectory(_) => Self::of_config(error, UNREADABLE_DIRECTORY),
            RunError::Spool { .. } => Self::of_config(error, SPOOL),
            _ => Self::new(Kind::Unclassified, error).with_hint(UNREADABLE_STATE),
        }
    }

    /// The state has an import whose plan was not accepted.
    fn of_left_import(error: &RunError, is_working: bool) -> Self {
        if is_working {
            return Self::new(Kind::Locked, error).with_hint(WORKING_IMPORT);
        }
        Self::of_config(error, LEFT_IMPORT)
    }

    /// An apply that was killed, or that still works.
    fn of_earlier(error: &RunError, next: &str, lock: &FoundLock) -> Self {
        let next = format!(
            "push the state that it has left (errored.tfstate), or look for the object, and import it or delete it; {next}"
        );
        if matches!(lock, FoundLock::Held(_)) {
            let hint = format!("if it still works, wait for its end; if it was killed: {next}");
            return Self::of_killed(Kind::Locked, error, lock, &hint);
        }
        Self::of_order(error, &next)
    }

    /// A file or a disk.
    fn of_io(error: &RunError, cause: &io::Error) -> Self {
        let hint = disk_hint(cause).map(str::to_owned);
        Self { hint, ..Self::new(Kind::Unclassified, error) }
    }

    /// Something that the user decides.
    /// A state that is kept, because it is not where it belongs.
    fn of_kept_state(error: &RunError, cause: &RunError, hint: String) -> Self {
        Self { message: chain(error), hint: Some(hint), ..Self::of_unsaved_state(cause) }
    }

    fn of_config(error: &dyn Error, hint: &str) -> Self {
        Self::new(Kind::Config, error).with_hint(hint)
    }

    /// An order that may be another one than the order that was applied.
    fn of_order(error: &RunError, next: &str) -> Self {
        Self::new(Kind::Integrity, error).with_hint(&format!("nothing was applied; {next}"))
    }

    /// Another order than the one that was applied.
    fn of_other_order(error: &RunError) -> Self {
        match error {
            RunError::AppliedElsewhere { next, .. } | RunError::OtherOrder { next, .. } => {
                Self::of_order(error, next)
            }
            _ => Self::of_order(error, SAME_PLAN),
        }
    }
}

impl From<Stop> for Failure {
    fn from(stop: Stop) -> Self {
        (&RunError::Stopped(stop)).into()
    }
}

/// What to do first if it is not known whether something was created.
const COMPARE: &str = "resources may exist that the state does not record: look for those without a result, and import or \
    delete what the state does not have";
/// What to do about a plan whose annotations could not be written.
const UNANNOTATED: &str = "plan again: without its annotations the plan does not count as complete";
/// What to do about a plan for the rest of an apply that was not reviewed.
const PLAN_AGAIN: &str = "plan again, review that plan, and apply it";
/// What to do about a state that should be there.
const ABSENT_STATE: &str = "nothing was destroyed; check that backend, workspace and credentials are those of the applies, and \
    restore the state; where nothing was ever created, there is nothing to destroy";
/// What to do about a state in another format.
const UNREADABLE_STATE: &str =
    "nothing was destroyed; look at what `state pull` of the tool prints, in the same directory";
/// What to do about a directory of unsent files that cannot be listed.
const UNREADABLE_DIRECTORY: &str =
    "nothing was applied; make that directory readable for the user of the run, and run again";
/// What to do about a spool that cannot be used.
const SPOOL: &str = "nothing was run; mount a volume there that the user of the run may write, or name another directory";
/// What to do about the tool of a killed run.
const ORPHANED_TOOL: &str = "nothing was applied; wait until that process has ended, or find it with `fuser -v` on the \
     file run.output there and end it, and run again";

/// What to do about an import whose plan is not accepted yet, and about one that a killed run has left.
const WORKING_IMPORT: &str = "nothing was planned or applied; run again when that run has ended";
const LEFT_IMPORT: &str = "nothing was applied; take it out of the state (`terraform state rm ADDRESS`), and run again; if it \
    belongs to this layer, import it with a plan that is reviewed";

/// What to do if the state of which the plan was made is gone with the private directory of its run.
const LOST_AFTER_PLAN: &str = "nothing was applied; keep the state in the datastore with --state datastore, use a backend that is not local, or a path outside of the checkout, or \
    plan and apply with --work-dir DIR; then plan again";

/// What to do if the state would be removed with the private directory of the run.
const LOST_STATE: &str = "nothing was applied; configure a backend other than local (s3, gcs, azurerm, http), keep its directory \
     with --work-dir DIR, or, without terragrunt, keep the state in the datastore with --state datastore, or in a file with \
     --state-in and --state-out; a plan of a directory used in place is applied there with --snapshot=never";

/// What to do about a snapshot that would be too large.
const EXCLUDE: &str = "exclude what the tool does not need in .terraformignore, which has no effect on files that git tracks";

/// A snapshot is required and could not be made.
fn snapshot_failure(cause: &SnapshotError, error: &RunError) -> Failure {
    const WITHOUT: &str = "plan without a snapshot (--snapshot=never)";
    let (kind, first) = match cause {
        SnapshotError::Archive(cause) if let Some(hint) = disk_hint(cause) => {
            return Failure::new(Kind::Unclassified, error).with_hint(hint);
        }
        SnapshotError::Changed(_) | SnapshotError::Archive(_) | SnapshotError::Git(_) => {
            (Kind::Unclassified, Some("run again"))
        }
        SnapshotError::File(_, cause) if cause.kind() == io::ErrorKind::PermissionDenied => {
            (Kind::Unclassified, Some("make this file readable for the user of the run"))
        }
        SnapshotError::File(..) => (Kind::Unclassified, Some("check this file")),
        SnapshotError::Unsearchable(_) | SnapshotError::LeftOut(_) => (Kind::Unclassified, None),
        SnapshotError::Ignore { .. } => {
            (Kind::Config, Some("make it a readable file with one pattern on each line"))
        }
        SnapshotError::NoConfiguration(_) => (
            Kind::Config,
            Some(
                "remove the patterns of these files from .terraformignore and .gitignore, use a source that contains them",
            ),
        ),
        SnapshotError::TooDeep(_) | SnapshotError::TooLarge(_) => (Kind::Config, Some(EXCLUDE)),
        SnapshotError::DataDir => (Kind::Config, Some("unset TF_DATA_DIR")),
        SnapshotError::NotUtf8(_) => (Kind::Config, Some("rename the directory")),
    };
    let first = first.map(|first| format!("{first}, or ")).unwrap_or_default();
    Failure::new(kind, error).with_hint(&format!("{first}{WITHOUT}"))
}

/// What to do about a disk that is full or read-only.
fn disk_hint(error: &io::Error) -> Option<&'static str> {
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge => {
            Some("free some space there, or set TMPDIR to a directory with more, and run again")
        }
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => Some(
            "check that it can be read and written; TMPDIR names the directory for temporary files",
        ),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use datastore_api::ClientError;
    use reqwest::StatusCode;

    use super::*;
    use crate::order::job::JobError;
    use crate::order::layer::ClusterError;
    use crate::run::stored_plan::StoredPlanError;
    use crate::source::error::CheckoutError;
    use crate::source::states::name::StateName;
    use crate::tool::diagnosis::{Cause, Verdict, load_rules};
    use crate::tool::diagnostics::Diagnostics;

    fn cause(output: &str) -> Cause {
        let rules = load_rules(None).unwrap();
        Cause::of(&Verdict::read(output.as_bytes(), &rules).unwrap())
    }

    fn refused(status: u16) -> ClientError {
        ClientError::Refused {
            call: "PUT http://h/api/plans (plan.json)".to_owned(),
            status: StatusCode::from_u16(status).unwrap(),
            message: String::new(),
            sender: datastore_api::client::Sender::Unknown,
            retry_after: None,
        }
    }

    #[test]
    fn what_the_datastore_refuses_has_a_next_step() {
        for (status, next) in [
            (507, "free some space in the datastore's storage"),
            (412, "another run stored this file"),
            (401, "provide a token"),
            (413, "--max-size KIND=SIZE"),
            (404, "the URL of the datastore itself"),
        ] {
            let failure = Failure::from(&RunError::Datastore(refused(status)));
            assert!(failure.message().contains("(plan.json)"), "{failure:?}");
            assert!(failure.hint().unwrap().contains(next), "{failure:?}");
        }
        let failure = Failure::from(&CheckoutError::Datastore(refused(403)));
        assert!(failure.hint().unwrap().contains("(PLANCHA_POLICY)"), "{failure:?}");
        assert_eq!(failure.exit_code(), 5);
    }

    #[test]
    fn an_object_that_cannot_be_read_is_a_configuration_error() {
        let (what, reason) = ("TerraformRepository n/r".to_owned(), "spec.repository".to_owned());
        let error = ClusterError::Malformed { what, reason };
        let failure = Failure::from(&JobError::Cluster(error));
        let mut report = Report::new("plan", jiff::Timestamp::now());
        failure.record(&mut report);
        assert_eq!((report.exit, report.class.as_deref()), (8, Some("config")));
    }

    #[test]
    fn a_host_without_an_address_has_a_next_step() {
        let reason = "the datastore could not be reached: failed to lookup address information: Name or \
                      service not known";
        let (call, reason) = ("GET http://h/api/attempts".to_owned(), reason.to_owned());
        let failure = Failure::from(&RunError::Datastore(ClientError::Transport { call, reason }));
        assert!(failure.hint().unwrap().contains("BURRITO_DATASTORE_HOSTNAME"), "{failure:?}");
    }

    #[test]
    fn an_invalid_answer_is_not_called_a_datastore_that_is_down() {
        let (call, reason) = ("applied.json".to_owned(), "EOF".to_owned());
        let failure = Failure::from(&RunError::Datastore(ClientError::Answer { call, reason }));
        assert!(failure.hint().unwrap().contains("the datastore answers, but"), "{failure:?}");
        assert!(!failure.hint().unwrap().contains("/readyz"), "{failure:?}");
    }

    #[test]
    fn missing_snapshot_is_made_by_another_run_only_where_that_can_help() {
        let io = || io::Error::other("x");
        let error = "x".to_owned();
        for (cause, exit, next) in [
            (SnapshotError::Changed("f".into()), 1, "run again, or "),
            (SnapshotError::Git("x".to_owned()), 1, "run again, or "),
            (SnapshotError::Archive(io()), 1, "run again, or "),
            (SnapshotError::File("f".into(), io()), 1, "check this file, or "),
            (SnapshotError::Unsearchable("x".to_owned()), 1, "plan without"),
            (SnapshotError::Ignore { error }, 8, "make it a readable file with "),
            (SnapshotError::NoConfiguration(["f".into()].into()), 8, "remove the patterns "),
            (SnapshotError::TooLarge("x".to_owned()), 8, "exclude what the tool does not need "),
            (SnapshotError::DataDir, 8, "unset TF_DATA_DIR, or "),
            (SnapshotError::NotUtf8("d".into()), 8, "rename "),
        ] {
            let failure = Failure::from(&RunError::Snapshot(cause));
            let hint = failure.hint().unwrap();
            assert_eq!(failure.exit_code(), exit, "{failure:?}");
            assert!(hint.starts_with(next) && hint.contains("--snapshot=never"), "{failure:?}");
        }
    }

    #[test]
    fn a_missing_variable_has_a_next_step() {
        let output = "Error: No value for required variable\n\n  on main.tf line 1:\n\
            \u{20}  1: variable \"region\" {}\n\nThe root module input variable \"region\" is not set.\n";
        let errors = Diagnostics::read(output.as_bytes()).unwrap();
        let (tool, dir) = ("terraform".to_owned(), "/code".into());
        let (state, step, code, stored) = (StateName::Selected, "plan", 1, false);
        let why = Box::default();
        let error = RunError::Tool { tool, state, step, code, errors, why, dir, stored };
        let failure = Failure::from(&error);
        assert!(failure.message().contains("variable \"region\" is not set"), "{failure:?}");
        assert!(failure.hint().unwrap().contains("TF_VAR_NAME"), "{failure:?}");
    }

    #[test]
    fn a_held_lock_is_exit_code_4_and_its_holder_is_named() {
        let output = "Error: Error acquiring the state lock\n\nError message: resource temporarily unavailable\n\
            Lock Info:\n  ID:        fb982e0a\n  Operation: OperationTypeApply\n  Who:       ann@build-7\n  \
            Created:   2026-11-22 01:57:02 +0000 UTC\n";
        let denied = "Error: Error acquiring the state lock\n\nError message: Access Denied\n";
        let failure = |output: &str| {
            let errors = Diagnostics::read(output.as_bytes()).unwrap();
            let (tool, dir) = ("terraform".to_owned(), "/code".into());
            let (state, step, code, stored) = (StateName::Selected, "plan", 1, false);
            let why = Box::new(cause(output));
            let error = RunError::Tool { tool, state, step, code, errors, why, dir, stored };
            let failure = Failure::from(&error);
            let mut report = Report::new("plan", jiff::Timestamp::now());
            failure.record(&mut report);
            (report.exit, report.class.unwrap(), report.message.unwrap())
        };
        let (exit, class, message) = failure(output);
        assert_eq!((exit, &*class), (4, "lock"), "{message}");
        let holder = "held by ann@build-7 since 2026-11-22 01:57:02 +0000 UTC for OperationTypeApply (lock ID fb982e0a)";
        assert!(message.ends_with(holder), "{message}");
        let (exit, class, message) = failure(denied);
        assert_eq!((exit, &*class), (5, "auth"), "the reason why it is not locked: {message}");
        let (exit, class, message) = failure(&denied.replace("Access Denied", "no reason"));
        assert_eq!((exit, &*class), (4, "lock"), "{message}");
    }

    #[test]
    fn a_full_or_read_only_disk_has_a_next_step() {
        for (kind, next) in [
            (io::ErrorKind::StorageFull, "free some space"),
            (io::ErrorKind::ReadOnlyFilesystem, "TMPDIR names"),
        ] {
            let fetched = ClientError::File(io::Error::from(kind));
            let failure = Failure::from(&StoredPlanError::Datastore(fetched));
            assert!(failure.hint().unwrap().contains(next), "{failure:?}");
            let failure = Failure::from(&RunError::Io(io::Error::from(kind)));
            assert!(failure.hint().unwrap().contains(next), "{failure:?}");
        }
    }

    #[test]
    fn source_that_this_user_may_not_read_is_a_configuration_error() {
        let denied = io::Error::from(io::ErrorKind::PermissionDenied);
        let failure = Failure::from(&CheckoutError::Io(denied));
        assert_eq!(failure.kind, Kind::Config);
        assert!(failure.hint.unwrap().starts_with("make it readable for this user"));
    }
}
