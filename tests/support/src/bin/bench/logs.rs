//! `logs`: how late followers get what is appended to a live log, what a thousand of them cost, and a log of 1 GiB.

use std::sync::LazyLock;
use std::time::{Duration, Instant};

use futures::future::join_all;
use reqwest::Client;
use support::{Dialect, FakeCloud};
use tokio::task::JoinHandle;
use tokio::time::sleep;

use super::{MIB, Programs, Server, file, ms};

const LOG: &str = "namespace=n&layer=l&run=r&attempt=0";
/// Lines are appended one by one.
const LINES: usize = 100;
const EVERY: Duration = Duration::from_millis(200);
const FOLLOWERS: usize = 1000;
/// A log of 1 GiB in pieces of 4 MiB.
const PIECES: usize = 256;
const APPEND: usize = 4 * MIB;

/// Lines have the time since then at which they are appended.
static START: LazyLock<Instant> = LazyLock::new(Instant::now);

pub(super) async fn logs(programs: &Programs) {
    println!("logs: lines of a live log, from the start of their append until a follower has them");
    lag(programs).await;
    followers(programs).await;
    large(programs).await;
}

/// Over a directory, which two replicas serve.
async fn lag(programs: &Programs) {
    let appended = Server::start(&programs.datastore);
    let dir = appended.dir.as_ref().unwrap().path().join("store");
    let other = Server::over(&programs.datastore, &format!("file://{}", dir.display()), &[]);
    let mut log = Log::new(&appended.url);
    log.append(String::new()).await;
    let readers = [("same replica", &appended), ("other replica", &other)];
    let readers = readers.map(|(name, server)| (name, follow(&server.url)));
    let mut appends = log.lines(LINES).await;
    log.complete().await;
    print("append (the yardstick)", &mut appends);
    for (name, reader) in readers {
        print(name, &mut reader.await.unwrap());
    }
}

/// Many followers on a replica that takes no appends, over a bucket.
async fn followers(programs: &Programs) {
    let double = FakeCloud::start(Dialect::S3);
    let start = || Server::over(&programs.datastore, double.url(), &double.variables());
    let (appended, other) = (start(), start());
    let mut log = Log::new(&appended.url);
    log.append(String::new()).await;
    let before = other.rss();
    let readers = (0..FOLLOWERS).map(|_| follow(&other.url)).collect::<Vec<_>>();
    sleep(Duration::from_secs(10)).await;
    let held = (other.rss() - before) * 1024.0 / FOLLOWERS as f64;
    let (requests, cpu) = (double.requests().len(), other.cpu_seconds());
    sleep(Duration::from_secs(10)).await;
    let each_second = (double.requests().len() - requests) as f64 / 10.0;
    let cpu = (other.cpu_seconds() - cpu) * 10.0;
    println!(
        "  {FOLLOWERS} followers wait: {each_second:.1} requests/s to the bucket, {held:.1} KiB each, {cpu:.1} % of a core"
    );
    log.lines(LINES).await;
    log.complete().await;
    let lags = join_all(readers).await.into_iter().flat_map(Result::unwrap);
    print("each of them", &mut lags.collect::<Vec<_>>());
}

async fn large(programs: &Programs) {
    let server = Server::start(&programs.datastore);
    let mut log = Log::new(&server.url);
    let piece = vec![b'a'; APPEND];
    let mut appends = Vec::with_capacity(PIECES);
    for _ in 0..PIECES {
        let since = Instant::now();
        log.append(piece.clone()).await;
        appends.push(since.elapsed());
    }
    let bare = tokio::task::block_in_place(|| file(APPEND, 40));
    print("append of 4 MiB", &mut appends);
    println!("    a bare file of 4 MiB, written and fsynced: p50 {:.1} ms", ms(bare));
    let live = read(&server.url).await;
    let since = Instant::now();
    log.complete().await;
    let completed = since.elapsed();
    println!(
        "  1 GiB: completed in {:.0} ms; read in {:.0} ms before and {:.0} ms after; memory at most {:.1} MiB",
        ms(completed),
        ms(live),
        ms(read(&server.url).await),
        server.rss_peak()
    );
}

/// The writer of a log.
struct Log {
    http: Client,
    url: String,
    length: usize,
}

impl Log {
    fn new(url: &str) -> Self {
        Self { http: client(), url: format!("{url}/api/logs?{LOG}"), length: 0 }
    }

    async fn append(&mut self, bytes: impl Into<Vec<u8>>) {
        let bytes = bytes.into();
        let (url, length) = (format!("{}&offset={}", self.url, self.length), bytes.len());
        let answer = self.http.post(url).body(bytes).send().await.unwrap();
        assert_eq!(answer.status(), 200);
        self.length += length;
    }

    async fn complete(&mut self) {
        let url = format!("{}&offset={}&complete=true", self.url, self.length);
        assert_eq!(self.http.post(url).send().await.unwrap().status(), 200);
    }

    /// Appends so many lines, and returns how long each append took.
    async fn lines(&mut self, count: usize) -> Vec<Duration> {
        let mut took = Vec::with_capacity(count);
        for _ in 0..count {
            let at = START.elapsed();
            self.append(format!("{}\n", at.as_nanos())).await;
            took.push(START.elapsed() - at);
            sleep(EVERY).await;
        }
        took
    }
}

/// Follows the log to its end. Returns how late each line was.
fn follow(url: &str) -> JoinHandle<Vec<Duration>> {
    let url = format!("{url}/api/logs?{LOG}&follow=true");
    tokio::spawn(async move {
        let mut answer = client().get(url).send().await.unwrap();
        assert_eq!(answer.status(), 200);
        let (mut lags, mut line) = (vec![], vec![]);
        while let Some(bytes) = answer.chunk().await.unwrap() {
            let now = START.elapsed();
            for byte in bytes {
                if byte != b'\n' {
                    line.push(byte);
                    continue;
                }
                let at = String::from_utf8(std::mem::take(&mut line)).unwrap();
                lags.push(now - Duration::from_nanos(at.parse().unwrap()));
            }
        }
        assert_eq!(lags.len(), LINES);
        lags
    })
}

/// How long it takes to read the log as a whole.
async fn read(url: &str) -> Duration {
    let since = Instant::now();
    let mut answer = client().get(format!("{url}/api/logs?{LOG}")).send().await.unwrap();
    let mut length = 0;
    while let Some(bytes) = answer.chunk().await.unwrap() {
        length += bytes.len();
    }
    // As JSON, it is a little longer.
    assert!(length >= PIECES * APPEND, "{length}");
    since.elapsed()
}

fn client() -> Client {
    Client::builder().tcp_nodelay(true).build().unwrap()
}

fn print(what: &str, times: &mut [Duration]) {
    times.sort_unstable();
    let at = |percent: usize| ms(times[times.len() * percent / 100]);
    println!("  {what:<24} p50 {:8.1} ms, p99 {:8.1} ms", at(50), at(99));
}
