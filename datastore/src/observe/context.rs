//! The record of a request: created at its start, filled by each stage, written at its end.

use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use axum::extract::Request;
use axum::http::header::{HeaderMap, HeaderName};
use axum::http::{Method, StatusCode, Uri};
use datastore_api::Sha256;
use tokio_util::sync::CancellationToken;

use crate::api::query::RawQuery;
use crate::api::route::Route;
use crate::auth::caller::Caller;
use crate::observe::refusal::Refusal;

/// The record of a request. It travels in the request's extensions. Clones share it.
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
    refusal: OnceLock<Refusal>,
    /// 0 until the request is answered.
    status: AtomicU16,
    bytes_in: AtomicU64,
    bytes_out: AtomicU64,
    is_audited: AtomicBool,
    is_foreign: AtomicBool,
    is_broken: AtomicBool,
    is_resumed: AtomicBool,
    drain_timeout: Option<DrainTimeout>,
}

/// In the extensions of a request: cancelled when the drain timeout aborts its connection.
#[derive(Clone, Debug)]
pub(crate) struct DrainTimeout(pub(crate) Arc<CancellationToken>);

tokio::task_local! {
    /// For errors, which become a response where the request is not available.
    pub(super) static CURRENT: RequestContext;
}

pub(super) const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

impl RequestContext {
    pub(super) fn new(request: &Request) -> Self {
        let (method, uri) = (request.method().clone(), request.uri().clone());
        let route = Route::of(&method, uri.path());
        let mut query = RawQuery::parse(uri.query().unwrap_or_default());
        // A parameter of the path that the query has as well is then given twice, which is refused.
        for (name, value) in route.path_parameters(uri.path()) {
            query.add(name, &value);
        }
        Self(Arc::new(Record {
            id: given_id(request.headers()).unwrap_or_else(next_id),
            route,
            query,
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
            is_resumed: AtomicBool::default(),
            drain_timeout: request.extensions().get().cloned(),
        }))
    }

    /// Calls `fill` with the request that this task answers, if any.
    pub(crate) fn with_current(fill: impl FnOnce(&Self)) {
        // Nothing to do outside of a request.
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

    /// Whether its caller must authenticate.
    pub(crate) fn needs_caller(&self) -> bool {
        self.0.route.needs_caller(self.path())
    }

    pub(crate) fn query(&self) -> &RawQuery {
        &self.0.query
    }

    /// The caller, once it is authenticated.
    pub(crate) fn caller(&self) -> Option<&Caller> {
        self.0.caller.get()
    }

    pub(crate) fn set_caller(&self, caller: Caller) {
        // A request is authenticated once.
        self.0.caller.set(caller).unwrap_or_default();
    }

    /// The digest of the object that the request stored.
    pub(crate) fn sha256(&self) -> Option<Sha256> {
        self.0.sha256.get().copied()
    }

    pub(crate) fn set_sha256(&self, sha256: Sha256) {
        // A request stores one object.
        self.0.sha256.set(sha256).unwrap_or_default();
    }

    /// Why the request was refused.
    pub(crate) fn refusal(&self) -> Option<Refusal> {
        self.0.refusal.get().copied()
    }

    pub(crate) fn set_refusal(&self, reason: Refusal) {
        // The first reason counts.
        self.0.refusal.set(reason).unwrap_or_default();
    }

    /// Whether the request read an object that another program stored, without a known digest.
    pub(crate) fn is_foreign(&self) -> bool {
        self.0.is_foreign.load(Ordering::Relaxed)
    }

    pub(crate) fn set_foreign(&self) {
        self.0.is_foreign.store(true, Ordering::Relaxed);
    }

    /// Whether the answer was broken off, or the stored bytes have changed.
    pub(crate) fn is_broken(&self) -> bool {
        let is = |flag: &AtomicBool| flag.load(Ordering::Relaxed);
        is(&self.0.is_broken) && !is(&self.0.is_resumed)
    }

    /// Its answer may break off without a failure: its reader then resumes it.
    pub(crate) fn set_resumed(&self) {
        self.0.is_resumed.store(true, Ordering::Relaxed);
    }

    pub(crate) fn set_broken(&self) {
        self.0.is_broken.store(true, Ordering::Relaxed);
    }

    /// The request gets an audit line if it is refused or writes.
    pub(crate) fn set_audited(&self) {
        self.0.is_audited.store(true, Ordering::Relaxed);
    }

    /// Whether the drain timeout has aborted the connection, if the request has not ended before.
    pub(crate) fn is_aborted(&self) -> bool {
        self.0.drain_timeout.as_ref().is_some_and(|timeout| timeout.0.is_cancelled())
    }

    /// `None` if the connection was closed before the answer.
    pub(crate) fn status(&self) -> Option<StatusCode> {
        StatusCode::from_u16(self.0.status.load(Ordering::Relaxed)).ok()
    }

    pub(super) fn set_status(&self, status: StatusCode) {
        self.0.status.store(status.as_u16(), Ordering::Relaxed);
    }

    pub(crate) fn bytes_in(&self) -> u64 {
        self.0.bytes_in.load(Ordering::Relaxed)
    }

    pub(crate) fn bytes_out(&self) -> u64 {
        self.0.bytes_out.load(Ordering::Relaxed)
    }

    pub(super) fn add_bytes_in(&self, bytes: usize) {
        self.0.bytes_in.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    pub(super) fn add_bytes_out(&self, bytes: usize) {
        self.0.bytes_out.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    pub(crate) fn elapsed(&self) -> Duration {
        self.0.started.elapsed()
    }

    fn is_write(&self) -> bool {
        self.0.method != Method::GET && self.0.method != Method::HEAD
    }

    /// The message of the audit line, if the request gets one.
    pub(super) fn audit(&self) -> Option<&'static str> {
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
            None if self.is_aborted() => {
                Some("audit: the drain timeout ended it before the answer; it may be written")
            }
            // A complete upload is kept even if its caller does not wait for the answer.
            None => Some("audit: its caller left before the answer; it may be written"),
        }
    }
}

/// The id that the caller, or a proxy before us, gave to the request.
fn given_id(headers: &HeaderMap) -> Option<String> {
    let id = headers.get(REQUEST_ID)?.to_str().ok()?;
    let is_allowed = |c: u8| c.is_ascii_alphanumeric() || b"-_.:+/=@".contains(&c);
    ((1..=128).contains(&id.len()) && id.bytes().all(is_allowed)).then(|| id.to_owned())
}

/// An id that no other request of this process has, and most likely none of its replicas.
fn next_id() -> String {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let started = jiff::Timestamp::now().as_microsecond();
    format!("{started:x}-{:x}", NEXT.fetch_add(1, Ordering::Relaxed))
}
