//! The log of the program, and requests that do not wait for it.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Child, Stdio};
use std::time::Duration;

use tempfile::TempDir;

use super::process::program;

/// A program whose log nothing reads, killed when dropped.
struct Unread(Child);

impl Drop for Unread {
    fn drop(&mut self) {
        let _gone = self.0.kill();
        let _gone = self.0.wait();
    }
}

/// Starts a datastore; returns the reader of its log, and its address.
fn started(
    directory: &TempDir,
    flags: &[&str],
) -> (Unread, BufReader<std::process::ChildStderr>, String) {
    let storage = format!("file://{}", directory.path().join("store").display());
    let mut command = program(&["serve", "--listen", "127.0.0.1:0", "--storage", &storage]);
    let child = command.args(flags).stderr(Stdio::piped()).spawn().unwrap();
    let mut datastore = Unread(child);
    let mut log = BufReader::new(datastore.0.stderr.take().unwrap());
    let mut line = String::new();
    while !line.contains("listening") {
        line.clear();
        assert!(log.read_line(&mut line).unwrap() > 0, "it has ended");
    }
    let (_, address) = line.split_once("http://").unwrap();
    let address = address.split(' ').next().unwrap().to_owned();
    (datastore, log, address)
}

#[test]
fn uploads_are_stored_when_the_log_cannot_be_written() {
    let directory = TempDir::new().unwrap();
    let (_datastore, log, address) = started(&directory, &[]);
    // The reader ends, as a program behind a pipe does.
    drop(log);
    for attempt in 0..3 {
        let mut socket = TcpStream::connect(&address).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        write!(
            socket,
            "PUT /api/plans?namespace=a&layer=b&run=c&attempt={attempt} HTTP/1.1\r\nhost: localhost\r\n\
             connection: close\r\ncontent-length: 2\r\n\r\n{{}}"
        )
        .unwrap();
        let mut answer = String::new();
        socket.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    }
}

#[test]
fn refused_requests_do_not_wait_for_a_log_that_nothing_reads() {
    let directory = TempDir::new().unwrap();
    let rules = directory.path().join("rules.yaml");
    std::fs::write(&rules, "rules: []\n").unwrap();
    let auth = format!("tokens={}", rules.display());
    let (_datastore, log, address) = started(&directory, &["--auth", &auth]);
    let mut socket = TcpStream::connect(address).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    // A pipe holds 64 KiB, which is less than a quarter of these lines; the log's own queue holds thousands.
    let name = "a".repeat(256);
    let request =
        format!("GET /api/plans?namespace={name}&layer={name} HTTP/1.1\r\nhost: localhost\r\n\r\n");
    for number in 0..500 {
        socket.write_all(request.as_bytes()).unwrap();
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            let read = socket.read_exact(&mut byte);
            read.unwrap_or_else(|error| panic!("request {number}: {error}"));
            head.push(byte[0]);
        }
        let head = String::from_utf8(head).unwrap();
        assert!(head.starts_with("HTTP/1.1 401 "), "{head}");
        let (_, length) = head.split_once("content-length: ").unwrap();
        let length = length.lines().next().unwrap().parse().unwrap();
        socket.read_exact(&mut vec![0; length]).unwrap();
    }
    drop(log);
}
