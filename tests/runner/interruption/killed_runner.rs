//! A runner that is killed at any step: nothing partial is visible, and the next run works.

use support::{Sandbox, TestDatastore, eventually};

use crate::RUNNER;
use crate::stored_run::StoredRun;

#[tokio::test(flavor = "multi_thread")]
async fn plan_after_a_killed_plan_succeeds() {
    for (step, pattern) in
        [("init", "init*"), ("plan", "plan*"), ("json", "show*-json*"), ("show", "show*plan.bin")]
    {
        let datastore = TestDatastore::temporary().await;
        let sandbox = paused(step, pattern);
        let plan = &["plan", "--layer", "layer.yaml", "--run", "r"];
        let before = sandbox.read("layer.yaml");

        kill_at(&sandbox, &datastore, plan);

        assert_eq!(sandbox.read("layer.yaml"), before, "{step}");
        let stored = StoredRun::new(&datastore, "default", "hello", "r");
        for name in stored.names(0).await {
            assert_eq!(name, "plan.bin", "{step}: only what was sent ahead");
            assert!(stored.plan("bin", 0).await.starts_with(b"a plan of "), "{step}");
        }
        let ended = sandbox.run_with(&datastore.url, plan);
        assert_eq!(ended.code, 0, "{step}: {}", ended.stderr);
        let ended = sandbox.run_with(&datastore.url, &["apply", "--layer", "layer.yaml"]);
        assert_eq!(ended.code, 0, "{step}: {}", ended.stderr);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn apply_after_a_killed_apply_succeeds() {
    let datastore = TestDatastore::temporary().await;
    let sandbox = paused("apply", "apply*");
    let run = |args: &[&str]| sandbox.run_with(&datastore.url, args);
    assert_eq!(run(&["plan", "--layer", "layer.yaml"]).code, 0);
    let planned = sandbox.read("layer.yaml");
    let apply = &["apply", "--layer", "layer.yaml"];

    kill_at(&sandbox, &datastore, apply);

    assert_eq!(sandbox.read("layer.yaml"), planned);
    assert_eq!(run(apply).code, 0);
    assert!(sandbox.read("layer.yaml").contains("apply-sum: "));
}

/// With the real tool: the state file's lock goes with the process, and the next apply ends the work.
#[tokio::test(flavor = "multi_thread")]
async fn next_apply_completes_a_killed_one() {
    let datastore = TestDatastore::memory().await;
    let sandbox = Sandbox::new(RUNNER);
    sandbox.write(
        "main.tf",
        r#"resource "terraform_data" "slow" {
             provisioner "local-exec" { command = "touch started; while [ -e wait ]; do sleep 0.1; done" }
           }"#,
    );
    sandbox.write("wait", "");
    let run = |args: &[&str]| sandbox.run_with(&datastore.url, args);
    assert_eq!(run(&["plan", "--name", "x"]).code, 0);
    let runner = sandbox.start(Some(&datastore.url), &["apply", "--name", "x"]);
    eventually("the provisioner runs", || sandbox.work().join("started").exists());
    runner.signal("KILL");
    assert_eq!(runner.wait().code, -1);
    std::fs::remove_file(sandbox.work().join("wait")).unwrap();

    // The guard has sent the orphaned tool a SIGINT. It holds the lock of the state until it has ended.
    eventually("a plan gets the lock", || {
        run(&["plan", "--name", "x", "--run", "again"]).code == 0
    });
    let ended = run(&["apply", "--name", "x", "--plan", "again"]);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    let ended = run(&["plan", "--name", "x", "--detailed-exitcode"]);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
}

/// A fake tool that waits in one step as long as the file `wait` is there.
fn paused(step: &str, pattern: &str) -> Sandbox {
    let sandbox = Sandbox::new(RUNNER).hello();
    let (at, wait) = (sandbox.path("at"), sandbox.path("wait"));
    sandbox.fake_terraform(&format!(
        "case \"$*\" in {pattern}) echo {step} > {}; while [ -e {} ]; do sleep 0.05; done;; esac",
        at.display(),
        wait.display()
    ))
}

fn kill_at(sandbox: &Sandbox, datastore: &TestDatastore, args: &[&str]) {
    std::fs::write(sandbox.path("wait"), "").unwrap();
    let runner = sandbox.start(Some(&datastore.url), args);
    eventually("the step is reached", || sandbox.path("at").exists());
    runner.signal("KILL");
    assert_eq!(runner.wait().code, -1);
    std::fs::remove_file(sandbox.path("wait")).unwrap();
}
