//! Connections: accepted, served, and ended in good order.
//!
//! Not `axum::serve`, which has no limit on how long a request's head may take, nor on anything else.

mod socket;

use std::convert::Infallible;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, HttpBody as _};
use axum::extract::Request;
use axum::response::Response;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use self::socket::{Answering, Socket, Stage};
use crate::admission::Admitted;
use crate::app;
use crate::config::Drain;
use crate::lasting::lasting;
use crate::limits::{HEAD, Limits};
use crate::tls::Tls;

/// A request whose head is not there so long after the end has begun is no request.
const HEAD_AT_END: Duration = Duration::from_secs(1);
/// Bytes read or written at once; also what a connection may hold of a body it cannot pass on yet.
const BUFFER: usize = 256 << 10;

/// What is served, and how.
#[derive(Clone)]
pub(crate) struct Service {
    pub(crate) app: app::Service,
    pub(crate) limits: Limits,
    /// None means in plain.
    pub(crate) tls: Option<Tls>,
}

/// How far the end has come.
#[derive(Clone, Default)]
struct End {
    /// Every connection finishes the request it is at, and closes.
    closing: CancellationToken,
    /// Time is up.
    over: CancellationToken,
}

/// Serves until `shutdown` is cancelled, `drain.delay` has passed, and what runs has ended or had
/// `drain.timeout` to do so.
pub(crate) async fn run(
    listener: TcpListener,
    service: Service,
    shutdown: CancellationToken,
    drain: Drain,
) {
    let connections = TaskTracker::new();
    let end = End::default();
    let places = Arc::new(Semaphore::new(service.limits.connections));
    let accepting = async {
        loop {
            // Never closed, so there is always a place in the end.
            let place = Arc::clone(&places).acquire_owned().await;
            match listener.accept().await {
                Ok((socket, _)) => {
                    let served = serve(socket, service.clone(), end.clone());
                    connections.spawn(async {
                        served.await;
                        drop(place);
                    });
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
    connections.close();
    tracing::info!(connections = connections.len(), "finishing what runs");
    end.closing.cancel();
    if timeout(drain.timeout, connections.wait()).await.is_err() {
        tracing::warn!(connections = connections.len(), "breaking off what still runs");
        end.over.cancel();
        connections.wait().await;
    }
}

async fn serve(tcp: TcpStream, service: Service, end: End) {
    // Else the last bytes of an answer wait 40 ms for the acknowledgement of those before.
    if let Err(error) = tcp.set_nodelay(true) {
        tracing::debug!(%error, "no TCP_NODELAY");
    }
    let stage = Arc::new(Stage::default());
    let Service { app, limits, tls } = service;
    let socket = Socket::new(tcp, Arc::clone(&stage), &limits);
    let Some(tls) = tls else { return speak(socket, app, stage, end).await };
    let accepted = tokio::select! {
        accepted = tls.acceptor().accept(socket) => accepted,
        () = async { end.closing.cancelled().await; sleep(HEAD_AT_END).await } => return,
    };
    match accepted {
        Ok(socket) => speak(socket, app, stage, end).await,
        Err(error) => tracing::debug!(%error, "no TLS"),
    }
}

async fn speak(
    socket: impl AsyncRead + AsyncWrite + Unpin,
    app: app::Service,
    stage: Arc<Stage>,
    end: End,
) {
    let service = service_fn(|request| answer(request, app.clone(), Arc::clone(&stage)));
    let mut http = http1::Builder::new();
    // A caller that has said all it has to say may still want the answer. A head that is too long is
    // refused in our words, unless it is so long that it is not even read.
    http.max_buf_size(BUFFER).max_header_size(2 * HEAD).half_close(true);
    let mut connection = pin!(http.serve_connection(TokioIo::new(socket), service));
    let served = tokio::select! {
        served = connection.as_mut() => served,
        () = end.closing.cancelled() => {
            stage.close();
            connection.as_mut().graceful_shutdown();
            tokio::select! {
                served = connection.as_mut() => served,
                () = no_request(&stage) => Ok(()),
                () = end.over.cancelled() => Ok(()),
            }
        }
    };
    if let Err(error) = served {
        tracing::debug!(%error, "connection broken off");
    }
}

async fn answer(
    request: Request<Incoming>,
    app: app::Service,
    stage: Arc<Stage>,
) -> Result<Response, Infallible> {
    let answering = Answering::begin(stage);
    let has_body = !request.body().is_end_stream();
    let mut response = app.answer(request.map(Body::new)).await;
    if has_body && !response.status().is_success() {
        answering.linger();
    }
    let admitted = response.extensions_mut().remove::<Admitted>();
    Ok(lasting(response, (answering, admitted)))
}

/// Ends once the connection has had time to get a request across, and has not.
async fn no_request(stage: &Stage) {
    sleep(HEAD_AT_END).await;
    if stage.is_busy() {
        std::future::pending::<()>().await;
    }
}
