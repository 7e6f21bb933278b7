//! What an apply has started and not completed, by its ledger.

use datastore_api::key::AttemptFiles;
use datastore_api::{Client, ClientError, RunKey};

use crate::report::ledger::{Ledger, Resource, list};
use crate::run::artifacts::{LEDGER, MAX_LEDGER, other};
use crate::show::record::{has, read_file};

/// The ledger of an attempt. One that cannot be read is a warning.
pub(super) async fn read(
    client: &Client,
    run: &RunKey,
    files: &AttemptFiles,
) -> Result<Option<Ledger>, ClientError> {
    if !has(files, LEDGER) {
        return Ok(None);
    }
    let attempt = files.attempt;
    let json = read_file(client, run, attempt, &other(LEDGER), MAX_LEDGER).await?;
    let ledger = json.map(|json| Ledger::parse(&json)).transpose();
    Ok(ledger.unwrap_or_else(|reason| {
        tracing::warn!("{LEDGER} of {run}/{attempt} cannot be read: {reason}");
        None
    }))
}

/// The resources that were started and did not complete, for people.
pub(super) fn describe(ledger: &Ledger, has_report: bool) -> Option<String> {
    let resources = list(ledger.unanswered().map(Resource::name))?;
    let so_far = if has_report || ledger.has_ended() {
        ""
    } else {
        " so far, if the apply still works and its runner was not killed"
    };
    Some(format!("was started and did not complete{so_far}: {resources}"))
}
