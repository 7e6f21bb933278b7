//! What a run that failed leaves: its reason, its log and its report.
//!
//! A failure here is only reported: the first one decides how the run ended. What could not be stored is kept, and
//! the message names the command that sends it.

use std::io;
use std::time::Duration;

use datastore_api::client::{Condition, Upload};
use datastore_api::{ClientError, File, PlanFormat, chain};

use crate::failure::Failure;
use crate::order::job::Place;
use crate::run::action::Run;
use crate::run::artifacts::{APPLIED, Artifacts};
use crate::run::unsent::Unsent;

/// The name of a file, and why it is not stored.
type Lost = (&'static str, String);

impl Run<'_> {
    /// Stores what the failed run leaves.
    pub(crate) async fn store_failure(&self, failure: &Failure) {
        if let Err(error) = self.log.line(&format!("Error: {}", failure.message())) {
            tracing::warn!("the log: {error}");
        }
        let Some(artifacts) = &self.artifacts else { return };
        let reason = failure.reason();
        let short = async {
            // Upstream's UI and kubectl show a run's short text as its result.
            if self.job.pod { artifacts.put_reason(&reason).await } else { Ok(()) }
        };
        let (short, log, report) = tokio::join!(
            self.lost("short.diff", short),
            self.lost("run.log", artifacts.put_log(self.log.path())),
            self.lost("run.json", artifacts.put_report(&self.report)),
        );
        let lost = [short, log, report].into_iter().flatten().collect::<Vec<_>>();
        if lost.is_empty() {
            return;
        }
        let reasons = lost.iter().map(|(name, why)| format!("{name}: {why}"));
        let reasons = reasons.collect::<Vec<_>>().join("; ");
        match self.keep_failure(&lost, &reason) {
            Ok(unsent) => {
                let command = unsent.command(artifacts.client(), self.job.burrito);
                tracing::warn!(
                    "not all is stored: {reasons}; send what is missing with `{command}`"
                );
            }
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
        match self.signals.within(self.last_words(), upload).await {
            Ok(Ok(())) => None,
            Ok(Err(error)) => Some((name, chain(&error))),
            Err(_) => Some((name, "the datastore takes too long".to_owned())),
        }
    }

    fn keep_failure(&self, lost: &[Lost], reason: &str) -> io::Result<Unsent> {
        let state_home = self.environment.state_home.as_deref();
        let attempt = self.artifacts.as_ref().map(Artifacts::attempt);
        let attempt = attempt.unwrap_or_default();
        let unsent = Unsent::of_failure(state_home, self.scratch, &self.job.run, attempt)?;
        unsent.stay(self.scratch);
        for (name, _) in lost {
            match *name {
                "run.log" => unsent.keep_file(name, self.log.path())?,
                "short.diff" => unsent.keep(name, reason.as_bytes())?,
                _ => unsent.keep(name, self.report.to_json().as_bytes())?,
            }
        }
        Ok(unsent)
    }
}

/// Stores why an order did not become a run, where Burrito's controllers look for its result.
pub(crate) async fn leave_reason(place: &Place, reason: &str) {
    const LIMIT: Duration = Duration::from_secs(10);
    let Place { datastore, run, attempt } = place;
    let (file, upload) = (File::Plan(PlanFormat::Short), Upload::bytes(reason.to_owned()));
    let stored = async {
        // An earlier pod of the same number may have left a plan: its text stays.
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
