//! Why a run failed. What an error means for the exit code, and what to do about it, is decided by
//! [`crate::failure`].

use std::path::PathBuf;

use datastore_api::ClientError;

use crate::basis::BasisError;
use crate::basis::binding::BindingError;
use crate::order::layer::LayerError;
use crate::process::{Killed, Stop};
use crate::release::ReleaseError;
use crate::run::apply::remainder::differences::Differences;
use crate::run::artifacts::OpenError;
use crate::run::check::error::CheckError;
use crate::run::inputs::error::InputsError;
use crate::run::lease::error::LeaseError;
use crate::run::migrate::error::MigrationError;
use crate::run::plan::summary::PlanError;
use crate::run::prepare::datastore_state::error::StateError;
use crate::run::push::{ErroredState, MissingState, Unpushed, UnwrittenState};
use crate::run::step::found_lock::FoundLock;
use crate::run::step::limits::TimedOut;
use crate::run::stored_plan::StoredPlanError;
use crate::run::unsent::UnreadableRecord;
use crate::source::error::CheckoutError;
use crate::source::scratch::ScratchError;
use crate::source::snapshot::SnapshotError;
use crate::source::states::file::StateFileError;
use crate::source::states::name::StateName;
use crate::tool::diagnosis::{Cause, ClassifyError};
use crate::tool::diagnostics::Diagnostics;
use crate::tool::preflight::Refusal;
use crate::version::VersionError;

/// The run failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RunError {
    #[error(transparent)]
    Checkout(#[from] CheckoutError),
    #[error(transparent)]
    Version(#[from] VersionError),
    #[error(transparent)]
    Release(#[from] ReleaseError),
    #[error("{tool} {step} failed with exit code {code}{}{}", .errors.first().map(|error| format!(": {error}")).unwrap_or_default(), .why.memory())]
    Tool {
        tool: String,
        /// How commands name the state.
        state: StateName,
        step: &'static str,
        code: i32,
        errors: Diagnostics,
        /// What the errors mean for the run.
        why: Box<Cause>,
        dir: PathBuf,
        /// Whether the log goes into a datastore.
        stored: bool,
    },
    #[error("terragrunt {step} has {}, although its exit code is 0{}", left_out(step), .message.as_ref().map(|message| format!(": {message}")).unwrap_or_default())]
    LeftOut {
        step: &'static str,
        /// What terragrunt says about it.
        message: Option<String>,
    },
    #[error("{tool} {step} {end}")]
    Killed {
        tool: String,
        /// How commands name the state.
        state: StateName,
        step: &'static str,
        end: String,
        /// The signal that asked the runner to stop, if one did.
        stop: Option<Stop>,
        /// Whether memory ran out.
        memory: Box<Killed>,
        lock: Box<FoundLock>,
    },
    #[error("{tool} {step} {end}")]
    TimedOut {
        tool: String,
        /// How commands name the state.
        state: StateName,
        step: &'static str,
        end: Box<TimedOut>,
        lock: Box<FoundLock>,
    },
    #[error(transparent)]
    Plan(#[from] PlanError),
    #[error(transparent)]
    StoredPlan(#[from] StoredPlanError),
    #[error(transparent)]
    Basis(#[from] BasisError),
    #[error(transparent)]
    Binding(#[from] BindingError),
    #[error("credentials: {0}")]
    Credentials(Refusal),
    #[error("the snapshot cannot be made")]
    Snapshot(#[from] SnapshotError),
    #[error("the directory {} (--spool-dir) cannot be written", .dir.display())]
    Spool {
        dir: PathBuf,
        #[source]
        cause: std::io::Error,
    },
    #[error("the state would be lost: the backend is local, and its file {} is in a directory that exists only for this run", .0.display())]
    LocalState(PathBuf),
    #[error("the state would be lost: the plan's backend is local, and its file {} is in the directory that was removed after the plan", .0.display())]
    PlannedState(PathBuf),
    #[error(transparent)]
    StateFile(#[from] StateFileError),
    #[error("{cause}; {state}")]
    Unwritten {
        #[source]
        cause: Box<RunError>,
        state: Box<UnwrittenState>,
    },
    #[error("{cause}; {}", .errored.described())]
    Errored {
        #[source]
        cause: Box<RunError>,
        errored: Box<ErroredState>,
    },
    #[error("{failed}; what is left cannot be applied")]
    Rest {
        /// Why the apply failed.
        failed: String,
        #[source]
        cause: Box<RunError>,
    },
    #[error("a new plan differs from the reviewed one: {0}")]
    NoRemainder(Differences),
    #[error("{0}")]
    Changed(String),
    #[error("{0}")]
    Unpushed(Unpushed),
    #[error("{0}")]
    MissingState(MissingState),
    #[error(transparent)]
    LayerTool(#[from] LayerToolError),
    #[error(transparent)]
    Migration(Box<MigrationError>),
    #[error(transparent)]
    Policy(Box<CheckError>),
    #[error(transparent)]
    Inputs(Box<InputsError>),
    #[error(transparent)]
    AbsentState(#[from] AbsentState),
    #[error("the state cannot be read")]
    UnreadableState(#[source] std::io::Error),
    #[error("cannot find out whether an earlier apply of this layer has left a state or a record")]
    UnreadableDirectory(#[source] std::io::Error),
    #[error("the tool of a killed run still works: a process has its output in {} open", .0.display())]
    OrphanedTool(PathBuf),
    #[error(
        "an apply of this {order} ({runs}) has started, and has not saved what it has created in the state: {names} may \
         exist, and would be created again{unread}"
    )]
    EarlierCreates {
        /// Run and attempt of those that have.
        runs: String,
        order: &'static str,
        names: String,
        /// Why it is not known what the state has, after a semicolon.
        unread: String,
        next: &'static str,
        /// Whether another process uses the state, such as that run.
        lock: Box<FoundLock>,
    },
    #[error("run {run} has imported {names} into the state, and {why}")]
    LeftImport {
        run: String,
        names: String,
        why: String,
        /// Whether that run still works.
        is_working: bool,
    },
    #[error(transparent)]
    Unreadable(#[from] UnreadableError),
    #[error("{order} was applied elsewhere: in {theirs}; this run is for {ours}")]
    AppliedElsewhere { order: String, theirs: String, ours: String, next: String },
    #[error("{order} was applied with {difference}")]
    OtherOrder { order: String, difference: String, next: String },
    #[error(
        "the plan of run {ours} has the same bytes as the plan of run {theirs}, which run {applied} has applied"
    )]
    SamePlan { ours: String, theirs: String, applied: String },
    #[error("{option} in {variable} makes the tool print a text and do nothing else")]
    PrintsOnly { option: &'static str, variable: &'static str },
    #[error(
        "{0} makes terragrunt run several units, and each would write its plan to the same file"
    )]
    SeveralUnits(&'static str),
    #[error("the datastore cannot record the key of an order (--order-key)")]
    NoOrderKeys,
    #[error(transparent)]
    Rules(#[from] ClassifyError),
    #[error(transparent)]
    Open(#[from] OpenError),
    #[error(transparent)]
    Applied(AppliedError),
    #[error(transparent)]
    State(Box<StateError>),
    #[error("the datastore")]
    Datastore(#[from] ClientError),
    #[error("nothing was applied, because its ledger could not be read or stored")]
    Ledger(#[source] ClientError),
    #[error("the annotations could not be written ({annotations})")]
    Annotate { annotations: String, source: LayerError },
    #[error("the output of {tool} {step} could not be stored")]
    Incomplete {
        tool: String,
        step: &'static str,
        #[source]
        cause: std::io::Error,
    },
    #[error(transparent)]
    Scratch(#[from] ScratchError),
    #[error(transparent)]
    Lease(Box<LeaseError>),
    #[error("{0}")]
    Io(#[from] std::io::Error),
    #[error("stopped by {0}")]
    Stopped(Stop),
    /// `during`: the tool and its step, or what the runner did itself; `last`: the last line of the tool.
    #[error("{during} was stopped by {stop}{}", .last.as_ref().map(|line| format!("; its last output is `{line}`")).unwrap_or_default())]
    StoppedStep { during: String, stop: Stop, last: Option<String> },
    #[error("{tool} apply was stopped by {stop}; {done} before that")]
    StoppedApply { tool: String, stop: Stop, done: String },
}

/// What terragrunt has left out.
fn left_out(step: &str) -> &'static str {
    if step == "apply" { "not completed the apply" } else { "made no plan" }
}

impl From<MigrationError> for RunError {
    fn from(error: MigrationError) -> Self {
        Self::Migration(Box::new(error))
    }
}

impl From<CheckError> for RunError {
    fn from(error: CheckError) -> Self {
        Self::Policy(Box::new(error))
    }
}

impl From<InputsError> for RunError {
    fn from(error: InputsError) -> Self {
        Self::Inputs(Box::new(error))
    }
}

impl From<StateError> for RunError {
    fn from(error: StateError) -> Self {
        Self::State(Box::new(error))
    }
}

impl RunError {
    /// The tool was being installed.
    pub(crate) fn stopped_installation(stop: Stop) -> Self {
        Self::StoppedStep { during: "the installation of the tool".to_owned(), stop, last: None }
    }

    /// Where it is recorded whether the state is locked, if the tool was killed in a step that locks it.
    pub(crate) fn killed_lock(&mut self) -> Option<&mut FoundLock> {
        let (is_killed, step, lock) = match self {
            Self::Killed { step, lock, .. } => (true, *step, lock),
            Self::TimedOut { step, end, lock, .. } => (end.is_killed(), *step, lock),
            _ => return None,
        };
        Some(&mut **lock).filter(|_| is_killed && matches!(step, "plan" | "apply"))
    }

    /// Whether a signal or a limit has ended the run: nothing else is tried then.
    pub(crate) fn is_stop(&self) -> bool {
        matches!(
            self,
            Self::Stopped(_)
                | Self::StoppedStep { .. }
                | Self::StoppedApply { .. }
                | Self::Killed { stop: Some(_), .. }
                | Self::TimedOut { .. }
        )
    }
}

/// The run would work with the states of its layer with another tool than the recorded one.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LayerToolError {
    #[error("the states of {layer} belong to {theirs}, and this run would use {ours}")]
    Other { layer: String, theirs: String, ours: String },
    #[error(
        "the states of {layer} were written by {theirs}, and this run would use the older {ours}"
    )]
    Older { layer: String, theirs: String, ours: String },
}

/// Why it is not known that there is nothing to destroy.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AbsentState {
    #[error("there is no state, but {0} has applied to this layer")]
    Applied(String),
    #[error("there is no state, but an apply has left one that its backend did not accept ({})", .0.display())]
    Kept(PathBuf),
    #[error("there is no state, but a backup of one ({})", .0.display())]
    Backup(PathBuf),
    #[error(
        "there is no state, and without a datastore it is not known whether anything was applied"
    )]
    Unknown,
    #[error("there is no state, and it is not known whether anything was applied: {0}")]
    Unread(String),
}

impl From<LeaseError> for RunError {
    fn from(error: LeaseError) -> Self {
        Self::Lease(Box::new(error))
    }
}

/// A kept record of an apply cannot be read, and may be that of this apply.
#[derive(Debug, thiserror::Error)]
#[error("the record {} cannot be read, and this may have been applied: {}", .record.file.display(), .record.reason)]
pub(crate) struct UnreadableError {
    pub(crate) record: UnreadableRecord,
    /// Whether a stored plan is applied.
    pub(crate) is_planned: bool,
}

/// The plan was applied, but a step after that failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AppliedError {
    #[error("applied, but the annotations could not be written: {reason} ({values})")]
    Unannotated { reason: String, values: String, hint: String },
    #[error("applied, but not all of it is stored: {reason}")]
    Unsent { reason: String, hint: String },
    #[error("applied, but {} no value: {}{}{other}", if .names.len() == 1 { "a required output has" } else { "required outputs have" }, .names.join(", "), if .other.is_empty() { "" } else { "; " })]
    OutputBroken {
        names: Vec<String>,
        /// What else failed.
        other: String,
        hint: String,
    },
    #[error("applied, but {state}{}{other}", if .other.is_empty() { "" } else { "; " })]
    Unwritten {
        state: String,
        /// What else failed.
        other: String,
        hint: String,
    },
}

impl AppliedError {
    /// What to do about it.
    pub(crate) fn hint(&self) -> &str {
        match self {
            Self::Unannotated { hint, .. }
            | Self::Unsent { hint, .. }
            | Self::OutputBroken { hint, .. }
            | Self::Unwritten { hint, .. } => hint,
        }
    }
}
