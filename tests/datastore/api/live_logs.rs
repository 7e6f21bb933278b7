//! `POST /api/logs` and `GET /api/logs?follow=true`: a log that is read while it grows.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::time::{Duration, SystemTime};

use datastore_api::Sha256;
use nix::sys::signal::Signal;
use reqwest::{Method, Response};
use serde_json::json;
use support::{TestDatastore, wait_for};
use tempfile::TempDir;

use crate::http::{Answer, CLIENT, RUN, files, get, request, send, stored};
use crate::program::process::Running;

const LOG: &str = "logs?namespace=team-a&layer=network&run=plan-1&attempt=0";

async fn append(datastore: &TestDatastore, offset: usize, text: &str, more: &str) -> Answer {
    let rest = format!("{LOG}&offset={offset}{more}");
    send(request(datastore, Method::POST, &rest).body(text.to_owned())).await
}

/// Appends, and returns the status and the size of the log that was answered.
async fn appended(datastore: &TestDatastore, offset: usize, text: &str) -> (u16, usize) {
    outcome(&append(datastore, offset, text, "").await)
}

fn outcome(answer: &Answer) -> (u16, usize) {
    (answer.status, answer.header("upload-offset").unwrap().parse().unwrap())
}

async fn lines(datastore: &TestDatastore) -> String {
    let json = get(datastore, LOG).await.json();
    let lines = json["results"].as_array().unwrap().iter();
    lines.map(|line| line.as_str().unwrap()).collect::<Vec<_>>().join("\n")
}

async fn attempts(datastore: &TestDatastore) -> serde_json::Value {
    get(datastore, &format!("attempts?{RUN}")).await.json()["attempts"].clone()
}

#[tokio::test]
async fn appended_bytes_are_stored_once_and_become_the_log_when_it_is_complete() {
    for datastore in TestDatastore::each().await {
        assert_eq!(appended(&datastore, 0, "").await, (200, 0));
        assert_eq!(appended(&datastore, 0, "one\n").await, (200, 4));
        assert_eq!(appended(&datastore, 4, "two\n").await, (200, 8));
        // Repeated, also in other pieces.
        for (offset, text) in [(0, "one\n"), (4, "two\n"), (0, "one\ntwo\n"), (2, "e\ntw")] {
            assert_eq!(appended(&datastore, offset, text).await, (200, 8), "{offset}: {text}");
        }
        // Other bytes, a gap, and a confirmation of another log.
        for (offset, text) in [(4, "TWO\n"), (9, "x"), (7, "\nthree"), (4, ""), (9, "")] {
            let answer = append(&datastore, offset, text, "").await;
            assert_eq!(outcome(&answer), (409, 8), "{offset}: {text}");
            assert_eq!(answer.header("content-type"), Some("application/problem+json"));
        }
        assert_eq!(lines(&datastore).await, "one\ntwo\n");
        let listed = attempts(&datastore).await;
        assert_eq!((&listed[0]["live"], &listed[0]["attempt"]), (&"running".into(), &0.into()));
        assert_eq!(listed[0]["artifacts"][0]["name"], "run.log");
        let runs = get(&datastore, "runs?namespace=team-a&layer=network").await.json();
        assert_eq!(runs["runs"].as_array().unwrap().len(), 1, "{runs}");

        let answer = append(&datastore, 8, "three", "&complete=true").await;
        assert_eq!(outcome(&answer), (200, 13));
        let digest = Sha256::of(b"one\ntwo\nthree").to_repr_digest();
        assert_eq!(answer.header("repr-digest"), Some(&*digest));
        assert_eq!(lines(&datastore).await, "one\ntwo\nthree");
        assert_eq!(attempts(&datastore).await[0]["live"], json!(null));
        // A repetition still succeeds, and nothing else.
        let again = append(&datastore, 8, "three", "&complete=true").await;
        assert_eq!((outcome(&again), again.header("repr-digest")), ((200, 13), Some(&*digest)));
        for (offset, text) in [(13, ""), (13, "x"), (8, "THREE")] {
            assert_eq!(appended(&datastore, offset, text).await, (409, 13), "{offset}: {text}");
        }
    }
}

#[tokio::test]
async fn a_put_of_the_log_replaces_what_was_appended() {
    for datastore in TestDatastore::each().await {
        assert_eq!(appended(&datastore, 0, "live").await, (200, 4));
        stored(&datastore, LOG, "the log of the pod").await;
        assert_eq!(lines(&datastore).await, "the log of the pod");
        for (offset, text) in [(4, "more"), (4, ""), (18, "x"), (0, "live")] {
            assert_eq!(appended(&datastore, offset, text).await, (409, 18), "{offset}: {text}");
        }
        assert_eq!(lines(&datastore).await, "the log of the pod");
    }
}

#[tokio::test]
async fn a_retry_that_works_hides_neither_the_last_result_nor_itself() {
    for datastore in TestDatastore::each().await {
        let plans = format!("plans?{RUN}&format=short");
        stored(&datastore, &format!("{plans}&attempt=0"), "the last result").await;
        stored(&datastore, LOG, "the last log").await;
        let second = |rest: &str| rest.replace("attempt=0", "attempt=1");
        let live = send(
            request(&datastore, Method::POST, &second(&format!("{LOG}&offset=0"))).body("live"),
        );
        assert_eq!(live.await.status, 200);
        let ledger = format!("artifacts?{RUN}&name=ledger.json");
        stored(&datastore, &format!("{ledger}&attempt=1"), "{\"a\": 1}").await;

        // Without a number, as Burrito asks, it is the attempt with a result.
        assert_eq!(get(&datastore, &plans).await.text(), "the last result");
        assert_eq!(
            get(&datastore, &format!("logs?{RUN}")).await.text(),
            "{\"results\":[\"the last log\"]}\n"
        );
        assert_eq!(get(&datastore, &second(LOG)).await.text(), "{\"results\":[\"live\"]}\n");
        let listed = attempts(&datastore).await;
        let names = listed[1]["artifacts"].as_array().unwrap().iter().map(|file| &file["name"]);
        assert_eq!(names.collect::<Vec<_>>(), ["ledger.json", "run.log"]);
        assert_eq!(get(&datastore, &format!("{ledger}&attempt=1")).await.text(), "{\"a\": 1}");

        // With a plan file the attempt is the latest one, and its ledger one of its files.
        stored(&datastore, &format!("{plans}&attempt=1"), "a new result").await;
        assert_eq!(get(&datastore, &format!("{ledger}&attempt=1")).await.text(), "{\"a\": 1}");
        stored(&datastore, &format!("{ledger}&attempt=1"), "{\"a\": 2}").await;
        assert_eq!(get(&datastore, &ledger).await.text(), "{\"a\": 2}");
        assert_eq!(get(&datastore, &plans).await.text(), "a new result");
    }
}

#[tokio::test]
async fn appends_beyond_a_limit_are_refused_and_store_nothing() {
    let datastore = TestDatastore::with_max_size("log", 10).await;
    assert_eq!(appended(&datastore, 0, "123456").await, (200, 6));
    let answer = append(&datastore, 6, "78901", "").await;
    assert_eq!(answer.status, 413);
    assert!(
        answer.text().contains("more bytes than `--max-size log` allows (10)"),
        "{}",
        answer.text()
    );
    assert_eq!(append(&datastore, usize::MAX, "x", "").await.status, 413);
    let datastore = TestDatastore::memory().await;
    let answer = append(&datastore, 0, &"x".repeat((4 << 20) + 1), "").await;
    assert_eq!(answer.status, 413);
    assert!(answer.text().contains("at most 4194304 bytes"), "{}", answer.text());
    let wrong = request(&datastore, Method::POST, &format!("{LOG}&offset=0"));
    let wrong = wrong.header("repr-digest", Sha256::of(b"y").to_repr_digest()).body("x");
    assert_eq!(send(wrong).await.status, 400);
    assert_eq!(get(&datastore, LOG).await.status, 404);
    for query in ["offset=-1", "offset=1&complete=false", "offset=", "offset=1&offset=2"] {
        let answer = send(request(&datastore, Method::POST, &format!("{LOG}&{query}"))).await;
        assert_eq!(answer.status, 400, "{query}");
    }
    for query in ["offset=1", "follow=false", "follow=true&offset=x"] {
        assert_eq!(get(&datastore, &format!("{LOG}&{query}")).await.status, 400, "{query}");
    }
}

#[tokio::test]
async fn a_run_that_is_silent_for_a_minute_is_lost_until_it_returns() {
    let datastore = TestDatastore::temporary().await;
    assert_eq!(appended(&datastore, 0, "text").await, (200, 4));
    let live = datastore.root().join(".plancha/live");
    for file in files(&live) {
        let file = std::fs::File::options().append(true).open(live.join(file)).unwrap();
        file.set_modified(SystemTime::now() - Duration::from_secs(70)).unwrap();
    }
    let listed = attempts(&datastore).await;
    assert_eq!(listed[0]["live"], "lost", "{listed}");
    assert_eq!(appended(&datastore, 4, "").await, (200, 4));
    assert_eq!(attempts(&datastore).await[0]["live"], "running");
    // Confirmations replace one object.
    let before = files(&live).len();
    assert_eq!(appended(&datastore, 4, "").await, (200, 4));
    assert_eq!(files(&live).len(), before);
}

/// Reads what follows, until the text has this length.
async fn read(response: &mut Response, length: usize) -> String {
    let mut text = Vec::new();
    while text.len() < length {
        text.extend(response.chunk().await.unwrap().expect("the log ended"));
    }
    String::from_utf8(text).unwrap()
}

async fn follow(datastore: &TestDatastore, offset: usize) -> Response {
    let rest = format!("{LOG}&follow=true&offset={offset}");
    request(datastore, Method::GET, &rest).send().await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn followers_of_every_replica_get_the_text_as_it_comes_and_its_end() {
    for [one, other] in TestDatastore::replicas().await {
        assert_eq!(appended(&one, 0, "one\n").await, (200, 4));
        let mut here = follow(&one, 0).await;
        let mut there = follow(&other, 2).await;
        assert_eq!(here.headers()["content-type"], "text/plain; charset=utf-8");
        assert_eq!(here.headers()["cache-control"], "no-store");
        assert_eq!(read(&mut here, 4).await, "one\n");
        assert_eq!(read(&mut there, 2).await, "e\n");
        // The next writer asks the other replica.
        assert_eq!(appended(&other, 4, "two\n").await, (200, 8));
        assert_eq!(read(&mut here, 4).await, "two\n");
        assert_eq!(read(&mut there, 4).await, "two\n");
        let answer = append(&one, 8, "three", "&complete=true").await;
        assert_eq!(outcome(&answer), (200, 13));
        assert_eq!(here.text().await.unwrap(), "three");
        assert_eq!(there.text().await.unwrap(), "three");
        // A complete log is sent at once.
        let rest = follow(&other, 4).await;
        assert_eq!(rest.text().await.unwrap(), "two\nthree");
        assert_eq!(follow(&one, 13).await.text().await.unwrap(), "");
        assert_eq!(follow(&one, 14).await.status(), 416);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn events_have_offsets_and_are_resumed_from_the_last_one() {
    let datastore = TestDatastore::memory().await;
    assert_eq!(appended(&datastore, 0, "one\r").await, (200, 4));
    let events = |last: Option<&str>| {
        let rest = format!("{LOG}&follow=true");
        let request = request(&datastore, Method::GET, &rest).header("accept", "text/event-stream");
        match last {
            Some(last) => request.header("last-event-id", last),
            None => request,
        }
    };
    let mut stream = events(None).send().await.unwrap();
    assert_eq!(stream.headers()["content-type"], "text/event-stream; charset=utf-8");
    let start = "retry: 1000\n\nid: 3\ndata: one\n\n";
    assert_eq!(read(&mut stream, start.len()).await, start);
    assert_eq!(appended(&datastore, 4, "\ntwo").await, (200, 8));
    let next = "id: 8\ndata: \ndata: two\n\n";
    assert_eq!(read(&mut stream, next.len()).await, next);
    drop(stream);
    let resumed = events(Some("3")).send().await.unwrap();
    assert_eq!(outcome(&append(&datastore, 8, "\n", "&complete=true").await), (200, 9));
    let text = resumed.text().await.unwrap();
    let joined = text.lines().filter_map(|line| line.strip_prefix("data: ")).collect::<Vec<_>>();
    assert!(text.starts_with("retry: 1000\n\nid: "), "{text}");
    assert_eq!(joined.last(), Some(&"complete"), "{text}");
    assert!(text.ends_with("event: end\nid: 9\ndata: complete\n\n"), "{text}");
    let complete = events(Some("8")).send().await.unwrap().text().await.unwrap();
    assert_eq!(
        complete,
        "retry: 1000\n\nid: 9\ndata: \ndata: \n\nevent: end\nid: 9\ndata: complete\n\n"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn sigterm_ends_followers_with_their_offset_and_no_byte_is_lost_or_repeated() {
    let root = TempDir::new().unwrap();
    let mut datastore = Running::start(root.path(), &[]);
    let url = format!("http://{}/api/{LOG}", datastore.address);
    let text = "line\n".repeat(50_000);
    let sent = CLIENT.post(format!("{url}&offset=0")).body(text.clone()).send().await.unwrap();
    assert_eq!(sent.status(), 200);
    let mut plain = CLIENT.get(format!("{url}&follow=true")).send().await.unwrap();
    let mut got = read(&mut plain, text.len()).await;
    let events = CLIENT.get(format!("{url}&follow=true")).header("accept", "text/event-stream");
    let mut events = events.send().await.unwrap();
    let mut event = String::new();
    while !event.contains(&format!("id: {}\n", text.len())) {
        event.push_str(str::from_utf8(&events.chunk().await.unwrap().unwrap()).unwrap());
    }
    // One that accepts trailers.
    let mut socket = TcpStream::connect(&datastore.address).unwrap();
    let path = format!("/api/{LOG}&follow=true&offset={}", text.len() - 5);
    write!(
        socket,
        "GET {path} HTTP/1.1\r\nhost: localhost\r\nte: trailers\r\nconnection: close\r\n\r\n"
    )
    .unwrap();
    let mut reader = BufReader::new(socket);
    let mut head = String::new();
    while !head.ends_with("line\n") {
        assert!(reader.read_line(&mut head).unwrap() > 0, "{head}");
    }

    datastore.signal(Signal::SIGTERM);
    assert!(datastore.wait().success());

    assert!(plain.chunk().await.is_err(), "plain text that is not complete must not end cleanly");
    let mut rest = String::new();
    while let Some(piece) = events.chunk().await.unwrap() {
        rest.push_str(str::from_utf8(&piece).unwrap());
    }
    assert!(rest.ends_with(&format!("event: end\nid: {}\ndata: shutdown\n\n", text.len())));
    let mut trailers = String::new();
    reader.read_to_string(&mut trailers).unwrap();
    let trailers = trailers.to_lowercase();
    assert!(trailers.contains(&format!("upload-offset: {}\r\n", text.len())), "{trailers}");
    assert!(trailers.contains("log-end: shutdown\r\n"), "{trailers}");

    // After a restart the writer and its followers continue.
    let datastore = Running::start(root.path(), &[]);
    let url = format!("http://{}/api/{LOG}", datastore.address);
    let plain = CLIENT.get(format!("{url}&follow=true&offset={}", got.len())).send().await.unwrap();
    let last = CLIENT.post(format!("{url}&offset={}&complete=true", text.len())).body("end");
    assert_eq!(last.send().await.unwrap().status(), 200);
    got.push_str(&plain.text().await.unwrap());
    assert!(got == text + "end", "{} bytes", got.len());
}

#[tokio::test(flavor = "multi_thread")]
async fn waiting_followers_hold_no_memory_of_transfers() {
    let datastore = TestDatastore::memory().await;
    assert_eq!(appended(&datastore, 0, "text").await, (200, 4));
    let mut followers = Vec::new();
    for _ in 0..100 {
        let mut follower = follow(&datastore, 0).await;
        assert_eq!(read(&mut follower, 4).await, "text");
        followers.push(follower);
    }
    // The last piece is given back when it is written, which may be after it is read.
    wait_for("no memory in use", async || {
        let metrics = CLIENT.get(datastore.url.join("metrics").unwrap()).send().await.unwrap();
        let metrics = metrics.text().await.unwrap();
        metrics.lines().any(|line| line == "datastore_admission_active_bytes 0").then_some(())
    })
    .await;
    // Each of them still gets what follows.
    stored(&datastore, LOG, "text and more").await;
    for follower in followers {
        assert_eq!(follower.text().await.unwrap(), " and more");
    }
}
