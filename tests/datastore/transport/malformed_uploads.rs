//! Uploads that end early, or whose lengths contradict each other, byte by byte on the wire.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{Shutdown, TcpStream};
use std::path::Path;
use std::time::{Duration, Instant};

use support::TestDatastore;

use crate::http::{RUN, files, get, noise, stored};

const MIB: usize = 1 << 20;

/// Sends this much of a PUT, then no more, and returns what comes back.
fn send(datastore: &TestDatastore, headers: &str, body: &[u8]) -> String {
    let mut socket = begin(datastore, headers, body);
    // It may have been refused, and closed, by now.
    let _closed = socket.shutdown(Shutdown::Write);
    let mut answer = Vec::new();
    match socket.read_to_end(&mut answer) {
        Err(error) if error.kind() != ErrorKind::ConnectionReset => panic!("{error}"),
        _ => String::from_utf8(answer).unwrap(),
    }
}

fn begin(datastore: &TestDatastore, headers: &str, body: &[u8]) -> TcpStream {
    let address = datastore.url.socket_addrs(|| None).unwrap()[0];
    let mut socket = TcpStream::connect(address).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    let head =
        format!("PUT /api/plans?{RUN}&attempt=5 HTTP/1.1\r\nhost: localhost\r\n{headers}\r\n\r\n");
    socket.write_all(head.as_bytes()).unwrap();
    socket.write_all(body).unwrap();
    socket
}

/// Waits until no upload is staged: a client that disconnects does not see the cleanup.
fn nothing_staged(root: &Path) {
    let since = Instant::now();
    while files(root).iter().any(|path| path.to_string_lossy().contains('#')) {
        assert!(since.elapsed() < Duration::from_secs(30), "{:?}", files(root));
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn truncated_body_is_refused_and_leaves_no_files() {
    for datastore in TestDatastore::each().await {
        let latest = format!("plans?{RUN}");
        stored(&datastore, &format!("plans?{RUN}&attempt=4"), "{}").await;
        for sent in [0, 10, 300_000, 3 * MIB, 9 * MIB] {
            let length = format!("content-length: {}", sent + 1);
            let answer = send(&datastore, &length, &noise(sent, 1));
            assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 400 "), "{answer}");
            let chunk = [format!("{sent:x}\r\n").as_bytes(), &noise(sent, 1), b"\r\n"].concat();
            for cut in ["", "5\r\nab", "zz\r\n"] {
                let body = [&chunk[..], cut.as_bytes()].concat();
                let body = if sent == 0 { cut.as_bytes() } else { &body };
                let answer = send(&datastore, "transfer-encoding: chunked", body);
                assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 400 "), "{answer}");
            }
            assert_eq!(get(&datastore, &format!("{latest}&attempt=5")).await.status, 404);
            assert_eq!(get(&datastore, &latest).await.status, 200, "4 is still the latest attempt");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn staged_file_is_removed_when_the_caller_disconnects() {
    let datastore = TestDatastore::temporary().await;
    let socket = begin(&datastore, "content-length: 9000000", &noise(3 * MIB, 1));
    let since = Instant::now();
    while !files(&datastore.root()).iter().any(|path| path.ends_with("plan.json#1")) {
        assert!(since.elapsed() < Duration::from_secs(30), "never staged");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    drop(socket);
    nothing_staged(&datastore.root());
    assert_eq!(get(&datastore, &format!("plans?{RUN}&attempt=5")).await.status, 404);
}

#[tokio::test(flavor = "multi_thread")]
async fn bytes_beyond_content_length_are_not_part_of_the_body() {
    for datastore in TestDatastore::each().await {
        let answer = send(&datastore, "content-length: 5", b"hello and more");
        assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
        assert_eq!(get(&datastore, &format!("plans?{RUN}&attempt=5")).await.text(), "hello");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn contradicting_lengths_return_400() {
    for datastore in TestDatastore::each().await {
        for headers in ["content-length: 5\r\ncontent-length: 6", "content-length: x"] {
            let answer = send(&datastore, headers, b"hello");
            assert!(answer.starts_with("HTTP/1.1 400 "), "{answer}");
        }
        assert_eq!(get(&datastore, &format!("plans?{RUN}&attempt=5")).await.status, 404);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn body_sent_byte_by_byte_is_stored_whole() {
    for datastore in TestDatastore::each().await {
        let body = noise(2000, 1);
        let chunks = body.iter().flat_map(|byte| [b"1\r\n", &[*byte][..], b"\r\n"].concat());
        let body_on_wire = chunks.chain(*b"0\r\n\r\n").collect::<Vec<_>>();
        let answer = send(&datastore, "transfer-encoding: chunked", &body_on_wire);
        assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
        assert_eq!(get(&datastore, &format!("plans?{RUN}&attempt=5")).await.body, body);
    }
}
