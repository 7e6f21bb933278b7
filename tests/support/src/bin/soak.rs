//! `soak DATASTORE [SECONDS]`: mixed sizes for a long time, with restarts of the server in between.
//! What was acknowledged must be there, and the memory flat. `soak DATASTORE burst` is what an allocator
//! is chosen by: 16 large transfers at once, and many small ones. `scripts/bench` builds and calls both.

use std::collections::HashMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use datastore_api::Sha256;
use futures::StreamExt as _;
use futures::stream;
use support::served::Served;
use support::{Dialect, FakeCloud};
use tempfile::TempDir;

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;
/// Keys that are written over and over.
const KEYS: u64 = 400;
const WORKERS: u64 = 6;
const SECONDS: u64 = 600;
/// By which the memory may have grown from one quarter of a life to another.
const FLAT: f64 = 16.0;

#[tokio::main]
async fn main() {
    let args = std::env::args().skip(1).collect::<Vec<_>>();
    match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [program] => soak(Path::new(program), SECONDS).await,
        [program, "burst"] => burst(Path::new(program)).await,
        [program, seconds] if seconds.parse::<u64>().is_ok() => {
            soak(Path::new(program), seconds.parse().unwrap()).await;
        }
        _ => {
            eprintln!("usage: soak DATASTORE [SECONDS|burst]");
            std::process::exit(64);
        }
    }
}

/// What is known of the keys, and how much was done.
#[derive(Default)]
struct Ledger {
    /// What may lie at a key: what was acknowledged last, and whatever was sent since.
    keys: Mutex<HashMap<u64, Vec<Option<Sha256>>>>,
    puts: AtomicU64,
    gets: AtomicU64,
    bytes: AtomicU64,
    unanswered: AtomicU64,
    wrong: AtomicU64,
    over: AtomicBool,
}

async fn soak(program: &Path, seconds: u64) {
    let directory = TempDir::new().unwrap();
    let mut server = Served::start(program, directory.path());
    let (url, ledger) = (server.url.clone(), Arc::new(Ledger::default()));
    let workers = (0..WORKERS).map(|seed| {
        let (url, ledger) = (url.clone(), Arc::clone(&ledger));
        tokio::spawn(async move { work(&url, &ledger, seed).await })
    });
    let workers = workers.collect::<Vec<_>>();

    let started = Instant::now();
    let life = (seconds / 10).clamp(10, 60);
    let mut lives = Vec::new();
    for signal in ["TERM", "KILL"].into_iter().cycle() {
        let mut samples = Vec::new();
        for _ in 0..life {
            tokio::time::sleep(Duration::from_secs(1)).await;
            samples.push(server.memory("VmRSS") as f64 / MIB as f64);
        }
        lives.push((samples, server.memory("VmHWM") as f64 / MIB as f64));
        if started.elapsed().as_secs() >= seconds {
            break;
        }
        server = tokio::task::spawn_blocking(move || {
            server.restart(signal);
            server
        })
        .await
        .unwrap();
    }
    ledger.over.store(true, Ordering::Relaxed);
    for worker in workers {
        worker.await.unwrap();
    }
    verify(&url, &ledger).await;
    report(&ledger, &lives, started.elapsed());
}

/// Puts and gets, one after the other, until it is over.
async fn work(url: &str, ledger: &Ledger, seed: u64) {
    let client = client();
    let mut random = Random(seed + 1);
    while !ledger.over.load(Ordering::Relaxed) {
        // Each worker has its own keys, so that it knows what it wrote last.
        let key = random.below(KEYS / WORKERS) * WORKERS + seed;
        let known = ledger.keys.lock().unwrap().contains_key(&key);
        if known && random.below(2) == 0 {
            read(&client, url, ledger, key).await;
        } else {
            let size = match random.below(100) {
                0..60 => random.below(4 * KIB as u64),
                60..80 => random.below(256 * KIB as u64),
                80..97 => random.below(4 * MIB as u64),
                _ => random.below(48 * MIB as u64),
            };
            let body = random.bytes(usize::try_from(size).unwrap());
            write(&client, url, ledger, key, body).await;
        }
    }
}

fn place(url: &str, key: u64) -> String {
    format!("{url}/api/plans?namespace=soak&layer=l{}&run=r{key}&attempt=0&format=bin", key % 7)
}

async fn write(client: &reqwest::Client, url: &str, ledger: &Ledger, key: u64, body: Vec<u8>) {
    let (sum, size) = (Some(Sha256::of(&body)), body.len() as u64);
    ledger.keys.lock().unwrap().entry(key).or_insert_with(|| vec![None]).push(sum);
    let answer = client.put(place(url, key)).body(body).send().await;
    if answer.is_ok_and(|answer| answer.status() == 200) {
        ledger.keys.lock().unwrap().insert(key, vec![sum]);
        ledger.puts.fetch_add(1, Ordering::Relaxed);
        ledger.bytes.fetch_add(size, Ordering::Relaxed);
    } else {
        ledger.unanswered.fetch_add(1, Ordering::Relaxed);
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Reads a key; `false` if that could not be done.
async fn read(client: &reqwest::Client, url: &str, ledger: &Ledger, key: u64) -> bool {
    let read = async {
        let answer = client.get(place(url, key)).send().await.ok()?;
        match answer.status().as_u16() {
            200 => Some(Some(answer.bytes().await.ok()?)),
            404 => Some(None),
            _ => None,
        }
    };
    let Some(body) = read.await else {
        ledger.unanswered.fetch_add(1, Ordering::Relaxed);
        tokio::time::sleep(Duration::from_millis(50)).await;
        return false;
    };
    ledger.gets.fetch_add(1, Ordering::Relaxed);
    ledger.bytes.fetch_add(body.as_ref().map_or(0, |body| body.len() as u64), Ordering::Relaxed);
    let sum = body.map(|body| Sha256::of(&body));
    let allowed = ledger.keys.lock().unwrap()[&key].clone();
    if !allowed.contains(&sum) {
        ledger.wrong.fetch_add(1, Ordering::Relaxed);
        eprintln!("key {key} is {sum:?}, and should be one of {allowed:?}");
    }
    true
}

async fn verify(url: &str, ledger: &Ledger) {
    let client = client();
    let keys = ledger.keys.lock().unwrap().keys().copied().collect::<Vec<_>>();
    for key in keys {
        assert!(read(&client, url, ledger, key).await, "key {key} cannot be read");
    }
}

fn report(ledger: &Ledger, lives: &[(Vec<f64>, f64)], took: Duration) {
    let count = |count: &AtomicU64| count.load(Ordering::Relaxed);
    println!(
        "soak: {:.0} s, {} restarts, {} keys; {} puts and {} gets, {:.1} GB; {} without an answer",
        took.as_secs_f64(),
        lives.len() - 1,
        ledger.keys.lock().unwrap().len(),
        count(&ledger.puts),
        count(&ledger.gets),
        count(&ledger.bytes) as f64 / 1e9,
        count(&ledger.unanswered),
    );
    let mean = |samples: &[f64]| samples.iter().sum::<f64>() / samples.len() as f64;
    let mut growth = f64::MIN;
    for (place, (samples, peak)) in lives.iter().enumerate() {
        let quarter = samples.len() / 4;
        let early = mean(&samples[quarter..2 * quarter]);
        let late = mean(&samples[samples.len() - quarter..]);
        growth = growth.max(late - early);
        println!("  life {place}: {early:6.1} MiB early, {late:6.1} late, {peak:6.1} at most");
    }
    let (wrong, flat) = (count(&ledger.wrong), growth <= FLAT);
    println!(
        "  wrong or lost: {wrong}; memory grew by {growth:.1} MiB: {}",
        if flat { "flat" } else { "NOT FLAT" }
    );
    if wrong > 0 || !flat {
        std::process::exit(1);
    }
}

/// Memory and CPU under what an allocator makes a difference for, over a directory and over S3.
async fn burst(program: &Path) {
    let directory = TempDir::new().unwrap();
    burst_over("file", Served::start(program, directory.path())).await;
    let cloud = FakeCloud::start(Dialect::S3);
    let mut storage = cloud.variables();
    storage.push(("PLANCHA_STORAGE", cloud.url().to_owned()));
    let storage = storage.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
    burst_over("s3", Served::over(program, storage)).await;
}

async fn burst_over(storage: &str, server: Served) {
    let mib = |field| server.memory(field) as f64 / MIB as f64;
    tokio::time::sleep(Duration::from_secs(1)).await;
    println!("burst over {storage}: idle {:.1} MiB", mib("VmRSS"));
    for (name, size, rounds, at_once) in [
        ("256 MiB, 16 at once", 256 * MIB, 16, 16),
        ("256 MiB", 256 * MIB, 4, 1),
        ("4 KiB, 8 at once", 4 * KIB, 4000, 8),
    ] {
        for verb in ["PUT", "GET"] {
            server.forget_peak();
            let cpu = server.cpu_seconds();
            let mut times = transfers(&server.url, verb, size, rounds, at_once).await;
            times.sort();
            let cpu = server.cpu_seconds() - cpu;
            let peak = mib("VmHWM");
            tokio::time::sleep(Duration::from_secs(2)).await;
            let ms = |place: usize| times[place].as_secs_f64() * 1000.0;
            println!(
                "  {name} {verb}: peak {peak:6.1} MiB, 2 s later {:6.1} MiB; {:.2} cpu-s/GB, \
                 {:.0} us/request; p50 {:.2} ms, p99 {:.2} ms",
                mib("VmRSS"),
                cpu * 1e9 / (size * rounds) as f64,
                cpu * 1e6 / rounds as f64,
                ms(rounds / 2),
                ms(rounds * 99 / 100),
            );
        }
    }
}

async fn transfers(
    url: &str,
    verb: &str,
    size: usize,
    rounds: usize,
    at_once: usize,
) -> Vec<Duration> {
    static PIECE: [u8; 256 << 10] = [0xA5; 256 << 10];
    let client = client();
    let times = stream::iter(0..rounds).map(|round| {
        let (client, place, verb) =
            (client.clone(), place(url, round as u64 % 16), verb.to_owned());
        tokio::spawn(async move {
            let started = Instant::now();
            loop {
                let pieces = (0..size)
                    .step_by(PIECE.len())
                    .map(move |at| Ok::<_, std::io::Error>(&PIECE[..PIECE.len().min(size - at)]));
                let request = client.request(verb.parse().unwrap(), &place);
                let request = match &*verb {
                    "PUT" => request
                        .header("content-length", size)
                        .body(reqwest::Body::wrap_stream(stream::iter(pieces))),
                    _ => request,
                };
                let mut answer = request.send().await.unwrap();
                if answer.status() == 503 {
                    tokio::time::sleep(Duration::from_secs(1)).await;
                    continue;
                }
                assert_eq!(answer.status(), 200);
                while answer.chunk().await.unwrap().is_some() {}
                return started.elapsed();
            }
        })
    });
    times.buffer_unordered(at_once).map(Result::unwrap).collect().await
}

fn client() -> reqwest::Client {
    reqwest::Client::builder().tcp_nodelay(true).timeout(Duration::from_secs(60)).build().unwrap()
}

/// Xorshift: fast, and the same again for the same seed.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    fn bytes(&mut self, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        for word in bytes.chunks_mut(8) {
            word.copy_from_slice(&self.next().to_le_bytes()[..word.len()]);
        }
        bytes
    }
}
