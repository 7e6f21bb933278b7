//! Requests on any route: hosts, methods, parameters and encodings.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use reqwest::Method;
use support::TestDatastore;

use super::health::outside;
use crate::access::tenants::operations;
use crate::http::{RUN, request, send};

#[tokio::test(flavor = "multi_thread")]
async fn request_without_exactly_one_host_header_returns_400() {
    let datastore = TestDatastore::memory().await;
    let address = datastore.url.socket_addrs(|| None).unwrap()[0];
    let status = |head: &str| {
        let mut socket = TcpStream::connect(address).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        write!(socket, "{head}connection: close\r\n\r\n").unwrap();
        let mut answer = String::new();
        socket.read_to_string(&mut answer).unwrap();
        answer[9..12].parse::<u16>().unwrap()
    };
    for path in ["/healthz", &format!("/api/plans?{RUN}&attempt=0"), "http://x/healthz"] {
        let found = if path.contains("healthz") { 200 } else { 404 };
        assert_eq!(status(&format!("GET {path} HTTP/1.1\r\nhost: localhost\r\n")), found, "{path}");
        assert_eq!(status(&format!("GET {path} HTTP/1.1\r\n")), 400, "{path}");
        let twice = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nHost: x\r\n");
        assert_eq!(status(&twice), 400, "{path}");
        for host in ["a/b c", "u:p@a", "a/b", "a b", "a?b", "http://a", "a:b:c"] {
            let head = format!("GET {path} HTTP/1.1\r\nhost: {host}\r\n");
            assert_eq!(status(&head), 400, "{host}");
        }
        for host in ["a.example:8080", "[::1]:80", "127.0.0.1", "a_b"] {
            let head = format!("GET {path} HTTP/1.1\r\nhost: {host}\r\n");
            // Without authentication, a page of another site must not reach us by its own name.
            let is_foreign = ["a.example:8080", "a_b"].contains(&host) && path.contains("/api");
            assert_eq!(status(&head), if is_foreign { 403 } else { found }, "{host}");
        }
    }
    assert_eq!(status("GET /healthz HTTP/1.0\r\n"), 200);
    assert_eq!(status("GET /healthz HTTP/1.0\r\nhost: localhost\r\nhost: y\r\n"), 400);
}

#[tokio::test]
async fn repeated_parameter_returns_400_on_every_route() {
    let datastore = TestDatastore::memory().await;
    for operation in operations(&datastore).await {
        let url = operation.url.as_str();
        let (_, query) = url.split_once('?').unwrap_or_default();
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let name = pair.split('=').next().unwrap();
            for again in
                [format!("{url}&{pair}"), format!("{url}&{name}=other"), format!("{url}&{name}")]
            {
                let answer = send(request(&datastore, operation.method.clone(), &again)).await;
                assert_eq!(answer.status, 400, "{again}");
                // Burrito's routes have Burrito's texts, which name the parameter as well.
                assert!(answer.text().contains(name), "{again}: {}", answer.text());
            }
        }
    }
}

#[tokio::test]
async fn unknown_paths_and_methods_return_404() {
    for datastore in TestDatastore::each().await {
        let wrong = [
            (Method::DELETE, format!("plans?{RUN}&attempt=0")),
            (Method::PUT, format!("attempts?{RUN}")),
            (Method::GET, "x".to_owned()),
            (Method::GET, String::new()),
        ];
        for (method, rest) in wrong {
            let answer = send(request(&datastore, method, &rest)).await;
            assert_eq!(
                (answer.status, &*answer.text()),
                (404, "{\"message\":\"Not Found\"}\n"),
                "{rest}"
            );
            assert_eq!(answer.header("content-type"), Some("application/json"));
        }
        assert_eq!(outside(&datastore, "x").await.status, 404);
    }
}

#[tokio::test]
async fn backend_failure_returns_burritos_message() {
    let datastore = TestDatastore::temporary().await;
    // A file where a directory must be: no request can make sense of it.
    std::fs::create_dir_all(datastore.root().join("layers")).unwrap();
    std::fs::write(datastore.root().join("layers/team-a"), "").unwrap();
    std::fs::write(datastore.root().join("repositories"), "").unwrap();
    let bundle = "repository/revision/bundle?namespace=a&name=b&ref=c&revision=d";
    let refusal = async |method, rest: &str| {
        let text = send(request(&datastore, method, rest).body("x")).await.refusal();
        text.replace(&*datastore.root().to_string_lossy(), "[root]")
    };
    insta::assert_snapshot!(refusal(Method::GET, &format!("plans?{RUN}&attempt=0")).await, @"500 text/plain; charset=UTF-8 could not get plan, there's an issue with the storage backend");
    insta::assert_snapshot!(refusal(Method::PUT, &format!("plans?{RUN}&attempt=0")).await, @"500 text/plain; charset=UTF-8 could not put plan, there's an issue with the storage backend: not a directory; the datastore's log has the details");
    insta::assert_snapshot!(refusal(Method::GET, &format!("logs?{RUN}&attempt=0")).await, @"500 text/plain; charset=UTF-8 could not get logs, there's an issue with the storage backend");
    insta::assert_snapshot!(refusal(Method::PUT, &format!("logs?{RUN}&attempt=0")).await, @"500 text/plain; charset=UTF-8 could not put logs, there's an issue with the storage backend");
    insta::assert_snapshot!(refusal(Method::GET, bundle).await, @"500 text/plain; charset=UTF-8 could not get bundle for revision, there's an issue with the storage backend");
    insta::assert_snapshot!(refusal(Method::PUT, bundle).await, @"500 text/plain; charset=UTF-8 could not store revision, there's an issue with the storage backend");
    insta::assert_snapshot!(refusal(Method::GET, &format!("attempts?{RUN}")).await, @r#"500 application/problem+json {"type":"about:blank","title":"Internal Server Error","status":500,"detail":"the storage backend failed: not a directory; the datastore's log has the details"}"#);
}

/// Status line and rest of the answer to these bytes.
fn answer_to(datastore: &TestDatastore, request: &str) -> String {
    let mut socket = crate::transport::memory::connect(datastore);
    socket.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    socket.read_to_string(&mut answer).unwrap();
    answer
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_host_header_returns_400() {
    let datastore = TestDatastore::temporary().await;
    let asked = |host: &str| {
        answer_to(
            &datastore,
            &format!("GET /healthz HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n"),
        )
    };
    for host in ["", ":80", "a:", "a:99999", "a:x", "*", "a@b"] {
        let answer = asked(host);
        assert!(answer.starts_with("HTTP/1.1 400 "), "{host}: {answer}");
    }
    for host in ["x", "x:80", "127.0.0.1:8080", "[::1]:8080"] {
        let answer = asked(host);
        assert!(answer.starts_with("HTTP/1.1 200 "), "{host}: {answer}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn encoded_body_is_stored_decoded_or_refused() {
    let datastore = TestDatastore::temporary().await;
    let url = format!("logs?{RUN}&attempt=0");
    let sent = |headers: &str| {
        let head = format!(
            "PUT /api/{url} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n{headers}\r\n"
        );
        answer_to(&datastore, &format!("{head}\r\n5\r\nhello\r\n0\r\n\r\n"))
    };
    for codings in
        ["gzip, chunked", "gzip,chunked", "chunked, chunked", "gzip\r\nTransfer-Encoding: chunked"]
    {
        let answer = sent(&format!("Transfer-Encoding: {codings}"));
        assert!(answer.starts_with("HTTP/1.1 501 "), "{codings}: {answer}");
        assert!(answer.contains("transfer coding other than `chunked`"), "{answer}");
    }
    assert_eq!(crate::http::get(&datastore, &url).await.status, 404);
    let answer = sent("Transfer-Encoding: Chunked");
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
}
