//! The tries of an apply. The first one applies the reviewed plan, each further one what is left of it.

use std::path::PathBuf;

use datastore_api::Sha256;
use fs_err as fs;

use crate::basis::plan_file::StateVersion;
use crate::report::ledger::ImportState;
use crate::report::{ApplyTry, Counts, Report};
use crate::run::PLAN_FILE;
use crate::run::Run;
use crate::run::apply::errored_state::Places;
use crate::run::apply::remainder::done::Done;
use crate::run::apply::remainder::{Imports, Remainder, Surroundings, names};
use crate::run::error::RunError;
use crate::run::prepare::Prepared;
use crate::source::states::PushRecord;
use crate::tool::argv::{PlanOptions, Tool};
use crate::tool::diagnostics::ApplyEnd;

/// What the tries of an apply share.
pub(in crate::run::apply) struct Applying<'a> {
    pub(in crate::run::apply) places: &'a Places,
    pub(in crate::run::apply) record: PushRecord,
    /// The program that applies.
    pub(in crate::run::apply) name: &'a str,
    /// The value for `apply-sum`.
    pub(in crate::run::apply) sum: Option<&'a str>,
    /// What the first try worked with. `Err`: why it is the only one.
    pub(in crate::run::apply) surroundings: Result<Surroundings, String>,
}

/// What one try applies.
struct Step {
    /// `None`: the tool plans with these options.
    plan: Option<PathBuf>,
    options: PlanOptions,
    sha256: Option<Sha256>,
    counts: Option<Counts>,
}

/// What follows a try that failed: a plan.
struct Next {
    options: PlanOptions,
    /// What the first try worked with.
    surroundings: Surroundings,
    /// The objects to import: the next plan follows at once. `None`: the errors are transient, and it follows after a pause.
    imports: Option<Imports>,
}

impl Run<'_> {
    /// Runs the tool's apply; again, as long as its errors are transient, or about objects that can be imported, and what is left
    /// is a remainder of the plan.
    pub(in crate::run::apply) async fn apply_with_retries(
        &mut self,
        prepared: &mut Prepared,
        applying: &Applying<'_>,
    ) -> Result<(), RunError> {
        let (mut tries, mut done) = (self.tries("apply"), Done::default());
        let mut step = self.first_step();
        for number in 1.. {
            let logged = fs::metadata(self.log.path())?.len();
            // Init without the mirror comes after an error.
            let may_repeat = prepared.mirrored || prepared.terragrunt.is_some();
            let result = self.try_apply(prepared, applying, (&step, number), logged).await;
            self.end_try_apart(&mut tries);
            if number == 1 && result.is_ok() {
                break;
            }
            let applied = self.log.reader(logged).and_then(|log| done.add(log, may_repeat));
            // Nothing that comes after the tool may make a failure of an apply that has succeeded.
            let applied = applied.unwrap_or_else(|error| {
                tracing::warn!("what the apply has done cannot be read: {error}");
                Counts::default()
            });
            self.add_try(&step, applied, result.as_ref().err());
            let Err(error) = result else { break };
            done.unanswered.extend(self.unanswered_creates());
            let next = self.next(prepared, applying, &error, &mut done);
            let Some(next) = Box::pin(next).await? else { return Err(error) };
            let mut failed = self.report.clone();
            (self.record_error)(&error, &mut failed);
            let may_follow =
                next.imports.is_some() || self.retries.has_left("apply", tries.counted());
            let left = if may_follow { self.pull_version(prepared).await? } else { None };
            let known = (&done, left.as_ref());
            let imports = next.imports.clone();
            step = if let Some(imports) = imports {
                tries.follow_at_once();
                let next = self.next_step(prepared, applying, next, known, (failed, number));
                let next = Box::pin(next).await;
                match self.accepted(&imports, next).await {
                    Ok(step) => step,
                    Err(cause) if cause.is_stop() => {
                        self.leave_imports(prepared, &imports)?;
                        return Err(cause);
                    }
                    Err(cause) => {
                        self.refuse_imports(prepared, &imports, &cause).await?;
                        return Err(error);
                    }
                }
            } else {
                let first = error.to_string();
                self.before_retry(&mut tries, error).await?;
                let next = self.next_step(prepared, applying, next, known, (failed, number));
                Box::pin(next).await.map_err(|cause| match cause {
                    cause if cause.is_stop() => cause,
                    cause => RunError::Rest { failed: first, cause: Box::new(cause) },
                })?
            };
        }
        Ok(())
    }

    /// The next try, when the ledger says that the plan with these imports is accepted.
    async fn accepted(
        &mut self,
        imports: &Imports,
        next: Result<Step, RunError>,
    ) -> Result<Step, RunError> {
        let step = next?;
        self.record_imports(imports, ImportState::Accepted, None).await?;
        Ok(step)
    }

    /// What follows a try that failed with this error. `None`: nothing, and it is said why.
    async fn next(
        &mut self,
        prepared: &mut Prepared,
        applying: &Applying<'_>,
        error: &RunError,
        done: &mut Done,
    ) -> Result<Option<Next>, RunError> {
        let RunError::Tool { why, .. } = error else { return Ok(None) };
        let existing = &why.existing;
        if !why.is_retryable && existing.objects.is_empty() {
            return Ok(None);
        }
        let options = self.options_of_rest(prepared, done);
        let known = options.and_then(|options| Ok((options, applying.surroundings.clone()?)));
        let (options, surroundings) = match known {
            Ok(known) => known,
            Err(reason) => {
                let line = format!("the apply is not tried again: {reason}");
                tracing::warn!("{line}");
                self.log.line(&line)?;
                self.advise_imports(existing, &reason)?;
                return Ok(None);
            }
        };
        if why.is_retryable {
            return Ok(Some(Next { options, surroundings, imports: None }));
        }
        let imports = self.begin_imports(prepared, existing, &options).await?;
        if imports.is_empty() {
            return Ok(None);
        }
        done.imports.extend(imports.clone());
        Ok(Some(Next { options, surroundings, imports: Some(imports) }))
    }
}

impl Run<'_> {
    /// The try that applies the reviewed plan, or plans and applies in one.
    fn first_step(&self) -> Step {
        let plan = self.report.plan.as_ref();
        Step {
            plan: plan.map(|_| self.scratch.join(PLAN_FILE)),
            options: self.job.options.clone(),
            sha256: plan.map(|plan| plan.sha256),
            counts: plan.and_then(|plan| plan.counts),
        }
    }

    /// Applies once, and stores the versions of a local state meanwhile.
    async fn try_apply(
        &mut self,
        prepared: &mut Prepared,
        applying: &Applying<'_>,
        step: (&Step, u32),
        logged: u64,
    ) -> Result<(), RunError> {
        let follower = self.follow_state(prepared);
        let result = Box::pin(self.apply_once(prepared, applying, step, logged)).await;
        self.end_following(follower, prepared).await;
        result
    }

    async fn apply_once(
        &mut self,
        prepared: &mut Prepared,
        applying: &Applying<'_>,
        (step, number): (&Step, u32),
        mut logged: u64,
    ) -> Result<(), RunError> {
        let program = |tool: &Tool<'_>| match &step.plan {
            Some(plan) => tool.apply(plan),
            None => tool.apply_unplanned(&step.options),
        };
        self.begin_ledger(prepared, step.sha256, number == 1).await?;
        let result = self.apply_step(prepared, &mut logged, program).await;
        let Applying { places, record, .. } = applying;
        let written = (*places, logged);
        let workspace = &prepared.workspace;
        let kept = self.keep_errored_states(result.is_err(), workspace, record.clone(), written);
        let has_ended = self.has_ended_by_itself(&result, logged);
        self.end_ledger(&result, logged, has_ended && matches!(kept, Ok(None))).await;
        let result = result.map_err(|error| self.explain_plan_file(error, prepared.installed.tool));
        let Some(mut errored) = kept? else { return result };
        if let Some(reason) = self.rejection().await {
            self.say(&reason);
            errored.delivery.rejected = Some(reason);
        }
        Box::pin(self.rescue(prepared, &mut errored)).await;
        if has_ended && errored.delivery.pushed {
            self.record_pushed_state().await;
        }
        errored.add_to(result)
    }

    /// Whether the tool of an apply has ended by itself, or was not started. A wrapper may hide that it was killed: a tool that has
    /// failed by itself has the exit code of a failure, and says why.
    fn has_ended_by_itself(&self, result: &Result<(), RunError>, logged: u64) -> bool {
        let has_failed = || {
            let says_why = self.apply_end(logged).is_ok_and(ApplyEnd::has_failed_by_itself);
            // Terragrunt can ignore the failure.
            matches!(self.report.last_exit("apply"), Some(0 | 1)) && says_why
        };
        match result {
            Ok(()) | Err(RunError::Stopped(_)) => true,
            Err(RunError::Tool { .. } | RunError::StoppedStep { .. }) => has_failed(),
            Err(RunError::TimedOut { end, .. }) => !end.is_killed() && has_failed(),
            Err(_) => false,
        }
    }

    /// Adds a try that has ended to the report.
    fn add_try(&mut self, step: &Step, applied: Counts, error: Option<&RunError>) {
        let class = match error {
            Some(RunError::Tool { why, .. }) => Some(why.class.to_string()),
            _ => None,
        };
        self.report.retried.tries.push(ApplyTry {
            attempt: self.attempt(),
            plan: step.sha256,
            planned: step.counts,
            applied,
            succeeded: error.is_none(),
            class,
        });
    }

    /// Makes the next try: a plan for what is left, which is stored.
    async fn next_step(
        &mut self,
        prepared: &mut Prepared,
        applying: &Applying<'_>,
        Next { options, surroundings, .. }: Next,
        (done, left): (&Done, Option<&StateVersion>),
        (failed, number): (Report, u32),
    ) -> Result<Step, RunError> {
        self.refresh_cli_config(prepared)?;
        // Another apply of this layer may have left a state in the meantime.
        self.check_pushed(prepared, applying.name).await?;
        self.check_surroundings(prepared, &surroundings).await?;
        let reviewed = self.report.plan.as_ref().map(|plan| plan.sha256);
        let remainder = if reviewed.is_none() && done.imports.is_empty() {
            None
        } else {
            Some(self.plan_remainder(prepared, &options, done, number).await?)
        };
        let bin = remainder.as_ref().map(|remainder| &*remainder.bin);
        self.check_state_left(prepared, bin, left).await?;
        self.open_try(remainder.as_ref(), failed, number).await?;
        // To plan and to store may have taken long.
        self.check_surroundings(prepared, &surroundings).await?;
        self.report.retried.parent = reviewed;
        self.keep_ahead(prepared, applying.sum);
        Ok(match remainder {
            None => Step { plan: None, options, sha256: None, counts: None },
            Some(Remainder { bin, sha256, counts, .. }) => {
                Step { plan: Some(bin), options, sha256: Some(sha256), counts: Some(counts) }
            }
        })
    }

    /// Opens the attempt of the next try and stores its plan there. The failed try gets its log and its report. In a pod of
    /// Burrito's all tries are one attempt, whose number the controllers decide.
    async fn open_try(
        &mut self,
        remainder: Option<&Remainder>,
        mut failed: Report,
        number: u32,
    ) -> Result<(), RunError> {
        let Some(artifacts) = self.artifacts.clone() else { return Ok(()) };
        self.mask_log().await;
        let (signals, log, pod) = (self.signals, self.log.path(), self.job.pod);
        let stored = async {
            let next = if pod { artifacts.clone() } else { artifacts.next().await? };
            if let Some(Remainder { bin, json, .. }) = remainder {
                next.put_remainder(&names(number), [bin, json]).await?;
            }
            if !pod {
                failed.mask(&self.environment.redaction);
                failed.hint = Some(format!("tried again as attempt {}", next.attempt()));
                let (log, report) =
                    tokio::join!(artifacts.put_log(log), artifacts.put_report(&failed));
                log.and(report)?;
            }
            Ok::<_, RunError>(next)
        };
        let next = Box::pin(signals.or(stored)).await.map_err(RunError::Stopped)??;
        if !pod {
            let line = format!("the next try is attempt {}", next.attempt());
            tracing::info!("{line}");
            self.log.line(&line)?;
        }
        self.artifacts = Some(next);
        Ok(())
    }
}
