//! One step of a run: the tool is run once, and its exit is checked. Which steps a run has is not known here.

mod ahead;
pub(super) mod budget;
pub(crate) mod found_lock;
mod killed;
pub(crate) mod limits;
mod lock_probe;
pub(super) mod messages;
mod retry;

use std::io::{self, Read as _};
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;

use datastore_api::chain;
use fs_err as fs;

use crate::basis::place::DEFAULT_WORKSPACE;
use crate::process::text::one_line;
use crate::process::{self, ExitReport, Output, Program};
use crate::report::StateLock;
use crate::run::Run;
use crate::run::error::RunError;
use crate::run::prepare::{CLI_CONFIG, Prepared};
pub(super) use crate::run::step::ahead::Ahead;
use crate::run::step::found_lock::{FoundLock, takes_lock};
use crate::run::step::killed::{has_given_up, is_killed_below, killed_by};
use crate::run::step::limits::TimedOut;
use crate::run::step::messages::Messages;
use crate::source::states::name::{DatastoreName, StateName};
use crate::tool::argv::Tool;
use crate::tool::diagnostics::{self, Below, Diagnostics, says_applied};
use crate::tool::terragrunt;

impl Run<'_> {
    /// Runs a step that may install providers. If the provider mirror does not serve one of them, the step is run
    /// once more without the mirror.
    ///
    /// Both sources in one configuration would not do: the tool fails if any configured source fails.
    pub(super) async fn step_with_mirror_fallback(
        &mut self,
        prepared: &mut Prepared,
        name: &'static str,
        program: impl Fn(&Tool<'_>) -> Program,
    ) -> Result<(), RunError> {
        let before = fs::metadata(self.log.path())?.len();
        let result = self.step(name, &program(&prepared.tool())).await;
        let result = self.with_lock(prepared, result).await;
        let Err(RunError::Tool { .. }) = result else { return result };
        let may_repeat = prepared.mirrored && !self.has_cut_output;
        if !may_repeat || !is_provider_missing(self.log.reader(before)?)? {
            return result;
        }
        let line = "the provider mirror did not serve a provider: trying again without the mirror";
        tracing::warn!("{line}");
        self.log.line(line)?;
        prepared.mirrored = false;
        prepared.env.retain(|(name, _)| name != CLI_CONFIG);
        let result = self.step(name, &program(&prepared.tool())).await;
        self.with_lock(prepared, result).await
    }

    /// Runs a step whose output is shown and logged.
    pub(super) async fn step(
        &mut self,
        name: &'static str,
        program: &Program,
    ) -> Result<(), RunError> {
        self.run_step(name, program, Output::Tee(self.log)).await
    }

    /// Runs a step whose standard output is written to a private file.
    pub(super) async fn step_into(
        &mut self,
        name: &'static str,
        program: &Program,
        to: &Path,
    ) -> Result<(), RunError> {
        self.run_step(name, program, Output::Capture(to, self.log)).await
    }

    async fn run_step(
        &mut self,
        step: &'static str,
        program: &Program,
        output: Output<'_>,
    ) -> Result<(), RunError> {
        if let Some(stop) = self.signals.stopped() {
            return Err(RunError::Stopped(stop));
        }
        self.environment.redaction.read_files_again();
        let before = fs::metadata(self.log.path())?.len();
        // The name of terragrunt, where it runs the tool.
        let tool = program.path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let name = format!("{tool} {step}");
        let messages = Messages::of(program);
        let limits = limits::of_step(self.job.limits, step, &name);
        let exit = process::run(program, output, self.signals, &limits, self.job.grace).await?;
        self.report.add_step(step, exit.took, exit.code(), &exit.used);
        let checked = self.check_exit((&tool, &program.dir), step, &exit, (&messages, before));
        if step != "apply" {
            self.log.remove_output();
        }
        let Some(cause) = exit.incomplete else { return checked };
        self.has_cut_output |= step == "apply";
        // A failed write of captured output closes the pipe, which ends the tool.
        let is_cause = checked.is_ok() || matches!(output, Output::Capture(..));
        let incomplete = RunError::Incomplete { tool, step, cause };
        match checked {
            Ok(()) if step == "apply" => {
                tracing::warn!("the log is incomplete: {}", chain(&incomplete));
                Ok(())
            }
            _ if is_cause => Err(incomplete),
            checked => checked,
        }
    }

    /// Turns the exit of a step into a result. `dir` is where the tool ran, `before` the length of the log before
    /// the step.
    fn check_exit(
        &mut self,
        (tool, dir): (&str, &Path),
        step: &'static str,
        exit: &ExitReport,
        (messages, before): (&Messages, u64),
    ) -> Result<(), RunError> {
        if self.has_succeeded((tool, step), exit, before)? {
            return Ok(());
        }
        let output = self.log.since(before)?;
        let below = is_killed_below(tool, exit, &output);
        let gave_up = has_given_up(&output);
        let killed = exit.killed || exit.status.signal().is_some() || below || gave_up;
        let is_locked = output.contains("Error acquiring the state lock");
        if killed && takes_lock(step) || output.contains("Error releasing the state lock") {
            self.report.state_lock = StateLock::Unknown;
        } else if is_locked {
            let errors = Diagnostics::read(self.log.reader(before)?)?;
            let is_held = FoundLock::is_held(&errors);
            self.report.state_lock = if is_held { StateLock::Held } else { StateLock::Unknown };
        }
        let (tool, state) = (tool.to_owned(), self.state_name());
        if let Some(reached) = &exit.limit {
            let end =
                Box::new(TimedOut::new(reached.clone(), exit, below || gave_up, self.job.grace));
            let lock = Box::default();
            return Err(RunError::TimedOut { tool, state, step, end, lock });
        }
        let gave_up = gave_up.then(|| "got two interrupts, and did not save its state".to_owned());
        if let Some(end) = gave_up.or_else(|| killed_by(exit, below, self.job.grace)) {
            let lock = Box::default();
            let memory = Box::new(exit.used.killed);
            return Err(RunError::Killed { tool, state, step, end, stop: exit.stop, memory, lock });
        }
        if let Some(stop) = exit.stop {
            let last = output.lines().rfind(|line| !line.trim().is_empty());
            let last = last.map(|line| one_line(line.trim()));
            return Err(RunError::StoppedStep { during: format!("{tool} {step}"), stop, last });
        }
        let end = terragrunt::before_stale_start(self.log.reader(before)?)?;
        let log = || Ok(self.log.reader(before)?.take(end.unwrap_or(u64::MAX)));
        let (errors, why) = messages.errors(log, |output| self.retries.cause(output))?;
        let mut why = Box::new(why);
        // What is missing of an output may be an error that is not transient.
        why.is_retryable &= exit.incomplete.is_none();
        if let Some(reason) = why.refusal() {
            let line = format!("{tool} {step} is not run again: {reason}");
            tracing::warn!("{line}");
            self.log.line(&line)?;
        }
        why.killed(exit.used.killed);
        let (code, dir) = (exit.code(), dir.to_owned());
        let stored = self.artifacts.is_some();
        Err(RunError::Tool { tool, state, step, code, errors, why, dir, stored })
    }

    /// Whether a step has succeeded. With terragrunt an exit code of 0 is not enough: it can ignore an error of the tool, which
    /// fails the step, and run no tool at all, which is an error here for an apply.
    fn has_succeeded(
        &self,
        (tool, step): (&str, &'static str),
        exit: &ExitReport,
        before: u64,
    ) -> Result<bool, RunError> {
        // 2 is a plan with changes, where TF_CLI_ARGS_plan asks for detailed exit codes.
        let success = exit.status.success() || (step == "plan" && exit.status.code() == Some(2));
        let is_stopped = exit.stop.is_some() || exit.limit.is_some();
        // An apply that succeeded in spite of a signal or a limit has succeeded. Terragrunt can end well without one.
        let is_complete = !is_stopped || step == "apply" && says_applied(self.log.reader(before)?)?;
        if !success || !is_complete || tool != "terragrunt" {
            return Ok(success && is_complete);
        }
        let below = Below::read(self.log.reader(before)?)?;
        if below.hides_failure(step) {
            let line = format!(
                "terragrunt has ignored an error (`errors` in its configuration); the runner does not: {tool} {step} has failed"
            );
            tracing::warn!("{line}");
            self.log.line(&line)?;
            return Ok(false);
        }
        // A log that is cut need not say it.
        if step == "apply" && exit.incomplete.is_none() && !below.says_applied() {
            return Err(RunError::LeftOut { step, message: below.message });
        }
        Ok(true)
    }

    /// How commands name the state. The workspace is named if it is one of `TF_WORKSPACE`, or another than the default.
    fn state_name(&self) -> StateName {
        if let Some(name) = self.datastore_name() {
            return StateName::Datastore(Box::new(name));
        }
        let named = self.environment.tf_workspace.clone().filter(|name| !name.is_empty());
        let selected = || self.job.place.workspace.clone().filter(|name| name != DEFAULT_WORKSPACE);
        named.or_else(selected).map_or(StateName::Selected, StateName::Workspace)
    }

    /// The state in the datastore with which the tool works, for commands.
    pub(in crate::run) fn datastore_name(&self) -> Option<DatastoreName> {
        let key = self.job.state.as_ref().map(|state| &state.key).or(self.state_here.as_ref())?;
        let mut url = self.job.datastore.as_ref()?.settings().url.clone();
        // A URL that cannot have a password has none.
        let _none = (url.set_username(""), url.set_password(None));
        Some(DatastoreName { key: key.to_string(), url: url.to_string() })
    }
}

/// Whether an init failed because a provider could not be found, by the messages of terraform and tofu. An apply
/// that has started is never repeated, however long its output is: there, a provisioner may have printed such a message.
fn is_provider_missing(output: impl io::BufRead) -> io::Result<bool> {
    let (mut is_missing, mut has_started) = (false, false);
    diagnostics::each_line(output, |line| {
        let contains = |any: &[&str]| any.iter().any(|text| line.contains(text));
        is_missing |= contains(&[
            "Failed to query available provider packages",
            "Failed to install provider",
        ]);
        has_started |=
            contains(&[": Creating...", ": Modifying...", ": Destroying...", "Apply complete"]);
    })?;
    Ok(is_missing && !has_started)
}
