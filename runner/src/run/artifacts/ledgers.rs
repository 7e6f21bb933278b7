//! The ledger of an apply in the datastore.

use std::path::Path;
use std::time::Duration;

use datastore_api::client::{Condition, Upload};
use datastore_api::key::RunInfo;
use datastore_api::{Attempt, Client, ClientError, File, Name, RunKey, Sha256, chain};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use jiff::{SignedDuration, Timestamp};
use reqwest::StatusCode;

use crate::process::Signals;
use crate::report::ledger::{Ledger, ReviewedPlan};
use crate::run::artifacts::{Artifacts, LEDGER, other};

/// A larger one is not read.
pub(crate) const MAX_LEDGER: usize = 64 << 20;
/// How far the clocks of the datastore and of a runner may be apart.
const CLOCKS: SignedDuration = SignedDuration::from_mins(10);
/// How many runs after a plan are searched for an apply of it, the newest first.
const MAX_RUNS: usize = 500;
/// How many of them at once.
const PARALLEL: usize = 4;
/// How long one upload may take while the tool works.
const TIMEOUT: Duration = Duration::from_secs(20);
/// How long one may take after a signal: half of it without an answer.
const SHORTLY: Duration = Duration::from_secs(4);

impl Artifacts {
    /// The ledger that the attempt has, or an empty one.
    pub(crate) async fn ledger(&self) -> Result<Ledger, ClientError> {
        let new = || Ledger::new(&self.run, self.attempt);
        if !self.has(self.attempt, LEDGER) {
            return Ok(new());
        }
        Ok(stored(&self.client, &self.run, self.attempt).await?.unwrap_or_else(new))
    }

    /// The ledger of an attempt of a run of the layer.
    pub(super) async fn ledger_of(
        &self,
        run: &Name,
        attempt: Attempt,
    ) -> Result<Option<Ledger>, ClientError> {
        stored(&self.client, &self.sibling(run), attempt).await
    }

    /// The ledgers of the latest runs of the layer.
    pub(crate) async fn ledgers_of_layer(&self) -> Result<Vec<Ledger>, ClientError> {
        let RunKey { namespace, layer, .. } = &self.run;
        let listed = self.client.runs(namespace, layer, None).await?.runs;
        let mut runs = listed.iter().filter_map(|run| run.run.parse().ok()).collect::<Vec<Name>>();
        if !runs.contains(&self.run.run) {
            runs.push(self.run.run.clone());
        }
        self.ledgers_of(runs, |_| true).await
    }

    /// Of the ledgers of some runs of the layer, those to keep.
    async fn ledgers_of(
        &self,
        runs: Vec<Name>,
        is_kept: impl Fn(&Ledger) -> bool + Copy,
    ) -> Result<Vec<Ledger>, ClientError> {
        let of_run = |run| async move {
            let (run, mut ledgers) = (self.sibling(&run), Vec::new());
            for files in self.client.attempts(&run).await?.attempts {
                if files.artifacts.iter().any(|file| file.name == LEDGER) {
                    let ledger = stored(&self.client, &run, files.attempt).await?;
                    ledgers.extend(ledger.filter(is_kept));
                }
            }
            Ok::<_, ClientError>(ledgers)
        };
        stream::iter(runs).map(of_run).buffered(PARALLEL).try_concat().await
    }

    /// The ledgers of this run and, if it applies a plan, of the runs that were started since that was made (if it is known when):
    /// those that are of the same order.
    pub(crate) async fn earlier_ledgers(
        &self,
        plan: Option<(Sha256, Option<Timestamp>)>,
    ) -> Result<Vec<Ledger>, ClientError> {
        let is_of_order = |ledger: &Ledger| match plan {
            Some((plan, _)) => ledger.has_reviewed(plan),
            None => true,
        };
        let mut ledgers = self.ledgers_of(vec![self.run.run.clone()], is_of_order).await?;
        let Some((_, planned)) = plan else { return Ok(ledgers) };
        match self.later_runs(planned).await {
            // A token need not have the right to list runs.
            Err(error) if error.status() == Some(StatusCode::FORBIDDEN) => tracing::warn!(
                "it is not known whether another run has started to apply this plan: {}",
                chain(&error)
            ),
            later => ledgers.extend(self.ledgers_of(later?, is_of_order).await?),
        }
        Ok(ledgers)
    }

    /// The other runs that were started since the plan was made, or all if that is not known.
    async fn later_runs(&self, planned: Option<Timestamp>) -> Result<Vec<Name>, ClientError> {
        // An unknown time may be a later one. `started` is that of the newest attempt.
        let is_later = |run: &RunInfo| match (run.started.parse::<Timestamp>(), planned) {
            (Ok(started), Some(planned)) => started + CLOCKS >= planned,
            _ => true,
        };
        let RunKey { namespace, layer, run: own } = &self.run;
        let (mut runs, mut cursor) = (Vec::new(), None);
        loop {
            let page = self.client.runs(namespace, layer, cursor.as_deref()).await?;
            let names = page.runs.iter().filter(|run| is_later(run));
            runs.extend(names.filter_map(|run| run.run.parse::<Name>().ok()));
            cursor = page.next.filter(|_| page.runs.iter().all(is_later));
            if cursor.is_none() {
                break;
            }
            if runs.len() >= MAX_RUNS {
                tracing::warn!(
                    "only the {MAX_RUNS} latest runs of the layer are searched for an earlier apply of this plan"
                );
                break;
            }
        }
        runs.retain(|run| run != own);
        Ok(runs)
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

    /// The same, after a signal in one try: there is no time for pauses.
    pub(crate) async fn put_ledger_in_time(
        &self,
        ledger: &Ledger,
        signals: &Signals,
    ) -> Result<(), ClientError> {
        match signals.or(self.put_ledger_of(ledger)).await {
            Ok(stored) => stored,
            Err(_) => self.once(SHORTLY).put_ledger_of(ledger).await,
        }
    }

    /// The same in one try, which says nothing of a failure: another one follows.
    pub(crate) async fn try_put_ledger_of(&self, ledger: &Ledger) -> Result<(), ClientError> {
        self.once(TIMEOUT).put_ledger_of(ledger).await
    }

    fn once(&self, timeout: Duration) -> Self {
        Self { client: self.client.once(timeout), ..self.clone() }
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
