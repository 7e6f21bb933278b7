//! `clouds`: PUT and GET over a double of S3, against the same bytes put and got there directly.
//!
//! There are three comparisons. `direct`: the double neither hashes nor copies, and neither does the caller, so bytes
//! move as fast as the loopback allows: 4 GB/s, twice what one core can hash. A real S3 checks a digest of every body,
//! and a caller without a datastore has to verify what it reads. So `checked` is the same with a caller that computes
//! the SHA-256 of what it sends and receives, as callers of the datastore need not. `bare hop` is a program of thirty
//! lines ([`super::pass`]) in place of the datastore that hashes and forwards, and does nothing else: where that is far
//! from `direct`, so is any datastore on this machine, except for what it gains by parallel parts.

use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::thread::sleep;
use std::time::{Duration, Instant};

use datastore_api::digest::Hasher;
use futures::StreamExt as _;
use futures::stream;
use object_store::aws::AmazonS3;
use object_store::signer::Signer as _;
use reqwest::Method;
use support::{Dialect, FakeCloud, Pace};
use tempfile::TempDir;

use super::{MIB, PIECE, Programs, Server, body, median, ms};

/// What a signature over HTTP would add, TLS would not ask for.
pub(super) const UNSIGNED: (&str, &str) = ("AWS_UNSIGNED_PAYLOAD", "true");

pub(super) async fn clouds(programs: &Programs) {
    let places = Places::open(programs);
    println!("clouds: over a double of S3, sha256 both ways; against the double itself");
    println!("  sha256 alone, on this machine in this minute: {:.2} cpu-s/GB", hashing());
    for (size, rounds) in [(8 * MIB, 40), (256 * MIB, 4)] {
        let all = [&places.through, &places.hop, &places.direct, &places.checked];
        compare("loopback", size, rounds, &all).await;
    }
    for connections in [1, 8] {
        small(connections, &[&places.through, &places.hop, &places.direct]).await;
    }
    let latency = Duration::from_millis(20);
    places.double.pace(Pace { latency, bytes_per_second: 90_000_000 });
    for (size, rounds) in [(8 * MIB, 8), (128 * MIB, 3)] {
        let all = [&places.through, &places.direct];
        compare("20 ms, 90 MB/s per connection", size, rounds, &all).await;
    }
}

/// `server`: the same over a server of S3 that others wrote, `s3s-fs`. It does what any of them must: takes a
/// digest of what comes, and writes files; into memory here, so that no disk is measured. Nothing small: each
/// of its answers waits 40 ms for an acknowledgement.
pub(super) async fn server(programs: &Programs, s3s: &str) {
    let server = S3s::start(s3s);
    println!("server: over s3s-fs, against it itself");
    let variables = [
        ("AWS_ENDPOINT_URL_S3", server.url.clone()),
        ("AWS_ALLOW_HTTP", "true".to_owned()),
        // The same for callers without a datastore.
        ("AWS_SKIP_SIGNATURE", "true".to_owned()),
        (UNSIGNED.0, UNSIGNED.1.to_owned()),
    ];
    let datastore = Server::over(&programs.datastore, "s3://bucket", &variables);
    let through = Place::through(datastore);
    let direct = Place::new(format!("{}/bucket/direct-", server.url), "");
    for (size, rounds) in [(8 * MIB, 20), (256 * MIB, 4)] {
        compare("loopback", size, rounds, &[&through, &direct]).await;
    }
}

/// The server, until it is dropped.
struct S3s {
    url: String,
    child: Child,
    _files: TempDir,
}

impl S3s {
    fn start(program: &str) -> Self {
        let files = TempDir::new_in("/dev/shm").unwrap();
        std::fs::create_dir(files.path().join("bucket")).unwrap();
        // It cannot choose a free port itself.
        let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap();
        let mut command = Command::new(program);
        command.args(["--host", "127.0.0.1", "--port", &free.port().to_string()]);
        command.arg(files.path()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        while TcpStream::connect(free).is_err() {
            assert!(child.try_wait().unwrap().is_none(), "s3s-fs did not start");
            sleep(Duration::from_millis(10));
        }
        Self { url: format!("http://{free}"), child, _files: files }
    }
}

impl Drop for S3s {
    fn drop(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

/// One load alone, for a profiler: `put` or `get`, at 8 connections below 1 MiB and at one above.
pub(super) async fn only(programs: &Programs, what: &str, size: usize, seconds: u64) {
    let places = Places::open(programs);
    let place = if what.starts_with("hop") { &places.hop } else { &places.through };
    let connections = if size < MIB { 8 } else { 1 };
    futures::future::join_all((0..8).map(|key| place.put(key, size))).await;
    let end = Instant::now() + Duration::from_secs(seconds);
    let done = stream::iter(0..usize::MAX).take_while(|_| std::future::ready(Instant::now() < end));
    let done = done.map(async |round| {
        if what.ends_with("put") {
            place.put(round % 8, size).await
        } else {
            place.get(round % 8, size).await
        }
    });
    let cpu = place.cpu_seconds();
    let done = done.buffer_unordered(connections).count().await;
    let cpu = place.cpu_seconds() - cpu;
    println!(
        "{what} {size}: {:.0} a second, {:.3} GB/s, {:.1} us of cpu each, {:.2} cpu-s/GB",
        done as f64 / seconds as f64,
        (done * size) as f64 / 1e9 / seconds as f64,
        cpu * 1e6 / done as f64,
        cpu * 1e9 / (done * size) as f64
    );
}

/// The double, and every way to it.
struct Places {
    double: FakeCloud,
    through: Place,
    hop: Place,
    direct: Place,
    checked: Place,
}

impl Places {
    fn open(programs: &Programs) -> Self {
        let double = FakeCloud::start(Dialect::S3);
        let mut variables = double.variables();
        variables.push((UNSIGNED.0, UNSIGNED.1.to_owned()));
        let through = Place::through(Server::over(&programs.datastore, double.url(), &variables));
        let mut command = Command::new(std::env::current_exe().unwrap());
        let hop = Server::run(command.args(["pass-through", double.address()]));
        let before = format!("{}/bucket/hop-", hop.url);
        let hop = Place { name: "bare hop", server: Some(hop), ..Place::new(before, "") };
        let direct = || Place::new(format!("{}/bucket/direct-", double.address()), "");
        let checked = Place { name: "checked", hashes: true, ..direct() };
        Self { through, hop, direct: direct(), checked, double }
    }
}

/// A place to put to and get from.
pub(super) struct Place {
    name: &'static str,
    /// The server between the benchmark and the double.
    server: Option<Server>,
    http: reqwest::Client,
    before: String,
    after: &'static str,
    /// Who signs the URLs of MinIO's objects.
    signer: Option<Arc<AmazonS3>>,
    /// Whether we take the sha256 of what we send and of what comes.
    hashes: bool,
}

impl Place {
    pub(super) fn new(before: String, after: &'static str) -> Self {
        let http = reqwest::Client::builder().tcp_nodelay(true).build().unwrap();
        Self { name: "direct", server: None, http, before, after, signer: None, hashes: false }
    }

    /// One in a bucket at `url`, through a server or not.
    pub(super) fn signed(
        name: &'static str,
        url: String,
        server: Option<Server>,
        bucket: Arc<AmazonS3>,
    ) -> Self {
        Self { name, server, signer: Some(bucket), ..Self::new(url, "") }
    }

    async fn url(&self, method: Method, key: usize) -> String {
        let Self { before, after, .. } = self;
        let Some(signer) = &self.signer else { return format!("{before}{key}{after}") };
        let path = format!("{}-{key}", self.name.replace(' ', "-"));
        let minute = Duration::from_secs(60);
        let url = signer.signed_url(method, &path.into(), minute).await.unwrap().to_string();
        match &self.server {
            Some(server) => url.replacen(before, &server.url, 1),
            None => url,
        }
    }

    pub(super) fn through(datastore: Server) -> Self {
        let before = format!("{}/api/plans?namespace=n&layer=l&run=r", datastore.url);
        let place = Self::new(before, "&attempt=0&format=bin");
        Self { name: "datastore", server: Some(datastore), ..place }
    }

    pub(super) async fn put(&self, key: usize, size: usize) -> Duration {
        let url = self.url(Method::PUT, key).await;
        let started = Instant::now();
        let put = self.http.put(url).header("content-length", size).body(body(size, self.hashes));
        assert_eq!(put.send().await.unwrap().status(), 200);
        started.elapsed()
    }

    pub(super) async fn get(&self, key: usize, size: usize) -> Duration {
        let url = self.url(Method::GET, key).await;
        let started = Instant::now();
        let mut answer = self.http.get(url).send().await.unwrap();
        assert_eq!(answer.status(), 200);
        let (mut bytes, mut hasher) = (0, Hasher::default());
        while let Some(piece) = answer.chunk().await.unwrap() {
            bytes += piece.len();
            if self.hashes {
                hasher.update(&piece);
            }
        }
        assert_eq!(bytes, size);
        std::hint::black_box(hasher.finish());
        started.elapsed()
    }

    fn cpu_seconds(&self) -> f64 {
        self.server.as_ref().map_or(0.0, Server::cpu_seconds)
    }
}

/// What a sum costs that each client must compute to verify, of bytes that are in the cache: cpu-seconds for a GB.
pub(super) fn hashing() -> f64 {
    let (size, started) = (256 * MIB, Instant::now());
    let mut hasher = Hasher::default();
    for _ in 0..size / PIECE.len() {
        hasher.update(&PIECE);
    }
    std::hint::black_box(hasher.finish());
    started.elapsed().as_secs_f64() * 1e9 / size as f64
}

/// In turn, so that all have the same minute. The first is ours.
pub(super) async fn compare(name: &str, size: usize, rounds: usize, places: &[&Place]) {
    println!("  {} MiB, {name}, medians of {rounds} rounds in turn", size / MIB);
    let mut all = places.iter().map(|_| [Ran::default(), Ran::default()]).collect::<Vec<_>>();
    // The first round makes connections and the run's entry.
    for round in 0..=rounds {
        for (place, [put, get]) in places.iter().zip(&mut all) {
            for (ran, is_put) in [(put, true), (get, false)] {
                let cpu = place.cpu_seconds();
                let time = if is_put { place.put(0, size).await } else { place.get(0, size).await };
                if round > 0 {
                    ran.times.push(time);
                    ran.cpu += place.cpu_seconds() - cpu;
                }
            }
        }
    }
    let gigabytes = (size * rounds) as f64 / 1e9;
    for (verb, at) in [("PUT", 0), ("GET", 1)] {
        let speed = |ran: &[Ran; 2]| size as f64 / median(&ran[at].times).as_secs_f64() / 1e9;
        let ours = speed(&all[0]);
        let reported = places.iter().zip(&all).map(|(place, ran)| {
            let mut reported = format!("{} {:.3} GB/s", place.name, speed(ran));
            if place.server.is_some() {
                reported += &format!(" {:.2} cpu-s/GB", ran[at].cpu / gigabytes);
            }
            if place.name != places[0].name {
                reported += &format!(" ({:.0} %)", 100.0 * ours / speed(ran));
            }
            reported
        });
        println!("    {verb} {}", reported.collect::<Vec<_>>().join("; "));
    }
}

/// How long some took, and what that cost the server.
#[derive(Default)]
struct Ran {
    times: Vec<Duration>,
    cpu: f64,
}

/// Many small ones: what each way adds to the direct one, which is the last.
async fn small(connections: usize, places: &[&Place]) {
    const SIZE: usize = 4 << 10;
    const ROUNDS: usize = 2000;
    const TURNS: usize = 3;
    println!("  4 KiB, {connections} at once, {ROUNDS} each in turn, the medians of {TURNS} turns");
    for put in [true, false] {
        let mut all = vec![Vec::new(); places.len()];
        for _ in 0..TURNS {
            for (place, all) in places.iter().zip(&mut all) {
                let cpu = place.cpu_seconds();
                let ran = stream::iter(0..ROUNDS).map(|round| async move {
                    let key = 1 + round % 16;
                    if put { place.put(key, SIZE).await } else { place.get(key, SIZE).await }
                });
                // The first of them make connections and the runs' entries.
                let mut ran = ran.buffer_unordered(connections).collect::<Vec<_>>().await;
                let cpu = (place.cpu_seconds() - cpu) / ROUNDS as f64;
                ran.drain(..ROUNDS / 10);
                ran.sort();
                all.push([ms(ran[ran.len() / 2]), ms(ran[ran.len() * 99 / 100]), cpu * 1e6]);
            }
        }
        let figures = all.iter().map(|turns| {
            [0, 1, 2].map(|at| median(&turns.iter().map(|turn| turn[at]).collect::<Vec<_>>()))
        });
        let figures = figures.collect::<Vec<_>>();
        let [.., [p50, p99, _]] = figures[..] else { unreachable!() };
        println!("    {} direct p50 {p50:.2} ms, p99 {p99:.2} ms", if put { "PUT" } else { "GET" });
        for (place, [ours, slow, cpu]) in places.iter().zip(&figures).take(places.len() - 1) {
            println!(
                "      {} {ours:.2}, {slow:.2} ms: {:+.2}, {:+.2} ms; {cpu:.0} us of cpu",
                place.name,
                ours - p50,
                slow - p99
            );
        }
    }
}
