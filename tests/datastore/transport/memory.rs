//! The memory that all requests share: who waits for it, and when it is released.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use datastore::config::Config;
use datastore::transport::limits::Limits;
use nix::sys::signal::Signal;
use support::{Dialect, FakeCloud, TestDatastore};
use tempfile::TempDir;

use crate::http::{CLIENT, RUN, get, noise, put, send, stored};
use crate::program::process::Running;

const MIB: usize = 1 << 20;
const SECOND: Duration = Duration::from_secs(1);

pub(crate) fn connect(datastore: &TestDatastore) -> TcpStream {
    let address = datastore.url.socket_addrs(|| None).unwrap()[0];
    let socket = TcpStream::connect(address).unwrap();
    socket.set_read_timeout(Some(20 * SECOND)).unwrap();
    socket
}

/// The bytes that arrive until the other side closes the connection.
pub(crate) fn rest(socket: &mut TcpStream) -> String {
    let mut answer = Vec::new();
    if let Err(error) = socket.read_to_end(&mut answer) {
        assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset, "{error}");
    }
    String::from_utf8_lossy(&answer).into_owned()
}

/// Status and headers of one answer without a body, or with the body `OK`.
pub(crate) fn answer(socket: &mut TcpStream) -> String {
    let mut answer = Vec::new();
    let mut byte = [0];
    while !answer.ends_with(b"\r\n\r\n") {
        socket.read_exact(&mut byte).unwrap();
        answer.push(byte[0]);
    }
    let answer = String::from_utf8(answer).unwrap();
    if answer.contains("content-length: 2\r\n") {
        socket.read_exact(&mut [0; 2]).unwrap();
    }
    answer
}

/// An upload of unknown length that has taken memory, and sends nothing.
pub(crate) fn holds_memory(datastore: &TestDatastore) -> TcpStream {
    let mut socket = connect(datastore);
    let url = format!("/api/artifacts?{RUN}&attempt=1&name=a");
    let head = format!("PUT {url} HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n");
    socket.write_all(format!("{head}expect: 100-continue\r\n\r\n").as_bytes()).unwrap();
    assert!(answer(&mut socket).starts_with("HTTP/1.1 100 "));
    socket
}

/// Asks for a plan of 200 KiB so often without reading an answer that one is stuck on its way.
fn stuck(mut socket: TcpStream) -> TcpStream {
    for _ in 0..100 {
        let get = format!("GET /api/plans?{RUN}&attempt=0 HTTP/1.1\r\nhost: localhost\r\n\r\n");
        socket.write_all(get.as_bytes()).unwrap();
    }
    std::thread::sleep(SECOND);
    socket
}

#[tokio::test(flavor = "multi_thread")]
async fn response_holds_its_memory_until_it_is_written() {
    let limits = Limits { memory: 64 << 10, wait: SECOND / 4, ..Limits::default() };
    let datastore = TestDatastore::limited(limits).await;
    let plan = format!("plans?{RUN}&attempt=0");
    stored(&datastore, &plan, noise(200 << 10, 1)).await;
    let reader = stuck(connect(&datastore));
    let since = Instant::now();
    while get(&datastore, &plan).await.status != 503 {
        assert!(since.elapsed() < 20 * SECOND, "it holds no memory");
    }
    drop(reader);
    let since = Instant::now();
    while get(&datastore, &plan).await.status != 200 {
        assert!(since.elapsed() < 20 * SECOND, "it is never given back");
    }
}

#[test]
fn response_in_progress_at_shutdown_is_written_completely() {
    let root = TempDir::new().unwrap();
    let mut datastore = Running::start(root.path(), &[]);
    let mut upload = datastore.begin(200 << 10, &noise(200 << 10, 1));
    assert!(rest(&mut upload).starts_with("HTTP/1.1 200 "));
    let mut reader = stuck(datastore.connect());
    datastore.signal(Signal::SIGTERM);
    std::thread::sleep(3 * SECOND);
    let mut answers = Vec::new();
    reader.read_to_end(&mut answers).unwrap();
    let heads = answers.windows(12).filter(|part| part == b"HTTP/1.1 200").count();
    let head = answers.windows(4).position(|part| part == b"\r\n\r\n").unwrap() + 4;
    // Each head is as long as the first, but for its id, which counts up.
    let length = heads * (head + (200 << 10));
    assert!(answers.len().abs_diff(length) < 4 * heads, "{} of {length} bytes", answers.len());
    assert_eq!(datastore.wait().code(), Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn request_without_memory_waits_and_then_returns_503_with_retry_after() {
    let wait = 2 * SECOND;
    let limits = Limits { memory: MIB, wait, ..Limits::default() };
    let datastore = TestDatastore::limited(limits).await;
    let plan = format!("plans?{RUN}&attempt=0");
    let artifact = format!("artifacts?{RUN}&attempt=0&name=b");
    let (old, new) = (noise(200 << 10, 1), noise(200 << 10, 2));
    stored(&datastore, &plan, old).await;
    stored(&datastore, &artifact, noise(200 << 10, 3)).await;

    let mut holds_all = holds_memory(&datastore);
    let since = Instant::now();
    let refused = put(&datastore, &plan, new.clone()).await;
    assert!(since.elapsed() >= wait);
    assert_eq!(refused.header("retry-after"), Some("5"));
    insta::assert_snapshot!(refused.refusal(), @"503 text/plain; charset=UTF-8 server is at capacity; retry later");
    let refused = get(&datastore, &artifact).await;
    insta::assert_snapshot!(refused.refusal(), @r#"503 application/problem+json {"type":"about:blank","title":"Service Unavailable","status":503,"detail":"server is at capacity; retry later"}"#);
    assert_eq!(get(&datastore, &plan).await.status, 503);
    assert_eq!(get(&datastore, &format!("attempts?{RUN}")).await.status, 503);
    // There is a reserve for what is small.
    let small = format!("plans?{RUN}&attempt=2&format=short");
    stored(&datastore, &small, "small").await;
    assert_eq!(get(&datastore, &small).await.text(), "small");
    for path in ["healthz", "readyz"] {
        let answer = send(CLIENT.get(datastore.url.join(path).unwrap())).await;
        assert_eq!(answer.status, 200, "{path}");
    }

    // It is in line, and gets in once there is room.
    let (waited, ()) = tokio::join!(put(&datastore, &plan, new.clone()), async {
        tokio::time::sleep(SECOND / 10).await;
        holds_all.write_all(b"0\r\n\r\n").unwrap();
    });
    assert_eq!(waited.status, 200);
    assert!(answer(&mut holds_all).starts_with("HTTP/1.1 200 "));
    assert!(get(&datastore, &plan).await.body == new);
}

/// Readers that ask for a plan of this size, and read nothing of it, until they are dropped.
pub(crate) fn slow_readers(datastore: &TestDatastore, readers: usize) -> Vec<TcpStream> {
    let ask = |_| {
        let mut socket = connect(datastore);
        write!(socket, "GET /api/plans?{RUN}&attempt=0 HTTP/1.1\r\nhost: localhost\r\n\r\n")
            .unwrap();
        socket
    };
    (0..readers).map(ask).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn slow_readers_of_one_tenant_do_not_block_other_tenants() {
    let file = TestDatastore::temporary_limited(Limits { memory: 24 * MIB, ..Limits::default() });
    for (datastore, size, readers) in [
        (TestDatastore::double(Dialect::S3).await, 64 * MIB, 12),
        // A tenth of the memory, and of the readers.
        (file.await, 8 * MIB, 30),
    ] {
        stored(&datastore, &format!("plans?{RUN}&attempt=0"), noise(size, 1)).await;
        let other = "plans?namespace=team-b&layer=network&run=plan-1";
        let (large, small) = (noise(size / 4, 2), noise(4 << 10, 3));
        stored(&datastore, &format!("{other}&attempt=0"), large.clone()).await;
        stored(&datastore, &format!("{other}&attempt=1"), small.clone()).await;
        let slow = slow_readers(&datastore, readers);
        for socket in &slow[..4] {
            // Some of them are answered.
            socket.peek(&mut [0]).unwrap();
        }
        for _ in 0..100 {
            let answer = get(&datastore, &format!("{other}&attempt=1")).await;
            assert_eq!(answer.status, 200);
            assert!(answer.body == small);
        }
        let answer = get(&datastore, &format!("{other}&attempt=0")).await;
        assert_eq!(answer.status, 200);
        assert!(answer.body == large);
        stored(&datastore, &format!("{other}&attempt=2"), large).await;
        drop(slow);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn slow_reader_releases_prefetched_memory_and_still_gets_the_whole_object() {
    let limits = Limits { memory: 24 * MIB, ..Limits::default() };
    let double = FakeCloud::start(Dialect::S3);
    let datastore = TestDatastore::of(Config { limits, ..Config::of(double.storage()) }).await;
    let body = noise(40 * MIB, 1);
    let plan = format!("plans?{RUN}&attempt=0");
    stored(&datastore, &plan, body.clone()).await;
    let mut slow = slow_readers(&datastore, 1).remove(0);
    slow.peek(&mut [0]).unwrap();
    // All the memory that one transfer can have, and so all that the reader has fetched ahead.
    let other = "artifacts?namespace=team-b&layer=b&run=c&attempt=0&name=d";
    for _ in 0..3 {
        stored(&datastore, other, noise(24 * MIB, 2)).await;
    }
    let head = answer(&mut slow);
    assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
    let mut read = vec![0; body.len()];
    slow.read_exact(&mut read).unwrap();
    assert!(read == body);
}

#[tokio::test(flavor = "multi_thread")]
async fn disconnected_reader_releases_its_memory() {
    let limits = Limits { memory: 64 << 10, wait: 2 * SECOND, ..Limits::default() };
    let datastore = TestDatastore::limited(limits).await;
    let plan = format!("plans?{RUN}&attempt=0");
    stored(&datastore, &plan, noise(32 * MIB, 1)).await;
    for _ in 0..3 {
        let mut reader = connect(&datastore);
        write!(reader, "GET /api/{plan} HTTP/1.1\r\nhost: localhost\r\n\r\n").unwrap();
        assert!(answer(&mut reader).starts_with("HTTP/1.1 200 "));
        assert_eq!(get(&datastore, &plan).await.status, 503);
    }
}
