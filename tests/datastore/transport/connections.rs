//! The limit of connections, and who keeps a place.

#![expect(clippy::disallowed_types, reason = "a test of the program must start it")]

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use datastore::config::Config;
use datastore::store::Storage;
use datastore::transport::limits::Limits;
use datastore::{Auth, Callers, Policy, Verb};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use support::TestDatastore;
use tempfile::TempDir;

use super::memory::{answer, connect, rest};
use crate::http::{CLIENT, RUN, send};
use crate::program::process::Running;

const SECOND: Duration = Duration::from_secs(1);

const HEALTH: &[u8] = b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n";

/// A connection with an upload in progress.
fn uploading(datastore: &TestDatastore) -> TcpStream {
    let mut socket = connect(datastore);
    let url = format!("/api/artifacts?{RUN}&attempt=1&name=a");
    write!(socket, "PUT {url} HTTP/1.1\r\nhost: localhost\r\nexpect: 100-continue\r\n").unwrap();
    socket.write_all(b"content-length: 1000\r\n\r\n").unwrap();
    assert!(answer(&mut socket).starts_with("HTTP/1.1 100 "));
    socket
}

#[tokio::test(flavor = "multi_thread")]
async fn beyond_the_connection_limit_probes_are_answered_and_other_requests_wait() {
    let limits = Limits { connections: 2, wait: 5 * SECOND, ..Limits::default() };
    let datastore = TestDatastore::limited(limits).await;
    let mut busy = vec![uploading(&datastore), uploading(&datastore)];
    let send_get = |socket: &mut TcpStream| {
        write!(socket, "GET /api/plans?{RUN}&attempt=0 HTTP/1.1\r\nhost: localhost\r\n\r\n")
            .unwrap();
    };
    let mut beyond = connect(&datastore);
    for _ in 0..3 {
        beyond.write_all(HEALTH).unwrap();
        assert!(answer(&mut beyond).starts_with("HTTP/1.1 200 "));
    }
    send_get(&mut beyond);
    let refused = rest(&mut beyond);
    assert!(refused.starts_with("HTTP/1.1 503 "), "{refused}");
    assert!(refused.contains("retry-after: 5\r\n"), "{refused}");
    assert!(refused.ends_with("too many connections are open; try again"), "{refused}");

    let mut waiting = connect(&datastore);
    send_get(&mut waiting);
    std::thread::sleep(SECOND / 10);
    drop(busy.pop());
    assert!(answer(&mut waiting).starts_with("HTTP/1.1 404 "));
}

#[tokio::test(flavor = "multi_thread")]
async fn exactly_64_connections_are_accepted_beyond_the_limit() {
    let limits = Limits { connections: 2, wait: 600 * SECOND, ..Limits::default() };
    let datastore = TestDatastore::limited(limits).await;
    let mut within = vec![uploading(&datastore), uploading(&datastore)];
    // They wait to be within the limit. A connection between two requests would be closed to make room.
    let get = format!("GET /api/plans?{RUN}&attempt=0 HTTP/1.1\r\nhost: localhost\r\n\r\n");
    let beyond = (0..63).map(|_| {
        let mut socket = connect(&datastore);
        socket.write_all(get.as_bytes()).unwrap();
        socket
    });
    let mut beyond = beyond.collect::<Vec<_>>();
    let mut last = connect(&datastore);
    last.write_all(&[HEALTH, get.as_bytes()].concat()).unwrap();
    assert!(answer(&mut last).starts_with("HTTP/1.1 200 "), "the 64th");
    let mut one_more = connect(&datastore);
    one_more.write_all(HEALTH).unwrap();
    one_more.set_read_timeout(Some(2 * SECOND)).unwrap();
    let error = one_more.read(&mut [0]).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock, "{error}");
    within.pop();
    one_more.set_read_timeout(Some(20 * SECOND)).unwrap();
    assert!(answer(&mut one_more).starts_with("HTTP/1.1 200 "));
    assert!(answer(&mut beyond[0]).starts_with("HTTP/1.1 404 "), "the first in line");
}

#[tokio::test(flavor = "multi_thread")]
async fn longest_idle_unauthenticated_connection_is_closed_to_make_room() {
    let (token, rule) =
        crate::access::authentication::token("ci", &["*"], &["plan"], &[Verb::Read]);
    let mut policy = Policy::default();
    policy.add(&rule).unwrap();
    let callers = Callers { tokens: true, policy, ..Callers::default() };
    let auth = Auth::Callers(Box::new(callers));
    let limits = Limits { connections: 10, head: 600 * SECOND, ..Limits::default() };
    let config = Config { auth, limits, ..Config::of(Storage::Memory) };
    let datastore = TestDatastore::of(config).await;
    let mut known = connect(&datastore);
    write!(known, "GET /api/plans?{RUN}&attempt=0 HTTP/1.1\r\nhost: localhost\r\n").unwrap();
    write!(known, "authorization: Bearer {token}\r\n\r\n").unwrap();
    let found = answer(&mut known);
    assert!(found.starts_with("HTTP/1.1 404 "), "{found}");
    known.read_exact(&mut [0; "No plan for this attempt".len()]).unwrap();
    let idle = (0..8).map(|_| {
        // Each is older than the next, whenever the threads of the runtime poll them.
        std::thread::sleep(SECOND / 10);
        connect(&datastore)
    });
    let mut idle = idle.collect::<Vec<_>>();
    // Half a head.
    idle[2].write_all(&HEALTH[..9]).unwrap();
    idle[5].write_all(HEALTH).unwrap();
    assert!(answer(&mut idle[5]).starts_with("HTTP/1.1 200 "));
    // The server may record the end of a response after the caller has it.
    std::thread::sleep(SECOND / 2);
    // An unknown token.
    write!(idle[0], "GET /api/plans?{RUN}&attempt=0 HTTP/1.1\r\nhost: localhost\r\n").unwrap();
    idle[0].write_all(b"authorization: Bearer other\r\n\r\n").unwrap();
    assert!(answer(&mut idle[0]).starts_with("HTTP/1.1 401 "));
    // The other ones are closed only after a second.
    std::thread::sleep(2 * SECOND);
    let mut more = Vec::new();
    for closed in [5, 0, 1, 2] {
        more.push(connect(&datastore));
        let answer = rest(&mut idle[closed]);
        assert!(!answer.contains("HTTP/1.1"), "{closed} is closed without an answer: {answer}");
    }
    known.write_all(HEALTH).unwrap();
    let alive = answer(&mut known);
    assert!(alive.starts_with("HTTP/1.1 200 "), "{alive}");
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_near_the_connection_limit_are_all_answered() {
    let limits = Limits { connections: 8, ..Limits::default() };
    let datastore = TestDatastore::limited(limits).await;
    let exchange = |request: &str| {
        let mut socket = connect(&datastore);
        socket.write_all(request.as_bytes()).unwrap();
        rest(&mut socket)
    };
    let exchange = &exchange;
    std::thread::scope(|scope| {
        for client in 0..24 {
            scope.spawn(move || {
                let end = "HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n";
                let body = "x".repeat(100);
                let url = format!("/api/artifacts?{RUN}&attempt=1&name=a{client}");
                for _ in 0..10 {
                    let probe = exchange(&format!("GET /healthz {end}\r\n"));
                    assert!(probe.starts_with("HTTP/1.1 200 "), "{probe}");
                    let put =
                        exchange(&format!("PUT {url} {end}content-length: 100\r\n\r\n{body}"));
                    assert!(put.starts_with("HTTP/1.1 200 "), "{put}");
                }
            });
        }
    });
}

#[test]
fn open_file_limit_is_raised_and_bounds_the_connections() {
    let root = TempDir::new().unwrap();
    let datastore = Running::of(&mut limited("ulimit -Sn 256 && ulimit -Hn 400", &root));
    let page = metrics(&datastore);
    for line in ["process_max_fds 400\n", "datastore_connections_limit 104\n"] {
        assert!(page.contains(line), "{line} is not in {page}");
    }
    let sockets = (0..180).map(|_| datastore.connect()).collect::<Vec<_>>();
    assert_eq!(datastore.get("/healthz").0, 200);
    assert!(closed_idle(&datastore) > 0, "idle connections keep their places");
    drop(sockets);
}

/// The command that serves `root` with the limits of this shell command.
fn limited(limits: &str, root: &TempDir) -> std::process::Command {
    let mut command = std::process::Command::new("/bin/sh");
    command.env_clear().args(["-c", &format!("{limits} && exec \"$@\""), "sh"]);
    command.args([env!("CARGO_BIN_EXE_datastore"), "serve", "--listen", "127.0.0.1:0"]);
    command.arg("--storage").arg(format!("file://{}", root.path().display()));
    command
}

/// The command that serves `root` with this limit of open files.
fn with_open_files(limit: u64, root: &TempDir) -> std::process::Command {
    limited(&format!("ulimit -n {limit}"), root)
}

fn metrics(datastore: &Running) -> String {
    String::from_utf8(datastore.get("/metrics").1).unwrap()
}

/// How many idle connections were closed to make room.
fn closed_idle(datastore: &Running) -> u64 {
    let page = metrics(datastore);
    let name = "datastore_connections_closed_idle_total ";
    page.lines().find_map(|line| line.strip_prefix(name)).unwrap().parse().unwrap()
}

#[test]
fn too_low_a_limit_of_open_files_ends_startup_with_the_next_step() {
    let root = TempDir::new().unwrap();
    for limit in [16, 64, 207] {
        let mut command = with_open_files(limit, &root);
        let mut child = command.stderr(std::process::Stdio::piped()).spawn().unwrap();
        let since = Instant::now();
        while child.try_wait().unwrap().is_none() {
            if since.elapsed() > 10 * SECOND {
                child.kill().unwrap();
            }
            std::thread::sleep(SECOND / 100);
        }
        let ended = child.wait_with_output().unwrap();
        let reported = String::from_utf8_lossy(&ended.stderr);
        assert_eq!(ended.status.code(), Some(8), "{reported}");
        let text = format!(
            "the limit of open files (RLIMIT_NOFILE) is {limit}, and the datastore needs at least 208"
        );
        assert!(reported.contains(&text), "{reported}");
        assert!(reported.contains("hint: raise the hard limit to 4096 or more"), "{reported}");
    }
}

#[test]
fn parallel_requests_at_the_lowest_limit_of_open_files_are_never_500() {
    let root = TempDir::new().unwrap();
    let datastore = &Running::of(&mut with_open_files(208, &root));
    let body = vec![b'x'; 300 << 10];
    let body = &body;
    let statuses = std::thread::scope(|scope| {
        let clients = (0..150).map(|client| {
            scope.spawn(move || {
                let url = format!("/api/artifacts?{RUN}&attempt=1&name=a{client}");
                let mut socket = datastore.connect();
                let length = body.len();
                write!(
                    socket,
                    "PUT {url} HTTP/1.1\r\nhost: localhost\r\ncontent-length: {length}\r\n"
                )
                .unwrap();
                socket.write_all(b"connection: close\r\n\r\n").unwrap();
                let _refused = socket.write_all(body);
                rest(&mut socket).lines().next().unwrap_or_default().to_owned()
            })
        });
        let clients = clients.collect::<Vec<_>>();
        clients.into_iter().map(|client| client.join().unwrap()).collect::<Vec<_>>()
    });
    let count = |status: &str| statuses.iter().filter(|line| line.contains(status)).count();
    let (stored, refused) = (count(" 200 "), count(" 503 "));
    assert_eq!(stored + refused, 150, "{statuses:?}");
    assert!(stored >= 8, "{statuses:?}");
    let log = datastore.log.lock().unwrap();
    assert!(!log.contains("os error 24"), "{log}");
}

/// This process's limit of open files, raised until this is dropped.
struct RaisedOpenFiles {
    soft: u64,
    hard: u64,
}

impl RaisedOpenFiles {
    fn new() -> Self {
        let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
        setrlimit(Resource::RLIMIT_NOFILE, hard, hard).unwrap();
        Self { soft, hard }
    }
}

impl Drop for RaisedOpenFiles {
    fn drop(&mut self) {
        setrlimit(Resource::RLIMIT_NOFILE, self.soft, self.hard).unwrap();
    }
}

#[test]
fn requests_are_answered_while_silent_callers_hold_all_connections() {
    let root = TempDir::new().unwrap();
    let raised = RaisedOpenFiles::new();
    // As many connections as are accepted. More could take longer than the 10 s that each may be silent.
    let silent = (raised.hard.saturating_sub(500) / 3).clamp(128, 1024 + 64);
    let datastore = Running::of(&mut with_open_files(2 * (silent - 64) + 192, &root));
    let mut sockets = Vec::new();
    for position in 0..silent {
        let mut socket = datastore.connect();
        if position % 2 == 0 {
            // Half a head. The connection may be closed to make room.
            let _closed = socket.write_all(&HEALTH[..9]);
        }
        sockets.push(socket);
    }
    let url = format!("/api/plans?{RUN}&attempt=0");
    for round in 0..5 {
        assert_eq!(datastore.get("/healthz").0, 200);
        let mut upload = datastore.begin(5, b"12345");
        assert!(rest(&mut upload).starts_with("HTTP/1.1 200 "), "{round}");
        assert_eq!(datastore.get(&url), (200, b"12345".to_vec()));
    }
    assert!(closed_idle(&datastore) > 0, "silent connections keep their places");
    let page = metrics(&datastore);
    assert!(page.contains(&format!("datastore_connections_limit {}\n", silent - 64)), "{page}");
    drop(sockets);
}

#[tokio::test]
async fn valid_x_request_id_is_kept() {
    let datastore = TestDatastore::memory().await;
    let id = async |given: &str| {
        let healthz = CLIENT.get(datastore.url.join("healthz").unwrap());
        let answer = send(healthz.header("x-request-id", given)).await;
        answer.header("x-request-id").unwrap().to_owned()
    };
    for given in
        ["a", "0af7651916cd43dd8448eb211c80319c", "Root=1-67891233-abcdef012345678912345678"]
    {
        assert_eq!(id(given).await, given);
    }
    for given in ["", "a b", "a\"b", "a{b}", &"a".repeat(129)] {
        let own = id(given).await;
        assert!(own != given && own.len() > 10, "{own}");
    }
    assert_ne!(id("").await, id("").await);
}
