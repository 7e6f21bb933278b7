//! The states of an attempt that their backends have refused, as artifacts of the attempt.

use std::path::Path;

use datastore_api::client::Upload;
use datastore_api::{Attempt, Client, ClientError, RunKey};

use crate::run::artifacts::put_state;
use crate::source::states;

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
