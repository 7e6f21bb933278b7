//! Regular removal of what uploads leave behind when the machine loses power or the process is killed.

use std::path::Path;
use std::time::Duration;

use jiff::Timestamp;
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

use crate::store::backend::directory::leftovers::sweep;
use crate::store::backend::panicked::caught;
use crate::store::error::BoxError;
use crate::store::handle::Store;

const EVERY: Duration = Duration::from_hours(1);
/// Timeout of one sweep of a directory.
const SWEEP: Duration = Duration::from_hours(1);

impl Store {
    /// Removes leftovers of uploads, now and every hour, until `shutdown`: staged files of a directory, multipart
    /// uploads and leases of a bucket.
    pub async fn tidy(self, shutdown: CancellationToken) {
        if self.backend.root.is_none() && self.backend.provider.is_none() {
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

    /// Removes leftovers that are older than a day at `now`, and returns how many.
    pub async fn sweep(&self, now: Timestamp) -> Result<usize, BoxError> {
        if self.backend.provider.is_some() {
            let leases = self.sweep_leases(now).await?;
            let Some(abandoned) = &self.abandoned else { return Ok(leases) };
            return Ok(leases + caught(abandoned.sweep(self.prefix(), now)).await?);
        }
        let Some(disk) = &self.disk else { return Ok(0) };
        let work = move |root: &Path| sweep(root, now.into());
        Ok(disk.run_job("sweep", SWEEP, &object_store::path::Path::default(), work).await?)
    }
}
