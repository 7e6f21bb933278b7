//! The layers whose summary this process is about to make. It knows no storage.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use datastore_api::Name;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Summaries that are made at the same time after writes.
const PARALLEL: usize = 4;

/// A namespace and a layer.
type Layer = (Name, Name);

/// The layers whose summary this process is about to make. Clones share them.
#[derive(Clone, Debug)]
pub(in crate::store) struct Refreshing {
    waiting: Arc<Mutex<HashSet<Layer>>>,
    permits: Arc<Semaphore>,
    /// How long a layer waits.
    pub(super) delay: Duration,
}

impl Refreshing {
    /// None waits now, and each will wait this long.
    pub(in crate::store) fn after(delay: Duration) -> Self {
        Self { waiting: Arc::default(), permits: Arc::new(Semaphore::new(PARALLEL)), delay }
    }

    /// Adds a layer; `false` if it waits already.
    pub(super) fn add(&self, layer: &Layer) -> bool {
        self.waiting().insert(layer.clone())
    }

    /// Waits until a summary may be made, and removes the layer: a write from now on needs another one.
    pub(super) async fn begin(&self, layer: &Layer) -> Option<OwnedSemaphorePermit> {
        let permit = Arc::clone(&self.permits).acquire_owned().await.ok();
        self.waiting().remove(layer);
        permit
    }

    fn waiting(&self) -> MutexGuard<'_, HashSet<Layer>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for Refreshing {
    fn default() -> Self {
        Self::after(Duration::ZERO)
    }
}
