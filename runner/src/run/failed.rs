//! Stores the reason, the log and the report of a run that failed.
//!
//! A further failure here is only a warning: the first one is the result of the run. Files that could not be stored are
//! kept, and the warning names the command that sends them.

use std::io;
use std::time::Duration;

use datastore_api::client::{Condition, Upload};
use datastore_api::{ClientError, File, PlanFormat, chain};

use crate::run::Run;
use crate::run::artifacts::{APPLIED, Artifacts, AttemptRef, LEDGER};
use crate::run::unsent::{Contents, Lost};
use crate::source::states::ERRORED;

impl Run<'_> {
    /// Stores the failure. `message` is one line for the log, `reason` also has the tool's other errors.
    pub(crate) async fn store_failure(&self, message: &str, reason: &str) {
        if let Err(error) = self.log.line(&format!("Error: {message}")) {
            tracing::warn!("the log: {error}");
        }
        let Some(artifacts) = &self.artifacts else { return };
        self.mask_log().await;
        let short = async {
            // Burrito's UI shows the short text as the result of a run.
            if self.job.pod { artifacts.put_reason(reason).await } else { Ok(()) }
        };
        let (short, log, report, ledger) = tokio::join!(
            self.lost("short.diff", short),
            self.lost("run.log", artifacts.put_log(self.log.path())),
            self.lost("run.json", artifacts.put_report(&self.report)),
            self.lost(LEDGER, self.store_ledger()),
        );
        // It is kept already.
        let state = self.has_unstored_state.then(|| (ERRORED, "see above".to_owned()));
        let lost = [short, log, report, ledger, state].into_iter().flatten().collect::<Vec<_>>();
        if lost.is_empty() {
            return;
        }
        let reasons = lost.iter().map(|(name, why)| format!("{name}: {why}"));
        let reasons = reasons.collect::<Vec<_>>().join("; ");
        match self.keep_failure(artifacts, &lost, reason) {
            Ok(advice) => tracing::warn!("not all is stored: {reasons}; {advice}"),
            Err(error) => {
                tracing::warn!("not all is stored: {reasons}; it could not be kept: {error}");
            }
        }
    }

    async fn lost(
        &self,
        name: &'static str,
        upload: impl Future<Output = Result<(), ClientError>>,
    ) -> Option<Lost> {
        match self.signals.within(self.upload_grace(), upload).await {
            Ok(Ok(())) => None,
            Ok(Err(error)) => Some((name, chain(&error))),
            Err(_) => Some((name, "the datastore takes too long".to_owned())),
        }
    }

    /// Keeps the files that are not stored. Returns how they get into the datastore.
    fn keep_failure(
        &self,
        artifacts: &Artifacts,
        lost: &[Lost],
        reason: &str,
    ) -> io::Result<String> {
        let mut unsent = self.keeper().keep_failure(artifacts.client())?;
        let (report, ledger) = (self.report.to_json(), self.ledger_json());
        for (name, _) in lost.iter().filter(|(name, _)| *name != ERRORED) {
            let contents = match *name {
                "run.log" => Contents::CopyOf(self.log.path()),
                "short.diff" => Contents::Bytes(reason.as_bytes()),
                LEDGER => Contents::Bytes(ledger.as_bytes()),
                _ => Contents::Bytes(report.as_bytes()),
            };
            unsent.keep_lost(name, contents);
        }
        let advice = unsent.advice(lost, artifacts.client(), self.job.burrito);
        if !unsent.has_any(lost) {
            unsent.remove()?;
        }
        Ok(advice)
    }
}

/// Stores why a run could not start where Burrito's UI shows its result.
pub(crate) async fn store_rejection(attempt: &AttemptRef, reason: &str) {
    const LIMIT: Duration = Duration::from_secs(10);
    let AttemptRef { datastore, run, attempt } = attempt;
    let (file, upload) = (File::Plan(PlanFormat::Short), Upload::bytes(reason.to_owned()));
    let stored = async {
        // An earlier pod with the same number may have stored a plan, whose text must not be replaced.
        let stored = datastore.attempts_unless_burritos(run).await?.unwrap_or_default().attempts;
        let mut files = stored.iter().filter(|files| files.attempt == *attempt);
        let bin = File::Plan(PlanFormat::Bin);
        if files.any(|files| {
            files.artifacts.iter().any(|file| [bin.name(), APPLIED].contains(&&*file.name))
        }) {
            return Ok(());
        }
        datastore.put_file(run, *attempt, &file, &upload, Condition::Replace).await
    };
    match tokio::time::timeout(LIMIT, stored).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::warn!("the reason is not stored: {error}"),
        Err(_) => tracing::warn!("the reason is not stored: the datastore takes too long"),
    }
}
