//! `runner logs`.

use support::{Fault, FaultyDatastore, Sandbox, TestDatastore, eventually};

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

/// A module whose apply waits until the file `go` exists.
fn waiting(sandbox: &Sandbox) -> std::path::PathBuf {
    let go = sandbox.path("go");
    let command =
        format!("echo it is on its way; while [ ! -e {} ]; do sleep 0.05; done", go.display());
    sandbox.write(
        "main.tf",
        &format!("resource \"terraform_data\" \"a\" {{\n  provisioner \"local-exec\" {{ command = \"{command}\" }}\n}}\n"),
    );
    go
}

const APPLY: &[&str] = &["apply", "--no-plan", "--name", "x", "--run", "a"];
const FOLLOW: &[&str] = &["logs", "-f", "default/x/a"];

#[tokio::test(flavor = "multi_thread")]
async fn log_of_a_run_is_followed_from_its_first_text_to_its_end() {
    let datastore = TestDatastore::memory().await;
    let sandbox = Sandbox::new(RUNNER);
    let go = waiting(&sandbox);
    let applying = sandbox.start(Some(&datastore.url), APPLY);
    eventually("terraform applies", || applying.said("it is on its way"));
    let following = sandbox.start(Some(&datastore.url), FOLLOW);
    eventually("the log shows it", || following.said("it is on its way"));
    let runs = sandbox.run_with(&datastore.url, &["runs", "--name", "x"]);
    assert!(runs.stdout.contains("a/0") && runs.stdout.contains("running"), "{runs:?}");

    std::fs::write(go, "").unwrap();
    let (applied, followed) = (applying.wait(), following.wait());

    assert_eq!(applied.code, 0, "{}", applied.stderr);
    assert_eq!(followed.code, 0, "{}", followed.stderr);
    let stored = StoredRun::new(&datastore, "default", "x", "a");
    assert_eq!(followed.stdout, stored.log(0).await);
    assert!(followed.stdout.contains("Apply complete!"), "{}", followed.stdout);
    let names = stored.names(0).await;
    assert!(names.contains(&"run.log".to_owned()) && names.contains(&"ledger.json".to_owned()));
    assert!(sandbox.is_clean());
}

#[tokio::test(flavor = "multi_thread")]
async fn log_that_another_one_replaces_is_followed_to_that() {
    let datastore = TestDatastore::memory().await;
    let sandbox = Sandbox::new(RUNNER);
    let log = "api/logs?namespace=default&layer=x&run=a&attempt=0";
    let client = reqwest::Client::new();
    let send = async |method, rest: &str, body: &'static str| {
        let url = datastore.url.join(&format!("{log}{rest}")).unwrap();
        assert_eq!(client.request(method, url).body(body).send().await.unwrap().status(), 200);
    };
    send(reqwest::Method::POST, "&offset=0", "the password is hunter2\n").await;
    let following = sandbox.start(Some(&datastore.url), FOLLOW);
    eventually("the log shows it", || following.said("hunter2"));
    send(reqwest::Method::PUT, "", "the password is ***\n").await;
    let followed = following.wait();
    assert_eq!(followed.code, 0, "{}", followed.stderr);
    assert!(followed.stderr.contains("`runner logs default/x/a` prints it"), "{}", followed.stderr);
    assert_eq!(followed.stdout, "the password is hunter2\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn datastore_without_appends_stores_the_whole_log_at_the_end() {
    let datastore = TestDatastore::memory().await;
    for status in [404, 405, 500, 0] {
        let fault = Fault { method: "POST", part: "/api/logs", status, times: usize::MAX };
        let proxy = FaultyDatastore::before(&datastore.url, vec![fault]).await;
        let sandbox = Sandbox::new(RUNNER);
        let go = waiting(&sandbox);
        let run = format!("r{status}");
        let applying =
            sandbox.start(Some(&proxy.url), &["apply", "--no-plan", "--name", "x", "--run", &run]);
        eventually("an append is refused", || {
            proxy.seen().iter().any(|seen| seen.contains("POST") && seen.contains("/api/logs"))
        });
        std::fs::write(go, "").unwrap();
        let applied = applying.wait();
        assert_eq!(applied.code, 0, "{status}: {}", applied.stderr);
        assert!(!applied.stderr.contains("append"), "{status}: {}", applied.stderr);
        let log = StoredRun::new(&datastore, "default", "x", &run).log(0).await;
        assert!(log.contains("Apply complete!"), "{status}: {log}");
    }
}
