//! Serves the metrics and the health of this process over HTTP, from a thread of its own: it answers also while the runs block
//! theirs.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use datastore_api::status::metrics::CONTENT;
use hyper::body::Incoming;
use hyper::header::{ALLOW, CONTENT_TYPE};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;

use crate::execute::observe::board::Board;

/// How many connections are served at the same time; further ones wait. Each holds one page of metrics.
const CONNECTIONS: usize = 8;
/// How long a connection may last: one request is answered.
const LIMIT: Duration = Duration::from_secs(10);
/// The pause after a connection that could not be accepted, as without free file descriptors.
const PAUSE: Duration = Duration::from_millis(100);

/// Listens at the address, until the process ends. Returns the address, with its port.
pub(crate) fn start(address: SocketAddr, board: Arc<Board>) -> io::Result<SocketAddr> {
    let listener = std::net::TcpListener::bind(address)?;
    listener.set_nonblocking(true)?;
    let address = listener.local_addr()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    thread::Builder::new().name("listener".to_owned()).spawn(move || {
        if let Err(error) = runtime.block_on(accept(listener, &board)) {
            tracing::error!("--listen: {error}: metrics and health are not served");
        }
    })?;
    Ok(address)
}

async fn accept(listener: std::net::TcpListener, board: &Arc<Board>) -> io::Result<()> {
    let listener = TcpListener::from_std(listener)?;
    let places = Arc::new(Semaphore::new(CONNECTIONS));
    loop {
        let place = Arc::clone(&places).acquire_owned().await.map_err(io::Error::other)?;
        match listener.accept().await {
            Ok((stream, _)) => {
                let board = Arc::clone(board);
                tokio::spawn(async move {
                    // What a caller does wrong, or does not wait for, is no concern of the runs.
                    let _ended = tokio::time::timeout(LIMIT, serve(stream, &board)).await;
                    drop(place);
                });
            }
            Err(error) => {
                tracing::warn!("--listen: a connection cannot be accepted: {error}");
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}

/// Answers one request.
async fn serve(stream: TcpStream, board: &Board) -> hyper::Result<()> {
    let answer = service_fn(async |request| Ok::<_, Infallible>(answer(&request, board)));
    http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(LIMIT)
        .max_buf_size(16 << 10)
        .keep_alive(false)
        .serve_connection(TokioIo::new(stream), answer)
        .await
}

fn answer(request: &Request<Incoming>, board: &Board) -> Response<String> {
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        let mut refused = plain(StatusCode::METHOD_NOT_ALLOWED, "only GET and HEAD\n".to_owned());
        refused.headers_mut().insert(ALLOW, "GET, HEAD".parse().expect("a valid value"));
        return refused;
    }
    match request.uri().path() {
        "/metrics" => {
            let mut page = Response::new(board.page());
            page.headers_mut().insert(CONTENT_TYPE, CONTENT.parse().expect("a valid value"));
            page
        }
        "/healthz" => state(board.health()),
        "/readyz" => state(board.readiness()),
        _ => plain(StatusCode::NOT_FOUND, "there are /metrics, /healthz and /readyz\n".to_owned()),
    }
}

fn state(state: Result<(), String>) -> Response<String> {
    match state {
        Ok(()) => plain(StatusCode::OK, "ok\n".to_owned()),
        Err(reason) => plain(StatusCode::SERVICE_UNAVAILABLE, format!("{reason}\n")),
    }
}

fn plain(status: StatusCode, text: String) -> Response<String> {
    let mut response = Response::new(text);
    *response.status_mut() = status;
    let value = "text/plain; charset=utf-8".parse().expect("a valid value");
    response.headers_mut().insert(CONTENT_TYPE, value);
    response
}
