//! A directory on disk: when the disk is full, when the directory vanishes, and what is synced before a response.

#![expect(clippy::disallowed_types, reason = "a test of the program must start it")]

use std::collections::HashMap;
use std::fs::File;
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use support::TestDatastore;
use tempfile::TempDir;

use crate::api::health::{becomes_ready, outside};
use crate::http::{self, RUN, files, get, noise, stored};
use crate::program::process::{Running, program, until};

const MIB: usize = 1 << 20;

/// Puts noise of this size as the plan of an attempt; status and body of the answer.
fn put(datastore: &Running, size: usize) -> String {
    let body = noise(size, size as u64);
    let mut socket = datastore.begin(size, &[]);
    let mut answer = String::new();
    // Refused in the middle, it does not take the rest.
    let _refused = socket.write_all(&body);
    socket.read_to_string(&mut answer).unwrap();
    answer
}

/// A datastore over a directory of 6 MiB, and the directory as the datastore sees it: it has a mount of its own.
fn small(directory: &TempDir) -> (Running, PathBuf) {
    const MOUNT: &str = "mount -t tmpfs -o size=6m,mode=0700 none \"$1\" && shift && exec \"$@\"";
    let unshare = ["--user", "--map-root-user", "--mount", "sh", "-c", MOUNT, "sh"];
    let root = directory.path().to_str().unwrap();
    let mut command = Command::new("unshare");
    command.env_clear().env("PATH", "/usr/bin:/bin").args(unshare).arg(root);
    command.args([env!("CARGO_BIN_EXE_datastore"), "serve", "--listen", "127.0.0.1:0"]);
    let datastore = Running::of(command.args(["--storage", &format!("file://{root}")]));
    let inside = format!("/proc/{}/root{root}", datastore.child.id()).into();
    (datastore, inside)
}

#[test]
#[ignore = "needs mounts in a user namespace"]
fn full_directory_makes_it_unready_within_15_s_and_a_free_one_ready_again() {
    let directory = TempDir::new().unwrap();
    let (datastore, inside) = small(&directory);
    until("ready", || datastore.get("/readyz").0 == 200);
    let mut filler = File::create(inside.join("filler")).unwrap();
    while filler.write_all(&[0; 4096]).is_ok() {}
    let readiness = |status, limit| {
        let since = Instant::now();
        loop {
            let answer = datastore.get("/readyz");
            if answer.0 == status {
                return String::from_utf8(answer.1).unwrap();
            }
            assert!(since.elapsed() < limit, "{answer:?}");
            std::thread::sleep(Duration::from_millis(50));
        }
    };
    let reason = readiness(503, Duration::from_secs(30));
    assert!(reason.contains("no space is left"), "{reason}");
    assert_eq!(datastore.get("/healthz").0, 200);
    drop(filler);
    std::fs::remove_file(inside.join("filler")).unwrap();
    readiness(200, Duration::from_mins(1));
}

#[test]
#[ignore = "needs mounts in a user namespace"]
fn full_disk_returns_507_loses_nothing_and_recovers_once_space_is_free() {
    let directory = TempDir::new().unwrap();
    let (datastore, inside) = small(&directory);
    let root = directory.path().to_str().unwrap();
    let plan = || datastore.get(&format!("/api/plans?{RUN}&attempt=0"));

    assert!(put(&datastore, MIB).starts_with("HTTP/1.1 200 "));
    let (before, there) = (plan(), files(&inside));
    for _ in 0..2 {
        let answer = put(&datastore, 8 * MIB);
        assert!(answer.starts_with("HTTP/1.1 507 "), "{answer}");
        assert!(answer.contains("no space is left; free some, or"), "{answer}");
        assert!(!answer.contains(root), "a path of the server in {answer}");
        assert_eq!(files(&inside), there, "nothing half stays");
        assert!(plan() == before, "what was there is there");
    }
    assert!(put(&datastore, 2 * MIB).starts_with("HTTP/1.1 200 "));
}

/// What a trace says was done, in the order in which it ended; an answer where it began.
fn done(trace: &str) -> Vec<String> {
    let mut started_call = HashMap::new();
    let mut done = Vec::new();
    for line in trace.lines() {
        let (thread, call) = line.split_once(' ').unwrap();
        let call = call.trim();
        if call.contains("HTTP/1.1 200") {
            done.push(call.to_owned());
        } else if let Some((call, _)) = call.split_once(" <unfinished") {
            started_call.insert(thread, call);
        } else if call.starts_with("<...") {
            if call.contains("= 0") {
                done.extend(started_call.remove(thread).map(str::to_owned));
            }
        } else if call.contains("= 0") {
            done.push(call.to_owned());
        }
    }
    done
}

/// What a server did on the disk for one upload of this size, in order, and whether files may have attributes.
fn traced(directory: &Path, root: &Path, size: usize, has_attributes: bool) -> Vec<String> {
    const CALLS: &str = "trace=fsync,fdatasync,rename,renameat,renameat2,link,linkat,mkdir,mkdirat,\
                         fsetxattr,write,writev,sendto,sendmsg";
    let trace = directory.join("trace");
    let mut command = Command::new("strace");
    command.env_clear().env("PATH", "/usr/bin:/bin");
    // With -D the child is the server, and the tracer is not.
    command.args(["-D", "-f", "-y", "-s", "20", "-e", CALLS]);
    if !has_attributes {
        command.args(["-e", "inject=fsetxattr:error=EOPNOTSUPP"]);
    }
    command.arg("-o").arg(&trace);
    command.args([env!("CARGO_BIN_EXE_datastore"), "serve", "--listen", "127.0.0.1:0"]);
    let storage = format!("file://{}", root.display());
    let datastore = Running::of(command.args(["--storage", &storage]));
    assert!(put(&datastore, size).starts_with("HTTP/1.1 200 "));
    drop(datastore);
    done(&std::fs::read_to_string(&trace).unwrap())
}

/// Where the first of these calls is.
fn place(done: &[String], what: &str, found: impl Fn(&str) -> bool) -> usize {
    let place = done.iter().position(|call| found(call));
    place.unwrap_or_else(|| panic!("no {what}:\n{}", done.join("\n")))
}

fn syncs(call: &str, path: &Path) -> bool {
    call.contains("sync(") && call.contains(&format!("<{}>", path.display()))
}

/// That a file was synced before it got its name, and every directory on the way to it before the answer.
fn is_durable(done: &[String], root: &Path, file: &Path) {
    let shown = file.to_str().unwrap();
    let answered = place(done, "answer", |call| call.contains("HTTP/1.1 200"));
    let named = place(done, &format!("name of {shown}"), |call| {
        (call.starts_with("rename") || call.starts_with("link"))
            && call.contains(&format!("\"{shown}\""))
    });
    let staged = format!("<{shown}#");
    let written = |call: &str| call.contains("sync(") && call.contains(&staged);
    let written = place(done, &format!("sync of {shown}"), written);
    assert!(written < named, "the bytes before the name");
    for parent in file.ancestors().skip(1).take_while(|parent| parent.starts_with(root)) {
        let first =
            place(done, &format!("sync of {}", parent.display()), |call| syncs(call, parent));
        let last = done.iter().rposition(|call| syncs(call, parent)).unwrap();
        assert!(first < answered, "{} before the answer", parent.display());
        assert!(parent != file.parent().unwrap() || named < last && last < answered);
    }
}

#[test]
#[ignore = "needs strace and file attributes"]
fn file_digest_and_parent_directories_are_synced_before_the_response() {
    let directory = TempDir::new().unwrap();
    for size in [10, 3 * MIB] {
        let root = directory.path().join(size.to_string());
        let done = traced(directory.path(), &root, size, true);
        let plan = root.join("layers/team-a/network/plan-1/0/plan.json");
        is_durable(&done, &root, &plan);
        let staged = format!("<{}#", plan.display());
        let of_staged = |what: &'static str| {
            let staged = staged.clone();
            move |call: &str| call.contains(what) && call.contains(&staged)
        };
        let described = place(&done, "attribute", of_staged("setxattr("));
        assert!(described < place(&done, "sync", of_staged("sync(")), "{}", done.join("\n"));
        // If the server is killed between the two, there is no record without its file.
        let named = |call: &str| {
            call.starts_with("rename") && call.contains(&format!("\"{}\"", plan.display()))
        };
        let records = format!("\"{}/.plancha/sha256/layers", root.display());
        let copied = |call: &str| call.starts_with("mkdir") && call.contains(&records);
        assert!(
            place(&done, "name", named) < place(&done, "record", copied),
            "{}",
            done.join("\n")
        );
    }
}

#[test]
#[ignore = "needs strace"]
fn without_attributes_the_digest_record_is_synced_before_the_object_is_visible() {
    let directory = TempDir::new().unwrap();
    for size in [10, 3 * MIB] {
        let root = directory.path().join(size.to_string());
        let done = traced(directory.path(), &root, size, false);
        let plan = "layers/team-a/network/plan-1/0/plan.json";
        let (plan, record) = (root.join(plan), root.join(".plancha/sha256").join(plan));
        is_durable(&done, &root, &plan);
        is_durable(&done, &root, &record);
        let named = |file: &Path| {
            let shown = format!("\"{}\"", file.display());
            place(&done, "name", move |call| call.starts_with("rename") && call.contains(&shown))
        };
        assert!(named(&record) < named(&plan), "{}", done.join("\n"));
    }
}

const FILE: &str = "artifacts?namespace=team-a&layer=network&run=plan-1&attempt=0&name=a";
const OTHER: &str = "artifacts?namespace=team-b&layer=network&run=plan-1&attempt=0&name=a";
const ATTEMPTS: &str = "attempts?namespace=team-a&layer=network&run=plan-1";

/// That nothing is read or written, and that the datastore is not ready for this reason.
async fn is_lost(datastore: &TestDatastore, why: &str) {
    for _ in 0..2 {
        for url in [FILE, OTHER] {
            let answers = [http::put(datastore, url, "new").await, get(datastore, url).await];
            for answer in answers {
                assert_eq!(answer.status, 500, "{}", answer.text());
                assert!(answer.text().contains(why), "{}", answer.text());
            }
        }
        assert_eq!(get(datastore, ATTEMPTS).await.status, 500);
        let ready = outside(datastore, "readyz").await;
        assert_eq!(ready.status, 503);
        assert!(ready.text().contains(why), "{}", ready.text());
    }
}

#[tokio::test]
async fn a_vanished_directory_is_never_created_again_and_used_once_it_is_back() {
    let datastore = TestDatastore::temporary().await;
    stored(&datastore, FILE, "{}").await;
    let (root, kept) = (datastore.root(), datastore.root().with_extension("kept"));
    std::fs::rename(&root, &kept).unwrap();
    is_lost(&datastore, "its directory is missing").await;
    assert!(!root.exists(), "a write has created it");
    // As after an unmount.
    std::fs::create_dir(&root).unwrap();
    is_lost(&datastore, "another directory is in the place of its directory").await;
    assert!(files(&root).is_empty(), "{:?}", files(&root));
    std::fs::remove_dir(&root).unwrap();
    std::fs::rename(&kept, &root).unwrap();
    assert_eq!(get(&datastore, FILE).await.text(), "{}");
    stored(&datastore, OTHER, "{}").await;
    becomes_ready(&datastore).await;
}

#[tokio::test]
#[ignore = "needs file attributes"]
async fn verify_reports_an_object_as_intact_whose_digest_copy_cannot_be_written() {
    let datastore = TestDatastore::temporary().await;
    stored(&datastore, FILE, "{}").await;
    let copy = datastore.root().join(".plancha/sha256/layers/team-a/network/plan-1/0/a");
    std::fs::remove_file(&copy).unwrap();
    std::fs::create_dir(&copy).unwrap();
    let storage = format!("file://{}", datastore.root().display());
    let output = program(&["verify", "--storage", &storage]).output().unwrap();
    assert_eq!(output.status.code(), Some(10));
    let shown = [output.stdout, output.stderr].concat();
    insta::assert_snapshot!(String::from_utf8(shown).unwrap(), @r"
    copy not written (the storage backend failed: Generic file error: a directory has the name of its digest record below .plancha/sha256: remove it, and run `datastore verify`) layers/team-a/network/plan-1/0/a
    1 object: 1 intact, 0 healed, 0 unverified, 0 changed, 0 missing, 0 unread; 0 copies written
    error: 1 copy of a digest could not be written: its object is intact
    hint: the lines `copy not written` above have the reasons; a backup without extended attributes needs these copies
    ");
}
