//! Bytes of an object in order, and those that follow read ahead as long as there is memory for them.
//!
//! Over a network they are asked for again where they break off. Everything after the first request names the version
//! that it is about, so what comes is of one version, or does not come.

use std::collections::VecDeque;
use std::fs::File;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use futures::stream::{self, BoxStream};
use futures::{StreamExt as _, TryStreamExt as _};
use object_store::ObjectStore;
use object_store::path::Path;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::task::AbortOnDropHandle;

use crate::store::backend::disk::Disk;
use crate::store::digest_record::get_version;
use crate::store::read::get::ByteStream;
use crate::store::write::parts::{Blocks, Pool};
use crate::store::{KIB, MIB, StoreError, backend};
use crate::transport::memory::{Lease, Memory, Reclaim};

/// How a large object is read.
pub(in crate::store) struct Ahead {
    /// Bytes of each part.
    part: u64,
    /// Parts that are fetched ahead while another is sent, as long as there is memory for them.
    lanes: usize,
    /// Objects up to here come in one piece.
    large: u64,
}

const OF_BUCKET: Ahead = Ahead { part: 4 * MIB as u64, lanes: 4, large: 16 * MIB as u64 };
const OF_FILE: Ahead = Ahead { part: 256 * KIB as u64, lanes: 2, large: 256 * KIB as u64 };
/// Bytes of each piece of a file. Its reader holds no larger ones, so that what is read ahead can be given up.
const FILE_PIECE: usize = 64 * KIB;
/// What a read holds at most, without what it fetches ahead: a piece on its way in, one held back, one being sent.
pub(in crate::store) const MEMORY: usize = MIB;
/// The same of a file: the server's buffer takes up to five pieces of it.
pub(in crate::store) const FILE_MEMORY: usize = 7 * FILE_PIECE;
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

/// One version of an object, and the memory that parts of it are fetched ahead into.
#[derive(Clone)]
pub(in crate::store) struct Source<T> {
    pub(in crate::store) version: T,
    pub(in crate::store) memory: Memory,
}

/// One version of an object in a bucket.
#[derive(Clone)]
pub(in crate::store) struct InBucket {
    pub(in crate::store) objects: Arc<dyn ObjectStore>,
    pub(in crate::store) path: Path,
    /// Its tag; empty where the backend has none.
    pub(in crate::store) etag: String,
    /// What parts that wait to be sent are kept in.
    pub(in crate::store) pool: Pool,
}

/// An open file, which is one version of an object in a directory.
#[derive(Clone)]
pub(in crate::store) struct OpenFile {
    pub(in crate::store) disk: Disk,
    pub(in crate::store) file: Arc<File>,
}

type Raw = BoxStream<'static, object_store::Result<Bytes>>;

/// Reads a range of one version of an object.
pub(in crate::store) trait Version: Clone + Send + Sync + 'static {
    const AHEAD: Ahead;

    /// The bytes of a range in order, as they come.
    fn in_one(self, range: Range<u64>) -> ByteStream;

    /// The bytes of a part, to be kept until its reader comes for them.
    fn gather(
        self,
        part: Range<u64>,
    ) -> impl Future<Output = Result<Vec<Bytes>, StoreError>> + Send;
}

impl Source<InBucket> {
    /// The bytes of `range`, of which `begun` brings the first.
    pub(in crate::store) fn bytes(self, range: Range<u64>, begun: Raw) -> ByteStream {
        let first = range.start..range.end.min(range.start + OF_BUCKET.part);
        if range.end - range.start > OF_BUCKET.large {
            let begun = self.version.clone().begun(first.clone(), begun);
            self.in_parts(first, range, begun)
        } else {
            self.version.begun(range, begun)
        }
    }
}

impl Source<OpenFile> {
    /// The bytes of `range`.
    pub(in crate::store) fn bytes(self, range: Range<u64>) -> ByteStream {
        if range.end - range.start > OF_FILE.large {
            self.in_parts(range.start..range.start, range, stream::empty().boxed())
        } else {
            self.version.in_one(range)
        }
    }
}

impl<T: Version> Source<T> {
    /// One part while the next few are fetched. Nothing is before the first is asked for: whoever waits
    /// in line for memory has none yet.
    fn in_parts(self, first: Range<u64>, range: Range<u64>, begun: ByteStream) -> ByteStream {
        stream::once(async move { self.parts(first, range, begun) }).flatten().boxed()
    }

    /// `begun` brings the `first` of them.
    fn parts(self, first: Range<u64>, range: Range<u64>, begun: ByteStream) -> ByteStream {
        let Ahead { part, lanes, .. } = T::AHEAD;
        let mut parts = (first.end..range.end)
            .step_by(usize::try_from(part).unwrap_or(4 * MIB))
            .map(move |start| start..range.end.min(start + part));
        let source = self.clone();
        let ahead = move |part: Range<u64>| (part.clone(), source.fetch_ahead(part));
        let mut lanes = parts.by_ref().take(lanes).map(&ahead).collect::<VecDeque<_>>();
        let rest = stream::iter(std::iter::from_fn(move || {
            let (part, fetched) = lanes.pop_front()?;
            // Fetched whatever the caller does: one who pauses would break the connection.
            lanes.extend(parts.next().map(&ahead));
            Some(self.clone().part(part, fetched))
        }));
        begun.chain(rest.flatten()).boxed()
    }

    /// Begins to fetch a part, if there is memory for it.
    fn fetch_ahead(&self, part: Range<u64>) -> Option<Fetched> {
        let length = usize::try_from(part.end - part.start).unwrap_or(usize::MAX);
        let buffer = Arc::new(Shelf::new(self.memory.try_take_spare(length)?));
        let ahead: Arc<dyn Reclaim> = Arc::clone(&buffer) as _;
        self.memory.may_reclaim(Arc::downgrade(&ahead));
        let (gathered, fills) = (self.version.clone().gather(part), Arc::clone(&buffer));
        let task = AbortOnDropHandle::new(tokio::spawn(async move {
            fills.fill(gathered.await?);
            Ok(())
        }));
        Some(Fetched { task: Some(task), shelf: buffer })
    }

    /// The bytes of a part: those that were fetched ahead, and what is missing of them.
    fn part(self, part: Range<u64>, fetched: Option<Fetched>) -> ByteStream {
        let Some(fetched) = fetched else { return self.version.in_one(part) };
        let state = (part, fetched);
        let kept = stream::try_unfold(Some(state), move |state| {
            let version = self.version.clone();
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
                Ok::<_, StoreError>(Some((version.in_one(part), None)))
            }
        });
        kept.try_flatten().boxed()
    }
}

impl Version for OpenFile {
    const AHEAD: Ahead = OF_FILE;

    fn in_one(self, Range { start, end }: Range<u64>) -> ByteStream {
        let pieces = stream::iter((start..end).step_by(FILE_PIECE));
        let read = pieces.then(move |start| {
            let Self { disk, file } = self.clone();
            async move { disk.read(file, start..end.min(start + FILE_PIECE as u64)).await }
        });
        read.map_err(backend).boxed()
    }

    async fn gather(self, part: Range<u64>) -> Result<Vec<Bytes>, StoreError> {
        self.disk.read_pieces(self.file, part, FILE_PIECE).await.map_err(backend)
    }
}

impl Version for InBucket {
    const AHEAD: Ahead = OF_BUCKET;

    fn in_one(self, range: Range<u64>) -> ByteStream {
        self.begun(range, stream::empty().boxed())
    }

    async fn gather(self, part: Range<u64>) -> Result<Vec<Bytes>, StoreError> {
        // As they come, pieces keep buffers alive that are twice as large.
        let mut blocks = Blocks::new(self.pool.clone());
        let mut pieces = self.in_one(part);
        while let Some(piece) = pieces.try_next().await? {
            blocks.extend(&piece);
        }
        Ok(blocks.into_payload().into_iter().collect())
    }
}

impl InBucket {
    pub(in crate::store) async fn request(&self, range: Range<u64>) -> object_store::Result<Raw> {
        let found = get_version(&*self.objects, &self.path, &self.etag, range).await?;
        Ok(found.into_stream())
    }

    /// The bytes of `range` in order, asked for again from where they broke off.
    fn begun(self, range: Range<u64>, begun: Raw) -> ByteStream {
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

    fn fill(&self, pieces: Vec<Bytes>) {
        let mut kept = self.kept();
        kept.pieces = pieces.into();
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
    source: InBucket,
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
