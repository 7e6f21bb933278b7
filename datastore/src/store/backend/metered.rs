//! Counts the calls to a backend and their outcomes, gives up on a backend that does not respond, turns a panic of its
//! client into an error, and names the right that is missing where access is denied.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use bytes::Bytes;
use futures::future::BoxFuture;
use futures::stream::{self, BoxStream};
use futures::{FutureExt as _, StreamExt as _, TryFutureExt as _, TryStreamExt as _};
use object_store::list::{PaginatedListOptions, PaginatedListResult, PaginatedListStore};
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, GetResultPayload, ListResult, MultipartUpload,
    ObjectMeta, ObjectStore, PutMultipartOptions, PutOptions, PutPayload, PutResult, RenameOptions,
    Result,
};
use tokio::time::timeout;

use crate::store::backend::cloud::provider::{Access, Provider};
use crate::store::backend::panicked::caught;
use crate::store::backend::response::name_right;

/// Timeout of a call without a response. A read is to end within 20 s.
pub(in crate::store) const IDLE_TIMEOUT: Duration = Duration::from_secs(15);
/// The same in the middle of an object; the rest is then requested again.
const READ_IDLE_TIMEOUT: Duration = Duration::from_secs(5);
/// Timeout of the completion of a multipart upload.
pub(in crate::store) const COMPLETION_TIMEOUT: Duration = Duration::from_mins(10);
/// Timeout of a put, besides the time that its bytes need at [`MIN_PUT_RATE`]. The client reports no progress of a
/// put.
const PUT_TIMEOUT: Duration = Duration::from_secs(14);
const MIN_PUT_RATE: usize = 64 << 10;

/// Time to check, after the timeout of a put, whether it succeeded.
pub(in crate::store) const STAT_TIMEOUT: Duration = Duration::from_secs(5);

/// The timeout of a put of this many bytes.
pub(in crate::store) fn put_timeout(bytes: usize) -> Duration {
    PUT_TIMEOUT + Duration::from_secs((bytes / MIN_PUT_RATE) as u64)
}

/// Counters of calls to a backend. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct Calls {
    totals: Arc<Mutex<BTreeMap<(Call, Outcome), CallTotals>>>,
    /// The cloud that is called, if it is one.
    provider: Option<Provider>,
}

/// The call, as a label.
type Call = &'static str;
/// Its outcome, as a label.
type Outcome = &'static str;

/// The totals of calls with one outcome.
#[derive(Clone, Copy, Debug, Default)]
pub struct CallTotals {
    /// Their number.
    pub calls: u64,
    /// Their total duration.
    pub took: Duration,
}

impl Calls {
    /// Counters of calls to a cloud.
    pub(in crate::store) fn to(provider: Provider) -> Self {
        Self { provider: Some(provider), ..Self::default() }
    }

    /// All totals, by call and outcome.
    pub fn all(&self) -> Vec<(Call, Outcome, CallTotals)> {
        let totals = self.totals.lock().unwrap_or_else(PoisonError::into_inner);
        totals.iter().map(|((call, outcome), totals)| (*call, *outcome, *totals)).collect()
    }

    fn start(&self, call: Call, outcome: Outcome) -> InFlight {
        InFlight { calls: self.clone(), call, outcome, since: Instant::now() }
    }

    async fn timed<T>(&self, call: Call, work: impl Future<Output = Result<T>>) -> Result<T> {
        self.timed_with(IDLE_TIMEOUT, call, work).await
    }

    /// Counts a call, and cancels it after `limit`.
    pub(in crate::store) async fn timed_with<T>(
        &self,
        limit: Duration,
        call: Call,
        work: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        let mut in_flight = self.start(call, "given_up");
        let result = in_time(limit, call, caught(work)).await;
        let result = result.unwrap_or_else(|late| Err(late.into()));
        match result {
            Ok(done) => {
                in_flight.outcome = "ok";
                Ok(done)
            }
            Err(error) => Err(in_flight.failed(error)),
        }
    }

    /// Counts a stream once, when it ends or is dropped.
    fn stream<T: 'static>(
        &self,
        call: Call,
        limit: Duration,
        stream: BoxStream<'static, Result<T>>,
    ) -> BoxStream<'static, Result<T>> {
        let mut in_flight = self.start(call, "ok");
        let patient = stream::try_unfold(stream, move |mut stream| async move {
            let next = in_time(limit, call, caught(stream.try_next())).await;
            let next = next.unwrap_or_else(|late| Err(late.into()))?;
            Ok(next.map(|item| (item, stream)))
        });
        patient.map_err(move |error| in_flight.failed(error)).boxed()
    }
}

/// A backend that has not responded in time.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("{waits_for}: no answer within {limit:?}")]
pub(in crate::store) struct NoAnswer {
    /// What was waited for.
    pub(in crate::store) waits_for: &'static str,
    /// How long.
    pub(in crate::store) limit: Duration,
}

impl From<NoAnswer> for Error {
    fn from(late: NoAnswer) -> Self {
        Self::Generic { store: "storage", source: late.into() }
    }
}

/// Waits for `work`, and gives up after `limit` with an error that says what was waited for. No `async fn`, which would hold
/// `work` twice.
pub(in crate::store) fn in_time<F: Future>(
    limit: Duration,
    waits_for: &'static str,
    work: F,
) -> impl Future<Output = std::result::Result<F::Output, NoAnswer>> {
    timeout(limit, work).map_err(move |_| NoAnswer { waits_for, limit })
}

/// A call in flight. It is counted when this is dropped.
struct InFlight {
    calls: Calls,
    call: Call,
    outcome: Outcome,
    since: Instant,
}

impl InFlight {
    /// Records the outcome. Returns the error, with the name of the right if access was denied.
    fn failed(&mut self, error: Error) -> Error {
        self.outcome = outcome(&error);
        match self.calls.provider.zip(access(self.call)) {
            Some((provider, access)) => name_right(error, provider.right(access)),
            None => error,
        }
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        let mut calls = self.calls.totals.lock().unwrap_or_else(PoisonError::into_inner);
        let totals = calls.entry((self.call, self.outcome)).or_default();
        totals.calls += 1;
        totals.took += self.since.elapsed();
    }
}

/// What a call does, as far as rights distinguish it.
fn access(call: Call) -> Option<Access> {
    match call {
        "get" | "head" | "read" => Some(Access::Read),
        "list" => Some(Access::List),
        "delete" => Some(Access::Delete),
        "put" => Some(Access::Write),
        "begin" | "part" | "complete" => Some(Access::Upload),
        "abort" => Some(Access::Abort),
        _ => None,
    }
}

/// The outcome that an error means; some are regular answers.
fn outcome(error: &Error) -> Outcome {
    match error {
        Error::NotFound { .. } => "not_found",
        Error::AlreadyExists { .. } => "exists",
        Error::Precondition { .. } => "changed",
        Error::NotModified { .. } => "not_modified",
        Error::PermissionDenied { .. } | Error::Unauthenticated { .. } => "denied",
        Error::NotSupported { .. } | Error::NotImplemented { .. } => "unsupported",
        _ => "failed",
    }
}

/// A backend, or an upload to one, whose calls are counted.
#[derive(Debug)]
pub(in crate::store) struct Metered<T> {
    pub(in crate::store) inner: T,
    pub(in crate::store) calls: Calls,
}

impl<T: fmt::Display> fmt::Display for Metered<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

#[async_trait]
impl ObjectStore for Metered<Arc<dyn ObjectStore>> {
    async fn put_opts(
        &self,
        location: &Path,
        payload: PutPayload,
        options: PutOptions,
    ) -> Result<PutResult> {
        let limit = put_timeout(payload.content_length());
        self.calls.timed_with(limit, "put", self.inner.put_opts(location, payload, options)).await
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        let started = self.inner.put_multipart_opts(location, options);
        let inner = self.calls.timed("begin", started).await?;
        Ok(Box::new(Metered { inner, calls: self.calls.clone() }))
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        let call = if options.head { "head" } else { "get" };
        let mut found = self.calls.timed(call, self.inner.get_opts(location, options)).await?;
        found.payload = match found.payload {
            GetResultPayload::Stream(bytes) => {
                GetResultPayload::Stream(self.calls.stream("read", READ_IDLE_TIMEOUT, bytes))
            }
            file @ GetResultPayload::File(..) => file,
        };
        Ok(found)
    }

    async fn get_ranges(&self, location: &Path, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        self.calls.timed("get", self.inner.get_ranges(location, ranges)).await
    }

    fn delete_stream(
        &self,
        locations: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        self.calls.stream("delete", 2 * IDLE_TIMEOUT, self.inner.delete_stream(locations))
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.calls.stream("list", IDLE_TIMEOUT, self.inner.list(prefix))
    }

    fn list_with_offset(
        &self,
        prefix: Option<&Path>,
        offset: &Path,
    ) -> BoxStream<'static, Result<ObjectMeta>> {
        self.calls.stream("list", IDLE_TIMEOUT, self.inner.list_with_offset(prefix, offset))
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.calls.timed("list", self.inner.list_with_delimiter(prefix)).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.calls.timed("copy", self.inner.copy_opts(from, to, options)).await
    }

    async fn rename_opts(&self, from: &Path, to: &Path, options: RenameOptions) -> Result<()> {
        self.calls.timed("copy", self.inner.rename_opts(from, to, options)).await
    }
}

#[async_trait]
impl MultipartUpload for Metered<Box<dyn MultipartUpload>> {
    fn put_part(&mut self, data: PutPayload) -> BoxFuture<'static, Result<()>> {
        let limit = put_timeout(data.content_length());
        let (part, calls) = (self.inner.put_part(data), self.calls.clone());
        async move { calls.timed_with(limit, "part", part).await }.boxed()
    }

    async fn complete(&mut self) -> Result<PutResult> {
        self.calls.timed_with(COMPLETION_TIMEOUT, "complete", self.inner.complete()).await
    }

    async fn abort(&mut self) -> Result<()> {
        self.calls.timed("abort", self.inner.abort()).await
    }
}

#[async_trait]
impl PaginatedListStore for Metered<Arc<dyn PaginatedListStore>> {
    async fn list_paginated(
        &self,
        prefix: Option<&str>,
        options: PaginatedListOptions,
    ) -> Result<PaginatedListResult> {
        self.calls.timed("list", self.inner.list_paginated(prefix, options)).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An upload whose completion takes this long.
    #[derive(Debug)]
    struct Slow(Duration);

    #[async_trait]
    impl MultipartUpload for Slow {
        fn put_part(&mut self, _: PutPayload) -> BoxFuture<'static, Result<()>> {
            async { Ok(()) }.boxed()
        }

        async fn complete(&mut self) -> Result<PutResult> {
            tokio::time::sleep(self.0).await;
            Err(Error::NotSupported { source: "it came to its end".into() })
        }

        async fn abort(&mut self) -> Result<()> {
            Ok(())
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_completion_may_take_10_minutes() {
        let complete = async |minutes| {
            let inner: Box<dyn MultipartUpload> = Box::new(Slow(Duration::from_mins(minutes)));
            let mut upload = Metered { inner, calls: Calls::default() };
            upload.complete().await.unwrap_err().to_string()
        };
        assert!(complete(5).await.contains("it came to its end"));
        assert!(complete(11).await.contains("no answer within 600s"));
    }
}
