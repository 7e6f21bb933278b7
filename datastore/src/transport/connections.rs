//! The connections that are open: how many there may be, and which one is closed when they run short.
//!
//! Above nine tenths of the limit the one that has been idle longest is closed, unless it has shown a valid token.
//! Beyond the limit a few more are accepted, so that whoever asks whether the service is alive gets an answer; any
//! other request on them waits for a place within the limit.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use crate::transport::socket::Stage;

/// Connections beyond the limit, for `/healthz` and `/readyz`.
const BEYOND: usize = 64;
/// So often an idle connection is looked for while there is no room for another.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// All connections. Clones share them.
#[derive(Clone, Debug)]
pub(crate) struct Connections(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    limit: usize,
    /// Connections within the limit.
    places: Arc<Semaphore>,
    /// All that may be open.
    slots: Arc<Semaphore>,
    open: Mutex<HashMap<u64, Arc<Stage>>>,
    next: AtomicU64,
    closed_idle: AtomicU64,
}

/// Room for one more connection.
pub(super) struct Slot {
    _permit: OwnedSemaphorePermit,
}

/// An open connection, until it is dropped.
pub(super) struct Connection {
    connections: Connections,
    id: u64,
    pub(super) stage: Arc<Stage>,
    place: Mutex<Option<OwnedSemaphorePermit>>,
    _slot: Slot,
}

impl Connections {
    pub(crate) fn new(limit: usize) -> Self {
        Self(Arc::new(Shared {
            limit,
            places: Arc::new(Semaphore::new(limit)),
            slots: Arc::new(Semaphore::new(limit + BEYOND)),
            open: Mutex::default(),
            next: AtomicU64::default(),
            closed_idle: AtomicU64::default(),
        }))
    }

    /// How many are open.
    pub(crate) fn open(&self) -> u64 {
        self.all().len() as u64
    }

    /// How many may be open, without those for `/healthz` and `/readyz`.
    pub(crate) fn limit(&self) -> u64 {
        self.0.limit as u64
    }

    /// Idle ones that were closed to make room, so far.
    pub(crate) fn closed_idle(&self) -> u64 {
        self.0.closed_idle.load(Ordering::Relaxed)
    }

    /// Waits until one more may be open.
    pub(super) async fn slot(&self) -> Slot {
        let slots = &self.0.slots;
        loop {
            if let Ok(permit) = Arc::clone(slots).try_acquire_owned() {
                return Slot { _permit: permit };
            }
            self.close_idle();
            // Never closed.
            if let Ok(Ok(permit)) = timeout(LOOK_EVERY, Arc::clone(slots).acquire_owned()).await {
                return Slot { _permit: permit };
            }
        }
    }

    /// Counts a connection that was accepted.
    pub(super) fn add(&self, slot: Slot) -> Connection {
        let stage = Arc::<Stage>::default();
        let id = self.0.next.fetch_add(1, Ordering::Relaxed);
        let others = self.all().len();
        if (others + 1) * 10 > self.0.limit * 9 {
            self.close_idle();
        }
        self.all().insert(id, Arc::clone(&stage));
        let place = Mutex::new(Arc::clone(&self.0.places).try_acquire_owned().ok());
        Connection { connections: self.clone(), id, stage, place, _slot: slot }
    }

    /// Closes the one that has been idle longest, of those that have shown no valid token.
    fn close_idle(&self) {
        let all = self.all();
        let idle = all.values().filter_map(|stage| Some((stage.idle_since()?, stage)));
        if let Some((_, stage)) = idle.min_by_key(|(since, _)| *since) {
            stage.evict();
            self.0.closed_idle.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn all(&self) -> MutexGuard<'_, HashMap<u64, Arc<Stage>>> {
        self.0.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Connection {
    /// Whether it is within the limit, or comes to be within `wait`.
    pub(super) async fn has_place(&self, wait: Duration) -> bool {
        let place = || self.place.lock().unwrap_or_else(PoisonError::into_inner);
        if place().is_some() {
            return true;
        }
        self.connections.close_idle();
        let places = Arc::clone(&self.connections.0.places);
        let Ok(Ok(had)) = timeout(wait, places.acquire_owned()).await else { return false };
        *place() = Some(had);
        true
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.connections.all().remove(&self.id);
    }
}
