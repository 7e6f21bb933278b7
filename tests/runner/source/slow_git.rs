//! A `git status` that takes too long, or whose configuration hides changes.

use std::os::unix::fs::PermissionsExt as _;

use support::{Sandbox, TestDatastore};

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
    let slow = format!(
        "#!/bin/sh\ncase \" $* \" in *\" status \"*) exec sleep 300;; esac\nexec {real} \"$@\"\n"
    );
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

#[test]
fn changes_that_a_file_system_monitor_does_not_report_make_a_tree_dirty() {
    let sandbox = Sandbox::new(RUNNER).hello().fake_terraform("");
    let work = sandbox.work();
    let monitor = sandbox.path("monitor");
    std::fs::write(&monitor, "#!/bin/sh\nprintf 'token\\0'\n").unwrap();
    std::fs::set_permissions(&monitor, std::fs::Permissions::from_mode(0o755)).unwrap();
    git(&work, &["init", "--quiet"]);
    git(&work, &["add", "."]);
    git(&work, &["commit", "--quiet", "-m", "all"]);
    git(&work, &["config", "core.fsmonitor", &monitor.display().to_string()]);
    git(&work, &["update-index", "--fsmonitor"]);
    git(&work, &["status"]);
    sandbox.write("main.tf", "# changed");
    assert_eq!(
        git(&work, &["status", "--porcelain", "--untracked-files=no"]),
        "",
        "git sees nothing"
    );
    let ended = sandbox.run(&["plan", "--result", "/dev/stderr"]);
    assert!(ended.stderr.contains("-dirty\""), "{}", ended.stderr);
}

/// Git must run the filter to compare the file, whose time has changed.
#[tokio::test(flavor = "multi_thread")]
async fn code_that_git_cannot_compare_is_refused_unless_the_plan_is_named() {
    let datastore = TestDatastore::memory().await;
    let sandbox = Sandbox::new(RUNNER).hello().fake_terraform("");
    sandbox.write(".gitattributes", "*.bin filter=x\n");
    sandbox.write("a.bin", "a");
    git(&sandbox.work(), &["init", "--quiet"]);
    git(&sandbox.work(), &["add", "."]);
    git(&sandbox.work(), &["commit", "--quiet", "-m", "all"]);
    let run = |args: &[&str]| sandbox.run_with(&datastore.url, args);
    let planned = run(&["plan", "--run", "p"]);
    assert_eq!(planned.code, 0, "{}", planned.stderr);
    git(&sandbox.work(), &["config", "filter.x.clean", "/nowhere/filter"]);
    git(&sandbox.work(), &["config", "filter.x.required", "true"]);
    sandbox.write("a.bin", "b");

    let refused = run(&["apply"]);

    assert_eq!(refused.code, 9, "{}", refused.stderr);
    assert!(refused.stderr.contains("the code has changed"), "{}", refused.stderr);
    let named = run(&["apply", "--plan", "p"]);
    assert_eq!(named.code, 0, "{}", named.stderr);
}

/// A sandbox with a commit, and a `git` that writes its arguments into a file. Each process of git takes milliseconds, on a
/// slow disk far more.
fn with_counted_git() -> (Sandbox, std::path::PathBuf) {
    let sandbox = Sandbox::new(RUNNER).hello().fake_terraform("");
    git(&sandbox.work(), &["init", "--quiet"]);
    git(&sandbox.work(), &["add", "."]);
    git(&sandbox.work(), &["commit", "--quiet", "-m", "all"]);
    let real = support::on_path("git").unwrap();
    let (real, log) = (real.display(), sandbox.path("git.log"));
    let logged = format!("#!/bin/sh\necho \"$*\" >>{}\nexec {real} \"$@\"\n", log.display());
    sandbox.script("git", &logged);
    (sandbox, log)
}

#[tokio::test(flavor = "multi_thread")]
async fn plan_with_a_snapshot_starts_git_seven_times() {
    let datastore = TestDatastore::memory().await;
    let (sandbox, log) = with_counted_git();

    let ended = sandbox.run_with(&datastore.url, &["plan", "--snapshot", "always"]);

    assert_eq!(ended.code, 0, "{}", ended.stderr);
    let started = std::fs::read_to_string(&log).unwrap();
    // Top and origin; top and commit; status and index; index and untracked files.
    assert_eq!(started.lines().count(), 7, "{started}");
}

#[tokio::test(flavor = "multi_thread")]
async fn plan_of_a_git_url_starts_git_seven_times() {
    let datastore = TestDatastore::memory().await;
    let (sandbox, log) = with_counted_git();
    let url = format!("file://{}", sandbox.work().display());

    let ended = sandbox.run_with(&datastore.url, &["plan", &url]);

    assert_eq!(ended.code, 0, "{}", ended.stderr);
    let started = std::fs::read_to_string(&log).unwrap();
    // A repository, the commit, its name, the checkout, origin; index and untracked files.
    assert_eq!(started.lines().count(), 7, "{started}");
}
