//! `runner upload`: sends kept files. It replaces no stored file, and removes a kept file only when it is stored.

mod states_of_attempt;
mod stored;

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use datastore_api::client::{Condition, Upload};
use datastore_api::{Attempt, Client, ClientError, RunKey, Sha256, chain};
use fs_err as fs;
use reqwest::StatusCode;

use crate::cli::{Environment, RemoteArgs, UploadArgs};
use crate::order::datastore::datastore;
use crate::process::quoted;
use crate::report::{AppliedRecord, later_version};
use crate::run::artifacts::{
    APPLIED, LEDGER, MAX_REPORT, applied_key, other, replace_ledger, store_under_key, stored_before,
};
use crate::run::push::{MissingState, Unpushed};
use crate::run::unsent::directory::{
    DATASTORE, FAILED, Locking, REPORT, SUMS, datastore_of, files, lock, names, recorded_url,
    remove, sums,
};
use crate::run::unsent::find::{
    LeadsTo, ROOT, first_attempt, kept_state, leads_to, named_attempt, waiting_below,
};
use crate::run::unsent::send::states_of_attempt::{send_only_states, send_states};
use crate::run::unsent::send::stored::{burritos_names, stored_names};
use crate::run::unsent::{FailedAttempt, absolute, upload_command};
use crate::source::regular::{self, unless_missing};
use crate::source::scratch::reason;
use crate::source::states;

/// Between two attempts to get the lock of a directory.
const PAUSE: Duration = Duration::from_millis(100);

/// `runner upload` did not send everything.
#[derive(Debug, thiserror::Error)]
pub(crate) enum UploadError {
    #[error("there is no directory {}", .0.display())]
    Missing(PathBuf),
    #[error("{} is not a directory of files that a run could not store: {reason}", .dir.display())]
    Directory { dir: PathBuf, reason: String, next: String },
    #[error("{0}; upload does not push states to their backends")]
    States(Unpushed),
    #[error("{0}; upload does not push states to their backends")]
    MissingState(MissingState),
    #[error("{} is damaged: {reason}", .file.display())]
    Damaged { file: PathBuf, reason: String },
    #[error("{} has version {version}, which this runner does not know", .file.display())]
    Later { file: PathBuf, version: u32 },
    #[error("{0}")]
    Usage(String),
    #[error("the files in {} are for the datastore {theirs}, not for {ours}", .dir.display())]
    OtherDatastore { dir: PathBuf, theirs: String, ours: String, command: String },
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

/// What became of a directory.
#[derive(Debug)]
pub(crate) enum Sending {
    /// Every file is stored.
    Sent,
    /// Another process uses the directory, and nothing was sent.
    Busy,
    /// There is no such directory any more: every file that it held is stored.
    Gone,
}

/// The result of sending one file.
#[derive(Clone, Copy)]
enum Sent {
    New,
    /// The same bytes were stored before.
    Before,
    /// A record of the same apply was stored before.
    Equivalent,
    /// Other bytes are stored.
    Other,
}

/// A directory whose files have been verified.
struct Checked {
    owner: Owner,
    /// The files, by their names.
    uploads: Vec<(&'static str, Upload)>,
}

/// The attempt whose files a directory holds.
struct Owner {
    run: RunKey,
    attempt: Attempt,
    /// The record of the apply, and its bytes; none for a run that failed.
    record: Option<(AppliedRecord, Vec<u8>)>,
}

/// What a directory holds.
struct Held {
    run: RunKey,
    attempt: Attempt,
    /// The files that the datastore must have before the directory may disappear.
    names: Vec<&'static str>,
}

impl Held {
    /// By its record. Of a directory without one only the name is known: a run that stored everything has a report.
    fn read(dir: &Path) -> Option<Self> {
        if let Ok(Owner { run, attempt, .. }) = owner(dir) {
            let names = files().map(|(name, _)| name).into_iter().chain([APPLIED]);
            let names = names.filter(|name| dir.join(name).exists()).collect();
            return Some(Self { run, attempt, names });
        }
        let (run, attempt) = named_attempt(dir)?;
        Some(Self { run, attempt, names: vec![REPORT] })
    }
}

/// Sends the files in the directory that `runner upload` names. If another process uses it, it waits.
pub(crate) async fn upload(
    args: &UploadArgs,
    environment: &Environment,
) -> Result<(), UploadError> {
    // Neither `.` nor a link can be removed.
    let dir = &fs::canonicalize(&args.dir).unwrap_or_else(|_| args.dir.clone());
    let client = datastore(&args.remote.datastore, args.remote.ca_file.as_deref(), environment);
    let client = client.map_err(|error| UploadError::Client(error.to_string()))?;
    let theirs = datastore_of(dir);
    let Some(client) = client else { return Err(without_datastore(args, dir, theirs).await) };
    if dir.join(ROOT).is_dir() {
        return upload_all(args, dir, &client).await;
    }
    check_datastore(args, dir, &client, theirs)?;
    upload_one(&client, dir).await
}

/// What to do without a datastore: what is nothing but a state needs none.
async fn without_datastore(args: &UploadArgs, dir: &Path, theirs: Option<String>) -> UploadError {
    let is_spool = dir.join(ROOT).is_dir();
    let dirs = if is_spool { waiting_below(dir) } else { vec![dir.to_owned()] };
    let (mut state, mut are_states) = (None, true);
    for dir in dirs {
        match check(&dir).await {
            Err(error @ (UploadError::States(_) | UploadError::MissingState(_))) => {
                state.get_or_insert(error);
            }
            _ => are_states = false,
        }
    }
    if let Some(state) = state.filter(|_| are_states) {
        return state;
    }
    let theirs = theirs.as_deref().unwrap_or("URL");
    UploadError::Usage(format!(
        "no datastore is named: name one with --datastore, as in `{}`",
        upload_command(false, theirs, &options(args), dir)
    ))
}

/// Sends what waits in a spool for this datastore. A directory that cannot be sent does not keep the others.
async fn upload_all(args: &UploadArgs, dir: &Path, client: &Client) -> Result<(), UploadError> {
    let mut first = None;
    let dirs = waiting_below(dir);
    if dirs.is_empty() {
        tracing::info!("nothing waits in {}", dir.display());
    }
    for dir in dirs {
        let sent = match check_datastore(args, &dir, client, datastore_of(&dir)) {
            Ok(()) => upload_one(client, &dir).await,
            Err(error) => Err(error),
        };
        if let Err(error) = sent {
            tracing::warn!("{} is not sent: {}", dir.display(), chain(&error));
            first.get_or_insert(error);
        }
    }
    first.map_or(Ok(()), Err)
}

async fn upload_one(client: &Client, dir: &Path) -> Result<(), UploadError> {
    let held = Held::read(dir);
    let mut waits = false;
    loop {
        match send_unless_used(client, dir).await? {
            Sending::Busy => {
                if !waits {
                    tracing::info!("another runner uses {}: waiting for it", dir.display());
                }
                waits = true;
                tokio::time::sleep(PAUSE).await;
            }
            Sending::Gone => return find_stored(client, dir, held).await,
            Sending::Sent => return Ok(()),
        }
    }
}

/// The files of the command line, which the printed command needs as well.
fn options(args: &UploadArgs) -> Vec<String> {
    let RemoteArgs { datastore, ca_file } = &args.remote;
    let files = [("--token-file", &datastore.token_file), ("--ca-file", ca_file)];
    let files = files.into_iter().filter_map(|(flag, file)| Some((flag, file.as_ref()?)));
    files.flat_map(|(flag, file)| [flag.to_owned(), absolute(file)]).collect()
}

/// Files for another datastore are sent only if the command line names the datastore.
fn check_datastore(
    args: &UploadArgs,
    dir: &Path,
    client: &Client,
    theirs: Option<String>,
) -> Result<(), UploadError> {
    let ours = recorded_url(&client.settings().url);
    let Some(theirs) = theirs.filter(|theirs| *theirs != ours) else { return Ok(()) };
    if args.is_datastore_explicit {
        tracing::warn!(
            "the files in {} are for the datastore {theirs}: --datastore sends them to {ours}",
            dir.display()
        );
        return Ok(());
    }
    let command = upload_command(false, &theirs, &options(args), dir);
    Err(UploadError::OtherDatastore { dir: dir.to_owned(), theirs, ours, command })
}

/// A directory that does not exist is no error if the datastore has what it held.
async fn find_stored(client: &Client, dir: &Path, held: Option<Held>) -> Result<(), UploadError> {
    let missing = || UploadError::Missing(dir.to_owned());
    let Held { run, attempt, mut names } = held.ok_or_else(missing)?;
    let stored = if let Some(stored) = stored_names(client, &run, attempt).await? {
        stored
    } else {
        names.retain(|name| ![REPORT, APPLIED, LEDGER].contains(name));
        burritos_names(client, &run, attempt).await?
    };
    if stored.is_empty() || !names.iter().all(|name| stored.iter().any(|stored| stored == name)) {
        return Err(missing());
    }
    tracing::info!(
        "there is no directory {}, and nothing to send: the datastore has attempt {attempt} of {run} ({})",
        dir.display(),
        stored.join(", ")
    );
    Ok(())
}

/// Sends the files in a directory, unless another process uses it.
pub(crate) async fn send_unless_used(client: &Client, dir: &Path) -> Result<Sending, UploadError> {
    if dir.exists() && !dir.is_dir() {
        return Err(not_an_attempt(dir, "it is a file".to_owned()));
    }
    let _lock = match lock(dir) {
        Ok(Locking::Locked(lock)) => lock,
        Ok(Locking::Busy) => return Ok(Sending::Busy),
        Ok(Locking::Gone) => return Ok(Sending::Gone),
        Err(error) => return Err(not_an_attempt(dir, reason(&error))),
    };
    match send(client, dir).await {
        // On a file system without locks another process may have removed it.
        Err(_) if !dir.exists() => Ok(Sending::Gone),
        sent => sent.map(|()| Sending::Sent),
    }
}

/// Sends the files in a directory, the record of an apply first.
async fn send(client: &Client, dir: &Path) -> Result<(), UploadError> {
    let checked = check(dir).await;
    if let (Err(UploadError::States(_)), Some((run, attempt))) = (&checked, named_attempt(dir))
        && let Err(error) = send_only_states(client, dir, (&run, attempt)).await
    {
        tracing::warn!("the state in {} is not stored: {}", dir.display(), chain(&error));
    }
    let Checked { owner: Owner { run, attempt, record }, uploads } = checked?;
    let stored = stored_names(client, &run, attempt).await?;
    // Burrito's datastore keeps neither records nor reports.
    let is_burritos = stored.is_none();
    let stored = stored.unwrap_or_default();
    let was_there = |name: &str| stored.iter().any(|stored| stored == name);
    let mut others = Vec::new();
    if let Some((record, json)) = record.filter(|_| !is_burritos) {
        let sent = send_record(client, &record, json, &run, was_there(APPLIED)).await?;
        others.extend(log_result(APPLIED, sent, dir));
    }
    let is_kept = |name: &str| !is_burritos || ![REPORT, LEDGER].contains(&name);
    for (name, file) in files().into_iter().filter(|(name, _)| is_kept(name)) {
        let Some((_, upload)) = uploads.iter().find(|(kept, _)| *kept == name) else { continue };
        let put = client.put_file(&run, attempt, &file, upload, Condition::Create);
        let mut sent = send_result(put.await, was_there(name))?;
        // A run that lost its datastore has stored an earlier state of its ledger.
        if matches!(sent, Sent::Other) && name == LEDGER {
            let json = unless_missing(regular::read(&dir.join(name)))?.unwrap_or_default();
            if replace_ledger(client, (&run, attempt), json).await? {
                sent = Sent::New;
            }
        }
        others.extend(log_result(name, sent, dir));
        if !matches!(sent, Sent::Other) {
            unless_missing(fs::remove_file(dir.join(name)))?;
        }
    }
    if !is_burritos {
        send_states(client, dir, (&run, attempt)).await?;
    }
    if !others.is_empty() {
        return Err(UploadError::Others { dir: dir.to_owned(), files: others });
    }
    let foreign = remove(dir)?;
    if foreign.is_empty() {
        tracing::info!("what was kept of {run} is stored; {} is removed", dir.display());
    } else {
        let (dir, foreign) = (dir.display(), foreign.join(", "));
        tracing::info!(
            "what was kept of {run} is stored; {dir} is not removed, because it also holds {foreign}"
        );
    }
    Ok(())
}

/// Compares every file with the digest beside it, before anything is sent.
async fn check(dir: &Path) -> Result<Checked, UploadError> {
    let damaged = |name: &str, reason| UploadError::Damaged { file: dir.join(name), reason };
    let sums = sums(dir).map_err(|error| match error.kind() {
        io::ErrorKind::InvalidData => damaged(SUMS, error.to_string()),
        _ => UploadError::Io(error),
    })?;
    let mut uploads = Vec::new();
    for name in names() {
        let file = dir.join(name);
        if !regular::exists(&file)? {
            continue;
        }
        let upload = Upload::file(&file).await?;
        if let Some(sums) = &sums {
            let expected = sums.get(name).copied();
            verify(upload.sha256(), expected).map_err(|reason| damaged(name, reason))?;
        }
        uploads.push((name, upload));
    }
    Ok(Checked { owner: owner(dir)?, uploads })
}

fn verify(actual: Sha256, expected: Option<Sha256>) -> Result<(), String> {
    match expected {
        Some(expected) if expected == actual => Ok(()),
        Some(expected) => Err(format!("its SHA-256 is {actual}, it was kept with {expected}")),
        None => Err(format!("{SUMS} does not have its digest")),
    }
}

/// The attempt whose files a directory holds.
fn owner(dir: &Path) -> Result<Owner, UploadError> {
    let damaged =
        |name: &str, reason: String| UploadError::Damaged { file: dir.join(name), reason };
    if let Some(json) = read(dir, APPLIED)? {
        let record = AppliedRecord::parse(&json).map_err(|reason| damaged(APPLIED, reason))?;
        let run = record.run_key().map_err(|error| damaged(APPLIED, error.to_string()))?;
        return Ok(Owner { run, attempt: record.attempt, record: Some((record, json)) });
    }
    let json = read(dir, FAILED)?.ok_or_else(|| without_record(dir))?;
    let failed = serde_json::from_slice::<FailedAttempt>(&json);
    let failed = failed.map_err(|error| damaged(FAILED, error.to_string()))?;
    let run = failed.run_key().map_err(|error| damaged(FAILED, error.to_string()))?;
    Ok(Owner { run, attempt: failed.attempt, record: None })
}

/// Reads one of the records that identify an attempt.
fn read(dir: &Path, name: &str) -> Result<Option<Vec<u8>>, UploadError> {
    let file = dir.join(name);
    let json = unless_missing(regular::read(&file));
    let json = json.map_err(|error| not_an_attempt(dir, reason(&error)))?;
    match json.as_deref().and_then(later_version) {
        Some(version) => Err(UploadError::Later { file, version }),
        None => Ok(json),
    }
}

/// Why a directory without a record cannot be sent.
fn without_record(dir: &Path) -> UploadError {
    let mut files = states::kept(dir);
    if !files.is_empty() {
        files.sort();
        let mut states = Vec::new();
        for name in files {
            match leads_to(&name) {
                LeadsTo::State(file) => states.push(kept_state(file, name)),
                LeadsTo::OutOfReach(state) => {
                    let source = states::source_beside(&name);
                    let is_killed = false;
                    let missing = MissingState { link: name, state, source, is_killed };
                    return UploadError::MissingState(missing);
                }
                LeadsTo::Removed => {}
            }
        }
        if !states.is_empty() {
            return UploadError::States(Unpushed::kept(states));
        }
    }
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    let mut others = entries.map(|entry| entry.file_name()).filter(|name| name != DATASTORE);
    let mut reason = format!("it has neither {APPLIED} nor {FAILED}");
    if others.next().is_none() {
        reason += ", and is empty";
    }
    not_an_attempt(dir, reason)
}

fn not_an_attempt(dir: &Path, reason: String) -> UploadError {
    let next = match first_attempt(dir) {
        Some(attempt) => format!(
            "name the directory of an attempt, such as {}",
            quoted(&attempt.to_string_lossy())
        ),
        None => format!(
            "name the directory of an attempt, as in the command that the run has printed; it holds {APPLIED} \
             or {FAILED}"
        ),
    };
    UploadError::Directory { dir: dir.to_owned(), reason, next }
}

/// Sends the record of the attempt, that of the plan, and that of the order's key. A stored one that records the same apply
/// is as good.
async fn send_record(
    client: &Client,
    record: &AppliedRecord,
    json: Vec<u8>,
    run: &RunKey,
    was_there: bool,
) -> Result<Sent, UploadError> {
    let is_same = |stored: &[u8]| {
        AppliedRecord::parse(stored).is_ok_and(|stored| stored.is_same_apply(record))
    };
    let (file, json) = (other(APPLIED), Upload::bytes(json));
    let put = client.put_file(run, record.attempt, &file, &json, Condition::Create);
    let mut of_attempt = send_result(put.await, was_there)?;
    if let Sent::Other = of_attempt
        && let Some(stored) = client.get_file(run, Some(record.attempt), &file).await?
        && is_same(&stored.bytes(MAX_REPORT).await?)
    {
        of_attempt = Sent::Equivalent;
    }
    if let Some(digest) = record.plan_sha256() {
        let key = applied_key(run, digest);
        let put = client.put_applied(&key, &json).await;
        let stored = Box::pin(stored_before(put, client.get_applied(&key))).await?;
        if stored.is_some_and(|(stored, _)| !stored.is_same_apply(record)) {
            tracing::warn!("another apply of the plan {digest} is recorded");
            return Ok(Sent::Other);
        }
    }
    // Another apply may have been recorded under this key since: then this one gets the next key that is free.
    Box::pin(store_under_key(client, run, record.clone())).await?;
    Ok(of_attempt)
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
fn log_result(name: &'static str, sent: Sent, dir: &Path) -> Option<&'static str> {
    match sent {
        Sent::New => tracing::info!("{name}: sent"),
        Sent::Before => tracing::info!("{name}: was stored already, with the same bytes"),
        Sent::Equivalent => tracing::info!("{name}: a record of the same apply was stored already"),
        Sent::Other => {
            tracing::warn!("{name}: another one is stored; this one stays in {}", dir.display());
            return Some(name);
        }
    }
    None
}
