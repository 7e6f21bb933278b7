//! A plan lists and claims its attempt while its code is checked out, and before init.

use std::path::PathBuf;

use support::{Fault, FaultyDatastore, Sandbox, TestDatastore, eventually};

use crate::RUNNER;
use crate::source::checkout::repository;

/// Puts a git on PATH that creates the file `called` when it fetches, and then waits as long as the file `wait` exists.
fn watched_git(sandbox: &Sandbox) -> [PathBuf; 2] {
    let files = ["called", "wait"].map(|name| sandbox.path(name));
    let [called, wait] = files.each_ref().map(|file| file.display());
    let real = support::on_path("git").unwrap();
    let script = format!(
        "#!/bin/sh\ncase \" $* \" in *' fetch '*) touch {called}; while [ -e {wait} ]; do sleep 0.05; done;; \
         esac\nexec {real} \"$@\"\n",
        real = real.display()
    );
    sandbox.script("git", &script);
    files
}

#[tokio::test(flavor = "multi_thread")]
async fn plan_claims_its_attempt_while_its_code_is_checked_out() {
    let datastore = TestDatastore::memory().await;
    let sandbox = Sandbox::new(RUNNER).fake_terraform("");
    let url = format!("file://{}", repository(&sandbox).dir.display());
    let plan = ["plan", &url, "--path", "live/vpc", "--name", "x", "--run", "p"];
    let [called, wait] = watched_git(&sandbox);
    let is_claimed = |datastore: &FaultyDatastore| {
        datastore.seen().iter().any(|line| line.starts_with("POST /api/attempts"))
    };

    // The checkout does not wait for the claim.
    let unanswered = Fault { method: "POST", part: "/api/attempts", status: 0, times: usize::MAX };
    let silent = FaultyDatastore::before(&datastore.url, vec![unanswered]).await;
    let runner = sandbox.start(Some(&silent.url), &plan);
    eventually("both have started", || is_claimed(&silent) && called.exists());
    runner.signal("TERM");
    let ended = runner.wait();
    assert_eq!(ended.code, 143, "{}", ended.stderr);
    assert_eq!(sandbox.calls(), Vec::<String>::new(), "init waits for the claim");

    // The claim does not wait for the checkout.
    std::fs::remove_file(&called).unwrap();
    std::fs::write(&wait, "").unwrap();
    let listening = FaultyDatastore::before(&datastore.url, vec![]).await;
    let runner = sandbox.start(Some(&listening.url), &plan);
    eventually("both have started", || is_claimed(&listening) && called.exists());
    std::fs::remove_file(&wait).unwrap();
    let ended = runner.wait();
    assert_eq!(ended.code, 0, "{}", ended.stderr);
}
