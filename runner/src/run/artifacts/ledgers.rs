//! The ledger of an apply in the datastore.

use std::path::Path;
use std::time::Duration;

use datastore_api::client::{Condition, Upload};
use datastore_api::key::AttemptFiles;
use datastore_api::{Attempt, Client, ClientError, File, Name, RunKey, chain};
use jiff::{SignedDuration, Timestamp};
use reqwest::StatusCode;

use crate::report::ledger::{Ledger, ReviewedPlan};
use crate::run::artifacts::{Artifacts, LEDGER, other};

/// A larger one is not read.
pub(crate) const MAX_LEDGER: usize = 64 << 20;
/// How far the clocks of the datastore and of a runner may be apart.
const CLOCKS: SignedDuration = SignedDuration::from_mins(10);
/// How many runs after a plan are searched for an apply of it, the newest first.
const MAX_RUNS: usize = 50;
/// How long one upload may take while the tool works.
const TIMEOUT: Duration = Duration::from_secs(20);

impl Artifacts {
    /// The ledger that the attempt has, or an empty one.
    pub(crate) async fn ledger(&self) -> Result<Ledger, ClientError> {
        let new = || Ledger::new(&self.run, self.attempt);
        if !self.has(self.attempt, LEDGER) {
            return Ok(new());
        }
        Ok(stored(&self.client, &self.run, self.attempt).await?.unwrap_or_else(new))
    }

    /// The ledgers of the latest runs of the layer, without that of this attempt.
    pub(crate) async fn ledgers_of_layer(&self) -> Result<Vec<Ledger>, ClientError> {
        let RunKey { namespace, layer, .. } = &self.run;
        let listed = self.client.runs(namespace, layer, None).await?.runs;
        let mut runs = listed.iter().filter_map(|run| run.run.parse().ok()).collect::<Vec<Name>>();
        if !runs.contains(&self.run.run) {
            runs.push(self.run.run.clone());
        }
        let mut ledgers = Vec::new();
        for run in runs {
            let run = self.sibling(&run);
            for files in self.client.attempts(&run).await?.attempts {
                let is_other = run != self.run || files.attempt != self.attempt;
                if is_other && has_ledger(&files) {
                    ledgers.extend(stored(&self.client, &run, files.attempt).await?);
                }
            }
        }
        Ok(ledgers)
    }

    /// The ledgers of this run and, where its plan is a stored one, of the runs that were started since it was made: one of these
    /// may have applied the plan.
    pub(crate) async fn earlier_ledgers(
        &self,
        is_stored: bool,
        planned: Option<Timestamp>,
    ) -> Result<Vec<Ledger>, ClientError> {
        let mut ledgers = Vec::new();
        let earlier = self.stored.iter().filter(|files| files.attempt <= self.attempt);
        for files in earlier.filter(|files| has_ledger(files)) {
            ledgers.extend(stored(&self.client, &self.run, files.attempt).await?);
        }
        if !is_stored {
            return Ok(ledgers);
        }
        match self.later_ledgers(planned).await {
            // A token need not have the right to list runs.
            Err(error) if error.status() == Some(StatusCode::FORBIDDEN) => tracing::warn!(
                "it is not known whether another run has started to apply this plan: {}",
                chain(&error)
            ),
            later => ledgers.extend(later?),
        }
        Ok(ledgers)
    }

    /// The ledgers of other runs that were started since the plan was made.
    async fn later_ledgers(&self, planned: Option<Timestamp>) -> Result<Vec<Ledger>, ClientError> {
        let mut ledgers = Vec::new();
        let RunKey { namespace, layer, run: own } = &self.run;
        let listed = self.client.runs(namespace, layer, None).await?.runs;
        // An unknown time may be a later one. `started` is that of the newest attempt.
        let is_later = |started: &str| match (started.parse::<Timestamp>(), planned) {
            (Ok(started), Some(planned)) => started + CLOCKS >= planned,
            _ => true,
        };
        let others =
            listed.iter().filter(|run| is_later(&run.started) && *own.as_ref() != *run.run);
        for run in others.filter_map(|run| run.run.parse().ok()).take(MAX_RUNS) {
            let run = self.sibling(&run);
            for files in self.client.attempts(&run).await?.attempts {
                if has_ledger(&files) {
                    ledgers.extend(stored(&self.client, &run, files.attempt).await?);
                }
            }
        }
        Ok(ledgers)
    }

    /// Downloads a file of the attempt that has a reviewed plan. `false`: there is none.
    pub(crate) async fn fetch_file_of(
        &self,
        plan: &ReviewedPlan,
        file: &File,
        to: &Path,
    ) -> Result<bool, ClientError> {
        let Ok(run) = plan.run.parse::<Name>() else { return Ok(false) };
        let run = self.sibling(&run);
        Ok(self.client.save_file(&run, Some(plan.attempt), file, to).await?.is_some())
    }

    /// Replaces the ledger of another attempt of the layer.
    pub(crate) async fn put_ledger_of(&self, ledger: &Ledger) -> Result<(), ClientError> {
        let Some(run) = ledger.run_name() else { return Ok(()) };
        let (file, upload) = (other(LEDGER), Upload::bytes(ledger.to_json()));
        let run = self.sibling(&run);
        self.client.put_file(&run, ledger.attempt(), &file, &upload, Condition::Replace).await
    }

    /// The same in one try, which says nothing of a failure: another one follows.
    pub(crate) async fn try_put_ledger_of(&self, ledger: &Ledger) -> Result<(), ClientError> {
        let once = Self { client: self.client.once(TIMEOUT), ..self.clone() };
        once.put_ledger_of(ledger).await
    }

    /// Stores the ledger, and replaces an earlier state of it.
    pub(crate) async fn put_ledger(&self, json: String) -> Result<(), ClientError> {
        self.put(&(other(LEDGER), Upload::bytes(json))).await
    }

    /// Stores the ledger in one try, which says nothing of a failure: another one follows.
    pub(crate) async fn try_put_ledger(&self, json: String) -> Result<(), ClientError> {
        let (file, upload) = (other(LEDGER), Upload::bytes(json));
        let client = self.client.once(TIMEOUT);
        client.put_file(&self.run, self.attempt, &file, &upload, Condition::Replace).await
    }
}

fn has_ledger(files: &AttemptFiles) -> bool {
    files.artifacts.iter().any(|file| file.name == LEDGER)
}

/// Replaces the ledger of an attempt, if this one is a later state of it.
pub(crate) async fn replace_ledger(
    client: &Client,
    (run, attempt): (&RunKey, Attempt),
    json: Vec<u8>,
) -> Result<bool, ClientError> {
    let Ok(later) = Ledger::parse(&json) else { return Ok(false) };
    let earlier = stored(client, run, attempt).await?;
    if earlier.is_some_and(|earlier| !later.continues(&earlier)) {
        return Ok(false);
    }
    let (file, upload) = (other(LEDGER), Upload::bytes(json));
    client.put_file(run, attempt, &file, &upload, Condition::Replace).await?;
    Ok(true)
}

/// The ledger of an attempt in the datastore.
async fn stored(
    client: &Client,
    run: &RunKey,
    attempt: Attempt,
) -> Result<Option<Ledger>, ClientError> {
    let Some(download) = client.get_file(run, Some(attempt), &other(LEDGER)).await? else {
        return Ok(None);
    };
    let json = download.bytes(MAX_LEDGER).await?;
    let unreadable = |reason| ClientError::Answer {
        call: format!("{LEDGER} of attempt {attempt} of {run}"),
        reason,
    };
    let ledger = Ledger::parse(&json).map_err(unreadable)?;
    if !ledger.is_of(run, attempt) {
        return Err(unreadable("it is of another attempt".to_owned()));
    }
    Ok(Some(ledger))
}
