//! `/healthz` and `/readyz`.

use std::io::{Read as _, Write as _};
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use support::{CloudFault, Dialect, FakeCloud, TestDatastore};

use crate::http::{CLIENT, send};
use crate::program::process::{Running, program, until};
use crate::transport::tls::issue;

pub(crate) async fn outside(datastore: &TestDatastore, path: &str) -> crate::http::Answer {
    send(CLIENT.get(datastore.url.join(path).unwrap())).await
}

#[tokio::test]
async fn health_and_readiness_need_no_token() {
    for datastore in TestDatastore::each().await {
        becomes_ready(&datastore).await;
        for path in ["healthz", "readyz"] {
            let answer = outside(&datastore, path).await;
            assert_eq!((answer.status, answer.text().as_str()), (200, "OK"));
            assert_eq!(answer.header("content-type"), Some("text/plain; charset=UTF-8"));
        }
    }
}

#[tokio::test]
async fn while_a_silent_storage_is_probed_it_is_healthy_but_not_ready() {
    let double = FakeCloud::start(Dialect::S3);
    let (delay, times) = (Duration::from_mins(1), usize::MAX);
    double.fault(CloudFault { delay, times, ..CloudFault::default() });
    let datastore = TestDatastore::with(double.storage()).await;
    assert_eq!(outside(&datastore, "healthz").await.status, 200);
    let answer = outside(&datastore, "readyz").await;
    insta::assert_snapshot!(answer.refusal(), @r#"503 application/problem+json {"type":"about:blank","title":"Service Unavailable","status":503,"detail":"the storage is not ready: it is still being tried"}"#);
    assert_eq!(answer.header("retry-after"), Some("5"));
}

#[tokio::test]
async fn hanging_storage_makes_it_unready_within_15_s() {
    let datastore = TestDatastore::double(Dialect::S3).await;
    becomes_ready(&datastore).await;
    let (delay, times) = (Duration::from_mins(1), usize::MAX);
    datastore.cloud().fault(CloudFault { delay, times, ..CloudFault::default() });
    let since = Instant::now();
    while outside(&datastore, "readyz").await.status == 200 {
        assert!(since.elapsed() < Duration::from_secs(30), "still ready");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let answer = outside(&datastore, "readyz").await;
    assert!(answer.text().contains("not ready: it does not answer"), "{}", answer.text());
    datastore.cloud().heal();
    becomes_ready(&datastore).await;
}

/// Waits until the storage was tried.
pub(crate) async fn becomes_ready(datastore: &TestDatastore) {
    let since = Instant::now();
    while outside(datastore, "readyz").await.status == 503 {
        assert!(since.elapsed() < Duration::from_mins(1), "never ready");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test]
async fn full_storage_makes_it_unready_within_15_s() {
    let datastore = TestDatastore::double(Dialect::S3).await;
    becomes_ready(&datastore).await;
    let (status, times) = (507, usize::MAX);
    datastore.cloud().fault(CloudFault { method: "PUT", status, times, ..CloudFault::default() });
    let since = Instant::now();
    while outside(&datastore, "readyz").await.status == 200 {
        assert!(since.elapsed() < Duration::from_secs(30), "still ready");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let answer = outside(&datastore, "readyz").await;
    assert!(answer.text().contains("no space is left"), "{}", answer.text());
}

#[tokio::test]
async fn missing_directory_makes_it_healthy_but_not_ready() {
    let datastore = TestDatastore::temporary().await;
    becomes_ready(&datastore).await;
    std::fs::remove_dir_all(datastore.root()).unwrap();
    let answer = outside(&datastore, "readyz").await;
    insta::assert_snapshot!(answer.refusal(), @r#"503 application/problem+json {"type":"about:blank","title":"Service Unavailable","status":503,"detail":"the storage is not ready: its directory is missing; the datastore's log has the details"}"#);
    assert_eq!(outside(&datastore, "healthz").await.status, 200);
}

#[test]
fn the_program_answers_healthz_while_it_first_tries_a_silent_storage() {
    let double = FakeCloud::start(Dialect::S3);
    let (delay, times) = (Duration::from_mins(1), usize::MAX);
    double.fault(CloudFault { delay, times, ..CloudFault::default() });
    let datastore = Running::over(double.url(), &double.variables(), &[]);
    assert_eq!(datastore.get("/healthz"), (200, b"OK".to_vec()));
    let (status, text) = datastore.get("/readyz");
    let text = String::from_utf8(text).unwrap();
    assert!(status == 503 && text.contains("it is still being tried"), "{status} {text}");
}

/// `datastore health`: exit code and standard error.
fn ask(variables: &[(&str, &str)], flags: &[&str]) -> (i32, String) {
    let mut command = program(&[&["health"], flags].concat());
    let output = command.envs(variables.iter().copied()).output().unwrap();
    (output.status.code().unwrap(), String::from_utf8(output.stderr).unwrap())
}

#[test]
fn the_command_health_succeeds_only_while_the_datastore_is_ready() {
    let directory = tempfile::TempDir::new().unwrap();
    let datastore = Running::start(directory.path(), &["--drain-delay", "1h"]);
    until("ready", || datastore.get("/readyz").0 == 200);
    let address = datastore.address.clone();
    let port = address.rsplit_once(':').unwrap().1;
    assert_eq!(ask(&[], &["--listen", &address]), (0, String::new()));
    // Every address: it asks on loopback, without the proxy that the variables name.
    let (any, proxy) = (format!(":{port}"), "http://127.0.0.1:9");
    assert_eq!(ask(&[("PLANCHA_LISTEN", &any), ("http_proxy", proxy)], &[]), (0, String::new()));
    datastore.signal(Signal::SIGTERM);
    until("draining", || datastore.get("/readyz").0 == 503);
    let (code, message) = ask(&[], &["--listen", &address]);
    let message = message.replace(&address, "ADDRESS");
    assert!(code == 1 && message.contains("not ready: ADDRESS: 503"), "{code}: {message}");
    drop(datastore);
    let (code, message) = ask(&[], &["--listen", &address]);
    assert!(code == 1 && message.contains("refused"), "{code}: {message}");
    let (code, message) = ask(&[], &["--listen", "127.0.0.1:0"]);
    assert!(code == 1 && message.contains("name the real one"), "{code}: {message}");
}

#[test]
fn the_command_health_does_not_take_another_program_for_the_datastore() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        for socket in listener.incoming() {
            let mut socket = socket.unwrap();
            let _read = socket.read(&mut [0; 1024]);
            let answer = "HTTP/1.1 200 OK\r\nserver: nginx\r\ncontent-length: 2\r\nconnection: close\r\n\r\nOK";
            let _sent = socket.write_all(answer.as_bytes());
        }
    });
    let (code, message) = ask(&[], &["--listen", &address]);
    let expected = format!(
        "error: the datastore is not ready: {address}: another program answers 200 OK (Server: nginx)\n\
         hint: name the address of the datastore with --listen\n"
    );
    assert_eq!((code, message), (1, expected));
}

#[test]
fn the_command_health_shows_the_errors_of_http_and_https() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        for socket in listener.incoming() {
            let _read = socket.unwrap().read(&mut [0; 1024]);
        }
    });
    let (code, message) = ask(&[], &["--listen", &address]);
    for scheme in ["http", "https"] {
        assert!(message.contains(&format!("({scheme}://{address}/readyz)")), "{message}");
    }
    assert_eq!(code, 1);
}

#[test]
fn the_command_health_asks_a_datastore_with_tls() {
    let directory = tempfile::TempDir::new().unwrap();
    issue().write(directory.path());
    let file = |name: &str| directory.path().join(name).display().to_string();
    let (cert, key) = (file("tls.crt"), file("tls.key"));
    let datastore = Running::over("memory://", &[], &["--tls-cert", &cert, "--tls-key", &key]);
    until("ready", || ask(&[], &["--listen", &datastore.address]).0 == 0);
    assert_eq!(ask(&[], &["--listen", &datastore.address]), (0, String::new()));
}
