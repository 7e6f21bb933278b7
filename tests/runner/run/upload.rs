//! `runner upload`: it sends kept files, replaces nothing, and may run several times.

use std::path::Path;

use support::{Fault, FaultyDatastore, Sandbox, TestDatastore, eventually};

use super::apply_once::{UNPLANNED, faulty, lost_everything, unsent};
use super::unsent_files::{advised, upload};
use crate::RUNNER;
use crate::stored_run::StoredRun;

#[tokio::test(flavor = "multi_thread")]
async fn upload_command_replaces_nothing_and_can_be_repeated() {
    let datastore = TestDatastore::memory().await;
    let sandbox = Sandbox::new(RUNNER).hello().fake_terraform("");
    let lossy = lost_everything(&datastore).await;
    let ended = sandbox.run_with(&lossy.url, UNPLANNED);
    assert_eq!(ended.code, 10, "{}", ended.stderr);
    let dir = unsent(&sandbox).join("default/x/a/0");
    let without_url = ["upload", dir.to_str().unwrap()];
    assert_eq!(sandbox.run_with(&lossy.url, &without_url).code, 5, "nothing is sent");
    assert!(dir.join("run.log").exists());
    // Another program has stored a log there.
    let url = format!("{}api/logs?namespace=default&layer=x&run=a&attempt=0", datastore.url);
    reqwest::Client::new().put(url).body("another log").send().await.unwrap();
    for _ in 0..2 {
        let ended = sandbox.run(&upload(&datastore.url, &dir));
        assert_eq!(ended.code, 9, "{}", ended.stderr);
        assert!(ended.stderr.contains("already holds another run.log"), "{}", ended.stderr);
    }
    let stored = StoredRun::new(&datastore, "default", "x", "a");
    assert_eq!(stored.log(0).await, "another log");
    assert!(dir.join("run.log").exists() && !dir.join("run.json").exists());
    assert!(stored.names(0).await.contains(&"applied.json".to_owned()));
    for (args, code) in
        [(&["upload", "/nonexistent"][..], 8), (&["upload", "/"], 8), (&["upload"], 64)]
    {
        assert_eq!(sandbox.run_with(&datastore.url, args).code, code, "{args:?}");
    }
    let ended = sandbox.run(&without_url);
    assert_eq!(ended.code, 64, "no datastore is named: {}", ended.stderr);
    let command = advised(&ended);
    assert!(command.contains(lossy.url.as_str().trim_end_matches('/')), "{command}");
}

#[tokio::test(flavor = "multi_thread")]
async fn upload_command_verifies_and_reports_each_file() {
    let datastore = TestDatastore::memory().await;
    let sandbox = Sandbox::new(RUNNER).hello().fake_terraform("");
    let lossy = lost_everything(&datastore).await;
    assert_eq!(sandbox.run_with(&lossy.url, UNPLANNED).code, 10);
    let dir = unsent(&sandbox).join("default/x/a/0");
    let upload = || sandbox.run(&upload(&datastore.url, &dir));
    let file = |name: &str| dir.join(name);
    let stored = StoredRun::new(&datastore, "default", "x", "a");

    // A truncated file: nothing is sent.
    for name in ["run.log", "applied.json"] {
        let whole = std::fs::read(file(name)).unwrap();
        std::fs::write(file(name), &whole[..whole.len() / 2]).unwrap();
        let ended = upload();
        assert_eq!(ended.code, 9, "{}", ended.stderr);
        assert!(ended.stderr.contains(&format!("{name} is damaged: its SHA-256 is")), "{ended:?}");
        assert!(ended.stderr.contains("nothing was sent"), "{ended:?}");
        assert_eq!(stored.get("artifacts", "attempt=0&name=applied.json").await, None);
        std::fs::write(file(name), whole).unwrap();
    }

    // Another record is stored, and the log is there already: the record stays, with a message.
    let put = |route: &str, query: &str, body: Vec<u8>| {
        let url = format!("{}api/{route}?namespace=default&layer=x&run=a&{query}", datastore.url);
        reqwest::Client::new().put(url).body(body).send()
    };
    let (log, record) =
        (std::fs::read(file("run.log")).unwrap(), std::fs::read(file("applied.json")).unwrap());
    put("logs", "attempt=0", log).await.unwrap();
    let name = "attempt=0&name=applied.json";
    put("artifacts", name, b"{\"another\": 1}".to_vec()).await.unwrap();
    for _ in 0..2 {
        let ended = upload();
        assert_eq!(ended.code, 9, "{}", ended.stderr);
        let expected = "the datastore already holds another applied.json";
        assert!(ended.stderr.contains(expected), "{}", ended.stderr);
        assert!(!ended.stderr.contains("is removed"), "{}", ended.stderr);
        assert_eq!(std::fs::read(file("applied.json")).unwrap(), record);
    }
    assert_eq!(stored.artifact("applied.json", 0).await, b"{\"another\": 1}");

    // The same record, and a file of somebody else's.
    put("artifacts", name, record).await.unwrap();
    std::fs::write(file("notes.txt"), "mine").unwrap();
    let ended = upload();
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    assert!(ended.stderr.contains("applied.json: was stored already, with the same bytes"));
    assert!(
        ended.stderr.contains("is not removed, because it also holds notes.txt"),
        "{}",
        ended.stderr
    );
    let left = std::fs::read_dir(&dir).unwrap().map(|entry| entry.unwrap().file_name());
    assert_eq!(left.collect::<Vec<_>>(), ["notes.txt"]);
    let ended = upload();
    assert_eq!(ended.code, 8, "{}", ended.stderr);
    assert!(
        ended.stderr.contains("is not a directory of files that a run could not store"),
        "{ended:?}"
    );
}

/// It may have been sent before, which the datastore shows.
#[tokio::test(flavor = "multi_thread")]
async fn upload_of_a_missing_directory_succeeds_if_the_attempt_is_stored() {
    let datastore = TestDatastore::memory().await;
    let sandbox = Sandbox::new(RUNNER).hello().fake_terraform("");
    assert_eq!(sandbox.run_with(&datastore.url, UNPLANNED).code, 0);
    for (attempt, code, expected) in [
        ("0", 0, "and nothing to send: the datastore has attempt 0 of default/x/a"),
        ("1", 8, "the directory is removed once everything is sent"),
    ] {
        let dir = unsent(&sandbox).join("default/x/a").join(attempt);
        let ended = sandbox.run_with(&datastore.url, &["upload", dir.to_str().unwrap()]);
        assert_eq!(ended.code, code, "{}", ended.stderr);
        assert!(ended.stderr.contains("there is no directory"), "{}", ended.stderr);
        assert!(ended.stderr.contains(expected), "{}", ended.stderr);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn upload_to_another_datastore_needs_the_flag() {
    let (datastore, other) = (TestDatastore::memory().await, TestDatastore::memory().await);
    let sandbox = Sandbox::new(RUNNER).hello().fake_terraform("");
    let lossy = lost_everything(&datastore).await;
    assert_eq!(sandbox.run_with(&lossy.url, UNPLANNED).code, 10);
    let dir = unsent(&sandbox).join("default/x/a/0");
    let ended = sandbox.run_with(&other.url, &["upload", dir.to_str().unwrap()]);
    assert_eq!(ended.code, 8, "{}", ended.stderr);
    let theirs = lossy.url.as_str().trim_end_matches('/');
    assert!(ended.stderr.contains(&format!("are for the datastore {theirs}, not for")));
    assert!(advised(&ended).contains(theirs), "{}", ended.stderr);
    assert!(dir.join("applied.json").exists());
    let ended = sandbox.run(&upload(&other.url, &dir));
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    assert!(ended.stderr.contains(&format!("are for the datastore {theirs}: --datastore sends")));
    assert!(!unsent(&sandbox).join("default").exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn several_uploads_of_one_directory_at_once_succeed() {
    let datastore = TestDatastore::memory().await;
    let sandbox = Sandbox::new(RUNNER).hello().fake_terraform("");
    let lossy = lost_everything(&datastore).await;
    assert_eq!(sandbox.run_with(&lossy.url, UNPLANNED).code, 10);
    let dir = unsent(&sandbox).join("default/x/a/0");
    at_once(&sandbox, &lossy, &dir);
}

/// Several uploads of a directory at the same time: one sends the files, and all succeed.
fn at_once(sandbox: &Sandbox, datastore: &FaultyDatastore, dir: &Path) {
    // The first one is slow.
    let busy = Fault { method: "PUT", part: "", status: 503, times: 2 };
    datastore.set_faults(vec![busy]);
    let upload = ["upload", dir.to_str().unwrap()];
    let runners = [(); 6].map(|()| sandbox.start(Some(&datastore.url), &upload));
    let mut senders = 0;
    for runner in runners {
        let ended = runner.wait();
        assert_eq!(ended.code, 0, "{}", ended.stderr);
        let printed =
            ["is stored; ", "and nothing to send"].map(|text| ended.stderr.contains(text));
        assert_ne!(printed[0], printed[1], "{}", ended.stderr);
        senders += usize::from(printed[0]);
    }
    assert_eq!(senders, 1);
    assert!(!unsent(sandbox).join("default").exists());
}

/// It has stored no report, and the directory never held one.
#[tokio::test(flavor = "multi_thread")]
async fn several_uploads_of_the_record_of_a_killed_runner_at_once_succeed() {
    let datastore = TestDatastore::memory().await;
    let sandbox = Sandbox::new(RUNNER).hello().fake_terraform("");
    let lossy = lost_everything(&datastore).await;
    assert_eq!(sandbox.run_with(&lossy.url, UNPLANNED).code, 10);
    let dir = unsent(&sandbox).join("default/x/a/0");
    for name in ["run.log", "short.diff", "ledger.json", "run.json"] {
        drop(std::fs::remove_file(dir.join(name)));
    }
    at_once(&sandbox, &lossy, &dir);
    let stored = StoredRun::new(&datastore, "default", "x", "a");
    assert_eq!(stored.names(0).await, ["applied.json", "ledger.json"]);
}

/// A runner whose state home is full moves them, and may be killed before it has sent them.
#[tokio::test(flavor = "multi_thread")]
async fn files_that_were_moved_while_upload_waits_are_not_called_sent() {
    let datastore = TestDatastore::memory().await;
    let sandbox = Sandbox::new(RUNNER).hello().fake_terraform("");
    let lossy = lost_everything(&datastore).await;
    assert_eq!(sandbox.run_with(&lossy.url, UNPLANNED).code, 10);
    let dir = unsent(&sandbox).join("default/x/a/0");
    let lock = std::fs::File::open(&dir).unwrap();
    lock.try_lock().unwrap();
    let runner = sandbox.start(None, &upload(&datastore.url, &dir));
    tokio::time::sleep(std::time::Duration::from_secs(1)).await;
    std::fs::rename(&dir, sandbox.path("moved")).unwrap();
    drop(lock);
    let ended = runner.wait();
    assert_eq!(ended.code, 8, "{}", ended.stderr);
    assert!(ended.stderr.contains("there is no directory"), "{}", ended.stderr);
}

#[tokio::test(flavor = "multi_thread")]
async fn upload_refuses_records_of_later_versions_and_leaves_them() {
    let datastore = TestDatastore::memory().await;
    let sandbox = Sandbox::new(RUNNER).hello().fake_terraform("[ $STEP != plan ] || exit 3");
    let lossy = lost_everything(&datastore).await;
    assert_eq!(sandbox.run_with(&lossy.url, UNPLANNED).code, 10);
    let plan = ["plan", "--name", "x", "--run", "p"];
    assert_eq!(sandbox.run_with(&lossy.url, &plan).code, 1);
    for (attempt, name) in [("default/x/a/0", "applied.json"), ("default/x/p/0", "attempt.json")] {
        let dir = unsent(&sandbox).join(attempt);
        std::fs::remove_file(dir.join("SHA256SUMS")).unwrap();
        let whole = std::fs::read_to_string(dir.join(name)).unwrap();
        let later = whole.replace("\"version\": 1", "\"version\": 2");
        assert_ne!(whole, later);
        // A later version may also have other fields.
        for text in [later, "{\"version\": 2}".to_owned()] {
            std::fs::write(dir.join(name), text).unwrap();
            let ended = sandbox.run(&upload(&datastore.url, &dir));
            assert_eq!(ended.code, 8, "{}", ended.stderr);
            let expected = format!("{} has version 2", dir.join(name).display());
            assert!(ended.stderr.contains(&expected), "{}", ended.stderr);
            assert!(dir.join(name).exists() && dir.join("run.log").exists());
        }
    }
    assert_eq!(StoredRun::new(&datastore, "default", "x", "a").names(0).await, ["ledger.json"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn upload_refuses_files_whose_digests_are_damaged() {
    let datastore = TestDatastore::memory().await;
    let sandbox = Sandbox::new(RUNNER).hello().fake_terraform("");
    let lossy = lost_everything(&datastore).await;
    assert_eq!(sandbox.run_with(&lossy.url, UNPLANNED).code, 10);
    let dir = unsent(&sandbox).join("default/x/a/0");
    let args = upload(&datastore.url, &dir);
    let file = dir.join("SHA256SUMS");
    let whole = std::fs::read(&file).unwrap();
    let end = whole.iter().rposition(|byte| *byte == b' ').unwrap();
    for (damaged, expected) in [
        (whole[..end - 10].to_vec(), "SHA256SUMS is damaged: line "),
        ([&whole[..], b"\xff\n"].concat(), "SHA256SUMS is damaged: "),
        (Vec::new(), "is damaged: SHA256SUMS does not have its digest"),
    ] {
        std::fs::write(&file, damaged).unwrap();
        let ended = sandbox.run(&args);
        assert_eq!(ended.code, 9, "{}", ended.stderr);
        assert!(ended.stderr.contains(expected), "{expected}: {}", ended.stderr);
    }
    std::fs::remove_file(&file).unwrap();
    std::fs::create_dir(&file).unwrap();
    let ended = sandbox.run(&args);
    assert_eq!(ended.code, 1, "{}", ended.stderr);
    assert!(ended.stderr.contains("SHA256SUMS is not a regular file"), "{}", ended.stderr);
    assert!(dir.join("applied.json").exists());
    assert_eq!(StoredRun::new(&datastore, "default", "x", "a").names(0).await, ["ledger.json"]);
}

/// The runner that applies still sends its files by itself.
#[tokio::test(flavor = "multi_thread")]
async fn upload_waits_for_the_runner_that_uses_the_directory() {
    let datastore = TestDatastore::memory().await;
    let sandbox = Sandbox::new(RUNNER).hello().fake_terraform("");
    let busy = Fault { method: "PUT", part: "/api/logs", status: 503, times: 3 };
    let slow = faulty(&datastore, &[busy]).await;
    let runner = sandbox.start(Some(&slow.url), UNPLANNED);
    let dir = unsent(&sandbox).join("default/x/a/0");
    tokio::task::block_in_place(|| {
        eventually("the record is kept", || dir.join("applied.json").exists());
    });
    let ended = sandbox.run_with(&slow.url, &["upload", dir.to_str().unwrap()]);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    let waits = format!("another runner uses {}: waiting for it", dir.display());
    assert!(ended.stderr.contains(&waits), "{}", ended.stderr);
    let ended = runner.wait();
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    assert!(!ended.stderr.contains("No such file"), "{}", ended.stderr);
}

#[tokio::test(flavor = "multi_thread")]
async fn upload_of_a_wrong_directory_names_the_next_step() {
    let datastore = TestDatastore::memory().await;
    let sandbox = Sandbox::new(RUNNER).hello().fake_terraform("");
    let lossy = lost_everything(&datastore).await;
    assert_eq!(sandbox.run_with(&lossy.url, UNPLANNED).code, 10);
    let attempt = unsent(&sandbox).join("default/x/a/0");
    let states = unsent(&sandbox).join("default/x/b/0");
    std::fs::create_dir_all(&states).unwrap();
    std::fs::write(states.join("errored.tfstate"), "{}").unwrap();
    std::fs::create_dir(sandbox.work().join("empty")).unwrap();
    let such_as = format!("such as {}", attempt.display());
    let push = format!("`terraform state push {}`", states.join("errored.tfstate").display());
    let record = attempt.join("applied.json");
    for (dir, expected) in [
        (&*unsent(&sandbox), [&*such_as, "has neither applied.json nor attempt.json"]),
        (&record, ["it is a file", "next: name the directory of an attempt"]),
        (Path::new("empty"), ["and is empty", "as in the command that the run has printed"]),
        (Path::new("."), ["has neither applied.json nor attempt.json", "as in the command"]),
        (&states, [&*push, "upload does not push states to their backends"]),
    ] {
        let ended = sandbox.run(&upload(&datastore.url, dir));
        assert_eq!(ended.code, 8, "{}", ended.stderr);
        for text in expected.into_iter().chain([dir.to_str().unwrap()]) {
            assert!(ended.stderr.contains(text), "{text}: {}", ended.stderr);
        }
    }
    // It is an artifact of its attempt by then, and needs no datastore.
    assert_eq!(
        StoredRun::new(&datastore, "default", "x", "b").artifact("errored.tfstate", 0).await,
        b"{}"
    );
    let ended = sandbox.run(&["upload", states.to_str().unwrap()]);
    assert_eq!(ended.code, 8, "{}", ended.stderr);
    assert!(ended.stderr.contains(&push), "{}", ended.stderr);
}

#[tokio::test(flavor = "multi_thread")]
async fn directory_named_by_a_dot_or_a_link_is_sent_and_removed() {
    for name in [".", "link/"] {
        let datastore = TestDatastore::memory().await;
        let sandbox = Sandbox::new(RUNNER).hello().fake_terraform("");
        let lossy = lost_everything(&datastore).await;
        assert_eq!(sandbox.run_with(&lossy.url, UNPLANNED).code, 10);
        let dir = unsent(&sandbox).join("default/x/a/0");
        std::os::unix::fs::symlink(&dir, sandbox.work().join("link")).unwrap();
        let mut command = sandbox.command(&upload(&datastore.url, Path::new(name)));
        if name == "." {
            command.current_dir(&dir);
        }
        let ended = support::Ended::from(command.output().unwrap());
        assert_eq!(ended.code, 0, "{name}: {}", ended.stderr);
        assert!(!dir.exists(), "{name}");
    }
}
