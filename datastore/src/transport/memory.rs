//! The memory that all transfers share: who holds how much of it, and who is next.
//!
//! It is given out in pieces. Some of it is a reserve for small requests. Callers that wait are served by what
//! they hold, the least first, and nobody is given more than half while another waits. What is fetched ahead is
//! spare: it is given up for others once its reader has not come for it for a while. So is a part of an upload on its
//! way to the storage while the next one comes in.
//!
//! It knows neither HTTP nor the storage.

use std::collections::{HashMap, HashSet, VecDeque};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::{Instant, timeout};

/// Memory is given out in pieces of this many bytes. A request that needs no more than one is small.
pub(crate) const PIECE: usize = 64 << 10;
/// The reserve for small requests is one of so many parts.
const RESERVE: usize = 8;
/// What was fetched ahead is given up for others once nobody has taken any of it for so long.
const IDLE: Duration = Duration::from_secs(1);
/// So often those that wait have others give up what they fetched ahead.
const RECLAIM_EVERY: Duration = Duration::from_millis(100);

/// Whose request it is.
pub(crate) type Tenant = Arc<str>;

/// The memory that all transfers share. Clones share it.
#[derive(Clone)]
pub(crate) struct Memory(Arc<Mutex<Ledger>>);

/// Memory that somebody holds, until it is dropped.
#[derive(Debug)]
pub(crate) struct Lease {
    memory: Memory,
    /// None for what is fetched ahead.
    tenant: Option<Tenant>,
    pieces: usize,
}

/// Something fetched ahead, which can be fetched again.
pub(crate) trait Reclaim: Send + Sync {
    /// Drops it, if nobody has taken any of it for so long.
    fn reclaim(&self, idle: Duration);
}

/// How much of the memory is in use.
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
    /// Pieces of what is fetched ahead.
    spare: usize,
    ahead: Vec<Weak<dyn Reclaim>>,
    queue: VecDeque<Waiting>,
    next: u64,
}

struct Waiting {
    id: u64,
    tenant: Tenant,
    pieces: usize,
    granted: oneshot::Sender<Lease>,
}

/// A place in the queue, given up when dropped.
struct Place<'a> {
    memory: &'a Memory,
    id: u64,
}

impl Memory {
    /// So many bytes.
    pub(crate) fn new(bytes: usize) -> Self {
        let total = bytes / PIECE;
        Self(Arc::new(Mutex::new(Ledger {
            total,
            reserve: total / RESERVE,
            free: total,
            held: HashMap::new(),
            spare: 0,
            ahead: Vec::new(),
            queue: VecDeque::new(),
            next: 0,
        })))
    }

    /// As much as anybody asks for.
    pub(crate) fn unlimited() -> Self {
        Self::new(usize::MAX)
    }

    pub(crate) fn usage(&self) -> Usage {
        let ledger = self.ledger();
        let taken = (ledger.total - ledger.free) * PIECE;
        Usage { taken, total: ledger.total * PIECE, waiting: ledger.queue.len() }
    }

    /// Waits up to `wait` for so many bytes, or for as much as there is for one transfer if that is less.
    pub(crate) async fn take(
        &self,
        tenant: &Tenant,
        bytes: usize,
        wait: Duration,
    ) -> Option<Lease> {
        let deadline = Instant::now() + wait;
        let (mut granted, place) = {
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
            (granted, Place { memory: self, id })
        };
        loop {
            self.reclaim();
            let left = deadline.saturating_duration_since(Instant::now());
            match timeout(left.min(RECLAIM_EVERY), &mut granted).await {
                Ok(lease) => return lease.ok(),
                Err(_) if left.is_zero() => break,
                Err(_) => {}
            }
        }
        drop(place);
        // It may have come in between.
        granted.close();
        granted.try_recv().ok()
    }

    /// Memory to fetch something ahead, if there is some that nobody waits for: up to half of all.
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

    /// From now on this is given up when others wait, and its reader does not come for it.
    pub(crate) fn may_reclaim(&self, ahead: Weak<dyn Reclaim>) {
        let mut ledger = self.ledger();
        ledger.ahead.retain(|ahead| ahead.strong_count() > 0);
        ledger.ahead.push(ahead);
    }

    fn reclaim(&self) {
        // What is dropped here locks the ledger.
        let ahead = self.ledger().ahead.clone();
        for ahead in ahead.iter().filter_map(Weak::upgrade) {
            ahead.reclaim(IDLE);
        }
    }

    fn lease(&self, tenant: Option<Tenant>, pieces: usize) -> Lease {
        Lease { memory: self.clone(), tenant, pieces }
    }

    /// Serves those that can be served now.
    fn settle(&self) {
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
                // Whoever waited has left: it is given back, which settles again.
            }
        }
    }

    fn ledger(&self) -> MutexGuard<'_, Ledger> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Ledger {
    /// What is not reserved for small requests.
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

    /// Whether a caller may hold so much more: anything if it holds nothing, half of all in any case, and else as
    /// long as nobody waits and a quarter stays for those who hold less.
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

    /// The place in the queue of the one to be served now: of those whose turn it is among their own, the one
    /// whose caller holds least. If there is no room for it yet, nobody overtakes it but small requests.
    fn next_served(&self) -> Option<usize> {
        let mut seen = HashSet::new();
        let mut first = self.queue.iter().enumerate().filter(|(_, one)| seen.insert(&one.tenant));
        let mut first = first.by_ref().collect::<Vec<_>>();
        first.sort_by_key(|(_, one)| self.held_by(&one.tenant));
        let next = first.into_iter().find(|(_, one)| self.may_hold(&one.tenant, one.pieces));
        let next = next.filter(|(_, one)| self.has_room(one.pieces));
        let small = || self.queue.iter().enumerate().find(|(_, one)| one.pieces == 1);
        let small = || small().filter(|_| self.has_room(1));
        next.or_else(small).map(|(place, _)| place)
    }
}

impl Lease {
    /// Gives back all but so many bytes.
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
        let nobody_waits = ledger.queue.is_empty();
        drop(ledger);
        if !nobody_waits {
            self.memory.settle();
        }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.give_back(self.pieces);
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let mut ledger = self.memory.ledger();
        let before = ledger.queue.len();
        ledger.queue.retain(|waiting| waiting.id != self.id);
        let has_left = ledger.queue.len() < before;
        drop(ledger);
        if has_left {
            self.memory.settle();
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
    async fn a_caller_that_takes_all_it_can_leaves_room_for_others_and_for_small_requests() {
        let memory = Memory::new(128 * PIECE);
        let mut held = Vec::new();
        while let Some(lease) = now(&memory, "a", 4) {
            held.push(lease);
        }
        // Of 128 there are 16 in reserve, and a quarter of the others is left.
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
    async fn who_holds_least_is_next_and_nobody_gets_more_than_half_while_another_waits() {
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
                // The one who holds nothing is first, whoever came before.
                held.pop();
                tokio::time::sleep(Duration::from_secs(1)).await;
                assert_eq!(*order.lock().unwrap(), [("c", true), ("a", true)]);
            });
        assert!(first.is_some() && second.is_none() && third.is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn one_that_leaves_the_queue_holds_nobody_up() {
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

    struct Ahead(Mutex<Option<Lease>>);

    impl Reclaim for Ahead {
        fn reclaim(&self, _: Duration) {
            drop(self.0.lock().unwrap().take());
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_fetched_ahead_is_given_up_for_those_who_wait() {
        let memory = Memory::new(64 * PIECE);
        let spare = memory.try_take_spare(28 * PIECE).unwrap();
        assert!(memory.try_take_spare(PIECE).is_none(), "more than half");
        let ahead: Arc<dyn Reclaim> = Arc::new(Ahead(Mutex::new(Some(spare))));
        memory.may_reclaim(Arc::downgrade(&ahead));
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
