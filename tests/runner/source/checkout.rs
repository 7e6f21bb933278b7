//! Sources of code: directories, read-only ones, and real git.

#![expect(clippy::disallowed_types, reason = "tests make repositories with git itself")]

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use support::{Ended, Sandbox, TestDatastore};

use crate::stored_run::StoredRun;
use crate::{RUNNER, json};

pub(crate) fn git(dir: &Path, args: &[&str]) -> String {
    let output = Command::new("git")
        .args([
            "-c",
            "user.name=t",
            "-c",
            "user.email=t@example.com",
            "-c",
            "init.defaultBranch=main",
        ])
        .args(args)
        .current_dir(dir)
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .output()
        .unwrap();
    assert!(output.status.success(), "git {args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

/// A repository with two commits; the first is tagged v1, a branch `side` has a third.
pub(crate) struct Repository {
    pub(crate) dir: PathBuf,
    pub(crate) commits: [String; 3],
}

pub(crate) fn repository(sandbox: &Sandbox) -> Repository {
    let dir = sandbox.path("repository");
    std::fs::create_dir_all(dir.join("live/vpc")).unwrap();
    git(&dir, &["init", "--quiet"]);
    let commit = |text: &str| {
        std::fs::write(
            dir.join("live/vpc/main.tf"),
            format!("output \"x\" {{ value = \"{text}\" }}\n"),
        )
        .unwrap();
        git(&dir, &["add", "."]);
        git(&dir, &["commit", "--quiet", "-m", text]);
        git(&dir, &["rev-parse", "HEAD"])
    };
    let first = commit("first");
    git(&dir, &["tag", "v1"]);
    let second = commit("second");
    git(&dir, &["checkout", "--quiet", "-b", "feat/side"]);
    let third = commit("third");
    git(&dir, &["checkout", "--quiet", "main"]);
    Repository { dir, commits: [first, second, third] }
}

/// A revision that may be named, and the commit and the value that it has.
pub(crate) type Revision<'a> = (Option<&'a str>, &'a String, &'a str);

/// Plans the module `live/vpc` at each revision of a source, in runs `r0`, `r1` and so on, and returns the reports.
/// `repository` is the first part of the layer's name.
pub(crate) async fn plan_at(
    sandbox: &Sandbox,
    datastore: &TestDatastore,
    (source, repository): (&str, &str),
    revisions: &[Revision<'_>],
) -> Vec<serde_json::Value> {
    let mut reports = Vec::new();
    for (i, (revision, commit, text)) in revisions.iter().enumerate() {
        let run = format!("r{i}");
        let mut args = vec!["plan", source, "--path", "live/vpc", "--run", &run];
        args.extend(revision.iter().flat_map(|revision| ["--revision", revision]));
        let ended = sandbox.run_with(&datastore.url, &args);
        assert_eq!(ended.code, 0, "{revision:?}: {}", ended.stderr);
        let planned = format!("+ x = \"{text}\"");
        assert!(ended.stdout.contains(&planned), "{revision:?}: {}", ended.stdout);
        let layer = format!("{repository}.live.vpc");
        let stored = StoredRun::new(datastore, "default", &layer, &run);
        let report = json(&stored.artifact("run.json", 0).await);
        assert_eq!(report["revision"], **commit);
        reports.push(report);
    }
    reports
}

#[tokio::test(flavor = "multi_thread")]
async fn git_url_is_planned_at_the_given_revision() {
    let datastore = TestDatastore::memory().await;
    let sandbox = Sandbox::new(RUNNER);
    let Repository { dir, commits: [first, second, third] } = repository(&sandbox);
    let url = format!("file://{}", dir.display());
    let cases = [
        (None, &second, "second"),
        (Some("v1"), &first, "first"),
        (Some("feat/side"), &third, "third"),
        (Some("refs/heads/feat/side"), &third, "third"),
        (Some(first.as_str()), &first, "first"),
        (Some(&first[..9]), &first, "first"),
    ];
    plan_at(&sandbox, &datastore, (&url, "repository"), &cases).await;
    assert!(sandbox.is_clean(), "the clone is gone");
}

#[test]
fn missing_git_revision_is_named() {
    let sandbox = Sandbox::new(RUNNER);
    let Repository { dir, .. } = repository(&sandbox);
    let url = format!("file://{}", dir.display());
    let missing = format!("file://{}/missing", dir.display());
    for (args, code, expected) in [
        (vec!["plan", &url, "--revision", "nope"], 8, "has no revision `nope`"),
        (vec!["plan", &url, "--path", "nope"], 8, "the source has no directory `nope`"),
        (vec!["plan", &url, "--path", "../.."], 64, "leaves the source"),
        (vec!["plan", &url, "--path", "a/../.."], 64, "leaves the source"),
        (vec!["plan", &url, "--path", "a/../nope"], 8, "the source has no directory `nope`"),
        (vec!["plan", &missing], 8, "is not a git repository"),
        (vec!["plan", "http://127.0.0.1:9/x.git"], 6, "could not be reached"),
    ] {
        let ended = sandbox.run(&args);
        assert_eq!(ended.code, code, "{args:?}: {}", ended.stderr);
        assert!(ended.stderr.contains(expected), "{args:?}: {}", ended.stderr);
    }
}

#[test]
fn password_in_the_url_is_never_shown() {
    let sandbox = Sandbox::new(RUNNER);
    let url = "http://user:hunter2@127.0.0.1:9/x.git";
    let output = sandbox
        .command(&["plan", "--result", "result.json"])
        .env("PLANCHA_SOURCE", url)
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(6));
    let all = [&output.stdout[..], &output.stderr, sandbox.read("result.json").as_bytes()].concat();
    let all = String::from_utf8(all).unwrap();
    assert!(all.contains("http://127.0.0.1:9/x.git") && !all.contains("hunter2"), "{all}");
}

#[tokio::test(flavor = "multi_thread")]
async fn state_at_a_relative_path_out_of_a_temporary_checkout_is_refused() {
    let datastore = TestDatastore::memory().await;
    let sandbox = Sandbox::new(RUNNER);
    // Beside the checkout, and beside the run's private directory.
    for path in ["../../../x.tfstate", "../../../../x.tfstate"] {
        let Repository { dir, .. } = repository(&sandbox);
        let backend =
            format!("terraform {{\n  backend \"local\" {{\n    path = \"{path}\"\n  }}\n}}\n");
        std::fs::write(dir.join("live/vpc/backend.tf"), backend).unwrap();
        commit_all(&dir);
        let url = format!("file://{}", dir.display());
        let apply = ["apply", &url, "--path", "live/vpc", "--no-plan"];
        let ended = sandbox.run_with(&datastore.url, &apply);
        assert_eq!(ended.code, 8, "{path}: {}", ended.stderr);
        assert!(ended.stderr.contains("the state would be lost"), "{path}: {}", ended.stderr);
        std::fs::remove_dir_all(&dir).unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn local_state_in_a_temporary_checkout_is_refused_before_the_apply() {
    let datastore = TestDatastore::memory().await;
    let sandbox = Sandbox::new(RUNNER);
    let Repository { dir, .. } = repository(&sandbox);
    let url = format!("file://{}", dir.display());
    let run = |args: &[&str]| sandbox.run_with(&datastore.url, args);
    assert_eq!(run(&["plan", &url, "--path", "live/vpc"]).code, 0);

    let ended = run(&["apply", &url, "--path", "live/vpc"]);
    assert_eq!(ended.code, 8, "{}", ended.stderr);
    assert!(ended.stderr.contains("the state would be lost"), "{}", ended.stderr);
    assert!(ended.stderr.contains("--work-dir"), "the way out is named: {}", ended.stderr);

    let apply = ["apply", &url, "--path", "live/vpc", "--work-dir", "kept"];
    let ended = run(&apply);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    assert!(sandbox.work().join("kept/live/vpc/terraform.tfstate").exists());

    // The kept directory is brought up to date, and its state is still there.
    let plan = ["plan", &url, "--path", "live/vpc", "--work-dir", "kept", "--revision", "v1"];
    let ended = run(&plan);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    assert!(ended.stdout.contains("x = \"second\" -> \"first\""), "{}", ended.stdout);
}

/// Commits this state of the module, or that there is none.
fn commit_state(repository: &Path, text: Option<&str>) {
    let state = repository.join("live/vpc/terraform.tfstate");
    match text {
        Some(text) => std::fs::write(&state, text).unwrap(),
        None => std::fs::remove_file(&state).unwrap(),
    }
    commit_all(repository);
}

pub(crate) fn commit_all(repository: &Path) {
    git(repository, &["add", "."]);
    git(repository, &["commit", "--quiet", "-m", "all"]);
}

/// Also states that the repository has.
#[test]
fn state_in_a_kept_work_directory_is_never_replaced_or_removed() {
    let sandbox = Sandbox::new(RUNNER).fake_terraform("[ $STEP != plan ] || cat main.tf");
    let Repository { dir, .. } = repository(&sandbox);
    let url = format!("file://{}", dir.display());
    let plan = ["plan", &url, "--path", "live/vpc", "--work-dir", "kept"];
    let run = || {
        let ended = sandbox.run(&plan);
        assert_eq!(ended.code, 0, "{}", ended.stderr);
        ended
    };
    let state = "kept/live/vpc/terraform.tfstate";
    let backup = "kept/live/vpc/terraform.tfstate.backup";
    run();
    // One that the tool made, and that a later commit has, too.
    sandbox.write(state, "of the apply");
    sandbox.write(backup, "of the apply");
    commit_state(&dir, Some("committed"));
    std::fs::write(dir.join("live/vpc/main.tf"), "# changed").unwrap();
    std::fs::write(dir.join("live/vpc/more.tf"), "").unwrap();
    commit_state(&dir, Some("committed later"));
    let ended = run();
    assert!(ended.stderr.contains("terraform.tfstate: the commit has a copy"), "{}", ended.stderr);
    assert!(ended.stdout.contains("# changed"), "all else is the commit's: {}", ended.stdout);
    std::fs::remove_file(dir.join("live/vpc/more.tf")).unwrap();
    commit_state(&dir, None);
    run();
    assert!(!sandbox.work().join("kept/live/vpc/more.tf").exists());
    for file in [state, backup] {
        assert_eq!(sandbox.read(file), "of the apply", "{file}");
    }

    // One that came with a commit, and is removed or changed by a later one.
    for text in [None, Some("committed anew")] {
        std::fs::remove_dir_all(sandbox.work().join("kept")).unwrap();
        commit_state(&dir, Some("committed"));
        run();
        assert_eq!(sandbox.read(state), "committed");
        commit_state(&dir, text);
        run();
        assert_eq!(sandbox.read(state), "committed");
    }
    let head = git(&sandbox.work().join("kept"), &["rev-parse", "HEAD"]);
    assert_eq!(head, git(&dir, &["rev-parse", "HEAD"]));
    // Where the state was moved away, the commit's is checked out again.
    std::fs::remove_file(sandbox.work().join(state)).unwrap();
    run();
    assert_eq!(sandbox.read(state), "committed anew");
}

#[test]
fn file_in_place_of_the_state_directory_is_refused() {
    let sandbox = Sandbox::new(RUNNER).fake_terraform("");
    let Repository { dir, .. } = repository(&sandbox);
    let url = format!("file://{}", dir.display());
    let plan = ["plan", &url, "--work-dir", "kept"];
    assert_eq!(sandbox.run(&plan).code, 0);
    sandbox.write("kept/live/vpc/terraform.tfstate", "of the apply");
    std::fs::remove_dir_all(dir.join("live")).unwrap();
    std::fs::write(dir.join("live"), "a file").unwrap();
    git(&dir, &["add", "."]);
    git(&dir, &["commit", "--quiet", "-m", "a file"]);
    let ended = sandbox.run(&plan);
    assert_eq!(ended.code, 8, "{}", ended.stderr);
    assert!(ended.stderr.contains("the code has the file live in its place"), "{}", ended.stderr);
    assert_eq!(sandbox.read("kept/live/vpc/terraform.tfstate"), "of the apply");
}

#[test]
fn local_state_outside_the_checkout_is_kept() {
    let sandbox = Sandbox::new(RUNNER);
    let Repository { dir, .. } = repository(&sandbox);
    let state = sandbox.path("kept.tfstate");
    let backend = format!("terraform {{\n  backend \"local\" {{\n    path = {state:?}\n  }}\n}}\n");
    std::fs::write(dir.join("live/vpc/backend.tf"), backend).unwrap();
    git(&dir, &["add", "."]);
    git(&dir, &["commit", "--quiet", "-m", "backend"]);
    let url = format!("file://{}", dir.display());
    let ended = sandbox.run(&["apply", "--no-plan", &url, "--path", "live/vpc"]);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    assert!(std::fs::read_to_string(state).unwrap().contains("second"));
}

#[tokio::test(flavor = "multi_thread")]
async fn directory_revision_is_its_head_and_dirty_if_files_differ() {
    let datastore = TestDatastore::memory().await;
    let sandbox = Sandbox::new(RUNNER).hello();
    let work = sandbox.work();
    git(&work, &["init", "--quiet"]);
    git(&work, &["add", "."]);
    git(&work, &["commit", "--quiet", "-m", "hello"]);
    let head = git(&work, &["rev-parse", "HEAD"]);
    let plan = |run: &str| {
        let args = ["plan", "--layer", "layer.yaml", "--run", run];
        assert_eq!(sandbox.run_with(&datastore.url, &args).code, 0);
        let layer = sandbox.read("layer.yaml");
        let commit = layer.lines().find_map(|l| l.trim().split_once("plan-commit: ")).unwrap().1;
        // A commit such as 0b1... is quoted: YAML could read it as a number.
        commit.trim_matches('\'').to_owned()
    };
    assert_eq!(plan("clean"), head);
    // The runner and the tool have written here by now; that is not the user's change.
    let apply = sandbox.run_with(&datastore.url, &["apply", "--layer", "layer.yaml"]);
    assert_eq!(apply.code, 0, "{}", apply.stderr);
    assert_eq!(plan("again"), head);
    sandbox.write(".terragrunt-cache/x/y/main.tf", "");
    sandbox.write("backend.tf", "# Generated by Terragrunt. Sig: nIlQXj57tbuaRZEa\n");
    assert_eq!(plan("terragrunt"), head);
    sandbox.write("more.tf", "");
    assert_eq!(plan("dirty"), format!("{head}-dirty"));
}

/// Plans a directory that is read-only for the runner.
pub(crate) fn plan_read_only(sandbox: &Sandbox, from: &Path, args: &[&str]) -> Ended {
    let to = tempfile::tempdir_in(sandbox.path("")).unwrap();
    plan_read_only_at(sandbox, from, to.path(), args)
}

/// The same in this directory.
pub(crate) fn plan_read_only_at(sandbox: &Sandbox, from: &Path, to: &Path, args: &[&str]) -> Ended {
    run_read_only_at(sandbox, "plan", from, to, args)
}

/// Plans or applies there.
pub(crate) fn run_read_only_at(
    sandbox: &Sandbox,
    action: &str,
    from: &Path,
    to: &Path,
    args: &[&str],
) -> Ended {
    // Root may write anywhere but on a read-only mount, and that takes a namespace of our own; others
    // only need a mode.
    let root = std::fs::metadata("/proc/self").unwrap().uid() == 0;
    let script = if root {
        "mount --bind \"$1\" \"$2\" && mount -o remount,bind,ro \"$2\" && exec \"$3\" $ACTION \"$2\" $ARGS"
    } else {
        "trap 'chmod -R u+w \"$2\"' EXIT\n\
         cp -R \"$1\"/. \"$2\" && chmod -R a-w \"$2\" && \"$3\" $ACTION \"$2\" $ARGS"
    };
    let command = sandbox.command(&[]);
    let mut inside = Command::new(if root { "unshare" } else { "env" });
    inside.args(if root { &["--mount"][..] } else { &[] }).args(["sh", "-c", script, "sh"]);
    inside.args([from, to]).arg(command.get_program()).current_dir(sandbox.work()).env_clear();
    inside.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
    inside.env("ACTION", action).env("ARGS", args.join(" ")).output().unwrap().into()
}

#[test]
fn read_only_directory_is_planned_in_a_copy() {
    let sandbox = Sandbox::new(RUNNER).hello();
    let ended = plan_read_only(&sandbox, &sandbox.work(), &[]);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    assert!(ended.stderr.contains("is read-only: working in a copy"), "{}", ended.stderr);
    assert!(!sandbox.work().join(".terraform").exists() && sandbox.is_clean());
}

#[test]
fn git_variables_in_the_environment_are_ignored() {
    let sandbox = Sandbox::new(RUNNER);
    let Repository { dir, commits: [_, second, _] } = repository(&sandbox);
    let mine = sandbox.path("mine");
    std::fs::create_dir(&mine).unwrap();
    git(&mine, &["init", "--quiet"]);
    git(&mine, &["commit", "--quiet", "--allow-empty", "-m", "mine"]);
    let head = git(&mine, &["rev-parse", "HEAD"]);
    let url = format!("file://{}", dir.display());
    let output = sandbox
        .command(&["plan", &url, "--path", "live/vpc", "--result", "result.json"])
        .env("GIT_DIR", mine.join(".git"))
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(json(sandbox.read("result.json").as_bytes())["revision"], *second);
    assert_eq!(git(&mine, &["rev-parse", "HEAD"]), head);
    assert_eq!(git(&mine, &["rev-parse", "--abbrev-ref", "HEAD"]), "main");
}

#[test]
fn work_directory_with_another_clone_is_not_changed() {
    let sandbox = Sandbox::new(RUNNER);
    let Repository { dir, .. } = repository(&sandbox);
    let url = format!("file://{}", dir.display());
    git(&sandbox.work(), &["clone", "--quiet", &url, "clone"]);
    sandbox.write("clone/live/vpc/main.tf", "# an edit of mine");
    let ended = sandbox.run(&["plan", &url, "--path", "live/vpc", "--work-dir", "clone"]);
    assert_eq!(ended.code, 8, "{}", ended.stderr);
    assert!(
        ended.stderr.contains("contains files that the runner did not create"),
        "{}",
        ended.stderr
    );
    assert_eq!(sandbox.read("clone/live/vpc/main.tf"), "# an edit of mine");
}

#[test]
fn files_written_by_the_run_do_not_make_the_tree_dirty() {
    let sandbox = Sandbox::new(RUNNER).hello();
    let work = sandbox.work();
    git(&work, &["init", "--quiet"]);
    git(&work, &["add", "."]);
    git(&work, &["commit", "--quiet", "-m", "hello"]);
    let head = git(&work, &["rev-parse", "HEAD"]);
    let files = ["--plan-file", "the.plan", "--result", "result.json"];
    for action in ["plan", "apply"] {
        let ended = sandbox.run(&[&[action][..], &files].concat());
        assert_eq!(ended.code, 0, "{}", ended.stderr);
        assert_eq!(json(sandbox.read("result.json").as_bytes())["revision"], *head);
    }
}

#[test]
fn version_files_beside_a_private_checkout_are_ignored() {
    let sandbox = Sandbox::new(RUNNER);
    let Repository { dir, .. } = repository(&sandbox);
    // The directory for temporary files is everybody's.
    std::fs::write(sandbox.path("tmp").join(".terraform-version"), "0.11.0\n").unwrap();
    let url = format!("file://{}", dir.display());
    let ended = sandbox.run(&["plan", &url, "--path", "live/vpc"]);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
}

#[test]
fn kept_work_directory_belongs_to_one_repository() {
    let sandbox = Sandbox::new(RUNNER).fake_terraform("");
    let Repository { dir, .. } = repository(&sandbox);
    let other = sandbox.path("other");
    git(&dir, &["clone", "--quiet", ".", other.to_str().unwrap()]);
    let run = |dir: &Path| {
        let url = format!("file://{}", dir.display());
        sandbox.run(&["plan", &url, "--path", "live/vpc", "--work-dir", "kept"])
    };
    for _ in 0..2 {
        let ended = run(&dir);
        assert_eq!(ended.code, 0, "{}", ended.stderr);
    }
    let ended = run(&other);
    assert_eq!(ended.code, 8, "{}", ended.stderr);
    let expected = format!("contains the code of {}, ", dir.display());
    assert!(ended.stderr.contains(&expected), "{expected}: {}", ended.stderr);
    // One of an older version is taken over.
    let [mark, moved] =
        [".plancha-work", ".git/plancha-work"].map(|name| sandbox.work().join("kept").join(name));
    for older in ["", "\n", &*format!("file://{}\n", other.display())] {
        std::fs::remove_file(&moved).unwrap();
        std::fs::write(&mark, older).unwrap();
        if older.len() > 1 {
            assert_eq!(run(&dir).code, 8);
        }
        assert_eq!(run(&other).code, 0);
        assert_eq!(run(&dir).code, 8);
    }
}

#[test]
fn kept_work_directory_belongs_to_one_read_only_directory() {
    let sandbox = Sandbox::new(RUNNER).fake_terraform("");
    let run = |name: &str| {
        let from = sandbox.path(name);
        std::fs::create_dir_all(&from).unwrap();
        std::fs::write(from.join("main.tf"), "").unwrap();
        let to = sandbox.path(&format!("{name}-mounted"));
        std::fs::create_dir_all(&to).unwrap();
        plan_read_only_at(&sandbox, &from, &to, &["--work-dir", "kept"])
    };
    for _ in 0..2 {
        let ended = run("a");
        assert_eq!(ended.code, 0, "{}", ended.stderr);
    }
    let ended = run("b");
    assert_eq!(ended.code, 8, "{}", ended.stderr);
    let [theirs, ours] = ["a-mounted", "b-mounted"].map(|name| sandbox.path(name));
    let expected = format!("contains the code of {}, ", theirs.display());
    assert!(ended.stderr.contains(&expected), "{expected}: {}", ended.stderr);
    let expected = format!("not that of {}. next: ", ours.display());
    assert!(ended.stderr.contains(&expected), "{expected}: {}", ended.stderr);
}

#[test]
fn unused_work_dir_is_a_warning() {
    let sandbox = Sandbox::new(RUNNER).hello().fake_terraform("");
    let ended = sandbox.run(&["plan", "--work-dir", "kept"]);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    let warning = format!("--work-dir kept is not used: the source {}", sandbox.work().display());
    assert!(ended.stderr.contains(&warning), "{warning}: {}", ended.stderr);
    assert!(!sandbox.path("work/kept").exists());
}
