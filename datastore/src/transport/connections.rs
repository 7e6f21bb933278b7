//! The open connections: their limit, and which one is closed to make room for others.
//!
//! Above nine tenths of the limit, each new connection closes an idle one, those on which a valid token was sent last.
//! Idle are those that wait for their next request, and those that have not sent a complete head in time. Beyond the
//! limit, a few more connections are accepted for probes (`/healthz`, `/readyz`). Any other request on them waits until the
//! number of connections is within the limit.

use std::collections::HashMap;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use crate::transport::socket::Stage;

/// How many connections are accepted beyond the limit, for `/healthz` and `/readyz`.
const PROBE_CONNECTIONS: usize = 64;
/// How often an idle connection is closed while no further one can be accepted.
const EVICT_INTERVAL: Duration = Duration::from_millis(10);
/// The same while a request waits until its connection is within the limit.
const WAIT_INTERVAL: Duration = Duration::from_millis(100);

/// All connections. Clones share them.
#[derive(Clone, Debug)]
pub(crate) struct Connections(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    limit: usize,
    /// One permit for each connection within the limit.
    within_limit: Arc<Semaphore>,
    /// One permit for each connection, including those for probes.
    all: Arc<Semaphore>,
    open: Mutex<HashMap<u64, Arc<Stage>>>,
    next: AtomicU64,
    closed_idle: AtomicU64,
}

/// The permit for one more connection.
pub(super) struct Slot {
    _permit: OwnedSemaphorePermit,
}

/// An open connection, until it is dropped.
pub(super) struct Connection {
    connections: Connections,
    id: u64,
    pub(super) stage: Arc<Stage>,
    /// Present if the connection is within the limit.
    within_limit: Mutex<Option<OwnedSemaphorePermit>>,
    _slot: Slot,
}

impl Connections {
    pub(crate) fn new(limit: usize) -> Self {
        Self(Arc::new(Shared {
            limit,
            within_limit: Arc::new(Semaphore::new(limit)),
            all: Arc::new(Semaphore::new(limit + PROBE_CONNECTIONS)),
            open: Mutex::default(),
            next: AtomicU64::default(),
            closed_idle: AtomicU64::default(),
        }))
    }

    /// The number of open connections.
    pub(crate) fn open(&self) -> u64 {
        self.stages().len() as u64
    }

    /// The limit, without the connections for probes.
    pub(crate) fn limit(&self) -> u64 {
        self.0.limit as u64
    }

    /// How many idle connections were closed to make room.
    pub(crate) fn closed_idle(&self) -> u64 {
        self.0.closed_idle.load(Ordering::Relaxed)
    }

    /// Waits until one more connection may be open.
    pub(super) async fn slot(&self) -> Slot {
        let slots = &self.0.all;
        loop {
            if let Ok(permit) = Arc::clone(slots).try_acquire_owned() {
                return Slot { _permit: permit };
            }
            self.close_idle(Stage::LAST);
            // The semaphore is never closed.
            if let Ok(Ok(permit)) = timeout(EVICT_INTERVAL, Arc::clone(slots).acquire_owned()).await
            {
                return Slot { _permit: permit };
            }
        }
    }

    /// Registers an accepted connection.
    pub(super) fn add(&self, slot: Slot) -> Connection {
        let stage = Arc::<Stage>::default();
        let id = self.0.next.fetch_add(1, Ordering::Relaxed);
        let others = self.stages().len();
        if (others + 1) * 10 > self.0.limit * 9 {
            self.close_idle(Stage::LAST_UNKNOWN);
        }
        self.stages().insert(id, Arc::clone(&stage));
        let permit = Arc::clone(&self.0.within_limit).try_acquire_owned().ok();
        let within_limit = Mutex::new(permit);
        Connection { connections: self.clone(), id, stage, within_limit, _slot: slot }
    }

    /// Closes the idle connection that is first in [`Stage::eviction_order`], up to this place.
    fn close_idle(&self, last: u8) {
        let stages = self.stages();
        let idle = stages.values().filter_map(|stage| Some((stage.eviction_order()?, stage)));
        let idle = idle.filter(|((place, _), _)| *place <= last);
        if let Some((_, stage)) = idle.min_by_key(|(order, _)| *order) {
            stage.evict();
            self.0.closed_idle.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn stages(&self) -> MutexGuard<'_, HashMap<u64, Arc<Stage>>> {
        self.0.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Connection {
    /// Whether the connection is within the limit. Waits up to `wait` for that.
    pub(super) async fn is_within_limit(&self, wait: Duration) -> bool {
        let permit = || self.within_limit.lock().unwrap_or_else(PoisonError::into_inner);
        if permit().is_some() {
            return true;
        }
        let semaphore = Arc::clone(&self.connections.0.within_limit);
        // One future for the whole wait: it keeps its place in the queue.
        let mut acquired = pin!(semaphore.acquire_owned());
        let acquired = async {
            loop {
                self.connections.close_idle(Stage::LAST);
                if let Ok(acquired) = timeout(WAIT_INTERVAL, acquired.as_mut()).await {
                    return acquired;
                }
            }
        };
        let Ok(Ok(acquired)) = timeout(wait, acquired).await else { return false };
        *permit() = Some(acquired);
        true
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.connections.stages().remove(&self.id);
    }
}
