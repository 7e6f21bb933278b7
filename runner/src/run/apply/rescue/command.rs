//! Commands of the tool that deliver a state. Unlike steps they also run after a signal, until the grace period ends.

use std::path::Path;
use std::time::Duration;

use crate::process::limits::Limits;
use crate::process::{self, Log, Output, Program, Stop};
use crate::run::Run;
use crate::run::apply::rescue::push::{Again, Refused};
use crate::tool::diagnosis::{Cause, Class};
use crate::tool::diagnostics::Below;

/// How long a command may take without a limit of the user's.
const LIMIT: Duration = Duration::from_mins(5);
/// How long a command is waited for after its SIGINT. It is never killed: it may hold the lock.
const AFTER: Duration = Duration::from_secs(2);

/// What a command printed, if it failed.
pub(super) type Failed = (String, Refused);

impl Run<'_> {
    /// Runs a command. Its standard output goes to `to`.
    pub(super) async fn deliver_by(
        &mut self,
        name: &'static str,
        program: &Program,
        to: Option<&Path>,
    ) -> Result<(), Failed> {
        let io = |error: std::io::Error| {
            let refused = Refused::finally(format!("{name}: {error}"));
            (String::new(), refused)
        };
        // Of its own: the output of the apply stays.
        let log = self.scratch.join("rescue.log");
        let log = Log::create(log, &self.environment.redaction).map_err(io)?;
        let limit =
            self.job.limits.step_timeout.unwrap_or(LIMIT).min(self.time_left().unwrap_or(LIMIT));
        let limits = Limits { name, step: Some(limit), ..Limits::NONE };
        let signals = self.signals.unheard_if_stopped();
        let output = to.map_or(Output::LogOnly(&log), |to| Output::Capture(to, &log));
        let running = process::run(program, output, &signals, &limits, Duration::MAX);
        let ended = tokio::time::timeout(limit + AFTER, self.in_grace(AFTER, running)).await;
        let Ok(Some(exit)) = ended else {
            let reason = format!("{name} did not end in time");
            return Err((String::new(), Refused::finally(reason)));
        };
        let exit = exit.map_err(io)?;
        if name == "state push" {
            self.report.add_step(name, exit.took, exit.code(), &exit.used);
        }
        // Terragrunt can ignore an error.
        let hides = || Ok(Below::read(log.reader(0)?)?.hides_failure(name));
        if exit.status.success() && !hides().map_err(io)? {
            return Ok(());
        }
        let text = log.since(0).map_err(io)?;
        let refused = self.refused(name, &text).map_err(io)?;
        log.remove_output();
        Err((text, refused))
    }

    /// What a failed command has said. `state push` and `state pull` print errors without the usual form.
    fn refused(&self, name: &str, text: &str) -> std::io::Result<Refused> {
        let has_form = text.lines().any(|line| line.contains("Error: "));
        let text = if has_form { text.to_owned() } else { format!("Error: {}\n", text.trim()) };
        let Cause { is_retryable, wait, error, class, lock_reason, rule, .. } =
            self.retries.cause(text.as_bytes())?;
        let reason = format!("{name} failed: {class}: {error}");
        // The apply has reached the backend, so an address on this machine is right: a proxy or sidecar may come back. The
        // lock may only have been out of reach, too.
        let is_local = rule.is_some_and(|rule| rule == "localhost");
        let may_pass = is_retryable || is_local || lock_reason == Some(Class::Transient);
        let again = if may_pass { Again::Yes } else { Again::IfLost };
        Ok(Refused { reason, again, wait, class })
    }

    /// What is left of the grace period after a signal.
    pub(super) fn time_left(&self) -> Option<Duration> {
        let since = self.signals.since_stop()?;
        Some(self.job.grace.saturating_sub(since))
    }

    /// The output of the future, unless a signal comes and the grace period ends before. It gets at least `least` then.
    pub(in crate::run::apply) async fn in_grace<T>(
        &self,
        least: Duration,
        future: impl Future<Output = T>,
    ) -> Option<T> {
        let late = async {
            let _stop: Stop = self.signals.wait().await;
            tokio::time::sleep(self.time_left().unwrap_or_default().max(least)).await;
        };
        tokio::select! {
            biased;
            output = future => Some(output),
            () = late => None,
        }
    }
}
