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
        let sandbox = Sandbox::new(RUNNER).fake_terraform(&format!("{S3}{STATE}"));
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

/// Its state has one object until something is applied.
const STATE: &str = r#"
case "$1 $2" in
  apply*) touch "$HOME/applied";;
  "state pull")
    [ -e "$HOME/applied" ] || OBJECT='{"mode": "managed", "type": "terraform_data", "name": "a", "instances": [{}]}'
    echo '{"version": 4, "terraform_version": "1.9.8", "serial": 1, "lineage": "l", "outputs": {},
      "resources": ['"$OBJECT"']}'
    exit 0;;
esac
"#;
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
    let next = "plan the ordered one, or name the plan and leave out --strict";
    plans.apply(url, &[&named[..], &["--strict"]].concat(), 9, &[other, next]);
    plans.apply(url, &named, 0, &[other]);
}

#[tokio::test(flavor = "multi_thread")]
async fn printed_command_names_the_revision_of_the_plan() {
    let plans = Plans::new().await;
    for (action, code, prefix) in [("destroy", 3, "runner destroy "), ("plan", 0, "runner apply ")]
    {
        let planned = plans.run(action, &plans.url, &SIDE);
        assert_eq!(planned.code, code, "{}", planned.stderr);
        let command = planned.stderr.lines().find_map(|line| line.split_once(prefix));
        let (_, arguments) = command.expect(&planned.stderr);
        let words = format!("{prefix}{arguments}");
        let words = words.split_whitespace().skip(1).collect::<Vec<_>>();
        let applied = plans.sandbox.run_with(&plans.datastore.url, &words);
        assert_eq!(applied.code, 0, "{words:?}: {}", applied.stderr);
    }
}

/// The approval names the plan by its digest.
#[tokio::test(flavor = "multi_thread")]
async fn approved_destroy_of_another_branch_is_applied() {
    let plans = Plans::new().await;
    let planned = plans.run("destroy", &plans.url, &[&SIDE[..], &["--run", "d"]].concat());
    assert_eq!(planned.code, 3, "{}", planned.stderr);
    let (_, digest) = planned.stderr.split_once("--approve ").unwrap();
    let approve = ["--approve", digest.split_whitespace().next().unwrap()];
    let applied = plans.run("destroy", &plans.url, &[&MAIN[..], &approve].concat());
    assert_eq!(applied.code, 0, "{}", applied.stderr);
}

/// What the repository does not answer is neither the same nor another revision.
#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_applied_if_the_repository_cannot_be_asked_which_revision_a_plan_is_of() {
    let plans = Plans::new().await;
    let (url, [_, second, _]) = (&*plans.url, &plans.repository.commits);
    plans.plan(url, "old", &MAIN);
    plans.plan(url, "new", &["--revision", second]);
    let real = support::on_path("git").unwrap();
    let failing = format!(
        "#!/bin/sh\ncase \" $* \" in *\" ls-remote \"*) echo \"fatal: no answer\" >&2; exit 128;; esac\n\
         exec {} \"$@\"\n",
        real.display()
    );
    plans.sandbox.script("git", &failing);
    for args in [&MAIN[..], &[], &[&MAIN[..], &["--plan", "new", "--strict"]].concat()] {
        let refused = plans.run("apply", url, args);
        assert_ne!(refused.code, 0, "{}", refused.stderr);
        assert!(refused.stderr.contains("no answer"), "{}", refused.stderr);
    }
    assert!(!plans.sandbox.calls().iter().any(|call| call.starts_with("apply")));
    // Nothing is to be asked: the one is of the ordered name, and the other is named.
    plans.plan(url, "s", &SIDE);
    plans.plan(url, "m", &MAIN);
    plans.apply(url, &MAIN, 0, &["the plan to apply is m/0"]);
    let unknown = "it is not known whether the plan s/0 is of HEAD: ";
    plans.apply(url, &["--plan", "s"], 0, &[unknown, "no answer"]);
    // A manifest does not name it, it only says which is the last one.
    let manifest = "apiVersion: config.terraform.padok.cloud/v1alpha1\nkind: TerraformLayer\nmetadata:\n  name: vpc\n  \
                    annotations: {}\nspec:\n  path: live/vpc\n";
    plans.sandbox.write("layer.yaml", manifest);
    let run = |action: &str, revision: &[&str]| {
        let args = [&[action, url, "--layer", "layer.yaml"], revision].concat();
        plans.sandbox.run_with(&plans.datastore.url, &args)
    };
    let planned = run("plan", &SIDE);
    assert_eq!(planned.code, 0, "{}", planned.stderr);
    let refused = run("apply", &MAIN);
    assert_ne!(refused.code, 0, "{}", refused.stderr);
    assert!(refused.stderr.contains("no answer"), "{}", refused.stderr);
    plans.plan(url, "newer", &["--revision", second]);
    plans.sandbox.script("git", &format!("#!/bin/sh\nexec {} \"$@\"\n", real.display()));
    plans.apply(url, &MAIN, 0, &["the plan to apply is newer/0"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn tag_whose_name_looks_like_a_commit_is_applied_by_its_name() {
    let plans = Plans::new().await;
    git(&plans.repository.dir, &["tag", "20250101"]);
    let tag = ["--revision", "20250101"];
    plans.plan(&plans.url, "t", &tag);
    plans.apply(&plans.url, &tag, 0, &["the plan to apply is t/0"]);
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
