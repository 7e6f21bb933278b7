//! The body of an answer, together with something that is to last as long as it does.

use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::{Body, HttpBody};
use axum::response::Response;
use bytes::Bytes;
use http_body::{Frame, SizeHint};

struct Lasting<T> {
    body: Body,
    _with: T,
}

/// Drops `with` once the answer is sent, or given up.
pub(crate) fn lasting<T: Send + Unpin + 'static>(response: Response, with: T) -> Response {
    response.map(|body| Body::new(Lasting { body, _with: with }))
}

impl<T: Unpin> HttpBody for Lasting<T> {
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

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
