//! `runner upload`: sends kept files. It replaces no stored file, and removes a kept file only when it is stored.

use std::io;
use std::path::{Path, PathBuf};

use datastore_api::client::{Condition, Upload};
use datastore_api::{Attempt, Client, ClientError, RunKey};
use fs_err as fs;
use reqwest::StatusCode;

use crate::cli::{Environment, UploadArgs};
use crate::order::datastore::datastore;
use crate::report::AppliedRecord;
use crate::run::artifacts::{APPLIED, applied_key, other};
use crate::run::unsent::{FAILED, FailedAttempt, REPORT, files, remove, sums};

/// `runner upload` did not send everything.
#[derive(Debug, thiserror::Error)]
pub(crate) enum UploadError {
    #[error("there is no directory {}", .0.display())]
    Missing(PathBuf),
    #[error("{} is not a directory of files that a run could not store: {reason}", .dir.display())]
    Directory { dir: PathBuf, reason: String },
    #[error("{} is damaged: {reason}", .file.display())]
    Damaged { file: PathBuf, reason: String },
    #[error("{0}")]
    Usage(String),
    #[error("{0}")]
    Client(String),
    #[error("the datastore")]
    Datastore(#[from] ClientError),
    #[error(
        "the datastore already holds another {}; what differs stays in {}",
        .files.join(", "),
        .dir.display()
    )]
    Others { dir: PathBuf, files: Vec<&'static str> },
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// The result of sending one file.
enum Sent {
    New,
    /// The same bytes were stored before.
    Before,
    /// Other bytes are stored.
    Other,
}

/// A directory whose files have been verified.
struct Checked {
    run: RunKey,
    attempt: Attempt,
    /// The record of the apply; none for a run that failed.
    record: Option<AppliedRecord>,
}

/// Sends the files in the directory that `runner upload` names.
pub(crate) async fn upload(
    args: &UploadArgs,
    environment: &Environment,
) -> Result<(), UploadError> {
    let client = datastore(&args.datastore, args.ca_file.as_deref(), environment);
    let client = client.map_err(|error| UploadError::Client(error.to_string()))?;
    let client = client.ok_or_else(|| {
        UploadError::Usage("no datastore is named: name one with --datastore".to_owned())
    })?;
    send(&client, &args.dir).await.map(drop)
}

/// Sends the files in a directory, the record of an apply first.
pub(crate) async fn send(client: &Client, dir: &Path) -> Result<RunKey, UploadError> {
    let Checked { run, attempt, record } = check(dir).await?;
    let attempts = client.attempts_unless_burritos(&run).await?;
    // Burrito's datastore keeps neither records nor reports.
    let is_burritos = attempts.is_none();
    let stored = attempts.unwrap_or_default().attempts.into_iter();
    let stored = stored.filter(|files| files.attempt == attempt);
    let stored = stored.flat_map(|files| files.artifacts).map(|file| file.name);
    let stored = stored.collect::<Vec<_>>();
    let was_there = |name: &str| stored.iter().any(|stored| stored == name);
    let mut others = Vec::new();
    if let Some(record) = record.filter(|_| !is_burritos) {
        let sent = send_record(client, &record, &run, was_there(APPLIED)).await?;
        others.extend(log_result(APPLIED, &sent, dir));
    }
    for (name, file) in files().into_iter().filter(|(name, _)| !is_burritos || *name != REPORT) {
        let path = dir.join(name);
        if !path.exists() {
            continue;
        }
        let upload = Upload::file(&path).await?;
        let put = client.put_file(&run, attempt, &file, &upload, Condition::Create);
        let sent = send_result(put.await, was_there(name))?;
        others.extend(log_result(name, &sent, dir));
        if !matches!(sent, Sent::Other) {
            fs::remove_file(path)?;
        }
    }
    if !others.is_empty() {
        return Err(UploadError::Others { dir: dir.to_owned(), files: others });
    }
    let foreign = remove(dir)?;
    if foreign.is_empty() {
        tracing::info!("everything of {run} is stored; {} is removed", dir.display());
    } else {
        let (dir, foreign) = (dir.display(), foreign.join(", "));
        tracing::info!(
            "everything of {run} is stored; {dir} is not removed, because it also holds {foreign}"
        );
    }
    Ok(run)
}

/// Compares every file with the digest beside it, before anything is sent.
async fn check(dir: &Path) -> Result<Checked, UploadError> {
    if !dir.is_dir() {
        return Err(UploadError::Missing(dir.to_owned()));
    }
    let sums = sums(dir);
    let names = files().map(|(name, _)| name).into_iter().chain([APPLIED, FAILED]);
    for name in names.filter(|name| dir.join(name).exists()) {
        let file = dir.join(name);
        let actual = Upload::file(&file).await?.sha256();
        if let Some(expected) = sums.get(name).filter(|expected| **expected != actual) {
            let reason = format!("its sha256 is {actual}, it was kept with {expected}");
            return Err(UploadError::Damaged { file, reason });
        }
    }
    owner(dir)
}

/// The attempt whose files a directory holds.
fn owner(dir: &Path) -> Result<Checked, UploadError> {
    let unusable = |reason: String| UploadError::Directory { dir: dir.to_owned(), reason };
    let damaged =
        |name: &str, reason: String| UploadError::Damaged { file: dir.join(name), reason };
    match fs::read(dir.join(APPLIED)) {
        Ok(json) => {
            let record = AppliedRecord::parse(&json).map_err(|reason| damaged(APPLIED, reason))?;
            let run = record.run_key().map_err(|error| damaged(APPLIED, error.to_string()))?;
            Ok(Checked { run, attempt: record.attempt, record: Some(record) })
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let json = fs::read(dir.join(FAILED)).map_err(|error| unusable(error.to_string()))?;
            let failed = serde_json::from_slice::<FailedAttempt>(&json);
            let failed = failed.map_err(|error| damaged(FAILED, error.to_string()))?;
            let run = failed.run_key().map_err(|error| damaged(FAILED, error.to_string()))?;
            Ok(Checked { run, attempt: failed.attempt, record: None })
        }
        Err(error) => Err(unusable(error.to_string())),
    }
}

/// Sends the record of the attempt and that of the plan.
async fn send_record(
    client: &Client,
    record: &AppliedRecord,
    run: &RunKey,
    was_there: bool,
) -> Result<Sent, UploadError> {
    let (file, json) = (other(APPLIED), Upload::bytes(record.to_json()));
    let put = client.put_file(run, record.attempt, &file, &json, Condition::Create);
    let of_attempt = send_result(put.await, was_there)?;
    let Some(plan) = record.plan_sha256() else { return Ok(of_attempt) };
    match send_result(client.put_applied(&applied_key(run, plan), &json).await, was_there)? {
        Sent::Other => {
            tracing::warn!("another apply of the plan {plan} is recorded");
            Ok(Sent::Other)
        }
        _ => Ok(of_attempt),
    }
}

fn send_result(put: Result<(), ClientError>, was_there: bool) -> Result<Sent, ClientError> {
    match put {
        Ok(()) if was_there => Ok(Sent::Before),
        Ok(()) => Ok(Sent::New),
        Err(error) if error.status() == Some(StatusCode::PRECONDITION_FAILED) => Ok(Sent::Other),
        Err(error) => Err(error),
    }
}

/// Logs the result of one file. Returns its name, if the file is not stored.
fn log_result(name: &'static str, sent: &Sent, dir: &Path) -> Option<&'static str> {
    match sent {
        Sent::New => tracing::info!("{name}: sent"),
        Sent::Before => tracing::info!("{name}: was stored already, with the same bytes"),
        Sent::Other => {
            tracing::warn!("{name}: another one is stored; this one stays in {}", dir.display());
            return Some(name);
        }
    }
    None
}
