//! Streams a range of one version of an object, and fetches the next parts ahead while there is memory for them.
//!
//! Over a network a read that breaks off is resumed. Every request after the first names the version, so all bytes are of one
//! version.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use futures::stream::{self, BoxStream};
use futures::{StreamExt as _, TryStreamExt as _};
use object_store::ObjectStore;
use object_store::path::Path;
use tokio::time::{Instant, sleep};
use tokio_util::task::AbortOnDropHandle;

use crate::store::backend::directory::disk::Disk;
use crate::store::backend::directory::jobs::JobFile;
use crate::store::backend::metered::in_time;
use crate::store::backend::storage::{KIB, MIB};
use crate::store::digest_record::get_version;
use crate::store::error::{StoreError, backend_error};
use crate::store::object::ByteStream;
use crate::store::write::parts::{BlockPool, Blocks};
use crate::transport::memory::{Lease, Memory, Reclaim};

/// How parts of a large object are fetched ahead.
pub(in crate::store) struct Prefetch {
    /// Bytes of each part.
    part: u64,
    /// The number of parts that are fetched ahead, as long as there is memory for them.
    parts: usize,
    /// Ranges up to this size are read without fetching ahead.
    threshold: u64,
}

const BUCKET: Prefetch = Prefetch { part: 4 * MIB as u64, parts: 4, threshold: 16 * MIB as u64 };
const FILE: Prefetch = Prefetch { part: 256 * KIB as u64, parts: 2, threshold: 256 * KIB as u64 };
/// The size of a piece of a file. Small pieces let a reader give up what was fetched ahead.
const FILE_PIECE: usize = 64 * KIB;
/// The memory of one read without what is fetched ahead: a piece that arrives, one held back, one being sent.
pub(in crate::store) const MEMORY: usize = MIB;
/// The same for a file: the server buffers up to five pieces of it.
pub(in crate::store) const FILE_MEMORY: usize = 7 * FILE_PIECE;
/// Pauses before each retry of a request.
const PAUSES: [Duration; 4] = [
    Duration::from_millis(100),
    Duration::from_millis(300),
    Duration::from_secs(1),
    Duration::from_secs(3),
];
/// A read without a byte for this long fails, even while retries are left: a caller is still waiting.
const READ_TIMEOUT: Duration = Duration::from_secs(18);
/// After this many bytes all retries are available again.
const PROGRESS: u64 = 64 * KIB as u64;

/// One version of an object, and the memory for parts that are fetched ahead.
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
    /// The `ETag` of the version; empty where the backend has none.
    pub(in crate::store) etag: String,
    /// The blocks in which fetched parts wait to be sent.
    pub(in crate::store) pool: BlockPool,
}

/// An open file, which is one version of an object in a directory.
#[derive(Clone)]
pub(in crate::store) struct OpenFile {
    pub(in crate::store) disk: Disk,
    pub(in crate::store) file: Arc<JobFile>,
}

type RawStream = BoxStream<'static, object_store::Result<Bytes>>;

/// Reads a range of one version of an object.
pub(in crate::store) trait Version: Clone + Send + Sync + 'static {
    const PREFETCH: Prefetch;

    /// Streams a range.
    fn read_range(self, range: Range<u64>) -> ByteStream;

    /// Reads a part ahead into memory. Returns nothing if that would delay other callers.
    fn read_part(
        self,
        part: Range<u64>,
    ) -> impl Future<Output = Result<Vec<Bytes>, StoreError>> + Send;
}

impl Source<InBucket> {
    /// Streams `range`. `first_response` is the response to a request that was already sent, and has its first bytes.
    pub(in crate::store) fn bytes(
        self,
        range: Range<u64>,
        first_response: RawStream,
    ) -> ByteStream {
        let first = range.start..range.end.min(range.start + BUCKET.part);
        if range.end - range.start > BUCKET.threshold {
            let first_response = self.version.clone().resume(first.clone(), first_response);
            self.in_parts(first, range, first_response)
        } else {
            self.version.resume(range, first_response)
        }
    }
}

impl Source<OpenFile> {
    /// Streams `range`.
    pub(in crate::store) fn bytes(self, range: Range<u64>) -> ByteStream {
        if range.end - range.start > FILE.threshold {
            self.in_parts(range.start..range.start, range, stream::empty().boxed())
        } else {
            self.version.read_range(range)
        }
    }
}

impl<T: Version> Source<T> {
    /// Streams a part while the next ones are fetched. Nothing is fetched before the first poll: a request that still
    /// waits for memory must not hold any.
    fn in_parts(
        self,
        first: Range<u64>,
        range: Range<u64>,
        first_response: ByteStream,
    ) -> ByteStream {
        stream::once(async move { self.parts(first, range, first_response) }).flatten().boxed()
    }

    /// Streams `range`; `first_response` has the bytes of `first`.
    fn parts(self, first: Range<u64>, range: Range<u64>, first_response: ByteStream) -> ByteStream {
        let Prefetch { part, parts: count, .. } = T::PREFETCH;
        let mut parts = (first.end..range.end)
            .step_by(usize::try_from(part).unwrap_or(4 * MIB))
            .map(move |start| start..range.end.min(start + part));
        let source = self.clone();
        let ahead = move |part: Range<u64>| (part.clone(), source.fetch_ahead(part));
        let mut prefetch = parts.by_ref().take(count).map(&ahead).collect::<VecDeque<_>>();
        let rest = stream::iter(std::iter::from_fn(move || {
            let (part, prefetched) = prefetch.pop_front()?;
            // Fetched even if the caller pauses: an idle connection would break.
            prefetch.extend(parts.next().map(&ahead));
            Some(self.clone().part(part, prefetched))
        }));
        first_response.chain(rest.flatten()).boxed()
    }

    /// Starts to fetch a part if there is memory for it.
    fn fetch_ahead(&self, part: Range<u64>) -> Option<Prefetched> {
        let length = usize::try_from(part.end - part.start).unwrap_or(usize::MAX);
        let buffer = Arc::new(PrefetchBuffer::new(self.memory.try_take_spare(length)?));
        let ahead: Arc<dyn Reclaim> = Arc::clone(&buffer) as _;
        self.memory.may_reclaim(Arc::downgrade(&ahead));
        let (bytes, fills) = (self.version.clone().read_part(part), Arc::clone(&buffer));
        let task = AbortOnDropHandle::new(tokio::spawn(async move {
            fills.fill(bytes.await?);
            Ok(())
        }));
        Some(Prefetched { task: Some(task), buffer })
    }

    /// Streams a part: first what was fetched ahead, then the rest from the storage.
    fn part(self, part: Range<u64>, prefetched: Option<Prefetched>) -> ByteStream {
        let Some(prefetched) = prefetched else { return self.version.read_range(part) };
        let state = (part, prefetched);
        let buffered = stream::try_unfold(Some(state), move |state| {
            let version = self.version.clone();
            async move {
                let Some((mut part, mut prefetched)) = state else { return Ok(None) };
                if let Some(piece) = prefetched.next().await? {
                    part.start += piece.len() as u64;
                    return Ok(Some((
                        stream::once(async { Ok(piece) }).boxed(),
                        Some((part, prefetched)),
                    )));
                }
                // It was not fetched, the memory was reclaimed, or the part is complete.
                Ok::<_, StoreError>(Some((version.read_range(part), None)))
            }
        });
        buffered.try_flatten().boxed()
    }
}

impl Version for OpenFile {
    const PREFETCH: Prefetch = FILE;

    fn read_range(self, Range { start, end }: Range<u64>) -> ByteStream {
        let pieces = stream::iter((start..end).step_by(FILE_PIECE));
        let read = pieces.then(move |start| {
            let Self { disk, file } = self.clone();
            async move { disk.read(file, start..end.min(start + FILE_PIECE as u64)).await }
        });
        read.map_err(backend_error).boxed()
    }

    async fn read_part(self, part: Range<u64>) -> Result<Vec<Bytes>, StoreError> {
        self.disk.read_ahead(self.file, part, FILE_PIECE).await.map_err(backend_error)
    }
}

impl Version for InBucket {
    const PREFETCH: Prefetch = BUCKET;

    fn read_range(self, range: Range<u64>) -> ByteStream {
        self.resume(range, stream::empty().boxed())
    }

    async fn read_part(self, part: Range<u64>) -> Result<Vec<Bytes>, StoreError> {
        // The client's own buffers are twice as large as their pieces, so the bytes are copied.
        let mut blocks = Blocks::new(self.pool.clone());
        let mut pieces = self.read_range(part);
        while let Some(piece) = pieces.try_next().await? {
            blocks.extend(&piece);
        }
        Ok(blocks.into_payload().into_iter().collect())
    }
}

impl InBucket {
    pub(in crate::store) async fn request(
        &self,
        range: Range<u64>,
    ) -> object_store::Result<RawStream> {
        let found = get_version(&*self.objects, &self.path, &self.etag, range).await?;
        Ok(found.into_stream())
    }

    /// Streams `range`, and resumes where a response breaks off.
    fn resume(self, range: Range<u64>, first_response: RawStream) -> ByteStream {
        let state = RangeRead { source: self, range, first_response, failures: 0, progress: 0 };
        stream::try_unfold(state, async |mut read| {
            let next = in_time(READ_TIMEOUT, "read", read.next()).await;
            Ok(next.map_err(backend_error)??.map(|piece| (piece, read)))
        })
        .boxed()
    }
}

/// A part that is fetched ahead.
struct Prefetched {
    /// `None` once the task has ended.
    task: Option<AbortOnDropHandle<Result<(), StoreError>>>,
    buffer: Arc<PrefetchBuffer>,
}

/// The fetched bytes of a part, until they are read or the memory is reclaimed.
struct PrefetchBuffer(Mutex<Buffered>);

struct Buffered {
    pieces: VecDeque<Bytes>,
    lease: Option<Lease>,
    /// When bytes were last added or removed.
    last_used: Option<Instant>,
}

impl Prefetched {
    async fn next(&mut self) -> Result<Option<Bytes>, StoreError> {
        if let Some(task) = self.task.take() {
            task.await.map_err(backend_error)??;
        }
        Ok(self.buffer.take())
    }
}

impl PrefetchBuffer {
    fn new(lease: Lease) -> Self {
        Self(Mutex::new(Buffered { pieces: VecDeque::new(), lease: Some(lease), last_used: None }))
    }

    fn fill(&self, pieces: Vec<Bytes>) {
        let mut buffered = self.buffered();
        buffered.pieces = pieces.into();
        buffered.last_used = Some(Instant::now());
    }

    fn take(&self) -> Option<Bytes> {
        let mut buffered = self.buffered();
        buffered.last_used = Some(Instant::now());
        buffered.pieces.pop_front()
    }

    fn buffered(&self) -> MutexGuard<'_, Buffered> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Reclaim for PrefetchBuffer {
    fn reclaim(&self, idle: Duration) {
        let mut buffered = self.buffered();
        if buffered.last_used.is_some_and(|last_used| last_used.elapsed() >= idle) {
            // Dropped after the lock is released: dropping the lease takes the lock of the memory.
            let given_up = (std::mem::take(&mut buffered.pieces), buffered.lease.take());
            drop(buffered);
            drop(given_up);
        }
    }
}

/// A range that is being read.
struct RangeRead {
    source: InBucket,
    /// The bytes that have not been read yet.
    range: Range<u64>,
    first_response: RawStream,
    failures: usize,
    /// Bytes since the last failure.
    progress: u64,
}

impl RangeRead {
    async fn next(&mut self) -> Result<Option<Bytes>, StoreError> {
        while !self.range.is_empty() {
            let failure = match self.first_response.next().await {
                Some(Ok(piece)) => return Ok(Some(self.consume(piece))),
                Some(Err(error)) => Some(error),
                // Without a request so far nothing has failed.
                None if self.failures == 0 && self.progress == 0 => None,
                None => Some(ended_early()),
            };
            if self.progress >= PROGRESS {
                self.failures = 0;
            }
            self.progress = 0;
            self.reconnect(failure).await?;
        }
        Ok(None)
    }

    fn consume(&mut self, mut piece: Bytes) -> Bytes {
        let left = self.range.end - self.range.start;
        piece.truncate(usize::try_from(left).unwrap_or(usize::MAX).min(piece.len()));
        self.range.start += piece.len() as u64;
        self.progress += piece.len() as u64;
        piece
    }

    /// Requests the rest, after a pause if something has failed.
    async fn reconnect(
        &mut self,
        mut failure: Option<object_store::Error>,
    ) -> Result<(), StoreError> {
        loop {
            if let Some(error) = failure {
                let pause = PAUSES.get(self.failures).copied();
                let Some(pause) = pause.filter(|_| is_transient(&error)) else {
                    return Err(error.into());
                };
                tracing::warn!(%error, path = %self.source.path, "a read was interrupted, resuming");
                sleep(pause).await;
            }
            self.failures += 1;
            match self.source.request(self.range.clone()).await {
                Ok(first_response) => {
                    self.first_response = first_response;
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

/// Whether a retry may succeed.
fn is_transient(error: &object_store::Error) -> bool {
    matches!(error, object_store::Error::Generic { .. })
}
