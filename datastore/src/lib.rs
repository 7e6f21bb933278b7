//! An HTTP service that stores the files of Terraform runs in an object store.

mod api;
mod auth;
mod changes;
pub mod cli;
pub mod config;
#[cfg(any(fuzzing, test))]
pub mod fuzz;
pub mod kind;
pub mod observe;
mod panics;
mod start;
pub mod store;
pub mod transport;
mod ui;

use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::BoxError;
pub use datastore_api::chain;
use tokio::net::TcpListener;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use crate::auth::Authenticator;
use crate::auth::site::is_loopback_address;
pub use crate::auth::{
    Auth, Callers, Isolation, IssuerUrl, Kinds, KubeApi, Kubernetes, NewToken, Oidc, OidcClient,
    Policy, PublicUrl, ServiceAccount, SessionKeys, SessionSettings, Verb,
};
use crate::config::Config;
use crate::observe::counters::Metrics;
pub use crate::panics::report_panics;
pub use crate::start::{StartError, listen, raise_open_files};
use crate::store::Store;
use crate::transport::admission::Admission;
use crate::transport::connections::Connections;
use crate::transport::memory::Memory;
use crate::transport::server::Service;
use crate::transport::tls::Tls;

/// How long the storage is probed before the service listens. A permanent error within this time ends the program. A
/// storage that is silent is probed further, while `/healthz` answers 200 and `/readyz` 503.
const STARTUP_PROBE_TIMEOUT: Duration = Duration::from_millis(500);
/// How long the exit waits for the files of interrupted uploads to be removed.
const CLEANUP_TIMEOUT: Duration = Duration::from_secs(2);

/// Serves until `shutdown` is cancelled and the requests in flight are answered.
pub async fn serve(
    listeners: Vec<TcpListener>,
    config: Config,
    shutdown: CancellationToken,
) -> Result<(), StartError> {
    let Config { storage, at_rest, auth, sessions, tls, drain, limits, states, ui } = config;
    let unusable = |error| StartError::Storage(storage.to_string(), error);
    let memory = Memory::new(limits.memory);
    let store = Store::open(&storage).map_err(unusable)?.at_rest(&at_rest).with_memory(&memory);
    let store = store.with_states(states).with_refresh(limits.refresh);
    let probed = store.clone();
    let mut probing = Box::pin(async move { probed.start().await });
    let started = tokio::select! {
        started = &mut probing => Some(started.map_err(unusable)?),
        () = sleep(STARTUP_PROBE_TIMEOUT) => None,
        () = shutdown.cancelled() => {
            // The probe removes its object at its end.
            if tokio::time::timeout(CLEANUP_TIMEOUT, probing).await.is_err() {
                tracing::warn!("the object of the storage probe may be left below .plancha/probe");
            }
            return Ok(());
        }
    };
    let auth_shown = auth.to_string();
    let is_loopback = only_loopback(&listeners).map_err(StartError::Process)?;
    let authenticator = Authenticator::open(auth, sessions, is_loopback, tls.is_some()).await;
    let authenticator = authenticator.map_err(StartError::Callers)?;
    let tls = tls.map(Tls::open).transpose().map_err(StartError::Certificate)?;
    let scheme = if tls.is_some() { "https" } else { "http" };
    for listener in &listeners {
        let address = listener.local_addr().map_err(StartError::Process)?;
        tracing::info!(address = %format_args!("{scheme}://{address}"), %storage, auth = %auth_shown, "listening");
    }
    tokio::spawn(store.clone().tidy(shutdown.clone()));
    tokio::spawn(authenticator.clone().watch(shutdown.clone()));
    if let Some(tls) = tls.clone() {
        tokio::spawn(tls.watch(shutdown.clone()));
    }
    let connections = Connections::new(limits.connections);
    let app = crate::api::router::App {
        store: store.clone(),
        at_rest: Arc::new(at_rest),
        authenticator,
        limits: limits.clone(),
        admission: Admission::new(&limits, &store, memory),
        metrics: Metrics::default(),
        connections: connections.clone(),
        tls: tls.clone(),
        encrypting: crate::api::handlers::encrypt::EncryptLock::default(),
        status_errors: crate::api::handlers::layer_metrics::StatusErrors::default(),
        ui,
        shutdown: shutdown.clone(),
    };
    let service = Service { app: crate::api::service::Service::new(app), limits, tls, connections };
    let stop = shutdown.child_token();
    let serving = crate::transport::server::run(listeners, service, stop.clone(), drain);
    let probing = started.is_none().then_some(probing);
    let failure = storage_failure(store.clone(), probing, stop.clone());
    if let Some(error) = serve_unless(serving, failure, &stop).await {
        return Err(unusable(error));
    }
    if tokio::time::timeout(CLEANUP_TIMEOUT, store.wait_for_uploads()).await.is_err() {
        tracing::warn!("an interrupted upload may have left a hidden file");
    }
    tracing::info!("shut down");
    Ok(())
}

/// Whether only programs on this machine reach these.
fn only_loopback(listeners: &[TcpListener]) -> io::Result<bool> {
    for listener in listeners {
        if !is_loopback_address(listener.local_addr()?.ip()) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Returns once the storage fails permanently: while it is probed, or never.
async fn storage_failure(
    store: Store,
    probing: Option<impl Future<Output = Result<(), BoxError>>>,
    stop: CancellationToken,
) -> BoxError {
    if let Some(probing) = probing
        && let Err(error) = probing.await
    {
        return error;
    }
    store.watch(stop).await;
    std::future::pending().await
}

/// Serves to the end, unless `failure` returns first: then it stops serving and returns the error.
async fn serve_unless(
    serving: impl Future<Output = ()>,
    failure: impl Future<Output = BoxError>,
    stop: &CancellationToken,
) -> Option<BoxError> {
    let mut serving = pin!(serving);
    let error = tokio::select! {
        () = &mut serving => return None,
        error = failure => error,
    };
    stop.cancel();
    serving.await;
    Some(error)
}
