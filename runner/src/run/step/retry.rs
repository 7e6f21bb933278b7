//! Failed steps that are run again: only if every error is transient, after a pause, and within the limits of the run.
//!
//! A step is a loop over its tries:
//!
//! ```text
//! let mut tries = self.tries("plan");
//! loop {
//!     let result = ...;                             // one try
//!     self.end_try(&mut tries);
//!     let Err(error) = result else { return Ok(()) };
//!     self.before_retry(&mut tries, error).await?;  // waits, or fails with the error of this try
//! }
//! ```

use std::io;
use std::path::Path;

use datastore_api::HumanDuration;
use fs_err as fs;
use tokio::time::Instant;

use crate::process::Program;
use crate::report::StateLock;
use crate::run::Run;
use crate::run::error::RunError;
use crate::run::prepare::Prepared;
use crate::run::step::budget::{MAX_WAIT, Refusal, Tries, random};
use crate::tool::argv::Tool;
use crate::tool::diagnosis::Cause;
use crate::tool::diagnostics::failed_before_apply;

impl Run<'_> {
    /// Runs a step, and again as long as its errors are transient and a retry is left. `before` prepares each try.
    pub(in crate::run) async fn step_with_retries(
        &mut self,
        prepared: &mut Prepared,
        step: &'static str,
        before: impl Fn() -> io::Result<()>,
        program: impl Fn(&Tool<'_>) -> Program,
    ) -> Result<(), RunError> {
        let mut tries = self.tries(step);
        loop {
            before()?;
            let result = self.step_with_mirror_fallback(prepared, step, &program).await;
            self.end_try(&mut tries);
            let Err(error) = result else { return Ok(()) };
            self.before_retry(&mut tries, error).await?;
            self.refresh_cli_config(prepared)?;
            if prepared.uses_datastore_state() {
                self.set_state_variables(prepared)?;
            }
        }
    }

    /// Runs the tool's apply once. Terragrunt downloads the source and runs init before it, as a part of the step: as long as
    /// only they have failed, with transient errors, the step is run again within the retries of an init. `logged` is the
    /// length of the log before the step, and then before its last try.
    pub(in crate::run) async fn apply_step(
        &mut self,
        prepared: &mut Prepared,
        logged: &mut u64,
        program: impl Fn(&Tool<'_>) -> Program,
    ) -> Result<(), RunError> {
        let mut tries = self.tries("init");
        loop {
            let result = self.step_with_mirror_fallback(prepared, "apply", &program).await;
            self.end_try(&mut tries);
            let Err(error) = result else { return Ok(()) };
            let is_before = |log| failed_before_apply(log, &prepared.installed.path);
            let may_repeat = prepared.terragrunt.is_some()
                && !self.has_cut_output
                && self.log.reader(*logged).and_then(is_before).unwrap_or(false);
            if !may_repeat {
                return Err(error);
            }
            self.before_retry(&mut tries, error).await?;
            self.refresh_cli_config(prepared)?;
            *logged = fs::metadata(self.log.path())?.len();
        }
    }

    /// The same for a step that only asks, and whose standard output is written to a private file.
    pub(in crate::run) async fn step_into_with_retries(
        &mut self,
        step: &'static str,
        program: &Program,
        to: &Path,
    ) -> Result<(), RunError> {
        let mut tries = self.tries(step);
        loop {
            let result = self.step_into(step, program, to).await;
            self.end_try(&mut tries);
            let Err(error) = result else { return Ok(()) };
            self.before_retry(&mut tries, error).await?;
        }
    }

    /// The tries of a step that has not run yet.
    pub(in crate::run) fn tries(&self, step: &'static str) -> Tries {
        Tries { step, count: 0, at_once: 0, first: self.report.step_count(), since: None }
    }

    /// Counts a try that has ended, in the report as well.
    pub(in crate::run) fn end_try(&mut self, tries: &mut Tries) {
        self.end_try_apart(tries);
        if tries.since.is_some() {
            self.report.join_tries(tries.first, tries.count);
        }
    }

    /// The same where other steps run between the tries: each try stays an entry of the report.
    pub(in crate::run) fn end_try_apart(&mut self, tries: &mut Tries) {
        tries.count += 1;
        if let Some((since, left)) = tries.since {
            self.retries.spend(left, since.elapsed());
        }
    }

    /// Waits until the failed step may be run again. `Err` is the failure of the run: the error of the last try, if the
    /// step is not run again, or the signal that ended the pause.
    pub(in crate::run) async fn before_retry(
        &mut self,
        tries: &mut Tries,
        error: RunError,
    ) -> Result<(), RunError> {
        let RunError::Tool { tool, why, .. } = &error else { return Err(error) };
        if !why.is_retryable {
            return Err(error);
        }
        let (step, count) = (tries.step, tries.count);
        let name = format!("{tool} {step}");
        match self.retries.pause(step, tries.counted(), why.wait, random()) {
            Ok(pause) => {
                let Cause { class, error, rule, .. } = &**why;
                let rule = rule.as_deref().unwrap_or_default();
                let line = format!(
                    "{name} failed: {class} ({rule}): {error}; try {} follows in {pause:.1?}",
                    count + 1
                );
                tracing::warn!("{line}");
                self.log.line(&line)?;
                tries.since = Some((Instant::now(), self.retries.left));
                self.signals.or(tokio::time::sleep(pause)).await.map_err(RunError::Stopped)?;
                // The failed try could not take the lock for a reason that passes; the next one says whether it can.
                self.report.state_lock = StateLock::Free;
                Ok(())
            }
            Err(Refusal::Off) => Err(error),
            Err(refusal) => {
                let timeout = HumanDuration(self.retries.timeout);
                let reason = match refusal {
                    Refusal::Off => String::new(),
                    Refusal::UsedUp(1) => "its only retry is used up".to_owned(),
                    Refusal::UsedUp(limit) => format!("its {limit} retries are used up"),
                    Refusal::Timeout => format!(
                        "the next pause would exceed the time left for retries ({timeout} in total, --retry-timeout)"
                    ),
                    Refusal::TooLong(wait) => format!(
                        "the service asks to wait {}, and a run waits {} at most",
                        HumanDuration(wait),
                        HumanDuration(MAX_WAIT)
                    ),
                };
                let line = format!("{name} is not run again: {reason}");
                tracing::warn!("{line}");
                self.log.line(&line)?;
                Err(error)
            }
        }
    }
}
