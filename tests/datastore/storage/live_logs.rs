//! Live logs at rest: encrypted, removed by `gc`, and written by a server that is killed.

use std::fmt::Write as _;
use std::path::Path;
use std::time::{Duration, SystemTime};

use datastore::config::Config;
use datastore::store::Storage;
use datastore::store::encryption::AtRest;
use nix::sys::signal::Signal;
use reqwest::Method;
use support::TestDatastore;
use tempfile::TempDir;

use crate::http::{CLIENT, RUN, files, get, request, send, stored};
use crate::program::process::{Running, program};

/// How many pieces there are before they are merged.
const MERGED: usize = 1000;

fn log() -> String {
    format!("logs?{RUN}&attempt=0")
}

#[tokio::test]
async fn the_pieces_of_a_log_are_encrypted_as_the_log_is() {
    let root = TempDir::new().unwrap();
    let at_rest = AtRest { key: Some("test-encryption-key".into()), encrypts: true };
    let storage = Storage::File(root.path().to_owned());
    let datastore = TestDatastore::of(Config { at_rest, ..Config::of(storage) }).await;
    let is_readable = || {
        let found = files(root.path());
        let mut contents = found.iter().map(|file| std::fs::read(root.path().join(file)).unwrap());
        let has_text = |bytes: Vec<u8>| bytes.windows(8).any(|bytes| bytes == b"password");
        (found.len(), contents.any(has_text))
    };
    for (offset, text, end) in [(0, "a password\n", ""), (11, "a password", "&complete=true")] {
        let rest = format!("{}&offset={offset}{end}", log());
        let answer = send(request(&datastore, Method::POST, &rest).body(text)).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        let (count, is_readable) = is_readable();
        assert!(count > 0 && !is_readable);
        let shown = get(&datastore, &log()).await.json();
        assert_eq!(shown["results"][0], "a password");
    }
}

#[tokio::test]
async fn gc_deletes_the_log_of_a_run_that_was_lost_a_month_ago_and_has_no_files() {
    let root = TempDir::new().unwrap();
    let datastore = TestDatastore::of(Config::of(Storage::File(root.path().to_owned()))).await;
    let rest = format!("{}&offset=0", log());
    assert_eq!(send(request(&datastore, Method::POST, &rest).body("text")).await.status, 200);
    let live = root.path().join(".plancha/live");
    for (days, is_left) in [(29, true), (31, false)] {
        for file in files(&live) {
            let file = std::fs::File::options().append(true).open(live.join(file)).unwrap();
            file.set_modified(SystemTime::now() - Duration::from_hours(days * 24)).unwrap();
        }
        let storage = format!("file://{}", root.path().display());
        let gc = program(&["gc", "--storage", &storage, "--keep-runs", "1"]).output().unwrap();
        assert!(gc.status.success(), "{}", String::from_utf8_lossy(&gc.stderr));
        assert_eq!(get(&datastore, &log()).await.status == 200, is_left, "{days}");
    }
}

/// Sets when a file below the storage was changed: this many hours ago.
fn age(root: &Path, path: &str, hours: u64) {
    let file = std::fs::File::options().append(true).open(root.join(path)).unwrap();
    file.set_modified(SystemTime::now() - Duration::from_hours(hours)).unwrap();
}

#[tokio::test]
async fn gc_keeps_a_run_with_an_attempt_at_work_though_its_files_are_old() {
    let root = TempDir::new().unwrap();
    let root = root.path();
    let datastore = TestDatastore::of(Config::of(Storage::File(root.to_owned()))).await;
    let of = |run: &str| format!("namespace=a&layer=b&run={run}");
    let claimed = |run: &str, attempt| format!(".plancha/claims/a/b/{run}/{attempt}");
    let claim = async |run: &str, attempt: u32| {
        let rest = format!("attempts?{}&attempt={attempt}&claim=x", of(run));
        assert_eq!(send(request(&datastore, Method::POST, &rest)).await.status, 200);
    };
    for (run, hours) in [("applies", 200), ("begins", 200), ("lost", 200), ("newest", 2)] {
        claim(run, 0).await;
        stored(&datastore, &format!("plans?{}&attempt=0", of(run)), "plan").await;
        age(root, &format!("layers/a/b/{run}/0/plan.json"), hours);
        age(root, &claimed(run, 0), hours);
    }
    // An attempt with a live log need not be claimed.
    for (run, hours) in [("begins", 3), ("lost", 199)] {
        claim(run, 1).await;
        age(root, &claimed(run, 1), hours);
    }
    let append = async |run: &str, offset: usize, rest: &str| {
        let rest = format!("logs?{}&attempt=1&offset={offset}{rest}", of(run));
        send(request(&datastore, Method::POST, &rest).body("text")).await.status
    };
    for run in ["applies", "lost"] {
        assert_eq!(append(run, 0, "").await, 200);
        let live = root.join(format!(".plancha/live/a/b/{run}/1"));
        for file in files(&live) {
            age(&live, file.to_str().unwrap(), if run == "lost" { 199 } else { 2 });
        }
    }
    assert_eq!(append("applies", 4, "").await, 200);
    for entry in files(&root.join(".plancha/runs")) {
        age(root, &format!(".plancha/runs/{}", entry.display()), 200);
    }
    let storage = format!("file://{}", root.display());
    let gc = program(&["gc", "--storage", &storage, "--keep-runs", "1"]).output().unwrap();
    assert!(gc.status.success(), "{}", String::from_utf8_lossy(&gc.stderr));
    let reported = String::from_utf8_lossy(&gc.stdout);
    assert!(reported.ends_with("1 of 4 artifacts deleted, 4B\n"), "{reported}");
    let runs = get(&datastore, "runs?namespace=a&layer=b").await.json();
    let mut runs = runs["runs"].as_array().unwrap().iter().map(|run| run["run"].as_str().unwrap());
    assert!(!runs.clone().any(|run| run == "lost") && runs.clone().count() == 3, "{reported}");
    assert!(runs.any(|run| run == "begins"));
    let left = files(&root.join(".plancha/claims/a/b"));
    let left = left.iter().map(|path| path.to_str().unwrap()).collect::<Vec<_>>();
    assert_eq!(left, ["applies/0", "begins/0", "begins/1", "newest/0"]);
    // The writer goes on, also in a process that knows nothing of it.
    let other = TestDatastore::of(Config::of(Storage::File(root.to_owned()))).await;
    let rest = format!("logs?{}&attempt=1&offset=8&complete=true", of("applies"));
    let ended = send(request(&other, Method::POST, &rest).body("end")).await;
    assert_eq!(ended.status, 200, "{}", ended.text());
    let log = get(&other, &format!("logs?{}&attempt=1", of("applies"))).await;
    assert_eq!(log.json()["results"][0], "texttextend");
}

/// Appends lines until the server no longer answers.
async fn append(url: &str, text: &mut String, answered: &mut usize) {
    loop {
        let start = text.len();
        writeln!(text, "the line at {start}").unwrap();
        let request = CLIENT.post(format!("{url}&offset={start}")).body(text[start..].to_owned());
        match request.send().await {
            Ok(answer) => assert_eq!(answer.status(), 200),
            Err(_) => return,
        }
        *answered = text.len();
    }
}

/// The end of the log that is stored.
async fn end(url: &str) -> usize {
    // Nothing is there: at this offset there is a gap.
    let answer = CLIENT.post(format!("{url}&offset=1000000000")).body("x").send().await.unwrap();
    assert_eq!(answer.status(), 409);
    answer.headers()["upload-offset"].to_str().unwrap().parse().unwrap()
}

/// Objects, without the files of interrupted uploads.
fn pieces(root: &Path) -> Vec<String> {
    files(&root.join(".plancha/live"))
        .into_iter()
        .map(|file| file.display().to_string())
        .filter(|file| !file.contains('#'))
        .collect()
}

#[tokio::test]
#[ignore = "needs a minute"]
async fn no_byte_is_lost_or_repeated_where_the_server_is_killed_while_it_merges() {
    let root = TempDir::new().unwrap();
    let (mut text, mut answered) = (String::new(), 0);
    let (mut interrupted, mut completed) = (0, 0);
    for round in 0..15_u64 {
        let mut datastore = Running::start(root.path(), &[]);
        let url = format!("http://{}/api/{}", datastore.address, log());
        let stored = end(&url).await;
        assert!(
            stored == answered || stored == text.len(),
            "{stored} of {answered} in round {round}"
        );
        text.truncate(stored);
        answered = stored;
        // Until shortly after a merge has begun.
        let appending = append(&url, &mut text, &mut answered);
        let killed = async {
            while pieces(root.path()).len() < MERGED {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            tokio::time::sleep(Duration::from_micros(round * 79_193 % 1_000_000)).await;
            datastore.signal(Signal::SIGKILL);
        };
        tokio::join!(appending, killed);
        datastore.wait();
        let is_merged = pieces(root.path()).len() < MERGED;
        *(if is_merged { &mut completed } else { &mut interrupted }) += 1;
    }
    assert!(interrupted > 0 && completed > 0, "{interrupted}, {completed}: no test of anything");
    let datastore = Running::start(root.path(), &[]);
    let url = format!("http://{}/api/{}", datastore.address, log());
    text.truncate(end(&url).await);
    assert!(text.len() >= answered);
    let complete = CLIENT.post(format!("{url}&offset={}&complete=true", text.len()));
    assert_eq!(complete.send().await.unwrap().status(), 200);
    let read = CLIENT.get(format!("{url}&follow=true")).send().await.unwrap();
    assert_eq!(read.text().await.unwrap(), text);
    assert!(pieces(root.path()).len() < 3, "{:?}", pieces(root.path()));
}
