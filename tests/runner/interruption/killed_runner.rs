//! A runner that is killed at any step: nothing partial is visible, and the next run works.

use std::time::Duration;

use support::{Ended, Sandbox, TestDatastore, eventually, has_ended};

use crate::RUNNER;
use crate::stored_run::StoredRun;

#[tokio::test(flavor = "multi_thread")]
async fn plan_after_a_killed_plan_succeeds() {
    for (step, pattern) in
        [("init", "init*"), ("plan", "plan*"), ("json", "show*-json*"), ("show", "show*plan.bin")]
    {
        let datastore = TestDatastore::temporary().await;
        let sandbox = paused(pattern);
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

/// What the killed one has created is not known.
#[tokio::test(flavor = "multi_thread")]
async fn plan_of_a_killed_apply_is_made_again() {
    let datastore = TestDatastore::temporary().await;
    let sandbox = paused("apply*");
    let run = |args: &[&str]| sandbox.run_with(&datastore.url, args);
    assert_eq!(run(&["plan", "--layer", "layer.yaml"]).code, 0);
    let planned = sandbox.read("layer.yaml");
    let apply = &["apply", "--layer", "layer.yaml"];

    kill_at(&sandbox, &datastore, apply);

    assert_eq!(sandbox.read("layer.yaml"), planned);
    let ended = run(apply);
    assert_eq!(ended.code, 9, "{}", ended.stderr);
    assert!(ended.stderr.contains("then plan again"), "{}", ended.stderr);
    assert_eq!(run(&["plan", "--layer", "layer.yaml"]).code, 0);
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

/// With the real tool, which has replaced a resource when its runner is killed.
#[tokio::test(flavor = "multi_thread")]
async fn complete_apply_of_a_killed_runner_is_recorded_and_not_repeated() {
    for tmp in ["tmp", "another-tmp"] {
        let datastore = TestDatastore::memory().await;
        let sandbox = kills_its_runner();
        let kill = sandbox.path("kill");
        let run = |args: &[&str]| {
            let mut command = sandbox.command(args);
            std::fs::create_dir_all(sandbox.path(tmp)).unwrap();
            let tmp = if kill.exists() { sandbox.path("tmp") } else { sandbox.path(tmp) };
            command.env("TMPDIR", tmp).env("PLANCHA_DATASTORE_URL", datastore.url.as_str());
            Ended::from(command.output().unwrap())
        };
        assert_eq!(run(&["apply", "--no-plan", "--name", "x", "--run", "first"]).code, 0);
        let order = ["apply", "--no-plan", "--name", "x", "--run", "r", "--order-key", "k"];
        let order = [&order[..], &["--replace", "terraform_data.a"]].concat();
        let planned = ["apply", "--name", "x", "--run", "a", "--plan", "p"];
        for (order, run_name) in [(&order[..], "r"), (&planned, "a")] {
            if run_name == "a" {
                assert_eq!(run(&["plan", "--name", "x", "--run", "p", "--", "-destroy"]).code, 0);
            }
            std::fs::write(&kill, "").unwrap();
            assert_eq!(run(order).code, -1);
            std::fs::remove_file(&kill).unwrap();
            let state = sandbox.read("terraform.tfstate");

            let repeated = run(order);

            assert_eq!(repeated.code, 0, "{tmp}: {}", repeated.stderr);
            let says = format!("attempt 0 of run {run_name} has applied this: nothing is applied");
            assert!(repeated.stderr.contains(&says), "{tmp}: {}", repeated.stderr);
            assert_eq!(sandbox.read("terraform.tfstate"), state);
            let stored = StoredRun::new(&datastore, "default", "x", run_name);
            assert!(stored.names(0).await.contains(&"applied.json".to_owned()));
        }
    }
}

/// The real tool. Where there is a file `kill`, it kills its runner when an apply has ended.
fn kills_its_runner() -> Sandbox {
    let sandbox = Sandbox::new(RUNNER);
    let tool = format!(
        "#!/bin/sh\n{} \"$@\" || exit\n[ $1 != apply ] || [ ! -e {} ] || kill -9 $PPID\n",
        support::on_path("terraform").unwrap().display(),
        sandbox.path("kill").display()
    );
    sandbox.script("terraform", &tool);
    sandbox.write("main.tf", "resource \"terraform_data\" \"a\" {}\n");
    sandbox
}

/// A fake tool that waits in one step as long as the file `wait` is there.
fn paused(pattern: &str) -> Sandbox {
    let sandbox = Sandbox::new(RUNNER).hello();
    let (at, wait) = (sandbox.path("at"), sandbox.path("wait"));
    sandbox.fake_terraform(&format!(
        "case \"$*\" in {pattern}) echo $$ > {at}.new; mv {at}.new {at}; while [ -e {wait} ]; do sleep 0.05; done;; esac",
        at = at.display(),
        wait = wait.display()
    ))
}

fn kill_at(sandbox: &Sandbox, datastore: &TestDatastore, args: &[&str]) {
    std::fs::write(sandbox.path("wait"), "").unwrap();
    let runner = sandbox.start(Some(&datastore.url), args);
    eventually("the step is reached", || sandbox.path("at").exists());
    // The guard knows the tool a moment after its start.
    std::thread::sleep(Duration::from_millis(300));
    runner.signal("KILL");
    assert_eq!(runner.wait().code, -1);
    // The tool is asked to stop when its runner is killed.
    let tool = std::fs::read_to_string(sandbox.path("at")).unwrap();
    let tool = tool.trim().parse().unwrap();
    eventually("the tool has ended", || has_ended(tool));
    std::fs::remove_file(sandbox.path("wait")).unwrap();
}
