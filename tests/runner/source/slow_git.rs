//! A `git status` that takes too long.

use support::Sandbox;

use crate::RUNNER;
use crate::source::checkout::git;

/// On a tree of a million files over a network, say.
#[test]
fn slow_git_status_keeps_the_recorded_commit() {
    let sandbox = Sandbox::new(RUNNER).hello().fake_terraform("");
    git(&sandbox.work(), &["init", "--quiet"]);
    git(&sandbox.work(), &["add", "."]);
    git(&sandbox.work(), &["commit", "--quiet", "-m", "all"]);
    let real = support::on_path("git").unwrap();
    let real = real.display();
    let slow = format!("#!/bin/sh\ncase $1 in status) exec sleep 300;; esac\nexec {real} \"$@\"\n");
    sandbox.script("git", &slow);
    let ended = sandbox.run(&["plan", "--layer", "layer.yaml", "--result", "/dev/stderr"]);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    let head = git(&sandbox.work(), &["rev-parse", "HEAD"]);
    let warning = format!("cannot find out whether the code differs from commit {head}");
    assert!(ended.stderr.contains(&warning), "{}", ended.stderr);
    assert!(ended.stderr.contains(&format!("\"revision\": \"{head}\"")), "{}", ended.stderr);
    let layer = sandbox.read("layer.yaml");
    assert!(layer.contains(&format!("plan-commit: {head}\n")), "{layer}");
}
