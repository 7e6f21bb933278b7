//! A plan of a repository elsewhere is applied for the branch or tag of which it was made.

use support::{Ended, Sandbox, TestDatastore};

use crate::RUNNER;
use crate::run::plan_origin::{S3, commit};
use crate::source::checkout::{Repository, git, repository};

struct Plans {
    datastore: TestDatastore,
    sandbox: Sandbox,
    repository: Repository,
    url: String,
}

impl Plans {
    async fn new() -> Self {
        let datastore = TestDatastore::memory().await;
        let sandbox = Sandbox::new(RUNNER).fake_terraform(S3);
        let repository = repository(&sandbox);
        let url = format!("file://{}", repository.dir.display());
        Self { datastore, sandbox, repository, url }
    }

    fn run(&self, action: &str, source: &str, args: &[&str]) -> Ended {
        let args = [&[action, source, "--path", "live/vpc", "--name", "x"], args].concat();
        self.sandbox.run_with(&self.datastore.url, &args)
    }

    #[track_caller]
    fn plan(&self, source: &str, run: &str, args: &[&str]) {
        let planned = self.run("plan", source, &[&["--run", run], args].concat());
        assert_eq!(planned.code, 0, "{}", planned.stderr);
    }

    /// It ends so, and the error stream has these words.
    #[track_caller]
    fn apply(&self, source: &str, args: &[&str], code: i32, words: &[&str]) {
        let ended = self.run("apply", source, args);
        assert_eq!(ended.code, code, "{args:?}: {}", ended.stderr);
        for words in words {
            assert!(ended.stderr.contains(words), "{args:?}, {words}: {}", ended.stderr);
        }
    }
}

const SIDE: [&str; 2] = ["--revision", "feat/side"];
const MAIN: [&str; 2] = ["--revision", "main"];
const NOT_MAIN: &str =
    "skipping s/0: it was made of the revision feat/side, and this apply is of main";

#[tokio::test(flavor = "multi_thread")]
async fn newest_plan_of_another_branch_is_skipped_and_one_of_a_branch_that_has_moved_is_applied() {
    let plans = Plans::new().await;
    let url = &*plans.url;
    plans.plan(url, "m", &MAIN);
    plans.plan(url, "s", &SIDE);
    commit(&plans.repository.dir);
    plans.apply(url, &[&MAIN[..], &["--strict"]].concat(), 0, &[NOT_MAIN, "plan to apply is m/0"]);
    let side = ["--revision", "refs/heads/feat/side"];
    plans.apply(url, &side, 0, &["the plan to apply is s/0"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn order_without_a_revision_is_of_the_branch_of_head() {
    let plans = Plans::new().await;
    let bundle = plans.sandbox.path("all.bundle").display().to_string();
    git(&plans.repository.dir, &["bundle", "create", "--quiet", &bundle, "--all"]);
    for (source, name) in [(&*plans.url, "u"), (&*bundle, "b")] {
        let run = |action: &str, args: &[&str]| {
            let args = [&[action, source, "--path", "live/vpc", "--name", name], args].concat();
            plans.sandbox.run_with(&plans.datastore.url, &args)
        };
        assert_eq!(run("plan", &[&["--run", "s"], &SIDE[..]].concat()).code, 0);
        let refused = run("apply", &[]);
        assert_eq!(refused.code, 8, "{name}: {}", refused.stderr);
        for words in ["revision HEAD): s/0 is of the revision feat/side", "skipping s/0"] {
            assert!(refused.stderr.contains(words), "{words}: {}", refused.stderr);
        }
        assert_eq!(run("plan", &["--run", "h"]).code, 0);
        for args in [&MAIN[..], &[]] {
            let applied = run("apply", args);
            assert_eq!(applied.code, 0, "{args:?}: {}", applied.stderr);
            assert!(applied.stderr.contains("the plan to apply is h/0"), "{}", applied.stderr);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn named_plan_of_another_branch_is_applied_with_a_warning_and_refused_if_strict() {
    let plans = Plans::new().await;
    let url = &*plans.url;
    plans.plan(url, "s", &SIDE);
    let other = "the plan s/0 was made for another revision: feat/side; here it is main";
    let named = [&MAIN[..], &["--plan", "s"]].concat();
    let next = "plan the ordered revision, or name the plan and leave out --strict";
    plans.apply(url, &[&named[..], &["--strict"]].concat(), 9, &[other, next]);
    plans.apply(url, &named, 0, &[other]);
}

#[tokio::test(flavor = "multi_thread")]
async fn plan_of_a_commit_or_of_a_clone_is_of_the_branch_that_is_at_its_commit() {
    let plans = Plans::new().await;
    let Repository { dir, commits: [first, _, third] } = &plans.repository;
    let (url, clone) = (&*plans.url, dir.display().to_string());
    plans.plan(url, "s", &["--revision", third]);
    plans.apply(url, &MAIN, 8, &["revision main): s/0 is of the revision"]);
    plans.apply(url, &SIDE, 0, &["the plan to apply is s/0"]);
    plans.plan(url, "f", &["--revision", first]);
    plans.apply(url, &["--revision", "v1"], 0, &["the plan to apply is f/0"]);
    git(dir, &["checkout", "--quiet", "feat/side"]);
    plans.plan(&clone, "c", &[]);
    git(dir, &["checkout", "--quiet", "main"]);
    plans.apply(url, &MAIN, 8, &["skipping c/0: it was made of the revision refs/heads/feat/side"]);
    plans.apply(url, &SIDE, 0, &["the plan to apply is c/0"]);
}
