//! What is not about artifacts.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use reqwest::Method;
use support::{CloudFault, Dialect, Double, TestDatastore};

use crate::http::{CLIENT, RUN, request, send};
use crate::tenants::operations;

async fn outside(datastore: &TestDatastore, path: &str) -> crate::http::Answer {
    send(CLIENT.get(datastore.url.join(path).unwrap())).await
}

#[tokio::test]
async fn health_and_readiness_are_told_to_anybody() {
    for datastore in TestDatastore::each().await {
        for path in ["healthz", "readyz"] {
            let answer = outside(&datastore, path).await;
            assert_eq!((answer.status, answer.text().as_str()), (200, "OK"));
            assert_eq!(answer.header("content-type"), Some("text/plain; charset=UTF-8"));
        }
    }
}

#[tokio::test]
async fn while_a_silent_storage_is_tried_it_is_alive_and_not_ready() {
    let double = Double::start(Dialect::S3);
    let (delay, times) = (Duration::from_mins(1), usize::MAX);
    double.fault(CloudFault { delay, times, ..CloudFault::default() });
    let datastore = TestDatastore::with(double.storage()).await;
    assert_eq!(outside(&datastore, "healthz").await.status, 200);
    let answer = outside(&datastore, "readyz").await;
    insta::assert_snapshot!(answer.refusal(), @r#"503 application/problem+json {"type":"about:blank","title":"Service Unavailable","status":503,"detail":"the storage is not ready: it is still being tried"}"#);
    assert_eq!(answer.header("retry-after"), Some("5"));
}

#[tokio::test]
async fn a_storage_that_hangs_makes_it_not_ready_within_15_s() {
    let datastore = TestDatastore::double(Dialect::S3).await;
    let (delay, times) = (Duration::from_mins(1), usize::MAX);
    datastore.cloud().fault(CloudFault { delay, times, ..CloudFault::default() });
    let since = Instant::now();
    while outside(&datastore, "readyz").await.status == 200 {
        assert!(since.elapsed() < Duration::from_secs(15), "still ready");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let answer = outside(&datastore, "readyz").await;
    assert!(answer.text().contains("not ready: it does not answer"), "{}", answer.text());
    datastore.cloud().heal();
    while outside(&datastore, "readyz").await.status == 503 {
        assert!(since.elapsed() < Duration::from_mins(1), "never ready again");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test]
async fn a_full_storage_makes_it_not_ready_within_15_s() {
    let datastore = TestDatastore::double(Dialect::S3).await;
    let (status, times) = (507, usize::MAX);
    datastore.cloud().fault(CloudFault { method: "PUT", status, times, ..CloudFault::default() });
    let since = Instant::now();
    while outside(&datastore, "readyz").await.status == 200 {
        assert!(since.elapsed() < Duration::from_secs(15), "still ready");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let answer = outside(&datastore, "readyz").await;
    assert!(answer.text().contains("no space is left"), "{}", answer.text());
}

#[tokio::test]
async fn without_its_directory_it_is_healthy_but_not_ready() {
    let datastore = TestDatastore::temporary().await;
    assert_eq!(outside(&datastore, "readyz").await.status, 200);
    std::fs::remove_dir_all(datastore.root()).unwrap();
    let answer = outside(&datastore, "readyz").await;
    insta::assert_snapshot!(answer.refusal(), @r#"503 application/problem+json {"type":"about:blank","title":"Service Unavailable","status":503,"detail":"the storage is not ready: entity not found; the datastore's log has the details"}"#);
    assert_eq!(outside(&datastore, "healthz").await.status, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_without_one_host_is_400() {
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
        assert_eq!(status(&format!("GET {path} HTTP/1.1\r\nhost: x\r\n")), found, "{path}");
        assert_eq!(status(&format!("GET {path} HTTP/1.1\r\n")), 400, "{path}");
        let twice = format!("GET {path} HTTP/1.1\r\nhost: x\r\nHost: x\r\n");
        assert_eq!(status(&twice), 400, "{path}");
        for host in ["a/b c", "u:p@a", "a/b", "a b", "a?b", "http://a", "a:b:c"] {
            let head = format!("GET {path} HTTP/1.1\r\nhost: {host}\r\n");
            assert_eq!(status(&head), 400, "{host}");
        }
        for host in ["a.example:8080", "[::1]:80", "127.0.0.1", "a_b"] {
            let head = format!("GET {path} HTTP/1.1\r\nhost: {host}\r\n");
            assert_eq!(status(&head), found, "{host}");
        }
    }
    assert_eq!(status("GET /healthz HTTP/1.0\r\n"), 200);
    assert_eq!(status("GET /healthz HTTP/1.0\r\nhost: x\r\nhost: y\r\n"), 400);
}

#[tokio::test]
async fn a_repeated_parameter_is_refused_on_every_route() {
    let datastore = TestDatastore::memory().await;
    for operation in operations(&datastore).await {
        let url = operation.url();
        let (_, query) = url.split_once('?').unwrap_or_default();
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let name = pair.split('=').next().unwrap();
            for again in
                [format!("{url}&{pair}"), format!("{url}&{name}=other"), format!("{url}&{name}")]
            {
                let answer = send(request(&datastore, operation.method.clone(), &again)).await;
                assert_eq!(answer.status, 400, "{again}");
                // On upstream's routes the text is in its words, which name the parameter as well.
                assert!(answer.text().contains(name), "{again}: {}", answer.text());
            }
        }
    }
}

#[tokio::test]
async fn unknown_paths_and_wrong_methods_are_not_found() {
    for datastore in TestDatastore::each().await {
        let wrong = [
            (Method::DELETE, format!("plans?{RUN}&attempt=0")),
            (Method::POST, format!("logs?{RUN}&attempt=0")),
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
async fn a_backend_that_fails_is_told_in_upstreams_words() {
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
    let mut socket = crate::limits::connect(datastore);
    socket.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    socket.read_to_string(&mut answer).unwrap();
    answer
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_that_is_no_host_and_port_is_400() {
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
async fn a_body_is_stored_decoded_or_refused() {
    let datastore = TestDatastore::temporary().await;
    let url = format!("logs?{RUN}&attempt=0");
    let sent = |headers: &str| {
        let head =
            format!("PUT /api/{url} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n{headers}\r\n");
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
