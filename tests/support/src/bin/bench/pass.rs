//! `pass-through URL`: the least that a service between a caller and a bucket does. It takes what is put,
//! hashes it and sends it on as it comes; the same the other way, over one connection. No names, no limits,
//! no log, no signature of its own, no verdict: what is left is what the way itself costs, with these libraries.

use axum::Router;
use axum::body::Body;
use axum::extract::{DefaultBodyLimit, State};
use axum::http::Uri;
use axum::http::header::{CONTENT_LENGTH, HeaderMap};
use axum::response::Response;
use axum::routing::get;
use axum::serve::ListenerExt as _;
use datastore_api::digest::Hasher;
use futures::StreamExt as _;

#[derive(Clone)]
struct Behind {
    http: reqwest::Client,
    url: String,
}

/// Serves until it is killed; says where as the datastore does.
pub(super) async fn serve(url: &str) {
    let http = reqwest::Client::builder().tcp_nodelay(true).build().unwrap();
    let behind = Behind { http, url: url.to_owned() };
    let router = Router::new()
        .route("/{*key}", get(read).put(write))
        .layer(DefaultBodyLimit::disable())
        .with_state(behind);
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    eprintln!("listening http://{}", listener.local_addr().unwrap());
    let listener = listener.tap_io(|socket| drop(socket.set_nodelay(true)));
    axum::serve(listener, router).await.unwrap();
}

async fn write(State(to): State<Behind>, uri: Uri, headers: HeaderMap, body: Body) -> Response {
    let mut hasher = Hasher::default();
    let pieces =
        body.into_data_stream().inspect(move |piece| hasher.update(piece.as_ref().unwrap()));
    let put = to.http.put(format!("{}{}", to.url, uri.path_and_query().unwrap()));
    let put = put.header(CONTENT_LENGTH, &headers[CONTENT_LENGTH]);
    let answer = put.body(reqwest::Body::wrap_stream(pieces)).send().await.unwrap();
    Response::builder().status(answer.status()).body(Body::empty()).unwrap()
}

async fn read(State(from): State<Behind>, uri: Uri) -> Response {
    let url = format!("{}{}", from.url, uri.path_and_query().unwrap());
    let answer = from.http.get(url).send().await.unwrap();
    let mut hasher = Hasher::default();
    let length = answer.content_length().unwrap();
    let response = Response::builder().status(answer.status()).header(CONTENT_LENGTH, length);
    let pieces = answer.bytes_stream().inspect(move |piece| hasher.update(piece.as_ref().unwrap()));
    response.body(Body::from_stream(pieces)).unwrap()
}
