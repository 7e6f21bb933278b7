//! Signals to the runner: the tool gets one SIGINT, and the run is still stored.

use std::path::Path;
use std::time::{Duration, Instant};

use support::{Fault, FaultyDatastore, Sandbox, Started, TestDatastore, eventually, has_ended};

use crate::stored_run::StoredRun;
use crate::{RUNNER, json};

/// A module whose second resource takes its time.
const SLOW: &str = r#"
resource "terraform_data" "first" {}
resource "terraform_data" "slow" {
  depends_on = [terraform_data.first]
  provisioner "local-exec" {
    # The signal goes to the whole group: without the trap, the apply may end before terraform says a word.
    command = "trap '' INT; touch started; sleep 2; touch finished"
  }
}
resource "terraform_data" "after" {
  depends_on = [terraform_data.slow]
}
"#;

#[tokio::test(flavor = "multi_thread")]
async fn signal_during_an_apply_saves_the_state_and_releases_the_lock() {
    for (signal, code) in [("TERM", 143), ("INT", 130)] {
        let datastore = TestDatastore::memory().await;
        let sandbox = Sandbox::new(RUNNER);
        sandbox.write("main.tf", SLOW);
        let args = ["plan", "--name", "slow", "--run", "p"];
        assert_eq!(sandbox.run_with(&datastore.url, &args).code, 0);

        let args = ["apply", "--name", "slow", "--run", "a", "--result", "result.json"];
        let runner = sandbox.start(Some(&datastore.url), &args);
        eventually("the provisioner runs", || sandbox.work().join("started").exists());
        runner.signal(signal);
        eventually("the tool has heard", || runner.said("Interrupt received."));
        // Later ones change nothing: a second SIGINT would make terraform leave without saving.
        for later in ["INT", "TERM", "INT"] {
            runner.signal(later);
        }
        let ended = runner.wait();

        assert_eq!(ended.code, code, "{}", ended.stderr);
        assert_eq!(ended.stdout.matches("Interrupt received.").count(), 1, "{}", ended.stdout);
        assert!(!ended.stdout.contains("Two interrupts received"), "{}", ended.stdout);
        let state = json(sandbox.read("terraform.tfstate").as_bytes());
        let names = state["resources"].as_array().unwrap().iter().map(|r| &r["name"]);
        assert!(names.clone().any(|name| name == "first"), "{state}");
        assert!(!names.clone().any(|name| name == "after"), "{state}");
        assert!(!sandbox.work().join(".terraform.tfstate.lock.info").exists());
        let stored = StoredRun::new(&datastore, "default", "slow", "a");
        assert!(stored.log(0).await.contains("Interrupt received."));
        for report in [stored.artifact("run.json", 0).await, sandbox.read("result.json").into()] {
            let report = json(&report);
            assert_eq!(
                (&report["outcome"], &report["exit"]),
                (&"interrupted".into(), &code.into())
            );
            assert_eq!(
                (&report["class"], &report["state_lock"]),
                (&"interrupted".into(), &"free".into())
            );
        }
        assert!(sandbox.is_clean());
    }
}

/// As the end of a unit of systemd or of a build of Jenkins does.
#[test]
fn signal_that_reaches_all_processes_interrupts_the_tool_once() {
    for signal in ["TERM", "INT"] {
        let sandbox = Sandbox::new(RUNNER);
        sandbox.write("main.tf", &SLOW.replace("trap '' INT", "trap '' INT TERM"));
        let runner = sandbox.start(None, &["apply", "--no-plan", "--name", "slow"]);
        eventually("the provisioner runs", || sandbox.work().join("started").exists());
        runner.signal_all(signal);
        let ended = runner.wait();
        assert_eq!(ended.stdout.matches("Interrupt received.").count(), 1, "{}", ended.stdout);
        assert!(!ended.stdout.contains("Two interrupts received"), "{}", ended.stdout);
        let state = sandbox.read("terraform.tfstate");
        assert!(state.contains("\"first\"") && state.contains("\"slow\""), "{state}");
    }
}

/// The tool ends at once, and so before the runner has seen its own signal.
#[test]
fn signal_that_ends_the_tool_first_is_that_of_the_runner() {
    for (signal, code) in [("TERM", 143), ("INT", 130)] {
        let sandbox = Sandbox::new(RUNNER).hello();
        let ended = sandbox.path("ended");
        let sandbox = sandbox.fake_terraform(&format!(
            "if [ $STEP = plan ]; then touch {}; kill -{signal} $$; fi",
            ended.display()
        ));
        let runner = sandbox.start(None, &["plan"]);
        eventually("the tool ends", || ended.exists());
        runner.signal(signal);
        let ended = runner.wait();
        assert_eq!(ended.code, code, "{}", ended.stderr);
    }
}

#[test]
fn second_signal_warns_and_is_not_forwarded() {
    let sandbox = Sandbox::new(RUNNER).hello();
    let (started, heard, go) = (sandbox.path("started"), sandbox.path("heard"), sandbox.path("go"));
    let sandbox = sandbox.fake_terraform(&format!(
        "if [ $STEP = apply ]; then trap 'echo INT >> {heard}' INT; touch {started}
           while [ ! -e {go} ]; do sleep 0.05; done; fi",
        heard = heard.display(),
        started = started.display(),
        go = go.display()
    ));
    let warnings = sandbox.path("warnings");
    let mut command = sandbox.command(&["apply", "--no-plan"]);
    command.stderr(std::fs::File::create(&warnings).unwrap());
    let runner = support::Started::spawn(command);
    eventually("apply runs", || started.exists());
    runner.signal("INT");
    eventually("the tool has heard", || heard.exists());
    let warning = "still stopping; killing now can lose state";
    for (number, signal) in [(1, "INT"), (2, "TERM")] {
        runner.signal(signal);
        eventually("the runner warns", || {
            std::fs::read_to_string(&warnings).unwrap().matches(warning).count() == number
        });
    }
    std::fs::write(go, "").unwrap();
    assert_eq!(runner.wait().code, 0);
    assert_eq!(std::fs::read_to_string(heard).unwrap(), "INT\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn tool_and_children_are_killed_after_the_grace_period() {
    let datastore = TestDatastore::memory().await;
    let sandbox = Sandbox::new(RUNNER).hello();
    let (started, child) = (sandbox.path("started"), sandbox.path("child"));
    let sandbox = sandbox.fake_terraform(&format!(
        "trap 'echo ignored' INT TERM\n\
         if [ $STEP = plan ]; then sh -c 'trap \"\" INT; echo $$ > {}; sleep 60' & touch {}; \
         while :; do sleep 0.1; done; fi",
        child.display(),
        started.display()
    ));
    let args = ["plan", "--name", "x", "--run", "r", "--grace", "300ms"];
    let runner = sandbox.start(Some(&datastore.url), &args);
    eventually("the plan runs", || started.exists() && child.exists());
    let asked = Instant::now();
    runner.signal("TERM");
    let ended = runner.wait();

    assert_eq!(ended.code, 143, "{}", ended.stderr);
    for words in [
        "terraform plan did not stop within 300ms after SIGTERM, and was killed",
        "next: the state may still be locked",
    ] {
        assert!(ended.stderr.contains(words), "{words}: {}", ended.stderr);
    }
    assert!(asked.elapsed() >= Duration::from_millis(300));
    let pid = std::fs::read_to_string(&child).unwrap();
    let pid = pid.trim().parse().unwrap();
    eventually("the child is gone", || has_ended(pid));
    let report = StoredRun::new(&datastore, "default", "x", "r").artifact("run.json", 0).await;
    assert_eq!(json(&report)["state_lock"], "unknown");
}

#[test]
fn signal_between_steps_ends_the_run_before_the_next() {
    let sandbox = Sandbox::new(RUNNER).hello();
    let (started, go) = (sandbox.path("started"), sandbox.path("go"));
    // The step ends well although a signal came: the next one does not begin.
    let sandbox = sandbox.fake_terraform(&format!(
        "trap '' INT\nif [ $STEP = init ]; then touch {}; while [ ! -e {} ]; do sleep 0.05; done; fi",
        started.display(),
        go.display()
    ));
    let runner = sandbox.start(None, &["plan"]);
    eventually("init runs", || started.exists());
    runner.signal("INT");
    std::fs::write(go, "").unwrap();
    assert_eq!(runner.wait().code, 130);
    assert_eq!(sandbox.calls(), ["init -no-color -input=false"]);
}

#[test]
fn apply_that_finished_counts_despite_a_signal() {
    let sandbox = Sandbox::new(RUNNER).hello();
    let (started, go) = (sandbox.path("started"), sandbox.path("go"));
    let sandbox = sandbox.fake_terraform(&format!(
        "trap '' INT\nif [ $STEP = apply ]; then touch {}; while [ ! -e {} ]; do sleep 0.05; done; fi",
        started.display(),
        go.display()
    ));
    let runner = sandbox.start(None, &["apply", "--no-plan", "--layer", "layer.yaml"]);
    eventually("apply runs", || started.exists());
    runner.signal("TERM");
    std::fs::write(go, "").unwrap();
    let ended = runner.wait();
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    assert!(sandbox.read("layer.yaml").contains("apply-date: "));
}

/// As terragrunt does, if a signal reaches it before it has started the apply.
#[tokio::test(flavor = "multi_thread")]
async fn tool_that_ends_well_after_a_signal_and_has_not_applied_is_stopped() {
    let datastore = TestDatastore::memory().await;
    for (signal, code) in [(Some("TERM"), 143), (None, 11)] {
        let sandbox = Sandbox::new(RUNNER).hello();
        let started = sandbox.path("started");
        let sandbox = sandbox.fake_terraform(&format!(
            "if [ $STEP = apply ]; then trap 'exit 0' INT; touch {}; sleep 60 & wait; fi",
            started.display()
        ));
        let run = format!("r{code}");
        let limit = if signal.is_some() { "60s" } else { "2s" };
        let args = ["apply", "--no-plan", "--name", "x", "--run", &run, "--step-timeout", limit];
        let runner = sandbox.start(Some(&datastore.url), &args);
        tokio::task::block_in_place(|| eventually("apply runs", || started.exists()));
        if let Some(signal) = signal {
            runner.signal(signal);
        }
        let ended = tokio::task::block_in_place(|| runner.wait());
        assert_eq!(ended.code, code, "{}", ended.stderr);
        let names = StoredRun::new(&datastore, "default", "x", &run).names(0).await;
        assert!(!names.contains(&"applied.json".to_owned()), "{names:?}");
    }
}

/// The words of the provider hashicorp/aws 5.100, whose API has not answered.
#[test]
fn creation_that_a_signal_has_interrupted_is_named() {
    let sandbox = Sandbox::new(RUNNER).hello();
    let started = sandbox.path("started");
    let error = "Error: creating EC2 VPC: operation error EC2: CreateVpc, https response error StatusCode: 0, RequestID: , \
                 canceled, context canceled\\n\\n  with aws_vpc.v,\\n  on main.tf line 1, in resource \\\"aws_vpc\\\" \\\"v\\\":\\n";
    let sandbox = sandbox.fake_terraform(&format!(
        "if [ $STEP = apply ]; then trap 'printf \"\\n{error}\"; exit 1' INT; echo 'aws_vpc.v: Creating...'; touch {}; \
         sleep 60 & wait; fi",
        started.display()
    ));
    for limit in ["60s", "2s"] {
        let args = ["apply", "--no-plan", "--again", "--step-timeout", limit];
        let runner = sandbox.start(None, &args);
        if limit == "60s" {
            eventually("apply runs", || started.exists());
            runner.signal("TERM");
        }
        let ended = runner.wait();
        let last = ended.stderr.lines().last().unwrap();
        for words in [
            "; it is not known how these ended: aws_vpc.v (create)",
            "resources may exist that the state does not record: look for those without a result",
        ] {
            assert!(last.contains(words), "{words}: {last}");
        }
    }
}

/// A service manager and a person, for example.
#[test]
fn tool_that_gives_up_at_a_second_interrupt_is_named_and_its_lock_probed() {
    let sandbox = Sandbox::new(RUNNER).hello();
    let started = sandbox.path("started");
    let sandbox = sandbox.fake_terraform(&format!(
        "if [ $STEP = apply ]; then trap 'echo Two interrupts received. Exiting immediately.; exit 1' INT; touch {}; \
         sleep 60 & wait; fi",
        started.display()
    ));
    let runner = sandbox.start(None, &["apply", "--no-plan", "--result", "result.json"]);
    eventually("apply runs", || started.exists());
    runner.signal("TERM");
    let ended = runner.wait();
    assert_eq!(ended.code, 143, "{}", ended.stderr);
    let last = ended.stderr.lines().last().unwrap();
    assert!(last.contains("got two interrupts, and did not save its state"), "{last}");
    assert!(last.contains("resources may exist that the state does not record"), "{last}");
    assert!(sandbox.calls().iter().any(|call| call.starts_with("untaint")));
}

/// The datastore asks for pauses of 30 s between the attempts to store one file. Only the limit after the signal ends
/// them earlier: three quarters of the grace. The rest is for the report.
#[tokio::test(flavor = "multi_thread")]
async fn signal_limits_the_time_of_remaining_uploads() {
    let datastore = TestDatastore::memory().await;
    let busy = Fault { method: "PUT", part: "format=short", status: 429, times: usize::MAX };
    let busy = FaultyDatastore::before(&datastore.url, vec![busy]).await;
    let sandbox = Sandbox::new(RUNNER).hello().fake_terraform("");
    let args = ["plan", "--name", "x", "--run", "r", "--grace", "12s"];
    let runner = sandbox.start(Some(&busy.url), &args);
    eventually("the upload waits", || busy.seen().iter().any(|p| p.contains("format=short")));
    let signalled = Instant::now();
    runner.signal("TERM");
    let ended = runner.wait();
    assert_eq!(ended.code, 143, "{}", ended.stderr);
    assert!(signalled.elapsed() < Duration::from_secs(25), "{:?}", signalled.elapsed());
    let report = StoredRun::new(&datastore, "default", "x", "r").artifact("run.json", 0).await;
    assert_eq!(json(&report)["outcome"], "interrupted");
}

/// With a real terraform: one resource is complete, and another one not.
#[test]
fn a_stopped_apply_says_what_it_had_applied_and_to_plan_again() {
    let sandbox = Sandbox::new(RUNNER);
    let started = sandbox.path("started");
    let module = format!(
        "resource \"terraform_data\" \"a\" {{}}
resource \"terraform_data\" \"b\" {{
  depends_on = [terraform_data.a]
  provisioner \"local-exec\" {{
    command = \"touch {}; exec sleep 60\"
  }}
}}
",
        started.display()
    );
    sandbox.write("main.tf", &module);
    let runner = Started::spawn(sandbox.command(&["apply", "--no-plan"]));
    eventually("it applies", || started.exists());
    runner.signal("TERM");
    let ended = runner.wait();
    assert_eq!(ended.code, 143, "{}", ended.stderr);
    let last = "terraform apply was stopped by SIGTERM; it had created 1, updated 0 and deleted 0 before that. next: plan again";
    assert!(ended.stderr.contains(last), "{}", ended.stderr);
}

/// A runner in the middle of a plan, started with this disposition of SIGHUP, whatever the tests inherited.
fn planning(disposition: &str) -> (Sandbox, Started) {
    let sandbox = Sandbox::new(RUNNER).hello();
    let started = sandbox.path("started");
    let sandbox = sandbox.fake_terraform(&format!(
        "trap 'exit 7' INT\nif [ $STEP = plan ]; then touch {}; for i in $(seq 600); do sleep 0.1; done; fi",
        started.display()
    ));
    let runner = Started::spawn(sandbox.program(Path::new("env"), &[disposition, RUNNER, "plan"]));
    eventually("the plan runs", || started.exists());
    (sandbox, runner)
}

#[test]
fn sighup_stops_a_plan() {
    let (_sandbox, runner) = planning("--default-signal=HUP");
    runner.signal("HUP");
    let ended = runner.wait();
    assert_eq!(ended.code, 143, "{}", ended.stderr);
    assert!(ended.stderr.contains("stopped by SIGHUP"), "{}", ended.stderr);
}

#[test]
fn ignored_sighup_does_not_stop_a_plan() {
    let (_sandbox, runner) = planning("--ignore-signal=HUP");
    runner.signal("HUP");
    // Had the first signal counted, the code would be that of SIGHUP and SIGTERM: 143.
    runner.signal("INT");
    assert_eq!(runner.wait().code, 130);
}

/// A tool that cannot lock the state, as terraform prints it.
fn locked_out() -> Sandbox {
    Sandbox::new(RUNNER).hello().fake_terraform(
        "if [ $STEP = plan ]; then cat >&2 <<'END'\n\
         \u{2577}\n\
         \u{2502} Error: Error acquiring the state lock\n\
         \u{2502} \n\
         \u{2502} Error message: resource temporarily unavailable\n\
         \u{2502} Lock Info:\n\
         \u{2502}   ID:        fb982e0a-8a8c\n\
         \u{2502}   Path:      terraform.tfstate\n\
         \u{2502}   Operation: OperationTypeApply\n\
         \u{2502}   Who:       ann@build-7\n\
         \u{2502}   Version:   1.11.4\n\
         \u{2502}   Created:   2026-11-22 01:57:02.5 +0000 UTC\n\
         \u{2502}   Info:      \n\
         \u{2575}\nEND\nexit 1; fi",
    )
}

#[test]
fn locked_state_is_exit_code_4_with_the_holder_of_the_lock() {
    let sandbox = locked_out();
    let ended = sandbox.run(&["plan", "--result", "result.json"]);
    assert_eq!(ended.code, 4, "{}", ended.stderr);
    for text in [
        "held by ann@build-7 since 2026-11-22 01:57:02.5 +0000 UTC for OperationTypeApply (lock ID fb982e0a-8a8c)",
        "terraform force-unlock fb982e0a-8a8c",
    ] {
        assert!(ended.stderr.contains(text), "{text}: {}", ended.stderr);
    }
    let report = json(sandbox.read("result.json").as_bytes());
    assert_eq!(
        (&report["exit"], &report["class"], &report["state_lock"]),
        (&4.into(), &"lock".into(), &"held".into())
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_tool_has_left_no_lock_if_another_command_gets_it() {
    let datastore = TestDatastore::memory().await;
    let sandbox = Sandbox::new(RUNNER).hello().fake_terraform("[ $STEP = apply ] && kill -9 $$");
    let args = ["apply", "--no-plan", "--name", "x", "--run", "r"];
    let ended = sandbox.run_with(&datastore.url, &args);
    assert_eq!(ended.code, 1, "{}", ended.stderr);
    for words in [
        "terraform apply was killed by SIGKILL",
        "the lock of the state is free. next: resources may exist",
    ] {
        assert!(ended.stderr.contains(words), "{words}: {}", ended.stderr);
    }
    let report =
        json(&StoredRun::new(&datastore, "default", "x", "r").artifact("run.json", 0).await);
    assert_eq!(report["state_lock"], "free");
    let steps = report["steps"].as_array().unwrap();
    assert_eq!(steps.last().unwrap()["exit"], 137);
}
