//! Limits of time: a tool that takes too long, or makes no progress, is stopped.

use std::time::{Duration, Instant};

use support::{Sandbox, Started, TestDatastore, eventually};

use crate::stored_run::StoredRun;
use crate::{RUNNER, json};

/// A module whose second resource takes longer than any test.
const HANGING: &str = r#"
resource "terraform_data" "first" {}
resource "terraform_data" "slow" {
  depends_on = [terraform_data.first]
  provisioner "local-exec" {
    # The signal goes to the whole group: without the trap, the apply may end before terraform says a word.
    command = "trap '' INT; echo $$ > started; exec sleep 300"
  }
}
"#;

/// The state is saved, the lock is free, and a second SIGINT would have said so.
fn assert_saved(sandbox: &Sandbox, stdout: &str) {
    assert_eq!(stdout.matches("Interrupt received.").count(), 1, "{stdout}");
    assert!(!stdout.contains("Two interrupts received"), "{stdout}");
    let state = json(sandbox.read("terraform.tfstate").as_bytes());
    let mut names = state["resources"].as_array().unwrap().iter().map(|r| &r["name"]);
    assert!(names.any(|name| name == "first"), "{state}");
    assert!(!sandbox.work().join(".terraform.tfstate.lock.info").exists());
    assert!(sandbox.is_clean());
}

#[tokio::test(flavor = "multi_thread")]
async fn apply_that_takes_too_long_is_stopped_in_good_order() {
    let datastore = TestDatastore::memory().await;
    let sandbox = Sandbox::new(RUNNER);
    sandbox.write("main.tf", HANGING);
    let args = ["apply", "--no-plan", "--name", "x", "--run", "r", "--step-timeout", "10s"];
    let ended = sandbox.run_with(&datastore.url, &args);
    assert_eq!(ended.code, 11, "{}{}", ended.stdout, ended.stderr);
    for words in [
        "terraform apply took longer than 10s (--step-timeout) and was stopped; its last output is `terraform_data.slow",
        "next: the apply has ended early",
    ] {
        assert!(ended.stderr.contains(words), "{words}: {}", ended.stderr);
    }
    assert_saved(&sandbox, &ended.stdout);
    let stored = StoredRun::new(&datastore, "default", "x", "r");
    let report = json(&stored.artifact("run.json", 0).await);
    assert_eq!(
        (&report["outcome"], &report["exit"], &report["class"], &report["state_lock"]),
        (&"failed".into(), &11.into(), &"timeout".into(), &"free".into())
    );
    assert!(stored.log(0).await.contains("took longer than 10s"));
}

/// Terraform prints `Still creating...` every 10 s.
#[test]
fn apply_that_only_waits_is_stopped_on_request() {
    let sandbox = Sandbox::new(RUNNER);
    sandbox.write("main.tf", HANGING);
    let ended = sandbox.run(&["apply", "--no-plan", "--idle-timeout", "20s"]);
    assert_eq!(ended.code, 11, "{}{}", ended.stdout, ended.stderr);
    let reason = "terraform apply made no progress for 20s (--idle-timeout) and was stopped; its last output is \
                  `terraform_data.slow: Still creating... [";
    assert!(ended.stderr.contains(reason), "{}", ended.stderr);
    assert_saved(&sandbox, &ended.stdout);
}

/// Runs a plan of this script with an idle limit of 2 s.
fn planned(script: &str) -> (support::Ended, Duration) {
    let sandbox = Sandbox::new(RUNNER).hello();
    let sandbox = sandbox.fake_terraform(&format!("if [ $STEP = plan ]; then {script}; fi"));
    let started = Instant::now();
    (sandbox.run(&["plan", "--idle-timeout", "2s", "--grace", "1s"]), started.elapsed())
}

#[test]
fn silent_plan_is_stopped() {
    let (ended, took) = planned("printf 'Refreshing\\n\\n'; exec sleep 60");
    assert_eq!(ended.code, 11, "{}", ended.stderr);
    for words in [
        "terraform plan made no progress for 2s (--idle-timeout) and was stopped; its last output is `Refreshing`",
        "next: find out what it waited for",
    ] {
        assert!(ended.stderr.contains(words), "{words}: {}", ended.stderr);
    }
    assert!(took < Duration::from_secs(30), "{took:?}");
}

#[test]
fn output_and_work_are_progress() {
    for script in [
        "for i in 1 2 3 4 5 6 7 8; do sleep 0.6; echo $i; done",
        // A child with a process group of its own works.
        "setsid sh -c 'i=0; end=$(($(date +%s) + 5)); while [ $(date +%s) -lt $end ]; do :; done'",
    ] {
        let (ended, _) = planned(script);
        assert_eq!(ended.code, 0, "{script}: {}", ended.stderr);
    }
    let (ended, _) =
        planned("while :; do sleep 0.6; echo 'a.b: Still reading... [1s elapsed]'; done");
    assert_eq!(ended.code, 11, "{}", ended.stderr);
}

#[test]
fn tool_that_does_not_stop_at_a_limit_is_killed() {
    let (ended, _) = planned("trap '' INT; while :; do sleep 1; done");
    assert_eq!(ended.code, 11, "{}", ended.stderr);
    for words in [
        "made no progress for 2s (--idle-timeout), did not stop within 1s (--grace), and was killed; it had printed nothing",
        "the lock of the state is free. next: run again",
    ] {
        assert!(ended.stderr.contains(words), "{words}: {}", ended.stderr);
    }
}

/// The rendering as text is made beside the one as JSON.
#[test]
fn rendering_that_takes_too_long_is_not_made_again() {
    let sandbox = Sandbox::new(RUNNER).hello();
    let hangs = "case \"$*\" in show*-json*) ;; show*) exec sleep 60;; esac";
    let sandbox = sandbox.fake_terraform(hangs);
    let ended = sandbox.run(&["plan", "--step-timeout", "5s"]);
    assert_eq!(ended.code, 11, "{}", ended.stderr);
    let reason = "terraform show took longer than 5s (--step-timeout) and was stopped; it had printed nothing";
    assert!(ended.stderr.contains(reason), "{}", ended.stderr);
    let calls = sandbox.calls();
    let is_text = |call: &&String| call.starts_with("show") && !call.contains("-json");
    assert_eq!(calls.iter().filter(is_text).count(), 1, "{calls:?}");
}

#[test]
fn apply_that_succeeds_at_its_limit_is_applied() {
    let sandbox = Sandbox::new(RUNNER).hello().fake_terraform(
        "if [ $STEP = apply ]; then trap 'echo \"Apply complete! Resources: 0 added, 0 changed, 0 destroyed.\"; exit 0' INT; sleep 60 & wait; fi",
    );
    let mut command = sandbox.command(&["apply", "--no-plan", "--result", "result.json"]);
    command.env("PLANCHA_STEP_TIMEOUT", "2s");
    let ended: support::Ended = command.output().unwrap().into();
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    assert_eq!(json(sandbox.read("result.json").as_bytes())["outcome"], "applied");
}

#[test]
fn signal_after_a_limit_is_not_passed_on() {
    let sandbox = Sandbox::new(RUNNER).hello();
    let (heard, go) = (sandbox.path("heard"), sandbox.path("go"));
    let sandbox = sandbox.fake_terraform(&format!(
        "if [ $STEP = plan ]; then trap 'echo INT >> {heard}' INT; while [ ! -e {go} ]; do sleep 0.05; done; exit 1; fi",
        heard = heard.display(),
        go = go.display()
    ));
    let runner = Started::spawn(sandbox.command(&["plan", "--step-timeout", "1s"]));
    eventually("the tool has heard", || heard.exists());
    runner.signal("TERM");
    std::thread::sleep(Duration::from_millis(300));
    std::fs::write(go, "").unwrap();
    let ended = runner.wait();
    assert_eq!(ended.code, 11, "{}", ended.stderr);
    assert_eq!(std::fs::read_to_string(heard).unwrap(), "INT\n");
}

/// A plan that hears one SIGINT and ends a second later.
#[tokio::test(flavor = "multi_thread")]
async fn run_that_takes_too_long_is_stopped_and_stored() {
    let datastore = TestDatastore::memory().await;
    let sandbox = Sandbox::new(RUNNER).hello();
    let heard = sandbox.path("heard");
    let sandbox = sandbox.fake_terraform(&format!(
        "if [ $STEP = plan ]; then trap 'echo INT >> {}; sleep 1; exit 1' INT; sleep 60 & wait; fi",
        heard.display()
    ));
    let args = ["plan", "--name", "x", "--run", "r", "--timeout", "3s"];
    let ended = sandbox.run_with(&datastore.url, &args);
    assert_eq!(ended.code, 11, "{}", ended.stderr);
    for words in [
        "terraform plan was stopped by the time limit of the run, 3s (--timeout)",
        "next: `steps` in run.json",
    ] {
        assert!(ended.stderr.contains(words), "{words}: {}", ended.stderr);
    }
    assert_eq!(std::fs::read_to_string(heard).unwrap(), "INT\n");
    let stored = StoredRun::new(&datastore, "default", "x", "r");
    let report = json(&stored.artifact("run.json", 0).await);
    assert_eq!(
        (&report["outcome"], &report["exit"], &report["class"]),
        (&"failed".into(), &11.into(), &"timeout".into())
    );
    assert!(stored.log(0).await.contains("stopped by the time limit"));
}

#[test]
fn apply_that_succeeds_at_the_limit_of_the_run_is_applied() {
    let sandbox = Sandbox::new(RUNNER)
        .hello()
        // It goes on to its end.
        .fake_terraform("if [ $STEP = apply ]; then trap : INT; sleep 60 & wait; fi");
    let mut command = sandbox.command(&["apply", "--no-plan", "--layer", "layer.yaml"]);
    let ended: support::Ended = command.env("PLANCHA_TIMEOUT", "3s").output().unwrap().into();
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    assert!(sandbox.read("layer.yaml").contains("apply-date: "));
}

#[test]
fn run_can_reach_its_limit_before_the_tool_starts() {
    let sandbox = Sandbox::new(RUNNER).hello().fake_terraform("");
    let ended = sandbox.run(&["plan", "--timeout", "1ns"]);
    assert_eq!(ended.code, 11, "{}", ended.stderr);
    assert!(sandbox.calls().iter().all(|call| !call.starts_with("plan")), "{:?}", sandbox.calls());
}

#[test]
fn signal_before_the_limit_of_the_run_counts() {
    let sandbox = Sandbox::new(RUNNER).hello();
    let (started, heard) = (sandbox.path("started"), sandbox.path("heard"));
    let sandbox = sandbox.fake_terraform(&format!(
        "if [ $STEP = plan ]; then trap 'touch {}; sleep 4; exit 1' INT; touch {}; sleep 60 & wait; fi",
        heard.display(),
        started.display()
    ));
    let runner = sandbox.start(None, &["plan", "--timeout", "4s"]);
    eventually("the plan runs", || started.exists());
    runner.signal("TERM");
    eventually("the tool has heard", || heard.exists());
    let ended = runner.wait();
    assert_eq!(ended.code, 143, "{}", ended.stderr);
    assert!(!ended.stderr.contains("still stopping"), "{}", ended.stderr);
}
