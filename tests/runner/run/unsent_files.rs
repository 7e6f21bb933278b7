//! Files that could not be stored: where they are kept, and how `runner upload` sends them.

use std::path::Path;

use support::{Ended, Fault, Sandbox, TestDatastore, eventually};
use url::Url;

use super::apply_once::{
    UNPLANNED, applies, counted, faulty, lost, lost_everything, made, mute, report, unsent,
};
use crate::stored_run::StoredRun;
use crate::{RUNNER, json};

/// The command between backticks that a message advises.
pub(crate) fn advised(ended: &Ended) -> String {
    let command = ended.stderr.split('`').find(|text| text.contains("runner upload "));
    command.unwrap_or_else(|| panic!("no command: {}", ended.stderr)).to_owned()
}

/// The arguments of an upload that names the datastore itself.
pub(crate) fn upload<'a>(datastore: &'a Url, dir: &'a Path) -> [&'a str; 4] {
    ["upload", "--datastore", datastore.as_str(), dir.to_str().unwrap()]
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
    // The record is sent twice.
    let faults = parts.map(|part| lost(part, 1 + usize::from(part == parts[0])));
    let sick = faulty(&datastore, &faults).await;

    let ended = sandbox.run_with(&sick.url, UNPLANNED);

    assert_eq!((ended.code, made(&sandbox)), (10, 1), "{}", ended.stderr);
    assert!(ended.stderr.contains("applied, but not all of it is stored"), "{}", ended.stderr);
    let dir = unsent(&sandbox).join("default/x/a/0");
    let mode = std::os::unix::fs::PermissionsExt::mode(&dir.metadata().unwrap().permissions());
    assert_eq!(mode & 0o777, 0o700);
    let command = advised(&ended);
    assert!(command.ends_with(&dir.display().to_string()), "{command}");
    for _ in 0..2 {
        sick.set_faults(vec![lost("", usize::MAX)]);
        let again = sandbox.run_with(&sick.url, UNPLANNED);
        assert_eq!(made(&sandbox), 1, "{}", again.stderr);
        assert!(again.stderr.contains("nothing is applied again"), "{}", again.stderr);
    }

    sick.set_faults(Vec::new());
    let sent = follow(&sandbox, &command);
    assert_eq!(sent.code, 0, "{}", sent.stderr);
    assert!(!unsent(&sandbox).join("default").exists());
    let stored = StoredRun::new(&datastore, "default", "x", "a");
    assert_eq!(json(&stored.artifact("applied.json", 0).await)["applied"], "unplanned");
    assert!(stored.log(0).await.contains("Apply complete!"));
    assert_eq!(stored.plan("short", 0).await, b"Apply Successful");
    assert_eq!(report(&datastore, "x", "a", 0).await["outcome"], "applied");
    let others = ["/api/states", "/api/leases", "/api/tools"];
    let is_file = |line: &String| !others.iter().any(|path| line.contains(path));
    let puts = sick.seen().into_iter().filter(|line| line.starts_with("PUT")).filter(is_file);
    let names = puts.map(|line| line.rsplit(['&', '?']).next().unwrap().to_owned());
    let names = names.collect::<Vec<_>>();
    let [first, again] = [0, parts.len() + 1].map(|at| names[at].as_str());
    assert_eq!((first, again), ("name=applied.json", "name=applied.json"), "{names:?}");

    let sent = follow(&sandbox, &command);
    assert_eq!(sent.code, 0, "{}", sent.stderr);
    assert!(sent.stderr.contains("nothing to send: the datastore has attempt 0"), "{sent:?}");
    assert_eq!(sandbox.run_with(&datastore.url, UNPLANNED).code, 0);
    assert_eq!(made(&sandbox), 1, "the datastore's record is enough");
    let again = sandbox.run_with(&datastore.url, &[UNPLANNED, &["--again"]].concat());
    assert_eq!((again.code, made(&sandbox)), (0, 2), "{}", again.stderr);
}

/// What answers 412 may be no datastore: only a stored record shows that the apply is recorded.
#[tokio::test(flavor = "multi_thread")]
async fn record_that_is_refused_as_existing_but_does_not_exist_is_kept_and_sent_later() {
    let datastore = TestDatastore::memory().await;
    let sandbox = Sandbox::new(RUNNER).hello().fake_terraform("");
    let refused = |part| Fault { method: "PUT", part, status: 412, times: usize::MAX };
    let refused = ["name=applied.json", "/api/applied"].map(refused);
    let proxy = faulty(&datastore, &refused).await;
    let order = [UNPLANNED, &["--order-key", "k"]].concat();

    let ended = sandbox.run_with(&proxy.url, &order);

    assert_eq!((ended.code, applies(&sandbox)), (10, 1), "{}", ended.stderr);
    assert!(ended.stderr.contains("412 Precondition Failed"), "{}", ended.stderr);
    let dir = unsent(&sandbox).join("default/x/a/0");
    for faults in [refused.to_vec(), vec![refused[1].clone()]] {
        proxy.set_faults(faults);
        let sent = sandbox.run(&upload(&proxy.url, &dir));
        assert_eq!(sent.code, 10, "{}", sent.stderr);
        assert!(sent.stderr.contains("/api/applied: 412"), "{}", sent.stderr);
    }
    proxy.set_faults(Vec::new());
    let again = sandbox.run_with(&proxy.url, &order);
    assert_eq!((again.code, applies(&sandbox)), (0, 1), "{}", again.stderr);
    assert!(!dir.exists());
    let stored = StoredRun::new(&datastore, "default", "x", "a");
    assert_eq!(json(&stored.artifact("applied.json", 0).await)["applied"], "unplanned");
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
    mute.set_faults(Vec::new());
    let ended = sandbox.run_with(&mute.url, UNPLANNED);
    assert_eq!((ended.code, applies(&sandbox)), (0, 1), "{}", ended.stderr);
    assert_eq!(report(&datastore, "x", "a", 0).await["outcome"], "applied");
}

#[tokio::test(flavor = "multi_thread")]
async fn scratch_directory_is_kept_if_the_state_directory_is_not_writable() {
    let datastore = TestDatastore::memory().await;
    let sandbox = counted();
    std::fs::write(sandbox.path("home/.local"), "a file").unwrap();
    let sick = faulty(&datastore, &[lost("name=run.json", 1)]).await;
    let ended = sandbox.run_with(&sick.url, UNPLANNED);
    assert_eq!((ended.code, made(&sandbox)), (10, 1), "{}", ended.stderr);
    let command = advised(&ended);
    assert!(command.contains(sandbox.path("tmp").to_str().unwrap()), "{command}");
    sick.set_faults(vec![lost("", usize::MAX)]);
    let again = sandbox.run_with(&sick.url, UNPLANNED);
    assert_eq!(made(&sandbox), 1, "{}", again.stderr);
    assert!(again.stderr.contains("nothing is applied again"), "{}", again.stderr);
    sick.set_faults(Vec::new());
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

    let ended = sandbox.run(&upload(&datastore.url, &dir));

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
    mute.set_faults(Vec::new());
    let ended = sandbox.run_with(&mute.url, &["upload", dir.to_str().unwrap()]);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
}

#[tokio::test(flavor = "multi_thread")]
async fn files_for_another_datastore_wait_for_it() {
    let (datastore, other) = (TestDatastore::memory().await, TestDatastore::memory().await);
    let sandbox = Sandbox::new(RUNNER).hello().fake_terraform("");
    let first = lost_everything(&datastore).await;
    assert_eq!(sandbox.run_with(&first.url, UNPLANNED).code, 10);
    let dir = unsent(&sandbox).join("default/x/a/0");

    let ended = sandbox.run_with(&other.url, UNPLANNED);

    assert_eq!((ended.code, applies(&sandbox)), (0, 2), "{}", ended.stderr);
    let command = format!("--datastore {} {}", first.url, dir.display()).replace("/ ", " ");
    assert!(advised(&ended).ends_with(&command), "{command}: {}", ended.stderr);
    assert!(dir.join("applied.json").exists());
    let second = StoredRun::new(&other, "default", "x", "a");
    assert_eq!(second.names(0).await.len(), 5, "{:?}", second.names(0).await);

    first.set_faults(Vec::new());
    let ended = sandbox.run_with(&first.url, UNPLANNED);
    assert_eq!((ended.code, applies(&sandbox)), (0, 2), "{}", ended.stderr);
    assert!(!unsent(&sandbox).join("default").exists());
    let stored = StoredRun::new(&datastore, "default", "x", "a").names(0).await;
    assert!(stored.contains(&"applied.json".to_owned()), "{stored:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn stored_plan_is_applied_once_also_if_its_record_waits_for_another_datastore() {
    let datastore = TestDatastore::memory().await;
    let sandbox = Sandbox::new(RUNNER).hello().fake_terraform("");
    assert_eq!(sandbox.run_with(&datastore.url, &["plan", "--name", "x", "--run", "p"]).code, 0);
    let apply = ["apply", "--name", "x", "--plan", "p", "--run", "a"];
    let first = lost_everything(&datastore).await;
    assert_eq!(sandbox.run_with(&first.url, &apply).code, 10);
    let dir = unsent(&sandbox).join("default/x/a/0");
    let ended = sandbox.run_with(&datastore.url, &[&apply[..6], &["b"]].concat());
    assert_eq!((ended.code, applies(&sandbox)), (0, 1), "{}", ended.stderr);
    assert!(advised(&ended).contains(dir.to_str().unwrap()), "{}", ended.stderr);
    assert!(dir.join("applied.json").exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn files_of_one_attempt_in_two_datastores_are_kept_in_two_directories() {
    let datastores = [TestDatastore::memory().await, TestDatastore::memory().await];
    let sandbox = Sandbox::new(RUNNER).hello().fake_terraform("");
    let attempts = unsent(&sandbox).join("default/x/a");
    let mut kept = Vec::new();
    for (datastore, name) in datastores.iter().zip(["0", "0-2"]) {
        let lossy = lost_everything(datastore).await;
        let ended = sandbox.run_with(&lossy.url, UNPLANNED);
        assert_eq!(ended.code, 10, "{}", ended.stderr);
        let command = format!("{}`", attempts.join(name).display());
        assert!(ended.stderr.contains(&command), "{command}: {}", ended.stderr);
        kept.push((datastore, lossy, attempts.join(name)));
    }
    assert_eq!(applies(&sandbox), 2);
    for (_, lossy, dir) in &kept {
        let url = std::fs::read_to_string(dir.join("datastore.url")).unwrap();
        assert_eq!(url.trim(), lossy.url.as_str().trim_end_matches('/'));
    }
    for (datastore, lossy, dir) in kept {
        lossy.set_faults(Vec::new());
        let ended = sandbox.run_with(&lossy.url, &["upload", dir.to_str().unwrap()]);
        assert_eq!(ended.code, 0, "{}", ended.stderr);
        assert!(!dir.exists());
        let stored = StoredRun::new(datastore, "default", "x", "a").names(0).await;
        assert!(stored.contains(&"applied.json".to_owned()), "{stored:?}");
    }
}

/// Older versions did not write it.
#[tokio::test(flavor = "multi_thread")]
async fn files_without_a_recorded_datastore_are_sent_to_that_of_the_next_run() {
    let datastore = TestDatastore::memory().await;
    let sandbox = Sandbox::new(RUNNER).hello().fake_terraform("");
    let lossy = lost_everything(&datastore).await;
    assert_eq!(sandbox.run_with(&lossy.url, UNPLANNED).code, 10);
    let dir = unsent(&sandbox).join("default/x/a/0");
    std::fs::remove_file(dir.join("datastore.url")).unwrap();
    let ended = sandbox.run_with(&datastore.url, UNPLANNED);
    assert_eq!((ended.code, applies(&sandbox)), (0, 1), "{}", ended.stderr);
    assert!(!unsent(&sandbox).join("default").exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn retry_removes_the_kept_record_that_the_datastore_has() {
    let datastore = TestDatastore::memory().await;
    let sandbox = Sandbox::new(RUNNER).hello().fake_terraform("");
    assert_eq!(sandbox.run_with(&datastore.url, &["plan", "--name", "x", "--run", "p"]).code, 0);
    let planned = ["apply", "--name", "x", "--plan", "p", "--run", "b"];
    let mute = faulty(&datastore, &[]).await;
    let logs = || mute.seen().iter().filter(|line| line.starts_with("PUT /api/logs")).count();
    for (args, done) in [(UNPLANNED, 1), (&planned[..], 2)] {
        let hangs = Fault { method: "PUT", part: "/api/logs", status: 0, times: usize::MAX };
        mute.set_faults(vec![hangs]);
        let before = logs();
        let runner = sandbox.start(Some(&mute.url), args);
        let run = args[args.len() - 1];
        let record = unsent(&sandbox).join("default/x").join(run).join("0/applied.json");
        tokio::task::block_in_place(|| {
            eventually("it sends the log", || logs() > before);
        });
        runner.signal("KILL");
        assert_eq!(runner.wait().code, -1);
        assert!(record.exists());
        mute.set_faults(Vec::new());
        let ended = sandbox.run_with(&mute.url, args);
        assert_eq!((ended.code, applies(&sandbox)), (0, done), "{}", ended.stderr);
        assert!(ended.stderr.contains("nothing is applied again"), "{}", ended.stderr);
        assert!(!unsent(&sandbox).join("default").exists(), "{}", ended.stderr);
    }
}

/// One with the same meaning in other bytes, as an older version may have written it, is removed; another is not.
#[tokio::test(flavor = "multi_thread")]
async fn retry_keeps_a_record_that_differs_from_the_stored_one() {
    let datastore = TestDatastore::memory().await;
    let sandbox = Sandbox::new(RUNNER).hello().fake_terraform("");
    assert_eq!(sandbox.run_with(&datastore.url, UNPLANNED).code, 0);
    let stored = StoredRun::new(&datastore, "default", "x", "a");
    let record = String::from_utf8(stored.artifact("applied.json", 0).await).unwrap();
    let dir = unsent(&sandbox).join("default/x/a/0");
    for (text, stays) in [("\"attempt\": 7", true), ("\"attempt\":0", false)] {
        std::fs::create_dir_all(&dir).unwrap();
        let kept = record.replace("\"attempt\": 0", text);
        assert_ne!(kept, record);
        std::fs::write(dir.join("applied.json"), kept).unwrap();
        let ended = sandbox.run_with(&datastore.url, UNPLANNED);
        assert_eq!((ended.code, applies(&sandbox)), (0, 1), "{}", ended.stderr);
        assert_eq!(dir.exists(), stays, "{}", ended.stderr);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn unsent_files_are_kept_below_the_state_directory_that_a_variable_names() {
    let datastore = TestDatastore::memory().await;
    let sandbox = Sandbox::new(RUNNER).hello().fake_terraform("");
    let lossy = lost_everything(&datastore).await;
    let state = sandbox.path("state");
    let run = || {
        let mut command = sandbox.command(UNPLANNED);
        command.env("XDG_STATE_HOME", &state).env("PLANCHA_DATASTORE_URL", lossy.url.as_str());
        Ended::from(command.output().unwrap())
    };
    let ended = run();
    assert_eq!(ended.code, 10, "{}", ended.stderr);
    let dir = state.join("plancha/unsent/default/x/a/0");
    assert!(advised(&ended).ends_with(&dir.display().to_string()), "{}", ended.stderr);
    assert!(dir.join("applied.json").exists());
    assert!(!sandbox.path("home/.local").exists());
    // The next run finds the record there.
    lossy.set_faults(Vec::new());
    let ended = run();
    assert_eq!((ended.code, applies(&sandbox)), (0, 1), "{}", ended.stderr);
    assert!(!dir.exists());
}

/// It may be that of the same order, and to apply twice is worse than not to apply.
#[tokio::test(flavor = "multi_thread")]
async fn kept_record_that_cannot_be_read_refuses_the_applies_it_may_be_of() {
    let datastore = TestDatastore::memory().await;
    let sandbox = Sandbox::new(RUNNER).hello().fake_terraform("");
    assert_eq!(sandbox.run_with(&datastore.url, &["plan", "--name", "x", "--run", "p"]).code, 0);
    let lossy = lost_everything(&datastore).await;
    assert_eq!(sandbox.run_with(&lossy.url, UNPLANNED).code, 10);
    lossy.set_faults(Vec::new());
    let dir = unsent(&sandbox).join("default/x/a/0");
    let record = std::fs::read_to_string(dir.join("applied.json")).unwrap();
    let later = record.replace("\"version\": 1", "\"version\": 9");
    let changed = record.replace("\"attempt\": 0", "\"attempt\": 7");
    let planned = ["apply", "--name", "x", "--plan", "p", "--run", "b"];
    let keyed = ["apply", "--no-plan", "--name", "x", "--run", "k", "--order-key", "k"];
    for (text, code, expected) in [
        (&record[..20], 9, "EOF while parsing"),
        ("[]", 9, "invalid"),
        (&changed, 9, "its digest is not the one in SHA256SUMS"),
        (&later, 8, "it has version 9, which this runner does not know"),
    ] {
        std::fs::write(dir.join("applied.json"), text).unwrap();
        for args in [UNPLANNED, &planned, &keyed] {
            let ended = sandbox.run_with(&lossy.url, args);
            assert_eq!((ended.code, applies(&sandbox)), (code, 1), "{text}: {}", ended.stderr);
            let file = dir.join("applied.json").display().to_string();
            let next = if args == planned { "plan again if it was\n" } else { "--again" };
            for expected in [expected, &file, "this may have been applied", "remove the file", next]
            {
                assert!(ended.stderr.contains(expected), "{expected}: {}", ended.stderr);
            }
        }
    }
    // It cannot be of another run that makes its own plan.
    let other = ["apply", "--no-plan", "--name", "x", "--run", "c"];
    let again = [UNPLANNED, &["--again"]].concat();
    for (args, done) in [(&other[..], 2), (&again, 3)] {
        let ended = sandbox.run_with(&lossy.url, args);
        assert_eq!((ended.code, applies(&sandbox)), (0, done), "{}", ended.stderr);
        assert!(ended.stderr.contains("cannot be read: it has version 9"), "{}", ended.stderr);
    }

    // For a stored plan the next step leads to an apply, whether this was applied or not.
    let refused = sandbox.run_with(&lossy.url, &planned);
    let expected = "remove the file; then run again if it was not applied, plan again if it was\n";
    assert!(refused.stderr.contains(expected), "{}", refused.stderr);
    std::fs::remove_file(dir.join("applied.json")).unwrap();
    assert_eq!(sandbox.run_with(&lossy.url, &["plan", "--name", "x", "--run", "q"]).code, 0);
    let planned_again = ["apply", "--name", "x", "--plan", "q", "--run", "d"];
    for (args, done) in [(planned, 4), (planned_again, 5)] {
        let ended = sandbox.run_with(&lossy.url, &args);
        assert_eq!((ended.code, applies(&sandbox)), (0, done), "{}", ended.stderr);
    }
}
