//! An HTTP service over an object store that keeps the artifacts of Terraform runs.

mod api;
mod auth;
pub mod cli;
pub mod config;
#[cfg(any(fuzzing, test))]
pub mod fuzz;
pub mod kind;
pub mod observe;
mod start;
pub mod store;
pub mod transport;

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

pub use datastore_api::chain;
use tokio::net::TcpListener;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use crate::auth::Authenticator;
pub use crate::auth::{
    Auth, Callers, Isolation, Kinds, KubeApi, Kubernetes, NewToken, Policy, ServiceAccount, Verb,
};
use crate::config::Config;
use crate::observe::counters::Metrics;
pub use crate::start::StartError;
use crate::store::Store;
use crate::transport::admission::Admission;
use crate::transport::connections::Connections;
use crate::transport::memory::Memory;
use crate::transport::server::Service;
use crate::transport::tls::Tls;

/// How long the storage is probed before the service answers requests: an error that a retry cannot fix ends the
/// program before it listens. Probing a silent storage goes on, while `/healthz` is 200 and `/readyz` is 503.
const BEFORE_SERVING: Duration = Duration::from_millis(500);
/// Time to remove what interrupted uploads and probes have left behind.
const TIDY: Duration = Duration::from_secs(2);

/// Serves until `shutdown` is cancelled and the requests in flight are answered.
pub async fn serve(
    listener: TcpListener,
    config: Config,
    shutdown: CancellationToken,
) -> Result<(), StartError> {
    let Config { storage, at_rest, auth, tls, drain, limits } = config;
    let unusable = |error| StartError::Storage(storage.to_string(), error);
    let memory = Memory::new(limits.memory);
    let store = Store::open(&storage).map_err(unusable)?.at_rest(&at_rest).with_memory(&memory);
    let starts = store.clone();
    let mut starting = Box::pin(async move { starts.start().await });
    let started = tokio::select! {
        started = &mut starting => Some(started.map_err(unusable)?),
        () = sleep(BEFORE_SERVING) => None,
        () = shutdown.cancelled() => {
            // The probe removes its object at its end.
            if tokio::time::timeout(TIDY, starting).await.is_err() {
                tracing::warn!("the object of the storage probe may be left below .plancha/probe");
            }
            return Ok(());
        }
    };
    let shown = auth.to_string();
    let authenticator = Authenticator::open(auth).await.map_err(StartError::Callers)?;
    let tls = tls.map(Tls::open).transpose().map_err(StartError::Certificate)?;
    let address = listener.local_addr().map_err(StartError::Process)?;
    let scheme = if tls.is_some() { "https" } else { "http" };
    tracing::info!(address = %format_args!("{scheme}://{address}"), %storage, auth = %shown, "listening");
    tokio::spawn(store.clone().tidy(shutdown.clone()));
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
        shutdown: shutdown.clone(),
    };
    let service = Service { app: crate::api::service::Service::new(app), limits, tls, connections };
    let stop = shutdown.child_token();
    let mut serving = pin!(crate::transport::server::run(listener, service, stop.clone(), drain));
    let refused = async {
        if started.is_none()
            && let Err(error) = starting.await
        {
            return error;
        }
        store.clone().watch(stop.clone()).await;
        std::future::pending().await
    };
    let refused = tokio::select! {
        () = &mut serving => None,
        error = refused => Some(error),
    };
    if let Some(error) = refused {
        stop.cancel();
        serving.await;
        return Err(unusable(error));
    }
    if tokio::time::timeout(TIDY, store.wait_for_uploads()).await.is_err() {
        tracing::warn!("an interrupted upload may have left a hidden file");
    }
    tracing::info!("shut down");
    Ok(())
}
