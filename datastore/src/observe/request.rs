//! One record per request: every stage fills it, and its end writes it as one line and as metrics.
//!
//! A refusal or a write gets an audit line. That one is written before the answer is sent, so that no answer
//! is without its line. Every other request gets an access line after the last byte of its answer.

use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use axum::body::{Body, HttpBody};
use axum::extract::Request;
use axum::http::header::{HeaderMap, HeaderName};
use axum::http::{HeaderValue, Method, StatusCode, Uri};
use axum::response::Response;
use bytes::Bytes;
use datastore_api::Sha256;
use futures::TryStreamExt as _;
use http_body::{Frame, SizeHint};
use tracing::Instrument as _;

use crate::api::query::RawQuery;
use crate::api::route::Route;
use crate::auth::caller::Caller;
use crate::observe::access_log;
use crate::observe::counters::Metrics;

/// What is known of a request. It travels in the request's extensions. Clones share it.
#[derive(Clone, Debug)]
pub(crate) struct RequestContext(Arc<Record>);

#[derive(Debug)]
struct Record {
    id: String,
    route: Route,
    method: Method,
    uri: Uri,
    query: RawQuery,
    started: Instant,
    caller: OnceLock<Caller>,
    sha256: OnceLock<Sha256>,
    refusal: OnceLock<&'static str>,
    /// Zero until there is an answer.
    status: AtomicU16,
    bytes_in: AtomicU64,
    bytes_out: AtomicU64,
    is_audited: AtomicBool,
    is_foreign: AtomicBool,
    is_broken: AtomicBool,
}

tokio::task_local! {
    /// For errors that become a response where no request is at hand.
    static CURRENT: RequestContext;
}

const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

impl RequestContext {
    fn new(request: &Request) -> Self {
        let (method, uri) = (request.method().clone(), request.uri().clone());
        Self(Arc::new(Record {
            id: given_id(request.headers()).unwrap_or_else(next_id),
            route: Route::of(&method, uri.path()),
            query: RawQuery::parse(uri.query().unwrap_or_default()),
            method,
            uri,
            started: Instant::now(),
            caller: OnceLock::new(),
            sha256: OnceLock::new(),
            refusal: OnceLock::new(),
            status: AtomicU16::default(),
            bytes_in: AtomicU64::default(),
            bytes_out: AtomicU64::default(),
            is_audited: AtomicBool::default(),
            is_foreign: AtomicBool::default(),
            is_broken: AtomicBool::default(),
        }))
    }

    /// Applies to the request that this task answers, if it answers one.
    pub(crate) fn with_current(fill: impl FnOnce(&Self)) {
        // Outside of a request there is nothing to fill.
        CURRENT.try_with(fill).unwrap_or_default();
    }

    pub(crate) fn id(&self) -> &str {
        &self.0.id
    }

    pub(crate) fn route(&self) -> Route {
        self.0.route
    }

    pub(crate) fn method(&self) -> &Method {
        &self.0.method
    }

    pub(crate) fn path(&self) -> &str {
        self.0.uri.path()
    }

    pub(crate) fn query(&self) -> &RawQuery {
        &self.0.query
    }

    /// Who sent it; none until it is authenticated.
    pub(crate) fn caller(&self) -> Option<&Caller> {
        self.0.caller.get()
    }

    pub(crate) fn set_caller(&self, caller: Caller) {
        // It is authenticated once.
        self.0.caller.set(caller).unwrap_or_default();
    }

    /// The digest of what it has stored.
    pub(crate) fn sha256(&self) -> Option<Sha256> {
        self.0.sha256.get().copied()
    }

    pub(crate) fn set_sha256(&self, sha256: Sha256) {
        // It stores one object.
        self.0.sha256.set(sha256).unwrap_or_default();
    }

    /// Why it was refused, as a label.
    pub(crate) fn refusal(&self) -> Option<&'static str> {
        self.0.refusal.get().copied()
    }

    pub(crate) fn set_refusal(&self, reason: &'static str) {
        // The first reason counts.
        self.0.refusal.set(reason).unwrap_or_default();
    }

    /// Whether it read what another program has stored, so that its digest is unknown.
    pub(crate) fn is_foreign(&self) -> bool {
        self.0.is_foreign.load(Ordering::Relaxed)
    }

    pub(crate) fn set_foreign(&self) {
        self.0.is_foreign.store(true, Ordering::Relaxed);
    }

    /// Whether the answer was broken off, or the stored bytes are damaged.
    pub(crate) fn is_broken(&self) -> bool {
        self.0.is_broken.load(Ordering::Relaxed)
    }

    pub(crate) fn set_broken(&self) {
        self.0.is_broken.store(true, Ordering::Relaxed);
    }

    /// Its refusal, or its write, is for the audit.
    pub(crate) fn set_audited(&self) {
        self.0.is_audited.store(true, Ordering::Relaxed);
    }

    /// None if the caller left before there was one.
    pub(crate) fn status(&self) -> Option<StatusCode> {
        StatusCode::from_u16(self.0.status.load(Ordering::Relaxed)).ok()
    }

    pub(crate) fn bytes_in(&self) -> u64 {
        self.0.bytes_in.load(Ordering::Relaxed)
    }

    pub(crate) fn bytes_out(&self) -> u64 {
        self.0.bytes_out.load(Ordering::Relaxed)
    }

    pub(crate) fn elapsed(&self) -> Duration {
        self.0.started.elapsed()
    }

    fn is_write(&self) -> bool {
        self.0.method != Method::GET && self.0.method != Method::HEAD
    }

    /// The message of its audit line, if it is due one.
    fn audit(&self) -> Option<&'static str> {
        if !self.0.is_audited.load(Ordering::Relaxed) {
            return None;
        }
        match self.status() {
            Some(status) if self.caller().is_none() || status == StatusCode::FORBIDDEN => {
                Some("audit: refused")
            }
            _ if !self.is_write() => None,
            Some(status) if status.is_success() => Some("audit: written"),
            Some(_) => Some("audit: not written"),
            // An upload that is complete is kept even if its caller does not wait for the answer.
            None => Some("audit: its caller left before the answer; it may be written"),
        }
    }
}

/// Gives a request its context, and an id that its answer and all its lines have. At its end come its line
/// and its metrics.
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
    // An id has only characters that a header may have.
    let id = HeaderValue::from_str(context.id()).unwrap_or(HeaderValue::from_static(""));
    response.headers_mut().insert(REQUEST_ID, id);
    context.0.status.store(response.status().as_u16(), Ordering::Relaxed);
    if let Some(message) = context.audit() {
        access_log::audit(&context, message);
        counted.end.is_logged = true;
    }
    response.map(|body| {
        counted.body = body;
        Body::new(counted)
    })
}

/// The context goes with the request, and the bytes of its body are counted as they come.
fn counted(mut request: Request, context: &RequestContext) -> Request {
    request.extensions_mut().insert(context.clone());
    if request.body().is_end_stream() {
        return request;
    }
    let context = context.clone();
    request.map(|body| {
        Body::from_stream(body.into_data_stream().inspect_ok(move |piece| {
            context.0.bytes_in.fetch_add(piece.len() as u64, Ordering::Relaxed);
        }))
    })
}

/// The id that the caller, or a proxy before us, has already given to the request.
fn given_id(headers: &HeaderMap) -> Option<String> {
    let id = headers.get(REQUEST_ID)?.to_str().ok()?;
    let is_allowed = |c: u8| c.is_ascii_alphanumeric() || b"-_.:+/=@".contains(&c);
    ((1..=128).contains(&id.len()) && id.bytes().all(is_allowed)).then(|| id.to_owned())
}

/// Unlike any other of this process, and most likely of its replicas.
fn next_id() -> String {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let started = jiff::Timestamp::now().as_microsecond();
    format!("{started:x}-{:x}", NEXT.fetch_add(1, Ordering::Relaxed))
}

/// The body of an answer. The request ends with it, also when it is dropped before its end.
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
                let bytes = frame.data_ref().map_or(0, Bytes::len) as u64;
                context.0.bytes_out.fetch_add(bytes, Ordering::Relaxed);
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
