//! Regular removal of what uploads and probes leave behind when the machine loses power or the process is killed.

use std::path::Path;
use std::time::Duration;

use futures::TryStreamExt as _;
use jiff::{SignedDuration, Timestamp};
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

use crate::store::backend::directory::leftovers::sweep;
use crate::store::backend::panicked::caught;
use crate::store::backend::reason::concise;
use crate::store::error::{BoxError, StoreError};
use crate::store::handle::Store;
use crate::store::key::{LEASES, PROBES};
use crate::store::probe::health::one_line;

const EVERY: Duration = Duration::from_hours(1);
/// Timeout of one sweep of a directory.
const SWEEP: Duration = Duration::from_hours(1);
/// Leases and objects of probes of this age are removed.
const AGE: SignedDuration = SignedDuration::from_hours(24);

impl Store {
    /// Removes leftovers of killed processes, after the first probe and every hour, until `shutdown`: staged files of a
    /// directory, multipart uploads and leases of a bucket, objects of probes of both.
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
            match self.sweep_now().await {
                Ok(0) => {}
                Ok(uploads) => tracing::info!(uploads, "removed what uploads had left behind"),
                Err(error) => {
                    let error = concise(&one_line(&*error));
                    tracing::warn!(error, "cannot look for what uploads left behind");
                }
            }
        }
    }

    async fn sweep_now(&self) -> Result<usize, BoxError> {
        let now = match self.storage_clock() {
            Some(now) => now,
            // A full directory cannot be probed, and needs the sweep.
            None if self.disk.is_some() => Timestamp::now(),
            None => {
                return Err("the storage's time is not known: no check of it has succeeded".into());
            }
        };
        self.sweep(now).await
    }

    /// Removes leftovers that are older than a day at `now`, by the storage's clock, and returns how many.
    pub async fn sweep(&self, now: Timestamp) -> Result<usize, BoxError> {
        // A failure of one, such as a missing right to delete, must not keep the others.
        let probes = self.sweep_below(PROBES, now).await;
        if self.backend.provider.is_some() {
            let leases = self.sweep_below(LEASES, now).await;
            let uploads = match &self.abandoned {
                Some(abandoned) => caught(abandoned.sweep(self.prefix(), now)).await,
                None => Ok(0),
            };
            return Ok(probes? + leases? + uploads?);
        }
        let Some(disk) = &self.disk else { return Ok(probes?) };
        let work = move |root: &Path| sweep(root, now.into());
        let root = object_store::path::Path::default();
        let staged = disk.run_job("sweep", SWEEP, &root, work).await;
        Ok(probes? + staged?)
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
