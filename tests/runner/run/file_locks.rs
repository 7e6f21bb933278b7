//! Manifests that cannot be written or locked.

#![expect(
    clippy::disallowed_types,
    reason = "mounts and closed streams need a command of their own"
)]

use std::path::Path;
use std::process::Command;

use support::{Ended, Sandbox, eventually};

use crate::RUNNER;

#[test]
#[ignore = "needs mounts by root"]
fn unwritable_manifest_is_refused_before_the_run() {
    let sandbox = Sandbox::new(RUNNER).hello().fake_terraform("");
    // Root may write anywhere but on a read-only mount, and that takes a namespace of our own.
    let mounts = "mount --bind \"$1\" \"$1\" && mount -o remount,ro,bind \"$1\" && shift && exec \"$0\" \"$@\"";
    let plain = sandbox.command(&["plan", "--layer", "layer.yaml", "--result", "/dev/null"]);
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", mounts]).arg(plain.get_program()).arg(sandbox.work());
    command.args(plain.get_args()).current_dir(sandbox.work()).env_clear();
    command.envs(plain.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let ended = Ended::from(command.output().unwrap());
    assert_eq!(ended.code, 8, "{}", ended.stderr);
    assert!(ended.stderr.contains("layer.yaml"), "{}", ended.stderr);
    assert!(ended.stderr.contains("Read-only file system"), "{}", ended.stderr);
    assert_eq!(sandbox.calls(), Vec::<String>::new());
}

/// strace(1) lets the kernel refuse locks, as some network file systems do.
#[test]
#[ignore = "needs strace"]
fn file_system_without_locks_is_refused_before_a_run_that_needs_them() {
    let sandbox = Sandbox::new(RUNNER).hello().fake_terraform("");
    let run = |args: &[&str]| {
        let inject = ["-f", "-qq", "-o", "/dev/null", "-e", "inject=flock:error=ENOLCK", RUNNER];
        let mut command = sandbox.program(Path::new("strace"), &[&inject, args].concat());
        Ended::from(command.output().unwrap())
    };
    let ended = run(&["apply", "--no-plan", "--layer", "layer.yaml"]);
    assert_eq!(ended.code, 8, "{}", ended.stderr);
    for text in ["layer.yaml cannot be locked", "No locks available", "next: move the manifest to"]
    {
        assert!(ended.stderr.contains(text), "{text}: {}", ended.stderr);
    }
    assert_eq!(sandbox.calls(), Vec::<String>::new());
    // Where nothing is shared, locks are not needed.
    assert_eq!(run(&["plan"]).code, 0);
    assert!(sandbox.is_clean());
}

/// It came to its end, and its annotations wait for another process: not for ever, and not deaf.
#[test]
fn signal_ends_a_finished_apply_that_waits_for_a_locked_manifest() {
    let sandbox = Sandbox::new(RUNNER).hello().fake_terraform("");
    let manifest = std::fs::File::open(sandbox.work().join("layer.yaml")).unwrap();
    manifest.lock().unwrap();
    let args = ["apply", "--no-plan", "--layer", "layer.yaml", "--grace", "300ms"];
    let runner = sandbox.start(None, &[&args[..], &["--result", "result.json"]].concat());
    eventually("the apply is done", || runner.said("apply is done"));
    runner.signal("TERM");
    let ended = runner.wait();
    assert_ne!(ended.code, 0, "{}", ended.stderr);
    assert_eq!(crate::json(sandbox.read("result.json").as_bytes())["applied"], "unplanned");
}
