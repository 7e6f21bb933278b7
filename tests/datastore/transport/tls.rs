//! TLS on the same port, and certificates that change.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime};

use datastore::config::Config;
use datastore::store::Storage;
use datastore::transport::tls::TlsFiles;
use nix::sys::signal::Signal;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair, date_time_ymd};
use reqwest::{Certificate, Client};
use support::TestDatastore;
use tempfile::TempDir;

use crate::http::{RUN, noise};
use crate::program::process::{Running, program};

/// An authority, and a certificate of it for a server on loopback.
pub(crate) struct Issued {
    authority: String,
    cert: String,
    key: String,
}

pub(crate) fn issue() -> Issued {
    let authority_key = KeyPair::generate().unwrap();
    let mut authority = CertificateParams::default();
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let pem = authority.self_signed(&authority_key).unwrap().pem();
    let issuer = Issuer::new(authority, authority_key);
    let key = KeyPair::generate().unwrap();
    let names = ["127.0.0.1".to_owned(), "localhost".to_owned()];
    let mut cert = CertificateParams::new(names).unwrap();
    cert.not_after = date_time_ymd(2079, 5, 17);
    let cert = cert.signed_by(&key, &issuer).unwrap();
    Issued { authority: pem, cert: cert.pem(), key: key.serialize_pem() }
}

impl Issued {
    pub(crate) fn write(&self, dir: &Path) {
        std::fs::write(dir.join("tls.crt"), &self.cert).unwrap();
        std::fs::write(dir.join("tls.key"), &self.key).unwrap();
    }

    /// One that trusts this authority alone, and keeps no connection.
    pub(crate) fn client(&self) -> Client {
        let authority = Certificate::from_pem(self.authority.as_bytes()).unwrap();
        let client = Client::builder().tls_certs_only([authority]).pool_max_idle_per_host(0);
        client.build().unwrap()
    }
}

fn files(dir: &Path) -> TlsFiles {
    TlsFiles { cert: dir.join("tls.crt"), key: dir.join("tls.key") }
}

async fn start(dir: &Path) -> TestDatastore {
    TestDatastore::of(Config { tls: Some(files(dir)), ..Config::of(Storage::Memory) }).await
}

async fn is_served(datastore: &TestDatastore, client: &Client) -> bool {
    client
        .get(datastore.url.join("healthz").unwrap())
        .send()
        .await
        .is_ok_and(|answer| answer.status() == 200)
}

#[tokio::test]
async fn ds23_artifacts_go_over_tls_and_plain_http_is_refused() {
    let (dir, issued) = (TempDir::new().unwrap(), issue());
    issued.write(dir.path());
    let datastore = start(dir.path()).await;
    let client = issued.client();
    let url = format!("{}api/plans?{RUN}&attempt=0", datastore.url);
    let plan = noise(5 << 20, 1);
    assert_eq!(client.put(&url).body(plan.clone()).send().await.unwrap().status(), 200);
    let got = client.get(&url).send().await.unwrap();
    assert_eq!(got.version(), reqwest::Version::HTTP_11);
    assert!(got.bytes().await.unwrap() == plan);
    assert!(!is_served(&datastore, &issue().client()).await, "another authority");
    let metrics = client.get(datastore.url.join("metrics").unwrap()).send().await.unwrap();
    let metrics = metrics.text().await.unwrap();
    let name = "\ndatastore_certificate_expiry_timestamp_seconds ";
    let (_, expires) = metrics.split_once(name).unwrap();
    let expires = expires.lines().next().unwrap().parse::<i64>().unwrap();
    let not_after = "2079-05-17T00:00:00Z".parse::<jiff::Timestamp>().unwrap();
    assert_eq!(expires, not_after.as_second());

    let mut unencrypted =
        TcpStream::connect(datastore.url.socket_addrs(|| None).unwrap()[0]).unwrap();
    unencrypted.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    unencrypted.write_all(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n").unwrap();
    let mut answer = Vec::new();
    let _reset = unencrypted.read_to_end(&mut answer);
    assert!(!String::from_utf8_lossy(&answer).contains("HTTP/1.1 200"), "{answer:?}");
    assert!(is_served(&datastore, &client).await);
}

#[tokio::test]
async fn ds23_changed_certificate_is_reloaded_without_a_restart() {
    let (dir, old, new) = (TempDir::new().unwrap(), issue(), issue());
    old.write(dir.path());
    let datastore = start(dir.path()).await;
    assert!(is_served(&datastore, &old.client()).await);

    // Half of it: the pair does not fit, and the old one stays.
    std::fs::write(dir.path().join("tls.crt"), &new.cert).unwrap();
    tokio::time::sleep(Duration::from_millis(1200)).await;
    assert!(is_served(&datastore, &old.client()).await);
    std::fs::remove_file(dir.path().join("tls.key")).unwrap();
    tokio::time::sleep(Duration::from_millis(1200)).await;
    assert!(is_served(&datastore, &old.client()).await);

    new.write(dir.path());
    let since = Instant::now();
    while !is_served(&datastore, &new.client()).await {
        assert!(since.elapsed() < Duration::from_secs(10), "the old one still serves");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert!(!is_served(&datastore, &old.client()).await);
}

/// As when only their permissions or their owner are corrected.
#[tokio::test]
async fn certificate_that_could_not_be_read_is_tried_again_although_its_files_look_the_same() {
    let (dir, old, new) = (TempDir::new().unwrap(), issue(), issue());
    old.write(dir.path());
    let datastore = start(dir.path()).await;
    assert!(is_served(&datastore, &old.client()).await);
    let write_key = |text: &[u8]| {
        std::fs::write(dir.path().join("tls.key"), text).unwrap();
        let key = std::fs::File::options().write(true).open(dir.path().join("tls.key")).unwrap();
        key.set_modified(SystemTime::UNIX_EPOCH).unwrap();
    };
    write_key(&vec![b'x'; new.key.len()]);
    std::fs::write(dir.path().join("tls.crt"), &new.cert).unwrap();
    tokio::time::sleep(Duration::from_millis(1200)).await;
    assert!(is_served(&datastore, &old.client()).await);

    write_key(new.key.as_bytes());
    let since = Instant::now();
    while !is_served(&datastore, &new.client()).await {
        assert!(since.elapsed() < Duration::from_secs(10), "the old one still serves");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test]
async fn ds23_secret_replaced_by_kubernetes_is_reloaded() {
    use std::os::unix::fs::symlink;
    let (dir, old, new) = (TempDir::new().unwrap(), issue(), issue());
    for (name, issued) in [("..1", &old), ("..2", &new)] {
        std::fs::create_dir(dir.path().join(name)).unwrap();
        issued.write(&dir.path().join(name));
    }
    symlink("..1", dir.path().join("..data")).unwrap();
    for name in ["tls.crt", "tls.key"] {
        symlink(format!("..data/{name}"), dir.path().join(name)).unwrap();
    }
    let datastore = start(dir.path()).await;
    assert!(is_served(&datastore, &old.client()).await);
    symlink("..2", dir.path().join("..new")).unwrap();
    std::fs::rename(dir.path().join("..new"), dir.path().join("..data")).unwrap();
    let since = Instant::now();
    while !is_served(&datastore, &new.client()).await {
        assert!(since.elapsed() < Duration::from_secs(10), "the old one still serves");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test]
async fn unfinished_tls_handshakes_block_no_other_connection() {
    let (dir, issued) = (TempDir::new().unwrap(), issue());
    issued.write(dir.path());
    let datastore = start(dir.path()).await;
    let address = datastore.url.socket_addrs(|| None).unwrap()[0];
    let silent = (0..50).map(|_| TcpStream::connect(address).unwrap()).collect::<Vec<_>>();
    assert!(is_served(&datastore, &issued.client()).await);
    drop(silent);
}

#[tokio::test]
async fn unfinished_tls_handshake_does_not_delay_shutdown() {
    let (dir, issued) = (TempDir::new().unwrap(), issue());
    issued.write(dir.path());
    let path = |name: &str| dir.path().join(name).display().to_string();
    let flags = ["--tls-cert", &path("tls.crt"), "--tls-key", &path("tls.key")];
    let mut datastore = Running::start(&dir.path().join("store"), &flags);
    let silent = datastore.connect();
    let mut unfinished = datastore.connect();
    unfinished.write_all(&[0x16, 0x03, 0x01]).unwrap();
    // Later connections are served, so these are accepted.
    let url = format!("https://{}/healthz", datastore.address);
    assert_eq!(issued.client().get(url).send().await.unwrap().status(), 200);
    let since = Instant::now();
    datastore.signal(Signal::SIGTERM);
    assert_eq!(datastore.wait().code(), Some(0));
    assert!(since.elapsed() < Duration::from_secs(9));
    drop((silent, unfinished));
}

#[test]
fn missing_certificate_prevents_startup() {
    let dir = TempDir::new().unwrap();
    let start = || {
        let (cert, key) = (dir.path().join("tls.crt"), dir.path().join("tls.key"));
        let mut command = program(&["serve", "--storage", "memory://", "--listen", "127.0.0.1:0"]);
        let output =
            command.arg("--tls-cert").arg(cert).arg("--tls-key").arg(key).output().unwrap();
        assert_eq!(output.status.code(), Some(8));
        let text = String::from_utf8(output.stderr).unwrap();
        let (_, text) = text.split_once("ERROR ").unwrap();
        text.trim().replace(&*dir.path().to_string_lossy(), "[dir]")
    };
    insta::assert_snapshot!(start(), @"cannot use the certificate: [dir]/tls.crt: I/O error: No such file or directory (os error 2)");
    issue().write(dir.path());
    std::fs::write(dir.path().join("tls.key"), issue().key).unwrap();
    insta::assert_snapshot!(start(), @"cannot use the certificate: [dir]/tls.crt and [dir]/tls.key: keys may not be consistent: KeyMismatch");
    std::fs::write(dir.path().join("tls.crt"), "nothing").unwrap();
    insta::assert_snapshot!(start(), @"cannot use the certificate: [dir]/tls.crt: the file has no certificate");
}
