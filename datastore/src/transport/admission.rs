//! Admission: each transfer allocates its memory from [`crate::transport::memory`], or waits for it.
//!
//! An upload allocates memory before its body is read, and keeps it until it ends, even if its client has disconnected.
//! A listing allocates before it is built, any other response before it is sent. The size is what the storage needs for
//! such a transfer, but not more than the transfer has bytes. A request that finds no memory waits, since Burrito's
//! callers never retry, and gets 503 only after that.
//!
//! The allocator decides what the process holds beyond that. It is jemalloc. The figures are MiB, by `scripts/bench
//! --burst` on two busy cores: the maximum, and two seconds later. mimalloc 2.0 was preloaded.
//!
//! | | jemalloc 5.3 | glibc 2.36 | mimalloc 2.0 | mimalloc 2.3 |
//! |---|---|---|---|---|
//! | idle: directory, S3 | 11, 14 | 10, 13 | 10, 12 | 27, 25 |
//! | 16 PUT of 256 MiB at once, directory | 46, 42 | 62, 18 | 57, 25 | 155, 117 |
//! | 16 GET, directory | 42, 34 | 44, 26 | 69, 48 | 866, 831 |
//! | 16 PUT, S3 | 167, 112 | 216, 143 | 165, 49 | 271, 64 |
//! | 16 GET, S3 | 311, 242 | 411, 350 | 309, 42 | 363, 90 |
//!
//! A request of 4 KiB costs a tenth less than with glibc, whose threads wait for each other's arenas: that caused most of
//! its system calls. Large transfers cost the same with all of them. Only mimalloc 2.3 can be linked in. The figures of
//! both are from earlier builds of Plancha.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use axum::body::HttpBody as _;
use axum::extract::Request;
use axum::http::header::{CONTENT_LENGTH, HeaderMap};
use axum::response::Response;

use crate::api::route::Route;
use crate::auth::caller::Caller;
use crate::observe::context::RequestContext;
use crate::store::{MAX_APPEND, Store};
use crate::transport::body_guard::hold_until_sent;
use crate::transport::limits::Limits;
use crate::transport::memory::{Lease, Memory, PIECE, Tenant};

/// The memory of a listing in bytes: a thousand entries, parsed and as text.
const LISTING: usize = 512 << 10;

/// Admits transfers. Clones share it.
#[derive(Clone, Debug)]
pub(crate) struct Admission(Arc<Capacity>);

/// No memory was free in time.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("server is at capacity; retry later")]
pub(crate) struct Busy;

#[derive(Debug)]
struct Capacity {
    memory: Memory,
    wait: Duration,
    /// The maximum memory of one upload.
    upload: usize,
    /// The maximum memory of one response.
    response: usize,
    uploads: AtomicU64,
    refused: AtomicU64,
}

/// The memory of an upload, which keeps this until it ends.
#[derive(Clone, Debug)]
pub(crate) struct Admitted {
    _lease: Arc<Lease>,
    _uploading: Arc<Uploading>,
}

/// In the extensions of a response: its body takes memory by itself, while it has any bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TakesMemory;

/// Counts an upload until it is dropped.
#[derive(Debug)]
struct Uploading(Arc<Capacity>);

/// How much memory is in use.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Occupancy {
    /// Allocated bytes.
    pub(crate) taken: u64,
    /// All bytes.
    pub(crate) all: u64,
    /// Uploads in flight.
    pub(crate) uploads: u64,
    /// Requests that wait for memory.
    pub(crate) waiting: u64,
    /// How many requests got 503.
    pub(crate) refused: u64,
}

impl Admission {
    pub(crate) fn new(limits: &Limits, store: &Store, memory: Memory) -> Self {
        Self(Arc::new(Capacity {
            memory,
            wait: limits.wait,
            upload: store.upload_memory(),
            response: store.answer_memory(),
            uploads: AtomicU64::default(),
            refused: AtomicU64::default(),
        }))
    }

    pub(crate) fn occupancy(&self) -> Occupancy {
        let Capacity { memory, uploads, refused, .. } = &*self.0;
        let usage = memory.usage();
        Occupancy {
            taken: usage.taken as u64,
            all: usage.total as u64,
            uploads: uploads.load(Ordering::Relaxed),
            waiting: usage.waiting as u64,
            refused: refused.load(Ordering::Relaxed),
        }
    }

    /// Passes a request to `next` once there is memory for it.
    pub(crate) async fn admit<F: Future<Output = Response>>(
        &self,
        request: Request,
        context: &RequestContext,
        next: impl FnOnce(Request) -> F,
    ) -> Result<Response, Busy> {
        let tenant = tenant(context);
        if context.route().is_upload() {
            // An append is collected before it is stored.
            let is_append = context.route() == Route::AppendLogs;
            let max = if is_append { self.0.upload.max(MAX_APPEND) } else { self.0.upload };
            self.upload(request, &tenant, max, next).await
        } else if context.route().is_listing() {
            self.listing(request, &tenant, next).await
        } else {
            self.response(next(request).await, &tenant).await
        }
    }

    async fn upload<F: Future<Output = Response>>(
        &self,
        mut request: Request,
        tenant: &Tenant,
        max: usize,
        next: impl FnOnce(Request) -> F,
    ) -> Result<Response, Busy> {
        let length = content_length(request.headers()).map_or(max, |length| length.min(max));
        let lease = self.take(tenant, length).await?;
        request.extensions_mut().insert(Admitted::new(lease, Uploading::of(&self.0)));
        Ok(next(request).await)
    }

    async fn listing<F: Future<Output = Response>>(
        &self,
        request: Request,
        tenant: &Tenant,
        next: impl FnOnce(Request) -> F,
    ) -> Result<Response, Busy> {
        let mut lease = self.take(tenant, LISTING).await?;
        let response = next(request).await;
        lease.shrink_to(self.need(&response));
        Ok(hold_until_sent(response, lease))
    }

    async fn response(&self, response: Response, tenant: &Tenant) -> Result<Response, Busy> {
        let need = self.need(&response);
        if need == 0 || response.extensions().get::<TakesMemory>().is_some() {
            return Ok(response);
        }
        let lease = self.take(tenant, need).await?;
        Ok(hold_until_sent(response, lease))
    }

    /// Memory for one piece of a response that [`TakesMemory`].
    pub(crate) async fn piece(&self, context: &RequestContext) -> Result<Lease, Busy> {
        self.take(&tenant(context), PIECE).await
    }

    /// Memory for reading from the storage, for a response that [`TakesMemory`].
    pub(crate) async fn reading(&self, context: &RequestContext) -> Result<Lease, Busy> {
        self.take(&tenant(context), self.0.response).await
    }

    /// The memory that a response needs.
    fn need(&self, response: &Response) -> usize {
        let hint = response.body().size_hint();
        let announced = || content_length(response.headers()).map(|length| length as u64);
        let length = hint.exact().or_else(announced).or(hint.upper()).unwrap_or(u64::MAX);
        usize::try_from(length).unwrap_or(usize::MAX).min(self.0.response)
    }

    /// Allocates memory, and waits for it if necessary.
    async fn take(&self, tenant: &Tenant, bytes: usize) -> Result<Lease, Busy> {
        let Capacity { memory, wait, refused, .. } = &*self.0;
        memory.take(tenant, bytes, *wait).await.ok_or_else(|| {
            refused.fetch_add(1, Ordering::Relaxed);
            Busy
        })
    }
}

impl Admitted {
    fn new(lease: Lease, uploading: Uploading) -> Self {
        Self { _lease: Arc::new(lease), _uploading: Arc::new(uploading) }
    }
}

impl Uploading {
    fn of(capacity: &Arc<Capacity>) -> Self {
        capacity.uploads.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(capacity))
    }
}

impl Drop for Uploading {
    fn drop(&mut self) {
        self.0.uploads.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The memory is accounted to the caller, or, where callers are not authenticated, to the namespace.
fn tenant(context: &RequestContext) -> Tenant {
    let caller = context.caller().and_then(Caller::known_name);
    caller.or_else(|| context.query().text("namespace")).unwrap_or_default().into()
}

fn content_length(headers: &HeaderMap) -> Option<usize> {
    headers.get(CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use axum::BoxError;
    use axum::body::Body;
    use axum::extract::FromRequest as _;
    use bytes::Bytes;
    use futures::{FutureExt as _, StreamExt as _, channel::mpsc};

    use super::*;
    use crate::api::transfer::AppendBody;
    use crate::kind::Kind;
    use crate::store::{Key, PutConditions, Storage};
    use crate::transport::upload_body::limited;

    #[tokio::test]
    async fn an_upload_keeps_its_memory_after_its_client_has_disconnected() {
        let memory = Memory::new(16 << 20);
        let store = Store::open(&Storage::Memory).unwrap();
        let limits = Limits::default();
        let tenant: Tenant = "a".into();
        let lease = memory.take(&tenant, 1 << 20, limits.wait).await.unwrap();
        let admission = Admission::new(&limits, &store, memory.clone());
        let admitted = Admitted::new(lease, Uploading::of(&admission.0));
        let (mut sends, pieces) = mpsc::unbounded::<Result<Bytes, BoxError>>();
        let body = Body::from_stream(pieces);
        let body = limited(body, None, Kind::Bin, &limits, Some(admitted)).unwrap();
        let key = Key::from_path("layers/a/b/c/0/plan.bin").unwrap();
        let mut put = store.put(&key, PutConditions::default(), body).boxed();
        sends.start_send(Ok(Bytes::from_static(b"body"))).unwrap();
        assert!((&mut put).now_or_never().is_none());
        drop(put);
        tokio::task::yield_now().await;
        assert_eq!(memory.usage().taken, 1 << 20);
        drop(sends);
        store.wait_for_uploads().await;
        assert_eq!(memory.usage().taken, 0);
        let (_, bytes) = store.open_whole(&key).await.unwrap();
        assert_eq!(bytes.count().await, 1, "the complete body is stored");
    }
    #[tokio::test]
    async fn the_bytes_of_an_append_keep_their_memory() {
        let memory = Memory::new(16 << 20);
        let limits = Limits::default();
        let admission =
            Admission::new(&limits, &Store::open(&Storage::Memory).unwrap(), memory.clone());
        let lease = memory.take(&"a".into(), 1 << 20, limits.wait).await.unwrap();
        let mut request = Request::new(Body::from("bytes"));
        request.extensions_mut().insert(Admitted::new(lease, Uploading::of(&admission.0)));
        let bytes =
            AppendBody::from_request(request, &limits).await.unwrap().bytes().await.unwrap();
        assert_eq!((&*bytes, memory.usage().taken), (&b"bytes"[..], 1 << 20));
        drop(bytes);
        assert_eq!(memory.usage().taken, 0);
    }
}
