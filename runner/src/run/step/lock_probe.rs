//! Whether the state is still locked after the tool was killed: a command of the tool takes the lock and frees it, and writes
//! nothing.

use std::time::Duration;

use crate::process::limits::Limits;
use crate::process::{self, Log, Output, Stop};
use crate::report::StateLock;
use crate::run::Run;
use crate::run::error::RunError;
use crate::run::prepare::Prepared;
use crate::run::step::found_lock::FoundLock;
use crate::tool::diagnostics::{Below, Diagnostics};

/// How long the command may take until it gets a SIGINT. It is never killed: it may hold the lock.
const LIMIT: Duration = Duration::from_secs(10);
/// How long it is waited for after that.
const AFTER: Duration = Duration::from_secs(2);
/// How much of the grace period must remain.
const NEEDED: Duration = Duration::from_secs(15);

impl Run<'_> {
    /// Finds out whether the lock is held, if the step has ended because its tool was killed.
    pub(super) async fn with_lock(
        &mut self,
        prepared: &Prepared,
        result: Result<(), RunError>,
    ) -> Result<(), RunError> {
        let Err(mut error) = result else { return result };
        if let Some(lock) = error.killed_lock()
            && self.may_probe()
        {
            *lock = self.find_lock(prepared).await;
        }
        Err(error)
    }

    /// Whether another process has the lock. The result of the run says so, too.
    pub(in crate::run) async fn find_lock(&mut self, prepared: &Prepared) -> FoundLock {
        let lock = self.probe(prepared).await;
        self.report.state_lock = match lock {
            FoundLock::Free => StateLock::Free,
            FoundLock::Held(_) => StateLock::Held,
            FoundLock::Unknown => StateLock::Unknown,
        };
        lock
    }

    /// Whether the signal or limit that has stopped the run leaves enough time.
    fn may_probe(&self) -> bool {
        match self.signals.stopped() {
            None | Some(Stop::Timeout(_)) => true,
            Some(_) if self.job.pod => false,
            Some(_) => {
                let since = self.signals.since_stop().unwrap_or(Duration::MAX);
                self.job.grace.saturating_sub(since) >= NEEDED
            }
        }
    }

    async fn probe(&self, prepared: &Prepared) -> FoundLock {
        // Of its own: the output of the killed tool stays.
        let log =
            match Log::create(self.scratch.join("lock-probe.log"), &self.environment.redaction) {
                Ok(log) => log,
                Err(error) => {
                    tracing::debug!("{error}");
                    return FoundLock::Unknown;
                }
            };
        let program = prepared.tool().lock_probe();
        let signals = self.signals.unheard_if_stopped();
        let limits = Limits { step: Some(LIMIT), ..Limits::NONE };
        let probing =
            process::run(&program, Output::LogOnly(&log), &signals, &limits, Duration::MAX);
        let ended = signals.shortly(tokio::time::timeout(LIMIT + AFTER, probing)).await;
        let Ok(Ok(Ok(exit))) = ended else { return FoundLock::Unknown };
        if exit.stop.is_some() || exit.limit.is_some() {
            return FoundLock::Unknown;
        }
        // Terragrunt can ignore an error.
        let Ok(below) = log.reader(0).and_then(Below::read) else { return FoundLock::Unknown };
        if exit.status.success() && !below.hides_failure("untaint") {
            return FoundLock::Free;
        }
        let errors = log.reader(0).and_then(Diagnostics::read);
        errors.map_or(FoundLock::Unknown, FoundLock::of_errors)
    }
}
