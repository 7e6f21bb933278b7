//! One git at a time in a checkout that stays. A killed runner does not kill its git, and a second one would find locks and
//! directories that are not complete.
//!
//! Every git of a checkout has a locked file as its standard input: the lock lasts as long as any of them lives. It does
//! not show what that git does.

use std::fs::{File, TryLockError};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use fs_err as fs;

use crate::process::{Signals, private_file};
use crate::source::error::CheckoutError;

/// The locked file, which is always empty.
const RUNNING: &str = ".git/plancha-running";
/// Between two attempts to get the lock.
const PAUSE: Duration = Duration::from_millis(100);
/// So long a run waits for the git of a killed one.
const MAX_WAIT: Duration = Duration::from_mins(10);

/// Waits until no git of another run works in a checkout, and locks it for this run and its gits.
pub(super) async fn wait_and_lock(
    dir: &Path,
    signals: &Signals,
) -> Result<Arc<File>, CheckoutError> {
    let path = dir.join(RUNNING);
    fs::create_dir_all(dir.join(".git"))?;
    let file = private_file(&path)?;
    let (since, mut waits) = (Instant::now(), false);
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(Arc::new(file)),
            Err(TryLockError::WouldBlock) if since.elapsed() > MAX_WAIT => {
                return Err(CheckoutError::GitRuns { dir: dir.to_owned(), file: path });
            }
            Err(TryLockError::WouldBlock) if !waits => {
                waits = true;
                tracing::info!(
                    "the git of a killed run still works in {}: waiting for it",
                    dir.display()
                );
            }
            Err(TryLockError::WouldBlock) => {}
            Err(TryLockError::Error(error)) => {
                tracing::debug!("{} cannot be locked: {error}", path.display());
                return Ok(Arc::new(file));
            }
        }
        signals.or(tokio::time::sleep(PAUSE)).await.map_err(CheckoutError::Stopped)?;
    }
}
