//! DS27 on the wire: no spelling of a path, no reused connection and no refusal gives anything away.

use std::collections::BTreeSet;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use datastore_api::Sha256;
use reqwest::Method;
use support::TestDatastore;

use super::tenants::{fill, operations};
use crate::access::authentication::{A, B, asked, guarded};
use crate::http::{etag, request, send};

/// What is answered to bytes on a connection of their own.
fn on_the_wire(datastore: &TestDatastore, bytes: &str) -> String {
    let mut socket = TcpStream::connect(datastore.url.socket_addrs(|| None).unwrap()[0]).unwrap();
    socket.set_read_timeout(Some(std::time::Duration::from_secs(10))).unwrap();
    socket.write_all(bytes.as_bytes()).unwrap();
    let mut answer = Vec::new();
    let _reset = socket.read_to_end(&mut answer);
    String::from_utf8_lossy(&answer).into_owned()
}

/// A client normalizes a path before it sends it, so these are sent unchanged.
#[tokio::test(flavor = "multi_thread")]
async fn ds27_no_path_spelling_bypasses_authentication() {
    let (datastore, _kube) = guarded().await;
    let kept = fill(&datastore, &operations(&datastore).await).await;
    for (url, secret) in &kept {
        let (path, query) = url.split_once('?').unwrap();
        let paths = [
            format!("/api/{path}"),
            format!("//api/{path}"),
            format!("/api//{path}"),
            format!("/api/{path}/"),
            format!("/api/./{path}"),
            format!("/api/x/../{path}"),
            format!("/api/%2e%2e/api/{path}"),
            format!("/healthz/../api/{path}"),
            format!("/healthz/..%2Fapi/{path}"),
            format!("/metrics/%2e%2e/api/{path}"),
            format!("/%61pi/{path}"),
            format!("/API/{path}"),
            format!("/api/openapi.json/../{path}"),
            format!("/api/openapi.json/{path}"),
            format!("/api/{path};x"),
            format!("/api/{path}%00"),
            format!("http://127.0.0.1/api/{path}"),
            format!("http://team-b@healthz/api/{path}"),
        ];
        for path in paths {
            let target = format!("{path}?{query}");
            for (token, fine) in [("", [401, 404, 400]), (A, [403, 404, 400])] {
                let token = if token.is_empty() {
                    String::new()
                } else {
                    format!("authorization: {token}\r\n")
                };
                for method in ["GET", "HEAD", "PUT"] {
                    let answer = on_the_wire(
                        &datastore,
                        &format!(
                            "{method} {target} HTTP/1.1\r\nhost: localhost\r\n{token}content-length: 0\r\nconnection: close\r\n\r\n"
                        ),
                    );
                    let status = answer.get(9..12).and_then(|text| text.parse().ok());
                    assert!(
                        status.is_some_and(|one| fine.contains(&one)),
                        "{method} {target}: {answer}"
                    );
                    assert!(!answer.contains(secret), "{method} {target}: {answer}");
                }
            }
        }
        assert!(asked(&datastore, Method::GET, url, B).await.text().contains(secret), "{url}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn ds27_connection_keeps_no_authentication_between_requests() {
    let (datastore, _kube) = guarded().await;
    let kept = fill(&datastore, &operations(&datastore).await).await;
    let url = &kept[0].0;
    let get = |more: &str| format!("GET /api/{url} HTTP/1.1\r\nhost: localhost\r\n{more}\r\n");
    let by = |token: &str| get(&format!("authorization: {token}\r\n"));
    let all =
        [by(B), get(""), by(B), by(A), by(B), by("rubbish"), by(B), get("connection: close\r\n")];
    let answers = on_the_wire(&datastore, &all.concat());
    let statuses = answers.split("HTTP/1.1 ").skip(1).map(|answer| &answer[..3]);
    assert_eq!(
        statuses.collect::<Vec<_>>(),
        ["200", "401", "200", "403", "200", "401", "200", "401"],
        "{answers}"
    );
    assert_eq!(answers.matches("S3CRET").count(), 4, "{answers}");
    // Two contradicting tokens authenticate no caller.
    for pair in [[A, B], [B, A], [B, B]] {
        let more = pair.map(|token| format!("authorization: {token}\r\n")).concat();
        let answer = on_the_wire(&datastore, &get(&format!("{more}connection: close\r\n")));
        assert!(answer.starts_with("HTTP/1.1 401"), "{answer}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn ds27_refusal_does_not_reveal_whether_objects_exist() {
    let (datastore, _kube) = guarded().await;
    let operations = operations(&datastore).await;
    let kept = fill(&datastore, &operations).await;
    for operation in operations.iter().filter(|one| one.url.contains('?')) {
        let mut methods = vec![operation.method.clone()];
        if operation.method == Method::GET {
            methods.push(Method::HEAD);
        }
        let nowhere = operation.url.replace("plan-1", "plan-2").replace("infra", "infra-2");
        let nowhere = nowhere.replace("network", "network-2");
        let secret = kept.iter().find(|(url, _)| *url == operation.url);
        let secret = secret.map_or("", |(_, secret)| secret).as_bytes();
        let tag = etag(secret);
        let digest = Sha256::of(secret).to_repr_digest();
        for method in methods {
            let mut reported = BTreeSet::new();
            for url in [&operation.url, &nowhere] {
                for (name, value) in [
                    ("x-none", ""),
                    ("if-none-match", &*tag),
                    ("if-none-match", "*"),
                    ("if-match", &tag),
                    ("if-match", "\"other\""),
                    ("range", "bytes=0-1"),
                    ("range", "bytes=9999-"),
                    ("repr-digest", &digest),
                    ("repr-digest", "sha-256=:AAAA:"),
                ] {
                    let asking = request(&datastore, method.clone(), url);
                    let asking = asking.header("authorization", A).header(name, value);
                    let mut answer = send(asking).await;
                    answer.headers.remove("x-request-id");
                    answer.headers.remove("date");
                    reported.insert(format!(
                        "{} {:?} {:?}",
                        answer.status, answer.headers, answer.body
                    ));
                }
            }
            assert_eq!(reported.len(), 1, "{method} {}: {reported:?}", operation.url);
            assert!(reported.iter().all(|reported| reported.starts_with("403 ")), "{reported:?}");
        }
    }
}
