//! A datastore that accepts connections and never answers: calls end after `--datastore-timeout`, including retries,
//! and the runner reports what it waits for.

use support::{Ended, Fault, FaultyDatastore, Sandbox, TestDatastore, eventually};

use crate::{RUNNER, json};

/// One that never answers requests of this method whose path and query have this part.
async fn silent(method: &'static str, part: &'static str) -> (TestDatastore, FaultyDatastore) {
    let datastore = TestDatastore::memory().await;
    let fault = Fault { method, part, status: 0, times: usize::MAX };
    let silent = FaultyDatastore::before(&datastore.url, vec![fault]).await;
    (datastore, silent)
}

fn given_up(ended: &Ended, call: &str) {
    assert_eq!(ended.code, 10, "{call}: {}", ended.stderr);
    for text in [
        &format!("WARN waiting for {call}: no response for "),
        "giving up after 1 s",
        &format!("{call}: no progress for "),
        "; trying again in ",
        &format!("{call}: no response and no progress for 1 s"),
    ] {
        assert!(ended.stderr.contains(text), "{text}: {}", ended.stderr);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn silent_datastore_times_out_at_every_step_of_a_plan() {
    for (method, part, path) in [
        ("GET", "/api/attempts", "/api/attempts"),
        ("PUT", "format=bin", "/api/plans (plan.bin)"),
        ("PUT", "format=pretty", "/api/plans (pretty.plan)"),
        ("PUT", "/api/logs", "/api/logs (run.log)"),
    ] {
        let (_datastore, silent) = silent(method, part).await;
        let sandbox = Sandbox::new(RUNNER).hello().fake_terraform("");
        let args = ["plan", "--name", "x", "--run", "r", "--datastore-timeout", "1s"];
        let ended = sandbox.run_with(&silent.url, &args);
        given_up(&ended, &format!("{method} {}{path}", silent.url.as_str().trim_end_matches('/')));
        let asked = silent.seen().iter().filter(|seen| seen.contains(part)).count();
        // Two tries, then those of the log and report of the failed run; without a limit there are five tries for each.
        assert!(asked <= 5, "{part}: {asked} requests: {}", ended.stderr);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn apply_finishes_if_the_datastore_stops_responding() {
    let (_datastore, silent) = silent("PUT", "/api/").await;
    let sandbox = Sandbox::new(RUNNER).hello().fake_terraform("");
    let args = ["apply", "--no-plan", "--layer", "layer.yaml", "--datastore-timeout", "1s"];
    let args = [&args[..], &["--run", "r", "--result", "result.json"]].concat();
    let ended = sandbox.run_with(&silent.url, &args);
    assert_eq!(ended.code, 10, "{}", ended.stderr);
    assert!(ended.stderr.contains("no response and no progress for 1 s"), "{}", ended.stderr);
    assert!(sandbox.read("layer.yaml").contains("apply-date: "), "{}", ended.stderr);
    assert_eq!(json(sandbox.read("result.json").as_bytes())["applied"], "unplanned");
}

/// A minute of patience is more than a pod has.
#[tokio::test(flavor = "multi_thread")]
async fn signalled_apply_finishes_without_waiting_for_a_silent_datastore() {
    let (_datastore, silent) = silent("PUT", "/api/").await;
    let sandbox = Sandbox::new(RUNNER).hello().fake_terraform("");
    let args = ["apply", "--no-plan", "--layer", "layer.yaml", "--grace", "1s"];
    let args = [&args[..], &["--run", "r", "--result", "result.json"]].concat();
    let runner = sandbox.start(Some(&silent.url), &args);
    eventually("the end of the apply waits", || silent.seen().iter().any(|s| s.starts_with("PUT")));
    runner.signal("TERM");
    let ended = runner.wait();
    assert_eq!(ended.code, 10, "{}", ended.stderr);
    assert!(!ended.stderr.contains("no progress for 60 s"), "{}", ended.stderr);
    assert!(sandbox.read("layer.yaml").contains("apply-date: "), "{}", ended.stderr);
    assert_eq!(json(sandbox.read("result.json").as_bytes())["applied"], "unplanned");
}

#[test]
fn zero_datastore_timeout_is_refused() {
    let sandbox = Sandbox::new(RUNNER).hello().fake_terraform("");
    let ended = sandbox.run(&["plan", "--datastore-timeout", "0s"]);
    assert_eq!(ended.code, 64, "{}", ended.stderr);
}
