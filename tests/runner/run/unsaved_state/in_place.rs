//! A state that stays in a directory that is used in place.

use std::path::{Path, PathBuf};

use support::{Ended, Sandbox, TestDatastore, eventually};

use super::{link_as_before, refusing, run_in, unsent};
use crate::source::checkout::git;

/// Clones the repository of a sandbox into its working directory. `origin` replaces the URL of the clone.
fn clone(sandbox: &Sandbox, name: &str, origin: Option<&str>) -> PathBuf {
    let to = sandbox.work().join(name);
    git(&sandbox.path("repository"), &["clone", "--quiet", ".", to.to_str().unwrap()]);
    let from = sandbox.path("repository");
    let origin = origin.unwrap_or(from.to_str().unwrap());
    git(&to, &["remote", "set-url", "origin", origin]);
    to
}

/// Applies the module of a source as the layer `default/x`, run `r`.
fn apply_of(sandbox: &Sandbox, source: &str) -> Ended {
    let args = ["apply", "--no-plan", source, "--path", "live/vpc", "--name", "x", "--run", "r"];
    sandbox.run(&args)
}

fn applies(sandbox: &Sandbox) -> usize {
    sandbox.calls().iter().filter(|call| call.starts_with("apply")).count()
}

fn assert_refused(ended: &Ended, expected: &[&str]) {
    assert_eq!(ended.code, 8, "{}", ended.stderr);
    for expected in expected {
        assert!(ended.stderr.contains(expected), "{expected}: {}", ended.stderr);
    }
}

const INFRA: &str = "https://git.example.com/team/infra.git";

#[tokio::test(flavor = "multi_thread")]
async fn push_after_an_apply_in_a_snapshot_names_the_directory_of_the_plan() {
    let datastore = TestDatastore::memory().await;
    let (sandbox, _) = refusing(".", "exit 1");
    clone(&sandbox, "one", Some(INFRA));
    let plan =
        ["plan", "one", "--path", "live/vpc", "--name", "x", "--run", "p", "--snapshot=always"];
    let ended = sandbox.run_with(&datastore.url, &plan);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    let apply = ["apply", "--plan", "p/0", "--name", "x", "--datastore", datastore.url.as_str()];
    let mut command = sandbox.command(&apply);
    let empty = tempfile::tempdir().unwrap();
    let ended = Ended::from(command.current_dir(empty.path()).output().unwrap());
    assert_eq!(ended.code, 1, "{}", ended.stderr);
    let place = "in the directory live/vpc of a checkout of the same commit";
    assert!(ended.stderr.contains(place), "{}", ended.stderr);
}

/// A repository at a path has no URL that others know.
#[tokio::test(flavor = "multi_thread")]
async fn record_of_an_apply_in_a_snapshot_names_the_path_of_a_local_repository() {
    let datastore = TestDatastore::memory().await;
    let (sandbox, url) = refusing(".", "exit 1");
    let plan = ["plan", &url, "--path", "live/vpc", "--name", "x", "--run", "p"];
    let ended = sandbox.run_with(&datastore.url, &plan);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    let apply = ["apply", "--plan", "p", "--name", "x", "--run", "r"];
    let ended = sandbox.run_with(&datastore.url, &apply);
    assert_eq!(ended.code, 1, "{}", ended.stderr);
    assert!(ended.stderr.contains("working in the snapshot"), "{}", ended.stderr);
    let record = std::fs::read(unsent(&sandbox).join("errored.tfstate.json")).unwrap();
    let repository = sandbox.path("repository").canonicalize().unwrap();
    assert_eq!(crate::json(&record)["source"], repository.to_str().unwrap());
}

#[test]
fn unsaved_state_refuses_applies_of_its_repository_in_other_places() {
    for (dir, origin) in [(".", None), (".terragrunt-cache/a/b", None), (".", Some(INFRA))] {
        let (sandbox, url) = refusing(dir, "exit 1");
        let one = clone(&sandbox, "one", origin);
        clone(&sandbox, "two", origin);
        let module = one.join("live/vpc");
        std::fs::create_dir_all(module.join(dir)).unwrap();
        std::fs::write(module.join(dir).join("copied.tf"), "").unwrap();
        let ended = apply_of(&sandbox, "one");
        assert_eq!(ended.code, 1, "{}", ended.stderr);
        let file = std::fs::canonicalize(module.join(dir)).unwrap().join("errored.tfstate");
        let copy = unsent(&sandbox).join("errored.tfstate");
        let push = format!("`TF_WORKSPACE=default terraform state push {}`", copy.display());
        let place = format!("in {} run", module.display());
        let others = if origin.is_none() { vec!["two", &url] } else { vec!["two"] };
        for source in &others {
            assert_refused(&apply_of(&sandbox, source), &[&push, &place]);
            let plan = sandbox.run(&["plan", source, "--path", "live/vpc", "--name", "x"]);
            assert_eq!(plan.code, 0, "{}", plan.stderr);
            assert!(plan.stderr.contains("an apply is refused"), "{}", plan.stderr);
        }
        // In the directory itself its workspace is known as well.
        assert_refused(&apply_of(&sandbox, "one"), &["`TF_WORKSPACE=default terraform init`"]);
        assert_eq!(applies(&sandbox), 1);
        // A missing file shows nothing: only the copy counts.
        std::fs::remove_file(file).unwrap();
        assert_refused(&apply_of(&sandbox, "two"), &[&push]);
        std::fs::remove_file(copy).unwrap();
        let ended = apply_of(&sandbox, "two");
        assert_eq!((ended.code, applies(&sandbox)), (1, 2), "{}", ended.stderr);
    }
}

#[test]
fn unsaved_state_warns_of_a_layer_with_the_same_name_and_other_code() {
    let (sandbox, _) = refusing(".", "exit 1");
    clone(&sandbox, "one", Some("https://git.example.com/team/infra.git"));
    clone(&sandbox, "two", Some("git@git.example.com:other/infra.git"));
    for dir in ["a/vpc", "b/vpc"] {
        sandbox.write(&format!("{dir}/main.tf"), "");
    }
    let state = unsent(&sandbox).join("errored.tfstate");
    assert_eq!(apply_of(&sandbox, "one").code, 1);
    let ended = apply_of(&sandbox, "two");
    assert_eq!((ended.code, applies(&sandbox)), (1, 2), "{}", ended.stderr);
    for expected in [
        &*format!("{} is a state that an earlier apply could not write", state.display()),
        "of the layer default/x (repository git.example.com/team/infra, path live/vpc, workspace default)",
        "This code is from git.example.com/other/infra, so an apply is not refused",
        "To push the state: in ",
    ] {
        assert_eq!(ended.stderr.matches(expected).count(), 1, "{expected}: {}", ended.stderr);
    }
    // Directories without git have the name of their last segment, and may have the same code.
    let apply = |dir: &str| {
        let mut command = sandbox.command(&["apply", "--no-plan"]);
        Ended::from(command.current_dir(sandbox.work().join(dir)).output().unwrap())
    };
    assert_eq!(apply("a/vpc").code, 1);
    let a = sandbox.work().join("a/vpc");
    let other = format!("if this is other code than {}, give it a name", a.display());
    assert_refused(&apply("b/vpc"), &[&other]);
    let ended = sandbox.run(&["apply", "b/vpc", "--no-plan", "--name", "other"]);
    assert_eq!((ended.code, applies(&sandbox)), (1, 4), "{}", ended.stderr);
}

#[test]
fn record_of_an_older_version_refuses_every_apply_of_its_layer() {
    let (sandbox, _) = refusing(".", "exit 1");
    clone(&sandbox, "one", None);
    clone(&sandbox, "two", Some("https://git.example.com/team/infra.git"));
    assert_eq!(apply_of(&sandbox, "one").code, 1);
    let record = unsent(&sandbox).join("errored.tfstate.json");
    let mut json = crate::json(&std::fs::read(&record).unwrap());
    for field in ["source", "dir"] {
        json.as_object_mut().unwrap().shift_remove(field).unwrap();
    }
    std::fs::write(record, json.to_string()).unwrap();
    assert_refused(&apply_of(&sandbox, "two"), &["in the directory live/vpc of a checkout"]);
}

#[test]
fn unsaved_state_in_a_missing_checkout_refuses_applies_of_its_repository() {
    let (sandbox, _) = refusing(".", "exit 1");
    let one = clone(&sandbox, "one", Some("https://git.example.com/team/infra.git"));
    clone(&sandbox, "two", None);
    clone(&sandbox, "three", Some("https://git.example.com/other/infra.git"));
    assert_eq!(apply_of(&sandbox, "one").code, 1);
    link_as_before(&sandbox, &one.join("live/vpc/errored.tfstate"));
    std::fs::rename(&one, sandbox.work().join("moved")).unwrap();
    let expected = ["its directory is missing or empty", "first import what that apply created"];
    assert_refused(&apply_of(&sandbox, "two"), &expected);
    // In its new place it is found.
    assert_refused(&apply_of(&sandbox, "moved"), &["moved/live/vpc/errored.tfstate"]);
    let ended = apply_of(&sandbox, "three");
    assert_eq!((ended.code, applies(&sandbox)), (1, 2), "{}", ended.stderr);
    assert!(ended.stderr.contains("its directory is missing or empty"), "{}", ended.stderr);
    assert!(ended.stderr.contains("so an apply is not refused"), "{}", ended.stderr);
}

/// Waits until an apply is refused: the tool of a killed runner may run a moment longer.
fn eventually_refused(sandbox: &Sandbox, source: &str) -> Ended {
    let mut refused = None;
    eventually("the apply is refused", || {
        let ended = apply_of(sandbox, source);
        let is_refused = ended.code == 8;
        refused = Some(ended);
        is_refused
    });
    refused.unwrap()
}

#[test]
fn unsaved_state_of_a_killed_run_refuses_applies_of_its_repository_elsewhere() {
    let (sandbox, url) = refusing(".", "kill -9 $PPID; exit 1");
    clone(&sandbox, "one", None);
    let mut command = sandbox.command(&[
        "apply",
        "--no-plan",
        "one",
        "--path",
        "live/vpc",
        "--name",
        "x",
        "--run",
        "r",
    ]);
    let killed = Ended::from(command.env("TF_WORKSPACE", "prod").output().unwrap());
    assert_eq!(killed.code, -1);
    let ended = eventually_refused(&sandbox, &url);
    assert!(ended.stderr.contains("`TF_WORKSPACE=prod terraform state push "), "{}", ended.stderr);
    // Every run that is old enough removes what killed runs have left, and warns instead while the state is there.
    let age = |dir: &Path| {
        let old = std::time::SystemTime::now() - std::time::Duration::from_hours(2);
        std::fs::File::open(dir).unwrap().set_modified(old).unwrap();
    };
    let left = || {
        let entries = std::fs::read_dir(sandbox.path("tmp")).unwrap();
        entries.map(|entry| entry.unwrap().path()).collect::<Vec<_>>()
    };
    for dir in left() {
        age(&dir);
    }
    let other = run_in(&sandbox, None, &["plan", &url, "--path", "live/vpc", "--name", "y"]);
    let expected = "It is of the layer default/x (code in ";
    assert!(other.stderr.contains(expected), "{}", other.stderr);
    std::fs::remove_file(sandbox.work().join("one/live/vpc/errored.tfstate")).unwrap();
    for dir in left() {
        age(&dir);
    }
    assert_eq!(sandbox.run(&["plan", &url, "--path", "live/vpc", "--name", "x"]).code, 0);
    assert!(sandbox.is_clean());
}

#[test]
fn without_a_home_the_unsaved_state_refuses_applies_of_its_repository_elsewhere() {
    let (sandbox, url) = refusing(".", "exit 1");
    clone(&sandbox, "one", None);
    std::fs::write(sandbox.path("file"), "").unwrap();
    let run = |source: &str| {
        let args = ["apply", "--no-plan", source, "--path", "live/vpc", "--name", "x"];
        let mut command = sandbox.command(&args);
        Ended::from(command.env("XDG_STATE_HOME", sandbox.path("file")).output().unwrap())
    };
    let ended = run("one");
    assert_eq!(ended.code, 1, "{}", ended.stderr);
    assert!(ended.stderr.contains("/unsent/errored.tfstate"), "{}", ended.stderr);
    assert_refused(&run(&url), &["one/live/vpc/errored.tfstate", "TF_WORKSPACE=default"]);
    assert_eq!(applies(&sandbox), 1);
}
