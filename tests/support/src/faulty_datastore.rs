//! A proxy in front of a datastore, or another server, that answers some requests by itself, as a sick one would.

use std::io;
use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse as _, Response};
use futures::TryStreamExt as _;
use tokio::net::TcpListener;
use tokio_util::sync::{CancellationToken, DropGuard};
use url::Url;

/// Requests that are not let through. The first ledger of an apply is, unless the fault names `ledger.json`: without it nothing
/// is applied. Where a fault is of the whole log (`PUT`), pieces of it are refused, so that it is sent as a whole.
#[derive(Clone, Debug)]
pub struct Fault {
    /// Their method.
    pub method: &'static str,
    /// A part of their path and query.
    pub part: &'static str,
    /// What they are answered instead; 0 is never an answer, [`LOST`] lets them through and breaks off the answer, [`LATE`] lets
    /// it wait, [`GATEWAY`] and [`PROBLEM`] are a gateway's 404, [`CLAIMED`] is the datastore's own
    /// 409, [`HEAD`] has no end, and 429 asks for a pause (`Retry-After`) of 30 s, or of
    /// [`FaultyDatastore::set_retry_after`].
    pub status: u16,
    /// How many of them.
    pub times: usize,
}

/// The status of a [`Fault`] that lets a request through and breaks off its answer.
pub const LOST: u16 = 1;

/// The status of a [`Fault`] that lets a request through and passes its answer on after a second.
pub const LATE: u16 = 2;

/// The status of a [`Fault`] that is answered 404 in the words of a datastore without the route, as a gateway may do.
pub const GATEWAY: u16 = 3;

/// The status of a [`Fault`] that is answered 404 with a problem document, as a gateway may do.
pub const PROBLEM: u16 = 5;

/// The status of a [`Fault`] that is answered 409 as a datastore answers to a claim.
pub const CLAIMED: u16 = 6;

/// The status of a [`Fault`] that is answered 200 and the headers, and nothing more.
pub const HEAD: u16 = 4;

/// A proxy that lets requests through, but for faults.
pub struct FaultyDatastore {
    /// Where it listens.
    pub url: Url,
    proxy: Arc<Proxy>,
    _running: DropGuard,
}

struct Proxy {
    behind: Url,
    faults: Mutex<Vec<Fault>>,
    seen: Mutex<Vec<String>>,
    ledgers: Mutex<Vec<(String, Instant)>>,
    headers: Mutex<Vec<HeaderMap>>,
    retry_after: AtomicU32,
    /// How the bytes of an answer are changed.
    change: Change,
    http: reqwest::Client,
}

#[derive(Clone, Copy)]
enum Change {
    Nothing,
    EveryByte,
    /// The answers of Burrito's own datastore: it has four routes, and names no server.
    Burritos,
    /// Those of an early version of ours: it has neither claims, nor records of applies, nor leases, and names no server.
    Early,
    /// Answers to uploads without the headers `ETag` and `Server`.
    Unnamed,
    /// Each occurrence of one text becomes another.
    Text(&'static str, &'static str),
}

impl FaultyDatastore {
    /// One in front of `behind`.
    pub async fn before(behind: &Url, faults: Vec<Fault>) -> Self {
        Self::start(behind, faults, Change::Nothing).await
    }

    /// One that hands out other bytes than it was given, under their headers.
    pub async fn garbling(behind: &Url) -> Self {
        Self::start(behind, Vec::new(), Change::EveryByte).await
    }

    /// One behind which our datastore looks like Burrito's own.
    pub async fn burritos(behind: &Url) -> Self {
        Self::start(behind, Vec::new(), Change::Burritos).await
    }

    /// One behind which our datastore looks like an early version of itself.
    pub async fn early(behind: &Url) -> Self {
        Self::start(behind, Vec::new(), Change::Early).await
    }

    /// One whose answers to uploads have neither a digest nor the name of the server.
    pub async fn unnamed(behind: &Url) -> Self {
        Self::start(behind, Vec::new(), Change::Unnamed).await
    }

    /// One that replaces a text in every answer.
    pub async fn replacing(behind: &Url, text: &'static str, with: &'static str) -> Self {
        Self::start(behind, Vec::new(), Change::Text(text, with)).await
    }

    async fn start(behind: &Url, faults: Vec<Fault>, change: Change) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap()).parse().unwrap();
        let proxy = Arc::new(Proxy {
            behind: behind.clone(),
            faults: Mutex::new(faults),
            seen: Mutex::default(),
            ledgers: Mutex::default(),
            headers: Mutex::default(),
            retry_after: AtomicU32::new(30),
            change,
            // What is behind may be a Kubernetes API of the tests' own.
            http: reqwest::Client::builder().tls_danger_accept_invalid_certs(true).build().unwrap(),
        });
        let router = Router::new().fallback(forward).with_state(Arc::clone(&proxy));
        let stop = CancellationToken::new();
        let stopped = stop.clone().cancelled_owned();
        tokio::spawn(async { axum::serve(listener, router).with_graceful_shutdown(stopped).await });
        Self { url, proxy, _running: stop.drop_guard() }
    }

    /// Replaces the faults: with none it lets every request through.
    pub fn set_faults(&self, faults: Vec<Fault>) {
        *self.proxy.faults.lock().unwrap() = faults;
    }

    /// Sets the pause in seconds that a 429 asks for.
    pub fn set_retry_after(&self, seconds: u32) {
        self.proxy.retry_after.store(seconds, Ordering::Relaxed);
    }

    /// The `Authorization` of every request so far that had one.
    pub fn authorizations(&self) -> Vec<String> {
        self.header("authorization")
    }

    /// The value of this header in every request so far that had one.
    pub fn header(&self, name: &str) -> Vec<String> {
        let headers = self.proxy.headers.lock().unwrap();
        let values = headers.iter().filter_map(|headers| headers.get(name));
        values.map(|value| value.to_str().unwrap().to_owned()).collect()
    }

    /// Method, path and query of every request so far, but for those of ledgers and leases.
    pub fn seen(&self) -> Vec<String> {
        self.proxy.seen.lock().unwrap().clone()
    }

    /// The same of every request for a ledger, with its time.
    pub fn ledgers(&self) -> Vec<(String, Instant)> {
        self.proxy.ledgers.lock().unwrap().clone()
    }
}

impl Proxy {
    /// Notes a request. Returns whether it is the first one of its kind for this ledger.
    fn note(&self, place: &str) -> bool {
        if place.contains(LEASES) {
            return false;
        }
        if !place.contains(LEDGER) {
            self.seen.lock().unwrap().push(place.to_owned());
            return false;
        }
        let mut ledgers = self.ledgers.lock().unwrap();
        let is_first = !ledgers.iter().any(|(known, _)| known == place);
        ledgers.push((place.to_owned(), Instant::now()));
        is_first
    }

    /// What this request is answered instead.
    fn fault(&self, method: &str, place: &str, is_first_ledger: bool) -> Option<u16> {
        let mut faults = self.faults.lock().unwrap();
        let is_piece = method == "POST" && place.starts_with(LOGS);
        if is_piece && faults.iter().any(|fault| fault.is_of_log(place)) {
            return Some(403);
        }
        let fault = faults.iter_mut().find(|fault| {
            let is_meant = !is_first_ledger || fault.part.contains(LEDGER);
            let is_at = fault.method == method && place.contains(fault.part);
            fault.times > 0 && is_meant && is_at
        });
        fault.map(|fault| {
            fault.times -= 1;
            fault.status
        })
    }
}

impl Fault {
    /// Whether it is of the log of this place, sent as a whole.
    fn is_of_log(&self, place: &str) -> bool {
        self.method == "PUT" && place.contains(self.part)
    }
}

/// The path of a log.
const LOGS: &str = "/api/logs";
/// In the query of a request for the ledger of an apply.
const LEDGER: &str = "name=ledger.json";
/// In the path of a request for a lease.
const LEASES: &str = "/api/leases/";

/// The answer with a fault's status.
fn refused(proxy: &Proxy, status: u16) -> Response {
    if status == GATEWAY {
        return (StatusCode::NOT_FOUND, "Not Found").into_response();
    }
    let problem = |status| {
        let kind = [("content-type", "application/problem+json")];
        (status, kind, "{\"title\":\"a fault of the test's\"}").into_response()
    };
    if status == PROBLEM {
        return problem(StatusCode::NOT_FOUND);
    }
    if status == CLAIMED {
        return problem(StatusCode::CONFLICT);
    }
    if status == HEAD {
        return Body::from_stream(futures::stream::pending::<io::Result<Bytes>>()).into_response();
    }
    let status = StatusCode::from_u16(status).unwrap();
    let mut response = (status, "a fault of the test's").into_response();
    if status == StatusCode::TOO_MANY_REQUESTS {
        let pause = proxy.retry_after.load(Ordering::Relaxed);
        response.headers_mut().insert("retry-after", pause.into());
    }
    response
}

/// An answer that breaks off before its body.
fn broken() -> Response {
    let lost = futures::stream::once(async { Err::<Bytes, _>(io::Error::other("lost")) });
    Body::from_stream(lost).into_response()
}

async fn forward(State(proxy): State<Arc<Proxy>>, request: Request) -> Response {
    let place = request.uri().path_and_query().unwrap().to_string();
    let method = request.method().clone();
    let is_first_ledger = proxy.note(&format!("{method} {place}"));
    proxy.headers.lock().unwrap().push(request.headers().clone());
    let fault = proxy.fault(method.as_str(), &place, is_first_ledger);
    if fault == Some(0) {
        std::future::pending::<()>().await;
    }
    if let Some(status) = fault.filter(|status| ![LOST, LATE].contains(status)) {
        return refused(&proxy, status);
    }
    let routes = ["/api/plans", "/api/logs", "/api/repository/revision/bundle", "/api/encrypt"];
    let (path, is_claim) = (request.uri().path(), method == "POST");
    let (names_no_server, has_route) = match proxy.change {
        Change::Burritos => (true, routes.contains(&path)),
        Change::Early => {
            let is_claim = path == "/api/attempts" && is_claim;
            (true, path != "/api/applied" && !is_claim && !path.starts_with(LEASES))
        }
        _ => (false, true),
    };
    if !has_route {
        let kind = [("content-type", "application/json")];
        let body = "{\"message\":\"Not Found\"}\n";
        return (StatusCode::NOT_FOUND, kind, body).into_response();
    }
    let url = proxy.behind.join(&place).unwrap();
    let (parts, body) = request.into_parts();
    let mut headers = parts.headers;
    headers.remove("host");
    let body = reqwest::Body::wrap_stream(body.into_data_stream());
    let answer = proxy.http.request(method, url).headers(headers).body(body).send().await.unwrap();
    match fault {
        Some(LOST) => return broken(),
        Some(LATE) => tokio::time::sleep(Duration::from_secs(1)).await,
        _ => {}
    }
    let mut response = Response::builder().status(answer.status());
    *response.headers_mut().unwrap() = answer.headers().clone();
    if names_no_server {
        response.headers_mut().unwrap().remove("server");
    }
    if matches!(proxy.change, Change::Unnamed) && place.starts_with("/api/plans") {
        for name in ["etag", "server"] {
            response.headers_mut().unwrap().remove(name);
        }
    }
    if let Change::Text(text, with) = proxy.change {
        response.headers_mut().unwrap().remove("content-length");
        let body = answer.text().await.unwrap().replace(text, with);
        return response.body(Body::from(body)).unwrap();
    }
    let garble = matches!(proxy.change, Change::EveryByte);
    let bytes = answer.bytes_stream().map_ok(move |piece| match garble {
        true => piece.iter().map(|byte| byte ^ 1).collect(),
        false => piece,
    });
    response.body(Body::from_stream(bytes)).unwrap()
}
