//! A datastore that is gone: before the tool's apply nothing is applied; after that the apply ends, and what could not be
//! stored waits in the state home or in the spool.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use support::{Ended, Fault, FaultyDatastore, Sandbox, TestDatastore, eventually};

use crate::run::apply_once::{UNPLANNED, applies, counted, lost_everything, made, report, unsent};
use crate::stored_run::StoredRun;
use crate::{RUNNER, json};

const SPOOLED: &[&str] = &["--spool-dir", "spool"];

fn spool(sandbox: &Sandbox) -> PathBuf {
    sandbox.work().join("spool/plancha/unsent/default")
}

/// All files and directories are private.
fn assert_private(dir: &Path) {
    let mode = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(dir), 0o700, "{}", dir.display());
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            assert_private(&path);
        } else {
            assert_eq!(mode(&path), 0o600, "{}", path.display());
        }
    }
}

/// A run in a container of its own: with nothing of earlier ones but the working directory.
fn run_in_new_container(sandbox: &Sandbox, url: &url::Url, args: &[&str]) -> Ended {
    let home = tempfile::tempdir_in(sandbox.path("tmp")).unwrap();
    let mut command = sandbox.command(args);
    command.env("HOME", home.path()).env("TMPDIR", home.path());
    command.env("PLANCHA_DATASTORE_URL", url.as_str());
    Ended::from(command.output().unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_applied_if_the_datastore_fails_before_the_apply() {
    let mut waiting = Vec::new();
    for (method, part) in [
        ("GET", "/api/attempts"),
        ("POST", "/api/attempts"),
        ("GET", "/api/plans"),
        ("GET", "/api/applied"),
        ("GET", "name=binding.json"),
        ("PUT", "name=ledger.json"),
    ] {
        waiting.push(tokio::spawn(async move {
            let datastore = TestDatastore::memory().await;
            let sandbox = Sandbox::new(RUNNER).hello().fake_terraform("");
            let plan = ["plan", "--name", "x", "--run", "p"];
            let planned = tokio::task::block_in_place(|| sandbox.run_with(&datastore.url, &plan));
            assert_eq!(planned.code, 0, "{}", planned.stderr);
            let fault = Fault { method, part, status: 500, times: usize::MAX };
            let sick = FaultyDatastore::before(&datastore.url, vec![fault]).await;
            let apply = ["apply", "--name", "x", "--plan", "p", "--run", "a"];
            let ended = tokio::task::block_in_place(|| sandbox.run_with(&sick.url, &apply));
            assert_eq!((ended.code, applies(&sandbox)), (10, 0), "{part}: {}", ended.stderr);
        }));
    }
    for case in waiting {
        case.await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn apply_goes_on_if_the_datastore_is_killed_and_its_files_are_kept() {
    let datastore = TestDatastore::memory().await;
    let sandbox = Sandbox::new(RUNNER).hello();
    let [started, go] = ["started", "go"].map(|name| sandbox.path(name));
    let sandbox = sandbox.fake_terraform(&format!(
        "if [ $STEP = apply ]; then touch {}; while [ ! -e {} ]; do sleep 0.05; done; fi",
        started.display(),
        go.display()
    ));
    let proxy = FaultyDatastore::before(&datastore.url, Vec::new()).await;
    let runner = sandbox.start(Some(&proxy.url), &[UNPLANNED, SPOOLED].concat());
    tokio::task::block_in_place(|| eventually("the apply runs", || started.exists()));
    drop(proxy);
    std::fs::write(go, "").unwrap();
    let ended = tokio::task::block_in_place(|| runner.wait());
    assert_eq!((ended.code, applies(&sandbox)), (10, 1), "{}", ended.stderr);
    let last = ended.stderr.lines().last().unwrap();
    let dir = spool(&sandbox).join("x/a/0");
    assert!(last.contains("applied, but") && last.contains(dir.to_str().unwrap()), "{last}");
    for name in ["applied.json", "run.log", "run.json"] {
        assert!(dir.join(name).exists(), "{name}");
    }
    let spool = sandbox.work().join("spool");
    let upload = ["upload", "--datastore", datastore.url.as_str(), spool.to_str().unwrap()];
    let sent = sandbox.run(&upload);
    assert_eq!(sent.code, 0, "{}", sent.stderr);
    assert_eq!(report(&datastore, "x", "a", 0).await["outcome"], "applied");
    assert!(!dir.exists());
    let again = sandbox.run(&upload);
    assert_eq!(again.code, 0, "{}", again.stderr);
    assert!(again.stderr.contains("nothing waits in "), "{}", again.stderr);
}

#[tokio::test(flavor = "multi_thread")]
async fn later_run_sends_what_waits_in_the_spool_and_applies_nothing_twice() {
    let datastore = TestDatastore::memory().await;
    let sandbox = counted();
    let lossy = lost_everything(&datastore).await;
    let ended = run_in_new_container(&sandbox, &lossy.url, &[UNPLANNED, SPOOLED].concat());
    assert_eq!((ended.code, made(&sandbox)), (10, 1), "{}", ended.stderr);
    assert!(!unsent(&sandbox).exists());
    assert_private(&sandbox.work().join("spool/plancha"));

    let again = run_in_new_container(&sandbox, &lossy.url, &[UNPLANNED, SPOOLED].concat());
    assert_eq!(made(&sandbox), 1, "{}", again.stderr);
    assert!(again.stderr.contains("nothing is applied again"), "{}", again.stderr);

    // Another run of the layer, and a failed one.
    let broken = ["plan", "--name", "x", "--run", "q", "--target", "!"];
    let failed = run_in_new_container(&sandbox, &lossy.url, &[&broken[..], SPOOLED].concat());
    assert_ne!(failed.code, 0, "{}", failed.stderr);
    lossy.set_faults(Vec::new());
    let plan = ["plan", "--name", "x", "--run", "p"];
    let ended = run_in_new_container(&sandbox, &lossy.url, &[&plan[..], SPOOLED].concat());
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    assert!(!spool(&sandbox).exists(), "{}", ended.stderr);
    assert_eq!(report(&datastore, "x", "a", 0).await["outcome"], "applied");
    assert_eq!(report(&datastore, "x", "q", 0).await["outcome"], "failed");
}

#[tokio::test(flavor = "multi_thread")]
async fn state_that_is_delivered_nowhere_waits_in_the_spool() {
    let datastore = TestDatastore::memory().await;
    let sandbox = Sandbox::new(RUNNER).fake_terraform(
        "if [ $STEP = init ]; then mkdir -p .terraform; \
         echo '{\"backend\": {\"type\": \"http\"}}' > .terraform/terraform.tfstate; fi; \
         if [ $STEP = apply ]; then echo '{\"serial\": 1}' > errored.tfstate; exit 1; fi",
    );
    sandbox.write("main.tf", "");
    let lossy = lost_everything(&datastore).await;
    let ended = sandbox.run_with(&lossy.url, &[UNPLANNED, SPOOLED, &["--grace", "3s"]].concat());
    assert_eq!(ended.code, 1, "{}", ended.stderr);
    let state = spool(&sandbox).join("x/a/0/errored.tfstate");
    assert!(state.exists(), "{}", ended.stderr);
    assert_private(&sandbox.work().join("spool/plancha"));
    lossy.set_faults(Vec::new());
    std::fs::remove_file(sandbox.work().join("errored.tfstate")).unwrap();
    let copy = state.with_file_name("errored of a person.tfstate");
    std::fs::write(copy, "{\"serial\": 2}").unwrap();
    let spool = sandbox.work().join("spool");
    let upload = ["upload", "--datastore", lossy.url.as_str(), spool.to_str().unwrap()];
    let sent = sandbox.run(&upload);
    assert_eq!(sent.code, 0, "{}", sent.stderr);
    let stored = StoredRun::new(&datastore, "default", "x", "a");
    assert_eq!(json(&stored.artifact("errored-2.tfstate", 0).await)["serial"], 1);
    assert_eq!(json(&stored.artifact("errored.tfstate", 0).await)["serial"], 2);
    // Its backend does not have it.
    assert!(state.exists());
    let again = sandbox.run(&upload);
    assert_eq!(again.code, 8, "{}", again.stderr);
    assert!(
        again.stderr.contains("upload does not push states to their backends"),
        "{}",
        again.stderr
    );
    let refused = run_in_new_container(&sandbox, &lossy.url, &[UNPLANNED, SPOOLED].concat());
    assert_eq!((refused.code, applies(&sandbox)), (8, 1), "{}", refused.stderr);
}

#[tokio::test(flavor = "multi_thread")]
async fn later_attempt_of_a_run_sends_what_an_earlier_one_has_spooled() {
    let datastore = TestDatastore::memory().await;
    let sandbox = counted();
    let lossy = lost_everything(&datastore).await;
    let broken = ["plan", "--name", "x", "--run", "q", "--target", "!"];
    let failed = run_in_new_container(&sandbox, &lossy.url, &[&broken[..], SPOOLED].concat());
    assert_ne!(failed.code, 0, "{}", failed.stderr);
    assert!(spool(&sandbox).exists(), "{}", failed.stderr);
    lossy.set_faults(Vec::new());
    let plan = ["plan", "--name", "x", "--run", "q"];
    let ended = run_in_new_container(&sandbox, &lossy.url, &[&plan[..], SPOOLED].concat());
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    assert!(!spool(&sandbox).exists(), "{}", ended.stderr);
    assert_eq!(report(&datastore, "x", "q", 0).await["outcome"], "failed");
    assert_eq!(report(&datastore, "x", "q", 1).await["outcome"], "changes");
}

#[test]
fn spool_that_cannot_be_written_refuses_the_run() {
    let sandbox = Sandbox::new(RUNNER).hello().fake_terraform("");
    sandbox.write("spool", "a file");
    let ended = sandbox.run(&["apply", "--no-plan", "--spool-dir", "spool"]);
    assert_eq!(ended.code, 8, "{}", ended.stderr);
    let last = ended.stderr.lines().last().unwrap();
    assert!(last.contains("spool (--spool-dir) cannot be written: "), "{last}");
    assert!(last.contains("next: nothing was run; mount a volume there"), "{last}");
    assert!(sandbox.calls().is_empty());
}

#[test]
fn files_in_the_replaced_state_home_are_named() {
    let sandbox = Sandbox::new(RUNNER).hello().fake_terraform("");
    std::fs::create_dir_all(unsent(&sandbox).join("default")).unwrap();
    let ended = sandbox.run(&["plan", "--spool-dir", "spool"]);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    let says = format!("{} has files of earlier runs", unsent(&sandbox).display());
    assert!(ended.stderr.contains(&says), "{}", ended.stderr);
}
