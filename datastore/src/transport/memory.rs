//! The memory that all transfers share, allocated fairly between callers.
//!
//! It is allocated in pieces. Some pieces are reserved for small requests. Of the waiting callers, the one that holds
//! least is next, and none gets more than half while another waits. Prefetched data uses spare memory, which is reclaimed
//! for others if its reader has not read any of it for a while. A part of an upload in flight to the storage, while the
//! next one arrives, uses spare memory too.
//!
//! This module does not know HTTP or the storage.

use std::collections::{HashMap, HashSet, VecDeque};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::{Instant, timeout};

/// The size of a piece in bytes. A request that needs one piece is small.
pub(crate) const PIECE: usize = 64 << 10;
/// The reserve for small requests is the total divided by this.
const RESERVE: usize = 8;
/// Prefetched data may be reclaimed after it was not read for this time.
const PREFETCH_IDLE: Duration = Duration::from_secs(1);
/// How often a waiting request reclaims the memory of prefetched data.
const RECLAIM_INTERVAL: Duration = Duration::from_millis(100);

/// The caller, or the namespace, that memory is accounted to.
pub(crate) type Tenant = Arc<str>;

/// The memory that all transfers share. Clones share it.
#[derive(Clone)]
pub(crate) struct Memory(Arc<Mutex<Ledger>>);

/// Allocated memory, until it is dropped.
#[derive(Debug)]
pub(crate) struct Lease {
    memory: Memory,
    /// None for prefetched data.
    tenant: Option<Tenant>,
    pieces: usize,
}

/// Prefetched data, which can be fetched again.
pub(crate) trait Reclaim: Send + Sync {
    /// Drops the data if it was not read for this time.
    fn reclaim(&self, idle: Duration);
}

/// How much of the memory is allocated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Usage {
    pub(crate) taken: usize,
    pub(crate) total: usize,
    pub(crate) waiting: usize,
}

struct Ledger {
    total: usize,
    reserve: usize,
    free: usize,
    held: HashMap<Tenant, usize>,
    /// Pieces of prefetched data.
    spare: usize,
    prefetched: Vec<Weak<dyn Reclaim>>,
    queue: VecDeque<Waiting>,
    next: u64,
}

struct Waiting {
    id: u64,
    tenant: Tenant,
    pieces: usize,
    granted: oneshot::Sender<Lease>,
}

/// An entry of the queue, which is removed when this is dropped.
struct QueueEntry<'a> {
    memory: &'a Memory,
    id: u64,
}

impl Memory {
    /// Memory of this many bytes.
    pub(crate) fn new(bytes: usize) -> Self {
        let total = bytes / PIECE;
        Self(Arc::new(Mutex::new(Ledger {
            total,
            reserve: total / RESERVE,
            free: total,
            held: HashMap::new(),
            spare: 0,
            prefetched: Vec::new(),
            queue: VecDeque::new(),
            next: 0,
        })))
    }

    /// Memory without a limit.
    pub(crate) fn unlimited() -> Self {
        Self::new(usize::MAX)
    }

    /// The most bytes that one transfer may have.
    pub(crate) fn largest(&self) -> usize {
        let ledger = self.ledger();
        (ledger.total - ledger.reserve).saturating_mul(PIECE)
    }

    pub(crate) fn usage(&self) -> Usage {
        let ledger = self.ledger();
        let taken = (ledger.total - ledger.free) * PIECE;
        Usage { taken, total: ledger.total * PIECE, waiting: ledger.queue.len() }
    }

    /// Waits up to `wait` for this many bytes, but at most for what one transfer may have.
    pub(crate) async fn take(
        &self,
        tenant: &Tenant,
        bytes: usize,
        wait: Duration,
    ) -> Option<Lease> {
        let deadline = Instant::now() + wait;
        let (mut granted, entry) = {
            let mut ledger = self.ledger();
            let pieces = bytes.div_ceil(PIECE).clamp(1, (ledger.total - ledger.reserve).max(1));
            let goes_first = pieces == 1 || ledger.queue.is_empty();
            if goes_first && ledger.fits(tenant, pieces) {
                ledger.give(tenant, pieces);
                return Some(self.lease(Some(Arc::clone(tenant)), pieces));
            }
            let (grant, granted) = oneshot::channel();
            let id = ledger.next;
            ledger.next += 1;
            let tenant = Arc::clone(tenant);
            ledger.queue.push_back(Waiting { id, tenant, pieces, granted: grant });
            (granted, QueueEntry { memory: self, id })
        };
        loop {
            self.reclaim();
            let left = deadline.saturating_duration_since(Instant::now());
            match timeout(left.min(RECLAIM_INTERVAL), &mut granted).await {
                Ok(lease) => return lease.ok(),
                Err(_) if left.is_zero() => break,
                Err(_) => {}
            }
        }
        drop(entry);
        // It may have been granted meanwhile.
        granted.close();
        granted.try_recv().ok()
    }

    /// Memory for a prefetch, if some is free and no request waits. Prefetched data may use up to half of the total.
    pub(crate) fn try_take_spare(&self, bytes: usize) -> Option<Lease> {
        let pieces = bytes.div_ceil(PIECE);
        for tries_again in [true, false] {
            let mut ledger = self.ledger();
            if ledger.has_spare(pieces) {
                ledger.free -= pieces;
                ledger.spare += pieces;
                return Some(self.lease(None, pieces));
            }
            drop(ledger);
            if tries_again {
                self.reclaim();
            }
        }
        None
    }

    /// Registers prefetched data that may be reclaimed when others wait.
    pub(crate) fn may_reclaim(&self, data: Weak<dyn Reclaim>) {
        let mut ledger = self.ledger();
        ledger.prefetched.retain(|data| data.strong_count() > 0);
        ledger.prefetched.push(data);
    }

    fn reclaim(&self) {
        // Dropped data gives its lease back, which locks the ledger: release the lock first.
        let prefetched = self.ledger().prefetched.clone();
        for data in prefetched.iter().filter_map(Weak::upgrade) {
            data.reclaim(PREFETCH_IDLE);
        }
    }

    fn lease(&self, tenant: Option<Tenant>, pieces: usize) -> Lease {
        Lease { memory: self.clone(), tenant, pieces }
    }

    /// Grants memory to the waiting requests for which there is enough.
    fn grant_waiting(&self) {
        loop {
            let mut ledger = self.ledger();
            let Some(next) = ledger.next_served() else { return };
            let Some(Waiting { tenant, pieces, granted, .. }) = ledger.queue.remove(next) else {
                return;
            };
            ledger.give(&tenant, pieces);
            drop(ledger);
            let lease = self.lease(Some(tenant), pieces);
            if let Err(Lease { .. }) = granted.send(lease) {
                // The request has stopped waiting: the drop gives the memory back, and grants it to the next.
            }
        }
    }

    fn ledger(&self) -> MutexGuard<'_, Ledger> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Ledger {
    /// The pieces that are not reserved for small requests.
    fn shared(&self) -> usize {
        self.total - self.reserve
    }

    fn held_by(&self, tenant: &Tenant) -> usize {
        self.held.get(tenant).copied().unwrap_or_default()
    }

    fn give(&mut self, tenant: &Tenant, pieces: usize) {
        self.free -= pieces;
        *self.held.entry(Arc::clone(tenant)).or_default() += pieces;
    }

    fn has_room(&self, pieces: usize) -> bool {
        let reserve = if pieces == 1 { 0 } else { self.reserve };
        self.free.saturating_sub(reserve) >= pieces
    }

    /// Whether a caller may hold this many pieces more: always if it holds none, or not more than half then; otherwise only
    /// while no other caller waits and a quarter stays free for callers that hold less.
    fn may_hold(&self, tenant: &Tenant, pieces: usize) -> bool {
        let held = self.held_by(tenant);
        let left = self.free.saturating_sub(self.reserve + pieces);
        let others_wait = self.queue.iter().any(|waiting| waiting.tenant != *tenant);
        pieces == 1
            || held == 0
            || held + pieces <= self.shared() / 2
            || !others_wait && left >= self.shared() / 4
    }

    fn fits(&self, tenant: &Tenant, pieces: usize) -> bool {
        self.has_room(pieces) && self.may_hold(tenant, pieces)
    }

    fn has_spare(&self, pieces: usize) -> bool {
        let half = self.shared() / 2;
        self.queue.is_empty() && self.spare + pieces <= half && self.has_room(pieces.max(2))
    }

    /// The position in the queue of the request to grant next: of the first request of each caller, the one whose caller
    /// holds least. If not enough is free for it, only small requests overtake it.
    fn next_served(&self) -> Option<usize> {
        let mut seen = HashSet::new();
        let mut first = self.queue.iter().enumerate().filter(|(_, one)| seen.insert(&one.tenant));
        let mut first = first.by_ref().collect::<Vec<_>>();
        first.sort_by_key(|(_, one)| self.held_by(&one.tenant));
        let next = first.into_iter().find(|(_, one)| self.may_hold(&one.tenant, one.pieces));
        let next = next.filter(|(_, one)| self.has_room(one.pieces));
        let small = || self.queue.iter().enumerate().find(|(_, one)| one.pieces == 1);
        let small = || small().filter(|_| self.has_room(1));
        next.or_else(small).map(|(position, _)| position)
    }
}

impl Lease {
    /// Gives back all but this many bytes.
    pub(crate) fn shrink_to(&mut self, bytes: usize) {
        let kept = bytes.div_ceil(PIECE).min(self.pieces);
        let back = self.pieces - kept;
        self.pieces = kept;
        self.give_back(back);
    }

    fn give_back(&self, pieces: usize) {
        if pieces == 0 {
            return;
        }
        let mut ledger = self.memory.ledger();
        ledger.free += pieces;
        match &self.tenant {
            None => ledger.spare -= pieces,
            Some(tenant) => {
                let left = ledger.held.get_mut(tenant).map(|held| {
                    *held -= pieces;
                    *held
                });
                if left == Some(0) {
                    ledger.held.remove(tenant);
                }
            }
        }
        let is_queue_empty = ledger.queue.is_empty();
        drop(ledger);
        if !is_queue_empty {
            self.memory.grant_waiting();
        }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.give_back(self.pieces);
    }
}

impl Drop for QueueEntry<'_> {
    fn drop(&mut self) {
        let mut ledger = self.memory.ledger();
        let before = ledger.queue.len();
        ledger.queue.retain(|waiting| waiting.id != self.id);
        let is_removed = ledger.queue.len() < before;
        drop(ledger);
        if is_removed {
            self.memory.grant_waiting();
        }
    }
}

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.usage().fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;

    const WAIT: Duration = Duration::from_secs(10);

    fn tenant(name: &str) -> Tenant {
        name.into()
    }

    fn now(memory: &Memory, of: &str, pieces: usize) -> Option<Lease> {
        memory.take(&tenant(of), pieces * PIECE, WAIT).now_or_never().flatten()
    }

    #[tokio::test(start_paused = true)]
    async fn a_caller_that_takes_all_it_can_leaves_memory_for_others_and_for_small_requests() {
        let memory = Memory::new(128 * PIECE);
        let mut held = Vec::new();
        while let Some(lease) = now(&memory, "a", 4) {
            held.push(lease);
        }
        // Of 128 pieces, 16 are reserved, and a quarter of the others stays free.
        assert_eq!(memory.usage().taken, 84 * PIECE);
        held.extend(now(&memory, "b", 28));
        assert_eq!(memory.usage().taken, 112 * PIECE);
        assert!(now(&memory, "b", 2).is_none());
        for _ in 0..16 {
            held.push(now(&memory, "c", 1).unwrap());
        }
        assert!(memory.take(&tenant("c"), 1, WAIT).await.is_none());
        held.clear();
        let ledger = memory.ledger();
        assert_eq!((ledger.free, ledger.held.len(), ledger.queue.len()), (128, 0, 0));
    }

    #[tokio::test(start_paused = true)]
    async fn the_caller_that_holds_least_is_next_and_none_gets_more_than_half_while_another_waits()
    {
        let memory = Memory::new(16 * PIECE);
        let mut held = vec![now(&memory, "a", 3).unwrap(), now(&memory, "b", 11).unwrap()];
        let order = Mutex::new(Vec::new());
        let wait = async |of: &'static str, pieces: usize| {
            let lease = memory.take(&tenant(of), pieces * PIECE, WAIT).await;
            order.lock().unwrap().push((of, lease.is_some()));
            lease
        };
        let ((first, second, third), ()) =
            tokio::join!(async { tokio::join!(wait("a", 3), wait("a", 4), wait("c", 4)) }, async {
                tokio::time::sleep(Duration::from_secs(1)).await;
                // The caller that holds nothing is first, in whatever order they arrived.
                held.pop();
                tokio::time::sleep(Duration::from_secs(1)).await;
                assert_eq!(*order.lock().unwrap(), [("c", true), ("a", true)]);
            });
        assert!(first.is_some() && second.is_none() && third.is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_that_leaves_the_queue_blocks_no_other() {
        let memory = Memory::new(16 * PIECE);
        let held = now(&memory, "a", 14).unwrap();
        let (b, c) = (tenant("b"), tenant("c"));
        let mut leaves = Box::pin(memory.take(&b, 14 * PIECE, WAIT));
        assert!((&mut leaves).now_or_never().is_none());
        let stays = memory.take(&c, 14 * PIECE, WAIT);
        let (stays, ()) = tokio::join!(stays, async {
            tokio::task::yield_now().await;
            drop(leaves);
            drop(held);
        });
        assert!(stays.is_some());
    }

    struct Prefetched(Mutex<Option<Lease>>);

    impl Reclaim for Prefetched {
        fn reclaim(&self, _: Duration) {
            drop(self.0.lock().unwrap().take());
        }
    }

    #[tokio::test(start_paused = true)]
    async fn prefetched_data_is_reclaimed_for_waiting_requests() {
        let memory = Memory::new(64 * PIECE);
        let spare = memory.try_take_spare(28 * PIECE).unwrap();
        assert!(memory.try_take_spare(PIECE).is_none(), "more than half");
        let prefetched: Arc<dyn Reclaim> = Arc::new(Prefetched(Mutex::new(Some(spare))));
        memory.may_reclaim(Arc::downgrade(&prefetched));
        let all = memory.take(&tenant("a"), 56 * PIECE, WAIT).await;
        assert!(all.is_some());
        drop(all);
        assert_eq!(memory.usage().taken, 0);
    }

    #[tokio::test]
    async fn a_lease_shrinks() {
        let memory = Memory::new(16 * PIECE);
        let mut lease = now(&memory, "a", 8).unwrap();
        lease.shrink_to(2 * PIECE + 1);
        assert_eq!(memory.usage().taken, 3 * PIECE);
        lease.shrink_to(9 * PIECE);
        assert_eq!(memory.usage().taken, 3 * PIECE);
    }
}
