//! The files of one run in the datastore: under which attempt they go, and which plan is to be applied.

use std::fmt;
use std::path::Path;
use std::time::Duration;

use datastore_api::client::{Condition, Upload};
use datastore_api::key::AttemptFiles;
use datastore_api::{
    ArtifactName, Attempt, Client, ClientError, File, Name, PlanFormat, RunKey, Sha256,
};
use futures::future::try_join_all;
use reqwest::StatusCode;

use crate::job::Place;
use crate::report::{PlanRecord, PlanReport, Report};

/// A `run.json` of more than this is none.
const MAX_REPORT: usize = 16 << 20;
/// How often another attempt is taken because someone else had stored other plan files there.
const MOVES: usize = 3;

/// The place of one run in a datastore.
#[derive(Clone, Debug)]
pub(crate) struct Artifacts {
    client: Client,
    run: RunKey,
    attempt: Attempt,
    /// The attempts so far that left a report.
    reported: Vec<Attempt>,
    /// Whether Burrito's controllers named the attempt: other plan files under it are replaced, and not
    /// left alone.
    ordered: bool,
    /// Whether the datastore is Burrito's own, which knows no files but its own.
    upstream: bool,
}

/// A plan in the datastore.
#[derive(Clone, Debug)]
pub(crate) struct StoredPlan {
    pub(crate) run: Name,
    /// The latest where nobody could say which that is.
    pub(crate) attempt: Option<Attempt>,
    /// What its own `run.json` says of it.
    pub(crate) record: Option<PlanRecord>,
}

impl StoredPlan {
    fn is_finished(&self) -> bool {
        self.record.as_ref().is_some_and(PlanRecord::is_finished)
    }
}

impl fmt::Display for StoredPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.attempt {
            Some(attempt) => write!(f, "{}/{attempt}", self.run),
            None => write!(f, "{}", self.run),
        }
    }
}

/// What an attempt says that it has applied.
#[derive(Clone, Debug)]
pub(crate) struct Note {
    pub(crate) attempt: Attempt,
    /// The sha256 of the plan, or that there was none.
    pub(crate) applied: String,
    pub(crate) plan: Option<PlanReport>,
    pub(crate) revision: Option<String>,
}

impl Note {
    pub(crate) fn is_of(&self, plan: Sha256) -> bool {
        self.applied == plan.to_string()
    }
}

/// A file and what it will hold.
pub(crate) type Entry = (File, Upload);

impl Artifacts {
    /// Asks the datastore for the run's attempts, so that one that cannot be reached, or does not let
    /// us in, is known before hours of work and not after. Where `ordered`, it may be Burrito's own.
    pub(crate) async fn open(
        client: Client,
        run: RunKey,
        attempt: Option<Attempt>,
        ordered: bool,
    ) -> Result<Self, ClientError> {
        let stored = if ordered {
            client.attempts_unless_burritos(&run).await?
        } else {
            Some(client.attempts(&run).await?)
        };
        let upstream = stored.is_none();
        if upstream {
            tracing::warn!(
                "the datastore is not Plancha's: without run.json a retry cannot know of an \
                 earlier apply"
            );
        }
        let stored = stored.unwrap_or_default().attempts;
        let attempt = attempt.unwrap_or_else(|| next(&stored));
        let report = report_file();
        let has_report =
            |files: &&AttemptFiles| files.artifacts.iter().any(|file| file.name == report.name());
        let reported = stored.iter().filter(has_report).map(|files| files.attempt).collect();
        Ok(Self { client, run, attempt, reported, ordered, upstream })
    }

    /// What the attempts of this run say that they have applied, the latest first. One of the same
    /// number is among them: of a pod that was lost before the controller counted it.
    pub(crate) async fn notes(&self) -> Result<Vec<Note>, ClientError> {
        let mut notes = Vec::new();
        for attempt in self.reported.iter().rev().copied() {
            let Some(record) = self.record_of(&self.run.run, attempt).await? else { continue };
            let PlanRecord { applied, plan, revision, .. } = record;
            notes.extend(applied.map(|applied| Note { attempt, applied, plan, revision }));
        }
        Ok(notes)
    }

    pub(crate) fn attempt(&self) -> Attempt {
        self.attempt
    }

    /// Stores a file, replacing one that is there.
    pub(crate) async fn put(&self, (file, upload): &Entry) -> Result<(), ClientError> {
        self.client.put_file(&self.run, self.attempt, file, upload, Condition::Replace).await
    }

    /// Stores a plan file where there is none, or the same.
    pub(crate) async fn create(&self, entry: &Entry) -> Result<(), ClientError> {
        let (file, upload) = entry;
        let created =
            self.client.put_file(&self.run, self.attempt, file, upload, Condition::Create).await;
        match created {
            Err(error)
                if self.ordered && error.status() == Some(StatusCode::PRECONDITION_FAILED) =>
            {
                self.put(entry).await
            }
            created => created,
        }
    }

    /// Stores why the run failed, where Burrito's controllers look for its result.
    pub(crate) async fn put_reason(&self, reason: &str) -> Result<(), ClientError> {
        let short = (File::Plan(PlanFormat::Short), Upload::bytes(reason.to_owned()));
        self.put(&short).await
    }

    /// Stores all plan files under one attempt: this one, or the next free one when other files are
    /// there. `ahead` is what became of the first of them, which was sent ahead.
    pub(crate) async fn create_all(
        &mut self,
        first: &Entry,
        rest: &[Entry],
        mut ahead: Result<(), ClientError>,
    ) -> Result<(), ClientError> {
        let mut moves = 0;
        loop {
            let stored = match ahead {
                Ok(()) => try_join_all(rest.iter().map(|file| self.create(file))).await.map(drop),
                Err(error) => Err(error),
            };
            match stored {
                Err(error)
                    if error.status() == Some(StatusCode::PRECONDITION_FAILED) && moves < MOVES =>
                {
                    moves += 1;
                    self.attempt = next(&self.client.attempts(&self.run).await?.attempts);
                    tracing::info!(
                        "other plan files are there: storing as attempt {}",
                        self.attempt
                    );
                }
                stored => return stored,
            }
            ahead = self.create(first).await;
        }
    }

    /// The plan of a run: of the attempt that is named, else of the latest with a `plan.bin`.
    /// `None`: there is no such plan.
    pub(crate) async fn plan_of(
        &self,
        run: &Name,
        attempt: Option<Attempt>,
    ) -> Result<Option<StoredPlan>, ClientError> {
        if self.upstream {
            return Ok(Some(StoredPlan { run: run.clone(), attempt, record: None }));
        }
        let attempts = self.client.attempts(&self.sibling(run)).await?.attempts;
        let bin = File::Plan(PlanFormat::Bin);
        let found = attempts.iter().rev().find(|stored| {
            attempt.is_none_or(|attempt| attempt == stored.attempt)
                && stored.artifacts.iter().any(|artifact| artifact.name == bin.name())
        });
        let Some(attempt) = found.map(|found| found.attempt) else { return Ok(None) };
        let record = self.record_of(run, attempt).await?;
        Ok(Some(StoredPlan { run: run.clone(), attempt: Some(attempt), record }))
    }

    /// The plan of the newest run of the layer that has one and came to its end. `None`: there is none.
    pub(crate) async fn newest_plan(&self) -> Result<Option<StoredPlan>, ClientError> {
        let RunKey { namespace, layer, .. } = &self.run;
        let mut cursor = None;
        loop {
            let page = self.client.runs(namespace, layer, cursor.as_deref()).await?;
            for run in page.runs.iter().filter_map(|run| run.run.parse().ok()) {
                match self.plan_of(&run, None).await? {
                    Some(plan) if plan.is_finished() => return Ok(Some(plan)),
                    Some(plan) => tracing::info!("{plan} was never finished: passing it over"),
                    None => {}
                }
            }
            match page.next {
                Some(next) => cursor = Some(next),
                None => return Ok(None),
            }
        }
    }

    /// Fetches a plan into a private file. `None`: it is gone.
    pub(crate) async fn fetch_plan(
        &self,
        plan: &StoredPlan,
        to: &Path,
    ) -> Result<Option<Sha256>, ClientError> {
        let run = self.sibling(&plan.run);
        self.client.save_file(&run, plan.attempt, &File::Plan(PlanFormat::Bin), to).await
    }

    /// What a plan's own `run.json` says of it; `None` where there is none that can be read.
    async fn record_of(
        &self,
        run: &Name,
        attempt: Attempt,
    ) -> Result<Option<PlanRecord>, ClientError> {
        let (run_key, file) = (self.sibling(run), report_file());
        let download = self.client.get_file(&run_key, Some(attempt), &file).await?;
        let Some(download) = download else { return Ok(None) };
        match serde_json::from_slice(&download.bytes(MAX_REPORT).await?) {
            Ok(record) => Ok(Some(record)),
            Err(error) => {
                tracing::warn!("run.json of {run}/{attempt} cannot be read: {error}");
                Ok(None)
            }
        }
    }

    /// Stores the log and the report side by side.
    pub(crate) async fn put_outcome(&self, log: &Path, report: &Report) -> Result<(), ClientError> {
        let log = async { self.put(&(File::Log, Upload::file(log).await?)).await };
        let (log, report) = tokio::join!(log, self.put_report(report));
        log.and(report)
    }

    /// Stores the report.
    pub(crate) async fn put_report(&self, report: &Report) -> Result<(), ClientError> {
        if self.upstream {
            return Ok(());
        }
        self.put(&(report_file(), Upload::bytes(report.to_json()))).await
    }

    /// Stores the report, but does not wait long: an apply was made, and more is to be done.
    pub(crate) async fn put_report_soon(&self, report: &Report) {
        const LIMIT: Duration = Duration::from_secs(10);
        match tokio::time::timeout(LIMIT, self.put_report(report)).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::warn!("run.json is not stored yet: {error}"),
            Err(_) => tracing::warn!("run.json is not stored yet: the datastore takes too long"),
        }
    }

    fn sibling(&self, run: &Name) -> RunKey {
        RunKey { run: run.clone(), ..self.run.clone() }
    }
}

/// Stores why an order did not become a run, where Burrito's controllers look for its result.
pub(crate) async fn leave_reason(place: &Place, reason: &str) {
    const LIMIT: Duration = Duration::from_secs(10);
    let Place { datastore, run, attempt } = place;
    let (file, upload) = (File::Plan(PlanFormat::Short), Upload::bytes(reason.to_owned()));
    let stored = datastore.put_file(run, *attempt, &file, &upload, Condition::Replace);
    match tokio::time::timeout(LIMIT, stored).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::warn!("the reason is not stored: {error}"),
        Err(_) => tracing::warn!("the reason is not stored: the datastore takes too long"),
    }
}

fn report_file() -> File {
    let name: ArtifactName = "run.json".parse().expect("a valid name");
    File::Other(name)
}

fn next(stored: &[AttemptFiles]) -> Attempt {
    let highest = stored.iter().map(|files| files.attempt).max();
    highest.map_or(Attempt(0), |Attempt(number)| Attempt(number.saturating_add(1)))
}
