//! Connections: accepted, served, and ended in good order.
//!
//! Not `axum::serve`, which has no limit on how long a request's head may take.

use std::pin::pin;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tower::ServiceExt as _;

use crate::config::Drain;

/// A client that has not sent the head of its request by then is gone, or means no good.
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);
/// Bytes read or written at once; also what a connection may hold of a body it cannot pass on yet.
const BUFFER: usize = 256 << 10;

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
    router: Router,
    shutdown: CancellationToken,
    drain: Drain,
) {
    let connections = TaskTracker::new();
    let end = End::default();
    let accepting = async {
        loop {
            match listener.accept().await {
                Ok((socket, _)) => {
                    connections.spawn(serve(socket, router.clone(), end.clone()));
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

async fn serve(socket: TcpStream, router: Router, end: End) {
    // Else the last bytes of an answer wait 40 ms for the acknowledgement of those before.
    if let Err(error) = socket.set_nodelay(true) {
        tracing::debug!(%error, "no TCP_NODELAY");
    }
    let service = router.map_request(|request: Request<Incoming>| request.map(Body::new));
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(HEAD_TIMEOUT).max_buf_size(BUFFER);
    // A caller that has said all it has to say may still want the answer.
    http.half_close(true);
    let connection = http.serve_connection(TokioIo::new(socket), TowerToHyperService::new(service));
    let mut connection = pin!(connection);
    let served = tokio::select! {
        served = connection.as_mut() => served,
        () = end.closing.cancelled() => {
            connection.as_mut().graceful_shutdown();
            tokio::select! {
                served = connection.as_mut() => served,
                () = end.over.cancelled() => Ok(()),
            }
        }
    };
    if let Err(error) = served {
        tracing::debug!(%error, "connection broken off");
    }
}
