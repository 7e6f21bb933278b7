//! Accepts connections, serves them, and drains them at shutdown.
//!
//! Not `axum::serve`: it has no timeout for the head of a request, and no other limits.

use std::convert::Infallible;
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, HttpBody as _};
use axum::extract::Request;
use axum::http::HeaderValue;
use axum::http::header::CONNECTION;
use axum::response::Response;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::api::route::Route;
use crate::api::service;
use crate::config::Drain;
use crate::observe::context::DrainTimeout;
use crate::transport::body_guard::hold_until_sent;
use crate::transport::connections::{Connection, Connections};
use crate::transport::limits::{HEAD, Limits};
use crate::transport::socket::{ActiveRequest, Socket, Stage};
use crate::transport::tls::Tls;

/// How long a connection may still send the head of a request once the service drains.
const DRAIN_HEAD_TIMEOUT: Duration = Duration::from_secs(1);
/// The buffer of a connection in bytes, for reads and for writes.
const BUFFER: usize = 256 << 10;

/// The service of all connections.
#[derive(Clone)]
pub(crate) struct Service {
    pub(crate) app: service::Service,
    pub(crate) limits: Limits,
    /// None for plain HTTP.
    pub(crate) tls: Option<Tls>,
    pub(crate) connections: Connections,
}

/// The service of one connection.
#[derive(Clone)]
struct ConnectionService {
    app: service::Service,
    /// How long a request waits until its connection is within the limit.
    wait: Duration,
    connection: Arc<Connection>,
    drain_timeout: DrainTimeout,
}

/// The two stages of a drain.
#[derive(Clone, Default)]
struct Drained {
    /// Each connection finishes its request, and closes.
    closing: CancellationToken,
    /// The time for that is over: connections are aborted.
    aborted: CancellationToken,
}

/// Serves until `shutdown` is cancelled. Then accepts connections for `drain.delay`, and waits up to `drain.timeout` for
/// the requests in flight.
pub(crate) async fn run(
    listeners: Vec<TcpListener>,
    service: Service,
    shutdown: CancellationToken,
    drain: Drain,
) {
    let tasks = TaskTracker::new();
    let end = Drained::default();
    let accepting = async {
        loop {
            let slot = service.connections.slot().await;
            match accept(&listeners).await {
                Ok((socket, _)) => {
                    let connection = Arc::new(service.connections.add(slot));
                    tasks.spawn(serve(socket, service.clone(), connection, end.clone()));
                }
                Err(error) => {
                    // Most likely too many open files: wait until others are closed.
                    tracing::error!(%error, "cannot accept a connection");
                    sleep(Duration::from_millis(100)).await;
                }
            }
        }
    };
    tokio::select! {
        () = accepting => {}
        () = async { shutdown.cancelled().await; sleep(drain.delay).await } => {}
    }
    drop(listeners);
    tasks.close();
    tracing::info!(connections = tasks.len(), "draining connections");
    end.closing.cancel();
    if timeout(drain.timeout, tasks.wait()).await.is_err() {
        tracing::warn!(connections = tasks.len(), "drain timeout: aborting connections");
        end.aborted.cancel();
        tasks.wait().await;
    }
}

/// The next connection on one of the listeners.
async fn accept(listeners: &[TcpListener]) -> io::Result<(TcpStream, SocketAddr)> {
    let ready = |cx: &mut Context<'_>| {
        let accepted = listeners.iter().map(|listener| listener.poll_accept(cx));
        accepted.into_iter().find(Poll::is_ready).unwrap_or(Poll::Pending)
    };
    poll_fn(ready).await
}

async fn serve(tcp: TcpStream, service: Service, connection: Arc<Connection>, end: Drained) {
    // Otherwise the last bytes of a response wait 40 ms for the acknowledgement of earlier ones.
    if let Err(error) = tcp.set_nodelay(true) {
        tracing::debug!(%error, "cannot set TCP_NODELAY");
    }
    let Service { app, limits, tls, .. } = service;
    let stage = Arc::clone(&connection.stage);
    let socket = Socket::new(tcp, Arc::clone(&stage), &limits);
    let service = ConnectionService {
        app,
        wait: limits.wait,
        connection,
        drain_timeout: DrainTimeout(Arc::new(end.aborted.clone())),
    };
    let Some(tls) = tls else { return serve_http(socket, service, end).await };
    let accepted = tokio::select! {
        accepted = tls.acceptor().accept(socket) => accepted,
        () = async { end.closing.cancelled().await; sleep(DRAIN_HEAD_TIMEOUT).await } => return,
    };
    match accepted {
        Ok(socket) => serve_http(socket, service, end).await,
        Err(error) => tracing::debug!(%error, "TLS handshake failed"),
    }
}

async fn serve_http(
    socket: impl AsyncRead + AsyncWrite + Unpin,
    service: ConnectionService,
    end: Drained,
) {
    let http_service = service_fn(|request| {
        // Now, not when the future is first polled: hyper may read the body before that.
        let active = ActiveRequest::begin(Arc::clone(&service.connection.stage));
        answer(request, active, service.clone())
    });
    let stage = &service.connection.stage;
    let mut http = http1::Builder::new();
    // A caller may close its side after the request and still read the response. The router rejects a head that is too
    // long, unless it exceeds the double of the limit.
    http.max_buf_size(BUFFER).max_header_size(2 * HEAD).half_close(true);
    let mut connection = pin!(http.serve_connection(TokioIo::new(socket), http_service));
    let served = tokio::select! {
        served = connection.as_mut() => served,
        () = end.closing.cancelled() => {
            stage.close();
            connection.as_mut().graceful_shutdown();
            tokio::select! {
                served = connection.as_mut() => served,
                () = no_request(stage) => Ok(()),
                () = end.aborted.cancelled() => Ok(()),
            }
        }
    };
    if let Err(error) = served {
        tracing::debug!(%error, "connection failed");
    }
}

async fn answer(
    request: Request<Incoming>,
    active: ActiveRequest,
    service: ConnectionService,
) -> Result<Response, Infallible> {
    let ConnectionService { app, wait, connection, drain_timeout } = service;
    let has_body = !request.body().is_end_stream();
    let mut request = request.map(Body::new);
    request.extensions_mut().insert(drain_timeout);
    let route = Route::of(request.method(), request.uri().path());
    let mut is_last = false;
    let mut response = if route.is_probe() || connection.is_within_limit(wait).await {
        request.extensions_mut().insert(connection.stage.known());
        app.answer(request).await
    } else {
        is_last = true;
        app.refuse_crowded(request).await
    };
    if is_last || connection.stage.is_evicted() {
        response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    }
    if has_body && !response.status().is_success() {
        active.linger();
    }
    Ok(hold_until_sent(response, active))
}

/// Returns after [`DRAIN_HEAD_TIMEOUT`], unless the connection has had a request in flight since the drain began. It then
/// ends by itself after the response, and after what is still read of the caller.
async fn no_request(stage: &Stage) {
    sleep(DRAIN_HEAD_TIMEOUT).await;
    if stage.was_active_at_drain() {
        std::future::pending::<()>().await;
    }
}
