//! Response bodies: one that holds a permit until its bytes are sent, and one of bounded size.
//!
//! hyper reads up to a buffer of a body before it writes anything, and may then drop the body. Therefore the bytes hold
//! the permit, not the body. (With TLS, the bytes are copied into hyper's buffer, and the permit is released then.)

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::body::{Body, HttpBody};
use axum::response::Response;
use bytes::Bytes;
use http_body::{Frame, SizeHint};

struct GuardedBody<T> {
    body: Body,
    guard: Arc<T>,
}

struct GuardedBytes<T> {
    bytes: Bytes,
    _guard: Arc<T>,
}

/// Drops `guard` once the response is sent, or its connection has failed.
pub(crate) fn hold_until_sent<T: Send + Sync + 'static>(response: Response, guard: T) -> Response {
    response.map(|body| Body::new(GuardedBody { body, guard: Arc::new(guard) }))
}

/// These bytes, which drop `guard` once they are written.
pub(crate) fn guarded<T: Send + Sync + 'static>(bytes: Bytes, guard: T) -> Bytes {
    Bytes::from_owner(GuardedBytes { bytes, _guard: Arc::new(guard) })
}

struct BoundedBody {
    body: Body,
    max: u64,
}

/// A body of unknown length, with a maximum length.
pub(crate) fn bounded(body: Body, max: u64) -> Body {
    Body::new(BoundedBody { body, max })
}

impl<T> AsRef<[u8]> for GuardedBytes<T> {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl<T: Send + Sync + 'static> HttpBody for GuardedBody<T> {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let frame = Pin::new(&mut self.body).poll_frame(cx);
        let guarded =
            |bytes| Bytes::from_owner(GuardedBytes { bytes, _guard: Arc::clone(&self.guard) });
        frame.map_ok(|frame| frame.map_data(guarded))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl HttpBody for BoundedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    /// Bytes already sent are not subtracted: the maximum is an upper bound all the same.
    fn size_hint(&self) -> SizeHint {
        let mut hint = SizeHint::new();
        hint.set_upper(self.max);
        hint
    }
}
