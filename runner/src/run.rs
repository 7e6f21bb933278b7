//! One run, from its job to its outcome.
//!
//! [`Run`] holds what all steps share. The steps are methods of it: [`prepare`] checks out the code and
//! installs the tool, [`step`] runs the tool once, [`plan`] and [`apply`] are the two actions, a destroy and a converge are made of
//! both, [`check`] compares a plan with the policy, [`inputs`] takes outputs of other layers, and [`migrate`] replaces the tool. This module
//! does not know exit codes: the caller passes [`Run::record_error`].

mod apply;
pub(crate) mod artifacts;
pub(crate) mod check;
pub(crate) mod error;
pub(crate) mod failed;
pub(crate) mod inputs;
pub(crate) mod lease;
pub(crate) mod migrate;
pub(crate) mod plan;
pub(crate) mod prepare;
mod push;
mod snapshot;
pub(crate) mod step;
pub(crate) mod stored_plan;
pub(crate) mod unsent;

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use datastore_api::RunKey;
use datastore_api::state::{StateKey, ToolRecord};
use jiff::Timestamp;
use tokio::task::JoinSet;

use crate::basis::binding::Binding;
use crate::basis::order::{OrderKey, OrderRecord};
use crate::basis::plan_file::StateVersion;
use crate::cli::Environment;
use crate::order::job::{Action, Job};
use crate::order::layer::{self, Annotations};
use crate::process::{Log, Signals};
use crate::report::Report;
use crate::report::ledger::Ledger;
pub(crate) use crate::run::apply::Recorder;
use crate::run::artifacts::{Artifacts, AttemptRequest};
pub(crate) use crate::run::check::going_on::PlannedApply;
use crate::run::error::RunError;
use crate::run::inputs::directory::HeldDirectory;
use crate::run::inputs::error::InputsError;
use crate::run::lease::held::RunLease;
pub(crate) use crate::run::plan::renderings::Renderings;
use crate::run::push::{MissingState, Unpushed, UnwrittenState};
use crate::run::step::budget::Retries;
use crate::run::unsent::Keeper;
use crate::source::checkout::Source;
use crate::source::checkout::source_id::SourceId;
use crate::source::scratch::{self, Abandoned, KilledApply, Left, Scratch};
use crate::source::states::file::StateIn;
use crate::tool::cli_args;

/// The plan in the private directory: the only file that the tool applies.
const PLAN_FILE: &str = "plan.bin";

/// The private directory of a run, and the log in it.
#[derive(Debug)]
pub(crate) struct RunFiles {
    scratch: Scratch,
    log: Log,
}

impl RunFiles {
    /// Creates both. The directory is removed when the value is dropped.
    pub(crate) fn create(environment: &Environment) -> Result<Self, RunError> {
        crate::process::forbid_core_dumps()?;
        unsent::check_spool(environment)?;
        let scratch = Scratch::create()?;
        for abandoned in scratch.abandoned() {
            warn_of_abandoned(abandoned, environment.state_home.as_deref());
        }
        let log = Log::create(scratch.join(scratch::LOG), &environment.redaction)?;
        Ok(Self { scratch, log })
    }
}

impl RunFiles {
    /// Begins again for the apply of a plan that was made in this directory, since a plan may contain its path.
    pub(crate) async fn begin_apply(
        &mut self,
        environment: &Environment,
        signals: &Signals,
    ) -> std::io::Result<()> {
        self.scratch.empty(signals).await?;
        self.log = Log::create(self.scratch.join(scratch::LOG), &environment.redaction)?;
        Ok(())
    }

    /// Removes the directory at the end of the run, in the time that a signal leaves.
    pub(crate) async fn remove(self, signals: &Signals) {
        self.scratch.remove(signals).await;
    }
}

/// Warns of what a killed run has left. A state is copied: the directory for temporary files may be emptied at any time.
fn warn_of_abandoned(Abandoned { left, layer }: &Abandoned, state_home: Option<&Path>) {
    match left {
        Left::State(state) => {
            let copied = unsent::adopt_abandoned(state_home, layer.as_deref(), state);
            let state = copied.as_ref().unwrap_or(state);
            tracing::warn!(
                "an earlier run has left {}, the state of an apply that no backend accepted. It is {}. To push it: {}",
                state.file.display(),
                state.described(layer.as_deref()),
                Unpushed::kept([state.clone()]).steps()
            );
        }
        Left::OutOfReach(code) => {
            let missing = MissingState::of_code(code);
            let layer = layer.as_deref().unwrap_or("an unknown layer");
            tracing::warn!("{missing} (layer {layer}): {}", missing.hint());
        }
    }
}

/// One run: its job, its resources, and its results so far.
#[derive(Debug)]
pub(crate) struct Run<'a> {
    job: &'a Job,
    environment: &'a Environment,
    signals: &'a Signals,
    scratch: &'a Scratch,
    log: &'a Log,
    pub(crate) report: Report,
    /// Writes exit code, class, message and hint of an error into the report.
    record_error: fn(&RunError, &mut Report),
    /// Set once the datastore has answered, and an apply has read the records of earlier ones.
    artifacts: Option<Artifacts>,
    /// What the plan to apply is bound to. Set once it is chosen.
    binding: Option<Binding>,
    /// What an apply without a stored plan is made of. Set once the code is checked out.
    order: Option<OrderRecord>,
    /// The key under which the apply is recorded, if its order has one.
    order_key: Option<OrderKey>,
    /// Where the code comes from. That of a snapshot is known only by the repository of its plan.
    source_id: Option<SourceId>,
    /// The module's path in the plan's snapshot, if the run works there.
    path_in_snapshot: Option<PathBuf>,
    /// Whether an apply cannot work in the plan's snapshot, only in its source.
    needs_source: bool,
    /// Records what the apply does. Set before its tool starts.
    ledger: Option<Recorder>,
    /// The ledgers of earlier tries of this apply, which have attempts of their own.
    ledgers: Vec<(Ledger, u32)>,
    /// Whether the output of the tool's apply is incomplete.
    has_cut_output: bool,
    /// The state, if it is that of which the plan was made.
    planned_state: Option<StateVersion>,
    /// The killed applies of the same layer, directory or state that the lock files of an apply name.
    killed: Vec<KilledApply>,
    /// The tool that works with the states of the layer, as the datastore has it.
    layer_tool: Option<ToolRecord>,
    /// Whether the apply has left a state that the datastore does not have.
    has_unstored_state: bool,
    /// The state of `--state-in`. Set before the code is checked out.
    state_in: Option<StateIn>,
    /// The state of the apply, if it could not be written to `--state-out`.
    unwritten: Option<Box<UnwrittenState>>,
    /// What is left for running failed steps again.
    retries: Retries,
    /// The lease of the layer.
    lease: RunLease,
    /// The state in the datastore with which the tool works under the lease.
    state_here: Option<StateKey>,
    /// The lineage of the state in the datastore, before the tool has read it.
    known_lineage: Option<String>,
    /// What waits for a signal, and ends with the run.
    waiting: JoinSet<()>,
    /// The values that the layer takes of others, in place for the tool.
    held_inputs: Option<HeldDirectory>,
    /// What a destroy lacks of other layers, if there is something to destroy.
    missing_inputs: Option<InputsError>,
    /// The required outputs that have no value after the apply.
    broken_outputs: Vec<String>,
}

impl<'a> Run<'a> {
    /// A run that has not started yet. After a signal, requests to the datastore get only a short timeout.
    pub(crate) fn new(
        job: &'a Job,
        environment: &'a Environment,
        signals: &'a Signals,
        files: &'a RunFiles,
        record_error: fn(&RunError, &mut Report),
    ) -> Self {
        let RunFiles { scratch, log } = files;
        let report = new_report(job);
        let mut run = Self {
            job,
            environment,
            signals,
            scratch,
            log,
            report,
            record_error,
            artifacts: None,
            binding: None,
            order: None,
            order_key: None,
            source_id: job.source_id.clone(),
            path_in_snapshot: None,
            needs_source: false,
            ledger: None,
            ledgers: Vec::new(),
            has_cut_output: false,
            planned_state: None,
            killed: Vec::new(),
            layer_tool: None,
            has_unstored_state: false,
            state_in: None,
            unwritten: None,
            retries: Retries::new(&job.retry),
            lease: RunLease::None,
            state_here: None,
            known_lineage: None,
            waiting: JoinSet::new(),
            held_inputs: None,
            missing_inputs: None,
            broken_outputs: Vec::new(),
        };
        if let Some(datastore) = job.datastore.clone() {
            let (signals, limit) = (signals.clone(), run.upload_grace() / 4);
            run.waiting.spawn(async move {
                signals.wait().await;
                datastore.shorten_timeout(limit);
            });
        }
        run
    }

    /// Whether it destroys everything.
    pub(crate) fn destroys(&self) -> bool {
        self.job.action.destroys()
    }

    /// Namespace, layer and run.
    pub(crate) fn key(&self) -> &RunKey {
        &self.job.run
    }

    /// Plans, applies, destroys, checks, converges or migrates. The results are in `self.report`, also when it fails.
    pub(crate) async fn execute(&mut self) -> Result<(), RunError> {
        self.retries.load_rules(self.job.retry.rules.as_deref())?;
        self.read_state_in()?;
        self.check_dependants().await?;
        self.check_needs().await?;
        Box::pin(self.take_inputs()).await?;
        match &self.job.action {
            Action::Migrate(migrate) => Box::pin(self.migrate_tool(migrate)).await,
            action => match action.apply() {
                Some(from) => Box::pin(self.read_records_and_apply(from)).await,
                None => Box::pin(self.prepare_and_plan()).await,
            },
        }
    }

    /// Refuses arguments in variables that have the tool do nothing.
    fn check_arguments(&self) -> Result<(), RunError> {
        match cli_args::prints_only(&self.environment.inputs) {
            Some((option, variable)) => Err(RunError::PrintsOnly { option, variable }),
            None => Ok(()),
        }
    }

    /// Uses this attempt from now on, and sends the log there while it grows.
    fn set_artifacts(&mut self, artifacts: Option<Artifacts>) {
        self.artifacts = artifacts;
        if let Some(artifacts) = &mut self.artifacts {
            artifacts.send_log(self.log.path());
        }
    }

    /// How long all uploads together may take after a signal.
    fn upload_grace(&self) -> Duration {
        // Kubernetes kills a pod 30 s after the signal, and the tool has 20 s of them.
        if self.job.pod {
            Duration::from_secs(8)
        } else {
            self.job.grace.min(Duration::from_secs(15))
        }
    }

    /// Keeps files of this run that cannot be stored.
    fn keeper(&self) -> Keeper<'_> {
        Keeper {
            state_home: self.environment.state_home.as_deref(),
            scratch: self.scratch,
            run: &self.job.run,
            attempt: self.artifacts.as_ref().map(Artifacts::attempt).unwrap_or_default(),
        }
    }

    /// Writes annotations to the layer, if there is one.
    async fn annotate(&self, annotations: &Annotations) -> Result<(), RunError> {
        let Some(layer) = &self.job.layer else { return Ok(()) };
        let written = self.signals.within(self.upload_grace(), layer.annotate(annotations)).await;
        written
            .map_err(RunError::Stopped)?
            .map_err(|source| RunError::Annotate { annotations: layer::shown(annotations), source })
    }
}

impl fmt::Display for Run<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.job.fmt(f)
    }
}

/// Opens the run's attempt in the datastore, if there is one.
async fn open_artifacts(job: &Job) -> Result<Option<Artifacts>, RunError> {
    let Some(client) = job.datastore.clone() else { return Ok(None) };
    let wanted = AttemptRequest {
        number: job.attempt,
        lowest: job.lowest_attempt,
        is_fixed: job.pod,
        is_new_run: !job.named.run && !job.pod && !job.has_earlier_attempts,
    };
    Ok(Some(Artifacts::open(client, job.run.clone(), wanted).await?))
}

/// The report of a run that has not started yet.
pub(crate) fn new_report(job: &Job) -> Report {
    let mut report = Report::new(job.action.as_str(), Timestamp::now());
    report.place = Some(job.place.clone());
    if let (Source::Directory(dir), None) = (&job.source, &job.place.repository) {
        report.directory = fs_err::canonicalize(dir).ok().map(|dir| dir.display().to_string());
    }
    report
}
