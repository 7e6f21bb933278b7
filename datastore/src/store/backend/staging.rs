//! What uploads leave behind when the machine loses power, or the process is killed.
//!
//! A staged file is named `<name>#<number>`, which no object may be. It is hidden from every listing
//! of `object_store`, so nobody else would ever remove it. Multipart uploads of a bucket are in
//! `abandoned.rs`.

use std::io;
use std::path::Path;
use std::time::{Duration, SystemTime};

use jiff::Timestamp;
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

use crate::store::{BoxError, Store};

/// One that nobody has written to for so long belongs to nobody.
const AGE: Duration = Duration::from_hours(24);
const EVERY: Duration = Duration::from_hours(1);
/// So long one look through a directory may take.
const SWEEP: Duration = Duration::from_hours(1);

impl Store {
    /// Removes what uploads have left behind, now and every hour, until `shutdown`: staged files of a directory,
    /// multipart uploads and leases of a bucket.
    pub async fn tidy(self, shutdown: CancellationToken) {
        if self.traits.root.is_none() && self.traits.provider.is_none() {
            return;
        }
        let mut ticks = interval(EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                _ = ticks.tick() => {}
                () = shutdown.cancelled() => return,
            }
            match self.sweep(Timestamp::now()).await {
                Ok(0) => {}
                Ok(uploads) => tracing::info!(uploads, "removed what uploads had left behind"),
                Err(error) => tracing::warn!(%error, "cannot look for what uploads left behind"),
            }
        }
    }

    /// Removes what uploads have left behind a day before `now`, and returns how many.
    pub async fn sweep(&self, now: Timestamp) -> Result<usize, BoxError> {
        if self.traits.provider.is_some() {
            let leases = self.sweep_leases(now).await?;
            let Some(abandoned) = &self.abandoned else { return Ok(leases) };
            return Ok(leases + abandoned.sweep(self.below(), now).await?);
        }
        let Some(disk) = &self.disk else { return Ok(0) };
        let work = move |root: &Path| sweep(root, now.into());
        Ok(disk.job("sweep", SWEEP, &object_store::path::Path::default(), work).await?)
    }
}

/// Removes every staged file that is too old, and returns how many there were.
fn sweep(root: &Path, now: SystemTime) -> io::Result<usize> {
    let mut swept = 0;
    let mut directories = vec![root.to_owned()];
    while let Some(directory) = directories.pop() {
        let entries = match std::fs::read_dir(&directory) {
            // Empty ones may go at any time.
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            entries => entries?,
        };
        for entry in entries {
            let entry = entry?;
            let Ok(meta) = entry.metadata() else { continue };
            if meta.is_dir() {
                directories.push(entry.path());
            } else if meta.is_file() && is_staged(&entry.file_name().to_string_lossy()) {
                let age = now.duration_since(meta.modified()?).unwrap_or_default();
                if age > AGE && std::fs::remove_file(entry.path()).is_ok() {
                    swept += 1;
                }
            }
        }
    }
    Ok(swept)
}

/// Whether `object_store` has named a file so while it was not complete.
pub(in crate::store) fn is_staged(name: &str) -> bool {
    let number = name.rsplit_once('#').map(|(_, number)| number);
    number.is_some_and(|number| !number.is_empty() && number.bytes().all(|c| c.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_staged_files_that_are_old_are_removed() {
        let root = tempfile::TempDir::new().unwrap();
        let below = root.path().join("layers/a#1");
        std::fs::create_dir_all(&below).unwrap();
        for name in ["plan.bin#1", "plan.bin#23", "plan.bin", "plan.bin#", "a#1.gitbundle", "#x"] {
            std::fs::write(below.join(name), "x").unwrap();
        }
        let left = || {
            let entries = std::fs::read_dir(&below).unwrap();
            let mut names = entries.map(|e| e.unwrap().file_name()).collect::<Vec<_>>();
            names.sort();
            names
        };
        let now = SystemTime::now();
        assert_eq!(sweep(root.path(), now).unwrap(), 0);
        assert_eq!(left().len(), 6);
        assert_eq!(sweep(root.path(), now + AGE + Duration::from_mins(1)).unwrap(), 2);
        assert_eq!(left(), ["#x", "a#1.gitbundle", "plan.bin", "plan.bin#"]);
        assert_eq!(sweep(&root.path().join("none"), now).unwrap(), 0);
    }
}
