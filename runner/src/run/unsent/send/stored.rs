//! Which files of an attempt the datastore has.

use datastore_api::{Attempt, Client, ClientError, RunKey};

use crate::run::artifacts::LEDGER;
use crate::run::unsent::directory::{REPORT, files};

/// The names of the attempt's files in the datastore; `None`: it is Burrito's.
pub(super) async fn stored_names(
    client: &Client,
    run: &RunKey,
    attempt: Attempt,
) -> Result<Option<Vec<String>>, ClientError> {
    let Some(attempts) = client.attempts_unless_burritos(run).await? else { return Ok(None) };
    let files = attempts.attempts.into_iter().filter(|files| files.attempt == attempt);
    Ok(Some(files.flat_map(|files| files.artifacts).map(|file| file.name).collect()))
}

/// The names of the attempt's files in Burrito's datastore, which lists none.
pub(super) async fn burritos_names(
    client: &Client,
    run: &RunKey,
    attempt: Attempt,
) -> Result<Vec<String>, ClientError> {
    let mut names = Vec::new();
    for (name, file) in files().into_iter().filter(|(name, _)| ![REPORT, LEDGER].contains(name)) {
        if client.get_file(run, Some(attempt), &file).await?.is_some() {
            names.push(name.to_owned());
        }
    }
    Ok(names)
}
