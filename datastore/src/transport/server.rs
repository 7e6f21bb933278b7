//! Connections: accepted, served, and drained at the end.
//!
//! Not `axum::serve`, which has no limit on how long a request's head may take, nor on anything else.

use std::convert::Infallible;
use std::pin::pin;
use std::sync::Arc;
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
use crate::transport::body_guard::hold_until_sent;
use crate::transport::connections::{Connection, Connections};
use crate::transport::limits::{HEAD, Limits};
use crate::transport::socket::{Answering, Socket, Stage};
use crate::transport::tls::Tls;

/// How long the head of a request is waited for once the service drains.
const HEAD_AT_END: Duration = Duration::from_secs(1);
/// Bytes read or written at once; also what a connection may hold of a body it cannot pass on yet.
const BUFFER: usize = 256 << 10;

/// What is served, and how.
#[derive(Clone)]
pub(crate) struct Service {
    pub(crate) app: service::Service,
    pub(crate) limits: Limits,
    /// None means in plain.
    pub(crate) tls: Option<Tls>,
    pub(crate) connections: Connections,
}

/// What answers the requests of one connection.
#[derive(Clone)]
struct Answers {
    app: service::Service,
    /// How long a request may wait for a place within the limit of connections.
    wait: Duration,
    connection: Arc<Connection>,
}

/// The stages of a drain.
#[derive(Clone, Default)]
struct End {
    /// Every connection finishes the request it is at, and closes.
    closing: CancellationToken,
    /// The time for that is over.
    over: CancellationToken,
}

impl End {
    /// Until the service ends, or the connection is to make room for others; how long the head of a request is then
    /// still waited for.
    async fn closing_or(&self, evicted: impl Future<Output = ()>) -> Duration {
        tokio::select! {
            () = self.closing.cancelled() => HEAD_AT_END,
            () = evicted => Duration::ZERO,
        }
    }
}

/// Serves until `shutdown` is cancelled, `drain.delay` has passed, and what runs has ended or had
/// `drain.timeout` to do so.
pub(crate) async fn run(
    listener: TcpListener,
    service: Service,
    shutdown: CancellationToken,
    drain: Drain,
) {
    let tasks = TaskTracker::new();
    let end = End::default();
    let accepting = async {
        loop {
            let slot = service.connections.slot().await;
            match listener.accept().await {
                Ok((socket, _)) => {
                    let connection = Arc::new(service.connections.add(slot));
                    tasks.spawn(serve(socket, service.clone(), connection, end.clone()));
                }
                Err(error) => {
                    // Most likely too many open files, which only gets better with time.
                    tracing::error!(%error, "no connection accepted");
                    sleep(Duration::from_millis(100)).await;
                }
            }
        }
    };
    tokio::select! {
        () = accepting => {}
        () = async { shutdown.cancelled().await; sleep(drain.delay).await } => {}
    }
    drop(listener);
    tasks.close();
    tracing::info!(connections = tasks.len(), "draining connections");
    end.closing.cancel();
    if timeout(drain.timeout, tasks.wait()).await.is_err() {
        tracing::warn!(connections = tasks.len(), "breaking off what still runs");
        end.over.cancel();
        tasks.wait().await;
    }
}

async fn serve(tcp: TcpStream, service: Service, connection: Arc<Connection>, end: End) {
    // Else the last bytes of an answer wait 40 ms for the acknowledgement of those before.
    if let Err(error) = tcp.set_nodelay(true) {
        tracing::debug!(%error, "no TCP_NODELAY");
    }
    let Service { app, limits, tls, .. } = service;
    let stage = Arc::clone(&connection.stage);
    let socket = Socket::new(tcp, Arc::clone(&stage), &limits);
    let answers = Answers { app, wait: limits.wait, connection };
    let Some(tls) = tls else { return speak(socket, answers, end).await };
    let accepted = tokio::select! {
        accepted = tls.acceptor().accept(socket) => accepted,
        () = async { end.closing.cancelled().await; sleep(HEAD_AT_END).await } => return,
        () = stage.evicted() => return,
    };
    match accepted {
        Ok(socket) => speak(socket, answers, end).await,
        Err(error) => tracing::debug!(%error, "TLS handshake failed"),
    }
}

async fn speak(socket: impl AsyncRead + AsyncWrite + Unpin, answers: Answers, end: End) {
    let service = service_fn(|request| answer(request, answers.clone()));
    let stage = &answers.connection.stage;
    let mut http = http1::Builder::new();
    // A caller that has said all it has to say may still want the answer. A head that is too long is
    // refused in our words, unless it is so long that it is not even read.
    http.max_buf_size(BUFFER).max_header_size(2 * HEAD).half_close(true);
    let mut connection = pin!(http.serve_connection(TokioIo::new(socket), service));
    let served = tokio::select! {
        served = connection.as_mut() => served,
        grace = end.closing_or(stage.evicted()) => {
            stage.close();
            connection.as_mut().graceful_shutdown();
            tokio::select! {
                served = connection.as_mut() => served,
                () = no_request(stage, grace) => Ok(()),
                () = end.over.cancelled() => Ok(()),
            }
        }
    };
    if let Err(error) = served {
        tracing::debug!(%error, "connection broken off");
    }
}

async fn answer(request: Request<Incoming>, answers: Answers) -> Result<Response, Infallible> {
    let Answers { app, wait, connection } = answers;
    let answering = Answering::begin(Arc::clone(&connection.stage));
    let has_body = !request.body().is_end_stream();
    let mut request = request.map(Body::new);
    let route = Route::of(request.method(), request.uri().path());
    let response = if route.is_probe() || connection.has_place(wait).await {
        request.extensions_mut().insert(connection.stage.known());
        app.answer(request).await
    } else {
        let mut refused = app.refuse_crowded(request).await;
        refused.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        refused
    };
    if has_body && !response.status().is_success() {
        answering.linger();
    }
    Ok(hold_until_sent(response, answering))
}

/// Ends once the connection has had time to get a request across, and has not.
async fn no_request(stage: &Stage, grace: Duration) {
    sleep(grace).await;
    if stage.is_busy() {
        std::future::pending::<()>().await;
    }
}
