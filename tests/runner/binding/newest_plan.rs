//! An apply without `--plan` uses the newest plan or none: an older one is not used because files of the newest are gone.

use std::path::PathBuf;

use support::{Ended, Sandbox, TestDatastore};

use crate::RUNNER;
use crate::stored_run::StoredRun;

struct TwoPlans {
    datastore: TestDatastore,
    sandbox: Sandbox,
}

impl TwoPlans {
    /// The plan `a` of the directory `one`, and then the plan `b` of this directory, both of the layer `x`.
    async fn new(newest: &str) -> Self {
        let datastore = TestDatastore::temporary().await;
        let two = Self { datastore, sandbox: Sandbox::new(RUNNER) };
        for dir in ["one", "two"] {
            let code = "variable \"v\" {}\noutput \"v\" { value = var.v }\n";
            two.sandbox.write(&format!("{dir}/main.tf"), code);
        }
        for (dir, run) in [("one", "a"), (newest, "b")] {
            let var = format!("v=of-{run}");
            let plan = ["plan", "--path", dir, "--name", "x", "--run", run, "--var", &var];
            let ended = two.sandbox.run_with(&two.datastore.url, &plan);
            assert_eq!(ended.code, 0, "{}", ended.stderr);
        }
        two
    }

    fn apply(&self, args: &[&str]) -> Ended {
        let apply = [&["apply", "--path", "one", "--name", "x"], args].concat();
        self.sandbox.run_with(&self.datastore.url, &apply)
    }

    /// The file of the plan `b` in the datastore.
    fn file(&self, name: &str) -> PathBuf {
        self.datastore.root().join("layers/default/x/b/0").join(name)
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
    assert_eq!(failed.code, 1, "{}", failed.stderr);
    // The apply itself has claimed attempt 2.
    let applied = two.apply(&["--plan", "b", "--run", "b"]);
    assert_eq!(applied.code, 0, "{}", applied.stderr);
    let expected = "attempt 1 of b stored no plan: taking b/0";
    assert!(applied.stderr.contains(expected), "{}", applied.stderr);
}
