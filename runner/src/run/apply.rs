//! The action `apply`: a plan is applied once, and only if it belongs to this code and backend.

mod after_apply;
mod compare;
mod errored_state;
mod existing;
mod hooks;
mod ledger;
pub(super) mod lock;
mod lost_state;
pub(crate) mod remainder;
mod repeated;
mod rescue;
mod snapshots;
mod state_out;
mod state_size;

use std::pin::pin;

use datastore_api::RunKey;
use fs_err as fs;

use crate::cli::Environment;
use crate::order::job::{Apply, Job};
use crate::report::ledger::Ledger;
use crate::report::{AppliedRecord, PlanReport};
use crate::run::apply::errored_state::Places;
pub(crate) use crate::run::apply::ledger::Recorder;
use crate::run::apply::lock::RunLock;
use crate::run::apply::remainder::{Applying, Surroundings};
use crate::run::artifacts::{Artifacts, StoredPlan};
use crate::run::error::RunError;
use crate::run::plan::renderings;
use crate::run::prepare::{Prepared, secrets};
use crate::run::stored_plan::{self, Choice, StoredPlanError};
use crate::run::unsent;
use crate::run::{PLAN_FILE, Run, open_artifacts};
use crate::source::references::installed::Called;
use crate::source::scratch::{KilledApply, Scratch};
use crate::version::ToolName;

/// What an apply applies.
#[derive(Debug)]
struct PlanToApply {
    /// The verified plan. `None`: the tool plans and applies in one.
    plan: Option<PlanReport>,
    /// The value for the annotation `apply-sum`, in base64.
    sum: Option<String>,
    /// Whether what it marks as sensitive could not be read.
    is_unread: bool,
}

/// What a try works with, or why that is not known, and the earlier ledgers, unless they do not matter.
type Compared = (Result<Surroundings, String>, Result<Option<Vec<Ledger>>, RunError>);

impl Run<'_> {
    /// Reads the records of earlier applies, and applies unless one of them says that it is done.
    pub(super) async fn read_records_and_apply(&mut self, from: &Apply) -> Result<(), RunError> {
        let job = self.job;
        let opened = async {
            let artifacts = open_artifacts(job).await?;
            let records = match &artifacts {
                Some(artifacts) => artifacts.applied_records().await?,
                None => Vec::new(),
            };
            Ok::<_, RunError>((artifacts, records))
        };
        // `self.artifacts` is set only when the records are known: a failure that is stored could replace one.
        let (artifacts, records) = self.signals.or(opened).await.map_err(RunError::Stopped)??;
        self.set_artifacts(artifacts);
        self.check_arguments()?;
        Box::pin(self.apply_unless_done(from, records)).await
    }

    /// Applies, unless a record says that it was done. `records` are those of this run, the latest first.
    async fn apply_unless_done(
        &mut self,
        from: &Apply,
        mut records: Vec<AppliedRecord>,
    ) -> Result<(), RunError> {
        let of_order = self.ordered_record().await?;
        if let Some(record) = self.earlier_apply(from, &mut records, of_order.as_ref()) {
            Box::pin(self.check_repeated(&record)).await?;
            return Box::pin(self.record_earlier_apply(from, record)).await;
        }
        let choice = self.choose(from).await?;
        if let Some(choice) = &choice {
            if let Some((plan, sum)) = choice.kept_sum(self.job) {
                for record in of_order.iter().chain(&self.record_of_run(&records, plan.sha256)) {
                    self.check_same_plan(record, Some(plan.sha256))?;
                }
                return self.record_empty(choice, plan, sum).await;
            }
            choice.basis.check_arguments(&self.environment.inputs)?;
            self.report.changed_outputs = choice.basis.changed_outputs();
            self.restore_inputs(choice).await?;
        }
        let (job, signals, environment) = (self.job, self.signals, self.environment);
        let (scratch, artifacts) = (self.scratch, self.artifacts.clone());
        let fetched = fetch(job, from, choice.as_ref(), artifacts.as_ref(), scratch, environment);
        // Init waits for the plan: it must not run for one that is refused.
        let (fetched, code) = tokio::join!(signals.or(fetched), self.check_out(choice.as_ref()));
        let (PlanToApply { plan, sum, is_unread }, earlier) =
            fetched.map_err(RunError::Stopped)??;
        if let Some(plan) = &plan {
            let sha256 = plan.sha256;
            let of_plan = earlier.or_else(|| self.unsent_record(Some(sha256)));
            // The plan may be another order's: this one must have applied no other plan.
            let found = [of_order, self.record_of_run(&records, sha256), of_plan];
            for record in found.iter().flatten() {
                self.check_same_plan(record, Some(sha256))?;
                self.check_plan_run(record, Some(plan))?;
            }
            if let Some(record) = found.into_iter().flatten().next() {
                self.check_applied_code(&record, choice.as_ref(), code).await?;
                return Box::pin(self.record_earlier_apply(from, record)).await;
            }
        }
        self.check_kept_records(from)?;
        self.report.plan = plan;
        let code = code?;
        self.compare_outside_files(choice.as_ref(), &code.workspace).await?;
        self.describe_order(&code.workspace, &Called::new()).await?;
        // Held until the apply is recorded.
        let mut locks = self.lock_run(from, &code.workspace).await?;
        self.take_lease().await?;
        self.check_layer_tool_again(&code.installed).await?;
        self.read_state_in_again()?;
        let mut prepared = self.initialize(code).await?;
        let surroundings = self.surroundings(&prepared).await?;
        if let Some(choice) = &choice {
            self.compare(from, choice, &prepared).await?;
        }
        locks.extend(self.lock_state().await?);
        self.read_state_in_again()?;
        self.use_backend(&mut prepared).await?;
        if let Some(record) = self.recorded_since(from).await? {
            self.check_applied_place(&record)?;
            self.compare_order(&record)?;
            return Box::pin(self.record_earlier_apply(from, record)).await;
        }
        let compared = self.compare_last(choice.as_ref(), &prepared, surroundings).await?;
        Box::pin(self.apply(&mut prepared, (sum, is_unread, compared), &locks)).await
    }

    /// Compares the state, and reads earlier ledgers beside that. What a try works with is unknown if the code is not that of the
    /// plan, which was only a warning.
    async fn compare_last(
        &mut self,
        choice: Option<&Choice>,
        prepared: &Prepared,
        surroundings: Result<Surroundings, String>,
    ) -> Result<Compared, RunError> {
        self.check_planned_state(choice.map(|choice| &choice.basis))?;
        let ledgers = Box::pin(self.earlier_ledgers());
        let Some(choice) = choice else { return Ok((surroundings, ledgers.await)) };
        let compared = Box::pin(self.compare_state(choice, prepared));
        let ((), ledgers) = beside(compared, ledgers).await?;
        let warned = choice.basis.warned_difference();
        Ok((warned.map_or(surroundings, |difference| Err(difference.to_owned())), ledgers))
    }

    /// Chooses the plan to apply, and compares everything that is known before the checkout.
    async fn choose(&mut self, from: &Apply) -> Result<Option<Choice>, RunError> {
        let rendering = self.scratch.join(renderings::PARTIAL);
        let (job, artifacts) = (self.job, self.artifacts.as_ref());
        let choice = stored_plan::choose(job, from, artifacts, self.environment, &rendering);
        let choice = Box::pin(choice);
        let choice = self.signals.or(choice).await.map_err(RunError::Stopped)??;
        self.binding = choice.as_ref().and_then(|choice| choice.binding.clone());
        self.log_plan(choice.as_ref().and_then(|choice| choice.stored.as_ref()))?;
        Ok(choice)
    }

    /// Names the stored plan: without `--plan` the datastore's order has decided which one it is.
    fn log_plan(&mut self, plan: Option<&StoredPlan>) -> Result<(), RunError> {
        let Some(plan) = plan else { return Ok(()) };
        let RunKey { namespace, layer, .. } = &self.job.run;
        let times = plan.record.as_ref().map(|record| record.times).unwrap_or_default();
        self.report.planned = times.planned;
        let at = times.planned.or(times.started);
        let at = at.map(|at| format!(", planned at {at:.0}")).unwrap_or_default();
        let line = format!("the plan to apply is {plan} of {namespace}/{layer}{at}");
        tracing::info!("{line}");
        Ok(self.log.line(&line)?)
    }

    /// Records the apply of a plan that changes nothing and has kept the layer's `plan-sum`. The tool is not started.
    async fn record_empty(
        &mut self,
        choice: &Choice,
        plan: PlanReport,
        sum: String,
    ) -> Result<(), RunError> {
        let line = "the plan changes nothing, and the layer was applied before: nothing is applied";
        tracing::info!("{line}");
        self.log.line(line)?;
        self.report.revision = choice.basis.revision_or(None);
        self.report.plan = Some(plan);
        self.report.kept_sum = Some(sum.clone());
        self.record_apply(Some(sum), None).await
    }

    /// The record of an earlier apply of this run or order, which is not repeated. `records` are those of this run.
    ///
    /// A run of Burrito's is one order, even if its plan differs by now. Elsewhere the record of a run with a stored plan is
    /// compared when the plan is known.
    fn earlier_apply(
        &self,
        from: &Apply,
        records: &mut Vec<AppliedRecord>,
        of_order: Option<&AppliedRecord>,
    ) -> Option<AppliedRecord> {
        let is_unplanned = matches!(from, Apply::Unplanned(_));
        if !self.job.pod && (!is_unplanned || self.job.again) {
            return None;
        }
        if of_order.is_some() {
            return of_order.cloned();
        }
        if !records.is_empty() {
            return Some(records.swap_remove(0));
        }
        if !is_unplanned {
            return None;
        }
        self.warn_of_other_datastores();
        self.unsent_record(None)
    }

    /// Refuses a run that has the name of another place's run. A plan's place is compared before. In a pod the
    /// controllers' order decides.
    fn check_applied_place(&self, record: &AppliedRecord) -> Result<(), RunError> {
        if self.job.pod || self.report.plan.is_some() {
            return Ok(());
        }
        let Some((theirs, ours)) = record.other_place(&self.report) else { return Ok(()) };
        let (order, next) = self.applied_elsewhere(record);
        Err(RunError::AppliedElsewhere { order, theirs, ours, next })
    }

    /// Runs the tool's apply, and everything that follows it.
    async fn apply(
        &mut self,
        prepared: &mut Prepared,
        (sum, is_unread, (surroundings, ledgers)): (Option<String>, bool, Compared),
        locks: &[RunLock],
    ) -> Result<(), RunError> {
        self.check_read_lineage(prepared).await?;
        self.check_lost_state(prepared).await?;
        self.check_state_size(prepared).await?;
        Box::pin(self.undo_killed_imports(prepared)).await?;
        let name = prepared.terragrunt.as_ref().unwrap_or(&prepared.installed).tool.to_string();
        // Another apply of this layer may have left a state since the code was checked out. It has what the ledger would miss.
        self.check_pushed(prepared, &name).await?;
        Box::pin(self.check_earlier_creates(prepared, ledgers?)).await?;
        let is_planned = self.report.plan.is_some();
        let before = fs::metadata(self.log.path())?.len();
        let (downloads, runs_in) = self.downloads(prepared).await?;
        let record = self.push_record(name.clone(), &prepared.workspace).run_in(runs_in.as_deref());
        let places = Places::new(&prepared.workspace, &downloads);
        let places = places.map_err(RunError::UnreadableDirectory)?;
        let layer = unsent::layer_id(&self.job.run);
        if is_unread {
            self.redact_marks(prepared).await?;
        }
        self.before_apply(prepared).await?;
        self.record_needs().await?;
        self.use_approval().await?;
        self.withdraw_outputs().await?;
        self.begin_state_out(prepared)?;
        self.scratch.record_apply(&layer, &record)?;
        lock::record_apply(locks, &KilledApply::of_this_run(self.scratch, &layer, &record));
        self.keep_ahead(prepared, sum.as_deref());
        let (places, name, of_plan) = (&places, &*name, sum.as_deref());
        let applying = Applying { places, record, name, sum: of_plan, surroundings };
        let kept = Box::pin(self.apply_with_retries(prepared, &applying)).await;
        self.unwritten = Box::pin(self.write_state_out(prepared)).await.map(Box::new);
        let kept = kept.map_err(|error| self.explain_stop(error, name));
        if kept.is_err() {
            self.log.remove_output();
        }
        if let Err(error) = kept {
            Box::pin(self.after_apply(prepared, false)).await;
            return Err(self.with_unwritten(error));
        }
        self.signals.dismiss_guard();
        if !is_planned && let Err(error) = self.find_mocks(prepared, before) {
            tracing::warn!("cannot find out whether terragrunt used mock outputs: {error}");
        }
        self.forget_changed_source(&prepared.workspace);
        let recorded = self.record_apply(sum, Some(prepared)).await;
        Box::pin(self.after_apply(prepared, true)).await;
        recorded
    }

    /// What an apply that was stopped has done.
    fn explain_stop(&self, error: RunError, tool: &str) -> RunError {
        let (RunError::Stopped(stop) | RunError::StoppedStep { stop, .. }) = error else {
            return error;
        };
        let done = self.report.retried.applied();
        RunError::StoppedApply { tool: tool.to_owned(), stop, done }
    }

    /// The tool's error names only the private copy of a plan file that it cannot read.
    fn explain_plan_file(&self, error: RunError, tool: ToolName) -> RunError {
        match (self.job.action.plan_in_file(), &error) {
            (Some(path), RunError::Tool { errors, .. }) if errors.is_unreadable_plan() => {
                StoredPlanError::NotAPlan { path: path.to_owned(), tool }.into()
            }
            _ => error,
        }
    }
}

/// Both outputs. If the first one is an error, the second is not waited for.
async fn beside<T, U>(
    first: impl Future<Output = Result<T, RunError>>,
    second: impl Future<Output = U>,
) -> Result<(T, U), RunError> {
    let (mut first, mut second) = (pin!(first), pin!(second));
    tokio::select! {
        biased;
        first = &mut first => Ok((first?, second.await)),
        second = &mut second => Ok((first.await?, second)),
    }
}

/// Fetches the plan, the record of an earlier apply of it, and the secrets in it.
async fn fetch(
    job: &Job,
    from: &Apply,
    choice: Option<&Choice>,
    artifacts: Option<&Artifacts>,
    scratch: &Scratch,
    environment: &Environment,
) -> Result<(PlanToApply, Option<AppliedRecord>), RunError> {
    let to = scratch.join(secrets::PLANNED);
    let stored = choice.and_then(|choice| choice.stored.as_ref());
    let plan = async {
        let fetched = plan_to_apply(job, from, choice, artifacts, scratch).await?;
        let earlier = match (&fetched.plan, artifacts) {
            (Some(plan), Some(artifacts)) => artifacts.applied_record_of(plan.sha256).await?,
            _ => None,
        };
        Ok::<_, RunError>((fetched, earlier))
    };
    let secrets = secrets::redact_stored_plan(&environment.redaction, artifacts, stored, &to);
    let (plan, is_read) = tokio::join!(plan, secrets);
    let (plan, earlier) = plan?;
    Ok((PlanToApply { is_unread: !is_read, ..plan }, earlier))
}

/// Downloads and verifies the plan before the tool applies anything.
async fn plan_to_apply(
    job: &Job,
    from: &Apply,
    choice: Option<&Choice>,
    artifacts: Option<&Artifacts>,
    scratch: &Scratch,
) -> Result<PlanToApply, RunError> {
    let file = scratch.join(PLAN_FILE);
    let plan = stored_plan::fetch(job, from, choice, artifacts, &file).await?;
    let sum = match &plan {
        Some(plan) => Some(plan.sha256.to_base64()),
        None => stored_plan::ordered_plan_sum(from, artifacts, &file).await?,
    };
    let sum = sum.or_else(|| annotated_sum(job));
    Ok(PlanToApply { plan, sum, is_unread: false })
}

/// The layer's annotation `plan-sum`.
fn annotated_sum(job: &Job) -> Option<String> {
    job.layer.as_ref()?.layer().annotation("plan-sum").map(str::to_owned)
}
