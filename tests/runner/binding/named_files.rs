//! Files that the configuration names are compared where no commit records what was planned.

#![expect(clippy::disallowed_types, reason = "a test makes archives with tar itself")]

use std::process::Command;

use support::{Sandbox, TestDatastore};

use crate::source::checkout::{commit_all, git};
use crate::{RUNNER, json};

const MAIN: &str = r#"
module "m" {
  source = "../m"
}
locals {
  a = file("${path.module}/a.txt")
  b = templatefile("b.tpl", {})
  c = fileset(path.module, "set/*")
  z = filebase64("out.zip")
  w = fileexists("written.txt")
}
"#;

#[tokio::test(flavor = "multi_thread")]
async fn changed_module_or_file_outside_of_git_or_in_a_dirty_tree_is_refused_by_name() {
    let datastore = TestDatastore::memory().await;
    // The plan makes an archive, as a data source does, and the apply a file.
    let tool = "case $STEP in plan) date +%N > out.zip;; apply) date +%N > written.txt;; esac";
    let sandbox = Sandbox::new(RUNNER).fake_terraform(tool);
    for (file, text) in [
        ("live/main.tf", MAIN),
        ("m/main.tf", ""),
        ("live/a.txt", ""),
        ("live/b.tpl", ""),
        ("live/set/x", ""),
    ] {
        sandbox.write(file, text);
    }
    let run = |args: &[&str]| {
        let place = ["live", "--name", "x", "--snapshot=never", "--result", "r.json"];
        sandbox.run_with(&datastore.url, &[&args[..1], &place, &args[1..]].concat())
    };
    for is_dirty_tree in [false, true] {
        if is_dirty_tree {
            git(&sandbox.work(), &["init", "--quiet"]);
            commit_all(&sandbox.work());
            sandbox.write("live/main.tf", &format!("{MAIN}# changed\n"));
        }
        let planned = run(&["plan", "--run", "p"]);
        assert_eq!(planned.code, 0, "{}", planned.stderr);
        let report = json(sandbox.read("r.json").as_bytes());
        assert_eq!(report["named_files"]["generated"], serde_json::json!(["out.zip"]));
        for (file, way) in [
            ("m/main.tf", "../m/main.tf, sha256 "),
            ("m/new.tf", "../m/new.tf, none; here it is sha256 "),
            ("live/a.txt", "a.txt, sha256 "),
            ("live/b.tpl", "b.tpl, sha256 "),
            ("live/set/x", "set/x, sha256 "),
            ("live/set/new", "set/new, none"),
        ] {
            let path = sandbox.work().join(file);
            let before = std::fs::read(&path).ok();
            sandbox.write(file, "# another");
            let refused = run(&["apply"]);
            assert_eq!(refused.code, 9, "{file}: {}", refused.stderr);
            for expected in ["the file has changed since the plan p/", &format!(" was made: {way}")]
            {
                assert!(refused.stderr.contains(expected), "{file}: {}", refused.stderr);
            }
            match before {
                Some(before) => std::fs::write(&path, before).unwrap(),
                None => std::fs::remove_file(&path).unwrap(),
            }
        }
        // What the plan has made may be missing, as where it was not made.
        std::fs::remove_file(sandbox.work().join("live/out.zip")).unwrap();
        let applied = run(&["apply"]);
        assert_eq!(applied.code, 0, "{}", applied.stderr);
    }
    let planned = run(&["plan", "--run", "q"]);
    assert_eq!(planned.code, 0, "{}", planned.stderr);
    sandbox.write("m/main.tf", "# another");
    // A plan that is named is applied with a warning, as for another configuration.
    let applied = run(&["apply", "--plan", "q"]);
    assert_eq!(applied.code, 0, "{}", applied.stderr);
    assert!(applied.stderr.contains("../m/main.tf"), "{}", applied.stderr);
}

#[tokio::test(flavor = "multi_thread")]
async fn file_that_changes_during_the_plan_is_compared_with_what_it_was_after_the_plan() {
    let datastore = TestDatastore::memory().await;
    // Somebody edits one file while the tool plans. The plan makes an archive anew.
    let tool = "case $STEP in plan) date +%N > out.zip; echo edited > a.txt;; esac";
    let sandbox = Sandbox::new(RUNNER).fake_terraform(tool);
    for (file, text) in [
        ("live/main.tf", MAIN),
        ("m/main.tf", ""),
        ("live/a.txt", "reviewed"),
        ("live/b.tpl", ""),
        ("live/out.zip", "older"),
    ] {
        sandbox.write(file, text);
    }
    let run = |args: &[&str]| {
        let place = ["live", "--name", "x", "--snapshot=never"];
        sandbox.run_with(&datastore.url, &[&args[..1], &place, &args[1..]].concat())
    };
    let planned = run(&["plan", "--run", "p"]);
    assert_eq!(planned.code, 0, "{}", planned.stderr);
    let warning = "files that the configuration names have changed (a.txt, out.zip)";
    assert!(planned.stderr.contains(warning), "{}", planned.stderr);
    for file in ["a.txt", "out.zip"] {
        let path = sandbox.work().join("live").join(file);
        let after_plan = std::fs::read(&path).unwrap();
        std::fs::write(&path, "edited again").unwrap();
        let refused = run(&["apply"]);
        assert_eq!(refused.code, 9, "{file}: {}", refused.stderr);
        let named = format!("the file has changed since the plan p/0 was made: {file}, sha256 ");
        assert!(refused.stderr.contains(&named), "{file}: {}", refused.stderr);
        std::fs::write(path, after_plan).unwrap();
    }
    let applied = run(&["apply"]);
    assert_eq!(applied.code, 0, "{}", applied.stderr);
}

#[tokio::test(flavor = "multi_thread")]
async fn files_that_a_clean_directory_names_and_git_does_not_track_are_compared() {
    let datastore = TestDatastore::memory().await;
    let sandbox = Sandbox::new(RUNNER).fake_terraform("");
    let main = MAIN.replace("written.txt", "build/who.txt").replace("b.tpl", "link.tpl");
    let main = format!("{main}\nmodule \"n\" {{\n  source = \"../build/n\"\n}}\n");
    for (file, text) in [
        ("repo/.gitignore", "build/\n"),
        ("repo/live/main.tf", &main),
        ("repo/m/main.tf", ""),
        ("repo/live/a.txt", ""),
        ("repo/live/set/x", ""),
        ("repo/live/build/who.txt", ""),
        ("repo/build/n/main.tf", ""),
        ("outside.tpl", ""),
    ] {
        sandbox.write(file, text);
    }
    let link = sandbox.work().join("repo/live/link.tpl");
    std::os::unix::fs::symlink("../../outside.tpl", link).unwrap();
    git(&sandbox.work().join("repo"), &["init", "--quiet"]);
    commit_all(&sandbox.work().join("repo"));
    let run = |args: &[&str]| {
        let place = ["repo/live", "--name", "x", "--snapshot=never", "--result", "repo/live/set/r"];
        sandbox.run_with(&datastore.url, &[&args[..1], &place, &args[1..]].concat())
    };
    let planned = run(&["plan", "--run", "p"]);
    assert_eq!(planned.code, 0, "{}", planned.stderr);
    let report = json(sandbox.read("repo/live/set/r").as_bytes());
    let files = report["named_files"]["files"].as_object().unwrap();
    let names: Vec<_> = files.keys().collect();
    assert_eq!(names, ["../build/n/main.tf", "build/who.txt", "link.tpl"], "{report}");
    for (file, way) in [
        ("repo/live/build/who.txt", "build/who.txt, sha256 "),
        ("repo/build/n/main.tf", "../build/n/main.tf, sha256 "),
        ("outside.tpl", "link.tpl, sha256 "),
        ("repo/live/set/new", "set/new, none"),
    ] {
        let path = sandbox.work().join(file);
        let before = std::fs::read(&path).ok();
        sandbox.write(file, "# another");
        let refused = run(&["apply"]);
        assert_eq!(refused.code, 9, "{file}: {}", refused.stderr);
        assert!(refused.stderr.contains(&format!(" was made: {way}")), "{}", refused.stderr);
        match before {
            Some(before) => std::fs::write(&path, before).unwrap(),
            None => std::fs::remove_file(&path).unwrap(),
        }
    }
    let applied = run(&["apply"]);
    assert_eq!(applied.code, 0, "{}", applied.stderr);
}

#[tokio::test(flavor = "multi_thread")]
async fn untracked_code_counts_only_where_the_module_reads_it() {
    let datastore = TestDatastore::memory().await;
    let sandbox = Sandbox::new(RUNNER).fake_terraform("");
    let main = "module \"m\" {\n  source = \"../m\"\n}\n";
    for (file, text) in [("live/main.tf", main), ("m/main.tf", ""), ("other/main.tf", "")] {
        sandbox.write(file, text);
    }
    git(&sandbox.work(), &["init", "--quiet"]);
    commit_all(&sandbox.work());
    let run = |args: &[&str]| {
        let place = ["live", "--name", "x", "--snapshot=never"];
        sandbox.run_with(&datastore.url, &[&args[..1], &place, &args[1..]].concat())
    };
    let planned = run(&["plan", "--run", "p"]);
    assert_eq!(planned.code, 0, "{}", planned.stderr);
    for file in ["live/draft.tf", "m/draft.tf", "live/draft.auto.tfvars"] {
        sandbox.write(file, "");
        let refused = run(&["apply"]);
        assert_eq!(refused.code, 9, "{file}: {}", refused.stderr);
        let named = format!("-dirty ({file})");
        assert!(refused.stderr.contains(&named), "{file}: {}", refused.stderr);
        std::fs::remove_file(sandbox.work().join(file)).unwrap();
    }
    for file in ["other/draft.tf", "draft.tf", "new/main.tf", "other/draft.tfvars"] {
        sandbox.write(file, "");
    }
    let applied = run(&["apply"]);
    assert_eq!(applied.code, 0, "{}", applied.stderr);
    let order = ["apply", "--no-plan", "--order-key", "k"];
    assert_eq!(run(&order).code, 0);
    sandbox.write("other/more.tf", "");
    let repeated = run(&order);
    assert_eq!(repeated.code, 0, "{}", repeated.stderr);
    assert!(repeated.stderr.contains("nothing is applied again"), "{}", repeated.stderr);
}

#[tokio::test(flavor = "multi_thread")]
async fn change_that_a_filter_of_git_hides_is_refused() {
    let datastore = TestDatastore::memory().await;
    let sandbox = Sandbox::new(RUNNER).fake_terraform("");
    let main =
        "module \"m\" {\n  source = \"../m\"\n}\noutput \"a\" {\n  value = file(\"a.txt\")\n}\n";
    for (file, text) in [
        ("live/main.tf", main),
        ("live/a.txt", "reviewed"),
        ("m/main.tf", "# reviewed"),
        (".gitattributes", "a.txt filter=hide\nmain.tf filter=hide\n"),
    ] {
        sandbox.write(file, text);
    }
    let repository = sandbox.work();
    git(&repository, &["init", "--quiet"]);
    git(&repository, &["config", "filter.hide.clean", "sed s/modified/reviewed/"]);
    commit_all(&repository);
    let run = |args: &[&str]| {
        let place = ["live", "--name", "x", "--snapshot=never"];
        sandbox.run_with(&datastore.url, &[&args[..1], &place, &args[1..]].concat())
    };
    let planned = run(&["plan", "--run", "p"]);
    assert_eq!(planned.code, 0, "{}", planned.stderr);
    for (file, text, way) in
        [("live/a.txt", "reviewed", "a.txt"), ("m/main.tf", "# reviewed", "../m/main.tf")]
    {
        // Git itself notices another size.
        sandbox.write(file, &text.replace("reviewed", "modified"));
        let refused = run(&["apply"]);
        assert_eq!(refused.code, 9, "{file}: {}", refused.stderr);
        let expected = format!(" was made: {way}, none, or as in the commit; here it is sha256 ");
        assert!(refused.stderr.contains(&expected), "{}", refused.stderr);
        sandbox.write(file, text);
    }
    // On another machine the configuration may lack the filter.
    git(&repository, &["config", "--remove-section", "filter.hide"]);
    let applied = run(&["apply"]);
    assert_eq!(applied.code, 0, "{}", applied.stderr);
}

/// Git's status is clean with both line endings.
#[tokio::test(flavor = "multi_thread")]
async fn other_line_endings_that_git_hides_are_refused() {
    let datastore = TestDatastore::memory().await;
    let sandbox = Sandbox::new(RUNNER).fake_terraform("");
    sandbox.write("main.tf", "output \"a\" {\n  value = file(\"a.txt\")\n}\n");
    sandbox.write("a.txt", "one\ntwo\n");
    let repository = sandbox.work();
    git(&repository, &["init", "--quiet"]);
    commit_all(&repository);
    let run = |args: &[&str]| {
        let place = ["--name", "x", "--snapshot=never"];
        sandbox.run_with(&datastore.url, &[&args[..1], &place, &args[1..]].concat())
    };
    let checked_out = |autocrlf: &str| {
        git(&repository, &["config", "core.autocrlf", autocrlf]);
        std::fs::remove_file(repository.join("a.txt")).unwrap();
        git(&repository, &["checkout", "a.txt"]);
    };
    for (planned, applied) in [("false", "true"), ("true", "false")] {
        checked_out(planned);
        let ended = run(&["plan"]);
        assert_eq!(ended.code, 0, "{}", ended.stderr);
        checked_out(applied);
        let refused = run(&["apply"]);
        assert_eq!(refused.code, 9, "{applied}: {}", refused.stderr);
        assert!(refused.stderr.contains(" was made: a.txt, "), "{applied}: {}", refused.stderr);
        checked_out(planned);
        let applied = run(&["apply"]);
        assert_eq!(applied.code, 0, "{planned}: {}", applied.stderr);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn plan_of_another_kind_of_source_is_applied_only_with_the_files_that_its_module_names() {
    let datastore = TestDatastore::memory().await;
    let sandbox = Sandbox::new(RUNNER).fake_terraform("");
    let main = "locals {\n  a = file(\"${path.module}/a.txt\")\n}\n";
    // The same code in four kinds of sources, and another file in four more.
    for (dir, text) in [("same", "reviewed"), ("other", "changed")] {
        for below in ["plain", "clean"] {
            sandbox.write(&format!("{dir}/{below}/live/main.tf"), main);
            sandbox.write(&format!("{dir}/{below}/live/a.txt"), text);
        }
        let clean = sandbox.work().join(dir).join("clean");
        git(&clean, &["init", "--quiet", "--initial-branch=main"]);
        commit_all(&clean);
        let mut tar = Command::new("tar");
        tar.arg("-C").arg(sandbox.work().join(dir).join("plain"));
        let made = tar.arg("-cf").arg(sandbox.work().join(dir).join("code.tar")).arg("live");
        assert!(made.status().unwrap().success());
    }
    let source = |dir: &str, kind: &str| match kind {
        "url" => format!("file://{}", sandbox.work().join(dir).join("clean").display()),
        kind => format!("{dir}/{kind}"),
    };
    let run = |action: &str, source: &str, args: &[&str]| {
        let all = [action, source, "--path", "live", "--name", "x", "--snapshot=never"];
        sandbox.run_with(&datastore.url, &[&all, args].concat())
    };
    let kinds = ["plain", "clean", "code.tar", "url"];
    for planned in kinds {
        for applied in kinds.into_iter().filter(|kind| *kind != planned) {
            // A clean directory and a URL have a commit, and others a comparison of their own.
            if [planned, applied].iter().all(|kind| ["clean", "url"].contains(kind)) {
                continue;
            }
            let ended = run("plan", &source("same", planned), &[]);
            assert_eq!(ended.code, 0, "{planned}: {}", ended.stderr);
            let refused = run("apply", &source("other", applied), &[]);
            assert_eq!(refused.code, 9, "{planned}, {applied}: {}", refused.stderr);
            // Without a directory that stays, the local state would be lost.
            let kept = format!("kept-{planned}-{applied}");
            let done = run("apply", &source("same", applied), &["--work-dir", &kept]);
            assert_eq!(done.code, 0, "{planned}, {applied}: {}", done.stderr);
        }
    }
}

/// With `--plan` the tool would replace a resource halfway: it refuses the new value after the destruction.
#[tokio::test(flavor = "multi_thread")]
async fn changed_file_of_a_plan_with_a_snapshot_is_refused_with_the_advice_that_applies_the_plan() {
    let datastore = TestDatastore::memory().await;
    let sandbox = Sandbox::new(RUNNER);
    let state = sandbox.path("state");
    let main = format!(
        "terraform {{\n  backend \"local\" {{\n    path = \"{}\"\n  }}\n}}\n\
         resource \"terraform_data\" \"r\" {{\n  triggers_replace = [file(\"data.txt\")]\n}}\n",
        state.display()
    );
    sandbox.write("main.tf", &main);
    let run = |args: &[&str]| sandbox.run_with(&datastore.url, &[args, &["--name", "x"]].concat());
    for text in ["first", "reviewed"] {
        sandbox.write("data.txt", text);
        assert_eq!(run(&["plan", "--run", text, "--snapshot=always"]).code, 0);
        if text == "first" {
            assert_eq!(run(&["apply"]).code, 0);
        }
    }
    sandbox.write("data.txt", "changed");

    let refused = run(&["apply"]);

    assert_eq!(refused.code, 9, "{}", refused.stderr);
    let advice =
        "plan again, or apply exactly this plan, in its snapshot, with --snapshot=always\n";
    assert!(refused.stderr.contains(advice), "{}", refused.stderr);
    let applied = run(&["apply", "--snapshot=always"]);
    assert_eq!(applied.code, 0, "{}", applied.stderr);
    assert!(std::fs::read_to_string(state).unwrap().contains("reviewed"));
}
