//! Callers that never stop sending: they are answered, and neither their connection nor a shutdown lasts for ever.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::sync::mpsc::{Receiver, channel};
use std::thread::{sleep, spawn};
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use tempfile::TempDir;

use crate::program::process::{Running, until};

const LIMIT: Duration = Duration::from_secs(30);

/// Sends this again and again, until it is disconnected; then its channel closes.
fn send_for_ever(socket: &TcpStream, piece: &'static [u8]) -> Receiver<()> {
    let mut socket = socket.try_clone().unwrap();
    let (connected, disconnects) = channel();
    spawn(move || {
        while socket.write_all(piece).is_ok() {}
        drop(connected);
    });
    disconnects
}

/// Begins an upload that is refused for its missing names, and never ends it.
fn refused_upload(datastore: &Running) -> (TcpStream, Receiver<()>) {
    let mut socket = datastore.connect();
    let head = "PUT /api/plans HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n";
    socket.write_all(head.as_bytes()).unwrap();
    let disconnects = send_for_ever(&socket, b"5\r\nhello\r\n");
    (socket, disconnects)
}

/// The answer to [`refused_upload`].
fn refusal(socket: &mut TcpStream) -> String {
    let mut answer = Vec::new();
    socket.read_to_end(&mut answer).unwrap();
    String::from_utf8(answer).unwrap()
}

#[test]
fn refused_upload_that_never_ends_is_answered_and_disconnected() {
    let directory = TempDir::new().unwrap();
    let datastore = Running::start(directory.path(), &[]);
    let (mut socket, disconnects) = refused_upload(&datastore);
    let answer = refusal(&mut socket);
    assert!(answer.starts_with("HTTP/1.1 400 "), "{answer}");
    assert!(answer.ends_with("missing query parameters"), "{answer}");
    let disconnected = disconnects.recv_timeout(LIMIT).unwrap_err();
    assert_eq!(disconnected, std::sync::mpsc::RecvTimeoutError::Disconnected, "it still sends");
}

#[test]
fn refused_upload_that_goes_on_during_a_shutdown_gets_its_answer() {
    let directory = TempDir::new().unwrap();
    let mut datastore = Running::start(directory.path(), &[]);
    let mut socket = datastore.connect();
    let head = "PUT /api/plans HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n";
    socket.write_all(head.as_bytes()).unwrap();
    socket.peek(&mut [0]).unwrap();
    datastore.signal(Signal::SIGTERM);
    let since = Instant::now();
    while since.elapsed() < Duration::from_secs(3) {
        socket.write_all(b"5\r\nhello\r\n").unwrap();
        sleep(Duration::from_millis(10));
    }
    let answer = refusal(&mut socket);
    assert!(answer.starts_with("HTTP/1.1 400 "), "{answer}");
    drop(socket);
    assert_eq!(datastore.wait().code(), Some(0));
}

#[test]
fn callers_that_never_stop_sending_do_not_delay_shutdown() {
    let directory = TempDir::new().unwrap();
    let flags = ["--drain-timeout", "1h"];
    let mut datastore = Running::start(directory.path(), &flags);
    let (mut refused, _sending) = refused_upload(&datastore);
    // One request after the other, without waiting for the answers.
    let requests = datastore.connect();
    let _requesting = send_for_ever(&requests, b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n");
    let mut answers = requests.try_clone().unwrap();
    let (counts, counted) = channel();
    spawn(move || {
        let mut piece = vec![0; 64 << 10];
        while answers.read(&mut piece).is_ok_and(|length| length > 0) {
            let _at_the_end = counts.send(());
        }
    });
    counted.recv_timeout(LIMIT).unwrap();
    let answer = refusal(&mut refused);
    assert!(answer.starts_with("HTTP/1.1 400 "), "{answer}");
    datastore.signal(Signal::SIGTERM);
    assert_eq!(datastore.wait().code(), Some(0));
    until("its last line", || datastore.log.lock().unwrap().contains("shut down"));
    let log = datastore.log.lock().unwrap();
    assert!(!log.contains("drain timeout"), "{log}");
}
