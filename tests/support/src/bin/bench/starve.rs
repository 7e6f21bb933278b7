//! `starve`: what another tenant's small GET takes while slow readers of one tenant hold all they can.
//!
//! Twelve readers of 64 MiB over a double of S3, and 256 over a directory, each at 20 KiB/s, on the loopback.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{JoinHandle, sleep, spawn};
use std::time::{Duration, Instant};

use support::{Dialect, FakeCloud};

use super::{MIB, Programs, Server, body, ms};

const GETS: usize = 1000;
/// Bytes that a reader takes at once, and how often: 20 KiB/s.
const SIP: usize = 4 << 10;
const EVERY: Duration = Duration::from_millis(200);

pub(super) async fn starve(programs: &Programs) {
    println!(
        "starve: 4 KiB GETs of one tenant, beside slow readers of another; p50 and p99 in ms, refusals"
    );
    let double = FakeCloud::start(Dialect::S3);
    let over_s3 = Server::over(&programs.datastore, double.url(), &double.variables());
    measure("S3, 12 readers", &over_s3.url, 12).await;
    let over_files = Server::start(&programs.datastore);
    measure("directory, 256 readers", &over_files.url, 256).await;
}

async fn measure(what: &str, url: &str, readers: usize) {
    let http = reqwest::Client::builder().tcp_nodelay(true).build().unwrap();
    let plan = |tenant: &str| format!("{url}/api/plans?namespace={tenant}&layer=b&run=c&attempt=0");
    for (tenant, size) in [("slow", 64 * MIB), ("quick", 4 << 10)] {
        let put = http.put(plan(tenant)).body(body(size, false)).send().await.unwrap();
        assert_eq!(put.status(), 200);
    }
    let get = async || {
        let since = Instant::now();
        let answer = http.get(plan("quick")).send().await.unwrap();
        let status = answer.status().as_u16();
        assert_eq!(answer.bytes().await.unwrap().len(), if status == 200 { 4 << 10 } else { 0 });
        (since.elapsed(), status)
    };
    for is_beside in [false, true] {
        let over = Arc::new(AtomicBool::new(false));
        let count = if is_beside { readers } else { 0 };
        let slow = (0..count).map(|_| read_slowly(url, &over)).collect::<Vec<_>>();
        if is_beside {
            // No reader is slow until the buffers in between are full.
            tokio::time::sleep(Duration::from_secs(10)).await;
        }
        let mut took = Vec::with_capacity(GETS);
        let mut refused = 0;
        for _ in 0..GETS {
            let (time, status) = get().await;
            took.push(time);
            refused += usize::from(status != 200);
        }
        took.sort_unstable();
        let (p50, p99) = (took[GETS / 2], took[GETS * 99 / 100]);
        let beside = if is_beside { "beside them" } else { "alone" };
        over.store(true, Ordering::Relaxed);
        let slow = slow.into_iter().map(|reader| usize::from(reader.join().unwrap()));
        let slow = slow.sum::<usize>();
        println!(
            "  {what}, {beside}: {:.2}, {:.2}; {refused}, and {slow} slow readers",
            ms(p50),
            ms(p99)
        );
    }
}

/// Reads 64 MiB at 20 KiB/s, until it is over. One that is refused asks again; whether it ever was.
fn read_slowly(url: &str, over: &Arc<AtomicBool>) -> JoinHandle<bool> {
    let (address, over) = (url.trim_start_matches("http://").to_owned(), Arc::clone(over));
    spawn(move || {
        let mut is_refused = false;
        while !over.load(Ordering::Relaxed) {
            let mut socket = TcpStream::connect(&address).unwrap();
            socket.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
            let head = "GET /api/plans?namespace=slow&layer=b&run=c&attempt=0 HTTP/1.1";
            write!(socket, "{head}\r\nhost: x\r\nconnection: close\r\n\r\n").unwrap();
            let mut sip = [0; SIP];
            loop {
                match socket.read(&mut sip) {
                    Ok(0) => break,
                    Err(error) if error.kind() != std::io::ErrorKind::WouldBlock => break,
                    _ if over.load(Ordering::Relaxed) => break,
                    _ => {
                        is_refused |= sip.starts_with(b"HTTP/1.1 503");
                        sleep(EVERY);
                    }
                }
            }
        }
        is_refused
    })
}
