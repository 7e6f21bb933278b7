//! The states of an attempt that their backends have refused, as artifacts of the attempt.

use std::path::Path;

use datastore_api::client::Upload;
use datastore_api::{Attempt, Client, ClientError, RunKey};

use crate::run::artifacts::put_state;
use crate::run::unsent::send::stored::stored_names;
use crate::source::states;

/// The same of a directory with nothing else, unless the datastore is Burrito's.
pub(super) async fn send_only_states(
    client: &Client,
    dir: &Path,
    (run, attempt): (&RunKey, Attempt),
) -> Result<(), ClientError> {
    if stored_names(client, run, attempt).await?.is_none() {
        return Ok(());
    }
    send_states(client, dir, (run, attempt)).await
}

/// Stores the whole states in a directory. They stay there: their backends still need them.
pub(super) async fn send_states(
    client: &Client,
    dir: &Path,
    attempt: (&RunKey, Attempt),
) -> Result<(), ClientError> {
    let mut files = states::kept(dir);
    files.retain(|file| !file.is_symlink() && states::is_whole(file));
    files.sort();
    for file in files {
        let name = put_state(client, attempt, &Upload::file(&file).await?).await?;
        let file = file.display();
        tracing::info!("{file}: stored as {name}; it stays there until its backend has it");
    }
    Ok(())
}
