//! Bodies of answers: one that holds a permit until its bytes are written, and one of bounded size.
//!
//! hyper takes up to a buffer's worth of a body before it writes any of it, and then drops the body. So it is the
//! bytes that hold the permit. (Over TLS they are copied into hyper's buffer, and it is released there.)

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

/// Drops `guard` once the answer is written, or given up.
pub(crate) fn hold_until_sent<T: Send + Sync + 'static>(response: Response, guard: T) -> Response {
    response.map(|body| Body::new(GuardedBody { body, guard: Arc::new(guard) }))
}

struct BoundedBody {
    body: Body,
    max: u64,
}

/// A body of unknown length, of which it is known how many bytes it has at most.
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

    /// Of all of it, also when some bytes have been sent: that is still an upper bound.
    fn size_hint(&self) -> SizeHint {
        let mut hint = SizeHint::new();
        hint.set_upper(self.max);
        hint
    }
}
