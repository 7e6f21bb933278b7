//! An apply without `--plan` uses the newest plan or none: an older one is not used because files of the newest are gone.

use std::path::PathBuf;

use serde_json::{Value, json as value};
use support::{Ended, Sandbox, TestDatastore};

use crate::run::plan_origin::S3;
use crate::stored_run::StoredRun;
use crate::{RUNNER, json};

struct TwoPlans {
    datastore: TestDatastore,
    sandbox: Sandbox,
}

impl TwoPlans {
    /// The plan `a` of the directory `one`, and then the plan `b` of this directory, both of the layer `x`.
    async fn new(newest: &str) -> Self {
        Self::with(newest, &[]).await
    }

    /// The same, both signed.
    async fn signed(newest: &str) -> Self {
        Self::with(newest, &["--signing-key", "key"]).await
    }

    async fn with(newest: &str, args: &[&str]) -> Self {
        let datastore = TestDatastore::temporary().await;
        let two = Self { datastore, sandbox: Sandbox::new(RUNNER) };
        for dir in ["one", "two"] {
            let code = "variable \"v\" {}\noutput \"v\" { value = var.v }\n";
            two.sandbox.write(&format!("{dir}/main.tf"), code);
        }
        two.sandbox.write("key", &"abcdef".repeat(8));
        for (dir, run) in [("one", "a"), (newest, "b")] {
            let var = format!("v=of-{run}");
            two.plan(dir, run, &[&["--var", &var], args].concat());
        }
        two
    }

    fn plan(&self, dir: &str, run: &str, args: &[&str]) {
        let plan = ["plan", "--path", dir, "--name", "x", "--run", run];
        let ended = self.sandbox.run_with(&self.datastore.url, &[&plan[..], args].concat());
        assert_eq!(ended.code, 0, "{}", ended.stderr);
    }

    fn apply(&self, args: &[&str]) -> Ended {
        let apply = [&["apply", "--path", "one", "--name", "x"], args].concat();
        self.sandbox.run_with(&self.datastore.url, &apply)
    }

    /// The file of the plan `b` in the datastore.
    fn file(&self, name: &str) -> PathBuf {
        self.datastore.root().join("layers/default/x/b/0").join(name)
    }

    fn stored(&self, run: &str) -> StoredRun {
        StoredRun::new(&self.datastore, "default", "x", run)
    }

    /// The plan `b` with a `run.json` that was changed.
    async fn change_report(&self, change: impl FnOnce(&mut Value)) {
        let mut report = json(&self.stored("b").artifact("run.json", 0).await);
        change(&mut report);
        self.put("run.json", report.to_string().as_bytes()).await;
    }

    /// Replaces a file of the plan `b`, or stores it.
    async fn put(&self, name: &str, bytes: &[u8]) {
        self.stored("b").put_artifact(name, 0, bytes.to_vec()).await;
    }

    /// With the key the apply is refused with this text.
    #[track_caller]
    fn refused_with_the_key(&self, expected: &str) {
        let refused = self.apply(&["--verify-key", "key"]);
        assert_eq!(refused.code, 9, "{expected}: {}", refused.stderr);
        assert!(refused.stderr.contains(expected), "{expected}: {}", refused.stderr);
        assert!(!self.has_applied(), "{expected}");
    }

    /// With the key the plan of this run is applied.
    #[track_caller]
    fn applied_with_the_key(&self, run: &str) {
        let applied = self.apply(&["--verify-key", "key"]);
        assert_eq!(applied.code, 0, "{}", applied.stderr);
        let expected = format!("v = \"of-{run}\"");
        assert!(applied.stdout.contains(&expected), "{}", applied.stdout);
    }

    fn has_applied(&self) -> bool {
        self.sandbox.work().join("one/terraform.tfstate").exists()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn newest_plan_with_a_missing_or_unreadable_file_is_refused_and_not_replaced_by_an_older_one()
{
    let two = TwoPlans::new("one").await;
    let stored = StoredRun::new(&two.datastore, "default", "x", "b");
    let report = stored.artifact("run.json", 0).await;
    let unreadable = b"{\"configuration_sha256\": \"q\"}".to_vec();
    let refused = |expected: &str| {
        let refused = two.apply(&[]);
        assert_eq!(refused.code, 9, "{expected}: {}", refused.stderr);
        for expected in [&*format!("b/0, cannot be used: its {expected}"), "--plan a/0"] {
            assert!(refused.stderr.contains(expected), "{expected}: {}", refused.stderr);
        }
        assert!(!two.has_applied(), "{expected}");
    };
    stored.put_artifact("run.json", 0, unreadable).await;
    refused("run.json cannot be read: ");
    std::fs::remove_file(two.file("run.json")).unwrap();
    refused("run.json is missing");
    stored.put_artifact("run.json", 0, report).await;
    std::fs::remove_file(two.file("plan.bin")).unwrap();
    refused("plan.bin is missing");
    let gone = two.apply(&["--plan", "b"]);
    assert_eq!(gone.code, 8, "{}", gone.stderr);
    assert!(gone.stderr.contains("no plan `b/0` of default/x"), "{}", gone.stderr);
    // The failed applies are newer than both plans.
    let applied = two.apply(&["--plan", "a/0"]);
    assert_eq!(applied.code, 0, "{}", applied.stderr);
    assert!(applied.stdout.contains("v = \"of-a\""), "{}", applied.stdout);
}

#[tokio::test(flavor = "multi_thread")]
async fn newest_plan_of_another_place_may_lack_its_report() {
    let two = TwoPlans::new("two").await;
    std::fs::remove_file(two.file("run.json")).unwrap();
    let applied = two.apply(&[]);
    assert_eq!(applied.code, 0, "{}", applied.stderr);
    let skipped = "skipping b/0: it was made for another place";
    assert!(applied.stderr.contains(skipped), "{}", applied.stderr);
    assert!(two.has_applied() && applied.stdout.contains("v = \"of-a\""), "{}", applied.stdout);
}

#[tokio::test(flavor = "multi_thread")]
async fn latest_plan_of_a_named_run_is_not_replaced_by_that_of_an_earlier_attempt() {
    let two = TwoPlans::new("one").await;
    let again = ["plan", "--path", "one", "--name", "x", "--run", "b", "--var", "v=again"];
    let planned = two.sandbox.run_with(&two.datastore.url, &again);
    assert!(planned.stderr.contains("stored as default/x/b/1"), "{}", planned.stderr);
    std::fs::remove_file(two.file("../1/plan.bin")).unwrap();
    let refused = two.apply(&["--plan", "b"]);
    assert_eq!(refused.code, 8, "{}", refused.stderr);
    assert!(refused.stderr.contains("no plan `b/1` of default/x"), "{}", refused.stderr);
    let applied = two.apply(&["--plan", "b/0"]);
    assert_eq!(applied.code, 0, "{}", applied.stderr);
}

/// `datastore gc` removes plans by their age, so that no older one is left.
#[tokio::test(flavor = "multi_thread")]
async fn layer_whose_plans_are_all_removed_has_no_plan() {
    let two = TwoPlans::new("one").await;
    for run in ["a", "b"] {
        let plan = two.datastore.root().join(format!("layers/default/x/{run}/0/plan.bin"));
        std::fs::remove_file(plan).unwrap();
    }
    let refused = two.apply(&[]);
    assert_eq!(refused.code, 8, "{}", refused.stderr);
    assert!(refused.stderr.contains("the datastore has no plan of default/x"));
}

#[tokio::test(flavor = "multi_thread")]
async fn earlier_plan_of_a_run_whose_latest_attempt_failed_is_named() {
    let two = TwoPlans::new("one").await;
    let failing = ["plan", "--path", "one", "--name", "x", "--run", "b", "--target", "("];
    let failed = two.sandbox.run_with(&two.datastore.url, &failing);
    assert_eq!(failed.code, 8, "{}", failed.stderr);
    // The apply itself has claimed attempt 2.
    let applied = two.apply(&["--plan", "b", "--run", "b"]);
    assert_eq!(applied.code, 0, "{}", applied.stderr);
    let expected = "attempt 1 of b stored no plan: taking b/0";
    assert!(applied.stderr.contains(expected), "{}", applied.stderr);
}

#[tokio::test(flavor = "multi_thread")]
async fn signed_plan_whose_report_is_changed_is_not_replaced_by_an_older_one() {
    let two = TwoPlans::signed("one").await;
    let original = two.stored("b").artifact("run.json", 0).await;
    for (field, changed, expected) in [
        ("outcome", value!("failed"), "the outcome is \"failed\""),
        ("outcome", value!("interrupted"), "the outcome is \"interrupted\""),
        ("plan", value!(null), "the plan is stored"),
        ("plan", value!({"sha256": "0".repeat(64)}), "the plan is sha256 "),
        ("place", value!({"workspace": "other"}), "workspace default, not repository"),
        ("place", value!(null), "workspace default, not unknown"),
    ] {
        two.change_report(|report| report[field] = changed).await;
        two.refused_with_the_key("run.json of b/0 differs from its signed binding");
        two.refused_with_the_key(expected);
        two.put("run.json", &original).await;
    }
    two.applied_with_the_key("b");
}

#[tokio::test(flavor = "multi_thread")]
async fn newest_plan_that_is_not_signed_is_not_replaced_by_an_older_one_that_is() {
    let two = TwoPlans::signed("one").await;
    let original = two.stored("b").artifact("binding.json", 0).await;
    let mut changed = json(&original);
    changed["signature"] = value!(null);
    two.change_report(|report| report["place"] = value!({"workspace": "other"})).await;
    two.put("binding.json", changed.to_string().as_bytes()).await;
    two.refused_with_the_key("the plan b/0 is not signed");
    two.put("binding.json", b"{}").await;
    two.refused_with_the_key("the binding.json of the plan b/0 cannot be read");
    std::fs::remove_file(two.file("binding.json")).unwrap();
    two.refused_with_the_key("the plan b/0 is not signed");
    two.put("binding.json", &two.stored("a").artifact("binding.json", 0).await).await;
    two.refused_with_the_key("bound to another run: a; here it is b");
    // A run that failed before it stored its binding has no plan.
    std::fs::remove_file(two.file("binding.json")).unwrap();
    two.change_report(|report| report["outcome"] = value!("failed")).await;
    two.applied_with_the_key("a");
}

#[tokio::test(flavor = "multi_thread")]
async fn signed_plan_of_another_place_is_skipped_whatever_its_report_says() {
    let two = TwoPlans::signed("two").await;
    two.change_report(|report| {
        report["place"] = value!({"path_in_source": "one", "workspace": "default"});
    })
    .await;
    two.applied_with_the_key("a");
}

/// Anyone who may store files may store an unfinished plan as a further attempt.
#[tokio::test(flavor = "multi_thread")]
async fn plan_whose_run_has_an_unfinished_attempt_after_it_is_not_replaced_by_that_of_an_older_run()
{
    let two = TwoPlans::signed("one").await;
    two.stored("b").put_plan_bin(1, b"unfinished").await;
    let applied = two.apply(&["--verify-key", "key"]);
    assert_eq!(applied.code, 0, "{}", applied.stderr);
    assert!(applied.stdout.contains("v = \"of-b\""), "{}", applied.stdout);
    for expected in ["skipping b/1: its run did not finish", "stored no plan: taking b/0"] {
        assert!(applied.stderr.contains(expected), "{expected}: {}", applied.stderr);
    }
}

/// As if the clock of the datastore had been wrong: the run `b` is listed after the run `a`.
fn list_last(two: &TwoPlans) {
    let index = two.datastore.root().join(".plancha/runs/default/x");
    let names = std::fs::read_dir(&index).unwrap();
    let names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let names = names.collect::<Vec<_>>();
    let [a, b] = ["-a", "-b"].map(|run| names.iter().find(|name| name.ends_with(run)).unwrap());
    let time = u64::from_str_radix(a.strip_suffix("-a").unwrap(), 16).unwrap();
    std::fs::rename(index.join(b), index.join(format!("{:016x}-b", time + 1))).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn plan_that_is_listed_first_but_made_before_another_is_refused() {
    let two = TwoPlans::new("one").await;
    list_last(&two);
    let refused = two.apply(&[]);
    assert_eq!(refused.code, 9, "{}", refused.stderr);
    let expected = "which plan is the newest is not certain: a/0 is listed first, but b/0 was started after it";
    for expected in [expected, "--plan RUN/ATTEMPT"] {
        assert!(refused.stderr.contains(expected), "{expected}: {}", refused.stderr);
    }
    assert!(!two.has_applied());
    let report = json(&two.stored("b").artifact("run.json", 0).await);
    let applied = two.apply(&["--plan", "b", "--result", "result.json"]);
    assert_eq!(applied.code, 0, "{}", applied.stderr);
    let planned = report["planned"].as_str().unwrap();
    let expected = format!("the plan to apply is b/0 of default/x, planned at {}", &planned[..19]);
    assert!(applied.stderr.contains(&expected), "{expected}: {}", applied.stderr);
    let result = json(&std::fs::read(two.sandbox.work().join("result.json")).unwrap());
    assert_eq!((&result["plan"]["run"], &result["planned"]), (&value!("b"), &value!(planned)));
}

#[tokio::test(flavor = "multi_thread")]
async fn plan_that_is_listed_first_is_applied_where_the_runs_of_both_overlap() {
    let two = TwoPlans::new("one").await;
    let of_a = json(&two.stored("a").artifact("run.json", 0).await);
    two.change_report(|report| report["started"] = of_a["planned"].clone()).await;
    list_last(&two);
    let applied = two.apply(&[]);
    assert_eq!(applied.code, 0, "{}", applied.stderr);
    assert!(applied.stdout.contains("v = \"of-a\""), "{}", applied.stdout);
}

#[tokio::test(flavor = "multi_thread")]
async fn with_a_key_the_signed_times_decide_which_plan_was_made_first() {
    let two = TwoPlans::signed("one").await;
    let of_a = json(&two.stored("a").artifact("run.json", 0).await);
    two.change_report(|report| report["started"] = of_a["started"].clone()).await;
    list_last(&two);
    two.refused_with_the_key("which plan is the newest is not certain: a/0 is listed first");
}

/// A failed apply under the name of the plan's run is a later attempt of it.
#[tokio::test(flavor = "multi_thread")]
async fn plan_whose_run_has_a_failed_attempt_after_a_newer_plan_is_refused() {
    let two = TwoPlans::new("one").await;
    let failed = two.apply(&["--plan", "a", "--run", "a", "--tool-version", "0.1.0"]);
    assert_eq!(failed.code, 9, "{}", failed.stderr);
    let refused = two.apply(&[]);
    assert_eq!(refused.code, 9, "{}", refused.stderr);
    assert!(
        refused.stderr.contains("b/0 was started after it had been made"),
        "{}",
        refused.stderr
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn plan_with_the_argument_destroy_is_applied_only_where_it_is_named() {
    let datastore = TestDatastore::memory().await;
    let sandbox = Sandbox::new(RUNNER).hello().fake_terraform(S3);
    let run = |variables: &[(&str, &str)], args: &[&str]| {
        let mut command = sandbox.command(args);
        command.env("PLANCHA_DATASTORE_URL", datastore.url.as_str());
        Ended::from(command.envs(variables.iter().copied()).output().unwrap())
    };
    let plan = |variables: &[(&str, &str)], args: &[&str]| {
        let planned = run(variables, &[&["plan", "--layer", "layer.yaml"], args].concat());
        assert_eq!(planned.code, 0, "{}", planned.stderr);
    };
    let apply = |args: &[&str], code: i32, words: &str| {
        let ended = run(&[], &[&["apply"], args].concat());
        assert_eq!(ended.code, code, "{args:?}: {}", ended.stderr);
        assert!(ended.stderr.contains(words), "{args:?}, {words}: {}", ended.stderr);
    };
    let refused = |run: &str| format!("the plan {run}/0 was made with -destroy");
    let name = sandbox.read("layer.yaml");
    let name = name.lines().find_map(|line| line.trim().strip_prefix("name: ")).unwrap();
    let newest = ["--name", name];
    plan(&[], &["--run", "d", "--", "-destroy"]);
    apply(&newest, 8, &refused("d"));
    // Its plan has annotated the layer.
    apply(&["--layer", "layer.yaml"], 8, &refused("d"));
    plan(&[], &["--run", "a"]);
    plan(&[("TF_CLI_ARGS_plan", "-lock=false -destroy")], &["--run", "v"]);
    // The one before it is not taken in its place.
    apply(&newest, 8, &refused("v"));
    apply(&["--layer", "layer.yaml"], 8, &refused("v"));
    apply(&[&newest[..], &["--plan", "d"]].concat(), 0, "the plan to apply is d/0");
    apply(&["--layer", "layer.yaml", "--plan", "v"], 0, "the plan to apply is v/0");
    plan(&[], &["--run", "z"]);
    apply(&newest, 0, "the plan to apply is z/0");
}
