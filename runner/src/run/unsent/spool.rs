//! The directory of `--spool-dir`: it takes the place of the state home, and later runs send what waits there.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use datastore_api::chain;
use fs_err as fs;

use crate::cli::Environment;
use crate::run::Run;
use crate::run::error::RunError;
use crate::run::unsent::directory::{builder, partial};
use crate::run::unsent::find::{ROOT, named_attempt, waiting_of_layer};
use crate::run::unsent::send::{Sending, send_unless_used};

/// How long a run sends what earlier ones have left.
const LIMIT: Duration = Duration::from_mins(1);

/// Refuses a run whose spool cannot be written. Files in the state home of the user are not found then, which is warned of.
pub(crate) fn check_spool(environment: &Environment) -> Result<(), RunError> {
    let Some(dir) = environment.spool() else { return Ok(()) };
    let root = dir.join(ROOT);
    let written = builder().recursive(true).create(&root).and_then(|()| partial(&root).map(drop));
    written.map_err(|cause: io::Error| RunError::Spool { dir: dir.to_owned(), cause })?;
    let replaced = environment.replaced_state_home.as_ref().filter(|home| *home != dir);
    let other = replaced.map(|home| home.join(ROOT));
    let is_empty =
        |dir: &PathBuf| fs::read_dir(dir).is_ok_and(|mut entries| entries.next().is_none());
    if let Some(other) = other.filter(|other| other.exists() && !is_empty(other)) {
        tracing::warn!(
            "{} has files of earlier runs, which a run with --spool-dir does not find: move them to {}",
            other.display(),
            root.display()
        );
    }
    Ok(())
}

impl Run<'_> {
    /// Whether what is kept on disk is removed when the run ends: with the pod.
    pub(in crate::run) fn loses_disk(&self) -> bool {
        self.job.pod && self.environment.spool().is_none()
    }

    /// Sends what earlier runs of the layer have left in the spool for this datastore.
    pub(crate) async fn send_spooled(&self) {
        let (Some(spool), Some(client)) = (self.environment.spool(), &self.job.datastore) else {
            return;
        };
        let dirs = waiting_of_layer(spool, &self.job.run, &client.settings().url);
        let is_own = |dir: &PathBuf| {
            named_attempt(dir).is_some_and(|(run, attempt)| {
                run == self.job.run && Some(attempt) == self.attempt()
            })
        };
        // A datastore that did not take the files of this attempt will not take others.
        if dirs.iter().any(is_own) {
            return;
        }
        let sending = async {
            for dir in &dirs {
                match send_unless_used(client, dir).await {
                    Ok(Sending::Sent | Sending::Busy | Sending::Gone) => {}
                    Err(error) => {
                        tracing::warn!("{} is not sent: {}", dir.display(), chain(&error));
                    }
                }
            }
        };
        if let Ok(Err(_)) = self.signals.or(tokio::time::timeout(LIMIT, sending)).await {
            tracing::warn!("a later run sends the rest of what waits in {}", spool.display());
        }
    }
}
