//! Which revision and which directory of a source is planned, and why one cannot be.

use support::Sandbox;

use crate::RUNNER;
use crate::source::checkout::{
    Repository, commit_all, git, plan_read_only, plan_read_only_at, repository,
};

#[test]
fn name_of_a_tag_and_a_branch_is_ambiguous_and_the_whole_names_are_not() {
    let sandbox = Sandbox::new(RUNNER);
    let Repository { dir, .. } = repository(&sandbox);
    git(&dir, &["tag", "v2", "v1"]);
    git(&dir, &["tag", "-a", "-m", "x", "v3", "v1"]);
    for branch in ["v2", "v3", "x/v1"] {
        git(&dir, &["branch", branch, "feat/side"]);
    }
    let (url, bundle) = (format!("file://{}", dir.display()), sandbox.path("infra.bundle"));
    git(&dir, &["bundle", "create", "--quiet", bundle.to_str().unwrap(), "--all"]);
    for source in [&*url, bundle.to_str().unwrap()] {
        for (revision, text, is_ambiguous) in [
            ("v2", "first", true),
            ("v3", "first", true),
            ("refs/tags/v2", "first", false),
            ("refs/heads/v2", "third", false),
            ("v1", "first", false),
            ("feat/side", "third", false),
        ] {
            let args = ["plan", source, "--path", "live/vpc", "--revision", revision];
            let ended = sandbox.run(&args);
            assert_eq!(ended.code, 0, "{revision}: {}", ended.stderr);
            assert!(ended.stdout.contains(&format!("+ x = \"{text}\"")), "{}", ended.stdout);
            let warning = format!("the revision `{revision}` is ambiguous");
            assert_eq!(ended.stderr.contains(&warning), is_ambiguous, "{}", ended.stderr);
            let names = format!("as refs/tags/{revision}, or the branch as refs/heads/{revision}");
            assert_eq!(ended.stderr.contains(&names), is_ambiguous, "{}", ended.stderr);
        }
    }
}

#[test]
fn path_that_is_no_directory_names_its_cause_and_the_next_step() {
    let sandbox = Sandbox::new(RUNNER).fake_terraform("");
    let Repository { dir, .. } = repository(&sandbox);
    std::fs::write(dir.join("top.tf"), "").unwrap();
    std::os::unix::fs::symlink("loop", dir.join("live/loop")).unwrap();
    commit_all(&dir);
    let url = format!("file://{}", dir.display());
    let looping = dir.join("live/loop");
    for (source, path, cause, next) in [
        (
            &*url,
            "live/vpc/main.tf",
            "the path `live/vpc/main.tf` is a file",
            "spec.path): live/vpc",
        ),
        (dir.to_str().unwrap(), "live/vpc/main.tf", "main.tf` is a file", "spec.path): live/vpc"),
        (&url, "live/vpc/main.tf/x", "the path `live/vpc/main.tf` is a file", "live/vpc"),
        (&url, "top.tf", "the path `top.tf` is a file", "leave out --path"),
        (&url, "live/loop", "the source cannot be read", "must not lead to itself"),
        (dir.to_str().unwrap(), "live/loop", "the source cannot be read", "a link must not"),
        (looping.to_str().unwrap(), ".", "the source cannot be read", "a link must not"),
    ] {
        let ended = sandbox.run(&["plan", source, "--path", path]);
        assert_eq!(ended.code, 8, "{source} {path}: {}", ended.stderr);
        for text in [cause, next] {
            assert!(ended.stderr.contains(text), "{source} {path}: {}", ended.stderr);
        }
        assert!(!ended.stderr.contains("TMPDIR"), "{}", ended.stderr);
    }
}

#[test]
fn link_to_itself_that_nothing_reads_does_not_keep_a_read_only_directory_from_being_planned() {
    let sandbox = Sandbox::new(RUNNER).hello();
    std::os::unix::fs::symlink("loop", sandbox.work().join("loop")).unwrap();
    let ended = plan_read_only(&sandbox, &sandbox.work(), &[]);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    std::os::unix::fs::symlink(".", sandbox.work().join("here")).unwrap();
    let ended = plan_read_only(&sandbox, &sandbox.work(), &[]);
    assert_eq!(ended.code, 8, "{}", ended.stderr);
    for text in ["here is a link to a directory that contains it", "next: remove the link"] {
        assert!(ended.stderr.contains(text), "{}", ended.stderr);
    }
}

/// A copy has nothing of what is beside the source, so that the plan would delete what was made of it.
#[test]
fn read_only_directory_whose_code_reads_files_beside_it_is_refused() {
    let sandbox = Sandbox::new(RUNNER);
    for (dir, expression) in [
        ("set", "fileset(\"${path.module}/../users\", \"*\")"),
        ("file", "[file(\"../users/a\")]"),
        ("parent", "fileset(\"${path.module}/..\", \"users/*\")"),
    ] {
        let main = format!("output \"x\" {{\n  value = {expression}\n}}\n");
        sandbox.write(&format!("{dir}/code/main.tf"), &main);
        sandbox.write(&format!("{dir}/users/a"), "alice");
        let top = sandbox.work().join(dir);
        let live = top.join("live");
        std::fs::create_dir(&live).unwrap();
        let plan = || plan_read_only_at(&sandbox, &top.join("code"), &live, &[]);

        let refused = plan();

        assert_eq!(refused.code, 8, "{dir}: {}", refused.stderr);
        let cause = format!("which is not in the source {}", live.display());
        let next = format!("{} with --path live;", top.display());
        for text in [&cause, &next] {
            assert!(refused.stderr.contains(text), "{dir}: {}", refused.stderr);
        }
        let planned = plan_read_only(&sandbox, &top, &["--path", "code"]);
        assert_eq!(planned.code, 0, "{dir}: {}", planned.stderr);
        // What does not exist is for the tool to report.
        std::fs::remove_dir_all(top.join("users")).unwrap();
        assert_eq!(plan().stderr.contains("not in the source"), dir == "parent");
    }
}
