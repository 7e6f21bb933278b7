//! `bench RUNNER DATASTORE [SECTION...]`: figures as ratios to a yardstick of the same minute, since
//! machines are noisy. Sections: `run`, `layers`, `pod`, `snapshot`, `redact`, `resolve`, `install`, `transfer`, `files`, `clouds`, `server=S3S-FS`, `minio=MINIO`, `state=MINIO`, `gc`, `memory`, `starve`, `changes`, `logs`. `scripts/bench` builds and calls it.
//! `load [hop]put|[hop]get SIZE SECONDS` in a section's place is one load alone, for a profiler.

#![expect(clippy::disallowed_types, reason = "a bench starts the programs themselves")]

#[path = "bench/changes.rs"]
mod changes;
#[path = "bench/clouds.rs"]
mod clouds;
#[path = "bench/files.rs"]
mod files;
#[path = "bench/install.rs"]
mod install;
#[path = "bench/layers.rs"]
mod layers;
#[path = "bench/logs.rs"]
mod logs;
#[path = "bench/memory.rs"]
mod memory;
#[path = "bench/minio.rs"]
mod minio;
#[path = "bench/pass.rs"]
mod pass;
#[path = "bench/pod.rs"]
mod pod;
#[path = "bench/redact.rs"]
mod redact;
#[path = "bench/run.rs"]
mod run;
#[path = "bench/snapshot.rs"]
mod snapshot;
#[path = "bench/starve.rs"]
mod starve;
#[path = "bench/state.rs"]
mod state;
#[path = "bench/tend.rs"]
mod tend;

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{DefaultBodyLimit, Query};
use axum::routing::get;
use datastore_api::digest::Hasher;
use futures::StreamExt as _;
use futures::stream;
use serde::Deserialize;
use tempfile::TempDir;

const MIB: usize = 1 << 20;
/// What every body is made of.
static PIECE: [u8; 256 << 10] = [0xA5; 256 << 10];

#[tokio::main]
async fn main() {
    let args = std::env::args().skip(1).collect::<Vec<_>>();
    if let [pass, url] = args.as_slice()
        && pass == "pass-through"
    {
        return pass::serve(url).await;
    }
    if let [read_file, file] = args.as_slice()
        && read_file == "read-file"
    {
        return files::serve(file).await;
    }
    let [runner, datastore, sections @ ..] = args.as_slice() else {
        eprintln!(
            "usage: bench RUNNER DATASTORE [run|layers|pod|snapshot|redact|resolve|install|transfer|files|clouds|server=S3S-FS|minio=MINIO|state=MINIO|gc|memory|starve|changes|logs]..."
        );
        std::process::exit(64);
    };
    let programs = Programs { runner: runner.into(), datastore: datastore.into() };
    let wanted = |section: &str| sections.is_empty() || sections.iter().any(|s| s == section);
    for (section, measure) in COMMANDS {
        if wanted(section) {
            tokio::task::block_in_place(|| measure(&programs));
        }
    }
    if wanted("pod") {
        pod::pod(&programs).await;
    }
    if wanted("transfer") {
        transfer(&programs).await;
    }
    if wanted("files") {
        files::files(&programs).await;
    }
    if wanted("clouds") {
        clouds::clouds(&programs).await;
    }
    let value = |name: &str| sections.iter().find_map(|section| section.strip_prefix(name));
    if let Some(s3s) = value("server=") {
        clouds::server(&programs, s3s).await;
    }
    if let Some(program) = value("minio=") {
        minio::minio(&programs, program).await;
    }
    if let Some(program) = value("state=") {
        tokio::task::block_in_place(|| state::state(&programs, program));
    }
    if wanted("gc") {
        tend::over_directory(&programs).await;
    }
    in_memory(&programs, wanted).await;
    if let ["load", what, size, seconds] =
        sections.iter().map(String::as_str).collect::<Vec<_>>()[..]
    {
        clouds::only(&programs, what, size.parse().unwrap(), seconds.parse().unwrap()).await;
    }
}

/// The sections about the memory of a datastore.
async fn in_memory(programs: &Programs, wanted: impl Fn(&str) -> bool) {
    if wanted("memory") {
        memory::memory(programs).await;
    }
    if wanted("starve") {
        starve::starve(programs).await;
    }
    if wanted("changes") {
        changes::changes(programs).await;
    }
    if wanted("logs") {
        logs::logs(programs).await;
    }
}

type Measure = fn(&Programs);

/// The sections that run commands one after the other.
const COMMANDS: [(&str, Measure); 6] = [
    ("run", run::run),
    ("layers", layers::layers),
    ("snapshot", snapshot::snapshot),
    ("redact", redact::redact),
    ("resolve", resolve),
    ("install", install::install),
];

struct Programs {
    runner: PathBuf,
    datastore: PathBuf,
}

/// A datastore process, over a temporary directory unless it is said otherwise.
struct Server {
    child: Child,
    url: String,
    /// Goes away with it.
    dir: Option<TempDir>,
}

impl Server {
    fn start(program: &Path) -> Self {
        let dir = TempDir::new().unwrap();
        let storage = format!("file://{}", dir.path().join("store").display());
        let mut server = Self::over(program, &storage, &[]);
        server.dir = Some(dir);
        server
    }

    fn over(program: &Path, storage: &str, variables: &[(&'static str, String)]) -> Self {
        let mut command = Command::new(program);
        command
            .args(["serve", "--listen", "127.0.0.1:0", "--log-format", "json", "--storage"])
            .arg(storage)
            .envs(variables.iter().map(|(name, value)| (name, value)));
        Self::run(&mut command)
    }

    /// A program that says on standard error where it listens.
    fn run(command: &mut Command) -> Self {
        let (child, url) = support::served::listening(command);
        Self { child, url, dir: None }
    }

    fn rss_peak(&self) -> f64 {
        rss_peak(self.child.id()).unwrap_or(0) as f64 / MIB as f64
    }

    fn rss(&self) -> f64 {
        status(self.child.id(), "VmRSS:").unwrap_or(0) as f64 / MIB as f64
    }

    /// Of all its threads that still run; to the nanosecond, where `stat` has hundredths of a second.
    fn cpu_seconds(&self) -> f64 {
        let tasks = std::fs::read_dir(format!("/proc/{}/task", self.child.id())).unwrap();
        let nanoseconds = tasks.filter_map(|task| {
            let times = std::fs::read_to_string(task.ok()?.path().join("schedstat")).ok()?;
            times.split(' ').next()?.parse::<u64>().ok()
        });
        nanoseconds.sum::<u64>() as f64 / 1e9
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

fn rss_peak(pid: u32) -> Option<u64> {
    status(pid, "VmHWM:")
}

/// A size in a process's status, in bytes.
fn status(pid: u32, name: &str) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix(name))?;
    Some(line.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok()? << 10)
}

/// Runs a program to its end: how long it took, and the most memory that it alone was seen to hold.
fn timed(command: &mut Command) -> (Duration, u64) {
    let started = Instant::now();
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let mut rss = 0;
    let sampler = std::thread::spawn({
        let pid = child.id();
        move || {
            while let Some(now) = rss_peak(pid) {
                rss = now;
                std::thread::sleep(Duration::from_millis(2));
            }
            rss
        }
    });
    let status = child.wait().unwrap();
    let took = started.elapsed();
    assert!(status.success(), "{command:?}: {status}");
    (took, sampler.join().unwrap())
}

fn median<T: PartialOrd + Copy>(values: &[T]) -> T {
    let mut values = values.to_vec();
    values.sort_by(|a, b| a.partial_cmp(b).unwrap());
    values[values.len() / 2]
}

fn ms(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1000.0
}

/// What a version costs to resolve, against starting the same program for nothing.
fn resolve(programs: &Programs) {
    const ROUNDS: usize = 40;
    let dir = TempDir::new().unwrap();
    let (exact, files) = (dir.path().join("exact"), dir.path().join("files"));
    for work in [&exact, &files] {
        std::fs::create_dir(work).unwrap();
    }
    let bin = dir.path().join("cache/plancha/bin/Terraform/1.9.8");
    std::fs::create_dir_all(&bin).unwrap();
    std::fs::write(bin.join("terraform"), "#!/bin/sh\nexit 1\n").unwrap();
    Command::new("chmod").arg("755").arg(bin.join("terraform")).status().unwrap();
    std::fs::write(exact.join(".terraform-version"), "1.9.8\n").unwrap();
    for i in 0..50 {
        let resource =
            "resource \"terraform_data\" \"x\" {\n  input = { a = [1, 2, 3], b = \"c\" }\n}\n";
        std::fs::write(
            files.join(format!("f{i}.tf")),
            resource.replace("\"x\"", &format!("\"x{i}\"")).repeat(8),
        )
        .unwrap();
    }
    std::fs::write(files.join("versions.tf"), "terraform {\n  required_version = \"~> 1.9\"\n}\n")
        .unwrap();
    let once = |args: &[&str], work: &Path| {
        let mut command = Command::new(&programs.runner);
        command.args(args).current_dir(work).env("XDG_CACHE_HOME", dir.path().join("cache"));
        command.env("PLANCHA_OFFLINE", "true").env("HOME", dir.path());
        timed(&mut command).0
    };
    let (mut starts, mut exacts, mut scans) = (vec![], vec![], vec![]);
    for _ in 0..ROUNDS {
        starts.push(once(&["version"], &exact));
        exacts.push(once(&["resolve"], &exact));
        scans.push(once(&["resolve"], &files));
    }
    let start = ms(median(&starts));
    println!("resolve: whole process, medians of {ROUNDS} rounds in turn");
    println!("  runner version (the yardstick: starting)       {start:8.2} ms");
    for (name, times) in
        [(".terraform-version              ", exacts), ("required_version in 51 .tf files", scans)]
    {
        let time = ms(median(&times));
        println!(
            "  {name}               {time:8.2} ms   {:.2} x, {:+.2} ms",
            time / start,
            time - start
        );
    }
}

/// PUT and GET through the datastore, against a bare server on the same loopback and a bare file.
async fn transfer(programs: &Programs) {
    let server = Server::start(&programs.datastore);
    let yardstick = bare_server().await;
    println!(
        "transfer: file://, fsync, sha256 both ways; yardsticks: a bare axum server, a bare file"
    );
    for (name, size, rounds, connections) in [
        ("4 KiB", 4 << 10, 400, 1),
        ("4 KiB, 8 at once", 4 << 10, 1600, 8),
        ("1 MiB", MIB, 60, 1),
        ("256 MiB", 256 * MIB, 3, 1),
        ("256 MiB, 16 at once", 256 * MIB, 16, 16),
    ] {
        let cpu = server.cpu_seconds();
        let put = load(&server.url, "put", size, rounds, connections).await;
        let put_cpu = server.cpu_seconds() - cpu;
        let got = load(&server.url, "get", size, rounds, connections).await;
        let get_cpu = server.cpu_seconds() - cpu - put_cpu;
        let bare_put = load(&yardstick, "put", size, rounds, connections).await;
        let bare_get = load(&yardstick, "get", size, rounds, connections).await;
        let bare_file = tokio::task::block_in_place(|| file(size, rounds.min(60)));
        let gigabytes = (size * rounds) as f64 / 1e9;
        println!("  {name}, {rounds} each");
        print_load("PUT", &put, &bare_put, size, put_cpu / gigabytes);
        print_load("GET", &got, &bare_get, size, get_cpu / gigabytes);
        if connections == 1 {
            println!(
                "    a bare file, written and fsynced: p50 {:.2} ms, PUT is {:.2} x",
                ms(bare_file),
                ms(put.p50) / ms(bare_file)
            );
        }
    }
    println!("  datastore's memory at most                     {:8.1} MiB", server.rss_peak());
}

struct Load {
    p50: Duration,
    p99: Duration,
    wall: Duration,
    bytes: usize,
}

fn print_load(verb: &str, ours: &Load, bare: &Load, size: usize, cpu: f64) {
    let speed = |load: &Load| load.bytes as f64 / load.wall.as_secs_f64() / 1e9;
    if size < MIB {
        println!(
            "    {verb} p50 {:.2} ms, p99 {:.2} ms; bare {:.2}, {:.2} ms; {:.0} req/s, {:.2} x bare",
            ms(ours.p50),
            ms(ours.p99),
            ms(bare.p50),
            ms(bare.p99),
            ours.bytes as f64 / size as f64 / ours.wall.as_secs_f64(),
            ms(ours.p50) / ms(bare.p50)
        );
    } else {
        println!(
            "    {verb} {:.2} GB/s, {cpu:.2} cpu-s/GB; bare {:.2} GB/s; {:.0} % of bare",
            speed(ours),
            speed(bare),
            100.0 * speed(ours) / speed(bare)
        );
    }
}

async fn load(url: &str, verb: &str, size: usize, rounds: usize, connections: usize) -> Load {
    let client = reqwest::Client::builder().tcp_nodelay(true).build().unwrap();
    let started = Instant::now();
    let times = stream::iter(0..rounds).map(|i| {
        let client = client.clone();
        let query =
            format!("namespace=n&layer=l{size}&run=r{}&attempt=0&format=bin&size={size}", i % 16);
        let url = format!("{url}/api/plans?{query}");
        let put = verb == "put";
        tokio::spawn(async move {
            let started = Instant::now();
            if put {
                let answer = client
                    .put(url)
                    .header("content-length", size)
                    .body(body(size, false))
                    .send()
                    .await;
                assert_eq!(answer.unwrap().status(), 200);
            } else {
                let mut answer = client.get(url).send().await.unwrap();
                assert_eq!(answer.status(), 200);
                let mut bytes = 0;
                while let Some(piece) = answer.chunk().await.unwrap() {
                    bytes += piece.len();
                }
                assert_eq!(bytes, size);
            }
            started.elapsed()
        })
    });
    let mut times =
        times.buffer_unordered(connections).map(Result::unwrap).collect::<Vec<_>>().await;
    let wall = started.elapsed();
    times.sort();
    Load {
        p50: times[times.len() / 2],
        p99: times[times.len() * 99 / 100],
        wall,
        bytes: size * rounds,
    }
}

/// A body of this size; hashed on its way, or not.
fn body(size: usize, hashes: bool) -> reqwest::Body {
    let mut hasher = Hasher::default();
    let pieces = (0..size).step_by(PIECE.len()).map(move |at| {
        let piece = &PIECE[..PIECE.len().min(size - at)];
        if hashes {
            hasher.update(piece);
        }
        Ok::<_, std::io::Error>(Bytes::from_static(piece))
    });
    reqwest::Body::wrap_stream(stream::iter(pieces))
}

#[derive(Deserialize)]
struct Size {
    size: usize,
}

/// Takes what is put, gives as much as is asked for, and does nothing else.
async fn bare_server() -> String {
    let source = async |Query(Size { size }): Query<Size>| {
        let pieces = (0..size).step_by(PIECE.len()).map(move |at| {
            Ok::<_, std::io::Error>(Bytes::from_static(&PIECE[..PIECE.len().min(size - at)]))
        });
        Body::from_stream(stream::iter(pieces))
    };
    let sink = async |body: Body| {
        let mut pieces = body.into_data_stream();
        while let Some(piece) = pieces.next().await {
            drop(piece.unwrap());
        }
    };
    let router =
        Router::new().route("/api/plans", get(source).put(sink)).layer(DefaultBodyLimit::disable());
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let listener =
        axum::serve::ListenerExt::tap_io(listener, |socket| drop(socket.set_nodelay(true)));
    tokio::spawn(async { axum::serve(listener, router).await });
    url
}

/// The median time to write, fsync and rename a file of this size.
fn file(size: usize, rounds: usize) -> Duration {
    renamed_file(size, rounds, false)
}

/// The same. With `syncs_name`, its directory is synced as well: else a power failure may bring the old file back.
fn renamed_file(size: usize, rounds: usize, syncs_name: bool) -> Duration {
    let dir = TempDir::new().unwrap();
    let piece = vec![0xA5; size.min(256 << 10)];
    let times = (0..rounds).map(|_| {
        let started = Instant::now();
        let mut file = std::fs::File::create(dir.path().join("new")).unwrap();
        for _ in (0..size).step_by(piece.len()) {
            file.write_all(&piece).unwrap();
        }
        file.sync_all().unwrap();
        std::fs::rename(dir.path().join("new"), dir.path().join("old")).unwrap();
        if syncs_name {
            std::fs::File::open(dir.path()).unwrap().sync_all().unwrap();
        }
        started.elapsed()
    });
    let times = times.collect::<Vec<_>>();
    median(&times)
}
