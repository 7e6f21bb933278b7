//! The states of an attempt that their backends have refused, as artifacts of the attempt.

use std::path::Path;

use datastore_api::client::{Condition, Upload};
use datastore_api::{Attempt, Client, ClientError, RunKey};
use reqwest::StatusCode;

use crate::run::artifacts::other;
use crate::source::states;

/// Stores the whole states in a directory. They stay there: their backends still need them.
pub(super) async fn send_states(
    client: &Client,
    dir: &Path,
    (run, attempt): (&RunKey, Attempt),
) -> Result<(), ClientError> {
    for path in states::kept(dir) {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if path.is_symlink() || !states::is_whole(&path) {
            continue;
        }
        let upload = Upload::file(&path).await?;
        match client.put_file(run, attempt, &other(&name), &upload, Condition::Create).await {
            Err(error) if error.status() == Some(StatusCode::PRECONDITION_FAILED) => {
                tracing::warn!("{name}: another one is stored");
            }
            stored => {
                stored?;
                let dir = dir.display();
                tracing::info!("{name}: stored; it stays in {dir} until its backend has it");
            }
        }
    }
    Ok(())
}
