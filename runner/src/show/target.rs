//! The run and the attempt that a command shows.

use std::path::PathBuf;

use datastore_api::key::AttemptFiles;
use datastore_api::{Attempt, Client, Name, RunKey};

use crate::cli::{Environment, RunName, RunTarget, ShowCommon};
use crate::order::lookup::{find_datastore, find_layer};
use crate::process::text::one_line;
use crate::run::artifacts::LEDGER;
use crate::run::unsent::{command_to, waiting};
use crate::show::error::ShowError;
use crate::show::record::latest;

/// An error names this many other runs.
const OTHERS: usize = 5;

/// An attempt in a datastore.
#[derive(Debug)]
pub(super) struct Target {
    pub(super) client: Client,
    pub(super) run: RunKey,
    /// The attempt and its files.
    pub(super) files: AttemptFiles,
    /// The numbers of all attempts, oldest first.
    pub(super) attempts: Vec<Attempt>,
    /// The command that sends files of the attempt that wait on this machine.
    pub(super) unsent: Option<String>,
}

/// Finds the run that was named, or the layer's newest.
pub(super) async fn find(
    target: &RunTarget,
    common: &ShowCommon,
    environment: &Environment,
) -> Result<Target, ShowError> {
    let client = find_datastore(&common.remote, environment)?;
    let name = target.run.as_ref();
    let (namespace, layer) = match name.and_then(|name| name.layer.clone()) {
        Some(named) => named,
        None => find_layer(common, target.dir.as_deref(), environment).await?,
    };
    let (run, attempts) = match name {
        Some(RunName { run, .. }) => {
            let run = RunKey { namespace, layer, run: run.clone() };
            let attempts = client.attempts(&run).await?.attempts;
            (run, attempts)
        }
        None => newest(&client, &namespace, &layer).await?,
    };
    let numbers = attempts.iter().map(|files| files.attempt).collect::<Vec<_>>();
    let mut unsent = waiting(environment.state_home.as_deref(), &run, &client.settings().url);
    let Some(latest) = latest(&attempts) else {
        if let Some((attempt, dir)) = unsent.pop() {
            return Err(not_sent(&client, &run, attempt, dir));
        }
        let others = names(&client, &run.namespace, &run.layer).await?;
        return Err(ShowError::NoRun { run, others });
    };
    let files = match name.and_then(|name| name.attempt) {
        Some(attempt) => {
            attempts.iter().find(|files| files.attempt == attempt).ok_or_else(|| {
                ShowError::NoAttempt { run: run.run.clone(), attempt, others: numbers.clone() }
            })?
        }
        None => latest,
    };
    let files = files.clone();
    let unsent = unsent.into_iter().find(|(attempt, _)| *attempt == files.attempt);
    if files.artifacts.iter().all(|file| file.name == LEDGER)
        && let Some((attempt, dir)) = unsent
    {
        return Err(not_sent(&client, &run, attempt, dir));
    }
    if files.artifacts.is_empty() {
        return Err(ShowError::NothingStored { run: run.run, attempt: files.attempt });
    }
    let unsent = unsent.map(|(_, dir)| command_to(&client, false, &dir));
    Ok(Target { client, run, files, attempts: numbers, unsent })
}

fn not_sent(client: &Client, run: &RunKey, attempt: Attempt, dir: PathBuf) -> ShowError {
    let command = command_to(client, false, &dir);
    ShowError::Unsent { run: run.run.clone(), attempt, dir, command }
}

/// The newest run that has files, else the newest that has only claimed attempts. The datastore lists a run before its
/// first file, and a killed runner may leave it so.
async fn newest(
    client: &Client,
    namespace: &Name,
    layer: &Name,
) -> Result<(RunKey, Vec<AttemptFiles>), ShowError> {
    let (mut cursor, mut claimed) = (None, None);
    loop {
        let page = client.runs(namespace, layer, cursor.as_deref()).await?;
        for run in page.runs.iter().filter_map(|run| run.run.parse().ok()) {
            let run = RunKey { namespace: namespace.clone(), layer: layer.clone(), run };
            let attempts = client.attempts(&run).await?.attempts;
            if attempts.iter().any(|files| !files.artifacts.is_empty()) {
                return Ok((run, attempts));
            }
            if !attempts.is_empty() {
                claimed.get_or_insert((run, attempts));
            }
        }
        cursor = page.next;
        if cursor.is_none() {
            let (namespace, layer) = (namespace.clone(), layer.clone());
            return claimed.ok_or(ShowError::NoRuns { namespace, layer });
        }
    }
}

/// The names of the layer's newest runs.
async fn names(client: &Client, namespace: &Name, layer: &Name) -> Result<Vec<String>, ShowError> {
    let page = client.runs(namespace, layer, None).await?;
    Ok(page.runs.iter().take(OTHERS).map(|run| one_line(&run.run)).collect())
}
