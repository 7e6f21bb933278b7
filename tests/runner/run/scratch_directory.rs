//! What killed runs have left in the directory for temporary files, and who removes it.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use support::{Ended, Sandbox};

use crate::RUNNER;

const HOUR: Duration = Duration::from_hours(1);

/// What a killed run has left, last changed two hours ago.
fn leftover(sandbox: &Sandbox, name: &str, has_lock: bool) -> PathBuf {
    let dir = sandbox.path("tmp").join(name);
    std::fs::create_dir_all(dir.join("work/live/vpc")).unwrap();
    std::fs::create_dir_all(dir.join("bin")).unwrap();
    if has_lock {
        std::fs::write(dir.join(".lock"), "").unwrap();
    }
    make_old(&dir);
    dir
}

fn make_old(dir: &Path) {
    let old = SystemTime::now() - 2 * HOUR;
    std::fs::File::open(dir).unwrap().set_modified(old).unwrap();
}

#[test]
fn leftover_without_a_lock_file_is_removed() {
    let sandbox = Sandbox::new(RUNNER).hello().fake_terraform("");
    leftover(&sandbox, "plancha-Ab12Cd", false);
    assert_eq!(sandbox.run(&["plan"]).code, 0);
    assert!(sandbox.is_clean());
}

#[test]
fn state_in_a_leftover_is_pushed_with_the_tool_and_the_workspace_of_its_apply() {
    let sandbox = Sandbox::new(RUNNER).hello().fake_terraform("");
    let dir = leftover(&sandbox, "plancha-Ab12Cd", true);
    let state = dir.join("work/live/vpc/errored.tfstate");
    std::fs::write(&state, "{}").unwrap();
    let warning = || {
        make_old(&dir);
        sandbox.run(&["plan"]).stderr
    };
    let push = format!("state push {}`", state.display());
    let unknown = warning();
    for text in [&*push, "has left", "with the tool of that apply", "TF_WORKSPACE set to"] {
        assert!(unknown.contains(text), "{text}: {unknown}");
    }
    let record = r#"{"version": 1, "program": "tofu", "workspace": "prod", "path": "live/vpc"}"#;
    std::fs::write(dir.join("push.json"), record).unwrap();
    let known = warning();
    for text in [&*format!("`TF_WORKSPACE=prod tofu {push}"), "in the directory live/vpc of"] {
        assert!(known.contains(text), "{text}: {known}");
    }
    assert!(state.exists());
}

/// The removal needs more open files than the run may have. A kill would end it at the same point.
#[test]
fn interrupted_removal_of_a_leftover_is_completed_by_the_next_run() {
    let sandbox = Sandbox::new(RUNNER).hello().fake_terraform("");
    let first = leftover(&sandbox, "plancha-Ab12Cd", true);
    let deep = first.join(std::iter::repeat_n("d", 200).collect::<PathBuf>());
    std::fs::create_dir_all(deep).unwrap();
    make_old(&first);
    let second = leftover(&sandbox, "plancha-zz12Cd", true);
    let limited = ["-c", "ulimit -n 100; exec \"$0\" plan", RUNNER];
    let ended = Ended::from(sandbox.program(Path::new("/bin/sh"), &limited).output().unwrap());
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    assert!(first.join(".lock").exists(), "it is the last to go");
    assert!(!second.exists(), "one that stays does not keep the others");
    make_old(&first);
    assert_eq!(sandbox.run(&["plan"]).code, 0);
    assert!(sandbox.is_clean());
}

#[test]
fn several_runs_at_once_remove_all_leftovers() {
    let sandbox = Sandbox::new(RUNNER).hello().fake_terraform("");
    for number in 0..20 {
        let dir = leftover(&sandbox, &format!("plancha-Ab12{number:02}"), number % 2 == 0);
        for file in 0..200 {
            std::fs::write(dir.join("work").join(file.to_string()), "").unwrap();
        }
        make_old(&dir);
    }
    let runners = [(); 4].map(|()| sandbox.start(None, &["plan"]));
    for runner in runners {
        let ended = runner.wait();
        assert_eq!(ended.code, 0, "{}", ended.stderr);
    }
    assert!(sandbox.is_clean());
}

/// Directories with a state of the layer `default/x`, and with a pipe that blocks who opens it.
fn directories_with_pipes(sandbox: &Sandbox) -> Vec<PathBuf> {
    let mode = nix::sys::stat::Mode::S_IRWXU;
    let mut dirs = Vec::new();
    for (name, pipe) in [("plancha-aaaaaa", "layer"), ("plancha-bbbbbb", ".lock")] {
        let dir = sandbox.path("tmp").join(name);
        std::fs::create_dir(&dir).unwrap();
        std::fs::write(dir.join("layer"), "default/x\n").unwrap();
        std::fs::write(dir.join("errored.tfstate"), "{}").unwrap();
        if pipe == "layer" {
            std::fs::remove_file(dir.join(pipe)).unwrap();
        }
        nix::unistd::mkfifo(&dir.join(pipe), mode).unwrap();
        dirs.push(dir);
    }
    dirs
}

/// A plan of the layer `default/x`, killed after a minute.
fn plan_within_a_minute(sandbox: &Sandbox) -> Ended {
    let words = ["--signal=KILL", "60", RUNNER, "plan", "--name", "x"];
    let ended = Ended::from(sandbox.program(Path::new("timeout"), &words).output().unwrap());
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    ended
}

#[test]
fn pipes_in_leftovers_do_not_block_a_run() {
    let sandbox = Sandbox::new(RUNNER).hello().fake_terraform("");
    directories_with_pipes(&sandbox);
    let ended = plan_within_a_minute(&sandbox);
    assert!(ended.stderr.contains("an apply is refused"), "{}", ended.stderr);
}

/// Another user of the same TMPDIR could create these, and block every run.
#[test]
#[ignore = "needs root"]
fn directories_of_another_user_are_no_leftovers() {
    let sandbox = Sandbox::new(RUNNER).hello().fake_terraform("");
    for dir in directories_with_pipes(&sandbox) {
        nix::unistd::chown(&dir, Some(65534.into()), None).unwrap();
    }
    let ended = plan_within_a_minute(&sandbox);
    assert!(!ended.stderr.contains("an apply is refused"), "{}", ended.stderr);
}
