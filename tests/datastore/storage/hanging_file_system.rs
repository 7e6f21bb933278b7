//! Files that cannot be read, and a file system that hangs.

use std::fs::File;
use std::path::Path;
use std::time::Duration;

use futures::future::join_all;
use nix::sys::signal::Signal;
use nix::sys::stat::Mode;
use nix::unistd::mkfifo;
use reqwest::Method;
use tempfile::TempDir;
use tokio::time::{sleep, timeout};

use crate::http::RUN;
use crate::program::process::Running;

/// What a request may take over a storage that hangs.
const ANSWER: Duration = Duration::from_secs(45);

async fn get(datastore: &Running, path: &str) -> (u16, String) {
    datastore.answer(Method::GET, path, ANSWER).await
}

async fn put(datastore: &Running, path: &str) -> (u16, String) {
    datastore.answer(Method::PUT, path, ANSWER).await
}

#[tokio::test(flavor = "multi_thread")]
async fn non_regular_file_returns_500_at_once_and_blocks_no_thread() {
    let root = TempDir::new().unwrap();
    let mut datastore = Running::start(root.path(), &[]);
    let plan = |format: &str| format!("api/plans?{RUN}&attempt=0&format={format}");
    assert_eq!(put(&datastore, &plan("json")).await.0, 200);
    let attempt = root.path().join("layers/team-a/network/plan-1/0");
    mkfifo(&attempt.join("plan.bin"), Mode::S_IRWXU).unwrap();
    let digests = root.path().join(".plancha/sha256/layers/team-a/network/plan-1/0");
    std::fs::write(attempt.join("pretty.plan"), "pretty").unwrap();
    mkfifo(&digests.join("pretty.plan"), Mode::S_IRWXU).unwrap();
    // Of an artifact that is still to be stored. Where files have attributes, the record is only a copy of one.
    mkfifo(&digests.join("file-1"), Mode::S_IRWXU).unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(attempt.join("short.diff")).unwrap();
    let unreadable = Iterator::map(0..300, async |n| {
        let format = ["bin", "pretty", "short"][n % 3];
        get(&datastore, &plan(format)).await
    });
    assert!(join_all(unreadable).await.iter().all(|(status, _)| *status == 500));
    assert!(datastore.log.lock().unwrap().contains("its path is a FIFO, not a file"));
    if put(&datastore, &artifact_of("team-a", 1)).await.0 == 200 {
        let read = get(&datastore, &artifact_of("team-a", 1)).await;
        assert_eq!(read, (200, "content".to_owned()));
        let log = datastore.log.lock().unwrap().clone();
        assert!(log.contains("the copy of its digest is not written"), "{log}");
    } else {
        let of_other =
            rustix::fs::getxattr(attempt.join("plan.json"), "user.plancha", &mut [0; 1024]);
        assert!(of_other.is_err(), "only a file without an attribute needs a record");
    }
    assert_eq!(get(&datastore, &plan("json")).await, (200, "content".to_owned()));
    assert_eq!(get(&datastore, "readyz").await.0, 200);
    let metrics = get(&datastore, "metrics").await.1;
    assert!(metrics.contains("datastore_storage_hung_jobs 0\n"), "{metrics}");
    datastore.signal(Signal::SIGTERM);
    assert!(datastore.wait().success());
}

/// Stores an artifact of a namespace, and locks its directory. Every write below it waits: to the datastore a file system
/// that hangs.
async fn hang(datastore: &Running, root: &Path, namespace: &str) -> File {
    assert_eq!(put(datastore, &artifact_of(namespace, 0)).await.0, 200);
    let directory = root.join(format!("layers/{namespace}/network/plan-1/0"));
    let directory = File::open(directory).unwrap();
    directory.lock().unwrap();
    directory
}

/// Namespaces that hang together: one alone does not get all threads.
const HUNG: [&str; 2] = ["team-a", "team-b"];

/// Fills all threads with uploads that hang, and waits until the datastore has noticed; what the uploads are
/// answered.
async fn filled(datastore: &Running) -> Vec<u16> {
    let uploads =
        |numbers| join_all(Iterator::map(numbers, async |n| put(datastore, &artifact(n)).await.0));
    let some = uploads(1..=20);
    let rest = async {
        sleep(Duration::from_millis(500)).await;
        // As long as threads are free, everything else goes on.
        assert_eq!(get(datastore, &artifact(0)).await, (200, "content".to_owned()));
        let noticed = async {
            loop {
                let (status, text) = get(datastore, "readyz").await;
                if status == 503 && text.contains("all 64 threads for it are taken") {
                    break;
                }
                sleep(Duration::from_millis(100)).await;
            }
            assert_eq!(get(datastore, "healthz").await.0, 200);
            let (status, text) = get(datastore, &artifact(0)).await;
            assert_eq!(status, 503, "{text}");
        };
        let noticed = timeout(Duration::from_secs(30), noticed);
        let (statuses, noticed) = tokio::join!(uploads(21..=80), noticed);
        noticed.expect("it is still ready");
        statuses
    };
    let (mut statuses, rest) = tokio::join!(some, rest);
    statuses.extend(rest);
    statuses
}

fn artifact(number: usize) -> String {
    artifact_of(HUNG[number % HUNG.len()], number)
}

fn artifact_of(namespace: &str, number: usize) -> String {
    let run = RUN.replace("team-a", namespace);
    format!("api/artifacts?{run}&attempt=0&name=file-{number}")
}

async fn hung_jobs(datastore: &Running) -> String {
    let metrics = get(datastore, "metrics").await.1;
    let line = metrics.lines().find(|line| line.starts_with("datastore_storage_hung_jobs "));
    line.unwrap_or_default().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn hanging_file_system_blocks_only_its_own_threads() {
    let root = TempDir::new().unwrap();
    let mut datastore =
        Running::start(root.path(), &["--drain-delay", "0s", "--drain-timeout", "3s"]);
    let _first = hang(&datastore, root.path(), HUNG[0]).await;
    let _second = hang(&datastore, root.path(), HUNG[1]).await;
    let statuses = filled(&datastore).await;
    assert!(statuses.iter().all(|status| [500, 503].contains(status)), "{statuses:?}");
    assert!(statuses.iter().filter(|status| **status == 503).count() >= 16, "{statuses:?}");
    assert_eq!(hung_jobs(&datastore).await, "datastore_storage_hung_jobs 64");
    datastore.signal(Signal::SIGTERM);
    assert!(datastore.wait().success());
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_succeed_again_once_the_file_system_recovers() {
    let root = TempDir::new().unwrap();
    let datastore = Running::start(root.path(), &[]);
    let first = hang(&datastore, root.path(), HUNG[0]).await;
    let second = hang(&datastore, root.path(), HUNG[1]).await;
    filled(&datastore).await;
    drop((first, second));
    while hung_jobs(&datastore).await != "datastore_storage_hung_jobs 0"
        || get(&datastore, "readyz").await.0 != 200
    {
        sleep(Duration::from_millis(100)).await;
    }
    assert_eq!(get(&datastore, &artifact(0)).await, (200, "content".to_owned()));
    assert_eq!(put(&datastore, &artifact(81)).await.0, 200);
    // What was answered as failed was not done later.
    for n in 1..=80 {
        assert_eq!(get(&datastore, &artifact(n)).await.0, 404, "{n}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_namespace_that_hangs_takes_no_thread_that_others_need() {
    let root = TempDir::new().unwrap();
    let datastore = Running::start(root.path(), &[]);
    let _lock = hang(&datastore, root.path(), "team-a").await;
    let hung = join_all(Iterator::map(1..=80, async |n| {
        put(&datastore, &artifact_of("team-a", n)).await.0
    }));
    let others = async {
        // The jobs that wait in vain for a thread are refused after 10 s.
        for n in 0..30 {
            sleep(Duration::from_millis(500)).await;
            let other = artifact_of("team-c", n);
            assert_eq!(put(&datastore, &other).await.0, 200);
            assert_eq!(get(&datastore, &other).await, (200, "content".to_owned()));
            assert_eq!(get(&datastore, "readyz").await.0, 200);
            assert_eq!(get(&datastore, "healthz").await.0, 200);
        }
        let (status, text) = get(&datastore, &artifact_of("team-a", 0)).await;
        assert_eq!(status, 503, "{text}");
    };
    let (statuses, ()) = tokio::join!(hung, others);
    assert!(statuses.iter().all(|status| [500, 503].contains(status)), "{statuses:?}");
    assert_eq!(hung_jobs(&datastore).await, "datastore_storage_hung_jobs 48");
}
