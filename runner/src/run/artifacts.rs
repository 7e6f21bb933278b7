//! The files of one run in the datastore: its attempt, its uploads, and the plans and records of other runs.

mod applies;
mod attempt;
mod history;
mod ledgers;
mod live;
mod newest;
mod open;
mod plans;
mod records;
mod states;

use std::path::Path;

use datastore_api::client::{Condition, Upload};
use datastore_api::key::AttemptFiles;
use datastore_api::{Attempt, Client, ClientError, File, PlanFormat, RunKey};
use futures::future::try_join_all;
use reqwest::StatusCode;

pub(crate) use applies::LastApply;
pub(crate) use attempt::OpenError;
pub(crate) use ledgers::{MAX_LEDGER, replace_ledger};
pub(crate) use newest::{NewestPlan, SearchError, Wanted};
pub(crate) use open::{AttemptRequest, random_id};
pub(crate) use plans::{Defect, StoredPlan};
pub(crate) use records::{Recorded, applied_key, store_under_key, stored_before};
pub(crate) use states::put_state;

use crate::basis::binding;
use crate::report::Report;
use crate::run::artifacts::attempt::{after, next_free};
use crate::run::artifacts::live::LiveLog;

/// A larger `run.json` is not read.
pub(crate) const MAX_REPORT: usize = 16 << 20;
/// How often the run takes another attempt because its own holds different plan files.
const MOVES: usize = 3;

/// The attempt of a run in a datastore.
#[derive(Clone, Debug)]
pub(crate) struct Artifacts {
    client: Client,
    run: RunKey,
    attempt: Attempt,
    /// The attempts that had files when this was listed.
    stored: Vec<AttemptFiles>,
    /// Whether the attempt holds a finished plan or an apply, whose log and report are not replaced.
    kept: bool,
    /// Whether Burrito's controllers decided the attempt. Different plan files in it are then replaced.
    attempt_is_fixed: bool,
    server: Server,
    /// The log, while it is sent.
    live: Option<LiveLog>,
}

/// What a datastore supports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Server {
    /// Every route that this version of the runner uses.
    Current,
    /// Neither claims nor records of applied plans: an older version of Plancha.
    Older,
    /// Only Burrito's own files: it is Burrito's datastore.
    Burritos,
}

/// One attempt in a datastore.
#[derive(Clone, Debug)]
pub(crate) struct AttemptRef {
    pub(crate) datastore: Client,
    pub(crate) run: RunKey,
    pub(crate) attempt: Attempt,
}

/// A file and its contents.
pub(crate) type Entry = (File, Upload);

impl Artifacts {
    /// The files of an attempt, if it has any.
    fn files(&self, attempt: Attempt) -> Option<&AttemptFiles> {
        self.stored.iter().find(|files| files.attempt == attempt && !files.artifacts.is_empty())
    }

    fn has(&self, attempt: Attempt, name: &str) -> bool {
        let files = self.files(attempt);
        files.is_some_and(|files| files.artifacts.iter().any(|file| file.name == name))
    }

    /// The attempt that the files are stored under.
    pub(crate) fn attempt(&self) -> Attempt {
        self.attempt
    }

    /// Stores a file and replaces an existing one.
    async fn put(&self, (file, upload): &Entry) -> Result<(), ClientError> {
        self.client.put_file(&self.run, self.attempt, file, upload, Condition::Replace).await
    }

    /// Stores a plan file. An existing one must be the same, unless the attempt is fixed.
    pub(crate) async fn create(&self, entry: &Entry) -> Result<(), ClientError> {
        let (file, upload) = entry;
        let created =
            self.client.put_file(&self.run, self.attempt, file, upload, Condition::Create).await;
        match created {
            Err(error)
                if self.attempt_is_fixed
                    && error.status() == Some(StatusCode::PRECONDITION_FAILED) =>
            {
                self.put(entry).await
            }
            created => created,
        }
    }

    /// Stores a file, but does not replace that of a finished plan or an apply.
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

    /// Stores the reason of a failure where Burrito's UI shows a run's result.
    pub(crate) async fn put_reason(&self, reason: &str) -> Result<(), ClientError> {
        let short = (File::Plan(PlanFormat::Short), Upload::bytes(reason.to_owned()));
        self.put_unless_kept(&short).await
    }

    /// Stores all plan files under one attempt: this one, or the next free one if this one holds different
    /// files. `ahead` is the result of the first file's upload, if that was started early.
    pub(crate) async fn create_all(
        &mut self,
        first: &Entry,
        rest: &[Entry],
        ahead: Option<Result<(), ClientError>>,
    ) -> Result<(), OpenError> {
        let mut created = match ahead {
            Some(created) => created,
            None => self.create(first).await,
        };
        let mut moves = 0;
        loop {
            // The plan was replaced, so the log and the report of the old one are replaced as well.
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
                    let listed = self.client.attempts(&self.run).await?.attempts;
                    self.attempt = next_free(&self.run.run, &listed)?;
                    self.claim_free().await?;
                    tracing::info!(
                        "the attempt holds different plan files: storing as attempt {}",
                        self.attempt
                    );
                }
                stored => return Ok(stored?),
            }
            created = self.create(first).await;
        }
    }

    /// Sends the log while it grows, until it is stored. The log of a finished plan or an apply stays as it is, and a datastore
    /// that cannot append stores the log at the end.
    pub(crate) fn send_log(&mut self, log: &Path) {
        if self.server == Server::Current && !self.kept {
            self.live = Some(LiveLog::start(&self.client, &self.run, self.attempt, log));
        }
    }

    /// Stores the log.
    pub(crate) async fn put_log(&self, log: &Path) -> Result<(), ClientError> {
        if let Some(live) = &self.live
            && live.is_of(self.attempt)
            && live.finish().await
        {
            return Ok(());
        }
        self.put_unless_kept(&(File::Log, Upload::file(log).await?)).await
    }

    /// Stores the report.
    pub(crate) async fn put_report(&self, report: &Report) -> Result<(), ClientError> {
        if self.server == Server::Burritos {
            return Ok(());
        }
        self.put_unless_kept(&(other(REPORT), Upload::bytes(report.to_json()))).await
    }

    /// Claims the next free attempt of the same run, for another try.
    pub(crate) async fn next(&self) -> Result<Self, OpenError> {
        let attempt = after(&self.run.run, self.attempt)?;
        let mut next = Self { attempt, kept: false, ..self.clone() };
        next.claim_free().await?;
        next.live = self.live.as_ref().map(|live| live.of_attempt(next.attempt));
        Ok(next)
    }

    /// Stores the files of a remainder, the plan and its JSON, under these names.
    pub(crate) async fn put_remainder(
        &self,
        names: &[String; 2],
        files: [&Path; 2],
    ) -> Result<(), ClientError> {
        for (name, file) in names.iter().zip(files) {
            self.create(&(other(name), Upload::file(file).await?)).await?;
        }
        Ok(())
    }

    /// Stores the plan's binding, once. In a pod that repeats a number it replaces that of the plan before.
    pub(crate) async fn put_binding(&self, json: String) -> Result<(), ClientError> {
        if !self.takes_other_files() {
            return Ok(());
        }
        self.create(&(other(binding::FILE), Upload::bytes(json))).await
    }

    /// Whether the datastore takes files that Burrito does not have.
    pub(crate) fn takes_other_files(&self) -> bool {
        self.server != Server::Burritos
    }

    /// Whether this attempt holds a finished plan or an apply.
    pub(crate) fn is_kept(&self) -> bool {
        self.kept
    }

    /// The datastore.
    pub(crate) fn client(&self) -> &Client {
        &self.client
    }
}

pub(crate) const REPORT: &str = "run.json";
/// What an apply has done so far, replaced while it works.
pub(crate) const LEDGER: &str = "ledger.json";
/// The record of an apply, created once.
pub(crate) const APPLIED: &str = "applied.json";

/// The key of a file that Burrito does not have.
pub(crate) fn other(name: &str) -> File {
    File::Other(name.parse().expect("a valid name"))
}
