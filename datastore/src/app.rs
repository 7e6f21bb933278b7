//! Every route and every layer, on one page.

use axum::extract::{FromRef, State};
use axum::http::header::{CACHE_CONTROL, X_CONTENT_TYPE_OPTIONS};
use axum::http::{HeaderValue, StatusCode};
use axum::middleware::{from_fn, from_fn_with_state, map_response};
use axum::response::Response;
use axum::routing::get;
use axum::{Router, response::IntoResponse as _};
use tokio_util::sync::CancellationToken;

use crate::admission::{self, Admission};
use crate::auth::{self, Auth};
use crate::error::{ApiError, Cause, Route, not_found, plain};
use crate::limits::Limits;
use crate::metrics::{self, Metrics};
use crate::store::Store;
use crate::{artifacts, bundles, logs, plans, runs, telemetry};

/// What every request may use.
#[derive(Clone, Debug, FromRef)]
pub(crate) struct App {
    /// Where artifacts lie.
    pub(crate) store: Store,
    /// Who may have them.
    pub(crate) auth: Auth,
    /// How much of anything a caller may have.
    pub(crate) limits: Limits,
    /// Who is let in at once.
    pub(crate) admission: Admission,
    /// What was done so far.
    pub(crate) metrics: Metrics,
    /// Cancelled once the service is to end.
    pub(crate) shutdown: CancellationToken,
}

/// The HTTP service. A HEAD goes to the handler of the GET, which knows the difference.
pub(crate) fn router(app: App) -> Router {
    let api = Router::new()
        .route("/plans", get(plans::get).put(plans::put))
        .route("/logs", get(logs::get).put(logs::put))
        .route("/repository/revision/bundle", get(bundles::get).put(bundles::put))
        .route("/artifacts", get(artifacts::get).put(artifacts::put))
        .route("/attempts", get(runs::attempts))
        .route("/runs", get(runs::runs))
        .fallback(not_found)
        .method_not_allowed_fallback(not_found)
        .layer(from_fn_with_state(app.admission.clone(), admission::admit))
        .layer(from_fn_with_state(app.auth, auth::admit))
        .layer(map_response(for_the_caller_alone));
    Router::new()
        .route("/healthz", get(async || plain(StatusCode::OK, "OK")))
        .route("/readyz", get(readyz))
        .route("/metrics", get(metrics::metrics))
        .nest("/api", api)
        .fallback(not_found)
        .method_not_allowed_fallback(not_found)
        .layer(from_fn(admission::small_head))
        .layer(from_fn_with_state(app.metrics.clone(), telemetry::observe))
        .with_state(app)
}

/// Plans and logs hold secrets, and are what whoever wrote them says: no cache, no guessing.
async fn for_the_caller_alone(mut response: Response) -> Response {
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
