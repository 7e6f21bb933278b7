//! A directory on a file system that hangs: a FUSE mount without a program behind it, or with one that stops in the
//! middle of a read.

#![expect(clippy::disallowed_types, reason = "a test of the program must start it")]

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use futures::future::join_all;
use nix::sys::signal::Signal;
use reqwest::Method;
use support::TestDatastore;
use tempfile::TempDir;
use tokio::time::{Instant, sleep};

use crate::access::tenants::{Operation, operations};
use crate::http::{CLIENT, RUN};
use crate::program::process::Running;
use crate::storage::fuse_program::{HANGS_AT, SIZE, VARIABLE};

/// What a request may take over a storage that hangs is 20 s, and for an upload 10 s more if the first probe is still
/// in progress. This is enough for both on a busy machine.
const ANSWER: Duration = Duration::from_secs(45);

/// Mounts it at `$1`. Whatever has descriptor 9 keeps it hanging; without that each call fails.
const MOUNT: &str = "exec 9<>/dev/fuse && mount -i -t fuse -o \
                     fd=9,rootmode=40000,user_id=0,group_id=0 none \"$1\" && ";

/// A datastore in a new mount namespace. Its mounts go away with it.
fn start(root: &Path, hangs: bool) -> Running {
    let mut command = unshared(hangs.then_some(root));
    command.args(["serve", "--listen", "127.0.0.1:0", "--drain-timeout", "3s"]);
    Running::of(command.arg("--storage").arg(format!("file://{}", root.display())))
}

/// The program in a new mount namespace, in which this directory hangs.
fn unshared(hung: Option<&Path>) -> Command {
    let script = if hung.is_some() { MOUNT } else { "" }.to_owned() + "shift && exec \"$@\"";
    let mut command = Command::new("unshare");
    command.env_clear().env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
    command.args(["--user", "--map-root-user", "--mount", "sh", "-c", &script, "sh"]);
    command.arg(hung.unwrap_or(Path::new("/")));
    command.arg(env!("CARGO_BIN_EXE_datastore"));
    command
}

/// A directory that hangs for a datastore, until this is dropped.
struct Hang(Child);

impl Hang {
    fn begin(datastore: &Running, directory: &Path) -> Self {
        let script = format!("{MOUNT}echo mounted && read -r _; exec 9>&-; umount -l \"$1\"");
        Self::of(&mut enter(datastore, &script, directory))
    }

    /// Only the end of a read hangs, and the closing of a file.
    fn in_the_middle(datastore: &Running, directory: &Path) -> Self {
        let script = format!("{MOUNT}echo mounted && shift && exec \"$@\" <&9 9>&- >/dev/null");
        let mut command = enter(datastore, &script, directory);
        command.env(VARIABLE, "1").arg(std::env::current_exe().unwrap());
        command.args(["--include-ignored", "--exact", "storage::fuse_program::fuse_program"]);
        let mut hang = Self::of(&mut command);
        // It ends only when it is killed.
        drop(hang.0.stdin.take());
        hang
    }

    fn of(command: &mut Command) -> Self {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "mounted\n");
        Self(child)
    }
}

impl Drop for Hang {
    fn drop(&mut self) {
        if self.0.stdin.take().is_none() {
            self.0.kill().unwrap();
        }
        self.0.wait().unwrap();
    }
}

/// A script with mounts and rights of a datastore, and a directory as its first argument.
fn enter(datastore: &Running, script: &str, directory: &Path) -> Command {
    let pid = datastore.child.id().to_string();
    let mut command = Command::new("nsenter");
    command.env_clear().env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
    command.args(["--target", &pid, "--user", "--mount", "--preserve-credentials"]);
    command.args(["sh", "-c", script, "sh"]).arg(directory);
    command
}

async fn get(datastore: &Running, path: &str) -> (u16, String) {
    datastore.answer(Method::GET, path, ANSWER).await
}

async fn put(datastore: &Running, path: &str) -> u16 {
    datastore.answer(Method::PUT, path, ANSWER).await.0
}

/// Waits until it has this readiness; its reason.
async fn readiness(datastore: &Running, status: u16, limit: Duration) -> String {
    let since = Instant::now();
    loop {
        let (now, reason) = get(datastore, "readyz").await;
        if now == status {
            return reason;
        }
        assert!(since.elapsed() < limit, "{now} {reason}");
        sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs FUSE in a user namespace"]
async fn over_a_directory_that_hangs_from_the_start_every_route_is_answered_in_time() {
    let operations = operations(&TestDatastore::memory().await).await;
    let root = TempDir::new().unwrap();
    let mut datastore = start(root.path(), true);
    assert_eq!(get(&datastore, "healthz").await, (200, "OK".to_owned()));
    let (status, reason) = get(&datastore, "readyz").await;
    assert!(status == 503 && reason.contains("it is still being tried"), "{status} {reason}");
    for ((status, text), url) in answers_of_all(&datastore, &operations).await {
        // The body of this request is not the JSON that the route needs.
        let expected: &[u16] = if url == "encrypt" { &[400] } else { &[500, 503] };
        assert!(expected.contains(&status), "{url}: {status} {text}");
    }
    let reason = readiness(&datastore, 503, Duration::ZERO).await;
    assert!(reason.contains("does not answer"), "{reason}");
    datastore.signal(Signal::SIGTERM);
    assert!(datastore.wait().success());
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs FUSE in a user namespace"]
async fn each_command_over_a_directory_that_hangs_ends_in_20_s() {
    let root = TempDir::new().unwrap();
    let key = "layers/a/b/c/0/plan.bin";
    let commands = ["check", "ls", "verify", "reindex", "gc --keep-runs 1"].map(str::to_owned);
    let ended = commands.into_iter().chain([format!("cat {key}")]).map(async |words| {
        let text = failed(root.path(), root.path(), &words).await;
        let expected = format!("{} does not answer", root.path().display());
        assert!(text.contains(&expected), "{words}: {text}");
    });
    join_all(ended).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs FUSE in a user namespace"]
async fn check_and_cat_name_the_directory_where_a_directory_below_the_root_hangs() {
    let root = TempDir::new().unwrap();
    let nested = root.path().join("layers/hung");
    let own = root.path().join(".plancha");
    std::fs::create_dir_all(&nested).unwrap();
    std::fs::create_dir(&own).unwrap();
    let of_object = nested.join("b/c/0");
    let commands =
        [("check", &own, root.path()), ("cat layers/hung/b/c/0/plan.json", &nested, &of_object)];
    let ended = commands.into_iter().map(async |(words, hung, named)| {
        let text = failed(root.path(), hung, words).await;
        let expected = format!("{} does not answer (", named.display());
        assert!(text.contains(&expected), "{words}: {text}");
    });
    join_all(ended).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs FUSE in a user namespace"]
async fn the_checks_of_the_storage_alone_count_a_hung_job_until_the_directory_answers() {
    let root = TempDir::new().unwrap();
    let datastore = start(root.path(), false);
    readiness(&datastore, 200, ANSWER).await;
    let hang = Hang::begin(&datastore, root.path());
    let until = async |expected: fn(u64) -> bool| {
        let since = Instant::now();
        while !expected(metric(&datastore, "datastore_storage_hung_jobs").await) {
            assert!(since.elapsed() < ANSWER);
            sleep(Duration::from_millis(50)).await;
        }
    };
    until(|jobs| jobs > 0).await;
    drop(hang);
    until(|jobs| jobs == 0).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs FUSE in a user namespace"]
async fn each_command_that_lists_names_a_nested_directory_that_hangs_within_20_s() {
    let root = TempDir::new().unwrap();
    let hung = root.path().join("layers/hung");
    for directory in ["layers/a/b/c/0", "layers/hung", "repositories"] {
        std::fs::create_dir_all(root.path().join(directory)).unwrap();
    }
    std::fs::write(root.path().join("layers/a/b/c/0/plan.json"), "{}").unwrap();
    let commands = ["ls", "verify", "reindex", "gc --keep-runs 1", "gc --keep-runs 1 --dry-run"];
    let ended = commands.into_iter().map(async |words| {
        let since = Instant::now();
        let text = failed(root.path(), &hung, words).await;
        let expected = format!("{} does not answer: nothing was read for 15s", hung.display());
        assert!(text.contains(&expected), "{words}: {text}");
        assert!(since.elapsed() < ANSWER, "{words}");
    });
    join_all(ended).await;
}

/// The error of a command over a directory in which `hung` hangs.
async fn failed(root: &Path, hung: &Path, words: &str) -> String {
    let mut command = unshared(Some(hung));
    command.args(words.split(' ')).arg("--storage");
    command.arg(format!("file://{}", root.display()));
    let mut command = tokio::process::Command::from(command);
    command.stdin(Stdio::null()).kill_on_drop(true);
    let ended = tokio::time::timeout(ANSWER, command.output()).await;
    let ended = ended.unwrap_or_else(|_| panic!("`{words}` hangs")).unwrap();
    let text = String::from_utf8_lossy(&ended.stderr).into_owned();
    assert_eq!(ended.status.code(), Some(10), "{words}: {text}");
    text
}

/// What each operation is answered, while the probes are answered all the time. Operations that hung on the threads
/// of the runtime would leave none for the others.
async fn answers_of_all<'a>(
    datastore: &Running,
    operations: &'a [Operation],
) -> Vec<((u16, String), &'a str)> {
    let hung = operations.iter().cycle().take(3 * operations.len()).map(async |one| {
        let path = format!("api/{}", one.url);
        let answer = datastore.answer(one.method.clone(), &path, ANSWER).await;
        (answer, &*one.url)
    });
    let mut hung = std::pin::pin!(join_all(hung));
    let healthy = async {
        for _ in 0..50 {
            assert_eq!(get(datastore, "healthz").await.0, 200);
            assert_eq!(get(datastore, "metrics").await.0, 200);
            sleep(Duration::from_millis(100)).await;
        }
    };
    tokio::select! {
        _ = &mut hung => panic!("nothing has hung"),
        () = healthy => {}
    }
    hung.await
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs FUSE in a user namespace"]
async fn directory_that_begins_to_hang_makes_it_unready_within_15_s_until_it_answers() {
    let root = TempDir::new().unwrap();
    let datastore = start(root.path(), false);
    let plan = format!("api/plans?{RUN}&attempt=0");
    assert_eq!(put(&datastore, &plan).await, 200);
    readiness(&datastore, 200, ANSWER).await;
    let hang = Hang::begin(&datastore, root.path());
    let reason = readiness(&datastore, 503, Duration::from_secs(30)).await;
    assert!(reason.contains("it does not answer"), "{reason}");
    let (status, text) = get(&datastore, &plan).await;
    assert!([500, 503].contains(&status), "{status} {text}");
    drop(hang);
    readiness(&datastore, 200, Duration::from_mins(1)).await;
    assert_eq!(get(&datastore, &plan).await, (200, "content".to_owned()));
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs FUSE in a user namespace"]
async fn one_directory_that_hangs_delays_no_request_for_others() {
    let root = TempDir::new().unwrap();
    let datastore = start(root.path(), false);
    let plan = format!("api/plans?{RUN}&attempt=0");
    assert_eq!(put(&datastore, &plan).await, 200);
    let of_hung = |run: usize| format!("api/plans?namespace=hung&layer=b&run=r{run}&attempt=0");
    assert_eq!(put(&datastore, &of_hung(0)).await, 200);
    let mount = Hang::begin(&datastore, &root.path().join("layers/hung"));
    // More than there are places for jobs in a file system.
    let hung = (0..100).map(async |run| {
        let method = if run % 2 == 0 { Method::GET } else { Method::PUT };
        datastore.answer(method, &of_hung(run), ANSWER).await
    });
    let mut hung = std::pin::pin!(join_all(hung));
    let others = async {
        for run in 1..=20 {
            assert_eq!(get(&datastore, &plan).await, (200, "content".to_owned()));
            let other = format!("api/plans?namespace=team-b&layer=b&run=r{run}&attempt=0");
            assert_eq!(put(&datastore, &other).await, 200);
            assert_eq!(get(&datastore, "api/runs?namespace=team-b&layer=b").await.0, 200);
            assert_eq!(get(&datastore, "readyz").await.0, 200);
            assert_eq!(get(&datastore, "healthz").await.0, 200);
        }
    };
    tokio::select! {
        _ = &mut hung => panic!("nothing has hung"),
        () = others => {}
    }
    for (status, text) in hung.await {
        assert!([500, 503].contains(&status), "{status} {text}");
    }
    drop(mount);
    assert_eq!(get(&datastore, &of_hung(0)).await, (200, "content".to_owned()));
}

/// The value of a metric without labels.
async fn metric(datastore: &Running, name: &str) -> u64 {
    let page = get(datastore, "metrics").await.1;
    let line = page.lines().find_map(|line| line.strip_prefix(name));
    line.unwrap_or_else(|| panic!("{page}")).trim().parse().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs FUSE in a user namespace"]
async fn a_read_that_hangs_in_the_middle_ends_in_20_s_and_delays_no_request_for_others() {
    let root = TempDir::new().unwrap();
    let datastore = start(root.path(), false);
    let plan = format!("api/plans?{RUN}&attempt=0");
    assert_eq!(put(&datastore, &plan).await, 200);
    let of_hung =
        |run: usize| format!("api/plans?namespace=hung&layer=b&run=r{run}&attempt=0&format=pretty");
    // Makes the directory.
    assert_eq!(put(&datastore, &of_hung(0)).await, 200);
    let mount = Hang::in_the_middle(&datastore, &root.path().join("layers/hung"));
    // More than a third of the places for jobs in a file system: each read has up to three.
    let hung = (1..=22).map(async |run| {
        let url = format!("http://{}/{}", datastore.address, of_hung(run));
        let since = Instant::now();
        let mut response = CLIENT.get(url).send().await.unwrap();
        assert_eq!((response.status().as_u16(), response.content_length()), (200, Some(SIZE)));
        let mut received = 0;
        while let Ok(Some(piece)) = response.chunk().await {
            received += piece.len() as u64;
        }
        assert!((1..=HANGS_AT).contains(&received), "{received}");
        since.elapsed()
    });
    let mut hung = std::pin::pin!(join_all(hung));
    let others = async {
        // The file is opened, and closing it hangs.
        for run in 1..=4 {
            let head = datastore.answer(Method::HEAD, &of_hung(run), ANSWER).await;
            assert_eq!(head.0, 200);
        }
        for run in 1..=20 {
            let since = Instant::now();
            assert_eq!(get(&datastore, &plan).await, (200, "content".to_owned()));
            let other = format!("api/plans?namespace=team-b&layer=b&run=r{run}&attempt=0");
            assert_eq!(put(&datastore, &other).await, 200);
            assert_eq!(get(&datastore, "readyz").await.0, 200);
            assert_eq!(get(&datastore, "healthz").await.0, 200);
            assert!(since.elapsed() < Duration::from_secs(15), "{:?}", since.elapsed());
            sleep(Duration::from_millis(100)).await;
        }
    };
    tokio::select! {
        _ = &mut hung => panic!("nothing has hung"),
        () = others => {}
    }
    for took in hung.await {
        assert!(took < ANSWER, "{took:?}");
    }
    let hung_jobs = metric(&datastore, "datastore_storage_hung_jobs").await;
    assert!((22..64).contains(&hung_jobs), "{hung_jobs}");
    assert_eq!(get(&datastore, &plan).await, (200, "content".to_owned()));
    drop(mount);
    let since = Instant::now();
    while metric(&datastore, "datastore_storage_hung_jobs").await > 0 {
        assert!(since.elapsed() < ANSWER);
        sleep(Duration::from_millis(50)).await;
    }
}
