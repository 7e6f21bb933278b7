//! Start and end of a request. At its start, it gets a [`RequestContext`]. At its end, the context is written once, as
//! log line and as metrics.
//!
//! A refusal or a write gets an audit line, which is written before the answer is sent: no such answer is without its
//! line. Every other request gets an access line after the last byte of its answer.

use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::{Body, HttpBody};
use axum::extract::Request;
use axum::http::HeaderValue;
use axum::response::Response;
use bytes::Bytes;
use futures::TryStreamExt as _;
use http_body::{Frame, SizeHint};
use tracing::Instrument as _;

use crate::observe::access_log;
use crate::observe::context::{CURRENT, REQUEST_ID, RequestContext};
use crate::observe::counters::Metrics;

/// Gives a request its context, and an id that its answer and all its log lines have. When the request ends, its
/// log line is written and the request is counted.
pub(crate) async fn instrument<F: Future<Output = Response>>(
    metrics: &Metrics,
    request: Request,
    next: impl FnOnce(Request, RequestContext) -> F,
) -> Response {
    let context = RequestContext::new(&request);
    let span = tracing::info_span!("request", id = context.id());
    let request = counted(request, &context);
    let end = End { context: context.clone(), metrics: metrics.clone(), is_logged: false };
    let mut counted = Counted { body: Body::empty(), span: span.clone(), end };
    let answer = CURRENT.scope(context.clone(), next(request, context.clone()));
    let mut response = answer.instrument(span).await;
    // Every character of an id is valid in a header.
    let id = HeaderValue::from_str(context.id()).unwrap_or(HeaderValue::from_static(""));
    response.headers_mut().insert(REQUEST_ID, id);
    context.set_status(response.status());
    if let Some(message) = context.audit() {
        access_log::audit(&context, message);
        counted.end.is_logged = true;
    }
    response.map(|body| {
        counted.body = body;
        Body::new(counted)
    })
}

/// Puts the context into the request, and counts the bytes of its body when they arrive.
fn counted(mut request: Request, context: &RequestContext) -> Request {
    request.extensions_mut().insert(context.clone());
    if request.body().is_end_stream() {
        return request;
    }
    let context = context.clone();
    request.map(|body| {
        Body::from_stream(body.into_data_stream().inspect_ok(move |piece| {
            context.add_bytes_in(piece.len());
        }))
    })
}

/// The body of an answer. The request ends when it is dropped, even if it is dropped before its end.
struct Counted {
    body: Body,
    span: tracing::Span,
    end: End,
}

/// Writes the record of a request when it is dropped.
struct End {
    context: RequestContext,
    metrics: Metrics,
    is_logged: bool,
}

impl HttpBody for Counted {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let span = self.span.clone();
        let frame = span.in_scope(|| Pin::new(&mut self.body).poll_frame(cx));
        let context = &self.end.context;
        match &frame {
            Poll::Ready(Some(Ok(frame))) => {
                context.add_bytes_out(frame.data_ref().map_or(0, Bytes::len));
            }
            Poll::Ready(Some(Err(_))) => context.set_broken(),
            Poll::Ready(None) | Poll::Pending => {}
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Drop for End {
    fn drop(&mut self) {
        self.metrics.count(&self.context);
        if self.is_logged {
            return;
        }
        match self.context.audit() {
            Some(message) => access_log::audit(&self.context, message),
            None => access_log::access(&self.context),
        }
    }
}
