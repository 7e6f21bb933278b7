//! What the service says of itself: one line for each request, on standard error. For those that are
//! audited, that is the audit's.
//!
//! A line has the path, never the whole query, and never a header of the caller's: one of them is a
//! token.

use std::io::{self, IsTerminal as _};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Instant;

use axum::body::{Body, HttpBody};
use axum::extract::Request;
use axum::http::header::{ETAG, HeaderMap, HeaderName};
use axum::http::{Method, StatusCode, Uri};
use axum::response::Response;
use bytes::Bytes;
use futures::TryStreamExt as _;
use http_body::{Frame, SizeHint};
use tracing::Instrument as _;

use crate::api::error::{Damaged, Refused, value};
use crate::api::params::Params;
use crate::api::transfer;
use crate::config::LogFormat;
use crate::observe::metrics::{Ended, Metrics};

pub(crate) use crate::observe::log::AT_ONCE;
pub use crate::observe::log::Log;

/// What is known of a request while it is handled; goes with it. Clones share it.
#[derive(Clone, Default)]
pub(crate) struct Noted(Arc<Notes>);

#[derive(Default)]
struct Notes {
    id: String,
    /// Bytes that have come of its body so far.
    received: AtomicU64,
    /// Whether its line is written.
    is_told: AtomicBool,
}

const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// Starts the log, which ends with what it returns.
pub fn init(format: LogFormat) -> io::Result<Log> {
    let started = Log::start()?;
    let log = tracing_subscriber::fmt()
        .with_writer(started.lines())
        .with_ansi(io::stderr().is_terminal())
        .with_max_level(tracing::Level::INFO)
        .with_target(false);
    match format {
        LogFormat::Text => log.init(),
        LogFormat::Json => log.json().flatten_event(true).with_span_list(false).init(),
    }
    Ok(started)
}

/// Gives every request an id, which its answer and all its lines bear; and one line, and its place in
/// the figures, at its end.
pub(crate) async fn observe<F: Future<Output = Response>>(
    metrics: &Metrics,
    request: Request,
    next: impl FnOnce(Request) -> F,
) -> Response {
    let id = given_id(request.headers()).unwrap_or_else(next_id);
    let notes = Notes { id: id.clone(), ..Notes::default() };
    let line = Line {
        noted: Noted(Arc::new(notes)),
        since: Instant::now(),
        metrics: metrics.clone(),
        method: request.method().clone(),
        uri: request.uri().clone(),
        status: None,
        is_broken: false,
        is_foreign: false,
        refused: None,
        bytes_out: 0,
    };
    let span = tracing::info_span!("request", id);
    let request = counted(request, line.noted.clone());
    let mut counted = Counted { body: Body::empty(), span: span.clone(), line };
    let mut response = next(request).instrument(span).await;
    response.headers_mut().insert(REQUEST_ID, value(&id));
    counted.line.status = Some(response.status());
    counted.line.refused = response.extensions().get().map(|Refused(reason)| *reason);
    counted.line.is_broken = response.extensions().get::<Damaged>().is_some();
    counted.line.is_foreign = response.headers().get(ETAG).is_some_and(transfer::is_foreign);
    response.map(|body| {
        counted.body = body;
        Body::new(counted)
    })
}

/// Notes go with the request, and the bytes of its body are counted as they come.
fn counted(mut request: Request, noted: Noted) -> Request {
    request.extensions_mut().insert(noted.clone());
    if request.body().is_end_stream() {
        return request;
    }
    request.map(|body| {
        Body::from_stream(body.into_data_stream().inspect_ok(move |piece| {
            noted.0.received.fetch_add(piece.len() as u64, Ordering::Relaxed);
        }))
    })
}

impl Noted {
    pub(crate) fn id(&self) -> &str {
        &self.0.id
    }

    pub(crate) fn received(&self) -> u64 {
        self.0.received.load(Ordering::Relaxed)
    }

    /// Its line is written; whether it was already.
    pub(crate) fn tell(&self) -> bool {
        self.0.is_told.swap(true, Ordering::Relaxed)
    }
}

/// The beginning of a text of the caller's, in bytes: no valid name is longer, and nobody else may fill the log.
const SHORT: usize = 256;

/// The beginning of a text of the caller's.
pub(crate) fn short(text: &str) -> &str {
    &text[..text.floor_char_boundary(SHORT)]
}

/// The id that the caller, or a proxy before us, has already given to the request.
fn given_id(headers: &HeaderMap) -> Option<String> {
    let id = headers.get(REQUEST_ID)?.to_str().ok()?;
    let sane = |c: u8| c.is_ascii_alphanumeric() || b"-_.:+/=@".contains(&c);
    ((1..=128).contains(&id.len()) && id.bytes().all(sane)).then(|| id.to_owned())
}

/// Unlike any other of this process, and most likely of its replicas.
fn next_id() -> String {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let started = jiff::Timestamp::now().as_microsecond();
    format!("{started:x}-{:x}", NEXT.fetch_add(1, Ordering::Relaxed))
}

/// A body whose end, or whose being given up, ends its request.
struct Counted {
    body: Body,
    span: tracing::Span,
    line: Line,
}

/// What is said of a request.
struct Line {
    noted: Noted,
    since: Instant,
    metrics: Metrics,
    method: Method,
    uri: Uri,
    /// `None` if the caller left before there was one.
    status: Option<StatusCode>,
    is_broken: bool,
    is_foreign: bool,
    /// Why it was refused, if it was.
    refused: Option<&'static str>,
    bytes_out: u64,
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
        match &frame {
            Poll::Ready(Some(Ok(frame))) => {
                self.line.bytes_out += frame.data_ref().map_or(0, Bytes::len) as u64;
            }
            Poll::Ready(Some(Err(_))) => self.line.is_broken = true,
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

impl Drop for Line {
    fn drop(&mut self) {
        let params = Params::parse(self.uri.query().unwrap_or_default());
        let bytes_in = self.noted.received();
        let took = self.since.elapsed();
        self.metrics.note(&Ended {
            path: self.uri.path(),
            method: &self.method,
            params: &params,
            status: self.status,
            is_broken: self.is_broken,
            is_foreign: self.is_foreign,
            refused: self.refused,
            bytes_in,
            bytes_out: self.bytes_out,
            took,
        });
        if self.noted.tell() {
            return;
        }
        tracing::info!(
            id = self.noted.id(),
            method = %self.method,
            path = short(self.uri.path()),
            namespace = params.text("namespace").map(short),
            layer = params.text("layer").map(short),
            run = params.text("run").map(short),
            status = self.status.map(|status| status.as_u16()),
            bytes_in,
            bytes_out = self.bytes_out,
            ms = u64::try_from(took.as_millis()).ok(),
            "{}",
            if self.status.is_some() { "request" } else { "request left by its caller" },
        );
    }
}
