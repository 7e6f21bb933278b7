//! Every route with its handler, on one page. [`crate::api::service`] has what each request passes before them.

use std::sync::Arc;

use axum::Router;
use axum::extract::{FromRef, State};
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse as _, Response};
use axum::routing::{get, post};
use tokio_util::sync::CancellationToken;

use crate::api::error::{ApiError, Cause, not_found, plain, unknown_path};
use crate::api::handlers::{
    applied, approvals, artifacts, bundles, changes, documents, encrypt, layer_metrics, layers,
    leases, logs, plans, runs, state, states,
};
use crate::api::openapi::OtherAnswer::{Content, Redirect};
use crate::api::openapi::{Api, Other};
use crate::api::route::Route;
use crate::api::sign_in;
use crate::auth::Authenticator;
use crate::observe::counters::Metrics;
use crate::observe::metrics;
use crate::store::Store;
use crate::store::encryption::AtRest;
use crate::transport::admission::Admission;
use crate::transport::connections::Connections;
use crate::transport::limits::Limits;
use crate::transport::tls::Tls;
use crate::ui;

/// The state that handlers and stages use.
#[derive(Debug)]
pub(crate) struct App {
    /// Stores artifacts.
    pub(crate) store: Store,
    /// How they are encrypted.
    pub(crate) at_rest: Arc<AtRest>,
    /// Authenticates callers.
    pub(crate) authenticator: Authenticator,
    /// Limits of requests, transfers and connections.
    pub(crate) limits: Limits,
    /// Gives memory to transfers.
    pub(crate) admission: Admission,
    /// Counts requests.
    pub(crate) metrics: Metrics,
    /// The open connections.
    pub(crate) connections: Connections,
    /// The certificate, with TLS.
    pub(crate) tls: Option<Tls>,
    /// Held by the request that encrypts.
    pub(crate) encrypting: encrypt::EncryptLock,
    /// Statuses that could not be read.
    pub(crate) status_errors: layer_metrics::StatusErrors,
    /// Whether the page for people is served.
    pub(crate) ui: bool,
    /// Cancelled when the service shuts down.
    pub(crate) shutdown: CancellationToken,
}

/// The state of the router, which copies it several times for each request.
#[derive(Clone, Debug)]
struct Shared(Arc<App>);

/// Handlers extract single fields of [`App`].
macro_rules! extract {
    ($($field:ident: $type:ty,)*) => { $(
        impl FromRef<Shared> for $type {
            fn from_ref(shared: &Shared) -> Self {
                shared.0.$field.clone()
            }
        }
    )* };
}

extract! {
    store: Store,
    at_rest: Arc<AtRest>,
    authenticator: Authenticator,
    limits: Limits,
    admission: Admission,
    metrics: Metrics,
    connections: Connections,
    tls: Option<Tls>,
    encrypting: encrypt::EncryptLock,
    status_errors: layer_metrics::StatusErrors,
    shutdown: CancellationToken,
}

/// Every route below `/api`, with the summary for its description. The handler of a GET also handles HEAD.
fn api() -> Api<Shared> {
    use Route::{
        AppendLogs, Attempts, ClaimAttempt, DeleteState, Encrypt, GetApplied, GetArtifact,
        GetBundle, GetLease, GetLogs, GetPlan, GetState, GetTool, PostState, PutApplied,
        PutArtifact, PutBundle, PutLogs, PutPlan, PutSnapshot, PutTool, ReleaseLease, RemoveLock,
        RenewLease, RestoreState, Runs, States, TakeLease, UndeleteState,
    };
    let api = Api::new()
        .route(GetPlan, plans::get, "One rendering of a run's plan; without `attempt` the latest")
        .route(PutPlan, plans::put, "Store one rendering of a run's plan")
        .route(
            GetLogs,
            logs::get,
            "The log of a run, as an array of lines; without `attempt` the latest",
        )
        .route(PutLogs, logs::put, "Store the log of a run")
        .route(AppendLogs, logs::append::append, "Append to the log of a run that works")
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
        .route(Encrypt, encrypt::encrypt, "Encrypt every object that is not encrypted yet")
        .route(GetState, state::get, "A state, as terraform's and tofu's backend `http` reads it")
        .route(PostState, state::post, "Write a state")
        .route(DeleteState, state::delete, "Delete a state; its versions stay for 30 days")
        .locks(
            (state::lock, "Lock a state"),
            (state::unlock, "Unlock a state; without a body any lock whose holder is gone"),
        )
        .route(States, states::list, "The versions of a state, newest first, page by page")
        .route(PutSnapshot, states::snapshot, "Store a copy of a state that is kept elsewhere")
        .route(RestoreState, states::restore, "Make an old version the state again")
        .route(RemoveLock, states::remove_lock, "Remove the lock with this ID")
        .route(UndeleteState, states::undelete, "Undo the deletion of a state")
        .route(GetLease, leases::get, "The lease of a layer, also an expired one")
        .route(TakeLease, leases::take, "Take the lease of a layer")
        .route(RenewLease, leases::renew, "Renew a lease")
        .route(ReleaseLease, leases::release, "Release a lease")
        .route(GetTool, leases::get_tool, "The tool that works with the states of a layer")
        .route(PutTool, leases::put_tool, "Record the tool that works with the states of a layer");
    of_layers(api)
}

/// The routes of documents of layers, of lists, and of approvals.
fn of_layers(api: Api<Shared>) -> Api<Shared> {
    use Route::{
        Approvals, Changes, ClaimApproval, DeleteDocument, GetDocument, LayerMetrics, Layers,
        Namespaces, OfferApproval, PutDocument, Statuses,
    };
    api.route(GetDocument, documents::get, "A document of a layer, such as its status")
        .route(
            PutDocument,
            documents::put,
            "Store a document of a layer in place of an earlier one",
        )
        .route(DeleteDocument, documents::delete, "Delete a document of a layer")
        .route(Statuses, documents::statuses, "The statuses of the layers of a namespace, by page")
        .route(
            LayerMetrics,
            layer_metrics::get,
            "The statuses of a namespace as metrics, in the text format of Prometheus",
        )
        .route(
            Namespaces,
            layers::namespaces,
            "The namespaces in which the caller may list runs, by page",
        )
        .route(Layers, layers::layers, "The layers of a namespace with their last runs, by page")
        .route(
            Changes,
            changes::get,
            "The changes of a plan, without sensitive values; without `attempt` the latest",
        )
        .route(Approvals, approvals::list, "The offers of a layer and their use, newest first")
        .route(
            OfferApproval,
            approvals::offer,
            "Offer destructive changes for an approval; the same offer while it is open",
        )
        .route(ClaimApproval, approvals::claim, "Use an approval up, once")
}

/// Every route, below what each request passes before it ([`crate::api::service`]).
pub(super) fn router(app: App) -> Router {
    let (api, document) = api().finish(&PUBLIC);
    let api = if app.ui { ui::add_routes(api) } else { api };
    api.route(Route::Healthz.path(), get(async || plain(StatusCode::OK, "OK")))
        .route(Route::Readyz.path(), get(readyz))
        .route(Route::Metrics.path(), get(metrics::metrics))
        .route(Route::OpenApi.path(), get(async || json(document)))
        .route(Route::SignIn.path(), get(sign_in::show).post(sign_in::sign_in))
        .route(Route::SignOut.path(), post(sign_in::sign_out))
        .route(Route::SignInAtIssuer.path(), get(sign_in::begin))
        .route(Route::SignInCallback.path(), get(sign_in::finish))
        .fallback(unknown_path)
        .method_not_allowed_fallback(not_found)
        .with_state(Shared(Arc::new(app)))
}

/// Routes without a caller.
const PUBLIC: [Other; 9] = [
    Other(Route::Healthz, Content("text/plain"), "Whether the process runs"),
    Other(
        Route::Readyz,
        Content("text/plain"),
        "Whether the storage answers; 503 if not, and after SIGTERM",
    ),
    Other(Route::Metrics, Content("text/plain"), "Metrics in the text format of Prometheus"),
    Other(Route::OpenApi, Content("application/json"), "This document"),
    Other(Route::SignIn, Content("text/html"), "The page with the form to sign in"),
    Other(Route::PostSignIn, Redirect, "Sign in by a token: a form with `token` and `next`"),
    Other(Route::SignOut, Redirect, "End the session of the browser"),
    Other(Route::SignInAtIssuer, Redirect, "Sign in at an issuer (OpenID Connect)"),
    Other(Route::SignInCallback, Redirect, "Where an issuer sends the browser back to"),
];

fn json(text: String) -> Response {
    ([(CONTENT_TYPE, "application/json")], text).into_response()
}

async fn readyz(
    State(store): State<Store>,
    State(shutdown): State<CancellationToken>,
) -> Result<Response, ApiError> {
    if shutdown.is_cancelled() {
        return Err(Route::Readyz.error()(Cause::Draining));
    }
    let ready = store.ready().await.map_err(Cause::NotReady);
    ready.map(|()| plain(StatusCode::OK, "OK")).map_err(Route::Readyz.error())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::auth::{Auth, SessionSettings};
    use crate::store::Storage;
    use crate::transport::memory::Memory;

    /// Tests of every route take them from the document, so none may be missing there.
    #[tokio::test]
    async fn every_route_is_in_the_document() {
        let store = Store::open(&Storage::Memory).unwrap();
        let limits = Limits::default();
        let whole = router(App {
            at_rest: Arc::default(),
            authenticator: Authenticator::open(Auth::None, SessionSettings::default(), true, false)
                .await
                .unwrap(),
            admission: Admission::new(&limits, &store, Memory::unlimited()),
            limits,
            metrics: Metrics::default(),
            connections: Connections::new(1),
            tls: None,
            ui: true,
            encrypting: encrypt::EncryptLock::default(),
            status_errors: layer_metrics::StatusErrors::default(),
            shutdown: CancellationToken::new(),
            store,
        });
        // Only the debug output shows the routes of a router.
        let debug = format!("{whole:?}");
        let routes = debug
            .split("RouteId(")
            .filter_map(|rest| rest.split_once("): \"")?.1.split_once('"'))
            .map(|(path, _)| path)
            // The fallback, and the page, which is for people.
            .filter(|path| {
                !path.contains("__private__") && *path != "/" && !path.starts_with("/ui/")
            });
        let (_, document) = api().finish(&PUBLIC);
        let document: serde_json::Value = serde_json::from_str(&document).unwrap();
        let described = document["paths"].as_object().unwrap().keys().map(String::as_str);
        assert_eq!(routes.collect::<BTreeSet<_>>(), described.collect());
    }
}
