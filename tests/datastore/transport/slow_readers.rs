//! Many readers of one tenant at 20 KiB/s, and the small requests of another. `scripts/bench starve` measures these.

use std::io::{ErrorKind, Read as _};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::{JoinHandle, spawn};
use std::time::{Duration, Instant};

use nix::sys::socket::{setsockopt, sockopt};
use support::{Dialect, TestDatastore};

use crate::http::{RUN, get, noise, stored};
use crate::transport::memory::slow_readers;

const MIB: usize = 1 << 20;
/// What a reader takes at once, and how often: 20 KiB/s.
const SIP: usize = 4 << 10;
const EVERY: Duration = Duration::from_millis(200);

/// Readers that take 20 KiB/s each, until they are stopped.
struct Readers {
    /// How many of them are answered.
    answered: Arc<AtomicUsize>,
    stops: Sender<()>,
    /// How many of them have read, and are still connected.
    reading: JoinHandle<usize>,
}

impl Readers {
    fn start(mut sockets: Vec<TcpStream>) -> Self {
        for socket in &sockets {
            // Else the kernel holds megabytes of each answer, and they are slow only after those.
            setsockopt(socket, sockopt::RcvBuf, &SIP).unwrap();
            socket.set_nonblocking(true).unwrap();
        }
        let answered = Arc::new(AtomicUsize::new(0));
        let (stops, stopped) = channel();
        let count = Arc::clone(&answered);
        let reading = spawn(move || {
            let mut read = vec![0; sockets.len()];
            while stopped.recv_timeout(EVERY) == Err(RecvTimeoutError::Timeout) {
                for (socket, read) in sockets.iter_mut().zip(&mut read) {
                    let mut sip = [0; SIP];
                    match socket.read(&mut sip) {
                        Ok(length) if length > 0 => *read += length,
                        Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                        ended => panic!("after {read} bytes: {ended:?}"),
                    }
                    assert!(!sip.starts_with(b"HTTP/1.1 5"), "{}", sip.escape_ascii());
                }
                count.store(read.iter().filter(|read| **read > 0).count(), Ordering::Relaxed);
            }
            read.iter().filter(|read| **read > SIP).count()
        });
        Self { answered, stops, reading }
    }

    async fn until_answered(&self, least: usize) {
        let since = Instant::now();
        while self.answered.load(Ordering::Relaxed) < least {
            assert!(since.elapsed() < Duration::from_mins(1), "{:?}", self.answered);
            tokio::time::sleep(EVERY).await;
        }
    }

    fn stop(self) -> usize {
        drop(self.stops);
        self.reading.join().unwrap()
    }
}

/// With so many readers of a tenant, the small requests of another are all answered.
async fn is_served_beside(datastore: &TestDatastore, readers: usize) {
    let slow = Readers::start(slow_readers(datastore, readers));
    slow.until_answered(readers).await;
    let small = noise(4 << 10, 3);
    let other = "plans?namespace=team-b&layer=network&run=plan-1&attempt=1";
    stored(datastore, other, small.clone()).await;
    for _ in 0..300 {
        let answer = get(datastore, other).await;
        assert!(answer.status == 200 && answer.body == small, "{}", answer.status);
    }
    assert_eq!(slow.stop(), readers, "all of them still read");
}

#[tokio::test(flavor = "multi_thread")]
async fn beside_12_readers_of_64_mib_at_20_kib_per_second_over_a_bucket_no_small_get_is_refused() {
    let datastore = TestDatastore::double(Dialect::S3).await;
    datastore.cloud().put("layers/team-a/network/plan-1/0/plan.json", vec![b' '; 64 * MIB]);
    is_served_beside(&datastore, 12).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn beside_256_readers_at_20_kib_per_second_over_a_directory_no_small_get_is_refused() {
    let datastore = TestDatastore::temporary().await;
    stored(&datastore, &format!("plans?{RUN}&attempt=0"), vec![b' '; 64 * MIB]).await;
    is_served_beside(&datastore, 256).await;
}
