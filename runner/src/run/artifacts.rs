//! The files of one run in the datastore: under which attempt they go, and which plan is to be applied.

use std::fmt;
use std::hash::{BuildHasher as _, RandomState};
use std::path::Path;
use std::time::Duration;

use datastore_api::client::{Claimed, Condition, Upload};
use datastore_api::key::AttemptFiles;
use datastore_api::{
    Attempt, ClaimId, Client, ClientError, File, Name, PlanFormat, RunKey, Sha256, chain,
};
use futures::future::try_join_all;
use reqwest::StatusCode;

use crate::basis::place::PlanPlace;
use crate::report::{PlanRecord, Report};
use crate::run::apply_record::{Record, applied_key};

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
    /// The attempts that had files at the start.
    stored: Vec<AttemptFiles>,
    /// Whether a finished plan or an apply is stored under this attempt, whose log and report stay.
    kept: bool,
    /// Whether Burrito's controllers named the attempt: other plan files under it are replaced, and not
    /// left alone.
    ordered: bool,
    server: Server,
}

/// What a datastore knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Server {
    /// All that this version of the runner asks for.
    Current,
    /// Neither claims nor records of applied plans: it is an older one of Plancha.
    Older,
    /// No files but its own: it is Burrito's.
    Burritos,
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

/// What a layer has by way of plans.
#[derive(Debug)]
pub(crate) enum NewestPlan {
    Found(Box<StoredPlan>),
    /// Only plans of other places; this is the newest.
    Elsewhere {
        plan: String,
        place: PlanPlace,
    },
    Missing,
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

/// The attempt cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum OpenError {
    #[error("attempt {attempt} of run {run} {why}")]
    Taken { run: Name, attempt: Attempt, why: &'static str },
    #[error("the datastore")]
    Datastore(#[from] ClientError),
}

/// Whether the datastore knows that an apply was made.
#[derive(Debug)]
pub(crate) struct Recorded {
    /// By at least one of its records.
    pub(crate) known: bool,
    /// Why one of them is missing.
    pub(crate) lost: Option<String>,
}

/// A file and what it will hold.
pub(crate) type Entry = (File, Upload);

impl Artifacts {
    /// Asks the datastore for the run's attempts, so that one that cannot be reached, or does not let
    /// us in, is known before hours of work and not after, and claims an attempt. Where `ordered`, it
    /// may be Burrito's own. Without an `attempt` the run takes the next free number, but none below
    /// `lowest`. The name of a run that `is_new` was made a moment ago.
    pub(crate) async fn open(
        client: Client,
        run: RunKey,
        attempt: Option<Attempt>,
        lowest: Attempt,
        ordered: bool,
        is_new: bool,
    ) -> Result<Self, OpenError> {
        let stored = async {
            if ordered {
                client.attempts_unless_burritos(&run).await
            } else {
                client.attempts(&run).await.map(Some)
            }
        };
        let claimed = async {
            // No other run has its name: the answer to the other question is not waited for.
            let is_free = is_new && attempt.is_none() && !ordered;
            if !is_free {
                return Ok(None);
            }
            client.claim(&run, lowest, &random_id()).await.map(Some)
        };
        let (stored, claimed) = tokio::try_join!(stored, claimed)?;
        let upstream = stored.is_none();
        let stored = stored.unwrap_or_default().attempts;
        let first = attempt.unwrap_or_else(|| next(&stored).max(lowest));
        let mut artifacts = Self {
            client,
            run,
            attempt: first,
            stored,
            kept: false,
            ordered,
            server: if upstream { Server::Burritos } else { Server::Current },
        };
        if upstream {
            tracing::warn!(
                "the datastore is not Plancha's: without its records a retry cannot know of an \
                 earlier apply"
            );
            return Ok(artifacts);
        }
        let has_files = artifacts.files(first).is_some();
        if has_files && !ordered {
            return Err(artifacts.taken("is already stored"));
        }
        if has_files {
            artifacts.kept = artifacts.is_finished().await?;
        }
        match attempt {
            // The controllers say which number it is; whoever had it before is gone.
            Some(_) if ordered => drop(artifacts.claim().await?),
            Some(_) if !artifacts.claim().await? => {
                return Err(artifacts.taken("is claimed by another run that is under way"));
            }
            Some(_) => {}
            None => {
                let claimed = claimed.filter(|_| first == lowest);
                if !claimed.is_some_and(|claimed| artifacts.is_ours(claimed)) {
                    artifacts.claim_free().await?;
                }
            }
        }
        Ok(artifacts)
    }

    fn taken(&self, why: &'static str) -> OpenError {
        OpenError::Taken { run: self.run.run.clone(), attempt: self.attempt, why }
    }

    /// Claims this attempt; `false` if another run holds it.
    async fn claim(&mut self) -> Result<bool, ClientError> {
        let claimed = self.client.claim(&self.run, self.attempt, &random_id()).await?;
        Ok(self.is_ours(claimed))
    }

    fn is_ours(&mut self, claimed: Claimed) -> bool {
        if claimed == Claimed::Unsupported {
            tracing::warn!("the datastore is older than this runner, and cannot claim attempts");
            self.server = Server::Older;
        }
        claimed != Claimed::Another
    }

    /// Claims this attempt, or the next one that is free.
    async fn claim_free(&mut self) -> Result<(), ClientError> {
        while !self.claim().await? {
            self.attempt = Attempt(self.attempt.0.saturating_add(1));
        }
        Ok(())
    }

    /// The files of an attempt, if it had any at the start.
    fn files(&self, attempt: Attempt) -> Option<&AttemptFiles> {
        self.stored.iter().find(|files| files.attempt == attempt && !files.artifacts.is_empty())
    }

    fn has(&self, attempt: Attempt, name: &str) -> bool {
        let files = self.files(attempt);
        files.is_some_and(|files| files.artifacts.iter().any(|file| file.name == name))
    }

    /// Whether this attempt holds a plan that came to its end, or an apply.
    async fn is_finished(&self) -> Result<bool, ClientError> {
        if self.has(self.attempt, APPLIED) {
            return Ok(true);
        }
        if !self.has(self.attempt, REPORT) {
            return Ok(false);
        }
        let record = self.record_of(&self.run.run, self.attempt).await?;
        let is_plan = self.has(self.attempt, File::Plan(PlanFormat::Bin).name());
        Ok(record.is_some_and(|record| record.applied.is_some() || is_plan && record.is_finished()))
    }

    /// The same with the files that the attempts have by now.
    pub(crate) async fn look_again(&self) -> Result<Self, ClientError> {
        if self.server == Server::Burritos {
            return Ok(self.clone());
        }
        let stored = self.client.attempts(&self.run).await?.attempts;
        Ok(Self { stored, ..self.clone() })
    }

    /// What the attempts of this run have applied, the latest first, but older versions' records last.
    pub(crate) async fn applied(&self) -> Result<Vec<Record>, ClientError> {
        let (mut records, mut older) = (Vec::new(), Vec::new());
        for attempt in self.stored.iter().rev().map(|files| files.attempt) {
            if self.has(attempt, APPLIED) {
                let file = other(APPLIED);
                let download = self.client.get_file(&self.run, Some(attempt), &file).await?;
                if let Some(download) = download {
                    let json = download.bytes(MAX_REPORT).await?;
                    records.push(Record::parse(&json).map_err(|reason| unreadable(&reason))?);
                    continue;
                }
            }
            // As older versions recorded it; a run that only found a record says so, too.
            if self.has(attempt, REPORT) {
                let report = self.record_of(&self.run.run, attempt).await?;
                older.extend(report.and_then(|old| Record::of_report(&self.run, attempt, old)));
            }
        }
        records.append(&mut older);
        Ok(records)
    }

    /// The record that a plan of this layer has been applied, whichever run did it.
    pub(crate) async fn applied_plan(&self, plan: Sha256) -> Result<Option<Record>, ClientError> {
        if self.server != Server::Current {
            return Ok(None);
        }
        let json = self.client.get_applied(&applied_key(&self.run, plan)).await?;
        json.map(|json| Record::parse(&json).map_err(|reason| unreadable(&reason))).transpose()
    }

    /// Records an apply, once for the attempt and once for the plan. It does not wait long: more is to
    /// be done.
    pub(crate) async fn record(&self, record: &Record) -> Recorded {
        if self.server == Server::Burritos {
            return Recorded { known: false, lost: None };
        }
        let for_plan = async {
            if self.server != Server::Current {
                return Ok(());
            }
            record.store_for_plan(&self.client, &self.run).await
        };
        let of_attempt = record.store(&self.client, &self.run, self.attempt);
        let (attempt, plan) = tokio::join!(soon(of_attempt), soon(for_plan));
        let is_current = self.server == Server::Current;
        let by_plan = plan.is_ok() && is_current && record.plan_sha256().is_some();
        Recorded { known: attempt.is_ok() || by_plan, lost: attempt.err().or(plan.err()) }
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

    /// Stores a file, but never in place of that of a finished plan or an apply.
    pub(crate) async fn put_unless_kept(&self, entry: &Entry) -> Result<(), ClientError> {
        if !self.kept {
            return self.put(entry).await;
        }
        let (file, upload) = entry;
        let created =
            self.client.put_file(&self.run, self.attempt, file, upload, Condition::Create).await;
        match created {
            Err(error) if error.status() == Some(StatusCode::PRECONDITION_FAILED) => {
                tracing::info!("{} of attempt {} stays as it is", file.name(), self.attempt);
                Ok(())
            }
            created => created,
        }
    }

    /// Stores why the run failed, where Burrito's controllers look for its result.
    pub(crate) async fn put_reason(&self, reason: &str) -> Result<(), ClientError> {
        let short = (File::Plan(PlanFormat::Short), Upload::bytes(reason.to_owned()));
        self.put_unless_kept(&short).await
    }

    /// Stores all plan files under one attempt: this one, or the next free one when other files are
    /// there. `ahead` is what became of the first of them, if it was sent ahead.
    pub(crate) async fn create_all(
        &mut self,
        first: &Entry,
        rest: &[Entry],
        ahead: Option<Result<(), ClientError>>,
    ) -> Result<(), ClientError> {
        let mut created = match ahead {
            Some(created) => created,
            None => self.create(first).await,
        };
        let mut moves = 0;
        loop {
            // The plan is another now: what is stored beside it must be, too.
            self.kept &= created.is_err();
            let stored = match created {
                Ok(()) => try_join_all(rest.iter().map(|file| self.create(file))).await.map(drop),
                Err(error) => Err(error),
            };
            match stored {
                Err(error)
                    if error.status() == Some(StatusCode::PRECONDITION_FAILED) && moves < MOVES =>
                {
                    moves += 1;
                    self.attempt = next(&self.client.attempts(&self.run).await?.attempts);
                    self.claim_free().await?;
                    tracing::info!(
                        "other plan files are there: storing as attempt {}",
                        self.attempt
                    );
                }
                stored => return stored,
            }
            created = self.create(first).await;
        }
    }

    /// The plan of a run: of the attempt that is named, else of the latest with a `plan.bin`.
    /// `None`: there is no such plan.
    pub(crate) async fn plan_of(
        &self,
        run: &Name,
        attempt: Option<Attempt>,
    ) -> Result<Option<StoredPlan>, ClientError> {
        if self.server == Server::Burritos {
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

    /// The plan of the newest run of the layer that has one of this place and came to its end; one that
    /// does not record its place counts.
    pub(crate) async fn newest_plan(&self, here: &PlanPlace) -> Result<NewestPlan, ClientError> {
        let RunKey { namespace, layer, .. } = &self.run;
        let (mut cursor, mut other) = (None, None);
        loop {
            let page = self.client.runs(namespace, layer, cursor.as_deref()).await?;
            for run in page.runs.iter().filter_map(|run| run.run.parse().ok()) {
                let Some(plan) = self.plan_of(&run, None).await? else { continue };
                if !plan.is_finished() {
                    tracing::info!("{plan} was never finished: passing it over");
                    continue;
                }
                let place = plan.record.as_ref().and_then(|record| record.place.as_ref());
                match place.filter(|place| !place.agrees_with(here)) {
                    None => return Ok(NewestPlan::Found(Box::new(plan))),
                    Some(place) => {
                        tracing::info!("{plan} is of another place ({place}): passing it over");
                        other.get_or_insert_with(|| (plan.to_string(), place.clone()));
                    }
                }
            }
            cursor = page.next;
            if cursor.is_none() {
                return Ok(other.map_or(NewestPlan::Missing, |(plan, place)| {
                    NewestPlan::Elsewhere { plan, place }
                }));
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
        let recorded = plan.record.as_ref().and_then(|record| record.plan.as_ref());
        let recorded = recorded.map(|recorded| recorded.sha256);
        let file = File::Plan(PlanFormat::Bin);
        self.client.save_recorded_file(&run, plan.attempt, &file, recorded, to).await
    }

    /// What a plan's own `run.json` says of it; `None` where there is none that can be read.
    async fn record_of(
        &self,
        run: &Name,
        attempt: Attempt,
    ) -> Result<Option<PlanRecord>, ClientError> {
        let (run_key, file) = (self.sibling(run), other(REPORT));
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

    /// Stores the log.
    pub(crate) async fn put_log(&self, log: &Path) -> Result<(), ClientError> {
        self.put_unless_kept(&(File::Log, Upload::file(log).await?)).await
    }

    /// Stores the log and the report side by side.
    pub(crate) async fn put_outcome(&self, log: &Path, report: &Report) -> Result<(), ClientError> {
        let (log, report) = tokio::join!(self.put_log(log), self.put_report(report));
        log.and(report)
    }

    /// Stores the report.
    pub(crate) async fn put_report(&self, report: &Report) -> Result<(), ClientError> {
        if self.server == Server::Burritos {
            return Ok(());
        }
        self.put_unless_kept(&(other(REPORT), Upload::bytes(report.to_json()))).await
    }

    /// Whether log and report of this attempt stay unless its plan is replaced.
    pub(crate) fn is_kept(&self) -> bool {
        self.kept
    }

    pub(crate) fn client(&self) -> &Client {
        &self.client
    }

    fn sibling(&self, run: &Name) -> RunKey {
        RunKey { run: run.clone(), ..self.run.clone() }
    }
}

const REPORT: &str = "run.json";
/// The record of an apply, created once.
pub(crate) const APPLIED: &str = "applied.json";

/// A file of ours.
pub(crate) fn other(name: &str) -> File {
    File::Other(name.parse().expect("a valid name"))
}

fn unreadable(reason: &str) -> ClientError {
    let call = format!("the record of an apply, {APPLIED}");
    ClientError::Answer { call, reason: reason.to_owned() }
}

/// What became of an upload that more is waiting for.
async fn soon(upload: impl Future<Output = Result<(), ClientError>>) -> Result<(), String> {
    const LIMIT: Duration = Duration::from_secs(10);
    match tokio::time::timeout(LIMIT, upload).await {
        Ok(stored) => stored.map_err(|error| chain(&error)),
        Err(_) => Err(format!("the datastore takes longer than {} s", LIMIT.as_secs())),
    }
}

fn random_id() -> ClaimId {
    let random = || RandomState::new().hash_one(std::process::id());
    format!("{:016x}{:016x}", random(), random()).parse().expect("hex digits are a valid id")
}

fn next(stored: &[AttemptFiles]) -> Attempt {
    let highest = stored.iter().map(|files| files.attempt).max();
    highest.map_or(Attempt(0), |Attempt(number)| Attempt(number.saturating_add(1)))
}
