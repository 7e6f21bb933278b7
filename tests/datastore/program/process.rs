//! The datastore as a program: start, errors, signals, SIGKILL.

#![expect(clippy::disallowed_types, reason = "a test of the program must start it")]

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

use datastore_api::Sha256;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use reqwest::Method;
use tempfile::TempDir;

use crate::http::{CLIENT, RUN, files, noise};

const MIB: usize = 1 << 20;
const FILE: &str = "layers/team-a/network/plan-1/0/plan.json";

pub(crate) fn program(flags: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_datastore"));
    command.env_clear().args(flags);
    command
}

/// A datastore of its own process, killed when dropped.
pub(crate) struct Running {
    pub(crate) child: Child,
    pub(crate) address: String,
    pub(crate) log: Arc<Mutex<String>>,
}

impl Running {
    pub(crate) fn start(root: &Path, flags: &[&str]) -> Self {
        Self::over(&format!("file://{}", root.display()), &[], flags)
    }

    /// One over any storage, which these variables lead to.
    pub(crate) fn over(storage: &str, variables: &[(&str, String)], flags: &[&str]) -> Self {
        let mut command = program(&["serve", "--listen", "127.0.0.1:0", "--storage", storage]);
        command.envs(variables.iter().map(|(name, value)| (name, value)));
        Self::of(command.args(flags))
    }

    /// What a command starts, in the end.
    pub(crate) fn of(command: &mut Command) -> Self {
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
        let mut child = child.unwrap();
        let lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let log = Arc::new(Mutex::new(String::new()));
        let tail = Arc::clone(&log);
        let (listens, address) = mpsc::channel();
        std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                let address = line.split_once("://").map(|(_, rest)| rest.split([' ', '"']).next());
                let address = address.flatten().map(str::to_owned);
                tail.lock().unwrap().push_str(&(line + "\n"));
                if let Some(address) = address {
                    let _not_the_first = listens.send(address);
                }
            }
        });
        let address = address.recv_timeout(Duration::from_mins(1)).unwrap_or_else(|_| {
            let _gone = child.kill();
            let _gone = child.wait();
            panic!("it does not listen: {}", log.lock().unwrap());
        });
        Self { child, address, log }
    }

    pub(crate) fn connect(&self) -> TcpStream {
        let socket = TcpStream::connect(&self.address).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        socket
    }

    /// Begins to put a plan: the head, and as much of the body as is given.
    pub(crate) fn begin(&self, length: usize, part: &[u8]) -> TcpStream {
        let mut socket = self.connect();
        write!(
            socket,
            "PUT /api/plans?{RUN}&attempt=0 HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n"
        )
        .unwrap();
        write!(socket, "content-length: {length}\r\n\r\n").unwrap();
        socket.write_all(part).unwrap();
        socket
    }

    /// Status and body of a GET.
    pub(crate) fn get(&self, path: &str) -> (u16, Vec<u8>) {
        let mut socket = self.connect();
        write!(socket, "GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")
            .unwrap();
        let mut answer = Vec::new();
        if let Err(error) = socket.read_to_end(&mut answer) {
            let log = self.log.lock().unwrap();
            panic!("{error} after {} bytes of {path}; the log:\n{log}", answer.len());
        }
        let end = answer.windows(4).position(|four| four == b"\r\n\r\n").unwrap();
        let status = std::str::from_utf8(&answer[9..12]).unwrap().parse().unwrap();
        (status, answer.split_off(end + 4))
    }

    /// Status and text of the answer to a request, which must come within `limit`.
    pub(crate) async fn answer(
        &self,
        method: Method,
        path: &str,
        limit: Duration,
    ) -> (u16, String) {
        let url = format!("http://{}/{path}", self.address);
        let body = if matches!(method, Method::GET | Method::HEAD) { "" } else { "content" };
        let answer = async {
            let response = CLIENT.request(method, url).body(body).send().await.unwrap();
            (response.status().as_u16(), response.text().await.unwrap())
        };
        let answer = tokio::time::timeout(limit, answer).await;
        answer.unwrap_or_else(|_| panic!("no answer within {limit:?}: {path}"))
    }

    /// The most memory that it has held, in MiB.
    pub(crate) fn memory(&self) -> u64 {
        let status = format!("/proc/{}/status", self.child.id());
        let status = std::fs::read_to_string(status).unwrap();
        let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
        peak.trim().trim_end_matches(" kB").parse::<u64>().unwrap() / 1024
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(i32::try_from(self.child.id()).unwrap()), signal).unwrap();
    }

    pub(crate) fn wait(&mut self) -> ExitStatus {
        let since = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            assert!(since.elapsed() < Duration::from_mins(1), "still running");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _gone = self.child.kill();
        let _gone = self.child.wait();
    }
}

pub(crate) fn until(what: &str, mut done: impl FnMut() -> bool) {
    let since = Instant::now();
    while !done() {
        assert!(since.elapsed() < Duration::from_mins(1), "never: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn ds28_sigterm_during_an_upload_finishes_it_and_exits_0() {
    for signal in [Signal::SIGTERM, Signal::SIGINT] {
        let directory = TempDir::new().unwrap();
        let mut datastore = Running::start(directory.path(), &[]);
        let body = noise(3 * MIB, 1);
        let mut upload = datastore.begin(body.len(), &body[..MIB]);
        until("the upload has started", || {
            files(directory.path()).iter().any(|path| path.ends_with("plan.json#1"))
        });
        datastore.signal(signal);
        until("no more is accepted", || TcpStream::connect(&datastore.address).is_err());
        upload.write_all(&body[MIB..]).unwrap();
        let mut answer = String::new();
        upload.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
        assert_eq!(datastore.wait().code(), Some(0));
        assert_eq!(std::fs::read(directory.path().join(FILE)).unwrap(), body);
    }
}

#[test]
fn unfinished_request_head_does_not_delay_shutdown() {
    let directory = TempDir::new().unwrap();
    for head in ["", "GET /healthz HT", "GET /healthz HTTP/1.1\r\n\r\nGET /hea"] {
        let mut datastore = Running::start(directory.path(), &[]);
        let mut socket = datastore.connect();
        socket.write_all(head.as_bytes()).unwrap();
        assert_eq!(datastore.get("/healthz").0, 200);
        let since = Instant::now();
        datastore.signal(Signal::SIGTERM);
        assert_eq!(datastore.wait().code(), Some(0));
        assert!(since.elapsed() < Duration::from_secs(9), "{head}");
    }
}

#[test]
fn draining_server_serves_but_is_not_ready() {
    let directory = TempDir::new().unwrap();
    let datastore = Running::start(directory.path(), &["--drain-delay", "1h"]);
    until("ready", || datastore.get("/readyz").0 == 200);
    datastore.signal(Signal::SIGTERM);
    until("not ready", || datastore.get("/readyz").0 == 503);
    assert_eq!(datastore.get("/healthz"), (200, b"OK".to_vec()));
}

#[test]
fn upload_past_the_drain_timeout_is_aborted_and_leaves_no_files() {
    let directory = TempDir::new().unwrap();
    let mut datastore = Running::start(directory.path(), &["--drain-timeout", "100ms"]);
    let _upload = datastore.begin(3 * MIB, &noise(2 * MIB, 1));
    until("the upload has started", || {
        files(directory.path()).iter().any(|path| path.ends_with("plan.json#1"))
    });
    datastore.signal(Signal::SIGTERM);
    assert_eq!(datastore.wait().code(), Some(0));
    let left = files(directory.path());
    assert!(left.iter().all(|path| path.starts_with(".plancha/runs")), "{left:?}");
    until("its line", || datastore.log.lock().unwrap().contains("audit: the drain timeout"));
    let log = datastore.log.lock().unwrap().clone();
    let reported = log.lines().filter(|line| line.contains("/api/plans")).collect::<Vec<_>>();
    assert!(
        reported.len() == 1 && reported[0].contains("audit: the drain timeout ended it"),
        "{reported:?}"
    );
}

#[test]
fn download_past_the_drain_timeout_is_logged_as_ended_by_it() {
    let directory = TempDir::new().unwrap();
    let mut datastore = Running::start(directory.path(), &["--drain-timeout", "100ms"]);
    let body = noise(16 * MIB, 1);
    let mut answer = String::new();
    datastore.begin(body.len(), &body).read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    let mut reader = datastore.connect();
    write!(reader, "GET /api/plans?{RUN} HTTP/1.1\r\nhost: localhost\r\n\r\n").unwrap();
    reader.read_exact(&mut [0; 1024]).unwrap();
    datastore.signal(Signal::SIGTERM);
    assert_eq!(datastore.wait().code(), Some(0));
    until("the end is logged", || {
        let log = datastore.log.lock().unwrap();
        log.lines().any(|line| {
            line.contains("method=GET") && line.contains("request ended by the drain timeout")
        })
    });
}

#[test]
fn after_sigkill_the_plan_is_the_old_or_the_new_one_never_partial() {
    let directory = TempDir::new().unwrap();
    let (old, new) = (noise(2 * MIB, 1), noise(4 * MIB, 2));
    let mut seen = Vec::new();
    // Bytes that were sent, and the time from then to the kill.
    let moments = [(0, 0), (1, 0), (MIB, 1), (2 * MIB, 0), (4 * MIB - 1, 2), (4 * MIB, 0)]
        .into_iter()
        .chain((1..8).map(|wait| (4 * MIB, wait * 1500)));
    for (sent, wait) in moments {
        let mut datastore = Running::start(directory.path(), &[]);
        let mut answer = String::new();
        datastore.begin(old.len(), &old).read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
        let _upload = datastore.begin(new.len(), &new[..sent]);
        std::thread::sleep(Duration::from_micros(wait));
        datastore.child.kill().unwrap();
        datastore.wait();

        let datastore = Running::start(directory.path(), &[]);
        let (status, body) = datastore.get(&format!("/api/plans?{RUN}"));
        assert_eq!(status, 200);
        assert!(body == old || body == new, "{} bytes after {sent} sent", body.len());
        seen.push(body == new);
    }
    assert!(seen.contains(&false), "every upload had ended before the kill: no test of anything");
}

#[test]
fn storage_directory_is_created_with_mode_0700() {
    let home = TempDir::new().unwrap();
    let mut command = program(&["serve", "--listen", "127.0.0.1:0"]);
    let child = command.env("HOME", home.path()).stderr(Stdio::piped()).spawn().unwrap();
    let mut datastore = Running { child, address: String::new(), log: Arc::default() };
    let mut lines = BufReader::new(datastore.child.stderr.take().unwrap()).lines();
    let first = lines.next().unwrap().unwrap();
    let root = home.path().join(".local/share/plancha/datastore");
    assert!(first.contains(&format!("storage=file://{} auth=none", root.display())), "{first}");
    assert_eq!(std::fs::metadata(root).unwrap().permissions().mode() & 0o777, 0o700);
}

#[test]
fn access_log_has_requests_without_token_and_query() {
    for format in ["text", "json"] {
        let directory = TempDir::new().unwrap();
        let mut datastore = Running::start(directory.path(), &["--log-format", format]);
        let mut socket = datastore.connect();
        write!(
            socket,
            "PUT /api/plans?{RUN}&attempt=0&secret=s3cr3t HTTP/1.1\r\nhost: localhost\r\n"
        )
        .unwrap();
        write!(socket, "authorization: Bearer t0k3n\r\nconnection: close\r\n").unwrap();
        write!(socket, "content-length: 4\r\n\r\nb0dy").unwrap();
        let mut answer = String::new();
        socket.read_to_string(&mut answer).unwrap();
        let (_, id) = answer.split_once("x-request-id: ").unwrap();
        let id = id.lines().next().unwrap();
        until("a line for the request", || datastore.log.lock().unwrap().contains(id));
        datastore.signal(Signal::SIGTERM);
        datastore.wait();
        let log = datastore.log.lock().unwrap().clone();
        let line = log.lines().find(|line| line.contains(id)).unwrap();
        for part in ["PUT", "/api/plans", "team-a", "network", "plan-1", "200"] {
            assert!(line.contains(part), "{line}");
        }
        for secret in ["s3cr3t", "t0k3n", "b0dy", "secret", "Bearer"] {
            assert!(!log.contains(secret), "{log}");
        }
        if format == "json" {
            for line in log.lines() {
                serde_json::from_str::<serde_json::Value>(line).unwrap();
            }
        }
        let mut stdout = String::new();
        datastore.child.stdout.take().unwrap().read_to_string(&mut stdout).unwrap();
        assert_eq!(stdout, "");
    }
}

#[test]
fn repeated_refusals_do_not_fill_the_log() {
    let directory = TempDir::new().unwrap();
    let rules = directory.path().join("rules.yaml");
    std::fs::write(&rules, "rules: []\n").unwrap();
    let auth = format!("tokens={}", rules.display());
    let mut datastore = Running::start(&directory.path().join("store"), &["--auth", &auth]);
    let filler = "a".repeat(7 << 10);
    let path = format!("/api/{filler}?namespace={filler}");
    assert_eq!(datastore.get(&path).0, 401);
    datastore.signal(Signal::SIGTERM);
    assert_eq!(datastore.wait().code(), Some(0));
    until("its line", || datastore.log.lock().unwrap().contains("audit: refused"));
    let log = datastore.log.lock().unwrap().clone();
    let line = log.lines().find(|line| line.contains("audit: refused")).unwrap();
    assert!(line.len() < 1024, "{} bytes: {line}", line.len());
}

fn refusal(output: &Output) -> String {
    assert_eq!(String::from_utf8_lossy(&output.stdout), "");
    let text = String::from_utf8_lossy(&output.stderr);
    format!("{}: {}", output.status.code().unwrap(), text.lines().next().unwrap())
}

#[test]
fn invalid_settings_prevent_startup() {
    let serve = |flags: &str| {
        let flags = flags.split_whitespace().collect::<Vec<_>>();
        let mut command = program(&["serve"]);
        refusal(&command.args(flags).env("HOME", "/nowhere").output().unwrap())
    };
    insta::assert_snapshot!(serve("--listen 0.0.0.0:0"), @"64: error: --listen: refusing to listen on 0.0.0.0:0 without authentication: anyone who reaches it could read and replace every plan");
    insta::assert_snapshot!(serve("--storage s3://"), @"64: error: --storage: invalid value `s3://`: expected s3://BUCKET or s3://BUCKET/PREFIX");
    insta::assert_snapshot!(serve("--auth kubernetes"), @"64: error: --auth: `kubernetes` requires a Kubernetes API: this is not a pod, KUBECONFIG is not set, and ~/.kube/config does not exist");
    insta::assert_snapshot!(serve("--lisen 127.0.0.1:0"), @"64: error: unexpected argument '--lisen' found");
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let mut command = program(&["serve", "--storage", "memory://", "--listen", &address]);
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let text = String::from_utf8_lossy(&output.stderr).replace(&address, "[address]");
    let (_, text) = text.split_once("ERROR ").unwrap();
    insta::assert_snapshot!(text, @r"
    cannot listen on [address]: Address already in use (os error 98)
    hint: another program listens there: end it, or choose another address with --listen
    ");
    let mut command =
        program(&["serve", "--listen", "127.0.0.1:0", "--storage", "file:///dev/null/x"]);
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(10));
    let text = String::from_utf8_lossy(&output.stderr);
    let (_, text) = text.split_once("ERROR ").unwrap();
    insta::assert_snapshot!(text, @"cannot use the storage file:///dev/null/x: Not a directory (os error 20)");
}

#[test]
fn serve_and_check_exit_with_the_same_code_for_the_same_problem() {
    let directory = TempDir::new().unwrap();
    let storage = format!("file://{}/store", directory.path().display());
    let no_cert =
        ["--tls-cert", "/nowhere.pem", "--tls-key", "/nowhere.pem", "--storage", &storage];
    for (problem, code) in [
        (&["--storage", "file:///dev/null/x"][..], 10),
        (&no_cert, 8),
        (&["--auth", "kubernetes", "--storage", &storage], 8),
        (&["--storage", "nonsense://x"], 64),
    ] {
        for word in ["serve", "check"] {
            let mut command = program(&[word]);
            // A cluster that is configured, and whose configuration cannot be read.
            command
                .args(problem)
                .args(["--listen", "127.0.0.1:0"])
                .env("KUBECONFIG", "/dev/null/x");
            let output = command.output().unwrap();
            let text = String::from_utf8_lossy(&output.stderr);
            assert_eq!(output.status.code(), Some(code), "{word} {problem:?}: {text}");
        }
    }
}

#[test]
fn it_runs_under_the_name_burrito() {
    let directory = TempDir::new().unwrap();
    let burrito = directory.path().join("burrito");
    symlink(env!("CARGO_BIN_EXE_datastore"), &burrito).unwrap();
    let run = |words: &[&str]| Command::new(&burrito).env_clear().args(words).output().unwrap();
    let version = run(&["version"]);
    assert_eq!(version.status.code(), Some(0));
    let commit_and_time = concat!(env!("CARGO_PKG_VERSION"), "-unknown (unknown)");
    assert_eq!(String::from_utf8_lossy(&version.stdout).trim(), commit_and_time);
    assert_eq!(run(&["datastore", "nope"]).status.code(), Some(2));
    assert_eq!(run(&["datastore", "serve", "--nope"]).status.code(), Some(1));
    assert_eq!(run(&["datastore", "serve", "--help"]).status.code(), Some(0));
}

#[test]
fn acknowledged_uploads_survive_sigkill() {
    let directory = TempDir::new().unwrap();
    for size in [0, 10, 3 * MIB] {
        let body = noise(size, 1);
        let mut datastore = Running::start(directory.path(), &[]);
        let mut answer = String::new();
        datastore.begin(size, &body).read_to_string(&mut answer).unwrap();
        datastore.child.kill().unwrap();
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
        datastore.wait();

        let datastore = Running::start(directory.path(), &[]);
        assert_eq!(datastore.get(&format!("/api/plans?{RUN}&attempt=0")), (200, body.clone()));
        let record = directory.path().join(".plancha/sha256").join(FILE);
        let record = std::fs::read_to_string(record).unwrap();
        assert!(record.contains(&Sha256::of(&body).to_string()), "{record}");
    }
}

#[test]
fn help_that_cannot_be_written_is_a_failure() {
    for words in [&["--help"][..], &["serve", "--help"], &["--version"], &["version"]] {
        let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
        let output = program(words).stdout(full).output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success(), "{words:?}: {stderr}");
        assert!(stderr.contains("No space left on device"), "{words:?}: {stderr}");
    }
}
