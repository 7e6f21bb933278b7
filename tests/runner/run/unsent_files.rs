//! Files that could not be stored: where they are kept, and how `runner upload` sends them.

use std::path::Path;

use support::{Ended, Sandbox, TestDatastore, eventually};

use super::apply_once::{
    applies, counted, faulty, lost, lost_everything, made, mute, report, unsent,
};
use crate::stored_run::StoredRun;
use crate::{RUNNER, json};

const UNPLANNED: &[&str] = &["apply", "--no-plan", "--name", "x", "--run", "a"];

/// The command between backticks that a message advises.
fn advised(ended: &Ended) -> String {
    let command = ended.stderr.split('`').find(|text| text.contains("runner upload "));
    command.unwrap_or_else(|| panic!("no command: {}", ended.stderr)).to_owned()
}

/// Does what a message advises, in a shell that finds the runner on PATH.
fn follow(sandbox: &Sandbox, command: &str) -> Ended {
    std::fs::remove_file(sandbox.path("bin/runner")).unwrap_or_default();
    std::os::unix::fs::symlink(RUNNER, sandbox.path("bin/runner")).unwrap();
    let mut shell = sandbox.program(Path::new("/bin/sh"), &["-c", command]);
    shell.output().unwrap().into()
}

#[tokio::test(flavor = "multi_thread")]
async fn files_an_apply_could_not_store_are_uploaded_by_the_suggested_command() {
    let datastore = TestDatastore::memory().await;
    let sandbox = counted();
    let parts = ["name=applied.json", "/api/logs", "format=short", "name=run.json"];
    let sick = faulty(&datastore, &parts.map(|part| lost(part, 1))).await;

    let ended = sandbox.run_with(&sick.url, UNPLANNED);

    assert_eq!((ended.code, made(&sandbox)), (10, 1), "{}", ended.stderr);
    assert!(ended.stderr.contains("applied, but not all of it is stored"), "{}", ended.stderr);
    let dir = unsent(&sandbox).join("default/x/a/0");
    let mode = std::os::unix::fs::PermissionsExt::mode(&dir.metadata().unwrap().permissions());
    assert_eq!(mode & 0o777, 0o700);
    let command = advised(&ended);
    assert!(command.ends_with(&dir.display().to_string()), "{command}");
    for _ in 0..2 {
        let again = sandbox.run_with(&lost_everything(&datastore).await.url, UNPLANNED);
        assert_eq!(made(&sandbox), 1, "{}", again.stderr);
        assert!(again.stderr.contains("nothing is applied again"), "{}", again.stderr);
    }

    let sent = follow(&sandbox, &command);
    assert_eq!(sent.code, 0, "{}", sent.stderr);
    assert!(!unsent(&sandbox).join("default").exists());
    let stored = StoredRun::new(&datastore, "default", "x", "a");
    assert_eq!(json(&stored.artifact("applied.json", 0).await)["applied"], "unplanned");
    assert!(stored.log(0).await.contains("Apply complete!"));
    assert_eq!(stored.plan("short", 0).await, b"Apply Successful");
    assert_eq!(report(&datastore, "x", "a", 0).await["outcome"], "applied");
    let puts = sick.seen().into_iter().filter(|line| line.starts_with("PUT"));
    let names = puts.map(|line| line.rsplit(['&', '?']).next().unwrap().to_owned());
    let names = names.collect::<Vec<_>>();
    let [first, again] = [0, 4].map(|at| names[at].as_str());
    assert_eq!((first, again), ("name=applied.json", "name=applied.json"), "{names:?}");

    assert_eq!(follow(&sandbox, &command).code, 8, "there is nothing left to send");
    assert_eq!(sandbox.run_with(&datastore.url, UNPLANNED).code, 0);
    assert_eq!(made(&sandbox), 1, "the datastore's record is enough");
    let again = sandbox.run_with(&datastore.url, &[UNPLANNED, &["--again"]].concat());
    assert_eq!((again.code, made(&sandbox)), (0, 2), "{}", again.stderr);
}

#[tokio::test(flavor = "multi_thread")]
async fn upload_command_replaces_nothing_and_can_be_repeated() {
    let datastore = TestDatastore::memory().await;
    let sandbox = Sandbox::new(RUNNER).hello().fake_terraform("");
    let lossy = lost_everything(&datastore).await;
    let ended = sandbox.run_with(&lossy.url, UNPLANNED);
    assert_eq!(ended.code, 10, "{}", ended.stderr);
    let dir = unsent(&sandbox).join("default/x/a/0");
    let upload = ["upload", dir.to_str().unwrap()];
    assert_eq!(sandbox.run_with(&lossy.url, &upload).code, 5, "nothing is sent");
    assert!(dir.join("run.log").exists());
    // Another program has stored a log there.
    let url = format!("{}api/logs?namespace=default&layer=x&run=a&attempt=0", datastore.url);
    reqwest::Client::new().put(url).body("another log").send().await.unwrap();
    for _ in 0..2 {
        let ended = sandbox.run_with(&datastore.url, &upload);
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
    assert_eq!(sandbox.run(&upload).code, 64, "no datastore is named");
}

#[tokio::test(flavor = "multi_thread")]
async fn upload_command_verifies_and_reports_each_file() {
    let datastore = TestDatastore::memory().await;
    let sandbox = Sandbox::new(RUNNER).hello().fake_terraform("");
    let lossy = lost_everything(&datastore).await;
    assert_eq!(sandbox.run_with(&lossy.url, UNPLANNED).code, 10);
    let dir = unsent(&sandbox).join("default/x/a/0");
    let upload = || sandbox.run_with(&datastore.url, &["upload", dir.to_str().unwrap()]);
    let file = |name: &str| dir.join(name);
    let stored = StoredRun::new(&datastore, "default", "x", "a");

    // A truncated file: nothing is sent.
    for name in ["run.log", "applied.json"] {
        let whole = std::fs::read(file(name)).unwrap();
        std::fs::write(file(name), &whole[..whole.len() / 2]).unwrap();
        let ended = upload();
        assert_eq!(ended.code, 9, "{}", ended.stderr);
        assert!(ended.stderr.contains(&format!("{name} is damaged: its sha256 is")), "{ended:?}");
        assert!(ended.stderr.contains("nothing was sent"), "{ended:?}");
        assert_eq!(stored.get("artifacts", "attempt=0&name=applied.json").await, None);
        std::fs::write(file(name), whole).unwrap();
    }

    // Another record is stored, and the log is there already: the record stays, and says why.
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
        let says = "the datastore already holds another applied.json";
        assert!(ended.stderr.contains(says), "{}", ended.stderr);
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
    std::fs::remove_dir_all(&dir).unwrap();
    let ended = upload();
    assert_eq!(ended.code, 8, "{}", ended.stderr);
    assert!(ended.stderr.contains("removed once everything is sent"), "{ended:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn apply_interrupted_during_its_uploads_keeps_the_remaining_files() {
    let datastore = TestDatastore::memory().await;
    let sandbox = Sandbox::new(RUNNER).hello().fake_terraform("");
    let mute = mute(&datastore).await;
    let runner = sandbox.start(Some(&mute.url), &[UNPLANNED, &["--grace", "1s"]].concat());
    tokio::task::block_in_place(|| {
        eventually("it stores", || mute.seen().iter().any(|line| line.starts_with("PUT")));
    });
    runner.signal("TERM");
    let ended = runner.wait();
    assert_eq!(ended.code, 10, "{}", ended.stderr);
    assert!(unsent(&sandbox).join("default/x/a/0/run.json").exists());
    let ended = sandbox.run_with(&datastore.url, UNPLANNED);
    assert_eq!((ended.code, applies(&sandbox)), (0, 1), "{}", ended.stderr);
    assert_eq!(report(&datastore, "x", "a", 0).await["outcome"], "applied");
}

#[tokio::test(flavor = "multi_thread")]
async fn scratch_directory_is_kept_if_the_state_directory_is_not_writable() {
    let datastore = TestDatastore::memory().await;
    let sandbox = counted();
    std::fs::write(sandbox.path("home/.local"), "a file").unwrap();
    let sick = faulty(&datastore, &[lost("/api/logs", 1)]).await;
    let ended = sandbox.run_with(&sick.url, UNPLANNED);
    assert_eq!((ended.code, made(&sandbox)), (10, 1), "{}", ended.stderr);
    let command = advised(&ended);
    assert!(command.contains(sandbox.path("tmp").to_str().unwrap()), "{command}");
    let sent = follow(&sandbox, &command);
    assert_eq!(sent.code, 0, "{}", sent.stderr);
    assert!(sandbox.is_clean());
    let stored = StoredRun::new(&datastore, "default", "x", "a");
    assert!(stored.log(0).await.contains("Apply complete!"));
}

#[tokio::test(flavor = "multi_thread")]
async fn files_a_failed_run_could_not_store_are_uploaded_by_the_suggested_command() {
    let datastore = TestDatastore::memory().await;
    let sandbox = Sandbox::new(RUNNER).hello().fake_terraform("[ $STEP != plan ] || exit 3");
    let plan = ["plan", "--name", "x", "--run", "p"];
    let parts = ["/api/logs", "name=run.json"].map(|part| lost(part, 1));
    let sick = faulty(&datastore, &parts).await;

    let ended = sandbox.run_with(&sick.url, &plan);

    assert_eq!(ended.code, 1, "the tool's failure stays the reason: {}", ended.stderr);
    let dir = unsent(&sandbox).join("default/x/p/0");
    let mode = std::os::unix::fs::PermissionsExt::mode(&dir.metadata().unwrap().permissions());
    assert_eq!(mode & 0o777, 0o700);
    let command = advised(&ended);
    assert!(command.ends_with(&dir.display().to_string()), "{command}");
    let stored = StoredRun::new(&datastore, "default", "x", "p");
    assert_eq!(stored.names(0).await, Vec::<String>::new());
    let sent = follow(&sandbox, &command);
    assert_eq!(sent.code, 0, "{}", sent.stderr);
    assert!(!unsent(&sandbox).join("default").exists());
    assert!(stored.log(0).await.contains("Error: terraform plan failed"));
    assert_eq!(report(&datastore, "x", "p", 0).await["outcome"], "failed");
    assert_eq!(stored.names(0).await.len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn uploaded_files_of_a_failed_run_replace_nothing_and_record_no_apply() {
    let datastore = TestDatastore::memory().await;
    let sandbox = Sandbox::new(RUNNER).hello();
    let (fails, script) = (sandbox.path("fails"), "[ $STEP != apply ] || [ ! -e FAILS ] || exit 3");
    let sandbox = sandbox.fake_terraform(&script.replace("FAILS", &fails.display().to_string()));
    std::fs::write(&fails, "").unwrap();
    let lossy = lost_everything(&datastore).await;
    let ended = sandbox.run_with(&lossy.url, UNPLANNED);
    assert_eq!(ended.code, 1, "{}", ended.stderr);
    let dir = unsent(&sandbox).join("default/x/a/0");
    assert!(dir.join("run.json").exists() && !dir.join("applied.json").exists());
    // Another program has stored a log there.
    let url = format!("{}api/logs?namespace=default&layer=x&run=a&attempt=0", datastore.url);
    reqwest::Client::new().put(url).body("another log").send().await.unwrap();

    let ended = sandbox.run_with(&datastore.url, &["upload", dir.to_str().unwrap()]);

    assert_eq!(ended.code, 9, "{}", ended.stderr);
    assert!(ended.stderr.contains("already holds another run.log"), "{}", ended.stderr);
    let stored = StoredRun::new(&datastore, "default", "x", "a");
    assert_eq!(stored.log(0).await, "another log");
    assert!(dir.join("run.log").exists() && !dir.join("run.json").exists());
    // It is applied by the next run of that name.
    std::fs::remove_file(&fails).unwrap();
    let ended = sandbox.run_with(&datastore.url, UNPLANNED);
    assert_eq!((ended.code, applies(&sandbox)), (0, 2), "{}", ended.stderr);
    assert_eq!(report(&datastore, "x", "a", 1).await["outcome"], "applied");
    assert_eq!(stored.log(0).await, "another log");
}

#[tokio::test(flavor = "multi_thread")]
async fn files_an_interrupted_plan_could_not_store_are_kept() {
    let datastore = TestDatastore::memory().await;
    let sandbox = Sandbox::new(RUNNER).hello().fake_terraform("");
    let mute = mute(&datastore).await;
    let plan = ["plan", "--name", "x", "--run", "p", "--grace", "1s"];
    let runner = sandbox.start(Some(&mute.url), &plan);
    tokio::task::block_in_place(|| {
        eventually("it stores", || mute.seen().iter().any(|line| line.starts_with("PUT")));
    });
    runner.signal("TERM");
    let ended = runner.wait();
    // The upload is given up, or the signal ends it: whichever comes first.
    let outcome = if ended.code == 143 { "interrupted" } else { "failed" };
    assert!(matches!(ended.code, 10 | 143), "{}", ended.stderr);
    let dir = unsent(&sandbox).join("default/x/p/0");
    let report = json(&std::fs::read(dir.join("run.json")).unwrap());
    assert_eq!(report["outcome"], outcome);
    assert!(dir.join("run.log").exists());
    let ended = sandbox.run_with(&datastore.url, &["upload", dir.to_str().unwrap()]);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
}
