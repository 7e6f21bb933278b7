//! Regular removal of what uploads and probes leave behind when the machine loses power or the process is killed.

use std::path::Path;
use std::time::Duration;

use futures::TryStreamExt as _;
use jiff::{SignedDuration, Timestamp};
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

use crate::store::backend::directory::disk::Disk;
use crate::store::backend::directory::leftovers;
use crate::store::backend::panicked::caught;
use crate::store::backend::reason::concise;
use crate::store::error::{BoxError, StoreError};
use crate::store::handle::Store;
use crate::store::key::{LEASES, PROBES};
use crate::store::probe::health::one_line;

const EVERY: Duration = Duration::from_hours(1);
/// Timeout of one sweep of a directory.
const SWEEP: Duration = Duration::from_hours(1);
/// What is left of a complete log is removed at this age: by then every replica has seen the mark of its end.
const LOG_AGE: Duration = Duration::from_mins(10);
/// Leases and objects of probes of this age are removed.
const AGE: SignedDuration = SignedDuration::from_hours(24);

impl Store {
    /// Removes leftovers of killed processes, after the first probe and every hour, until `shutdown`: staged files of a
    /// directory, multipart uploads and leases of a bucket, objects of probes and pieces of complete logs of both.
    pub async fn tidy(self, shutdown: CancellationToken) {
        if self.backend.root.is_none() && self.backend.provider.is_none() {
            return;
        }
        // The probe sees the storage's time.
        tokio::select! {
            () = self.tried() => {}
            () = shutdown.cancelled() => return,
        }
        let mut ticks = interval(EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                _ = ticks.tick() => {}
                () = shutdown.cancelled() => return,
            }
            let mut removed = 0;
            for swept in self.sweep_now().await {
                match swept {
                    Ok(more) => removed += more,
                    Err(error) => {
                        let error = concise(&one_line(&*error));
                        tracing::warn!(error, "cannot remove leftovers of killed processes");
                    }
                }
            }
            if removed > 0 {
                tracing::info!(removed, "removed leftovers of killed processes");
            }
        }
    }

    async fn sweep_now(&self) -> Vec<Result<usize, BoxError>> {
        let now = match self.storage_clock() {
            Some(now) => now,
            // A full directory cannot be probed, and needs the sweep.
            None if self.disk.is_some() => Timestamp::now(),
            None => {
                let error = "the storage's time is not known: no check of it has succeeded";
                return vec![Err(error.into())];
            }
        };
        self.sweep(now).await
    }

    /// Removes leftovers that are older than a day at `now`, by the storage's clock. For each kind of them: how many. A
    /// failure of one, such as a missing right to delete, does not keep the others.
    pub async fn sweep(&self, now: Timestamp) -> Vec<Result<usize, BoxError>> {
        let mut swept = vec![self.sweep_below(PROBES, now).await.map_err(Into::into)];
        if self.backend.provider.is_some() {
            swept.push(self.sweep_below(LEASES, now).await.map_err(Into::into));
        }
        swept.push(self.sweep_logs(now).await);
        if let Some(abandoned) = &self.abandoned {
            swept.push(caught(abandoned.sweep(self.prefix(), now)).await);
        }
        if let Some(disk) = &self.disk {
            swept.push(sweep_disk(disk, now).await);
        }
        swept
    }

    /// Completes logs whose completion was interrupted, and deletes what is left of complete ones.
    async fn sweep_logs(&self, now: Timestamp) -> Result<usize, BoxError> {
        let mut tidied = self.tidy_logs(now, LOG_AGE).await?;
        match tidied.failures.pop() {
            Some((_, error)) => Err(error.into()),
            None => Ok(tidied.removed),
        }
    }

    /// Deletes the objects below `prefix` that are older than a day at `now`, and returns how many.
    async fn sweep_below(&self, prefix: &str, now: Timestamp) -> Result<usize, StoreError> {
        let mut objects = self.list(prefix)?;
        let mut swept = 0;
        while let Some(object) = objects.try_next().await? {
            let is_old = now.duration_since(object.modified) > AGE;
            if is_old && self.delete_unchanged(&object).await? {
                swept += 1;
            }
        }
        Ok(swept)
    }
}

/// Removes abandoned staged files of a directory.
async fn sweep_disk(disk: &Disk, now: Timestamp) -> Result<usize, BoxError> {
    let cleanup = disk.jobs().start_cleanup()?;
    let work = move |root: &Path| {
        let _until_it_ends = cleanup;
        leftovers::sweep(root, now.into())
    };
    let root = object_store::path::Path::default();
    Ok(disk.run_job("sweep", SWEEP, &root, work).await?)
}
