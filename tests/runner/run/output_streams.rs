//! Standard output and standard error that take nothing more.

use std::fs::OpenOptions;

use support::{Ended, Sandbox, TestDatastore};

use crate::stored_run::StoredRun;
use crate::{RUNNER, json};

#[tokio::test(flavor = "multi_thread")]
async fn full_stdout_fails_printing_commands_but_no_run() {
    let full = || OpenOptions::new().write(true).open("/dev/full").unwrap();
    let datastore = TestDatastore::memory().await;
    let sandbox = Sandbox::new(RUNNER).hello().fake_terraform("");
    let mut plan = sandbox.command(&["plan", "--run", "p", "--name", "x"]);
    plan.env("PLANCHA_DATASTORE_URL", datastore.url.as_str()).stdout(full());
    let ended = Ended::from(plan.output().unwrap());
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    let log = StoredRun::new(&datastore, "default", "x", "p").log(0).await;
    assert!(log.contains("plan is done"), "{log}");

    for args in [["version"].as_slice(), &["resolve", "terraform@1.9.8"]] {
        let ended = Ended::from(sandbox.command(args).stdout(full()).output().unwrap());
        assert_ne!(ended.code, 0, "{args:?}");
        assert!(ended.stderr.contains("stdout"), "{args:?}: {}", ended.stderr);
    }
}

/// Only the output is lost: not the apply, its files or its exit code.
#[tokio::test(flavor = "multi_thread")]
async fn unwritable_stderr_does_not_change_a_run() {
    let full = || OpenOptions::new().write(true).open("/dev/full").unwrap();
    let datastore = TestDatastore::memory().await;
    for format in ["text", "json"] {
        let sandbox = Sandbox::new(RUNNER).hello();
        let run = |args: &[&str]| {
            let mut command = sandbox.command(args);
            command.env("PLANCHA_DATASTORE_URL", datastore.url.as_str());
            command.env("PLANCHA_LOG_FORMAT", format).stdout(full()).stderr(full());
            Ended::from(command.output().unwrap()).code
        };
        assert_eq!(run(&["plan", "--run", "p", "--name", format, "--detailed-exitcode"]), 2);
        let apply = ["apply", "--run", "a", "--name", format, "--plan", "p"];
        assert_eq!(run(&[apply.as_slice(), &["--result", "r.json"]].concat()), 0);
        let stored = StoredRun::new(&datastore, "default", format, "a");
        assert!(stored.log(0).await.contains("Apply complete!"));
        for report in [stored.artifact("run.json", 0).await, sandbox.read("r.json").into()] {
            assert_eq!(json(&report)["outcome"], "applied");
        }
        assert_eq!(run(&["plan", "--revision", "no"]), 64);
        assert!(sandbox.is_clean());
        for args in
            [["version"].as_slice(), &["resolve", "terraform@1.9.8"], &["tools", "list", "--json"]]
        {
            assert_eq!(run(args), 1, "{args:?}");
        }
        assert_eq!(run(&["--help"]), 0);
    }
}
