//! A plan is applied once: no message of ours leads to a second apply, and no run replaces another's files.

mod empty_plan;
mod order;
mod other_code;

use std::path::PathBuf;
use std::process::Stdio;

use serde_json::Value;
use support::{
    CLAIMED, Ended, Fault, FaultyDatastore, Sandbox, Started, TestDatastore, eventually,
};
use url::Url;

use crate::stored_run::StoredRun;
use crate::{RUNNER, json};

const PLAN: &[&str] = &["plan", "--layer", "layer.yaml", "--run", "p"];
const APPLY: &[&str] = &["apply", "--layer", "layer.yaml", "--run", "a"];
pub(crate) const UNPLANNED: &[&str] = &["apply", "--no-plan", "--name", "x", "--run", "a"];
const ALWAYS: usize = usize::MAX;

/// A module whose every apply creates its resource anew, and counts that.
pub(crate) fn counted() -> Sandbox {
    let sandbox = Sandbox::new(RUNNER);
    sandbox.write(
        "main.tf",
        "resource \"terraform_data\" \"x\" {\n  triggers_replace = uuid()\n  \
         provisioner \"local-exec\" {\n    command = \"echo made >> made\"\n  }\n}\n",
    );
    sandbox
}

pub(crate) fn made(sandbox: &Sandbox) -> usize {
    std::fs::read_to_string(sandbox.work().join("made")).unwrap_or_default().lines().count()
}

pub(crate) fn applies(sandbox: &Sandbox) -> usize {
    sandbox.calls().iter().filter(|call| call.starts_with("apply")).count()
}

pub(crate) fn lost(part: &'static str, times: usize) -> Fault {
    Fault { method: "PUT", part, status: 403, times }
}

pub(crate) async fn faulty(datastore: &TestDatastore, faults: &[Fault]) -> FaultyDatastore {
    FaultyDatastore::before(&datastore.url, faults.to_vec()).await
}

pub(crate) async fn report(
    datastore: &TestDatastore,
    layer: &str,
    run: &str,
    attempt: u32,
) -> Value {
    let stored = StoredRun::new(datastore, "default", layer, run);
    json(&stored.artifact("run.json", attempt).await)
}

pub(crate) fn unsent(sandbox: &Sandbox) -> PathBuf {
    sandbox.path("home/.local/state/plancha/unsent")
}

/// One that refuses every upload and answers every read.
pub(crate) async fn lost_everything(datastore: &TestDatastore) -> FaultyDatastore {
    faulty(datastore, &[lost("", ALWAYS)]).await
}

/// A datastore that takes no upload and never says so.
pub(crate) async fn mute(datastore: &TestDatastore) -> FaultyDatastore {
    faulty(datastore, &[Fault { method: "PUT", part: "", status: 0, times: ALWAYS }]).await
}

#[tokio::test(flavor = "multi_thread")]
async fn runner_killed_right_after_the_apply_leaves_the_apply_record() {
    let datastore = TestDatastore::memory().await;
    let sandbox = Sandbox::new(RUNNER).hello().fake_terraform("");
    let mute = mute(&datastore).await;
    let runner = sandbox.start(Some(&mute.url), UNPLANNED);
    tokio::task::block_in_place(|| {
        eventually("it stores", || mute.seen().iter().any(|line| line.starts_with("PUT")));
    });
    runner.signal("KILL");
    assert_eq!(runner.wait().code, -1);
    mute.set_faults(Vec::new());
    let ended = sandbox.run_with(&mute.url, UNPLANNED);
    assert_eq!((ended.code, applies(&sandbox)), (0, 1), "{}", ended.stderr);
    assert!(!unsent(&sandbox).join("default").exists(), "it was sent on the way");
}

#[tokio::test(flavor = "multi_thread")]
async fn plan_is_applied_once_across_runs() {
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
/// Plans of one second can have the same bytes, in two directories with one layer name.
#[tokio::test(flavor = "multi_thread")]
async fn equal_plan_counts_as_applied_in_its_directory_and_is_refused_in_another() {
    let datastore = TestDatastore::memory().await;
    let constant = "case \"$*\" in plan*) echo same > \"$OUT\"; exit;; esac";
    let sandbox = Sandbox::new(RUNNER).fake_terraform(constant);
    let run = |dir: &str, args: &[&str]| {
        let mut command = sandbox.command(args);
        command.env("PLANCHA_DATASTORE_URL", datastore.url.as_str());
        Ended::from(command.current_dir(sandbox.work().join(dir)).output().unwrap())
    };
    for (dir, plan) in [("a/vpc", "va"), ("b/vpc", "vb")] {
        sandbox.write(&format!("{dir}/main.tf"), "");
        let ended = run(dir, &["plan", "--run", plan]);
        assert_eq!(ended.code, 0, "{}", ended.stderr);
    }
    for _ in 0..2 {
        assert_eq!(run("a/vpc", &["apply", "--plan", "va"]).code, 0);
        assert_eq!(applies(&sandbox), 1);
    }
    // In the same directory it is the same plan.
    assert_eq!(run("a/vpc", &["plan", "--run", "again"]).code, 0);
    let ended = run("a/vpc", &["apply"]);
    assert_eq!((ended.code, applies(&sandbox)), (0, 1), "{}", ended.stderr);
    assert!(ended.stderr.contains("has applied this"), "{}", ended.stderr);
    let ended = run("b/vpc", &["apply", "--plan", "vb"]);
    assert_eq!((ended.code, applies(&sandbox)), (9, 1), "{}", ended.stderr);
    let expected = "the plan of run vb/0 has the same bytes as the plan of run va/0, which run ";
    assert!(ended.stderr.contains(expected), "{}", ended.stderr);
    assert!(ended.stderr.contains("plan again"), "{}", ended.stderr);
}

#[tokio::test(flavor = "multi_thread")]
async fn unsent_apply_record_prevents_a_second_apply() {
    let datastore = TestDatastore::memory().await;
    let sandbox = Sandbox::new(RUNNER).hello().fake_terraform("");
    assert_eq!(sandbox.run_with(&datastore.url, PLAN).code, 0);
    let planned = sandbox.read("layer.yaml");
    let lossy = lost_everything(&datastore).await;
    assert_eq!(sandbox.run_with(&lossy.url, APPLY).code, 10);
    sandbox.write("layer.yaml", &planned);
    let other = ["apply", "--layer", "layer.yaml", "--run", "b"];
    lossy.set_faults(Vec::new());
    let ended = sandbox.run_with(&lossy.url, &other);
    assert_eq!((ended.code, applies(&sandbox)), (0, 1), "{}", ended.stderr);
    assert!(!unsent(&sandbox).join("default").exists(), "it was sent on the way");
    let names = StoredRun::new(&datastore, "default", "hello", "a").names(0).await;
    assert!(names.contains(&"applied.json".to_owned()), "{names:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn annotations_that_failed_are_written_by_the_suggested_second_run() {
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
async fn concurrent_runs_with_one_name_get_separate_attempts() {
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
    let stored = StoredRun::new(&datastore, "default", "x", "same");
    for attempt in 0..16 {
        let bin = stored.plan("bin", attempt).await;
        let plan = &report(&datastore, "x", "same", attempt).await["plan"];
        assert_eq!(plan["sha256"], datastore_api::Sha256::of(&bin).to_string());
        assert_eq!(plan["attempt"], attempt);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn taken_attempt_number_is_refused() {
    let datastore = TestDatastore::memory().await;
    let sandbox = Sandbox::new(RUNNER).hello().fake_terraform("");
    let plan = |attempt| ["plan", "--name", "x", "--run", "r", "--attempt", attempt];
    assert_eq!(sandbox.run_with(&datastore.url, &plan("3")).code, 0);
    let before = sandbox.calls().len();
    let url =
        format!("{}api/attempts?namespace=default&layer=x&run=r&attempt=4&claim=c", datastore.url);
    assert_eq!(reqwest::Client::new().post(url).send().await.unwrap().status(), 200);
    for (attempt, expected) in [("3", "is already stored"), ("4", "is claimed by another run")] {
        let ended = sandbox.run_with(&datastore.url, &plan(attempt));
        assert_eq!(ended.code, 8, "{}", ended.stderr);
        assert!(ended.stderr.contains(expected), "{}", ended.stderr);
    }
    assert_eq!(sandbox.calls().len(), before, "not even initialized");
    assert_eq!(sandbox.run_with(&datastore.url, &plan("2")).code, 0);
    assert_eq!(sandbox.run_with(&datastore.url, &plan("2")[..5]).code, 0);
    assert_eq!(report(&datastore, "x", "r", 5).await["outcome"], "changes");
}

#[tokio::test(flavor = "multi_thread")]
async fn run_without_a_free_attempt_number_is_refused() {
    let datastore = TestDatastore::memory().await;
    let sandbox = Sandbox::new(RUNNER).hello().fake_terraform("");
    let refused = |url: &Url, run: &str, attempt: &[&str]| {
        let args = [&["plan", "--name", "x", "--run", run], attempt].concat();
        let ended = sandbox.run_with(url, &args);
        assert_eq!(ended.code, 8, "{}", ended.stderr);
        let expected = format!("run {run} has no free attempt number left: attempt 4294967295");
        for text in [&*expected, "use another --run"] {
            assert!(ended.stderr.contains(text), "{text}: {}", ended.stderr);
        }
        assert!(!ended.stderr.contains("leave out --attempt"), "{}", ended.stderr);
    };
    let stored = StoredRun::new(&datastore, "default", "x", "stored");
    stored.put_log(u32::MAX, b"a log".to_vec()).await;
    refused(&datastore.url, "stored", &[]);
    let claim = "api/attempts?namespace=default&layer=x&run=claimed&attempt=4294967295&claim=c";
    let claimed = reqwest::Client::new().post(datastore.url.join(claim).unwrap()).send().await;
    assert_eq!(claimed.unwrap().status(), 200);
    refused(&datastore.url, "claimed", &[]);
    assert!(sandbox.calls().is_empty(), "not even initialized");
    // The last attempt holds other plan files when the plan is stored, and there is no next one.
    let taken = Fault { method: "PUT", part: "format=bin", status: 412, times: 1 };
    let taken = faulty(&datastore, &[taken]).await;
    refused(&taken.url, "moved", &["--attempt", "4294967295"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn claiming_ends_where_every_claim_is_refused() {
    let datastore = TestDatastore::memory().await;
    let sandbox = Sandbox::new(RUNNER).hello().fake_terraform("");
    for (status, code, tries, text) in [
        (409, 10, 1, "409 Conflict"),
        (CLAIMED, 8, 1000, "the datastore answers for each of 1000 numbers up to 999"),
    ] {
        let fault = Fault { method: "POST", part: "/api/attempts", status, times: ALWAYS };
        let proxy = faulty(&datastore, &[fault]).await;
        let ended = sandbox.run_with(&proxy.url, UNPLANNED);
        assert_eq!((ended.code, applies(&sandbox)), (code, 0), "{}", ended.stderr);
        assert!(ended.stderr.contains(text), "{}", ended.stderr);
        let claims = proxy.seen().iter().filter(|line| line.starts_with("POST")).count();
        assert_eq!(claims, tries, "{text}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn failed_retry_keeps_the_files_of_the_apply() {
    let datastore = TestDatastore::memory().await;
    let sandbox = Sandbox::new(RUNNER).hello().fake_terraform("");
    assert_eq!(sandbox.run_with(&datastore.url, PLAN).code, 0);
    assert_eq!(sandbox.run_with(&datastore.url, APPLY).code, 0);
    let stored = StoredRun::new(&datastore, "default", "hello", "a");
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
async fn apply_recorded_by_an_older_version_is_not_repeated() {
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
fn again_flag_is_only_for_applies_without_a_plan() {
    let sandbox = Sandbox::new(RUNNER).hello().fake_terraform("");
    let datastore: Url = "http://127.0.0.1:9".parse().unwrap();
    let ended = sandbox.run_with(&datastore, &["apply", "--again"]);
    assert_eq!(ended.code, 64, "{}", ended.stderr);
}

/// A proxy that has lost its datastore for a moment says "not found" of everything.
#[tokio::test(flavor = "multi_thread")]
async fn proxys_404_does_not_allow_a_second_apply() {
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

/// What is in a directory of locks after the last apply.
fn lock_files(sandbox: &Sandbox, dir: &str) -> usize {
    let dir = sandbox.path("home/.local/state/plancha").join(dir);
    std::fs::read_dir(dir).unwrap().count()
}

/// All are given the same order at once: one applies, the others find its record.
#[tokio::test(flavor = "multi_thread")]
async fn one_of_several_concurrent_runners_applies() {
    let datastore = TestDatastore::memory().await;
    let sandbox = Sandbox::new(RUNNER).hello().fake_terraform("[ $STEP = version ] || sleep 0.3");
    let runners = [(); 6].map(|()| sandbox.start(Some(&datastore.url), UNPLANNED));
    for runner in runners {
        let ended = runner.wait();
        assert_eq!(ended.code, 0, "{}", ended.stderr);
    }
    assert_eq!(applies(&sandbox), 1);
    assert_eq!(lock_files(&sandbox, "applying"), 0);
}

/// The same for a stored plan, whatever the names of the runs are.
#[tokio::test(flavor = "multi_thread")]
async fn one_of_several_concurrent_runners_applies_a_plan() {
    let datastore = TestDatastore::memory().await;
    let sandbox = Sandbox::new(RUNNER).hello().fake_terraform("[ $STEP != apply ] || sleep 1");
    let plan = ["plan", "--name", "x"];
    assert_eq!(sandbox.run_with(&datastore.url, &plan).code, 0);
    let orders: [&[&str]; 3] = [
        &["apply", "--name", "x"],
        &["apply", "--name", "x"],
        &["apply", "--name", "x", "--run", "a"],
    ];
    let runners = orders.map(|order| sandbox.start(Some(&datastore.url), order));
    for runner in runners {
        let ended = runner.wait();
        assert_eq!(ended.code, 0, "{}", ended.stderr);
    }
    assert_eq!(applies(&sandbox), 1);
    assert_eq!(lock_files(&sandbox, "applying-plans"), 0);
}

/// Without a datastore there is no record: the tool itself refuses the plan that is no longer current.
#[test]
fn plan_file_is_applied_by_one_runner_at_a_time() {
    let sandbox = Sandbox::new(RUNNER);
    sandbox.write(
        "main.tf",
        "terraform {\n  backend \"local\" {}\n}\nresource \"terraform_data\" \"x\" {\n  \
         provisioner \"local-exec\" {\n    command = \"sleep 2; echo made >> made\"\n  }\n}\n",
    );
    let unlocked = |args: &[&str]| {
        let mut command = sandbox.command(args);
        command.env("TF_CLI_ARGS_apply", "-lock=false");
        command
    };
    let planned = sandbox.run(&["plan", "--plan-file", "x.plan"]);
    assert_eq!(planned.code, 0, "{}", planned.stderr);
    let runners = [(); 3].map(|()| Started::spawn(unlocked(&["apply", "--plan-file", "x.plan"])));
    let codes = runners.map(|runner| runner.wait().code);
    assert_eq!(codes.iter().filter(|code| **code == 0).count(), 1, "{codes:?}");
    assert_eq!(made(&sandbox), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn run_that_cannot_be_locked_is_applied_with_a_warning_that_names_the_path() {
    let sandbox = Sandbox::new(RUNNER).hello().fake_terraform("");
    let locks = sandbox.path("home/.local/state/plancha/applying/default/x");
    std::fs::create_dir_all(locks.parent().unwrap()).unwrap();
    for is_dir in [false, true] {
        if is_dir {
            // The name of the lock is taken by a directory.
            std::fs::remove_file(&locks).unwrap();
            std::fs::create_dir_all(locks.join("a")).unwrap();
        } else {
            std::fs::write(&locks, "").unwrap();
        }
        let datastore = TestDatastore::memory().await;
        let ended = sandbox.run_with(&datastore.url, UNPLANNED);
        assert_eq!(ended.code, 0, "{}", ended.stderr);
        let warning = "WARN cannot lock the run default/x/a, so another runner may apply it at the same time: ";
        let (_, reason) = ended.stderr.split_once(warning).expect(&ended.stderr);
        assert!(reason.lines().next().unwrap().contains(&*locks.to_string_lossy()), "{reason}");
    }
}

/// The same names in another directory are another order, which is not done.
#[tokio::test(flavor = "multi_thread")]
async fn run_that_another_place_has_applied_is_refused() {
    let datastore = TestDatastore::memory().await;
    let sandbox = Sandbox::new(RUNNER).fake_terraform("");
    let apply = |dir: &str, args: &[&str]| {
        sandbox.write(&format!("{dir}/main.tf"), "");
        let args = [&["apply", dir][..], &UNPLANNED[1..], args].concat();
        sandbox.run_with(&datastore.url, &args)
    };
    for top in ["plain", "repository"] {
        if top == "repository" {
            crate::source::checkout::git(&sandbox.work(), &["init", "--quiet"]);
        }
        let (dev, prod) = (format!("{top}/dev/vpc"), format!("{top}/prod/vpc"));
        let done = applies(&sandbox);
        let named = ["--namespace", top];
        assert_eq!(apply(&dev, &named).code, 0);
        let ended = apply(&prod, &named);
        assert_eq!((ended.code, applies(&sandbox)), (9, done + 1), "{}", ended.stderr);
        for text in [&*dev, &*prod, "run a was applied elsewhere", "nothing was applied"] {
            assert!(ended.stderr.contains(text), "{text}: {}", ended.stderr);
        }
        assert_eq!(apply(&dev, &named).code, 0);
        assert_eq!(applies(&sandbox), done + 1);
        assert_eq!(apply(&prod, &["--namespace", top, "--again"]).code, 0);
        assert_eq!(applies(&sandbox), done + 2);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn key_that_another_place_has_applied_is_named_in_the_advice() {
    let datastore = TestDatastore::memory().await;
    let sandbox = Sandbox::new(RUNNER).fake_terraform("");
    let apply = |dir: &str, key: &str| {
        sandbox.write(&format!("{dir}/main.tf"), "");
        let args = ["apply", dir, "--no-plan", "--name", "x", "--order-key", key];
        sandbox.run_with(&datastore.url, &args)
    };
    assert_eq!(apply("dev/vpc", "k").code, 0);
    let refused = apply("prod/vpc", "k");
    assert_eq!((refused.code, applies(&sandbox)), (9, 1), "{}", refused.stderr);
    let advice =
        "use another --order-key or --name for this place, or apply it under this key with --again";
    for words in ["the order `k` (run ", advice] {
        assert!(refused.stderr.contains(words), "{words}: {}", refused.stderr);
    }
    assert_eq!(apply("prod/vpc", "other").code, 0);
}
