//! Steps that fail with transient errors and are run again, and those that are not.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;

use serde_json::Value;
use support::{Ended, Sandbox, Started, TestDatastore, eventually};

use crate::stored_run::StoredRun;
use crate::{RUNNER, json};

/// What azurerm says when its service asks for a pause.
const BUSY: &str = "╷
│ Error: creating/updating Subnet (Subscription: \"s\"): performing CreateOrUpdate: unexpected status 429
│ with error: RetryableError: A retryable error occurred. The call can be retried in 1 seconds.
│
│   with azurerm_subnet.a,
│   on main.tf line 1, in resource \"azurerm_subnet\" \"a\":
│    1: resource \"azurerm_subnet\" \"a\" {
│
╵";

/// A step that fails with this error as often as this, and says how often it was run.
fn failing(step: &str, times: u32, error: &str) -> String {
    format!(
        "if [ \"$STEP\" = {step} ]; then
             echo x >> \"$HOME/{step}\"
             if [ $(wc -l < \"$HOME/{step}\") -le {times} ]; then
                 cat >&2 <<'END'\n{error}\nEND
                 exit 1
             fi
         fi"
    )
}

fn count(sandbox: &Sandbox, step: &str) -> usize {
    sandbox.calls().iter().filter(|call| call.starts_with(step)).count()
}

fn report(sandbox: &Sandbox) -> Value {
    json(sandbox.read("result.json").as_bytes())
}

fn tries(report: &Value) -> Vec<(&str, u64)> {
    let steps = report["steps"].as_array().unwrap().iter();
    let tries =
        steps.map(|step| (step["name"].as_str().unwrap(), step["attempts"].as_u64().unwrap()));
    tries.filter(|(name, _)| !name.starts_with("show")).collect()
}

const PLAN: [&str; 3] = ["plan", "--result", "result.json"];

#[test]
fn failed_init_and_plan_are_run_again_until_they_succeed() {
    let broken = "Error: Failed to install provider\n\nError while installing hashicorp/aws v5.0.0: read: connection \
        reset by peer; try again in 1 seconds\n";
    let script = format!("{}\n{}", failing("init", 2, broken), failing("plan", 2, BUSY));
    let sandbox = Sandbox::new(RUNNER).hello().fake_terraform(&script);
    let ended = sandbox.run(&PLAN);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    assert_eq!((count(&sandbox, "init"), count(&sandbox, "plan")), (3, 3), "{}", ended.stderr);
    for line in [
        "terraform init failed: transient (connection-broken): Failed to install provider: Error while installing",
        "terraform plan failed: transient (",
        "try 2 follows in 1.",
        "try 3 follows in 1.",
    ] {
        assert!(ended.stderr.contains(line), "{line}: {}", ended.stderr);
    }
    let report = report(&sandbox);
    assert_eq!(tries(&report), [("init", 3), ("plan", 3)]);
    assert_eq!(report["outcome"], "changes");
    assert!(report["steps"][0]["seconds"].as_f64().unwrap() < 2.0, "without the pauses: {report}");
    assert!(sandbox.is_clean());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_stored_log_has_every_try_and_the_plan_is_that_of_the_last_one() {
    let datastore = TestDatastore::memory().await;
    // terraform writes a plan that it could not finish.
    let script = format!(
        "if [ \"$STEP\" = plan ]; then wc -c < \"$OUT\" >> $HOME/sizes; echo unfinished > \"$OUT\"; fi\n{}",
        failing("plan", 1, BUSY)
    );
    let sandbox = Sandbox::new(RUNNER).hello().fake_terraform(&script);
    let ended = sandbox.run_with(&datastore.url, &["plan", "--run", "p", "--name", "x"]);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    assert_eq!(std::fs::read_to_string(sandbox.path("home/sizes")).unwrap(), "0\n0\n");
    let stored = StoredRun::new(&datastore, "default", "x", "p");
    let log = stored.log(0).await;
    let failed = log.find("The call can be retried in 1 seconds").unwrap();
    let retried = log.find("try 2 follows in 1.").unwrap();
    assert!(failed < retried && retried < log.find("plan is done").unwrap(), "{log}");
    assert_eq!(tries(&json(&stored.artifact("run.json", 0).await)), [("init", 1), ("plan", 2)]);
}

#[test]
fn no_step_is_run_again_if_one_of_its_errors_is_not_transient() {
    for error in [
        "Error: Error acquiring the state lock\n\nError message: resource temporarily unavailable\nLock Info:\n  ID: 1\n",
        "Error: configuring Terraform AWS Provider: ExpiredToken: The security token included in the request is expired\n",
        "Error: creating EC2 VPC: VpcLimitExceeded: The maximum number of VPCs has been reached.\n",
        "Error: Unsupported argument\n\nAn argument named \"a\" is not expected here.\n",
        "Error: Failed to install provider\n\nthe local package has incorrect checksum\n",
        "Error: creating IAM Role (ci): EntityAlreadyExists: Role with name ci already exists.\n",
        "Error: execution halted\n",
        "Error: the frobnicator is out of blue\n",
    ] {
        for errors in [error.to_owned(), format!("{BUSY}\n\n{error}")] {
            let sandbox = Sandbox::new(RUNNER).hello().fake_terraform(&failing("plan", 1, &errors));
            let ended = sandbox.run(&PLAN);
            assert_ne!(ended.code, 0, "{errors}");
            assert_eq!(count(&sandbox, "plan"), 1, "{errors}: {}", ended.stderr);
        }
    }
    // A tool that says nothing of its failure.
    let sandbox = Sandbox::new(RUNNER).hello().fake_terraform(&failing("init", 1, "oh"));
    assert_ne!(sandbox.run(&PLAN).code, 0);
    assert_eq!(count(&sandbox, "init"), 1);
}

#[test]
fn retries_are_limited_by_number_and_time() {
    let plan = |retries: &str, more: &[&str], error: &str| {
        let sandbox = Sandbox::new(RUNNER).hello().fake_terraform(&failing("plan", 9, error));
        let mut plan = sandbox.command(&[&PLAN, more].concat());
        let ended = Ended::from(plan.env("PLANCHA_RETRIES", retries).output().unwrap());
        assert_ne!(ended.code, 0, "{}", ended.stderr);
        let report = report(&sandbox);
        let tries = tries(&report)[1].1;
        assert_eq!(tries, count(&sandbox, "plan") as u64, "{report}");
        (tries, ended.stderr)
    };
    let (tries, says) = plan("2", &[], BUSY);
    assert_eq!(tries, 3, "{says}");
    assert!(says.contains("terraform plan is not run again: its 2 retries are used up"), "{says}");
    let (tries, says) = plan("2", &["--retries", "0"], BUSY);
    assert_eq!((tries, says.contains("is not run again")), (1, false), "{says}");
    let (tries, says) = plan("", &["--retry-timeout", "1500ms"], BUSY);
    assert!((1..=2).contains(&tries), "{tries}: {says}");
    assert!(says.contains("exceed the time left for retries ("), "{says}");
    let (tries, says) = plan("", &[], &BUSY.replace("in 1 seconds", "in 3600 seconds"));
    assert_eq!(tries, 1, "{says}");
    assert!(says.contains("the service asks to wait 1h, and a run waits 5m at most"), "{says}");
}

#[test]
fn a_signal_ends_the_pause_at_once() {
    let later = BUSY.replace("in 1 seconds", "in 200 seconds");
    let sandbox = Sandbox::new(RUNNER).hello().fake_terraform(&failing("plan", 1, &later));
    let mut plan = sandbox.command(&PLAN);
    plan.stderr(std::fs::File::create(sandbox.path("stderr")).unwrap());
    let run = Started::spawn(plan);
    let says = || std::fs::read_to_string(sandbox.path("stderr")).unwrap();
    eventually("the pause has started", || says().contains("try 2 follows in 20"));
    let stopped = std::time::Instant::now();
    run.signal("TERM");
    assert_eq!(run.wait().code, 143, "{}", says());
    assert!(stopped.elapsed().as_secs() < 30, "{}", says());
    assert_eq!(count(&sandbox, "plan"), 1);
    assert_eq!(report(&sandbox)["outcome"], "interrupted");
}

#[test]
fn a_tool_that_was_killed_is_not_run_again() {
    let script = failing("plan", 1, BUSY).replace("exit 1", "kill -9 $$");
    let sandbox = Sandbox::new(RUNNER).hello().fake_terraform(&script);
    let ended = sandbox.run(&PLAN);
    assert_ne!(ended.code, 0);
    assert_eq!(count(&sandbox, "plan"), 1, "{}", ended.stderr);
}

/// An apply has changed something: its plan does not hold any more.
#[test]
fn an_apply_without_a_stored_plan_is_made_again() {
    let sandbox = Sandbox::new(RUNNER).hello().fake_terraform(&failing("apply", 1, BUSY));
    let ended = sandbox.run(&["apply", "--no-plan"]);
    assert_eq!((ended.code, count(&sandbox, "apply")), (0, 2), "{}", ended.stderr);
}

/// With the real tool, whose backend closes the first connection without an answer, or answers it with 503.
#[test]
fn a_backend_that_fails_once_is_asked_again() {
    let unavailable =
        "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
    for (first, rule) in [("", "connection-broken"), (unavailable, "retries-given-up")] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        std::thread::spawn(move || {
            for (number, connection) in listener.incoming().enumerate() {
                let mut connection = connection.unwrap();
                drop(connection.read(&mut [0; 4096]));
                let none =
                    "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
                let answer = if number == 0 { first } else { none };
                drop(connection.write_all(answer.as_bytes()));
            }
        });
        let sandbox = Sandbox::new(RUNNER);
        let address = format!("address = \"http://{address}/s\"");
        let backend = format!("backend \"http\" {{\n    {address}\n    retry_max = 0\n  }}");
        let resource = "resource \"terraform_data\" \"a\" {}";
        sandbox.write("main.tf", &format!("terraform {{\n  {backend}\n}}\n{resource}\n"));
        let ended = sandbox.run(&PLAN);
        assert_eq!(ended.code, 0, "{}\n{}", ended.stdout, ended.stderr);
        let failed = format!("failed: transient ({rule})");
        assert!(ended.stderr.contains(&failed), "{}", ended.stderr);
        let report = report(&sandbox);
        let all = tries(&report).iter().map(|(_, tries)| tries).sum::<u64>();
        assert_eq!(all, 3, "one of init and plan was run twice: {report}");
        assert_eq!(report["outcome"], "changes");
    }
}
