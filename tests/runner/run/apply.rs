//! `runner apply`: which plan, checked how, and what is left behind.

use support::{Ended, Fault, FaultyDatastore, Sandbox, TestDatastore};

use crate::stored_run::StoredRun;
use crate::{RUNNER, json};

const PLAN: &[&str] = &["plan", "--layer", "layer.yaml", "--run", "p"];
const APPLY: &[&str] = &["apply", "--layer", "layer.yaml", "--run", "a"];

#[tokio::test(flavor = "multi_thread")]
async fn stored_plan_is_applied_and_the_layer_annotated() {
    let datastore = TestDatastore::memory().await;
    let sandbox = Sandbox::new(RUNNER).hello();
    assert_eq!(sandbox.run_with(&datastore.url, PLAN).code, 0);

    let ended = sandbox.run_with(&datastore.url, APPLY);

    assert_eq!(ended.code, 0, "{}", ended.stderr);
    assert!(ended.stdout.contains("Hello, world!"), "the provisioner speaks: {}", ended.stdout);
    assert!(ended.stdout.contains("Apply complete! Resources: 1 added"), "{}", ended.stdout);
    assert!(json(sandbox.read("terraform.tfstate").as_bytes())["resources"][0].is_object());
    let layer = sandbox.read("layer.yaml");
    let value = |key: &str| {
        let key = format!("runner.terraform.padok.cloud/{key}: ");
        layer.lines().find_map(|line| line.trim().strip_prefix(&key)).map(str::to_owned)
    };
    assert_eq!(value("apply-sum"), value("plan-sum"));
    assert!(value("apply-date").unwrap().contains(" UTC "));
    let stored = StoredRun::new(&datastore, "default", "hello", "a");
    assert_eq!(stored.plan("short", 0).await, b"Apply Successful");
    assert!(stored.log(0).await.contains("Apply complete!"));
    let report = json(&stored.artifact("run.json", 0).await);
    assert_eq!((&report["outcome"], &report["exit"]), (&"applied".into(), &0.into()));
    assert_eq!(report["applied"], report["plan"]["sha256"]);
    assert_eq!((&report["plan"]["run"], &report["plan"]["attempt"]), (&"p".into(), &0.into()));
    assert!(sandbox.is_clean());
}

#[tokio::test(flavor = "multi_thread")]
async fn plan_with_another_digest_than_annotated_never_reaches_the_tool() {
    let datastore = TestDatastore::memory().await;
    let sandbox = Sandbox::new(RUNNER).hello().fake_terraform("");
    assert_eq!(sandbox.run_with(&datastore.url, PLAN).code, 0);
    StoredRun::new(&datastore, "default", "hello", "p").put_plan_bin(0, b"another plan").await;

    let ended = sandbox.run_with(&datastore.url, APPLY);

    assert_eq!(ended.code, 9, "{}", ended.stderr);
    assert!(ended.stderr.contains("the annotation plan-sum has"), "{}", ended.stderr);
    assert!(!sandbox.calls().iter().any(|call| call.starts_with("apply")));
    assert!(!sandbox.read("layer.yaml").contains("apply-"));
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_layer_the_newest_planned_run_is_verified_and_applied() {
    let datastore = TestDatastore::temporary().await;
    let sandbox = Sandbox::new(RUNNER).hello().fake_terraform("");
    let run = |args: &[&str]| sandbox.run_with(&datastore.url, args);
    assert_eq!(run(&["plan", "--name", "x", "--run", "older"]).code, 0);
    assert_eq!(run(&["plan", "--name", "x", "--run", "newer"]).code, 0);
    assert_eq!(run(&["plan", "--name", "y", "--run", "other-layer"]).code, 0);

    let ended = run(&["apply", "--name", "x", "--run", "a"]);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    let stored = StoredRun::new(&datastore, "default", "x", "a");
    assert_eq!(json(&stored.artifact("run.json", 0).await)["plan"]["run"], "newer");

    let ended = run(&["apply", "--name", "x", "--plan", "older"]);
    assert_eq!(ended.code, 0, "{}", ended.stderr);

    StoredRun::new(&datastore, "default", "x", "older").put_plan_bin(0, b"another plan").await;
    let ended = run(&["apply", "--name", "x", "--plan", "older/0"]);
    assert_eq!(ended.code, 9, "{}", ended.stderr);
    assert!(ended.stderr.contains("its binding.json has"), "{}", ended.stderr);
}

#[tokio::test(flavor = "multi_thread")]
async fn plan_without_a_recorded_digest_is_refused() {
    let datastore = TestDatastore::memory().await;
    let sandbox = Sandbox::new(RUNNER).hello().fake_terraform("");
    StoredRun::new(&datastore, "default", "x", "p").put_plan_bin(0, b"a plan").await;
    let ended = sandbox.run_with(&datastore.url, &["apply", "--name", "x", "--plan", "p"]);
    assert_eq!(ended.code, 9, "{}", ended.stderr);
    assert!(ended.stderr.contains("cannot be verified"), "{}", ended.stderr);
    assert_eq!(sandbox.calls(), [] as [&str; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn missing_plan_is_a_configuration_error() {
    let datastore = TestDatastore::memory().await;
    let sandbox = Sandbox::new(RUNNER).hello().fake_terraform("");
    for (args, text) in [
        (&["apply", "--name", "x"][..], "the datastore has no plan of default/x"),
        (&["apply", "--name", "x", "--plan", "p"], "the datastore has no plan `p` of default/x"),
        (
            &["apply", "--name", "x", "--plan", "p/3"],
            "the datastore has no plan `p/3` of default/x",
        ),
        (&["apply", "--layer", "layer.yaml"], "the layer has no annotation plan-run"),
        (&["apply", "--plan-file", "missing"], "--plan-file missing does not exist"),
    ] {
        let ended = match text {
            "--plan-file missing does not exist" => sandbox.run(args),
            _ => sandbox.run_with(&datastore.url, args),
        };
        assert_eq!(ended.code, 8, "{args:?}: {}", ended.stderr);
        assert!(ended.stderr.contains(text), "{args:?}: {}", ended.stderr);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn apply_without_a_plan_needs_a_flag_or_the_layers_setting() {
    let datastore = TestDatastore::memory().await;
    let sandbox = Sandbox::new(RUNNER).hello().fake_terraform("");
    let ended = sandbox.run_with(&datastore.url, &["apply", "--no-plan", "--var", "name=x"]);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    assert_eq!(
        sandbox.calls().last().unwrap(),
        "apply -no-color -input=false -auto-approve -var=name=x"
    );

    let layer = sandbox.read("layer.yaml");
    let strategy = "spec:\n  remediationStrategy: {applyWithoutPlanArtifact: true}\n";
    sandbox.write("layer.yaml", &layer.replace("spec:\n", strategy));
    assert_eq!(sandbox.run_with(&datastore.url, APPLY).code, 0);
    assert_eq!(sandbox.calls().last().unwrap(), "apply -no-color -input=false -auto-approve");
    let stored = StoredRun::new(&datastore, "default", "hello", "a");
    assert_eq!(json(&stored.artifact("run.json", 0).await)["applied"], "unplanned");
}

#[test]
fn plan_file_carries_a_plan_to_apply_without_a_datastore() {
    let sandbox = Sandbox::new(RUNNER).hello();
    let ended = sandbox.run(&["plan", "--layer", "layer.yaml", "--plan-file", "the.plan"]);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    let mode = std::os::unix::fs::PermissionsExt::mode(
        &std::fs::metadata(sandbox.work().join("the.plan")).unwrap().permissions(),
    );
    assert_eq!(mode & 0o777, 0o600);

    let ended = sandbox.run(&["apply", "--layer", "layer.yaml", "--plan-file", "the.plan"]);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    assert!(ended.stdout.contains("Apply complete!"));

    sandbox.write("the.plan", "another plan");
    let ended = sandbox.run(&["apply", "--layer", "layer.yaml", "--plan-file", "the.plan"]);
    assert_eq!(ended.code, 9, "{}", ended.stderr);
}

#[tokio::test(flavor = "multi_thread")]
async fn apply_record_is_stored_first_and_a_lost_upload_is_reported() {
    let datastore = TestDatastore::memory().await;
    let sandbox = Sandbox::new(RUNNER).hello().fake_terraform("");
    assert_eq!(sandbox.run_with(&datastore.url, PLAN).code, 0);
    let fault = Fault { method: "PUT", part: "/api/logs", status: 500, times: usize::MAX };
    let faulty = FaultyDatastore::before(&datastore.url, vec![fault]).await;

    let ended = sandbox.run_with(&faulty.url, APPLY);

    assert_eq!(ended.code, 10, "{}", ended.stderr);
    // The record of the attempt and that of the plan are sent side by side, before anything else.
    let seen = faulty.seen();
    let mut puts: Vec<_> = seen.iter().filter(|place| place.starts_with("PUT")).take(2).collect();
    puts.sort();
    assert!(puts[0].contains("/api/applied"), "{seen:?}");
    assert!(puts[1].contains("name=applied.json"), "{seen:?}");
    assert!(sandbox.read("layer.yaml").contains("apply-sum: "), "the layer knows all the same");
    let report = StoredRun::new(&datastore, "default", "hello", "a").artifact("run.json", 0).await;
    let report = json(&report);
    assert!(report["applied"].is_string());
    assert_eq!((&report["outcome"], &report["exit"]), (&"applied".into(), &10.into()));
}

#[tokio::test(flavor = "multi_thread")]
async fn failed_apply_stores_its_log_and_annotates_nothing() {
    let datastore = TestDatastore::memory().await;
    let sandbox = Sandbox::new(RUNNER).hello();
    let code = sandbox.read("main.tf").replace("echo \\\"$GREETING\\\"", "exit 7");
    sandbox.write("main.tf", &code);
    assert_eq!(sandbox.run_with(&datastore.url, PLAN).code, 0);

    let ended = sandbox.run_with(&datastore.url, APPLY);

    assert_eq!(ended.code, 1, "{}", ended.stderr);
    assert!(!sandbox.read("layer.yaml").contains("apply-"));
    let stored = StoredRun::new(&datastore, "default", "hello", "a");
    assert!(stored.log(0).await.contains("local-exec provisioner error"));
    let report = json(&stored.artifact("run.json", 0).await);
    assert_eq!((&report["outcome"], &report["state_lock"]), (&"failed".into(), &"free".into()));
    assert!(report["applied"].is_null());
}

#[tokio::test(flavor = "multi_thread")]
async fn unfinished_run_hides_no_older_plan_and_cannot_be_applied_by_name() {
    let datastore = TestDatastore::memory().await;
    let fault = Fault { method: "PUT", part: "format=json", status: 400, times: usize::MAX };
    let lossy = FaultyDatastore::before(&datastore.url, vec![fault]).await;
    let sandbox = Sandbox::new(RUNNER).hello().fake_terraform("");
    let plan = |run| ["plan", "--name", "x", "--run", run];
    assert_eq!(sandbox.run_with(&datastore.url, &plan("whole")).code, 0);
    assert_eq!(sandbox.run_with(&lossy.url, &plan("lossy")).code, 10);
    // As a runner leaves it that was killed while it showed the plan.
    StoredRun::new(&datastore, "default", "x", "killed").put_plan_bin(0, b"a plan").await;

    let ended = sandbox.run_with(&datastore.url, &["apply", "--name", "x", "--run", "a"]);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    let report = StoredRun::new(&datastore, "default", "x", "a").artifact("run.json", 0).await;
    assert_eq!(json(&report)["plan"]["run"], "whole");

    let ended = sandbox.run_with(&datastore.url, &["apply", "--name", "x", "--plan", "lossy"]);
    assert_eq!(ended.code, 8, "{}", ended.stderr);
    assert!(ended.stderr.contains("did not finish"), "{}", ended.stderr);
}

#[tokio::test(flavor = "multi_thread")]
async fn lost_upload_after_the_apply_is_a_warning_under_burrito() {
    let datastore = TestDatastore::memory().await;
    let fault = Fault { method: "PUT", part: "/api/logs", status: 400, times: usize::MAX };
    let lossy = FaultyDatastore::before(&datastore.url, vec![fault]).await;
    let sandbox = Sandbox::new(RUNNER).hello().fake_terraform("");
    let burrito = sandbox.path("bin/burrito");
    std::os::unix::fs::symlink(RUNNER, &burrito).unwrap();
    let mut command = sandbox.program(&burrito, &["runner", "apply", "--no-plan"]);
    let output = command.env("PLANCHA_DATASTORE_URL", lossy.url.as_str()).output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    assert!(String::from_utf8(output.stderr).unwrap().contains("not all of it is stored"));
}

/// The apply `a`, attempt 0, which was killed before it could say anything but its note.
fn applied_before(datastore: &TestDatastore) -> Sandbox {
    let sandbox = Sandbox::new(RUNNER).hello().fake_terraform("[ $STEP != init ] || exit $CODE");
    assert_eq!(again(&sandbox, datastore, "0", PLAN).code, 0);
    let planned = sandbox.read("layer.yaml");
    let ended = again(&sandbox, datastore, "0", APPLY);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    sandbox.write("layer.yaml", &planned);
    sandbox
}

fn again(sandbox: &Sandbox, datastore: &TestDatastore, init: &str, args: &[&str]) -> Ended {
    let mut command = sandbox.command(args);
    command.env("PLANCHA_DATASTORE_URL", datastore.url.as_str()).env("CODE", init);
    command.output().unwrap().into()
}

fn applies(sandbox: &Sandbox) -> usize {
    sandbox.calls().iter().filter(|call| call.starts_with("apply")).count()
}

#[tokio::test(flavor = "multi_thread")]
async fn recording_an_earlier_apply_needs_no_init() {
    let datastore = TestDatastore::memory().await;
    let sandbox = applied_before(&datastore);
    for _ in 0..2 {
        let ended = again(&sandbox, &datastore, "7", APPLY);
        assert_eq!((ended.code, applies(&sandbox)), (0, 1), "{}", ended.stderr);
        assert!(ended.stderr.contains("attempt 0 of run a has applied this"), "{}", ended.stderr);
        assert!(sandbox.read("layer.yaml").contains("apply-sum: "));
    }
}

/// A plan whose stored bytes have changed behind the datastore's back.
#[tokio::test(flavor = "multi_thread")]
async fn damaged_stored_plan_is_reported_with_both_digests() {
    let large = "case $STEP in plan) head -c 3000000 /dev/zero > \"$OUT\"; exit 0;; esac";
    for script in ["", large] {
        let datastore = TestDatastore::temporary().await;
        let sandbox = Sandbox::new(RUNNER).hello().fake_terraform(script);
        let plan = ["plan", "--name", "x", "--run", "p"];
        assert_eq!(sandbox.run_with(&datastore.url, &plan).code, 0);
        let stored = StoredRun::new(&datastore, "default", "x", "p");
        let report = json(&stored.artifact("run.json", 0).await);
        let expected = report["plan"]["sha256"].as_str().unwrap();
        let file = datastore.root().join("layers/default/x/p/0/plan.bin");
        let whole = std::fs::read(&file).unwrap();
        let mut flipped = whole.clone();
        *flipped.last_mut().unwrap() ^= 1;
        let cut = whole[..whole.len() - 1].to_vec();
        for (bytes, is_known) in [(flipped, true), (cut, false)] {
            std::fs::write(&file, &bytes).unwrap();
            let ended = sandbox.run_with(&datastore.url, &["apply", "--name", "x"]);
            assert_eq!(ended.code, 9, "{}", ended.stderr);
            let found = datastore_api::Sha256::of(&bytes).to_string();
            for text in
                ["the stored plan p/0 is damaged", expected, "nothing was applied; plan again"]
            {
                assert!(ended.stderr.contains(text), "{text}: {}", ended.stderr);
            }
            assert_eq!(ended.stderr.contains(&found), is_known, "{}", ended.stderr);
            assert!(!ended.stderr.contains("trying again"), "{}", ended.stderr);
        }
        assert!(!sandbox.calls().iter().any(|call| call.starts_with("apply")));
    }
}

#[test]
fn stale_plan_and_directory_without_code_have_a_hint() {
    let sandbox = Sandbox::new(RUNNER);
    sandbox.write("main.tf", "resource \"terraform_data\" \"x\" {\n  input = 1\n}\n");
    for file in ["one", "two"] {
        assert_eq!(sandbox.run(&["plan", "--plan-file", file]).code, 0);
    }
    assert_eq!(sandbox.run(&["apply", "--plan-file", "one"]).code, 0);
    let ended = sandbox.run(&["apply", "--plan-file", "two"]);
    assert_eq!(ended.code, 9, "{}", ended.stderr);
    assert!(
        ended.stderr.contains("next: the state has changed since the plan was made: plan again")
    );
    std::fs::create_dir(sandbox.work().join("empty")).unwrap();
    let ended = sandbox.run(&["plan", "empty"]);
    assert_eq!(ended.code, 8, "{}", ended.stderr);
    let text = "empty has no configuration: name the module's directory";
    assert!(ended.stderr.contains(text), "{}", ended.stderr);
}

/// The shell's `<(command)` can be read once, and the tool needs its values.
#[tokio::test(flavor = "multi_thread")]
async fn file_of_variables_that_is_a_pipe_is_read_by_the_tool_alone_and_said_to_be_unrecorded() {
    let datastore = TestDatastore::memory().await;
    let script =
        "for arg in \"$@\"; do case $arg in -var-file=*) cat ${arg#-var-file=};; esac; done";
    let sandbox = Sandbox::new(RUNNER).hello().fake_terraform(script);
    for (run, file, is_pipe) in [("a", "<(echo from-a-pipe)", true), ("b", "x.tfvars", false)] {
        sandbox.write("x.tfvars", "from-a-file");
        let command = format!("{RUNNER} apply --no-plan --name x --run {run} --var-file {file}");
        let mut shell = sandbox.program(std::path::Path::new("/bin/bash"), &["-c", &command]);
        let shell = shell.env("PLANCHA_DATASTORE_URL", datastore.url.as_str());
        let applied = Ended::from(shell.output().unwrap());
        assert_eq!(applied.code, 0, "{}", applied.stderr);
        let value = if is_pipe { "from-a-pipe" } else { "from-a-file" };
        assert_eq!(applied.stdout.matches(value).count(), 1, "{}", applied.stdout);
        let warns = applied.stderr.contains("is a pipe, which only the tool can read");
        assert_eq!(warns, is_pipe, "{}", applied.stderr);
    }
}
