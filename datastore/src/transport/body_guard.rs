//! The body of an answer, together with something that is to last until its bytes are written.
//!
//! hyper takes up to a buffer's worth of a body before it writes any of it, and then drops the body. So it is the
//! bytes that hold on to what is to last. (Over TLS they are copied into hyper's buffer, and it ends there.)

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::body::{Body, HttpBody};
use axum::response::Response;
use bytes::Bytes;
use http_body::{Frame, SizeHint};

struct Lasting<T> {
    body: Body,
    with: Arc<T>,
}

struct Held<T> {
    bytes: Bytes,
    _with: Arc<T>,
}

/// Drops `with` once the answer is written, or given up.
pub(crate) fn lasting<T: Send + Sync + 'static>(response: Response, with: T) -> Response {
    response.map(|body| Body::new(Lasting { body, with: Arc::new(with) }))
}

impl<T> AsRef<[u8]> for Held<T> {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl<T: Send + Sync + 'static> HttpBody for Lasting<T> {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let frame = Pin::new(&mut self.body).poll_frame(cx);
        let held = |bytes| Bytes::from_owner(Held { bytes, _with: Arc::clone(&self.with) });
        frame.map_ok(|frame| frame.map_data(held))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
