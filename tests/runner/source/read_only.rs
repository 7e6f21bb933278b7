//! Plans of read-only directories, such as mounted `ConfigMaps`.

use support::{Ended, Sandbox, TestDatastore};

use crate::source::checkout::{
    Repository, commit_all, plan_read_only_at, repository, run_read_only_at,
};
use crate::source::work_dir::every_file;
use crate::{RUNNER, json};

#[tokio::test(flavor = "multi_thread")]
async fn plan_of_a_read_only_directory_is_applied_only_with_the_same_files() {
    let datastore = TestDatastore::memory().await;
    let sandbox = Sandbox::new(RUNNER).fake_terraform("");
    let [from, to] = ["code", "mounted"].map(|name| sandbox.path(name));
    for dir in [from.join("..1"), from.join("m"), to.clone()] {
        std::fs::create_dir_all(dir).unwrap();
    }
    std::fs::write(from.join("main.tf"), "").unwrap();
    std::fs::write(from.join("..1/script.sh"), "true").unwrap();
    std::os::unix::fs::symlink("..1", from.join("..data")).unwrap();
    std::os::unix::fs::symlink("..data/script.sh", from.join("script.sh")).unwrap();
    let run = |action: &str, name: &str| {
        let args = ["--name", "c", "--run", name, "--work-dir", "kept", "--datastore"];
        let args = [&args[..], &[datastore.url.as_str()]].concat();
        run_read_only_at(&sandbox, action, &from, &to, &args)
    };
    let planned = run("plan", "p");
    assert_eq!(planned.code, 0, "{}", planned.stderr);
    std::fs::write(sandbox.work().join("kept/made.zip"), "by the tool").unwrap();
    // An update of the mount changes the link.
    std::fs::create_dir(from.join("..2")).unwrap();
    std::fs::remove_file(from.join("..data")).unwrap();
    std::os::unix::fs::symlink("..2", from.join("..data")).unwrap();
    std::fs::write(from.join("..2/script.sh"), "echo EVIL").unwrap();
    std::fs::remove_file(sandbox.path("calls")).unwrap();
    let refused = run("apply", "a");
    assert_eq!(refused.code, 9, "{}", refused.stderr);
    assert!(refused.stderr.contains("the source has changed since the plan"), "{}", refused.stderr);
    assert!(!sandbox.path("calls").exists());
    std::fs::write(from.join("..2/script.sh"), "true").unwrap();
    let applied = run("apply", "b");
    assert_eq!(applied.code, 0, "{}", applied.stderr);
}

#[tokio::test(flavor = "multi_thread")]
async fn named_files_that_git_ignores_in_a_clean_read_only_repository_are_compared() {
    let datastore = TestDatastore::memory().await;
    let sandbox = Sandbox::new(RUNNER).fake_terraform("");
    let Repository { dir, .. } = repository(&sandbox);
    let (module, to) = (dir.join("live/vpc"), sandbox.path("mounted"));
    std::fs::create_dir(&to).unwrap();
    let code = "locals {\n  a = file(\"${path.module}/env.txt\")\n  b = file(\"link.txt\")\n}\n";
    std::fs::write(module.join("named.tf"), code).unwrap();
    std::fs::write(dir.join(".gitignore"), "env.txt\n").unwrap();
    std::os::unix::fs::symlink("env.txt", module.join("link.txt")).unwrap();
    commit_all(&dir);
    let ignored = module.join("env.txt");
    let run = |action: &str, args: &[&str]| {
        let place = ["--path", "live/vpc", "--name", "c", "--datastore", datastore.url.as_str()];
        run_read_only_at(&sandbox, action, &dir, &to, &[&place, args].concat())
    };
    let kept: &[&str] = &["--work-dir", "kept"];
    for args in [&[][..], kept] {
        std::fs::write(&ignored, "reviewed").unwrap();
        let planned = run("plan", args);
        assert_eq!(planned.code, 0, "{}", planned.stderr);
        std::fs::write(&ignored, "changed").unwrap();
        let refused = run("apply", args);
        assert_eq!(refused.code, 9, "{args:?}: {}", refused.stderr);
        let named = "the file has changed since the plan";
        assert!(refused.stderr.contains(named), "{}", refused.stderr);
        assert!(refused.stderr.contains(" was made: env.txt, sha256 "), "{}", refused.stderr);
    }
    std::fs::write(&ignored, "reviewed").unwrap();
    let applied = run("apply", kept);
    assert_eq!(applied.code, 0, "{}", applied.stderr);
    // So are they for an order without a plan that is delivered again.
    let order = [kept, &["--no-plan", "--order-key", "k"]].concat();
    for (text, code, says) in [
        ("reviewed", 0, ""),
        ("reviewed", 0, "nothing is applied again"),
        ("changed", 9, "another source: sha256 "),
    ] {
        std::fs::write(&ignored, text).unwrap();
        let ended = run("apply", &order);
        assert_eq!(ended.code, code, "{text}: {}", ended.stderr);
        assert!(ended.stderr.contains(says), "{}", ended.stderr);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn plan_of_a_dirty_read_only_repository_is_applied_only_with_the_same_files() {
    let datastore = TestDatastore::memory().await;
    let sandbox = Sandbox::new(RUNNER).fake_terraform("");
    let Repository { dir, .. } = repository(&sandbox);
    let (script, to) = (dir.join("live/vpc/script.sh"), sandbox.path("mounted"));
    std::fs::create_dir(&to).unwrap();
    std::fs::write(&script, "true").unwrap();
    commit_all(&dir);
    let run = |action: &str| {
        let args = ["--path", "live/vpc", "--name", "c", "--work-dir", "kept"];
        let args =
            [&args[..], &["--snapshot=never", "--datastore", datastore.url.as_str()]].concat();
        run_read_only_at(&sandbox, action, &dir, &to, &args)
    };
    std::fs::write(&script, "echo planned").unwrap();
    let planned = run("plan");
    assert_eq!(planned.code, 0, "{}", planned.stderr);
    for (text, what) in [("echo other", "source"), ("true", "code")] {
        std::fs::write(&script, text).unwrap();
        let refused = run("apply");
        assert_eq!(refused.code, 9, "{text}: {}", refused.stderr);
        let expected = format!("the {what} has changed since the plan");
        assert!(refused.stderr.contains(&expected), "{}", refused.stderr);
    }
    std::fs::write(&script, "echo planned").unwrap();
    let applied = run("apply");
    assert_eq!(applied.code, 0, "{}", applied.stderr);
}

#[tokio::test(flavor = "multi_thread")]
async fn fileset_of_a_read_only_directory_has_only_files_of_the_source_and_of_the_tool() {
    let datastore = TestDatastore::memory().await;
    let sandbox = Sandbox::new(RUNNER);
    let [from, to, empty] = ["code", "mounted", "empty"].map(|name| sandbox.path(name));
    for dir in [&from, &to, &empty] {
        std::fs::create_dir(dir).unwrap();
    }
    let state = sandbox.path("made.tfstate");
    std::fs::write(from.join("index.html"), "hello").unwrap();
    std::fs::write(from.join("main.tf"), every_file(&state, "**")).unwrap();
    let place = ["--name", "c", "--datastore", datastore.url.as_str()];
    let planned = run_read_only_at(&sandbox, "plan", &from, &to, &place);
    assert_eq!(planned.code, 0, "{}", planned.stderr);
    assert!(planned.stdout.contains("index.html"), "{}", planned.stdout);
    assert!(!planned.stdout.contains(".plancha-"), "{}", planned.stdout);
    assert!(!planned.stderr.contains("has no snapshot"), "{}", planned.stderr);
    let mut apply = sandbox.command(&[&["apply"][..], &place].concat());
    let applied = Ended::from(apply.current_dir(&empty).output().unwrap());
    assert_eq!(applied.code, 0, "{}", applied.stderr);
    let made = json(&std::fs::read(&state).unwrap());
    let made = made["resources"][0]["instances"].as_array().unwrap();
    let keys = made.iter().map(|instance| instance["index_key"].as_str().unwrap());
    let keys = keys.filter(|key| !key.starts_with(".terraform/")).collect::<Vec<_>>();
    assert_eq!(keys, ["index.html", "main.tf"]);
}

/// A copy has none of the directory's parents.
#[tokio::test(flavor = "multi_thread")]
async fn version_file_above_a_directory_that_is_copied_counts() {
    let datastore = TestDatastore::memory().await;
    let sandbox = Sandbox::new(RUNNER).fake_terraform("");
    let work = sandbox.work();
    sandbox.write("code/main.tf", "");
    for dir in ["all/live/vpc", "all/live/mounted"] {
        sandbox.write(&format!("{dir}/main.tf"), "");
    }
    sandbox.write("all/.terraform-version", "1.5.7\n");
    let mounted = work.join("all/live/mounted");
    let plan = || {
        let read_only = plan_read_only_at(&sandbox, &work.join("code"), &mounted, &[]);
        let copied = ["plan", "all/live/vpc", "--state", "datastore", "--name", "c"];
        [read_only, sandbox.run_with(&datastore.url, &copied)]
    };
    let origin = format!("(requested by {})", work.join("all/.terraform-version").display());
    for refused in plan() {
        assert_eq!(refused.code, 8, "{}", refused.stderr);
        let text = format!("no installed version of terraform matches `1.5.7` {origin}");
        assert!(refused.stderr.contains(&text), "{}", refused.stderr);
    }
    sandbox.write("all/live/.terraform-version", "1.9.8\n");
    for found in plan() {
        assert!(found.stderr.contains("INFO terraform 1.9.8 "), "{}", found.stderr);
    }
}

#[test]
fn read_only_unit_of_terragrunt_whose_parents_have_files_that_it_may_find_is_refused() {
    let sandbox = Sandbox::new(RUNNER).fake_terraform("");
    sandbox.script("terragrunt", "#!/bin/sh\necho terragrunt version v1.0.0\n");
    let (top, args) = (sandbox.work().join("top"), ["--terragrunt=1.0.0", "--tool", "terraform"]);
    let unit = "locals {\n  env = find_in_parent_folders(\"NAME\", \"none\")\n}\n";
    for (name, above, is_refused) in [
        ("env.hcl", "env.hcl", true),
        ("env.yaml", "env.yaml", true),
        ("env.yaml", "root.hcl", true),
        ("env.hcl", ".tflint.hcl", false),
        ("env.hcl", "docker-bake.override.hcl", false),
        ("env.hcl", "image.pkr.hcl", false),
        ("image.pkr.hcl", "image.pkr.hcl", true),
        ("env.hcl", "notes.txt", false),
    ] {
        sandbox.write("code/u/terragrunt.hcl", &unit.replace("NAME", name));
        sandbox.write("code/main.tf", "");
        sandbox.write("code/terragrunt.hcl", &unit.replace("NAME", name));
        sandbox.write(&format!("top/{above}"), "");
        let mounted = top.join("live");
        std::fs::create_dir(&mounted).unwrap();
        let from = sandbox.work().join("code");
        let ended = plan_read_only_at(&sandbox, &from, &mounted, &args);
        let file = top.join(above);
        let cause = format!("reads {}, which is not in the source", file.display());
        assert_eq!(ended.stderr.contains(&cause), is_refused, "{above}: {}", ended.stderr);
        if is_refused {
            assert_eq!(ended.code, 8, "{above}: {}", ended.stderr);
            let next = format!("{} with --path live;", top.display());
            assert!(ended.stderr.contains(&next), "{}", ended.stderr);
        }
        // In the copy there is a nearer one.
        sandbox.write(&format!("code/{above}"), "");
        let below = [&args[..], &["--path", "u"]].concat();
        let ended = plan_read_only_at(&sandbox, &from, &mounted, &below);
        assert!(!ended.stderr.contains("which is not in the source"), "{}", ended.stderr);
        for dir in [&top, &from] {
            std::fs::remove_dir_all(dir).unwrap();
        }
    }
}
