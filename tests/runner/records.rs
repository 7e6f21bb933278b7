//! After a successful apply nothing that we advise causes a second one, and no run replaces what another
//! has stored.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use serde_json::Value;
use support::{Ended, Fault, FaultyDatastore, Sandbox, TestDatastore, eventually};
use url::Url;

use crate::stored::Stored;
use crate::{RUNNER, json};

const PLAN: &[&str] = &["plan", "--layer", "layer.yaml", "--run", "p"];
const APPLY: &[&str] = &["apply", "--layer", "layer.yaml", "--run", "a"];
const UNPLANNED: &[&str] = &["apply", "--no-plan", "--name", "x", "--run", "a"];
const ALWAYS: usize = usize::MAX;

/// A module whose every apply creates its resource anew, and counts that.
fn counted() -> Sandbox {
    let sandbox = Sandbox::new(RUNNER);
    sandbox.write(
        "main.tf",
        "resource \"terraform_data\" \"x\" {\n  triggers_replace = uuid()\n  \
         provisioner \"local-exec\" {\n    command = \"echo made >> made\"\n  }\n}\n",
    );
    sandbox
}

fn made(sandbox: &Sandbox) -> usize {
    std::fs::read_to_string(sandbox.work().join("made")).unwrap_or_default().lines().count()
}

fn applies(sandbox: &Sandbox) -> usize {
    sandbox.calls().iter().filter(|call| call.starts_with("apply")).count()
}

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

fn unsent(sandbox: &Sandbox) -> PathBuf {
    sandbox.path("home/.local/state/plancha/unsent")
}

fn lost(part: &'static str, times: usize) -> Fault {
    Fault { method: "PUT", part, status: 403, times }
}

async fn faulty(datastore: &TestDatastore, faults: &[Fault]) -> FaultyDatastore {
    FaultyDatastore::before(&datastore.url, faults.to_vec()).await
}

async fn report(datastore: &TestDatastore, layer: &str, run: &str, attempt: u32) -> Value {
    let stored = Stored::new(datastore, "default", layer, run);
    json(&stored.artifact("run.json", attempt).await)
}

#[tokio::test(flavor = "multi_thread")]
async fn what_an_apply_could_not_store_is_sent_by_the_advised_command_and_applied_once() {
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
    let stored = Stored::new(&datastore, "default", "x", "a");
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

/// One that takes no upload; what it is asked it answers.
async fn lost_everything(datastore: &TestDatastore) -> FaultyDatastore {
    faulty(datastore, &[lost("", ALWAYS)]).await
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upload_replaces_nothing_and_can_be_repeated() {
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
    let stored = Stored::new(&datastore, "default", "x", "a");
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
async fn an_upload_checks_its_files_first_and_says_what_becomes_of_each() {
    let datastore = TestDatastore::memory().await;
    let sandbox = Sandbox::new(RUNNER).hello().fake_terraform("");
    let lossy = lost_everything(&datastore).await;
    assert_eq!(sandbox.run_with(&lossy.url, UNPLANNED).code, 10);
    let dir = unsent(&sandbox).join("default/x/a/0");
    let upload = || sandbox.run_with(&datastore.url, &["upload", dir.to_str().unwrap()]);
    let file = |name: &str| dir.join(name);
    let stored = Stored::new(&datastore, "default", "x", "a");

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
    assert!(ended.stderr.contains("stays, for it also holds notes.txt"), "{}", ended.stderr);
    let left = std::fs::read_dir(&dir).unwrap().map(|entry| entry.unwrap().file_name());
    assert_eq!(left.collect::<Vec<_>>(), ["notes.txt"]);
    let ended = upload();
    assert_eq!(ended.code, 8, "{}", ended.stderr);
    assert!(ended.stderr.contains("is no directory of files that were not sent"), "{ended:?}");
    std::fs::remove_dir_all(&dir).unwrap();
    let ended = upload();
    assert_eq!(ended.code, 8, "{}", ended.stderr);
    assert!(ended.stderr.contains("either all of it was sent, which removes it"), "{ended:?}");
}

/// A datastore that takes no upload and never says so.
async fn mute(datastore: &TestDatastore) -> FaultyDatastore {
    faulty(datastore, &[Fault { method: "PUT", part: "", status: 0, times: ALWAYS }]).await
}

#[tokio::test(flavor = "multi_thread")]
async fn an_apply_whose_end_is_interrupted_is_applied_and_what_is_left_is_kept() {
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
async fn a_runner_that_is_killed_right_after_the_apply_leaves_its_record() {
    let datastore = TestDatastore::memory().await;
    let sandbox = Sandbox::new(RUNNER).hello().fake_terraform("");
    let mute = mute(&datastore).await;
    let runner = sandbox.start(Some(&mute.url), UNPLANNED);
    tokio::task::block_in_place(|| {
        eventually("it stores", || mute.seen().iter().any(|line| line.starts_with("PUT")));
    });
    runner.signal("KILL");
    assert_eq!(runner.wait().code, -1);
    let ended = sandbox.run_with(&datastore.url, UNPLANNED);
    assert_eq!((ended.code, applies(&sandbox)), (0, 1), "{}", ended.stderr);
    assert!(!unsent(&sandbox).join("default").exists(), "it was sent on the way");
}

#[tokio::test(flavor = "multi_thread")]
async fn where_the_state_directory_cannot_be_written_the_scratch_directory_is_kept() {
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
    let stored = Stored::new(&datastore, "default", "x", "a");
    assert!(stored.log(0).await.contains("Apply complete!"));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_failed_run_could_not_store_is_sent_by_the_advised_command() {
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
    let stored = Stored::new(&datastore, "default", "x", "p");
    assert_eq!(stored.names(0).await, Vec::<String>::new());
    let sent = follow(&sandbox, &command);
    assert_eq!(sent.code, 0, "{}", sent.stderr);
    assert!(!unsent(&sandbox).join("default").exists());
    assert!(stored.log(0).await.contains("Error: terraform plan failed"));
    assert_eq!(report(&datastore, "x", "p", 0).await["outcome"], "failed");
    assert_eq!(stored.names(0).await.len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_files_of_a_failed_run_replace_nothing_and_are_no_apply() {
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
    let stored = Stored::new(&datastore, "default", "x", "a");
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
async fn what_an_interrupted_plan_could_not_store_is_kept() {
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

#[tokio::test(flavor = "multi_thread")]
async fn a_plan_is_applied_once_whichever_run_is_to_apply_it() {
    let datastore = TestDatastore::memory().await;
    let sandbox = Sandbox::new(RUNNER).hello().fake_terraform("");
    assert_eq!(sandbox.run_with(&datastore.url, PLAN).code, 0);
    let planned = sandbox.read("layer.yaml");
    assert_eq!(sandbox.run_with(&datastore.url, APPLY).code, 0);
    sandbox.write("layer.yaml", &planned);

    let other = ["apply", "--layer", "layer.yaml", "--run", "b"];
    let ended = sandbox.run_with(&datastore.url, &other);

    assert_eq!((ended.code, applies(&sandbox)), (0, 1), "{}", ended.stderr);
    assert!(ended.stderr.contains("attempt 0 of run a has applied this"), "{}", ended.stderr);
    assert!(sandbox.read("layer.yaml").contains("apply-sum: "));
    assert_eq!(report(&datastore, "hello", "b", 0).await["outcome"], "applied");
}

/// The same where not even the record was stored.
#[tokio::test(flavor = "multi_thread")]
async fn a_record_that_was_not_sent_keeps_a_plan_from_being_applied_again() {
    let datastore = TestDatastore::memory().await;
    let sandbox = Sandbox::new(RUNNER).hello().fake_terraform("");
    assert_eq!(sandbox.run_with(&datastore.url, PLAN).code, 0);
    let planned = sandbox.read("layer.yaml");
    let lossy = lost_everything(&datastore).await;
    assert_eq!(sandbox.run_with(&lossy.url, APPLY).code, 10);
    sandbox.write("layer.yaml", &planned);
    let other = ["apply", "--layer", "layer.yaml", "--run", "b"];
    let ended = sandbox.run_with(&datastore.url, &other);
    assert_eq!((ended.code, applies(&sandbox)), (0, 1), "{}", ended.stderr);
    assert!(!unsent(&sandbox).join("default").exists(), "it was sent on the way");
    let names = Stored::new(&datastore, "default", "hello", "a").names(0).await;
    assert!(names.contains(&"applied.json".to_owned()), "{names:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn annotations_that_cannot_be_written_are_written_by_the_advised_second_run() {
    let datastore = TestDatastore::memory().await;
    let sandbox = Sandbox::new(RUNNER)
        .hello()
        .fake_terraform("if [ $STEP = apply ]; then mv layer.yaml kept.yaml; mkdir layer.yaml; fi");
    assert_eq!(sandbox.run_with(&datastore.url, PLAN).code, 0);

    let ended = sandbox.run_with(&datastore.url, APPLY);

    assert_eq!(ended.code, 1, "{}", ended.stderr);
    for text in ["trying again", "apply-sum=", "apply the same plan again"] {
        assert!(ended.stderr.contains(text), "{text}: {}", ended.stderr);
    }
    let stored = report(&datastore, "hello", "a", 0).await;
    assert_eq!((&stored["outcome"], &stored["exit"]), (&"applied".into(), &1.into()));
    std::fs::remove_dir(sandbox.work().join("layer.yaml")).unwrap();
    std::fs::rename(sandbox.work().join("kept.yaml"), sandbox.work().join("layer.yaml")).unwrap();
    let ended = sandbox.run_with(&datastore.url, APPLY);
    assert_eq!((ended.code, applies(&sandbox)), (0, 1), "{}", ended.stderr);
    assert!(sandbox.read("layer.yaml").contains("apply-sum: "));
}

#[tokio::test(flavor = "multi_thread")]
async fn many_runs_with_one_name_at_once_each_have_an_attempt() {
    let datastore = TestDatastore::memory().await;
    let sandbox = Sandbox::new(RUNNER).hello().fake_terraform("");
    let runs = (0..16).map(|_| {
        let mut command = sandbox.command(&["plan", "--name", "x", "--run", "same"]);
        command.env("PLANCHA_DATASTORE_URL", datastore.url.as_str());
        command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
    });
    let runs = runs.collect::<Vec<_>>();
    for mut run in runs {
        assert!(run.wait().unwrap().success());
    }
    let stored = Stored::new(&datastore, "default", "x", "same");
    for attempt in 0..16 {
        let bin = stored.plan("bin", attempt).await;
        let plan = &report(&datastore, "x", "same", attempt).await["plan"];
        assert_eq!(plan["sha256"], datastore_api::Sha256::of(&bin).to_string());
        assert_eq!(plan["attempt"], attempt);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_attempt_by_its_number_is_refused_where_it_is_taken() {
    let datastore = TestDatastore::memory().await;
    let sandbox = Sandbox::new(RUNNER).hello().fake_terraform("");
    let plan = |attempt| ["plan", "--name", "x", "--run", "r", "--attempt", attempt];
    assert_eq!(sandbox.run_with(&datastore.url, &plan("3")).code, 0);
    let before = sandbox.calls().len();
    let url =
        format!("{}api/attempts?namespace=default&layer=x&run=r&attempt=4&claim=c", datastore.url);
    assert_eq!(reqwest::Client::new().post(url).send().await.unwrap().status(), 200);
    for (attempt, says) in [("3", "is already stored"), ("4", "is claimed by another run")] {
        let ended = sandbox.run_with(&datastore.url, &plan(attempt));
        assert_eq!(ended.code, 8, "{}", ended.stderr);
        assert!(ended.stderr.contains(says), "{}", ended.stderr);
    }
    assert_eq!(sandbox.calls().len(), before, "not even initialized");
    assert_eq!(sandbox.run_with(&datastore.url, &plan("2")).code, 0);
    assert_eq!(sandbox.run_with(&datastore.url, &plan("2")[..5]).code, 0);
    assert_eq!(report(&datastore, "x", "r", 5).await["outcome"], "changes");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_retry_leaves_what_the_apply_stored() {
    let datastore = TestDatastore::memory().await;
    let sandbox = Sandbox::new(RUNNER).hello().fake_terraform("");
    assert_eq!(sandbox.run_with(&datastore.url, PLAN).code, 0);
    assert_eq!(sandbox.run_with(&datastore.url, APPLY).code, 0);
    let stored = Stored::new(&datastore, "default", "hello", "a");
    let all = async || {
        let (report, log) = (stored.artifact("run.json", 0).await, stored.log(0).await);
        (report, log, stored.artifact("applied.json", 0).await)
    };
    let before = all().await;
    let missing = ["apply", "--name", "hello", "--run", "a", "--plan", "gone"];
    assert_eq!(sandbox.run_with(&datastore.url, &missing).code, 8);
    assert_eq!(all().await, before);
    assert_eq!(report(&datastore, "hello", "a", 1).await["outcome"], "failed");
    assert_eq!(sandbox.run_with(&datastore.url, APPLY).code, 0);
    assert_eq!(applies(&sandbox), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_apply_that_an_older_version_recorded_is_not_repeated() {
    let datastore = TestDatastore::memory().await;
    let sandbox = Sandbox::new(RUNNER).hello().fake_terraform("");
    let url = format!(
        "{}api/artifacts?namespace=default&layer=x&run=a&attempt=0&name=run.json",
        datastore.url
    );
    let old = r#"{"version": 1, "outcome": "applied", "applied": "unplanned"}"#;
    reqwest::Client::new().put(url).body(old).send().await.unwrap();
    let ended = sandbox.run_with(&datastore.url, UNPLANNED);
    assert_eq!((ended.code, applies(&sandbox)), (0, 0), "{}", ended.stderr);
    let again = sandbox.run_with(&datastore.url, &[UNPLANNED, &["--again"]].concat());
    assert_eq!((again.code, applies(&sandbox)), (0, 1), "{}", again.stderr);
}

#[test]
fn again_is_for_applies_that_make_their_own_plan() {
    let sandbox = Sandbox::new(RUNNER).hello().fake_terraform("");
    let datastore: Url = "http://127.0.0.1:9".parse().unwrap();
    let ended = sandbox.run_with(&datastore, &["apply", "--again"]);
    assert_eq!(ended.code, 64, "{}", ended.stderr);
}

/// A proxy that has lost its datastore for a moment says "not found" of everything.
#[tokio::test(flavor = "multi_thread")]
async fn a_proxys_404_allows_no_second_apply() {
    let datastore = TestDatastore::memory().await;
    let sandbox = Sandbox::new(RUNNER).hello().fake_terraform("");
    assert_eq!(sandbox.run_with(&datastore.url, PLAN).code, 0);
    let planned = sandbox.read("layer.yaml");
    assert_eq!(sandbox.run_with(&datastore.url, APPLY).code, 0);
    sandbox.write("layer.yaml", &planned);
    let other = ["apply", "--layer", "layer.yaml", "--run", "b"];
    let fault = |times| Fault { method: "GET", part: "/api/applied", status: 404, times };
    let proxy = faulty(&datastore, &[fault(ALWAYS)]).await;
    let ended = sandbox.run_with(&proxy.url, &other);
    assert_eq!((ended.code, applies(&sandbox)), (10, 1), "{}", ended.stderr);
    let proxy = faulty(&datastore, &[fault(2)]).await;
    let ended = sandbox.run_with(&proxy.url, &other);
    assert_eq!((ended.code, applies(&sandbox)), (0, 1), "{}", ended.stderr);
}

/// All are given the same order at once: one applies, the others find its record.
#[tokio::test(flavor = "multi_thread")]
async fn of_runners_with_the_same_order_at_once_one_applies() {
    let datastore = TestDatastore::memory().await;
    let sandbox = Sandbox::new(RUNNER).hello().fake_terraform("[ $STEP = version ] || sleep 0.3");
    let runners = [(); 6].map(|()| sandbox.start(Some(&datastore.url), UNPLANNED));
    for runner in runners {
        let ended = runner.wait();
        assert_eq!(ended.code, 0, "{}", ended.stderr);
    }
    assert_eq!(applies(&sandbox), 1);
}
