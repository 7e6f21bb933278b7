//! A directory against what the machine itself does with files: a bare fsynced write, sha256 alone, and nginx.
//! All in turn, so that ours and each yardstick have the same minute.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::clouds::hashing;
use crate::{MIB, Programs, Server, body, file, median, ms, renamed_file};

const SMALL: usize = 4 << 10;
const LARGE: usize = 256 * MIB;
/// Runs whose plans are replaced in turn.
const RUNS: usize = 16;

pub(super) async fn files(programs: &Programs) {
    let server = Server::start(&programs.datastore);
    let client = reqwest::Client::builder().tcp_nodelay(true).build().unwrap();
    let url = |run: usize, size: usize| {
        let url = &server.url;
        format!("{url}/api/plans?namespace=n&layer=l{size}&run=r{run}&attempt=0&format=bin")
    };
    let put = async |run: usize, size: usize| {
        let started = Instant::now();
        let put = client.put(url(run, size)).header("content-length", size);
        assert_eq!(put.body(body(size, false)).send().await.unwrap().status(), 200);
        started.elapsed()
    };
    println!("files: file://, medians, in turn with each yardstick");
    for run in 0..RUNS {
        put(run, SMALL).await;
    }
    let (mut ours, mut bare, mut lasting) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..300 {
        ours.push(put(round % RUNS, SMALL).await);
        bare.push(tokio::task::block_in_place(|| file(SMALL, 1)));
        lasting.push(tokio::task::block_in_place(|| renamed_file(SMALL, 1, true)));
    }
    let [ours, bare, lasting] = [ours, bare, lasting].map(|times| ms(median(&times)));
    println!(
        "  PUT 4 KiB      {ours:8.2} ms, a bare fsynced write {bare:.2} ms: {:.2} x; one whose directory is synced, too, \
         {lasting:.2} ms: {:.2} x",
        ours / bare,
        ours / lasting
    );

    let (mut ours, mut hashed, mut bare) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..7 {
        ours.push(put(0, LARGE).await.as_secs_f64());
        hashed.push(tokio::task::block_in_place(hashing) * LARGE as f64 / 1e9);
        bare.push(tokio::task::block_in_place(|| file(LARGE, 1)).as_secs_f64());
    }
    let speed = |seconds: &[f64]| LARGE as f64 / median(seconds) / 1e9;
    let (ours, hashed, bare) = (speed(&ours), speed(&hashed), speed(&bare));
    println!(
        "  PUT 256 MiB    {ours:8.2} GB/s, sha256 alone {hashed:.2} GB/s: {:.2} x; a bare fsynced write {bare:.2} GB/s",
        ours / hashed
    );
    small_reads(&url(0, SMALL));
}

/// Requests a second for 4 KiB, by wrk, against nginx.
fn small_reads(url: &str) {
    let dir = TempDir::new().unwrap();
    std::fs::write(dir.path().join("file"), vec![0xA5; SMALL]).unwrap();
    let Some((nginx, theirs)) = Nginx::start(dir.path()) else {
        println!("  GET 4 KiB      not measured: nginx and wrk are not on PATH");
        return;
    };
    let bare = Server::run(
        Command::new(std::env::current_exe().unwrap())
            .arg("read-file")
            .arg(dir.path().join("file")),
    );
    let (mut ours, mut other, mut hop) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..5 {
        let (Some(now), Some(there), Some(hopped)) = (wrk(url), wrk(&theirs), wrk(&bare.url))
        else {
            println!("  GET 4 KiB      not measured: wrk is not on PATH");
            return;
        };
        ours.push(now);
        other.push(there);
        hop.push(hopped);
    }
    drop(nginx);
    let (ours, other, hop) = (median(&ours), median(&other), median(&hop));
    println!("  GET 4 KiB      {ours:8.0} req/s, nginx {other:.0} req/s: {:.2} x", ours / other);
    println!(
        "                 a bare server that reads and hashes in one job of its pool {hop:.0} req/s: {:.2} x of nginx",
        hop / other
    );
}

/// `read-file FILE`: the least that a service over files does which does no file I/O on the threads of its sockets. It
/// opens, reads and hashes the file in one job for each request, with these libraries. No names, no limits, no log.
pub(super) async fn serve(file: &str) {
    let file = std::path::PathBuf::from(file);
    let read = move || {
        let file = file.clone();
        let read = tokio::task::spawn_blocking(move || {
            let bytes = std::fs::read(file).unwrap();
            std::hint::black_box(datastore_api::Sha256::of(&bytes));
            bytes
        });
        async { read.await.unwrap() }
    };
    let router = axum::Router::new().route("/", axum::routing::get(read));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    eprintln!("listening http://{}", listener.local_addr().unwrap());
    let listener =
        axum::serve::ListenerExt::tap_io(listener, |socket| drop(socket.set_nodelay(true)));
    axum::serve(listener, router).await.unwrap();
}

/// Requests a second over 8 connections.
fn wrk(url: &str) -> Option<f64> {
    let ran = Command::new("wrk").args(["-t1", "-c8", "-d2s", url]).output().ok()?;
    let text = String::from_utf8(ran.stdout).unwrap();
    assert!(!text.contains("Non-2xx"), "{text}");
    let line = text.lines().find_map(|line| line.strip_prefix("Requests/sec:")).unwrap();
    Some(line.trim().parse().unwrap())
}

/// An nginx that serves a directory; it ends with this.
struct Nginx(Child);

impl Nginx {
    fn start(dir: &Path) -> Option<(Self, String)> {
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let at = dir.display();
        let conf = format!(
            "daemon off; worker_processes 2; pid {at}/pid; error_log {at}/error.log; events {{}} http {{ \
             access_log off; sendfile on; tcp_nopush on; keepalive_requests 1000000; client_body_temp_path {at}/t1; \
             proxy_temp_path {at}/t2; fastcgi_temp_path {at}/t3; uwsgi_temp_path {at}/t4; scgi_temp_path {at}/t5; \
             server {{ listen 127.0.0.1:{port}; root {at}; }} }}"
        );
        std::fs::write(dir.join("conf"), conf).unwrap();
        let mut command = Command::new("nginx");
        command.args(["-e", "stderr", "-c"]).arg(dir.join("conf")).stderr(Stdio::null());
        let nginx = Self(command.spawn().ok()?);
        let until = Instant::now() + Duration::from_secs(5);
        while std::net::TcpStream::connect(("127.0.0.1", port)).is_err() {
            assert!(Instant::now() < until, "nginx does not listen");
            std::thread::sleep(Duration::from_millis(20));
        }
        Some((nginx, format!("http://127.0.0.1:{port}/file")))
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        // SIGTERM, so that it ends its workers as well.
        let pid = self.0.id().to_string();
        let _sent = Command::new("kill").arg(&pid).status();
        let _ended = self.0.wait();
    }
}
