//! Who is let in at once: memory is what transfers compete for, so it is what is given out.
//!
//! An upload takes its part before its body is read, an answer before it is sent: as much as the
//! storage says such a transfer may hold, and never more than it has bytes. Who finds none left waits in
//! line, since callers of upstream's never try again, and is told to come back only after that.
//!
//! What the process holds beyond that is up to the allocator, and that is jemalloc: MiB by
//! `scripts/bench --burst` on two busy cores, at most and two seconds later; mimalloc 2.0 preloaded.
//!
//! | | jemalloc 5.3 | glibc 2.36 | mimalloc 2.0 | mimalloc 2.3 |
//! |---|---|---|---|---|
//! | idle: directory, S3 | 11, 14 | 10, 13 | 10, 12 | 27, 25 |
//! | 16 PUT of 256 MiB at once, directory | 46, 42 | 62, 18 | 57, 25 | 155, 117 |
//! | 16 GET, directory | 42, 34 | 44, 26 | 69, 48 | 866, 831 |
//! | 16 PUT, S3 | 167, 112 | 216, 143 | 165, 49 | 271, 64 |
//! | 16 GET, S3 | 311, 242 | 411, 350 | 309, 42 | 363, 90 |
//!
//! A request of 4 KiB costs a tenth less with it than with glibc, whose threads wait for each other's arenas:
//! that was most of their system calls. What large transfers cost is the same with all of them. mimalloc 2.3
//! is the one that can be built in; the figures of both are of earlier builds of ours.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use axum::body::HttpBody as _;
use axum::extract::Request;
use axum::http::Method;
use axum::http::header::{CONTENT_LENGTH, HeaderMap};
use axum::response::{IntoResponse as _, Response};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use crate::error::{ApiError, Cause, Route};
use crate::limits::{HEAD, Limits};
use crate::store::Store;

/// Memory is given out in pieces of this many bytes.
const PIECE: usize = 64 << 10;

/// The memory that transfers may hold, and who has it.
#[derive(Clone, Debug)]
pub(crate) struct Admission(Arc<Gate>);

#[derive(Debug)]
struct Gate {
    free: Arc<Semaphore>,
    all: usize,
    wait: Duration,
    /// What one upload, and one answer, may hold at most.
    upload: usize,
    answer: usize,
    uploads: AtomicU64,
    waiting: AtomicU64,
    refused: AtomicU64,
}

/// The memory that an answer may hold, until all of it is written. Goes with the answer.
#[derive(Clone, Debug)]
pub(crate) struct Admitted(
    #[expect(dead_code, reason = "to be dropped")] Arc<OwnedSemaphorePermit>,
);

/// The state of a gate at some time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Occupancy {
    /// Bytes given out.
    pub(crate) taken: u64,
    /// Bytes there are.
    pub(crate) all: u64,
    /// Uploads under way.
    pub(crate) uploads: u64,
    /// Requests that wait to be let in.
    pub(crate) waiting: u64,
    /// Requests that were told to come back, so far.
    pub(crate) refused: u64,
}

impl Admission {
    pub(crate) fn new(limits: &Limits, store: &Store) -> Self {
        Self(Arc::new(Gate {
            free: Arc::new(Semaphore::new(limits.memory / PIECE)),
            all: limits.memory / PIECE,
            wait: limits.wait,
            upload: store.upload_memory(),
            answer: store.answer_memory(),
            uploads: AtomicU64::default(),
            waiting: AtomicU64::default(),
            refused: AtomicU64::default(),
        }))
    }

    pub(crate) fn occupancy(&self) -> Occupancy {
        let Gate { free, all, uploads, waiting, refused, .. } = &*self.0;
        let bytes = |pieces: usize| (pieces * PIECE) as u64;
        Occupancy {
            taken: bytes(all.saturating_sub(free.available_permits())),
            all: bytes(*all),
            uploads: uploads.load(Ordering::Relaxed),
            waiting: waiting.load(Ordering::Relaxed),
            refused: refused.load(Ordering::Relaxed),
        }
    }

    /// Lets a request on to what is `next` once there is memory for it.
    pub(crate) async fn admit<F: Future<Output = Response>>(
        &self,
        request: Request,
        next: impl FnOnce(Request) -> F,
    ) -> Response {
        let route = Route::of(request.method(), request.uri().path());
        let admitted = if request.method() == Method::PUT {
            self.upload(request, next).await
        } else {
            self.answer(next(request).await).await
        };
        admitted.unwrap_or_else(|cause| ApiError { route, cause }.into_response())
    }

    async fn upload<F: Future<Output = Response>>(
        &self,
        request: Request,
        next: impl FnOnce(Request) -> F,
    ) -> Result<Response, Cause> {
        let Gate { upload, uploads, .. } = &*self.0;
        let length = content_length(request.headers());
        let _held = self.take(length.map_or(*upload, |length| length.min(*upload))).await?;
        let _uploading = Counted::one(uploads);
        Ok(next(request).await)
    }

    async fn answer(&self, mut response: Response) -> Result<Response, Cause> {
        let most = self.0.answer;
        let length = response.body().size_hint().exact().unwrap_or(u64::MAX);
        let held = usize::try_from(length).map_or(most, |length| length.min(most));
        if held == 0 {
            return Ok(response);
        }
        let held = Admitted(Arc::new(self.take(held).await?));
        response.extensions_mut().insert(held);
        Ok(response)
    }

    /// Waits for memory, at most as much as there is.
    async fn take(&self, bytes: usize) -> Result<OwnedSemaphorePermit, Cause> {
        let Gate { free, all, wait, waiting, refused, .. } = &*self.0;
        let pieces = u32::try_from(bytes.div_ceil(PIECE).clamp(1, *all)).unwrap_or(u32::MAX);
        if let Ok(permit) = Arc::clone(free).try_acquire_many_owned(pieces) {
            return Ok(permit);
        }
        let _waiting = Counted::one(waiting);
        let in_line = timeout(*wait, Arc::clone(free).acquire_many_owned(pieces)).await;
        in_line.ok().and_then(Result::ok).ok_or_else(|| {
            refused.fetch_add(1, Ordering::Relaxed);
            Cause::Busy
        })
    }
}

/// Refuses a request whose line and headers are longer than any of ours.
pub(crate) fn small_head(request: &Request) -> Result<(), Cause> {
    let headers = request.headers().iter().map(|(name, value)| name.as_str().len() + value.len());
    let path = request.uri().path_and_query().map_or(0, |path| path.as_str().len());
    if headers.sum::<usize>() + path > HEAD {
        return Err(Cause::Head);
    }
    Ok(())
}

fn content_length(headers: &HeaderMap) -> Option<usize> {
    headers.get(CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

/// Counts one more, as long as it lives.
struct Counted<'a>(&'a AtomicU64);

impl<'a> Counted<'a> {
    fn one(count: &'a AtomicU64) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self(count)
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
