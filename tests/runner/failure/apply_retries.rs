//! Applies that fail with transient errors: what is left is planned again, and applied if it was reviewed.
//!
//! The tool is a real terraform. A script before it gives the errors of provisioners the words of a provider.

use std::time::Duration;

use serde_json::Value;
use support::{Ended, Fault, FaultyDatastore, Sandbox, TestDatastore, eventually};

use crate::stored_run::StoredRun;
use crate::{RUNNER, json};

mod between_tries;

pub(crate) const BROKEN: &str =
    "creating thing: read: connection reset by peer (please retry after 10ms)";
const PLAN: &[&str] = &["plan", "--name", "x", "--run", "p"];
const APPLY: &[&str] = &["apply", "--name", "x", "--run", "a", "--plan", "p"];

/// A sandbox with that module in its working directory.
pub(crate) fn failing(times: usize, error: &str) -> Sandbox {
    let sandbox = Sandbox::new(RUNNER);
    let module = failing_module(&sandbox, times, error);
    sandbox.write("main.tf", &module);
    sandbox
}

/// A module whose second resource fails with this error as often as the file `fails` has lines, and a terraform that gives it
/// these words. After a failed apply it runs the script `pause`, if there is one, when it has printed the state.
pub(crate) fn failing_module(sandbox: &Sandbox, times: usize, error: &str) -> String {
    let script = format!(
        "#!/bin/sh
echo \"$*\" >> {calls}
if [ $1 = plan ] && [ -e {hold} ]; then
    echo > {held}
    while [ -e {hold} ]; do sleep 0.05; done
fi
if [ $1 = state ] && [ -e {out} ] && [ -e {pause} ]; then
    {terraform} \"$@\"
    mv {pause} {pause}.ran
    exec sh {pause}.ran > {pause}.out 2>&1
fi
case $1 in apply) ;; *) exec {terraform} \"$@\";; esac
{terraform} \"$@\" > {out} 2>&1
code=$?
sed -e 's/local-exec provisioner error/{error}/' -e '/^Error running command/,$d' {out}
if [ -e {kill} ] && [ $code = 0 ]; then kill -9 $PPID; fi
exit $code
",
        calls = sandbox.path("calls").display(),
        terraform = support::on_path("terraform").unwrap().display(),
        out = sandbox.path("out").display(),
        kill = sandbox.path("kill").display(),
        pause = sandbox.path("pause").display(),
        hold = sandbox.path("hold").display(),
        held = sandbox.path("held").display(),
    );
    sandbox.script("terraform", &script);
    let (made, fails) = (sandbox.path("made"), sandbox.path("fails"));
    std::fs::write(&fails, "x\n".repeat(times)).unwrap();
    let resource = |name: &str, input: &str, command: &str| {
        format!(
            "resource \"terraform_data\" \"{name}\" {{
  input = {input}
  provisioner \"local-exec\" {{
    command = \"{command}echo {name} >> {made}\"
  }}
}}
",
            made = made.display()
        )
    };
    let fails =
        format!("test ! -s {fails} || {{ sed -i 1d {fails}; exit 1; }}; ", fails = fails.display());
    resource("first", "\"x\"", "")
        + &resource("second", "terraform_data.first.id", &fails)
        + &resource("third", "terraform_data.second.id", "")
}

pub(crate) fn applies(sandbox: &Sandbox) -> usize {
    sandbox.calls().iter().filter(|call| call.starts_with("apply")).count()
}

/// Whether the run has failed as the tool did.
fn is_failed(ended: &Ended) -> bool {
    ![0, 9].contains(&ended.code) && ended.stderr.contains("terraform apply failed")
}

/// What was created to its end, in this order.
pub(crate) fn made(sandbox: &Sandbox) -> String {
    let made = std::fs::read_to_string(sandbox.path("made")).unwrap_or_default();
    made.lines().collect::<Vec<_>>().join(" ")
}

async fn report(datastore: &TestDatastore, run: &str, attempt: u32) -> Value {
    let stored = StoredRun::new(datastore, "default", "x", run);
    json(&stored.artifact("run.json", attempt).await)
}

async fn names(datastore: &TestDatastore, attempt: usize) -> Vec<String> {
    StoredRun::new(datastore, "default", "x", "a").names(attempt).await
}

fn nothing_is_left(run: impl Fn(&[&str]) -> Ended) {
    let ended = run(&["plan", "--name", "x", "--run", "last", "--detailed-exitcode"]);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_failed_apply_has_left_is_applied_by_a_plan_of_its_own() {
    let datastore = TestDatastore::memory().await;
    let sandbox = failing(2, BROKEN);
    let run = |args: &[&str]| sandbox.run_with(&datastore.url, args);
    assert_eq!(run(PLAN).code, 0);

    let ended = run(APPLY);

    assert_eq!((ended.code, applies(&sandbox)), (0, 3), "{}\n{}", ended.stdout, ended.stderr);
    assert_eq!(made(&sandbox), "first second third");
    for line in [
        "terraform apply failed: transient (",
        "what is left was reviewed: Plan: 2 to create, 0 to update, 1 to delete",
        "the next try is attempt 2",
    ] {
        assert!(ended.stderr.contains(line), "{line}: {}", ended.stderr);
    }
    let planned = report(&datastore, "p", 0).await;
    let sha256 = &planned["plan"]["sha256"];
    for attempt in 0..2 {
        let failed = report(&datastore, "a", attempt).await;
        assert_eq!(failed["outcome"], "failed");
        assert_eq!(failed["next"], format!("tried again as attempt {}", attempt + 1));
        assert_eq!(failed["plan"]["sha256"], *sha256);
        assert!(failed["applied"].is_null(), "{failed}");
        let names = names(&datastore, attempt as usize).await;
        assert!(names.contains(&"run.log".to_owned()), "{names:?}");
        assert!(!names.contains(&"applied.json".to_owned()), "{names:?}");
    }
    let last = report(&datastore, "a", 2).await;
    assert_eq!((&last["outcome"], &last["exit"]), (&"applied".into(), &0.into()), "{last}");
    assert_eq!((&last["applied"], &last["parent"]), (sha256, sha256));
    assert_eq!(last["plan"]["counts"]["create"], 3, "the counts of the whole");
    let tries = last["tries"].as_array().unwrap();
    let created = tries.iter().map(|of| of["applied"]["create"].as_u64().unwrap());
    assert_eq!(created.collect::<Vec<_>>(), [1, 0, 2], "{last}");
    let numbers = tries.iter().map(|of| of["attempt"].as_u64().unwrap());
    assert_eq!(numbers.collect::<Vec<_>>(), [0, 1, 2]);
    assert_eq!(tries[0]["plan"], *sha256);
    assert_ne!(tries[1]["plan"], *sha256);
    let names = names(&datastore, 2).await;
    for name in ["applied.json", "remainder-2.bin", "remainder-2.json", "run.json", "run.log"] {
        assert!(names.contains(&name.to_owned()), "{name}: {names:?}");
    }
    let stored = StoredRun::new(&datastore, "default", "x", "a");
    let record = json(&stored.artifact("applied.json", 2).await);
    assert_eq!((&record["applied"], &record["attempt"]), (sha256, &2.into()));
    let ended = run(&["apply", "--name", "x", "--run", "b"]);
    assert_eq!((ended.code, applies(&sandbox)), (0, 3), "{}", ended.stderr);
    assert!(ended.stderr.contains("attempt 2 of run a has applied this"), "{}", ended.stderr);
    nothing_is_left(run);
    assert!(sandbox.is_clean());
}

#[tokio::test(flavor = "multi_thread")]
async fn retries_that_are_used_up_leave_a_failed_run_and_a_plan_that_is_not_applied() {
    let datastore = TestDatastore::memory().await;
    let sandbox = failing(9, BROKEN);
    let run = |args: &[&str]| sandbox.run_with(&datastore.url, args);
    assert_eq!(run(PLAN).code, 0);

    let ended = run(&[APPLY, &["--retries", "1"]].concat());

    assert!(is_failed(&ended), "{}", ended.stderr);
    assert_eq!(applies(&sandbox), 2, "{}", ended.stderr);
    assert!(ended.stderr.contains("its only retry is used up"), "{}", ended.stderr);
    let last = report(&datastore, "a", 1).await;
    assert_eq!(last["outcome"], "failed");
    let classes = last["tries"].as_array().unwrap().iter().map(|of| of["class"].as_str().unwrap());
    assert_eq!(classes.collect::<Vec<_>>(), ["transient"; 2], "{last}");
    assert!(!names(&datastore, 1).await.contains(&"applied.json".to_owned()));
    // The state is another one by now.
    assert_eq!(run(&["apply", "--name", "x", "--plan", "p"]).code, 9);
    std::fs::write(sandbox.path("fails"), "").unwrap();
    assert_eq!(run(&["plan", "--name", "x", "--run", "q"]).code, 0);
    assert_eq!(run(&["apply", "--name", "x", "--plan", "q"]).code, 0);
    assert_eq!(made(&sandbox), "first second third");
    nothing_is_left(run);
}

#[tokio::test(flavor = "multi_thread")]
async fn rest_that_was_not_reviewed_is_not_applied() {
    let datastore = TestDatastore::memory().await;
    let sandbox = failing(1, BROKEN);
    let code = sandbox.read("main.tf");
    // It changes a file before it fails. The name of the file is computed, so that the runner does not know it.
    let file = "trimspace(file(\"${path.module}/${terraform.workspace}.txt\"))";
    let more = format!(
        "resource \"terraform_data\" \"more\" {{\n  for_each = toset(split(\" \", {file}))\n}}\n"
    );
    sandbox.write("default.txt", "one");
    let change = "echo one more > default.txt; exit 1; }";
    sandbox.write("main.tf", &(code.replace("exit 1; }", change) + &more));
    let run = |args: &[&str]| sandbox.run_with(&datastore.url, args);
    assert_eq!(run(PLAN).code, 0);

    let ended = run(APPLY);

    assert_eq!((ended.code, applies(&sandbox)), (9, 1), "{}", ended.stderr);
    assert_eq!(made(&sandbox), "first");
    for part in [
        "connection reset by peer",
        "what is left cannot be applied: a new plan differs from the reviewed one",
        "terraform_data.more[\"more\"]: create is not in the reviewed plan",
        "what was applied is in the state; plan again",
    ] {
        assert!(ended.stderr.contains(part), "{part}: {}", ended.stderr);
    }
    assert!(!ended.stderr.contains("terraform_data.third:"), "{}", ended.stderr);
    let failed = report(&datastore, "a", 0).await;
    assert_eq!((&failed["exit"], &failed["class"]), (&9.into(), &"mismatch".into()));
    assert_eq!(StoredRun::new(&datastore, "default", "x", "a").names(1).await, [""; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn apply_whose_errors_are_not_all_transient_is_not_tried_again() {
    for error in
        ["creating thing: 403 Forbidden", "something else", "Error acquiring the state lock"]
    {
        let sandbox = failing(1, error);
        let datastore = TestDatastore::memory().await;
        assert_eq!(sandbox.run_with(&datastore.url, PLAN).code, 0);
        let ended = sandbox.run_with(&datastore.url, APPLY);
        assert_ne!(ended.code, 0, "{error}");
        assert_eq!(applies(&sandbox), 1, "{error}: {}", ended.stderr);
    }
    let sandbox = failing(1, BROKEN);
    let datastore = TestDatastore::memory().await;
    assert_eq!(sandbox.run_with(&datastore.url, PLAN).code, 0);
    let ended = sandbox.run_with(&datastore.url, &[APPLY, &["--retries", "0"]].concat());
    assert!(is_failed(&ended), "{}", ended.stderr);
    assert_eq!(applies(&sandbox), 1, "{}", ended.stderr);
    // The same plan would be refused.
    for part in [
        "; it is not known how these ended: terraform_data.second (create). next: resources may exist",
        "; every error is transient: plan again",
    ] {
        assert!(ended.stderr.contains(part), "{part}: {}", ended.stderr);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_time_limit_in_the_pause_says_what_was_applied_and_to_plan_again() {
    let sandbox = failing(1, &BROKEN.replace("10ms", "200 seconds"));
    let datastore = TestDatastore::memory().await;
    assert_eq!(sandbox.run_with(&datastore.url, PLAN).code, 0);
    let ended = sandbox.run_with(&datastore.url, &[APPLY, &["--timeout", "20s"]].concat());
    assert_eq!((ended.code, applies(&sandbox)), (11, 1), "{}", ended.stderr);
    for part in [
        "try 2 follows in 20",
        "terraform apply was stopped by the time limit of the run, 20s (--timeout); it had created 1,",
        "; it is not known how these ended: terraform_data.second (create). next: resources may exist",
        "; give the run more time with --timeout; plan again",
    ] {
        assert!(ended.stderr.contains(part), "{part}: {}", ended.stderr);
    }
}

/// The values of `--var` are not recorded, but in the reviewed plan; those in files and in the environment are the same in
/// both runs.
#[tokio::test(flavor = "multi_thread")]
async fn plan_is_made_again_with_the_options_of_the_reviewed_one() {
    for options in [
        &["--var", "v=\"${a}\\n\""][..],
        &["--", "-var", "v=1"],
        &["--var-file", "v.tfvars", "--var", "v=2"],
        &["--var-file", "v.tfvars"],
        &["--target", "terraform_data.second"],
    ] {
        let datastore = TestDatastore::memory().await;
        let sandbox = failing(1, BROKEN);
        let text = sandbox.read("main.tf").replace("input = \"x\"", "input = var.v");
        sandbox.write("main.tf", &format!("variable \"v\" {{ default = 0 }}\n{text}"));
        sandbox.write("v.tfvars", "v = 1\n");
        let run = |args: &[&str]| sandbox.run_with(&datastore.url, args);
        assert_eq!(run(&[PLAN, options].concat()).code, 0);

        let ended = run(APPLY);

        assert_eq!(ended.code, 0, "{options:?}: {}", ended.stderr);
        assert_eq!(applies(&sandbox), 2);
        assert_eq!(made(&sandbox).contains("third"), options[0] != "--target");
    }
}

/// A replacement that was ordered and made is not made again.
#[tokio::test(flavor = "multi_thread")]
async fn ordered_replacement_is_made_once() {
    for is_planned in [true, false] {
        let datastore = TestDatastore::memory().await;
        let sandbox = failing(0, BROKEN);
        let run = |args: &[&str]| sandbox.run_with(&datastore.url, args);
        assert_eq!(run(&["apply", "--no-plan", "--name", "x", "--run", "before"]).code, 0);
        std::fs::write(sandbox.path("fails"), "x\n").unwrap();
        let replace = &["--replace", "terraform_data.first", "--replace", "terraform_data.second"];
        let apply = if is_planned {
            assert_eq!(run(&[PLAN, replace].concat()).code, 0);
            APPLY.to_vec()
        } else {
            [&["apply", "--no-plan", "--name", "x", "--run", "a"], &replace[..]].concat()
        };

        let ended = run(&apply);

        assert_eq!(ended.code, 0, "{}\n{}", ended.stdout, ended.stderr);
        assert_eq!(made(&sandbox), "first second third first second", "{}", ended.stdout);
        let last = report(&datastore, "a", 1).await;
        assert_eq!(last["tries"].as_array().unwrap().len(), 2, "{last}");
        assert_eq!(last["parent"].is_string(), is_planned, "{last}");
        nothing_is_left(run);
    }
}

#[test]
fn what_the_failed_apply_of_a_plan_in_a_file_has_left_is_applied() {
    let sandbox = failing(1, BROKEN);
    let text = sandbox.read("main.tf").replace("input = \"x\"", "input = var.v");
    sandbox.write("main.tf", &format!("variable \"v\" {{ default = 0 }}\n{text}"));
    assert_eq!(sandbox.run(&["plan", "--plan-file", "p.bin", "--var", "v=1"]).code, 0);
    let ended = sandbox.run(&["apply", "--plan-file", "p.bin"]);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    assert_eq!(
        (applies(&sandbox), &*made(&sandbox)),
        (2, "first second third"),
        "{}",
        ended.stderr
    );
}

/// One of another runner, or of another plan.
#[test]
fn plan_in_a_file_is_not_tried_again_if_its_options_are_unknown() {
    let sandbox = failing(1, BROKEN);
    assert_eq!(sandbox.run(&["plan", "--plan-file", "p.bin"]).code, 0);
    let record = sandbox.read("p.bin.run.json");
    let mut document = json(record.as_bytes());
    document.as_object_mut().unwrap().remove("arguments").unwrap();
    sandbox.write("p.bin.run.json", &document.to_string());
    let ended = sandbox.run(&["apply", "--plan-file", "p.bin"]);
    assert!(is_failed(&ended), "{}", ended.stderr);
    assert_eq!(applies(&sandbox), 1, "{}", ended.stderr);
    assert!(
        ended.stderr.contains("the options of the plan are not recorded beside it"),
        "{}",
        ended.stderr
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn rest_whose_plan_cannot_be_stored_is_not_applied() {
    let datastore = TestDatastore::memory().await;
    let sandbox = failing(1, BROKEN);
    assert_eq!(sandbox.run_with(&datastore.url, PLAN).code, 0);
    let fault = Fault { method: "PUT", part: "name=remainder", status: 507, times: usize::MAX };
    let faulty = FaultyDatastore::before(&datastore.url, vec![fault]).await;
    let ended = sandbox.run_with(&faulty.url, APPLY);
    assert_eq!((ended.code, applies(&sandbox)), (10, 1), "{}", ended.stderr);
    assert!(ended.stderr.contains("connection reset by peer"), "{}", ended.stderr);
    assert_eq!(report(&datastore, "a", 0).await["exit"], 10);
}

/// In the pause, and while what is left is planned.
#[tokio::test(flavor = "multi_thread")]
async fn runner_that_ends_between_two_tries_has_applied_nothing_twice() {
    for (signal, is_planning) in [("KILL", false), ("TERM", false), ("KILL", true), ("TERM", true)]
    {
        let datastore = TestDatastore::memory().await;
        let pause = if is_planning { "10ms" } else { "60s" };
        let error = format!("creating thing: read: connection reset by peer, retry after {pause}");
        let sandbox = failing(1, &error);
        let run = |args: &[&str]| sandbox.run_with(&datastore.url, args);
        assert_eq!(run(PLAN).code, 0);
        let hold = sandbox.path("hold");
        std::fs::write(&hold, "").unwrap();
        let runner = sandbox.start(Some(&datastore.url), APPLY);
        eventually("the apply fails", || runner.said("connection reset by peer"));
        if is_planning {
            eventually("it plans again", || sandbox.path("held").exists());
        } else {
            std::thread::sleep(Duration::from_millis(500));
        }
        runner.signal(signal);
        let code = runner.wait().code;
        assert_eq!(code, if signal == "KILL" { -1 } else { 143 }, "{signal}");
        std::fs::remove_file(hold).unwrap();
        assert_eq!((applies(&sandbox), made(&sandbox).as_str()), (1, "first"));

        // The same plan is of an earlier state.
        let ended = run(APPLY);
        assert_eq!((ended.code, applies(&sandbox)), (9, 1), "{signal}: {}", ended.stderr);
        assert_eq!(run(&["plan", "--name", "x", "--run", "q"]).code, 0);
        let ended = run(&["apply", "--name", "x", "--run", "b", "--plan", "q"]);
        assert_eq!(ended.code, 0, "{signal}: {}", ended.stderr);
        assert_eq!(made(&sandbox), "first second third");
        nothing_is_left(run);
    }
}

/// The tool has completed the rest when its runner is killed: the record is that of the reviewed plan.
#[tokio::test(flavor = "multi_thread")]
async fn rest_that_was_applied_by_a_killed_runner_is_recorded_and_not_repeated() {
    let datastore = TestDatastore::memory().await;
    let sandbox = failing(1, BROKEN);
    let run = |args: &[&str]| sandbox.run_with(&datastore.url, args);
    assert_eq!(run(PLAN).code, 0);
    std::fs::write(sandbox.path("kill"), "").unwrap();
    assert_eq!(run(APPLY).code, -1);
    std::fs::remove_file(sandbox.path("kill")).unwrap();
    assert_eq!(made(&sandbox), "first second third");

    let ended = run(APPLY);

    assert_eq!((ended.code, applies(&sandbox)), (0, 2), "{}", ended.stderr);
    assert!(ended.stderr.contains("attempt 1 of run a has applied this"), "{}", ended.stderr);
    let stored = StoredRun::new(&datastore, "default", "x", "a");
    let record = json(&stored.artifact("applied.json", 1).await);
    assert_eq!(record["applied"], report(&datastore, "p", 0).await["plan"]["sha256"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn last_ledger_of_a_failed_try_is_stored_before_the_next_one() {
    let datastore = TestDatastore::memory().await;
    let sandbox = failing(1, BROKEN);
    assert_eq!(sandbox.run_with(&datastore.url, PLAN).code, 0);
    let fault = Fault { method: "PUT", part: "name=ledger", status: 503, times: usize::MAX };
    let proxy = FaultyDatastore::before(&datastore.url, vec![fault]).await;
    let (paused, go) = (sandbox.path("paused"), sandbox.path("go"));
    let pause =
        format!("touch {}; while [ ! -e {} ]; do sleep 0.05; done", paused.display(), go.display());
    std::fs::write(sandbox.path("pause"), pause).unwrap();
    let runner = sandbox.start(Some(&proxy.url), APPLY);
    tokio::task::block_in_place(|| eventually("the first try has failed", || paused.exists()));
    tokio::time::sleep(Duration::from_secs(1)).await;
    proxy.set_faults(Vec::new());
    std::fs::write(go, "").unwrap();
    let ended = tokio::task::block_in_place(|| runner.wait());
    assert_eq!((ended.code, applies(&sandbox)), (0, 2), "{}", ended.stderr);
    let stored = StoredRun::new(&datastore, "default", "x", "a");
    let ledger = json(&stored.artifact("ledger.json", 0).await);
    assert!(ledger["ended"].is_object() || ledger["ended"].is_string(), "{ledger}");
    assert_eq!(ledger["resources"][1]["state"], "failed", "{ledger}");
}
