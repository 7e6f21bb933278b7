//! A tool that someone else kills.

use support::Sandbox;

use crate::{RUNNER, json};

/// Terragrunt 1.0.0, as far as it matters here: what it says of a tool that was killed, its exit code, and that it passes the
/// flags of `untaint` on only below `run`.
const TERRAGRUNT: &str = r#"#!/bin/sh
case "$1" in -version|--version|version) echo "terragrunt version v1.0.0"; exit 0;; info) echo '{}'; exit 0;; esac
STEP=$1 TOOL=$3
case $STEP in untaint) exit 1;; run) while [ "$1" != -- ]; do shift; done; STEP=$2;; esac
"$TOOL" "$STEP"
code=$?
[ $code -le 128 ] || { printf '* Failed to execute "%s %s" in .\n  \n  signal: killed\n' "$TOOL" "$STEP" >&2; exit 255; }
exit $code
"#;

#[test]
fn tool_that_is_killed_below_terragrunt_is_named_and_its_lock_probed() {
    let sandbox = Sandbox::new(RUNNER);
    sandbox.write("main.tf", "");
    sandbox.write("terragrunt.hcl", "");
    sandbox.script("terragrunt", TERRAGRUNT);
    let sandbox = sandbox.fake_terraform("[ $STEP != apply ] || kill -9 $$");
    let args = ["apply", "--no-plan", "--terragrunt=1.0.0", "--tool", "terraform"];
    let ended = sandbox.run(&[&args[..], &["--result", "result.json"]].concat());
    assert_eq!(ended.code, 1, "{}{}", ended.stdout, ended.stderr);
    for words in [
        "terragrunt apply failed: the tool that it ran was killed by SIGKILL",
        "; the lock of the state is free. next: resources may exist that the state does not record",
    ] {
        assert!(ended.stderr.contains(words), "{words}: {}", ended.stderr);
    }
    assert!(sandbox.calls().iter().any(|call| call == "untaint"), "{:?}", sandbox.calls());
    let report = json(sandbox.read("result.json").as_bytes());
    assert_eq!(report["state_lock"], "free");
}

#[test]
fn tool_that_is_killed_within_its_grace_after_a_limit_was_not_stopped() {
    let script = "if [ $STEP = plan ]; then trap '' INT; (sleep 4; kill -9 $$) & while :; do sleep 1; done; fi";
    let sandbox = Sandbox::new(RUNNER).hello().fake_terraform(script);
    let ended = sandbox.run(&["plan", "--step-timeout", "2s", "--grace", "60s"]);
    assert_eq!(ended.code, 11, "{}", ended.stderr);
    let words = "terraform plan took longer than 2s (--step-timeout), and was killed by SIGKILL before it had stopped";
    assert!(ended.stderr.contains(words), "{}", ended.stderr);
    assert!(ended.stderr.contains("; the lock of the state is free"), "{}", ended.stderr);
}
