//! Every route, and what each request passes on its way there, on one page.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{FromRef, Request, State};
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE, HOST, SERVER, X_CONTENT_TYPE_OPTIONS};
use axum::http::uri::Authority;
use axum::http::{HeaderValue, Method, StatusCode, Version};
use axum::response::Response;
use axum::routing::get;
use axum::{Router, response::IntoResponse as _};
use tokio::time::{Instant, timeout, timeout_at};
use tokio_util::sync::CancellationToken;
use tower::ServiceExt as _;

use crate::api::error::{ApiError, Cause, Route, not_found, plain};
use crate::api::openapi::Api;
use crate::api::{applied, artifacts, bundles, encrypt, logs, plans, runs};
use crate::auth::Gate;
use crate::observe::metrics::{self, Metrics};
use crate::observe::request;
use crate::store::Store;
use crate::store::encryption::AtRest;
use crate::transport::admission::{self, Admission};
use crate::transport::limits::Limits;
use crate::transport::server::Connections;
use crate::transport::tls::Tls;

/// What every request may use.
#[derive(Clone, Debug, FromRef)]
pub(crate) struct App {
    /// Where artifacts lie.
    pub(crate) store: Store,
    /// How they lie there.
    pub(crate) at_rest: Arc<AtRest>,
    /// Who may have them.
    pub(crate) gate: Gate,
    /// How much of anything a caller may have.
    pub(crate) limits: Limits,
    /// Who is let in at once.
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

/// Everything below `/api`, and nothing beside it: what is not here is not in the document either. A
/// HEAD goes to the handler of the GET, which knows the difference.
fn api() -> Api {
    Api::new()
        .get("/plans", plans::get, "One rendering of a run's plan; without `attempt` the latest")
        .put("/plans", plans::put, "Store one rendering of a run's plan")
        .get("/logs", logs::get, "What a run printed, line by line; without `attempt` the latest")
        .put("/logs", logs::put, "Store what a run printed")
        .get("/repository/revision/bundle", bundles::get, "The git bundle of a commit")
        .put("/repository/revision/bundle", bundles::put, "Store the git bundle of a commit")
        .get(
            "/artifacts",
            artifacts::get,
            "Another file of an attempt; without `attempt` the latest",
        )
        .put("/artifacts", artifacts::put, "Store another file of an attempt")
        .get("/attempts", runs::attempts, "The attempts of a run and their files, oldest first")
        .post("/attempts", runs::claim, "Claim an attempt, before its first file is stored")
        .get("/applied", applied::get, "The record that a plan of a layer has been applied")
        .put("/applied", applied::put, "Record that a plan has been applied, once")
        .get("/runs", runs::runs, "The runs of a layer, newest first, page by page")
        .post("/encrypt", encrypt::encrypt, "Encrypt everything that is stored in plain")
}

/// The HTTP service. Clones share it.
///
/// What every request passes is called in turn, and is no layer of the router's: there each would cost
/// a small request a dozen allocations.
#[derive(Clone)]
pub(crate) struct Service(Arc<Front>);

struct Front {
    router: Router,
    gate: Gate,
    admission: Admission,
    metrics: Metrics,
    store: Store,
    wait: Duration,
}

impl Service {
    pub(crate) fn new(app: App) -> Self {
        let (gate, admission) = (app.gate.clone(), app.admission.clone());
        let (metrics, store, wait) = (app.metrics.clone(), app.store.clone(), app.limits.wait);
        Self(Arc::new(Front { router: router(app), gate, admission, metrics, store, wait }))
    }

    pub(crate) async fn answer(&self, request: Request) -> Response {
        self.named(request, |request| self.observed(request)).await
    }

    /// Refuses a request that is not even looked at.
    pub(crate) async fn refuse(&self, request: Request, cause: Cause) -> Response {
        let route = Route::of(request.method(), request.uri().path());
        self.named(request, async |_| ApiError { route, cause }.into_response()).await
    }

    /// An answer with our name on it: clients tell by it that no proxy in between has answered.
    async fn named<F: Future<Output = Response>>(
        &self,
        request: Request,
        next: impl FnOnce(Request) -> F,
    ) -> Response {
        let mut response = request::observe(&self.0.metrics, request, next).await;
        response.headers_mut().insert(SERVER, HeaderValue::from_static("plancha"));
        response
    }

    async fn observed(&self, request: Request) -> Response {
        let until = Instant::now() + ANSWER;
        if let Err(cause) = one_host(&request).and_then(|()| admission::small_head(&request)) {
            return ApiError { route: Route::Own, cause }.into_response();
        }
        if !needs_caller(request.uri().path()) {
            return self.routed(request).await;
        }
        // What it can do decides how things are put there.
        let Front { store, wait, .. } = &*self.0;
        if timeout(*wait, store.tried()).await.is_err() {
            let cause = Cause::NotReady("it is still being tried".to_owned());
            let route = Route::of(request.method(), request.uri().path());
            return ApiError { route, cause }.into_response();
        }
        let routed = |request| self.routed_until(request, until);
        let admitted = |request| self.0.admission.admit(request, routed);
        for_the_caller_alone(self.0.gate.admit(request, admitted).await)
    }

    /// The answer, or that there is none in time. An upload has a pace of its own, and so has `/api/encrypt`, which
    /// goes through the whole storage.
    async fn routed_until(&self, request: Request, until: Instant) -> Response {
        let (method, path) = (request.method(), request.uri().path());
        if method == Method::PUT || path == ENCRYPT {
            return self.routed(request).await;
        }
        let route = Route::of(method, path);
        timeout_at(until, self.routed(request)).await.unwrap_or_else(|_| {
            let cause = Cause::NotReady("it does not answer".to_owned());
            ApiError { route, cause }.into_response()
        })
    }

    async fn routed(&self, request: Request) -> Response {
        let Ok(response) = self.0.router.clone().oneshot(request).await;
        response
    }
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
    value.is_empty() || !value.contains(&b'@') && Authority::try_from(value).is_ok()
}

/// Whether somebody asks only whether the service is alive.
pub(crate) fn is_probe(path: &str) -> bool {
    ["/healthz", "/readyz"].contains(&path)
}

/// Everything below `/api` but its own description, whether or not it is there.
fn needs_caller(path: &str) -> bool {
    let below = path.strip_prefix(API);
    below.is_some_and(|below| below.is_empty() || below.starts_with('/')) && path != DOCUMENT
}

fn router(app: App) -> Router {
    let (api, document) = api().finish(&OUTSIDE);
    api.route("/healthz", get(async || plain(StatusCode::OK, "OK")))
        .route("/readyz", get(readyz))
        .route("/metrics", get(metrics::metrics))
        .route(DOCUMENT, get(async || json(document)))
        .fallback(not_found)
        .method_not_allowed_fallback(not_found)
        .with_state(app)
}

/// From a request to the head of its answer, if the storage is slow.
const ANSWER: Duration = Duration::from_secs(19);
/// Encrypts everything.
const ENCRYPT: &str = "/api/encrypt";
/// What callers must be known for lies below it.
pub(crate) const API: &str = "/api";
const DOCUMENT: &str = "/api/openapi.json";

/// Routes without a query, and without a caller: path, what it answers, and what that is.
const OUTSIDE: [(&str, &str, &str); 4] = [
    ("/healthz", "text/plain", "Whether it runs"),
    ("/readyz", "text/plain", "Whether the storage answers; 503 if not, and after SIGTERM"),
    ("/metrics", "text/plain", "What was done so far, for Prometheus"),
    (DOCUMENT, "application/json", "This document"),
];

fn json(text: String) -> Response {
    ([(CONTENT_TYPE, "application/json")], text).into_response()
}

/// Plans and logs hold secrets, and are what whoever wrote them says: no cache, no guessing.
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
        Err(cause) => ApiError { route: Route::Own, cause }.into_response(),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::auth::Auth;
    use crate::store::Storage;
    use crate::transport::memory::Memory;

    /// Who tries every route takes them from the document, so none may be missing there.
    #[tokio::test]
    async fn every_route_is_in_the_document() {
        let store = Store::open(&Storage::Memory).unwrap();
        let limits = Limits::default();
        let whole = router(App {
            at_rest: Arc::default(),
            gate: Gate::open(Auth::None).await.unwrap(),
            admission: Admission::new(&limits, &store, Memory::unlimited()),
            limits,
            metrics: Metrics::default(),
            connections: Connections::new(1),
            tls: None,
            encrypting: encrypt::EncryptLock::default(),
            shutdown: CancellationToken::new(),
            store,
        });
        // Nothing but its picture shows the routes of a router.
        let picture = format!("{whole:?}");
        let routes = picture
            .split("RouteId(")
            .filter_map(|rest| rest.split_once("): \"")?.1.split_once('"'))
            .map(|(path, _)| path)
            // What is left over goes here.
            .filter(|path| !path.contains("__private__") && *path != "/");
        let (_, document) = api().finish(&OUTSIDE);
        let document: serde_json::Value = serde_json::from_str(&document).unwrap();
        let described = document["paths"].as_object().unwrap().keys().map(String::as_str);
        assert_eq!(routes.collect::<BTreeSet<_>>(), described.collect());
    }
}
