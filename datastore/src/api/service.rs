//! What every request passes, in order, before and after its handler.
//!
//! These are calls, not layers of `tower`: a layer from a function costs three allocations for each request.

use std::net::Ipv6Addr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::Request;
use axum::http::header::{
    CACHE_CONTROL, CONTENT_LENGTH, CONTENT_SECURITY_POLICY, HOST, SERVER, TRANSFER_ENCODING,
    X_CONTENT_TYPE_OPTIONS,
};
use axum::http::uri::Authority;
use axum::http::{HeaderValue, StatusCode, Version};
use axum::response::{IntoResponse as _, Response};
use tokio::time::timeout;
use tower::ServiceExt as _;

use crate::api::error::Cause;
use crate::api::route::Route;
use crate::api::router::{App, router};
use crate::auth::Authenticator;
use crate::observe::context::RequestContext;
use crate::observe::counters::Metrics;
use crate::observe::request::instrument;
use crate::store::Store;
use crate::transport::admission::Admission;
use crate::transport::limits::HEAD;

/// From the head of a request to the head of its answer, if the storage is slow.
const ANSWER: Duration = Duration::from_secs(19);

/// What a browser may do with an answer that it shows: nothing.
const SANDBOX: &str = "default-src 'none'; sandbox; frame-ancestors 'none'";

/// The HTTP service. Clones share it.
#[derive(Clone)]
pub(crate) struct Service(Arc<Stages>);

/// What the stages of a request use.
struct Stages {
    metrics: Metrics,
    store: Store,
    /// How long a request waits until the storage has been tried.
    wait: Duration,
    authenticator: Authenticator,
    admission: Admission,
    router: Router,
}

/// Marks a request that came over a connection beyond the limit.
#[derive(Clone)]
struct Crowded;

impl Service {
    pub(crate) fn new(app: App) -> Self {
        Self(Arc::new(Stages {
            metrics: app.metrics.clone(),
            store: app.store.clone(),
            wait: app.limits.wait,
            authenticator: app.authenticator.clone(),
            admission: app.admission.clone(),
            router: router(app),
        }))
    }

    pub(crate) async fn answer(&self, request: Request) -> Response {
        let stages = &self.0;
        let check = |request, context| stages.check(request, context);
        finish(instrument(&stages.metrics, request, check).await)
    }

    /// Refuses a request without reading it: there is no connection left for it.
    pub(crate) async fn refuse_crowded(&self, mut request: Request) -> Response {
        request.extensions_mut().insert(Crowded);
        self.answer(request).await
    }
}

impl Stages {
    /// Refuses a request for its connection or its head.
    async fn check(&self, request: Request, context: RequestContext) -> Response {
        if let Some(Crowded) = request.extensions().get() {
            return refusal(context.route(), Cause::Crowded);
        }
        if let Err(cause) = check_head(&request) {
            // A head that is refused like this is not trusted about its route either.
            return refusal(Route::Unknown, cause);
        }
        if context.needs_caller() {
            self.authenticate(request, &context).await
        } else {
            self.handle(request).await
        }
    }

    async fn authenticate(&self, request: Request, context: &RequestContext) -> Response {
        // What the storage can do decides how objects are put there: no request uses it before that is known.
        let Self { store, wait, .. } = self;
        if !store.is_tried() && timeout(*wait, store.tried()).await.is_err() {
            return refusal(context.route(), Cause::NotReady("it is still being tried".to_owned()));
        }
        context.set_audited();
        let next = |request| self.admit(request, context);
        private(self.authenticator.admit(request, context, store, next).await)
    }

    /// Waits for the memory that the transfer needs.
    async fn admit(&self, request: Request, context: &RequestContext) -> Response {
        let next = |request| self.limit_time(request, context);
        let admitted = self.admission.admit(request, context, next).await;
        admitted.unwrap_or_else(|busy| refusal(context.route(), busy.into()))
    }

    /// Refuses a request whose handler does not answer in time.
    async fn limit_time(&self, request: Request, context: &RequestContext) -> Response {
        if !context.route().has_deadline() {
            return self.handle(request).await;
        }
        let left = ANSWER.saturating_sub(context.elapsed());
        let late = |_| refusal(context.route(), Cause::NotReady("it does not answer".to_owned()));
        timeout(left, self.handle(request)).await.unwrap_or_else(late)
    }

    async fn handle(&self, request: Request) -> Response {
        let Ok(response) = self.router.clone().oneshot(request).await;
        response
    }
}

/// Sets and removes what concerns every response.
fn finish(mut response: Response) -> Response {
    // By this header clients see that no proxy in between has answered.
    response.headers_mut().insert(SERVER, HeaderValue::from_static("plancha"));
    if response.status() == StatusCode::NOT_MODIFIED {
        // It would be the length of the artifact, and axum inserts that of the empty body.
        response.headers_mut().remove(CONTENT_LENGTH);
    }
    response
}

fn check_head(request: &Request) -> Result<(), Cause> {
    one_host(request).and_then(|()| decodable(request)).and_then(|()| small_head(request))
}

/// Plans and logs hold secrets, and any caller may have written them: no cache, no guessing of their type, and a browser that
/// shows one runs nothing of it.
fn private(mut response: Response) -> Response {
    let headers = response.headers_mut();
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static(SANDBOX));
    response
}

fn refusal(route: Route, cause: Cause) -> Response {
    route.error()(cause).into_response()
}

/// Refuses a request whose line and headers exceed [`HEAD`].
fn small_head(request: &Request) -> Result<(), Cause> {
    let headers = request.headers().iter().map(|(name, value)| name.as_str().len() + value.len());
    let path = request.uri().path_and_query().map_or(0, |path| path.as_str().len());
    if headers.sum::<usize>() + path > HEAD {
        return Err(Cause::Head);
    }
    Ok(())
}

/// Refuses a request of HTTP/1.1 without a `Host` header, and any request with two of them or an invalid one, because
/// a proxy before us may have used another host.
fn one_host(request: &Request) -> Result<(), Cause> {
    let mut hosts = request.headers().get_all(HOST).iter();
    let (host, others) = (hosts.next(), hosts.count());
    match host {
        None if request.version() < Version::HTTP_11 => Ok(()),
        None => Err(Cause::Host(0)),
        Some(_) if others > 0 => Err(Cause::Host(1 + others)),
        Some(host) if is_host(host.as_bytes()) => Ok(()),
        Some(_) => Err(Cause::NoHost),
    }
}

/// Whether a header is a host, or a host and a port.
fn is_host(value: &[u8]) -> bool {
    let Some(text) = str::from_utf8(value).ok().filter(|_| Authority::try_from(value).is_ok())
    else {
        return false;
    };
    let end = text.rfind(']').map_or(0, |end| end + 1);
    let (host, port) = match text[end..].rsplit_once(':') {
        Some((_, port)) => (&text[..text.len() - port.len() - 1], Some(port)),
        None => (text, None),
    };
    let is_name = |name: &str| {
        !name.is_empty() && name.bytes().all(|c| c.is_ascii_alphanumeric() || b"-._~".contains(&c))
    };
    let is_v6 = |host: &str| {
        let address = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
        address.is_some_and(|address| address.parse::<Ipv6Addr>().is_ok())
    };
    let is_port = |port: &str| {
        port.bytes().all(|c| c.is_ascii_digit()) && port.parse::<u16>().is_ok_and(|port| port > 0)
    };
    (is_name(host) || is_v6(host)) && port.is_none_or(is_port)
}

/// Refuses a body in a transfer coding other than `chunked`, which would be stored undecoded.
fn decodable(request: &Request) -> Result<(), Cause> {
    let mut codings = request.headers().get_all(TRANSFER_ENCODING).iter();
    match (codings.next(), codings.next()) {
        (None, _) => Ok(()),
        (Some(coding), None) if coding.as_bytes().eq_ignore_ascii_case(b"chunked") => Ok(()),
        _ => Err(Cause::Coding),
    }
}
