//! Limits of size: bodies by kind, and the head of a request.

use std::io::Write as _;

use datastore::kind::Kind;
use datastore::transport::limits::Limits;
use futures::stream;
use reqwest::{Body, Method};
use support::TestDatastore;
use tempfile::TempDir;

use super::memory::{answer, connect};
use crate::http::{CLIENT, RUN, get, noise, put, request, send, stored};
use crate::program::process::Running;

const MIB: usize = 1 << 20;

fn kinds() -> [(Kind, String); 8] {
    let plan = |format| format!("plans?{RUN}&attempt=0&format={format}");
    [
        (Kind::Bin, plan("bin")),
        (Kind::Json, plan("json")),
        (Kind::Pretty, plan("pretty")),
        (Kind::Short, plan("short")),
        (Kind::Log, format!("logs?{RUN}&attempt=0")),
        (Kind::Bundle, "repository/revision/bundle?namespace=a&name=b&ref=c&revision=d".to_owned()),
        (Kind::Artifact, format!("artifacts?{RUN}&attempt=0&name=run.json")),
        (Kind::Workspace, format!("artifacts?{RUN}&attempt=0&name=workspace.tar.zst")),
    ]
}

#[tokio::test]
async fn body_above_the_size_limit_of_its_kind_returns_413() {
    let mut limits = Limits::default();
    for (size, (kind, _)) in (10..).zip(kinds()) {
        limits.sizes.set(kind, size);
    }
    let datastore = TestDatastore::limited(limits).await;
    for (size, (_, url)) in (10..).zip(kinds()) {
        stored(&datastore, &url, noise(size, 1)).await;
        assert_eq!(put(&datastore, &url, noise(size + 1, 2)).await.status, 413, "{url}");
        let pieces = [noise(size, 3), b"x".to_vec()].map(Ok::<_, std::io::Error>);
        let counted = Body::wrap_stream(stream::iter(pieces));
        let counted = send(request(&datastore, Method::PUT, &url).body(counted)).await;
        assert_eq!(counted.status, 413, "{url}");
        if !url.starts_with("logs") {
            assert_eq!(get(&datastore, &url).await.body, noise(size, 1));
        }
    }
    let refused = put(&datastore, &kinds()[0].1, noise(11, 1)).await.refusal();
    insta::assert_snapshot!(refused, @"413 text/plain; charset=UTF-8 it is larger than the 10B that `--max-size` allows for `bin`");
    let refused = put(&datastore, &kinds()[6].1, noise(17, 1)).await.refusal();
    insta::assert_snapshot!(refused, @r#"413 application/problem+json {"type":"about:blank","title":"Payload Too Large","status":413,"detail":"it is larger than the 16B that `--max-size` allows for `artifact`"}"#);
}

#[tokio::test(flavor = "multi_thread")]
async fn too_large_content_length_is_refused_before_the_body_is_sent() {
    let datastore = TestDatastore::memory().await;
    let mut socket = connect(&datastore);
    let head =
        format!("PUT /api/plans?{RUN}&attempt=0&format=short HTTP/1.1\r\nhost: localhost\r\n");
    write!(socket, "{head}content-length: 1048577\r\n\r\n").unwrap();
    assert!(answer(&mut socket).starts_with("HTTP/1.1 413 "));

    // One that sends all the same gets the reason, and is not reset.
    for size in [2 * MIB, 64 * MIB] {
        let url = format!("plans?{RUN}&attempt=0&format=short");
        assert_eq!(put(&datastore, &url, noise(size, 1)).await.status, 413);
    }
}

#[tokio::test]
async fn request_head_above_16_kib_returns_431() {
    let datastore = TestDatastore::memory().await;
    for (length, status) in [(15 << 10, 200), (17 << 10, 431), (200 << 10, 431)] {
        let healthz = datastore.url.join("healthz").unwrap();
        let answer = send(CLIENT.get(healthz).header("x-long", "a".repeat(length))).await;
        assert_eq!(answer.status, status, "{length}");
    }
}

#[test]
fn unfinished_request_heads_use_little_memory() {
    let root = TempDir::new().unwrap();
    let datastore = Running::start(root.path(), &[]);
    let head = format!("GET /healthz HTTP/1.1\r\nx-long: {}", "a".repeat(250 << 10));
    let heads = (0..400).map(|_| {
        let mut socket = datastore.connect();
        // It may be refused before all of it is sent.
        let _refused = socket.write_all(head.as_bytes());
        socket
    });
    let heads = heads.collect::<Vec<_>>();
    assert_eq!(datastore.get("/healthz").0, 200);
    // All heads have 98 MiB, and an idle process holds at least 11.
    assert!(datastore.memory() < 100, "{} MiB", datastore.memory());
    drop(heads);
}
