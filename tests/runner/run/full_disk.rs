//! A disk that fills up during a run: truncated output is never stored as complete, and what cannot be stored is kept.

use std::path::Path;

use support::{Ended, Sandbox, TestDatastore};
use url::Url;

use super::apply_once::{applies, lost_everything};
use super::unsent_files::advised;
use crate::source::checkout::git;
use crate::state_server::StateServer;
use crate::stored_run::StoredRun;
use crate::{RUNNER, json};

/// Eight megabytes of lines, whatever becomes of them.
const LINES: &str = "yes 'a line of the tool' | head -c 8000000; exit 0";

/// A script that may mount, with the runner as `$0` and its arguments as `$@`. It exits with 99 if a mount fails.
fn with_mounts(sandbox: &Sandbox, script: &str, datastore: &Url, args: &[&str]) -> Ended {
    let words = [&["-rm", "sh", "-c", script, RUNNER], args].concat();
    let mut command = sandbox.program(Path::new("unshare"), &words);
    command.env("PLANCHA_DATASTORE_URL", datastore.as_str());
    command.env("XDG_STATE_HOME", sandbox.path("state"));
    let ended = Ended::from(command.output().unwrap());
    let is_mounted = ended.code != 99 && !ended.stderr.starts_with("unshare:");
    assert!(is_mounted, "no file system can be mounted: {}", ended.stderr);
    ended
}

/// Runs the runner with 3 MiB for temporary files.
fn run(sandbox: &Sandbox, datastore: &TestDatastore, args: &[&str]) -> Ended {
    let script = "mount -t tmpfs -o size=3m tmpfs \"$TMPDIR\" || exit 99; exec \"$0\" \"$@\"";
    with_mounts(sandbox, script, &datastore.url, args)
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs mounts in a user namespace"]
async fn truncated_rendering_on_a_full_disk_is_not_stored() {
    for (calls, step) in [("*-json*) ;; show*", "show"), ("*-json*", "show json")] {
        let datastore = TestDatastore::memory().await;
        let sandbox = Sandbox::new(RUNNER).hello();
        let sandbox = sandbox.fake_terraform(&format!("case \"$*\" in {calls}) {LINES};; esac"));
        let ended = run(&sandbox, &datastore, &["plan", "--name", "x", "--run", "r"]);
        assert_eq!(ended.code, 1, "{}", ended.stderr);
        let expected = format!("the output of terraform {step} could not be stored");
        for text in [&expected, "No space left", "set TMPDIR"] {
            assert!(ended.stderr.contains(text), "{text}: {}", ended.stderr);
        }
        let names = StoredRun::new(&datastore, "default", "x", "r").names(0).await;
        for truncated in ["pretty.plan", "plan.json", "short.diff"] {
            assert!(!names.iter().any(|name| name == truncated), "{step}: {names:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs mounts in a user namespace"]
async fn log_truncated_by_a_full_disk_fails_the_plan() {
    let datastore = TestDatastore::memory().await;
    let sandbox = Sandbox::new(RUNNER).hello();
    let sandbox = sandbox
        .fake_terraform(&format!("if [ $STEP = plan ]; then echo plan > \"$OUT\"; {LINES}; fi"));
    let ended = run(&sandbox, &datastore, &["plan", "--name", "x", "--run", "r"]);
    assert_eq!(ended.code, 1, "{}", ended.stderr);
    for text in ["the output of terraform plan could not be stored", "No space left", "set TMPDIR"]
    {
        assert!(ended.stderr.contains(text), "{text}: {}", ended.stderr);
    }
    let log = StoredRun::new(&datastore, "default", "x", "r").log(0).await;
    assert!(log.contains("a line of the tool"));
    assert!(log.contains("[the log is incomplete from here on: "), "{}", tail(&log));
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs mounts in a user namespace"]
async fn apply_succeeds_although_its_log_fills_the_disk() {
    let datastore = TestDatastore::memory().await;
    let sandbox = Sandbox::new(RUNNER).hello();
    let sandbox = sandbox.fake_terraform(&format!("if [ $STEP = apply ]; then {LINES}; fi"));
    let args = ["apply", "--no-plan", "--name", "x", "--run", "r"];
    let ended = run(&sandbox, &datastore, &args);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    assert!(ended.stderr.contains("the log is incomplete"), "{}", ended.stderr);
    let stored = StoredRun::new(&datastore, "default", "x", "r");
    let report = json(&stored.artifact("run.json", 0).await);
    assert_eq!(report["applied"], "unplanned");
    let log = stored.log(0).await;
    assert!(log.contains("[the log is incomplete from here on: "), "{}", tail(&log));
}

/// What the tool printed about a refused state may be lost.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs mounts in a user namespace"]
async fn failed_apply_with_an_incomplete_output_refuses_the_next_one() {
    let datastore = TestDatastore::memory().await;
    let sandbox = Sandbox::new(RUNNER).hello();
    let lines = LINES.replace("exit 0", "echo 'Error: Failed to save state'; exit 1");
    let sandbox = sandbox.fake_terraform(&format!("if [ $STEP = apply ]; then {lines}; fi"));
    let args = ["apply", "--no-plan", "--name", "x", "--run", "r"];
    let ended = run(&sandbox, &datastore, &args);
    assert_eq!(ended.code, 1, "{}", ended.stderr);
    let unknown = "it is not known whether the backend has its state";
    assert!(ended.stderr.contains(unknown), "{}", ended.stderr);
    let args = ["apply", "--no-plan", "--name", "x", "--run", "s"];
    let refused = run(&sandbox, &datastore, &args);
    assert_eq!((refused.code, applies(&sandbox)), (8, 1), "{}", refused.stderr);
    let record = sandbox.path("state/plancha/unsent/default/x/r/0/errored.tfstate");
    let output = record.with_extension("tfstate.output");
    for text in [unknown, &*record.to_string_lossy(), &*output.to_string_lossy(), "may be cut"] {
        assert!(refused.stderr.contains(text), "{text}: {}", refused.stderr);
    }
    assert!(std::fs::read_to_string(&output).unwrap().contains("a line of the tool"));
    std::fs::remove_file(record).unwrap();
    let ended = run(&sandbox, &datastore, &args);
    assert_eq!((ended.code, applies(&sandbox)), (1, 2), "{}", ended.stderr);
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs mounts in a user namespace"]
async fn checkout_on_a_full_disk_has_a_hint() {
    let datastore = TestDatastore::memory().await;
    let sandbox = Sandbox::new(RUNNER).fake_terraform("");
    let work = sandbox.work();
    let large =
        (0..1_000_000).flat_map(|n: u64| n.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes());
    std::fs::write(work.join("large"), large.collect::<Vec<_>>()).unwrap();
    git(&work, &["init", "--quiet"]);
    git(&work, &["add", "."]);
    git(&work, &["commit", "--quiet", "-m", "all"]);
    let url = format!("file://{}", work.display());
    let ended = run(&sandbox, &datastore, &["plan", &url]);
    assert_eq!(ended.code, 1, "{}", ended.stderr);
    for text in ["git failed: ", "No space left", "next: free some space there"] {
        assert!(ended.stderr.contains(text), "{text}: {}", ended.stderr);
    }
}

/// Applies with a state home of 40 KiB, a part of which the script `fill` uses. The paths of the kept files in it are printed
/// to stdout.
fn apply_with_a_small_state_home(sandbox: &Sandbox, datastore: &Url, fill: &str) -> Ended {
    let script = format!(
        "mkdir -p \"$XDG_STATE_HOME\" && mount -t tmpfs -o size=40k tmpfs \"$XDG_STATE_HOME\" || exit 99; {fill}; \
         \"$0\" \"$@\"; code=$?; find \"$XDG_STATE_HOME\" -type f -path '*/unsent/*'; exit $code"
    );
    with_mounts(sandbox, &script, datastore, &["apply", "--no-plan", "--name", "x", "--run", "r"])
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs mounts in a user namespace"]
async fn apply_with_a_full_state_home_keeps_its_files_in_the_scratch_directory() {
    let fill = "head -c 1m /dev/zero > \"$XDG_STATE_HOME/fill\" 2> /dev/null";
    for (fill, script) in [
        // No room for the record, and room for the record, but not for the log.
        (fill, String::new()),
        ("true", "if [ $STEP = apply ]; then yes 'a line of the tool' | head -c 100000; fi".into()),
    ] {
        let datastore = TestDatastore::memory().await;
        let sandbox = Sandbox::new(RUNNER).hello().fake_terraform(&script);
        let lossy = lost_everything(&datastore).await;

        let ended = apply_with_a_small_state_home(&sandbox, &lossy.url, fill);

        assert_eq!(ended.code, 10, "{}", ended.stderr);
        assert!(!ended.stdout.contains("/unsent/"), "{}", ended.stdout);
        let scratch = std::fs::read_dir(sandbox.path("tmp")).unwrap().next().unwrap();
        let dir = scratch.unwrap().path().join("unsent");
        assert!(advised(&ended).ends_with(dir.to_str().unwrap()), "{}", ended.stderr);
        for name in ["applied.json", "run.log", "run.json"] {
            assert_ne!(dir.join(name).metadata().unwrap().len(), 0, "{name}");
        }
        // The same order is not done again.
        let again = apply_with_a_small_state_home(&sandbox, &lossy.url, fill);
        assert_eq!(applies(&sandbox), 1, "{}", again.stderr);
        assert!(again.stderr.contains("nothing is applied again"), "{}", again.stderr);
        lossy.set_faults(Vec::new());
        let sent = sandbox.run_with(&lossy.url, &["upload", dir.to_str().unwrap()]);
        assert_eq!(sent.code, 0, "{}", sent.stderr);
        let stored = StoredRun::new(&datastore, "default", "x", "r");
        assert_eq!(json(&stored.artifact("applied.json", 0).await)["applied"], "unplanned");
        assert!(!dir.parent().unwrap().exists());
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs mounts in a user namespace"]
async fn failed_apply_with_a_full_state_home_keeps_its_files_in_the_scratch_directory() {
    let datastore = TestDatastore::memory().await;
    let sandbox = Sandbox::new(RUNNER).hello().fake_terraform(
        "if [ $STEP = apply ]; then yes 'a line of the tool' | head -c 100000; exit 1; fi",
    );
    let lossy = lost_everything(&datastore).await;
    let ended = apply_with_a_small_state_home(&sandbox, &lossy.url, "true");
    assert_eq!(ended.code, 1, "{}", ended.stderr);
    assert!(!ended.stdout.contains("/unsent/"), "{}", ended.stdout);
    let command = advised(&ended);
    assert!(command.contains(sandbox.path("tmp").to_str().unwrap()), "{command}");
    lossy.set_faults(Vec::new());
    let dir = command.rsplit(' ').next().unwrap();
    let sent = sandbox.run_with(&lossy.url, &["upload", dir]);
    assert_eq!(sent.code, 0, "{}", sent.stderr);
    assert!(sandbox.is_clean());
    let log = StoredRun::new(&datastore, "default", "x", "r").log(0).await;
    assert!(log.contains("a line of the tool"), "{}", tail(&log));
}

/// Neither the datastore nor the backend takes the state, and there is no room to push it again.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs mounts in a user namespace"]
async fn refused_state_beside_a_full_disk_is_kept_and_named() {
    let datastore = TestDatastore::memory().await;
    let lossy = lost_everything(&datastore).await;
    let sandbox = Sandbox::new(RUNNER);
    let (server, backend) = StateServer::start();
    server.refuse("POST", 503, 1);
    let resource = "resource \"terraform_data\" \"a\" {\n  provisioner \"local-exec\" {\n    \
         command = \"head -c 4m /dev/zero > $TMPDIR/fill || true\"\n  }\n}\n";
    sandbox.write("main.tf", &format!("{backend}{resource}"));
    let script = "mount -t tmpfs -o size=3m tmpfs \"$TMPDIR\" || exit 99; exec \"$0\" \"$@\"";
    let args = ["apply", "--no-plan", "--name", "x", "--run", "r", "--grace", "3s"];
    let ended = with_mounts(&sandbox, script, &lossy.url, &args);
    assert_eq!(ended.code, 1, "{}", ended.stderr);
    let last = ended.stderr.lines().last().unwrap();
    let written = sandbox.work().join("errored.tfstate");
    for text in ["the runner did not push it", "No space left", written.to_str().unwrap()] {
        assert!(last.contains(text), "{text}: {last}");
    }
    let copy = sandbox.path("state/plancha/unsent/default/x/r/0/errored.tfstate");
    for file in [&written, &copy] {
        assert_eq!(json(&std::fs::read(file).unwrap())["resources"][0]["name"], "a");
    }
}

fn tail(log: &str) -> &str {
    &log[log.floor_char_boundary(log.len().saturating_sub(1000))..]
}
