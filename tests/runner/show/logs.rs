//! `runner logs`.

use support::{Sandbox, TestDatastore};

use crate::RUNNER;
use crate::stored_run::StoredRun;

#[tokio::test(flavor = "multi_thread")]
async fn log_is_printed_as_it_was_stored() {
    let datastore = TestDatastore::memory().await;
    let sandbox = Sandbox::new(RUNNER).hello();
    let plan = ["plan", "--layer", "layer.yaml", "--run", "p"];
    assert_eq!(sandbox.run_with(&datastore.url, &plan).code, 0);

    let shown = sandbox.run_with(&datastore.url, &["logs", "p", "--layer", "layer.yaml"]);

    assert_eq!(shown.code, 0, "{}", shown.stderr);
    let stored = StoredRun::new(&datastore, "default", "hello", "p").log(0).await;
    assert_eq!(shown.stdout, stored);
    assert!(shown.stdout.contains("Terraform has been successfully initialized!"));
}

#[tokio::test(flavor = "multi_thread")]
async fn long_log_is_complete_and_an_early_end_of_its_reader_is_no_error() {
    let datastore = TestDatastore::memory().await;
    let sandbox = Sandbox::new(RUNNER);
    let log = format!("{}{}", "a line é \"quoted\"\n".repeat(200_000), "x".repeat(3 << 20));
    let run = StoredRun::new(&datastore, "default", "l", "r");
    run.put_log(0, log.clone().into_bytes()).await;

    let shown = sandbox.run_with(&datastore.url, &["logs", "default/l/r"]);
    assert_eq!(shown.code, 0, "{}", shown.stderr);
    assert!(shown.stdout == log + "\n", "{} bytes", shown.stdout.len());

    let mut command = sandbox.command(&["logs", "default/l/r"]);
    command.env("PLANCHA_DATASTORE_URL", datastore.url.as_str());
    let mut child = command.spawn().unwrap();
    drop(child.stdout.take());
    let ended = child.wait_with_output().unwrap();
    assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
    assert!(ended.stderr.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn error_for_an_attempt_without_a_log_names_its_files() {
    let datastore = TestDatastore::memory().await;
    let sandbox = Sandbox::new(RUNNER);
    let run = StoredRun::new(&datastore, "default", "l", "r");
    run.put_plan("short", 0, b"x".to_vec()).await;
    let ended = sandbox.run_with(&datastore.url, &["logs", "default/l/r"]);
    assert_eq!(ended.code, 8, "{}", ended.stderr);
    assert!(
        ended.stderr.contains("attempt 0 of run r has no log; it has short.diff"),
        "{}",
        ended.stderr
    );
}
