//! The program over each kind of storage: killed repeatedly, and under more load than its memory allows.

use std::io::{Read as _, Write as _};
use std::time::{Duration, Instant};

use datastore_api::Sha256;
use datastore_api::digest::Hasher;
use nix::sys::signal::Signal;
use support::{Dialect, FakeCloud};
use tempfile::TempDir;

use crate::http::{RUN, noise};
use crate::program::process::Running;

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;

/// Kills the server at another moment of each of so many uploads. What is there after that is what was
/// there before, or what was put, and after an answer only the latter.
fn killed(storage: &str, variables: &[(&str, String)], uploads: u64) {
    let mut there = None::<Vec<u8>>;
    let (mut answered, mut lost) = (0, 0);
    let sizes = [10, 200 * KIB, 3 * MIB, 11 * MIB].into_iter().cycle();
    for (upload, size) in (0..uploads).zip(sizes) {
        let mut datastore = Running::over(storage, variables, &[]);
        let body = noise(size, upload);
        let mut socket = datastore.begin(size, &[]);
        let sending = std::thread::spawn({
            let body = body.clone();
            move || {
                let mut answer = Vec::new();
                let _killed =
                    socket.write_all(&body).and_then(|()| socket.read_to_end(&mut answer));
                answer.starts_with(b"HTTP/1.1 200")
            }
        });
        let pause = match upload % 5 {
            0 => 0,
            // This one may end, and is not to be lost by what comes after.
            4 => u64::MAX,
            _ => upload * 7919 % (300 + size as u64 / 150),
        };
        let since = Instant::now();
        while !sending.is_finished() && since.elapsed() < Duration::from_micros(pause) {
            std::thread::sleep(Duration::from_micros(50));
        }
        datastore.signal(Signal::SIGKILL);
        datastore.wait();
        let is_answered = sending.join().unwrap();

        let datastore = Running::over(storage, variables, &[]);
        let (status, found) = datastore.get(&format!("/api/plans?{RUN}&attempt=0"));
        let text = String::from_utf8_lossy(&found);
        assert!(status == 200 || status == 404, "{status} after upload {upload}: {text}");
        let found = (status == 200).then_some(found);
        if found.as_ref() == Some(&body) {
            answered += 1;
        } else {
            assert!(!is_answered, "upload {upload} of {size} bytes was answered");
            assert!(found == there, "upload {upload} left neither the old nor the new");
            lost += 1;
        }
        there = found;
    }
    assert!(answered > 0 && lost > 0, "{answered} arrived, {lost} did not: no test of anything");
}

/// Few of them always, and 200 where there is time.
fn uploads() -> u64 {
    #[expect(clippy::disallowed_methods, reason = "as every test that takes minutes")]
    let all = std::env::var("PLANCHA_E2E").is_ok_and(|value| value == "1");
    if all { 200 } else { 16 }
}

#[test]
fn killed_during_uploads_a_directory_holds_the_old_or_the_new_version() {
    let directory = TempDir::new().unwrap();
    killed(&format!("file://{}", directory.path().display()), &[], uploads());
}

#[test]
fn killed_during_uploads_a_bucket_holds_the_old_or_the_new_version() {
    for dialect in Dialect::ALL {
        let double = FakeCloud::start(dialect);
        killed(double.url(), &double.variables(), uploads() / 2);
    }
}

/// The largest there are.
const BUNDLE: &str =
    "/api/repository/revision/bundle?namespace=team-a&name=infra&ref=main&revision=abc";

/// Puts noise of this size, a piece at a time, and reads it back: the sums must agree.
fn there_and_back(datastore: &Running, size: usize) {
    let piece = noise(MIB, size as u64);
    let mut socket = datastore.connect();
    write!(
        socket,
        "PUT {BUNDLE} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-length: {size}\r\n\r\n"
    )
    .unwrap();
    let mut sum = Hasher::default();
    for _ in 0..size / MIB {
        sum.update(&piece);
        socket.write_all(&piece).unwrap();
    }
    let mut answer = Vec::new();
    socket.read_to_end(&mut answer).unwrap();
    assert!(answer.starts_with(b"HTTP/1.1 200"), "{}", String::from_utf8_lossy(&answer));

    let mut socket = std::net::TcpStream::connect(&datastore.address).unwrap();
    write!(socket, "GET {BUNDLE} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")
        .unwrap();
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        socket.read_exact(&mut byte).unwrap();
        head.push(byte[0]);
    }
    assert!(head.starts_with(b"HTTP/1.1 200"), "{}", String::from_utf8_lossy(&head));
    let (mut received, mut length, mut buffer) = (Hasher::default(), 0, vec![0; MIB]);
    loop {
        match socket.read(&mut buffer).unwrap() {
            0 => break,
            read => {
                received.update(&buffer[..read]);
                length += read;
            }
        }
    }
    let (sum, received): (Sha256, Sha256) = (sum.finish(), received.finish());
    assert_eq!((received, length), (sum, size));
}

/// How much more than what transfers allocate the process may hold: what the allocator keeps of memory that was freed,
/// and what the HTTP libraries read ahead. That varies; a transfer that is kept as a whole is far more.
const MARGIN: u64 = 64;

#[test]
fn ds16_300_mib_transfers_use_constant_memory() {
    let directory = TempDir::new().unwrap();
    let double = FakeCloud::start(Dialect::S3);
    let file = format!("file://{}", directory.path().display());
    for (storage, variables) in [(&*file, vec![]), (double.url(), double.variables())] {
        let datastore = Running::over(storage, &variables, &[]);
        there_and_back(&datastore, 64 * MIB);
        let before = datastore.memory();
        there_and_back(&datastore, 300 * MIB);
        let after = datastore.memory();
        assert!(after < before + MARGIN, "{before} MiB, then {after} MiB over {storage}");
        assert!(after < 64 + MARGIN, "{after} MiB over {storage}");
    }
}

/// Keeps little of what is not taken yet in the kernel. Else 200 of these hold a GiB there, and where that is more
/// than the machine has for sockets, the kernel resets the finished connections of other tests.
fn hold_little(socket: &std::net::TcpStream) {
    use nix::sys::socket::{setsockopt, sockopt};
    setsockopt(socket, sockopt::SndBuf, &(64 * KIB)).unwrap();
    setsockopt(socket, sockopt::RcvBuf, &(64 * KIB)).unwrap();
}

#[test]
fn concurrent_1_gib_uploads_beyond_the_memory_budget_return_503() {
    let double = FakeCloud::start(Dialect::S3);
    let flags = ["--max-memory", "64MiB", "--max-size", "json=2GiB"];
    let datastore = Running::over(double.url(), &double.variables(), &flags);
    let part = noise(40 * MIB, 1);
    let answers = std::thread::scope(|scope| {
        let uploads = (0..200).map(|_| {
            scope.spawn(|| {
                let mut socket = datastore.begin(1 << 30, &[]);
                hold_little(&socket);
                socket.set_write_timeout(Some(Duration::from_secs(12))).unwrap();
                // An accepted upload sends a part and pauses; a rejected one sends nothing.
                let _sent_away = socket.write_all(&part);
                // Longer than the others wait: accepted uploads keep their memory.
                socket.set_read_timeout(Some(Duration::from_secs(14))).unwrap();
                let mut answer = vec![0; 200];
                let length = socket.read(&mut answer).unwrap_or(0);
                String::from_utf8_lossy(&answer[..length]).into_owned()
            })
        });
        uploads
            .collect::<Vec<_>>()
            .into_iter()
            .map(|upload| upload.join().unwrap())
            .collect::<Vec<_>>()
    });
    let busy = answers
        .iter()
        .filter(|answer| answer.starts_with("HTTP/1.1 503 ") && answer.contains("retry-after: "));
    let (busy, let_in) = (busy.count(), answers.iter().filter(|answer| answer.is_empty()).count());
    // An eighth is in reserve for small requests, and a quarter of the rest for other callers.
    assert_eq!((busy, let_in), (195, 5));
    let memory = datastore.memory();
    assert!(memory < 64 + MARGIN, "{memory} MiB");
}

#[test]
fn concurrent_32_mib_reads_stay_within_the_memory_budget() {
    let double = FakeCloud::start(Dialect::S3);
    let datastore = Running::over(double.url(), &double.variables(), &["--max-memory", "64MiB"]);
    there_and_back(&datastore, 32 * MIB);
    let before = datastore.memory();
    let reads = (0..50).map(|_| {
        let mut socket = datastore.connect();
        hold_little(&socket);
        write!(socket, "GET {BUNDLE} HTTP/1.1\r\nhost: localhost\r\n\r\n").unwrap();
        socket
    });
    let _reads = reads.collect::<Vec<_>>();
    // They take nothing of it, and those in line wait for 10 s.
    std::thread::sleep(Duration::from_secs(4));
    let memory = datastore.memory();
    assert!(memory < before + 64 + MARGIN, "{before} MiB, then {memory} MiB");
}
