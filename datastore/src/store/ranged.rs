//! Bytes over a network: asked for again where they break off, and several parts of them at once.
//!
//! Everything after the first request names the version that it is about, so what comes is of one
//! version, or does not come.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use futures::stream::{self, BoxStream};
use futures::{StreamExt as _, TryStreamExt as _};
use object_store::path::Path;
use object_store::{ObjectStore, PutPayload};
use tokio::time::{Instant, sleep, timeout};
use tokio_util::task::AbortOnDropHandle;

use super::get::ByteStream;
use super::parts::{Blocks, Pool};
use super::record::get_version;
use super::{KIB, MIB, StoreError, backend};
use crate::memory::{Lease, Memory, Reclaim};

/// Bytes of each part of a large object.
const PART: u64 = 4 * MIB as u64;
/// Parts that are fetched ahead while another is sent, as long as there is memory for them.
const LANES: usize = 4;
/// Objects up to here come in one piece.
const LARGE: u64 = 16 * MIB as u64;
/// What a read holds at most, without what it fetches ahead: a piece on its way in, one held back, one being sent.
pub(super) const MEMORY: usize = MIB;
/// Before each further try of a request that brought nothing.
const PAUSES: [Duration; 4] = [
    Duration::from_millis(100),
    Duration::from_millis(300),
    Duration::from_secs(1),
    Duration::from_secs(3),
];
/// A read that brings nothing for so long is given up, whatever is tried: a caller still waits for it.
const GIVEN_UP: Duration = Duration::from_secs(18);
/// That much of it is progress: as many tries are left as at first.
const PROGRESS: u64 = 64 * KIB as u64;

/// One version of an object.
#[derive(Clone)]
pub(super) struct Source {
    pub(super) objects: Arc<dyn ObjectStore>,
    pub(super) path: Path,
    /// Its tag; empty where the backend has none.
    pub(super) etag: String,
    /// What parts that wait to be sent are kept in.
    pub(super) pool: Pool,
    /// What parts are fetched ahead into.
    pub(super) memory: Memory,
}

type Raw = BoxStream<'static, object_store::Result<Bytes>>;

impl Source {
    /// The bytes of `range`, of which `begun` brings the first.
    pub(super) fn bytes(self, range: Range<u64>, begun: Raw) -> ByteStream {
        if range.end - range.start > LARGE {
            self.in_parts(range, begun)
        } else {
            self.in_one(range, begun)
        }
    }

    pub(super) async fn request(&self, range: Range<u64>) -> object_store::Result<Raw> {
        let found = get_version(&*self.objects, &self.path, &self.etag, range).await?;
        Ok(found.into_stream())
    }

    /// One part while the next few are fetched. Nothing is before the first is asked for: whoever waits
    /// in line for memory has none yet.
    fn in_parts(self, range: Range<u64>, begun: Raw) -> ByteStream {
        stream::once(async move { self.parts(range, begun) }).flatten().boxed()
    }

    fn parts(self, range: Range<u64>, begun: Raw) -> ByteStream {
        let first = range.start..range.end.min(range.start + PART);
        let mut parts = (first.end..range.end)
            .step_by(usize::try_from(PART).unwrap_or(4 * MIB))
            .map(move |start| start..range.end.min(start + PART));
        let source = self.clone();
        let ahead = move |part: Range<u64>| (part.clone(), source.fetch_ahead(part));
        let source = self.clone();
        let mut lanes = parts.by_ref().take(LANES).map(&ahead).collect::<VecDeque<_>>();
        let rest = stream::iter(std::iter::from_fn(move || {
            let (part, fetched) = lanes.pop_front()?;
            // Fetched whatever the caller does: one who pauses would break the connection.
            lanes.extend(parts.next().map(&ahead));
            Some(source.clone().part(part, fetched))
        }));
        self.in_one(first, begun).chain(rest.flatten()).boxed()
    }

    /// Begins to fetch a part, if there is memory for it.
    fn fetch_ahead(&self, part: Range<u64>) -> Option<Fetched> {
        let length = usize::try_from(part.end - part.start).unwrap_or(usize::MAX);
        let buffer = Arc::new(Shelf::new(self.memory.try_take_spare(length)?));
        let ahead: Arc<dyn Reclaim> = Arc::clone(&buffer) as _;
        self.memory.may_reclaim(Arc::downgrade(&ahead));
        let (source, fills) = (self.clone(), Arc::clone(&buffer));
        let task = AbortOnDropHandle::new(tokio::spawn(async move {
            // As they come, pieces keep buffers alive that are twice as large.
            let mut blocks = Blocks::new(source.pool.clone());
            let mut pieces = source.in_one(part, stream::empty().boxed());
            while let Some(piece) = pieces.try_next().await? {
                blocks.extend(&piece);
            }
            fills.fill(blocks.into_payload());
            Ok(())
        }));
        Some(Fetched { task: Some(task), shelf: buffer })
    }

    /// The bytes of a part: those that were fetched ahead, and what is missing of them.
    fn part(self, part: Range<u64>, fetched: Option<Fetched>) -> ByteStream {
        let Some(fetched) = fetched else { return self.in_one(part, stream::empty().boxed()) };
        let state = (part, fetched);
        let kept = stream::try_unfold(Some(state), move |state| {
            let source = self.clone();
            async move {
                let Some((mut part, mut fetched)) = state else { return Ok(None) };
                if let Some(piece) = fetched.next().await? {
                    part.start += piece.len() as u64;
                    return Ok(Some((
                        stream::once(async { Ok(piece) }).boxed(),
                        Some((part, fetched)),
                    )));
                }
                // Given up for others, or at its end.
                let rest = source.in_one(part, stream::empty().boxed());
                Ok::<_, StoreError>(Some((rest, None)))
            }
        });
        kept.try_flatten().boxed()
    }

    /// The bytes of `range` in order, asked for again from where they broke off.
    fn in_one(self, range: Range<u64>, begun: Raw) -> ByteStream {
        let state = Reading { source: self, range, begun, failures: 0, progress: 0 };
        stream::try_unfold(state, async |mut reading| {
            let next = timeout(GIVEN_UP, reading.next()).await;
            Ok(next.map_err(backend)??.map(|piece| (piece, reading)))
        })
        .boxed()
    }
}

/// A part that is fetched ahead.
struct Fetched {
    /// None once it is over.
    task: Option<AbortOnDropHandle<Result<(), StoreError>>>,
    shelf: Arc<Shelf>,
}

/// What was fetched of a part, until its reader comes for it or others need the memory.
struct Shelf(Mutex<Kept>);

struct Kept {
    pieces: VecDeque<Bytes>,
    lease: Option<Lease>,
    /// When it was filled, or something was taken.
    touched: Option<Instant>,
}

impl Fetched {
    async fn next(&mut self) -> Result<Option<Bytes>, StoreError> {
        if let Some(task) = self.task.take() {
            task.await.map_err(backend)??;
        }
        Ok(self.shelf.take())
    }
}

impl Shelf {
    fn new(lease: Lease) -> Self {
        Self(Mutex::new(Kept { pieces: VecDeque::new(), lease: Some(lease), touched: None }))
    }

    fn fill(&self, payload: PutPayload) {
        let mut kept = self.kept();
        kept.pieces = payload.into_iter().collect();
        kept.touched = Some(Instant::now());
    }

    fn take(&self) -> Option<Bytes> {
        let mut kept = self.kept();
        kept.touched = Some(Instant::now());
        kept.pieces.pop_front()
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Reclaim for Shelf {
    fn reclaim(&self, idle: Duration) {
        let mut kept = self.kept();
        if kept.touched.is_some_and(|touched| touched.elapsed() >= idle) {
            // Dropped without the lock: memory has one of its own.
            let given_up = (std::mem::take(&mut kept.pieces), kept.lease.take());
            drop(kept);
            drop(given_up);
        }
    }
}

/// A range that is being read.
struct Reading {
    source: Source,
    /// What is still to come.
    range: Range<u64>,
    begun: Raw,
    failures: usize,
    /// Bytes since the last failure.
    progress: u64,
}

impl Reading {
    async fn next(&mut self) -> Result<Option<Bytes>, StoreError> {
        while !self.range.is_empty() {
            let failure = match self.begun.next().await {
                Some(Ok(piece)) => return Ok(Some(self.took(piece))),
                Some(Err(error)) => Some(error),
                // Where nothing was asked for yet, nothing has failed.
                None if self.failures == 0 && self.progress == 0 => None,
                None => Some(ended_early()),
            };
            if self.progress >= PROGRESS {
                self.failures = 0;
            }
            self.progress = 0;
            self.again(failure).await?;
        }
        Ok(None)
    }

    fn took(&mut self, mut piece: Bytes) -> Bytes {
        let left = self.range.end - self.range.start;
        piece.truncate(usize::try_from(left).unwrap_or(usize::MAX).min(piece.len()));
        self.range.start += piece.len() as u64;
        self.progress += piece.len() as u64;
        piece
    }

    /// Asks for the rest, after a pause if something has failed.
    async fn again(&mut self, mut failure: Option<object_store::Error>) -> Result<(), StoreError> {
        loop {
            if let Some(error) = failure {
                let pause = PAUSES.get(self.failures).copied();
                let Some(pause) = pause.filter(|_| is_passing(&error)) else {
                    return Err(error.into());
                };
                tracing::warn!(%error, path = %self.source.path, "a read broke off, going on");
                sleep(pause).await;
            }
            self.failures += 1;
            match self.source.request(self.range.clone()).await {
                Ok(begun) => {
                    self.begun = begun;
                    return Ok(());
                }
                Err(error) => failure = Some(error),
            }
        }
    }
}

fn ended_early() -> object_store::Error {
    object_store::Error::Generic { store: "storage", source: "the answer ended early".into() }
}

/// Whether it may go better the next time.
fn is_passing(error: &object_store::Error) -> bool {
    matches!(error, object_store::Error::Generic { .. })
}
