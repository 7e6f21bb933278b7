//! `POST /api/encrypt` over a large storage: its memory, its progress in the log, and an interruption.

use std::io::{Read as _, Write as _};

use nix::sys::signal::Signal;

use super::*;
use crate::program::process::{Running, until};

/// So many that the kill, after the first 100, always comes before the end.
const SMALL: usize = 1500;
const LARGE: usize = 96 * MIB;

/// Every object: plans of many runs, and a bundle that does not fit, plain and encrypted, into the memory that a test
/// allows.
fn objects() -> Vec<(String, Vec<u8>)> {
    let plans = (0..SMALL).map(|run| {
        (format!("layers/team-a/network/r{run:04}/0/pretty.plan"), format!("plain {run}\n").into())
    });
    let bundle = [b"# v2 git bundle\n".to_vec(), noise(LARGE, 0)].concat();
    let bundle = ("repositories/team-a/infra/main/0.gitbundle".to_owned(), bundle);
    plans.chain([bundle]).collect()
}

fn url(key: &str) -> String {
    let parts = key.split('/').collect::<Vec<_>>();
    if let ["layers", namespace, layer, run, attempt, _] = parts[..] {
        let query = format!("namespace={namespace}&layer={layer}&run={run}&attempt={attempt}");
        return format!("/api/plans?{query}&format=pretty");
    }
    let revision = parts[4].strip_suffix(".gitbundle").unwrap();
    let query = format!("namespace=team-a&name=infra&ref=main&revision={revision}");
    format!("/api/repository/revision/bundle?{query}")
}

fn start(storage: &str, variables: &[(&str, String)]) -> Running {
    let key = ("BURRITO_DATASTORE_STORAGE_ENCRYPTION_KEY", KEY.to_owned());
    Running::over(storage, &[variables, &[key]].concat(), &["--at-rest", "burrito"])
}

/// The answer to a request to encrypt everything; what came of it if the connection breaks.
fn encrypt(mut socket: std::net::TcpStream) -> String {
    let body = "{\"encryptionKey\":\"test-encryption-key\"}";
    let head = "POST /api/encrypt HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n";
    write!(socket, "{head}content-length: {}\r\n\r\n{body}", body.len()).unwrap();
    socket.set_read_timeout(None).unwrap();
    let mut answer = Vec::new();
    let _killed = socket.read_to_end(&mut answer);
    String::from_utf8(answer).unwrap()
}

fn encrypted_of(answer: &str) -> usize {
    let (_, count) = answer.split_once("\"filesEncrypted\":").unwrap_or_else(|| panic!("{answer}"));
    count.split(['}', ',']).next().unwrap().parse().unwrap()
}

/// Kills the program in the middle of an encryption, and lets the next one end it.
fn interrupted(
    storage: &str,
    variables: &[(&str, String)],
    objects: &[(String, Vec<u8>)],
    mib: u64,
    read: impl Fn(&str) -> Vec<u8>,
) {
    let still_plain = || objects.iter().filter(|(key, plain)| read(key) == *plain).count();
    assert_eq!(still_plain(), objects.len());
    let mut datastore = start(storage, variables);
    let first = datastore.connect();
    let first = std::thread::spawn(move || encrypt(first));
    let is_in_progress =
        |log: &str| log.contains("encrypting stored objects seen=100 encrypted=100 failed=0\n");
    while !is_in_progress(&datastore.log.lock().unwrap()) {
        assert!(!first.is_finished(), "{}", datastore.log.lock().unwrap());
        std::thread::sleep(Duration::from_millis(5));
    }
    datastore.signal(Signal::SIGKILL);
    datastore.wait();
    assert_eq!(first.join().unwrap(), "");
    let left = still_plain();
    assert!((1..=objects.len() - 100).contains(&left), "{left} left");

    let datastore = start(storage, variables);
    let answer = encrypt(datastore.connect());
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    assert_eq!(encrypted_of(&answer), left, "each of the others once");
    assert_eq!(still_plain(), 0);
    let memory = datastore.memory();
    assert!(memory < mib, "{memory} MiB");
    let done = format!("encryption of stored objects completed seen={} ", objects.len());
    until(&done, || datastore.log.lock().unwrap().contains(&done));
    for (key, plain) in objects {
        let (status, bytes) = datastore.get(&url(key));
        assert!(status == 200 && bytes == *plain, "{key}");
    }
    assert_eq!(encrypted_of(&encrypt(datastore.connect())), 0);
}

#[test]
fn killed_encryption_of_a_directory_is_completed_by_the_next_request_in_bounded_memory() {
    let (root, objects) = (TempDir::new().unwrap(), objects());
    for (key, plain) in &objects {
        write(&root, key, plain);
    }
    let storage = format!("file://{}", root.path().display());
    interrupted(&storage, &[], &objects, 90, |key| std::fs::read(root.path().join(key)).unwrap());
}

#[test]
fn killed_encryption_of_a_bucket_is_completed_by_the_next_request_in_bounded_memory() {
    let (double, objects) = (FakeCloud::start(Dialect::S3), objects());
    for (key, plain) in &objects {
        double.put(key, plain.clone());
    }
    // A part of each that is read ahead, and parts of each upload.
    let read = |key: &str| double.object(key).unwrap();
    interrupted(double.url(), &double.variables(), &objects, 160, read);
}
