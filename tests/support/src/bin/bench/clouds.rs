//! `clouds`: PUT and GET over a double of S3, against the same bytes put and got there directly.

use std::time::{Duration, Instant};

use futures::StreamExt as _;
use futures::stream;
use support::{Dialect, Double, Pace};

use super::{MIB, Programs, Server, body, median, ms};

/// What a signature over HTTP would add, TLS would not ask for.
const UNSIGNED: (&str, &str) = ("AWS_UNSIGNED_PAYLOAD", "true");

pub(super) async fn clouds(programs: &Programs) {
    let double = Double::start(Dialect::S3);
    let mut variables = double.variables();
    variables.push((UNSIGNED.0, UNSIGNED.1.to_owned()));
    let server = Server::over(&programs.datastore, double.url(), &variables);
    let direct = Place::direct(&double);
    let through = Place::through(&server.url);
    println!("clouds: over a double of S3, sha256 both ways; yardstick: the double itself");
    for (size, rounds) in [(8 * MIB, 12), (256 * MIB, 4)] {
        compare("loopback", size, rounds, &through, &direct, Some(&server)).await;
    }
    for connections in [1, 8] {
        small(connections, &through, &direct).await;
    }
    let latency = Duration::from_millis(20);
    double.pace(Pace { latency, bytes_per_second: 90_000_000 });
    for (size, rounds) in [(8 * MIB, 8), (128 * MIB, 3)] {
        compare("20 ms, 90 MB/s per connection", size, rounds, &through, &direct, None).await;
    }
    println!("  datastore's memory at most                     {:8.1} MiB", server.rss_peak());
    double.pace(Pace::default());
    memory(programs, &double, &variables).await;
}

/// A place to put to and get from.
struct Place {
    http: reqwest::Client,
    before: String,
    after: &'static str,
}

impl Place {
    fn direct(double: &Double) -> Self {
        Self::new(format!("{}/bucket/direct-", double.address()), "")
    }

    fn through(url: &str) -> Self {
        Self::new(format!("{url}/api/plans?namespace=n&layer=l&run=r"), "&attempt=0&format=bin")
    }

    fn new(before: String, after: &'static str) -> Self {
        let http = reqwest::Client::builder().tcp_nodelay(true).build().unwrap();
        Self { http, before, after }
    }

    async fn put(&self, key: usize, size: usize) -> Duration {
        let started = Instant::now();
        let url = format!("{}{key}{}", self.before, self.after);
        let put = self.http.put(url).header("content-length", size).body(body(size));
        assert_eq!(put.send().await.unwrap().status(), 200);
        started.elapsed()
    }

    async fn get(&self, key: usize, size: usize) -> Duration {
        let started = Instant::now();
        let url = format!("{}{key}{}", self.before, self.after);
        let mut answer = self.http.get(url).send().await.unwrap();
        assert_eq!(answer.status(), 200);
        let mut bytes = 0;
        while let Some(piece) = answer.chunk().await.unwrap() {
            bytes += piece.len();
        }
        assert_eq!(bytes, size);
        started.elapsed()
    }
}

/// In turn, so that both have the same minute.
async fn compare(
    name: &str,
    size: usize,
    rounds: usize,
    through: &Place,
    direct: &Place,
    server: Option<&Server>,
) {
    let cpu = || server.map_or(0.0, Server::cpu_seconds);
    let (mut puts, mut direct_puts, mut gets, mut direct_gets) = (vec![], vec![], vec![], vec![]);
    let (mut put_cpu, mut get_cpu) = (0.0, 0.0);
    for round in 0..=rounds {
        let before = cpu();
        let put = through.put(0, size).await;
        let after_put = cpu();
        let get = through.get(0, size).await;
        // The first round makes connections and the run's entry.
        if round > 0 {
            put_cpu += after_put - before;
            get_cpu += cpu() - after_put;
            puts.push(put);
            gets.push(get);
            direct_puts.push(direct.put(0, size).await);
            direct_gets.push(direct.get(0, size).await);
        } else {
            direct.put(0, size).await;
        }
    }
    let gigabytes = (size * rounds) as f64 / 1e9;
    println!("  {} MiB, {name}, medians of {rounds} rounds in turn", size / MIB);
    for (verb, ours, bare, cpu) in
        [("PUT", puts, direct_puts, put_cpu), ("GET", gets, direct_gets, get_cpu)]
    {
        let speed = |times: &[Duration]| size as f64 / median(times).as_secs_f64() / 1e9;
        let (ours, bare) = (speed(&ours), speed(&bare));
        let cpu = server.map(|_| format!(", {:.2} cpu-s/GB", cpu / gigabytes)).unwrap_or_default();
        println!(
            "    {verb} {ours:.3} GB/s{cpu}; direct {bare:.3} GB/s: {:.0} % of direct",
            100.0 * ours / bare
        );
    }
}

/// Many small ones: what the way through us adds.
async fn small(connections: usize, through: &Place, direct: &Place) {
    const SIZE: usize = 4 << 10;
    const ROUNDS: usize = 2000;
    println!("  4 KiB, {connections} at once, {ROUNDS} each");
    for put in [true, false] {
        let mut times = Vec::new();
        for place in [direct, through] {
            let ran = stream::iter(0..ROUNDS).map(|round| async move {
                let key = 1 + round % 16;
                if put { place.put(key, SIZE).await } else { place.get(key, SIZE).await }
            });
            // The first of them make connections and the runs' entries.
            let mut ran = ran.buffer_unordered(connections).collect::<Vec<_>>().await;
            ran.drain(..ROUNDS / 10);
            ran.sort();
            times.push((ran[ran.len() / 2], ran[ran.len() * 99 / 100]));
        }
        let [bare, ours] = times[..] else { unreachable!() };
        println!(
            "    {} p50 {:.2} ms, p99 {:.2} ms; direct {:.2}, {:.2} ms: {:+.2}, {:+.2} ms",
            if put { "PUT" } else { "GET" },
            ms(ours.0),
            ms(ours.1),
            ms(bare.0),
            ms(bare.1),
            ms(ours.0) - ms(bare.0),
            ms(ours.1) - ms(bare.1)
        );
    }
}

/// What one upload holds, and what 8 at once hold, each in a server of its own.
async fn memory(programs: &Programs, double: &Double, variables: &[(&'static str, String)]) {
    let mut peaks = Vec::new();
    for (size, at_once) in [(0, 1), (64 * MIB, 1), (500 * MIB, 1), (64 * MIB, 8)] {
        let server = Server::over(&programs.datastore, double.url(), variables);
        let place = Place::through(&server.url);
        let puts = (0..at_once).map(|key| place.put(key, size));
        futures::future::join_all(puts).await;
        place.get(0, size).await;
        peaks.push(server.rss_peak());
    }
    let [idle, small, large, many] = peaks[..] else { unreachable!() };
    println!(
        "  memory of a server that has taken nothing {idle:.1}, 64 MiB {small:.1}, 500 MiB {large:.1} MiB"
    );
    println!("  8 x 64 MiB at once {many:.1} MiB: {:.1} each", (many - idle) / 8.0);
}
