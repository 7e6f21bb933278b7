//! How much a caller may have, and for how long.

#![expect(clippy::disallowed_types, reason = "a test of the program must start it")]

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use datastore::config::Config;
use datastore::kind::Kind;
use datastore::store::Storage;
use datastore::transport::limits::Limits;
use datastore::{Auth, Callers, Policy, Verb};
use futures::stream;
use nix::sys::signal::Signal;
use reqwest::{Body, Method};
use support::{Dialect, Double, TestDatastore};
use tempfile::TempDir;

use crate::http::{CLIENT, RUN, get, noise, put, request, send, stored};
use crate::process::Running;

const MIB: usize = 1 << 20;
const SECOND: Duration = Duration::from_secs(1);

pub(crate) fn connect(datastore: &TestDatastore) -> TcpStream {
    let address = datastore.url.socket_addrs(|| None).unwrap()[0];
    let socket = TcpStream::connect(address).unwrap();
    socket.set_read_timeout(Some(20 * SECOND)).unwrap();
    socket
}

/// What comes until the other side has no more to say, or has gone.
fn rest(socket: &mut TcpStream) -> String {
    let mut answer = Vec::new();
    let _reset = socket.read_to_end(&mut answer);
    String::from_utf8_lossy(&answer).into_owned()
}

/// Status and headers of one answer without a body, or with the body `OK`.
pub(crate) fn answer(socket: &mut TcpStream) -> String {
    let mut answer = Vec::new();
    let mut byte = [0];
    while !answer.ends_with(b"\r\n\r\n") {
        socket.read_exact(&mut byte).unwrap();
        answer.push(byte[0]);
    }
    let answer = String::from_utf8(answer).unwrap();
    if answer.contains("content-length: 2\r\n") {
        socket.read_exact(&mut [0; 2]).unwrap();
    }
    answer
}

fn kinds() -> [(Kind, String); 7] {
    let plan = |format| format!("plans?{RUN}&attempt=0&format={format}");
    [
        (Kind::Bin, plan("bin")),
        (Kind::Json, plan("json")),
        (Kind::Pretty, plan("pretty")),
        (Kind::Short, plan("short")),
        (Kind::Log, format!("logs?{RUN}&attempt=0")),
        (Kind::Bundle, "repository/revision/bundle?namespace=a&name=b&ref=c&revision=d".to_owned()),
        (Kind::Artifact, format!("artifacts?{RUN}&attempt=0&name=run.json")),
    ]
}

#[tokio::test]
async fn every_kind_has_its_own_size_and_more_is_refused_whole() {
    let mut limits = Limits::default();
    for (size, (kind, _)) in (10..).zip(kinds()) {
        limits.sizes.set(kind, size);
    }
    let datastore = TestDatastore::limited(limits).await;
    for (size, (_, url)) in (10..).zip(kinds()) {
        stored(&datastore, &url, noise(size, 1)).await;
        assert_eq!(put(&datastore, &url, noise(size + 1, 2)).await.status, 413, "{url}");
        let pieces = [noise(size, 3), b"x".to_vec()].map(Ok::<_, std::io::Error>);
        let counted = Body::wrap_stream(stream::iter(pieces));
        let counted = send(request(&datastore, Method::PUT, &url).body(counted)).await;
        assert_eq!(counted.status, 413, "{url}");
        if !url.starts_with("logs") {
            assert_eq!(get(&datastore, &url).await.body, noise(size, 1));
        }
    }
    let refused = put(&datastore, &kinds()[0].1, noise(11, 1)).await.refusal();
    insta::assert_snapshot!(refused, @"413 text/plain; charset=UTF-8 it is larger than the 10B that `--max-size` allows for `bin`");
    let refused = put(&datastore, &kinds()[6].1, noise(17, 1)).await.refusal();
    insta::assert_snapshot!(refused, @r#"413 application/problem+json {"type":"about:blank","title":"Payload Too Large","status":413,"detail":"it is larger than the 16B that `--max-size` allows for `artifact`"}"#);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_length_that_is_too_large_is_refused_before_the_body_is_sent() {
    let datastore = TestDatastore::memory().await;
    let mut socket = connect(&datastore);
    let head = format!("PUT /api/plans?{RUN}&attempt=0&format=short HTTP/1.1\r\nhost: x\r\n");
    write!(socket, "{head}content-length: 1048577\r\n\r\n").unwrap();
    assert!(answer(&mut socket).starts_with("HTTP/1.1 413 "));

    // One that sends all the same hears why, and is not reset.
    for size in [2 * MIB, 64 * MIB] {
        let url = format!("plans?{RUN}&attempt=0&format=short");
        assert_eq!(put(&datastore, &url, noise(size, 1)).await.status, 413);
    }
}

#[tokio::test]
async fn a_head_has_16_kib() {
    let datastore = TestDatastore::memory().await;
    for (length, status) in [(15 << 10, 200), (17 << 10, 431), (200 << 10, 431)] {
        let healthz = datastore.url.join("healthz").unwrap();
        let answer = send(CLIENT.get(healthz).header("x-long", "a".repeat(length))).await;
        assert_eq!(answer.status, status, "{length}");
    }
}

#[test]
fn heads_that_do_not_end_hold_little_memory() {
    let root = TempDir::new().unwrap();
    let datastore = Running::start(root.path(), &[]);
    let head = format!("GET /healthz HTTP/1.1\r\nx-long: {}", "a".repeat(250 << 10));
    let heads = (0..400).map(|_| {
        let mut socket = datastore.connect();
        // It may be refused before all of it is sent.
        let _refused = socket.write_all(head.as_bytes());
        socket
    });
    let heads = heads.collect::<Vec<_>>();
    assert_eq!(datastore.get("/healthz").0, 200);
    assert!(datastore.memory() < 75, "{} MiB", datastore.memory());
    drop(heads);
}

/// Asks for a plan of 200 KiB so often without reading an answer that one is stuck on its way.
fn stuck(mut socket: TcpStream) -> TcpStream {
    for _ in 0..100 {
        let get = format!("GET /api/plans?{RUN}&attempt=0 HTTP/1.1\r\nhost: x\r\n\r\n");
        socket.write_all(get.as_bytes()).unwrap();
    }
    std::thread::sleep(SECOND);
    socket
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_keeps_its_memory_until_it_is_written() {
    let limits = Limits { memory: 64 << 10, wait: SECOND / 4, ..Limits::default() };
    let datastore = TestDatastore::limited(limits).await;
    let plan = format!("plans?{RUN}&attempt=0");
    stored(&datastore, &plan, noise(200 << 10, 1)).await;
    let reader = stuck(connect(&datastore));
    assert_eq!(get(&datastore, &plan).await.status, 503);
    drop(reader);
    let since = Instant::now();
    while get(&datastore, &plan).await.status != 200 {
        assert!(since.elapsed() < 5 * SECOND, "it is never given back");
    }
}

#[test]
fn an_answer_that_is_on_its_way_at_the_end_is_written_whole() {
    let root = TempDir::new().unwrap();
    let mut datastore = Running::start(root.path(), &[]);
    let mut upload = datastore.begin(200 << 10, &noise(200 << 10, 1));
    assert!(rest(&mut upload).starts_with("HTTP/1.1 200 "));
    let mut reader = stuck(datastore.connect());
    datastore.signal(Signal::SIGTERM);
    std::thread::sleep(3 * SECOND);
    let mut answers = Vec::new();
    reader.read_to_end(&mut answers).unwrap();
    let heads = answers.windows(12).filter(|part| part == b"HTTP/1.1 200").count();
    let head = answers.windows(4).position(|part| part == b"\r\n\r\n").unwrap() + 4;
    // Each head is as long as the first, but for its id, which counts up.
    let length = heads * (head + (200 << 10));
    assert!(answers.len().abs_diff(length) < 4 * heads, "{} of {length} bytes", answers.len());
    assert_eq!(datastore.wait().code(), Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_after_a_long_answer_has_its_own_time() {
    let limits = Limits { head: SECOND / 4, memory: MIB, wait: SECOND, ..Limits::default() };
    let datastore = TestDatastore::limited(limits).await;
    let plan = format!("plans?{RUN}&attempt=0");
    stored(&datastore, &plan, noise(200 << 10, 1)).await;
    let mut holds_all = connect(&datastore);
    let url = format!("/api/artifacts?{RUN}&attempt=1&name=a");
    write!(holds_all, "PUT {url} HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n")
        .unwrap();
    tokio::time::sleep(SECOND / 10).await;
    let mut socket = connect(&datastore);
    write!(socket, "GET /api/{plan} HTTP/1.1\r\nhost: x\r\n\r\n").unwrap();
    tokio::time::sleep(SECOND / 10).await;
    socket.write_all(b"GET /healthz HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").unwrap();
    let answers = rest(&mut socket);
    assert!(answers.starts_with("HTTP/1.1 503 ") && answers.contains("HTTP/1.1 200 "), "{answers}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_head_that_dribbles_is_cut_off() {
    let limits = Limits { head: SECOND / 2, ..Limits::default() };
    let datastore = TestDatastore::limited(limits).await;
    for begun in ["", "GET /healthz HTTP/1.1\r\n"] {
        let mut socket = connect(&datastore);
        socket.write_all(begun.as_bytes()).unwrap();
        let since = Instant::now();
        while socket.write_all(b"a").is_ok() {
            assert!(since.elapsed() < 5 * SECOND, "never cut off");
            std::thread::sleep(SECOND / 20);
        }
        assert!(since.elapsed() > SECOND / 3);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_may_wait_longer_for_its_next_request_than_for_the_rest_of_one() {
    let (head, keep_alive) = (SECOND / 4, SECOND);
    let limits = Limits { head, keep_alive, ..Limits::default() };
    let datastore = TestDatastore::limited(limits).await;
    let mut socket = connect(&datastore);
    for _ in 0..3 {
        socket.write_all(b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n").unwrap();
        assert!(answer(&mut socket).starts_with("HTTP/1.1 200 "));
        std::thread::sleep(SECOND / 2);
    }
    let since = Instant::now();
    assert_eq!(rest(&mut socket), "");
    assert!(since.elapsed() < 2 * SECOND);

    // The second head is under the same limit as the first.
    let mut socket = connect(&datastore);
    socket.write_all(b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n").unwrap();
    answer(&mut socket);
    socket.write_all(b"GET /hea").unwrap();
    let since = Instant::now();
    assert_eq!(rest(&mut socket), "");
    assert!(since.elapsed() < keep_alive, "{:?}", since.elapsed());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_that_stalls_is_refused() {
    let datastore = TestDatastore::limited(Limits { idle: SECOND / 2, ..Limits::default() }).await;
    let mut socket = connect(&datastore);
    let head = format!("PUT /api/plans?{RUN}&attempt=0 HTTP/1.1\r\nhost: x\r\n");
    write!(socket, "{head}content-length: 10\r\n\r\nhello").unwrap();
    let answer = rest(&mut socket);
    assert!(answer.starts_with("HTTP/1.1 408 "), "{answer}");
    assert!(answer.ends_with("nothing came for 500ms"), "{answer}");
    assert_eq!(get(&datastore, &format!("plans?{RUN}&attempt=0")).await.status, 404);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_that_stalls_is_cut_off_and_a_slow_one_is_not() {
    let datastore = TestDatastore::limited(Limits { idle: SECOND, ..Limits::default() }).await;
    let size = 32 * MIB;
    stored(&datastore, &format!("plans?{RUN}&attempt=0"), noise(size, 1)).await;
    let ask = || {
        let mut socket = connect(&datastore);
        let get = format!("GET /api/plans?{RUN}&attempt=0 HTTP/1.1\r\nhost: x\r\n");
        write!(socket, "{get}connection: close\r\n\r\n").unwrap();
        socket
    };
    let mut stalled = ask();
    std::thread::sleep(3 * SECOND);
    let mut read = Vec::new();
    let _reset = stalled.read_to_end(&mut read);
    assert!(read.len() < size);

    let mut slow = ask();
    let (mut read, mut piece) = (0, vec![0; 8 * MIB]);
    loop {
        match slow.read(&mut piece).unwrap() {
            0 => break,
            length => read += length,
        }
        if read < size / 2 {
            std::thread::sleep(SECOND / 4);
        }
    }
    assert!(read > size);
}

#[tokio::test(flavor = "multi_thread")]
async fn who_finds_no_memory_waits_and_is_then_told_to_come_back() {
    let limits = Limits { memory: MIB, wait: SECOND / 2, ..Limits::default() };
    let datastore = TestDatastore::limited(limits).await;
    let plan = format!("plans?{RUN}&attempt=0");
    let artifact = format!("artifacts?{RUN}&attempt=0&name=b");
    let (old, new) = (noise(200 << 10, 1), noise(200 << 10, 2));
    stored(&datastore, &plan, old).await;
    stored(&datastore, &artifact, noise(200 << 10, 3)).await;

    let mut holds_all = connect(&datastore);
    let url = format!("/api/artifacts?{RUN}&attempt=1&name=a");
    write!(holds_all, "PUT {url} HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n")
        .unwrap();
    tokio::time::sleep(SECOND / 10).await;
    let since = Instant::now();
    let refused = put(&datastore, &plan, new.clone()).await;
    assert!(since.elapsed() >= SECOND / 2);
    assert_eq!(refused.header("retry-after"), Some("5"));
    insta::assert_snapshot!(refused.refusal(), @"503 text/plain; charset=UTF-8 server is at capacity; retry later");
    let refused = get(&datastore, &artifact).await;
    insta::assert_snapshot!(refused.refusal(), @r#"503 application/problem+json {"type":"about:blank","title":"Service Unavailable","status":503,"detail":"server is at capacity; retry later"}"#);
    assert_eq!(get(&datastore, &plan).await.status, 503);
    assert_eq!(get(&datastore, &format!("attempts?{RUN}")).await.status, 503);
    // There is a reserve for what is small.
    let small = format!("plans?{RUN}&attempt=2&format=short");
    stored(&datastore, &small, "small").await;
    assert_eq!(get(&datastore, &small).await.text(), "small");
    for path in ["healthz", "readyz"] {
        let answer = send(CLIENT.get(datastore.url.join(path).unwrap())).await;
        assert_eq!(answer.status, 200, "{path}");
    }

    // It is in line, and gets in once there is room.
    let (waited, ()) = tokio::join!(put(&datastore, &plan, new.clone()), async {
        tokio::time::sleep(SECOND / 10).await;
        holds_all.write_all(b"0\r\n\r\n").unwrap();
    });
    assert_eq!(waited.status, 200);
    assert!(answer(&mut holds_all).starts_with("HTTP/1.1 200 "));
    assert!(get(&datastore, &plan).await.body == new);
}

/// Readers that ask for a plan of this size, and read nothing of it, until they are dropped.
pub(crate) fn slow_readers(datastore: &TestDatastore, readers: usize) -> Vec<TcpStream> {
    let ask = |_| {
        let mut socket = connect(datastore);
        write!(socket, "GET /api/plans?{RUN}&attempt=0 HTTP/1.1\r\nhost: x\r\n\r\n").unwrap();
        socket
    };
    (0..readers).map(ask).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn slow_readers_of_one_tenant_starve_no_other() {
    let file = TestDatastore::temporary_limited(Limits { memory: 24 * MIB, ..Limits::default() });
    for (datastore, size, readers) in [
        (TestDatastore::double(Dialect::S3).await, 64 * MIB, 12),
        // A tenth of the memory, and of the readers.
        (file.await, 8 * MIB, 30),
    ] {
        stored(&datastore, &format!("plans?{RUN}&attempt=0"), noise(size, 1)).await;
        let other = "plans?namespace=team-b&layer=network&run=plan-1";
        let (large, small) = (noise(size / 4, 2), noise(4 << 10, 3));
        stored(&datastore, &format!("{other}&attempt=0"), large.clone()).await;
        stored(&datastore, &format!("{other}&attempt=1"), small.clone()).await;
        let slow = slow_readers(&datastore, readers);
        for socket in &slow[..4] {
            // Some of them are answered.
            socket.peek(&mut [0]).unwrap();
        }
        for _ in 0..100 {
            let answer = get(&datastore, &format!("{other}&attempt=1")).await;
            assert_eq!(answer.status, 200);
            assert!(answer.body == small);
        }
        let answer = get(&datastore, &format!("{other}&attempt=0")).await;
        assert_eq!(answer.status, 200);
        assert!(answer.body == large);
        stored(&datastore, &format!("{other}&attempt=2"), large).await;
        drop(slow);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slow_reader_gives_up_what_was_fetched_ahead_and_gets_all_in_the_end() {
    let limits = Limits { memory: 24 * MIB, ..Limits::default() };
    let double = Double::start(Dialect::S3);
    let datastore = TestDatastore::of(Config { limits, ..Config::of(double.storage()) }).await;
    let body = noise(40 * MIB, 1);
    let plan = format!("plans?{RUN}&attempt=0");
    stored(&datastore, &plan, body.clone()).await;
    let mut slow = slow_readers(&datastore, 1).remove(0);
    slow.peek(&mut [0]).unwrap();
    // All the memory that one transfer can have, and so all that the reader has fetched ahead.
    let other = "artifacts?namespace=team-b&layer=b&run=c&attempt=0&name=d";
    for _ in 0..3 {
        stored(&datastore, other, noise(24 * MIB, 2)).await;
    }
    let head = answer(&mut slow);
    assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
    let mut read = vec![0; body.len()];
    slow.read_exact(&mut read).unwrap();
    assert!(read == body);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_gives_its_memory_back_also_when_it_leaves() {
    let limits = Limits { memory: 64 << 10, wait: SECOND / 4, ..Limits::default() };
    let datastore = TestDatastore::limited(limits).await;
    let plan = format!("plans?{RUN}&attempt=0");
    stored(&datastore, &plan, noise(32 * MIB, 1)).await;
    for _ in 0..3 {
        let mut reader = connect(&datastore);
        write!(reader, "GET /api/{plan} HTTP/1.1\r\nhost: x\r\n\r\n").unwrap();
        assert!(answer(&mut reader).starts_with("HTTP/1.1 200 "));
        assert_eq!(get(&datastore, &plan).await.status, 503);
    }
}

const HEALTH: &[u8] = b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n";

/// A connection with an upload on it that has begun.
fn uploading(datastore: &TestDatastore) -> TcpStream {
    let mut socket = connect(datastore);
    let url = format!("/api/artifacts?{RUN}&attempt=1&name=a");
    write!(socket, "PUT {url} HTTP/1.1\r\nhost: x\r\nexpect: 100-continue\r\n").unwrap();
    socket.write_all(b"content-length: 1000\r\n\r\n").unwrap();
    assert!(answer(&mut socket).starts_with("HTTP/1.1 100 "));
    socket
}

#[tokio::test(flavor = "multi_thread")]
async fn beyond_the_limit_of_connections_probes_are_answered_and_others_wait_for_a_place() {
    let limits = Limits { connections: 2, wait: SECOND, ..Limits::default() };
    let datastore = TestDatastore::limited(limits).await;
    let mut busy = vec![uploading(&datastore), uploading(&datastore)];
    let ask = |socket: &mut TcpStream| {
        write!(socket, "GET /api/plans?{RUN}&attempt=0 HTTP/1.1\r\nhost: x\r\n\r\n").unwrap();
    };
    let mut beyond = connect(&datastore);
    for _ in 0..3 {
        beyond.write_all(HEALTH).unwrap();
        assert!(answer(&mut beyond).starts_with("HTTP/1.1 200 "));
    }
    ask(&mut beyond);
    let refused = rest(&mut beyond);
    assert!(refused.starts_with("HTTP/1.1 503 "), "{refused}");
    assert!(refused.contains("retry-after: 5\r\n"), "{refused}");
    assert!(refused.ends_with("too many connections are open; try again"), "{refused}");

    let mut waiting = connect(&datastore);
    ask(&mut waiting);
    std::thread::sleep(SECOND / 10);
    drop(busy.pop());
    assert!(answer(&mut waiting).starts_with("HTTP/1.1 404 "));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_connection_that_is_idle_longest_makes_room_unless_its_caller_is_known() {
    let (token, rule) = crate::auth::token("ci", &["*"], &["plan"], &[Verb::Read]);
    let mut policy = Policy::default();
    policy.add(&rule).unwrap();
    let callers = Callers { tokens: true, policy, ..Callers::default() };
    let auth = Auth::Callers(Box::new(callers));
    let limits = Limits { connections: 10, ..Limits::default() };
    let config = Config { auth, limits, ..Config::of(Storage::Memory) };
    let datastore = TestDatastore::of(config).await;
    let mut known = connect(&datastore);
    write!(known, "GET /api/plans?{RUN}&attempt=0 HTTP/1.1\r\nhost: x\r\n").unwrap();
    write!(known, "authorization: Bearer {token}\r\n\r\n").unwrap();
    let found = answer(&mut known);
    assert!(found.starts_with("HTTP/1.1 404 "), "{found}");
    known.read_exact(&mut [0; "No plan for this attempt".len()]).unwrap();
    // One of these has shown a token that nobody knows.
    let mut idle = (0..8).map(|_| connect(&datastore)).collect::<Vec<_>>();
    write!(idle[0], "GET /api/plans?{RUN}&attempt=0 HTTP/1.1\r\nhost: x\r\n").unwrap();
    idle[0].write_all(b"authorization: Bearer other\r\n\r\n").unwrap();
    assert!(answer(&mut idle[0]).starts_with("HTTP/1.1 401 "));
    // That was the last to be accepted or answered, so it is the last to go.
    let mut more = Vec::new();
    for socket in &mut idle[1..4] {
        let mut one = connect(&datastore);
        one.write_all(HEALTH).unwrap();
        assert!(answer(&mut one).starts_with("HTTP/1.1 200 "));
        more.push(one);
        assert_eq!(rest(socket), "", "closed without an answer");
    }
    known.write_all(HEALTH).unwrap();
    let alive = answer(&mut known);
    assert!(alive.starts_with("HTTP/1.1 200 "), "{alive}");
}

#[test]
fn the_limit_of_open_files_is_raised_and_connections_fit_into_it() {
    let root = TempDir::new().unwrap();
    let mut command = std::process::Command::new("sh");
    command.args(["-c", "ulimit -Sn 256 && ulimit -Hn 400 && exec \"$@\"", "sh"]);
    command.args([env!("CARGO_BIN_EXE_datastore"), "serve", "--listen", "127.0.0.1:0"]);
    command.arg("--storage").arg(format!("file://{}", root.path().display()));
    let datastore = Running::of(&mut command);
    let page = String::from_utf8(datastore.get("/metrics").1).unwrap();
    for line in ["process_max_fds 400\n", "datastore_connections_limit 104\n"] {
        assert!(page.contains(line), "{line} is not in {page}");
    }
    let sockets = (0..180).map(|_| datastore.connect()).collect::<Vec<_>>();
    assert_eq!(datastore.get("/healthz").0, 200);
    drop(sockets);
}

#[tokio::test]
async fn a_request_keeps_the_id_it_came_with_if_that_is_one() {
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
