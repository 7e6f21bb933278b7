//! A plan that another directory or branch has applied is not that of this code.

use support::{Sandbox, TestDatastore};

use crate::RUNNER;
use crate::run::plan_origin::{S3, commit, modules, run_in};
use crate::source::checkout::{git, repository};

/// Another run has applied it, from the directory of its own.
#[tokio::test(flavor = "multi_thread")]
async fn plan_of_another_directory_is_refused_although_it_is_applied() {
    for other in ["a", "b"] {
        let datastore = TestDatastore::memory().await;
        let sandbox = Sandbox::new(RUNNER);
        for (dir, text) in [("one", "a"), ("two", other)] {
            let code = format!("resource \"terraform_data\" \"{text}\" {{}}\n");
            sandbox.write(&format!("{dir}/vpc/main.tf"), &code);
        }
        let run = |dir: &str, args: &[&str]| run_in(&sandbox, dir, &datastore, &[], args);
        for dir in ["one/vpc", "two/vpc"] {
            let planned = run(dir, &["plan"]);
            assert_eq!(planned.code, 0, "{}", planned.stderr);
        }
        assert_eq!(run("one/vpc", &["apply"]).code, 9);
        for expected in ["Apply complete!", ""] {
            let applied = run("two/vpc", &["apply"]);
            assert_eq!(applied.code, 0, "{}", applied.stderr);
            assert!(applied.stdout.contains(expected), "{}", applied.stdout);
        }
        for args in [&["apply"][..], &["apply", "--strict"]] {
            let refused = run("one/vpc", args);
            assert_eq!(refused.code, 9, "{other}: {}", refused.stderr);
            assert!(refused.stderr.contains("for another directory"), "{}", refused.stderr);
        }
        assert!(!sandbox.work().join("one/vpc/terraform.tfstate").exists());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn plan_of_another_commit_is_refused_although_it_is_applied() {
    let datastore = TestDatastore::memory().await;
    let sandbox = Sandbox::new(RUNNER);
    modules(&sandbox, "git@git.example.com:team/infra.git", &["vpc"]);
    let work = sandbox.work();
    git(&work, &["branch", "main2"]);
    commit(&work);
    let run = |args: &[&str]| run_in(&sandbox, "vpc", &datastore, &[], args);
    assert_eq!(run(&["plan"]).code, 0);
    let applied = run(&["apply"]);
    assert_eq!(applied.code, 0, "{}", applied.stderr);
    // What an apply has written beside the code is no other code.
    sandbox.write("vpc/written", "by the apply");
    let again = run(&["apply"]);
    assert!(
        again.code == 0 && again.stderr.contains("nothing is applied again"),
        "{}",
        again.stderr
    );
    std::fs::remove_file(work.join("vpc/written")).unwrap();
    git(&work, &["checkout", "--quiet", "main2"]);
    for args in [&["apply"][..], &["apply", "--strict"]] {
        let refused = run(args);
        assert_eq!(refused.code, 9, "{}", refused.stderr);
    }
}

/// What differs may be a file that the configuration names, or all of it.
#[tokio::test(flavor = "multi_thread")]
async fn plan_of_another_directory_is_refused_whatever_that_has() {
    let datastore = TestDatastore::memory().await;
    let sandbox = Sandbox::new(RUNNER);
    sandbox.write("one/vpc/main.tf", "resource \"terraform_data\" \"a\" {}\n");
    let run = |args: &[&str]| run_in(&sandbox, ".", &datastore, &[], args);
    assert_eq!(run(&["plan", "one/vpc"]).code, 0);
    let applied = run(&["apply", "one/vpc"]);
    assert_eq!(applied.code, 0, "{}", applied.stderr);
    let module = "module \"m\" {\n  source = \"./m\"\n}\n";
    let file = "resource \"terraform_data\" \"a\" {\n  input = file(\"x.txt\")\n}\n";
    for (other, main) in [("module", module), ("file", file), ("empty", "")] {
        sandbox.write(&format!("{other}/vpc/m/main.tf"), "output \"x\" {\n  value = 1\n}\n");
        sandbox.write(&format!("{other}/vpc/x.txt"), "x");
        if !main.is_empty() {
            sandbox.write(&format!("{other}/vpc/main.tf"), main);
        }
        let refused = run(&["apply", &format!("{other}/vpc")]);
        assert_eq!(refused.code, 9, "{other}: {}", refused.stderr);
        assert!(refused.stderr.contains("for another directory"), "{other}: {}", refused.stderr);
    }
    let again = run(&["apply", "one/vpc"]);
    assert_eq!(again.code, 0, "{}", again.stderr);
    assert!(again.stderr.contains("nothing is applied again"), "{}", again.stderr);
}

#[tokio::test(flavor = "multi_thread")]
async fn plan_of_an_archive_that_was_replaced_is_refused_although_it_is_applied() {
    let datastore = TestDatastore::memory().await;
    let sandbox = Sandbox::new(RUNNER).fake_terraform(S3);
    let pack = |text: &str| {
        sandbox.write("code/script.sh", text);
        sandbox.write("code/main.tf", "");
        let file = std::fs::File::create(sandbox.work().join("code.tar")).unwrap();
        let mut tar = tar::Builder::new(file);
        tar.append_dir_all(".", sandbox.work().join("code")).unwrap();
        tar.finish().unwrap();
    };
    let run = |action: &str| sandbox.run_with(&datastore.url, &[action, "code.tar", "--name", "x"]);
    pack("first");
    assert_eq!(run("plan").code, 0);
    for _ in 0..2 {
        let applied = run("apply");
        assert_eq!(applied.code, 0, "{}", applied.stderr);
    }
    pack("other");
    let refused = run("apply");
    assert_eq!(refused.code, 9, "{}", refused.stderr);
    assert!(refused.stderr.contains("the source has changed"), "{}", refused.stderr);
}

#[tokio::test(flavor = "multi_thread")]
async fn plan_of_a_branch_that_has_moved_is_refused_although_it_is_applied_but_not_for_its_order() {
    let datastore = TestDatastore::memory().await;
    let sandbox = Sandbox::new(RUNNER).fake_terraform(S3);
    let repository = repository(&sandbox);
    let url = format!("file://{}", repository.dir.display());
    let run = |action: &str, args: &[&str]| {
        let args = [&[action, &*url, "--path", "live/vpc", "--name", "x"], args].concat();
        sandbox.run_with(&datastore.url, &args)
    };
    let (main, key) = (["--revision", "main"], ["--revision", "main", "--order-key", "k"]);
    let plan = "p/0";
    assert_eq!(run("plan", &["--revision", "main", "--run", "p"]).code, 0);
    for args in [&key[..], &main, &[]] {
        let applied = run("apply", args);
        assert_eq!(applied.code, 0, "{args:?}: {}", applied.stderr);
    }
    let newer = commit(&repository.dir);
    for args in [&main[..], &["--strict"], &["--order-key", "other"]] {
        let refused = run("apply", args);
        assert_eq!(refused.code, 9, "{args:?}: {}", refused.stderr);
        for words in ["the commit has changed since the plan", &*newer] {
            assert!(refused.stderr.contains(words), "{words}: {}", refused.stderr);
        }
    }
    // The key and the plan name what was ordered.
    let planned = ["--plan", plan, "--strict"];
    for args in [&key[..], &planned, &[&main[..], &planned].concat()] {
        let again = run("apply", args);
        assert_eq!(again.code, 0, "{args:?}: {}", again.stderr);
        assert!(again.stderr.contains("nothing is applied again"), "{args:?}: {}", again.stderr);
    }
}
