//! Every route, and what each request passes on its way there, on one page.

use std::net::Ipv6Addr;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{FromRef, Request, State};
use axum::http::header::{
    CACHE_CONTROL, CONTENT_TYPE, HOST, SERVER, TRANSFER_ENCODING, X_CONTENT_TYPE_OPTIONS,
};
use axum::http::uri::Authority;
use axum::http::{HeaderValue, StatusCode, Version};
use axum::response::Response;
use axum::routing::get;
use axum::{Router, response::IntoResponse as _};
use tokio::time::{Instant, timeout, timeout_at};
use tokio_util::sync::CancellationToken;
use tower::ServiceExt as _;

use crate::api::error::{Cause, not_found, plain};
use crate::api::openapi::Api;
use crate::api::route::Route;
use crate::api::{applied, artifacts, bundles, encrypt, logs, plans, runs};
use crate::auth::Authenticator;
use crate::observe::context::RequestContext;
use crate::observe::counters::Metrics;
use crate::observe::{metrics, request};
use crate::store::Store;
use crate::store::encryption::AtRest;
use crate::transport::admission::Admission;
use crate::transport::connections::Connections;
use crate::transport::limits::{HEAD, Limits};
use crate::transport::tls::Tls;

/// What every request may use.
#[derive(Clone, Debug, FromRef)]
pub(crate) struct App {
    /// Stores artifacts.
    pub(crate) store: Store,
    /// How they are encrypted.
    pub(crate) at_rest: Arc<AtRest>,
    /// Authenticates callers.
    pub(crate) authenticator: Authenticator,
    /// How much of anything a caller may have.
    pub(crate) limits: Limits,
    /// Gives memory to transfers.
    pub(crate) admission: Admission,
    /// What was done so far.
    pub(crate) metrics: Metrics,
    /// Those that are open.
    pub(crate) connections: Connections,
    /// The certificate, if it speaks TLS.
    pub(crate) tls: Option<Tls>,
    /// Held by the request that encrypts.
    pub(crate) encrypting: encrypt::EncryptLock,
    /// Cancelled once the service is to end.
    pub(crate) shutdown: CancellationToken,
}

/// Every route below `/api`, and its description. A HEAD goes to the handler of the GET, which handles both.
fn api() -> Api<App> {
    use Route::{
        Attempts, ClaimAttempt, Encrypt, GetApplied, GetArtifact, GetBundle, GetLogs, GetPlan,
        PutApplied, PutArtifact, PutBundle, PutLogs, PutPlan, Runs,
    };
    Api::new()
        .route(GetPlan, plans::get, "One rendering of a run's plan; without `attempt` the latest")
        .route(PutPlan, plans::put, "Store one rendering of a run's plan")
        .route(GetLogs, logs::get, "What a run printed, line by line; without `attempt` the latest")
        .route(PutLogs, logs::put, "Store what a run printed")
        .route(GetBundle, bundles::get, "The git bundle of a commit")
        .route(PutBundle, bundles::put, "Store the git bundle of a commit")
        .route(
            GetArtifact,
            artifacts::get,
            "Another file of an attempt; without `attempt` the latest",
        )
        .route(PutArtifact, artifacts::put, "Store another file of an attempt")
        .route(Attempts, runs::attempts, "The attempts of a run and their files, oldest first")
        .route(ClaimAttempt, runs::claim, "Claim an attempt, before its first file is stored")
        .route(GetApplied, applied::get, "The record that a plan of a layer has been applied")
        .route(PutApplied, applied::put, "Record that a plan has been applied, once")
        .route(Runs, runs::runs, "The runs of a layer, newest first, page by page")
        .route(Encrypt, encrypt::encrypt, "Encrypt everything that is stored in plain")
}

/// The HTTP service. Clones share it.
///
/// The stages that every request passes are called in turn. They are no layers of the router: there each would
/// cost a small request a dozen allocations.
#[derive(Clone)]
pub(crate) struct Service(Arc<Stages>);

struct Stages {
    router: Router,
    authenticator: Authenticator,
    admission: Admission,
    metrics: Metrics,
    store: Store,
    wait: Duration,
}

impl Service {
    pub(crate) fn new(app: App) -> Self {
        let (authenticator, admission) = (app.authenticator.clone(), app.admission.clone());
        let (metrics, store, wait) = (app.metrics.clone(), app.store.clone(), app.limits.wait);
        let router = router(app);
        Self(Arc::new(Stages { router, authenticator, admission, metrics, store, wait }))
    }

    pub(crate) async fn answer(&self, request: Request) -> Response {
        self.instrumented(request, |request, context| self.checked(request, context)).await
    }

    /// Refuses a request without reading it.
    pub(crate) async fn refuse(&self, request: Request, cause: Cause) -> Response {
        self.instrumented(request, async |_, context| refusal(context.route(), cause)).await
    }

    /// An answer with our name on it: clients see by it that no proxy in between has answered.
    async fn instrumented<F: Future<Output = Response>>(
        &self,
        request: Request,
        next: impl FnOnce(Request, RequestContext) -> F,
    ) -> Response {
        let mut response = request::instrument(&self.0.metrics, request, next).await;
        response.headers_mut().insert(SERVER, HeaderValue::from_static("plancha"));
        response
    }

    /// What every request passes below its instrumentation.
    async fn checked(&self, request: Request, context: RequestContext) -> Response {
        let deadline = Instant::now() + ANSWER;
        let checked = one_host(&request)
            .and_then(|()| decodable(&request))
            .and_then(|()| small_head(&request));
        if let Err(cause) = checked {
            // A head that is refused like this is not trusted about its route either.
            return refusal(Route::Unknown, cause);
        }
        let route = context.route();
        if !route.needs_caller(context.path()) {
            return self.routed(request).await;
        }
        // What the storage can do decides how objects are put there.
        let Stages { store, wait, authenticator, admission, .. } = &*self.0;
        if timeout(*wait, store.tried()).await.is_err() {
            return refusal(route, Cause::NotReady("it is still being tried".to_owned()));
        }
        context.set_audited();
        let routed = |request| self.routed_until(request, route, deadline);
        let admitted = async |request| {
            let response = admission.admit(request, &context, routed).await;
            response.unwrap_or_else(|busy| refusal(route, busy.into()))
        };
        for_the_caller_alone(authenticator.admit(request, &context, admitted).await)
    }

    /// The answer, or that there is none in time.
    async fn routed_until(&self, request: Request, route: Route, deadline: Instant) -> Response {
        if !route.has_deadline() {
            return self.routed(request).await;
        }
        timeout_at(deadline, self.routed(request))
            .await
            .unwrap_or_else(|_| refusal(route, Cause::NotReady("it does not answer".to_owned())))
    }

    async fn routed(&self, request: Request) -> Response {
        let Ok(response) = self.0.router.clone().oneshot(request).await;
        response
    }
}

fn refusal(route: Route, cause: Cause) -> Response {
    route.error()(cause).into_response()
}

/// Refuses a request whose line and headers are longer than any of ours.
fn small_head(request: &Request) -> Result<(), Cause> {
    let headers = request.headers().iter().map(|(name, value)| name.as_str().len() + value.len());
    let path = request.uri().path_and_query().map_or(0, |path| path.as_str().len());
    if headers.sum::<usize>() + path > HEAD {
        return Err(Cause::Head);
    }
    Ok(())
}

/// Refuses a request of HTTP/1.1 without a `Host`, any with two, and one that is no host and port: a proxy before
/// us may have read another.
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

/// Whether a header holds a host and perhaps a port, and nothing else.
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

fn router(app: App) -> Router {
    let (api, document) = api().finish(&PUBLIC);
    api.route(Route::Healthz.path(), get(async || plain(StatusCode::OK, "OK")))
        .route(Route::Readyz.path(), get(readyz))
        .route(Route::Metrics.path(), get(metrics::metrics))
        .route(Route::OpenApi.path(), get(async || json(document)))
        .fallback(not_found)
        .method_not_allowed_fallback(not_found)
        .with_state(app)
}

/// From a request to the head of its answer, if the storage is slow.
const ANSWER: Duration = Duration::from_secs(19);

/// Routes without a query and without a caller: the content of their answers, and what that is.
const PUBLIC: [(Route, &str, &str); 4] = [
    (Route::Healthz, "text/plain", "Whether it runs"),
    (Route::Readyz, "text/plain", "Whether the storage answers; 503 if not, and after SIGTERM"),
    (Route::Metrics, "text/plain", "What was done so far, for Prometheus"),
    (Route::OpenApi, "application/json", "This document"),
];

fn json(text: String) -> Response {
    ([(CONTENT_TYPE, "application/json")], text).into_response()
}

/// Plans and logs hold secrets, and any caller may have written them: no cache, no guessing of their type.
fn for_the_caller_alone(mut response: Response) -> Response {
    let headers = response.headers_mut();
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

async fn readyz(State(store): State<Store>, State(shutdown): State<CancellationToken>) -> Response {
    let ready = if shutdown.is_cancelled() {
        Err(Cause::Draining)
    } else {
        store.ready().await.map_err(Cause::NotReady)
    };
    match ready {
        Ok(()) => plain(StatusCode::OK, "OK"),
        Err(cause) => refusal(Route::Readyz, cause),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::auth::Auth;
    use crate::store::Storage;
    use crate::transport::memory::Memory;

    /// Tests of every route take them from the document, so none may be missing there.
    #[tokio::test]
    async fn every_route_is_in_the_document() {
        let store = Store::open(&Storage::Memory).unwrap();
        let limits = Limits::default();
        let whole = router(App {
            at_rest: Arc::default(),
            authenticator: Authenticator::open(Auth::None).await.unwrap(),
            admission: Admission::new(&limits, &store, Memory::unlimited()),
            limits,
            metrics: Metrics::default(),
            connections: Connections::new(1),
            tls: None,
            encrypting: encrypt::EncryptLock::default(),
            shutdown: CancellationToken::new(),
            store,
        });
        // Only the debug output shows the routes of a router.
        let debug = format!("{whole:?}");
        let routes = debug
            .split("RouteId(")
            .filter_map(|rest| rest.split_once("): \"")?.1.split_once('"'))
            .map(|(path, _)| path)
            // The fallback.
            .filter(|path| !path.contains("__private__") && *path != "/");
        let (_, document) = api().finish(&PUBLIC);
        let document: serde_json::Value = serde_json::from_str(&document).unwrap();
        let described = document["paths"].as_object().unwrap().keys().map(String::as_str);
        assert_eq!(routes.collect::<BTreeSet<_>>(), described.collect());
    }
}
