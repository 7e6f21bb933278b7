//! A plan that another directory or branch has applied is not that of this code.

use support::{Sandbox, TestDatastore};

use crate::RUNNER;
use crate::run::plan_origin::{commit, modules, run_in};
use crate::source::checkout::git;

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
