//! Limits of time: heads, bodies, idle connections and slow readers.

use std::io::{Read as _, Write as _};
use std::time::{Duration, Instant};

use datastore::transport::limits::Limits;
use support::TestDatastore;

use super::memory::{answer, connect, holds_memory, rest};
use crate::http::{RUN, get, noise, stored};

const MIB: usize = 1 << 20;
const SECOND: Duration = Duration::from_secs(1);

#[tokio::test(flavor = "multi_thread")]
async fn request_after_a_long_response_has_its_own_timeout() {
    let limits = Limits { head: SECOND, memory: MIB, wait: 3 * SECOND, ..Limits::default() };
    let datastore = TestDatastore::limited(limits).await;
    let plan = format!("plans?{RUN}&attempt=0");
    stored(&datastore, &plan, noise(200 << 10, 1)).await;
    let _holds_all = holds_memory(&datastore);
    let mut socket = connect(&datastore);
    let first = format!("GET /api/{plan} HTTP/1.1\r\nhost: localhost\r\n\r\n");
    socket.write_all(first.as_bytes()).unwrap();
    tokio::time::sleep(SECOND / 10).await;
    socket
        .write_all(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")
        .unwrap();
    let answers = rest(&mut socket);
    assert!(answers.starts_with("HTTP/1.1 503 ") && answers.contains("HTTP/1.1 200 "), "{answers}");
}

#[tokio::test(flavor = "multi_thread")]
async fn slow_request_head_is_disconnected() {
    let limits = Limits { head: SECOND / 2, ..Limits::default() };
    let datastore = TestDatastore::limited(limits).await;
    for unfinished in ["", "GET /healthz HTTP/1.1\r\n"] {
        let since = Instant::now();
        let mut socket = connect(&datastore);
        socket.write_all(unfinished.as_bytes()).unwrap();
        while socket.write_all(b"a").is_ok() {
            assert!(since.elapsed() < 20 * SECOND, "never cut off");
            std::thread::sleep(SECOND / 20);
        }
        assert!(since.elapsed() >= SECOND / 2);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn idle_keep_alive_timeout_is_longer_than_the_request_head_timeout() {
    let (head, keep_alive) = (SECOND / 2, 8 * SECOND);
    let limits = Limits { head, keep_alive, ..Limits::default() };
    let datastore = TestDatastore::limited(limits).await;
    let mut socket = connect(&datastore);
    for _ in 0..3 {
        socket.write_all(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n").unwrap();
        assert!(answer(&mut socket).starts_with("HTTP/1.1 200 "));
        std::thread::sleep(SECOND);
    }
    let since = Instant::now();
    assert_eq!(rest(&mut socket), "");
    assert!(since.elapsed() < 2 * keep_alive);

    // The second head is under the same limit as the first.
    let mut socket = connect(&datastore);
    socket.write_all(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n").unwrap();
    answer(&mut socket);
    socket.write_all(b"GET /hea").unwrap();
    let since = Instant::now();
    assert_eq!(rest(&mut socket), "");
    assert!(since.elapsed() < keep_alive, "{:?}", since.elapsed());
}

#[tokio::test(flavor = "multi_thread")]
async fn stalled_body_returns_408() {
    let datastore = TestDatastore::limited(Limits { idle: SECOND / 2, ..Limits::default() }).await;
    let mut socket = connect(&datastore);
    let head = format!("PUT /api/plans?{RUN}&attempt=0 HTTP/1.1\r\nhost: localhost\r\n");
    write!(socket, "{head}content-length: 10\r\n\r\nhello").unwrap();
    let answer = rest(&mut socket);
    assert!(answer.starts_with("HTTP/1.1 408 "), "{answer}");
    assert!(answer.ends_with("no byte received for 500ms"), "{answer}");
    assert_eq!(get(&datastore, &format!("plans?{RUN}&attempt=0")).await.status, 404);
}

#[tokio::test(flavor = "multi_thread")]
async fn stalled_reader_is_disconnected_and_a_slow_one_is_not() {
    let datastore = TestDatastore::limited(Limits { idle: 4 * SECOND, ..Limits::default() }).await;
    let size = 32 * MIB;
    stored(&datastore, &format!("plans?{RUN}&attempt=0"), noise(size, 1)).await;
    let ask = || {
        let mut socket = connect(&datastore);
        let get = format!("GET /api/plans?{RUN}&attempt=0 HTTP/1.1\r\nhost: localhost\r\n");
        write!(socket, "{get}connection: close\r\n\r\n").unwrap();
        socket
    };
    let mut stalled = ask();
    std::thread::sleep(8 * SECOND);
    let mut read = Vec::new();
    let _reset = stalled.read_to_end(&mut read);
    assert!(read.len() < size);

    let mut slow = ask();
    let (mut read, mut piece) = (0, vec![0; 8 * MIB]);
    loop {
        match slow.read(&mut piece).unwrap() {
            0 => break,
            length => read += length,
        }
        if read < size / 2 {
            std::thread::sleep(SECOND / 4);
        }
    }
    assert!(read > size);
}
