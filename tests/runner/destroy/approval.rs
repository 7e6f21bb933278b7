//! `runner destroy`: nothing is destroyed without an approval, and then exactly the plan that was approved.

use support::{Sandbox, TestDatastore};

use crate::real_layer::{CODE, Layer};
use crate::{RUNNER, json};
use serde_json::Value;

impl Layer {
    /// Plans to destroy, as the run `d`, and returns the digest.
    fn plan(&self) -> String {
        let ended = self.run(&["destroy", "--run", "d"]);
        assert_eq!(ended.code, 3, "{}", ended.stderr);
        self.result()["plan"]["sha256"].as_str().unwrap().to_owned()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn without_an_approval_the_plan_is_stored_and_nothing_destroyed() {
    let layer = Layer::applied().await;
    let ended = layer.run(&["destroy", "--run", "d"]);

    assert_eq!(ended.code, 3, "{}", ended.stderr);
    assert!(
        ended.stdout.contains("Plan: 0 to add, 0 to change, 2 to destroy."),
        "{}",
        ended.stdout
    );
    assert_eq!(layer.resources(), 2);
    let result = layer.result();
    let digest = result["plan"]["sha256"].as_str().unwrap();
    let command = format!("--approve {digest}");
    assert!(
        ended.stderr.contains(&command) && ended.stderr.contains("runner destroy"),
        "{}",
        ended.stderr
    );
    let stored = layer.stored("d");
    let report = json(&stored.artifact("run.json", 0).await);
    assert_eq!(report["plan"], result["plan"]);
    for (field, expected) in [("action", "destroy"), ("outcome", "changes")] {
        assert_eq!(report[field], expected);
    }
    assert_eq!((&report["exit"], &report["state"]["resources"]), (&3.into(), &2.into()));
    assert_eq!(report["state"]["empty"], false);
    let mut names = stored.names(0).await;
    names.sort();
    let expected = [
        "binding.json",
        "plan.bin",
        "plan.json",
        "pretty.plan",
        "run.json",
        "run.log",
        "short.diff",
    ];
    assert!(expected.iter().all(|name| names.contains(&(*name).to_owned())), "{names:?}");
    assert!(layer.sandbox.is_clean());
}

#[tokio::test(flavor = "multi_thread")]
async fn approved_plan_is_applied_once_and_the_result_says_that_the_state_is_empty() {
    let layer = Layer::applied().await;
    let digest = layer.plan();

    let ended = layer.run(&["destroy", "--approve", &digest, "--run", "a"]);

    assert_eq!(ended.code, 0, "{}", ended.stderr);
    assert!(ended.stdout.contains("2 destroyed"), "{}", ended.stdout);
    assert!(!ended.stdout.contains("Plan:"), "no new plan is made: {}", ended.stdout);
    assert_eq!(layer.resources(), 0);
    let result = layer.result();
    assert_eq!((&result["action"], &result["outcome"]), (&"destroy".into(), &"applied".into()));
    assert_eq!(
        (&result["applied"], &result["plan"]["run"]),
        (&digest.as_str().into(), &"d".into())
    );
    assert_eq!(
        (&result["state"]["empty"], &result["state"]["resources"]),
        (&true.into(), &0.into())
    );
    let stored = layer.stored("a");
    assert_eq!(json(&stored.artifact("run.json", 0).await)["state"], result["state"]);
    assert_eq!(json(&stored.artifact("applied.json", 0).await)["applied"], *digest);
    assert!(stored.names(0).await.contains(&"ledger.json".to_owned()));

    // The same order again: it needs no tool, and has the same result.
    let ended = layer.run(&["destroy", "--approve", &digest, "--run", "again"]);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    assert!(ended.stderr.contains("nothing is applied again"), "{}", ended.stderr);
    let again = layer.result();
    assert_eq!((&again["state"], &again["applied_before"]["run"]), (&result["state"], &"a".into()));
    assert!(layer.sandbox.is_clean());
}

#[tokio::test(flavor = "multi_thread")]
async fn repeated_order_does_not_say_that_a_layer_is_empty_which_was_applied_since() {
    let layer = Layer::applied().await;
    let digest = layer.plan();
    let approve = ["destroy", "--approve", &*digest];
    assert_eq!(layer.run(&approve).code, 0);
    assert_eq!(layer.run(&["apply", "--no-plan", "--run", "later"]).code, 0);
    let ended = layer.run(&approve);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    assert!(ended.stderr.contains("later/0 has applied something since"), "{}", ended.stderr);
    assert_eq!((&layer.result()["state"], layer.resources()), (&Value::Null, 2));
}

#[tokio::test(flavor = "multi_thread")]
async fn with_auto_approve_the_plan_is_stored_and_applied_by_one_command() {
    let layer = Layer::applied().await;
    let ended = layer.run(&["destroy", "--auto-approve", "--run", "d"]);

    assert_eq!(ended.code, 0, "{}", ended.stderr);
    assert_eq!(layer.resources(), 0);
    let (result, stored) = (layer.result(), layer.stored("d"));
    let (plan, applied) =
        (json(&stored.artifact("run.json", 0).await), json(&stored.artifact("run.json", 1).await));
    assert_eq!(plan["outcome"], "changes");
    assert_eq!(applied, result);
    assert_eq!((&result["plan"]["run"], &result["plan"]["attempt"]), (&"d".into(), &0.into()));
    assert_eq!(result["plan"]["sha256"], plan["plan"]["sha256"]);
    assert_eq!((&result["state"]["empty"], &result["started"]), (&true.into(), &plan["started"]));
    let steps =
        result["steps"].as_array().unwrap().iter().map(|step| step["name"].as_str().unwrap());
    let steps = steps.collect::<Vec<_>>();
    assert!(steps.contains(&"plan") && steps.contains(&"apply"), "{steps:?}");
    assert!(layer.sandbox.is_clean());
}

#[tokio::test(flavor = "multi_thread")]
async fn other_digest_or_other_kind_of_plan_is_refused() {
    let layer = Layer::applied().await;
    let digest = layer.plan();
    let other = "0".repeat(64);
    for (args, code, text) in [
        (
            &["destroy", "--approve", &*other][..],
            8,
            "no plan of default/x and this place with the SHA-256 000",
        ),
        (&["destroy", "--approve", "123"], 64, "--approve"),
        (&["destroy", "--approve", &*digest, "--auto-approve"], 64, "cannot be used with"),
        (&["destroy", "--approve", &*digest, "--target", "a.b"], 64, "were decided when"),
        (&["destroy", "--replace", "a.b"], 64, "leave it out"),
        (&["apply", "--plan", "d"], 8, "destroy --path module --name x --datastore"),
    ] {
        let ended = layer.run(args);
        assert_eq!(ended.code, code, "{args:?}: {}", ended.stderr);
        assert!(ended.stderr.contains(text), "{args:?}: {}", ended.stderr);
    }
    layer.sandbox.write("module/main.tf", &CODE.replace("input = 1", "input = 2"));
    assert_eq!(layer.run(&["plan", "--run", "p"]).code, 0);
    let normal = layer.result()["plan"]["sha256"].as_str().unwrap().to_owned();
    let ended = layer.run(&["destroy", "--approve", &normal]);
    assert_eq!(ended.code, 8, "{}", ended.stderr);
    assert!(
        ended.stderr.contains("p/0 is not one that `runner destroy` has made"),
        "{}",
        ended.stderr
    );
    // The code has changed since the plan was approved.
    let ended = layer.run(&["destroy", "--approve", &digest]);
    assert_eq!(ended.code, 9, "{}", ended.stderr);
    assert_eq!(layer.resources(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn apply_without_a_name_never_takes_a_plan_that_destroys() {
    let layer = Layer::applied().await;
    layer.plan();
    let ended = layer.run(&["apply"]);
    assert_eq!(ended.code, 8, "{}", ended.stderr);
    assert!(ended.stderr.contains("skipping d/0: it destroys everything"), "{}", ended.stderr);

    layer.sandbox.write("module/main.tf", &CODE.replace("input = 1", "input = 2"));
    assert_eq!(layer.run(&["plan", "--run", "p"]).code, 0);
    assert_eq!(layer.run(&["destroy", "--run", "e"]).code, 3);
    let ended = layer.run(&["apply"]);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    assert!(ended.stderr.contains("skipping e/0: it destroys everything"), "{}", ended.stderr);
    assert_eq!((&layer.result()["plan"]["run"], layer.resources()), (&"p".into(), 2));
}

#[tokio::test(flavor = "multi_thread")]
async fn approved_digest_protects_against_another_plan_in_the_datastore() {
    let layer = Layer::applied().await;
    let digest = layer.plan();
    let stored = layer.stored("d");
    stored.put_plan("bin", 0, b"another plan".to_vec()).await;
    let ended = layer.run(&["destroy", "--approve", &digest]);
    assert_eq!(ended.code, 9, "{}", ended.stderr);

    // A caller that replaces run.json as well cannot replace what was approved.
    let mut report = json(&stored.artifact("run.json", 0).await);
    report["plan"]["sha256"] = "1".repeat(64).into();
    stored.put_artifact("run.json", 0, report.to_string().into_bytes()).await;
    let ended = layer.run(&["destroy", "--approve", &digest]);
    assert_eq!(ended.code, 8, "{}", ended.stderr);
    assert_eq!(layer.resources(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn signed_plan_is_destroyed_only_with_its_signature() {
    let layer = Layer::applied().await;
    layer.sandbox.write("key", &"abcdef".repeat(8));
    let unsigned = layer.plan();
    let keys = ["--signing-key", "key", "--verify-key", "key"];
    let ended = layer.run(&["destroy", "--approve", &unsigned, "--verify-key", "key"]);
    assert_eq!(ended.code, 9, "{}", ended.stderr);
    assert!(ended.stderr.contains("is not signed"), "{}", ended.stderr);
    let ended = layer.run(&[&["destroy", "--auto-approve", "--run", "s"], &keys[..]].concat());
    assert_eq!((ended.code, layer.resources()), (0, 0), "{}", ended.stderr);
}

#[tokio::test(flavor = "multi_thread")]
async fn annotations_of_the_layer_stay_as_they_are() {
    let datastore = TestDatastore::memory().await;
    let sandbox = Sandbox::new(RUNNER).hello();
    let run = |args: &[&str]| {
        let ended = sandbox.run_with(&datastore.url, &[args, &["--layer", "layer.yaml"]].concat());
        assert_eq!(ended.code, 0, "{args:?}: {}", ended.stderr);
    };
    run(&["plan"]);
    run(&["apply"]);
    let before = sandbox.read("layer.yaml");
    assert!(before.contains("apply-sum"));
    run(&["destroy", "--auto-approve"]);
    assert_eq!(sandbox.read("layer.yaml"), before);
}

#[tokio::test(flavor = "multi_thread")]
async fn targeted_destroy_leaves_the_rest() {
    let layer = Layer::applied().await;
    let ended = layer.run(&["destroy", "--auto-approve", "--target", "terraform_data.a"]);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    let state = &layer.result()["state"];
    assert_eq!((&state["empty"], &state["resources"]), (&false.into(), &1.into()));
    assert_eq!(layer.resources(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn attempts_of_a_destroy_are_shown() {
    let layer = Layer::applied().await;
    assert_eq!(layer.run(&["destroy", "--auto-approve", "--run", "d"]).code, 0);
    let show = |run: &str| {
        let ended = layer.sandbox.run_with(&layer.datastore.url, &["show", run, "--name", "x"]);
        assert_eq!(ended.code, 0, "{}", ended.stderr);
        ended.stdout
    };
    let (plan, apply) = (show("d/0"), show("d/1"));
    assert!(plan.contains("run d/0 (destroy)") && plan.contains("Applied:       by d/1"), "{plan}");
    assert!(plan.contains("State:         the state has 2 objects"), "{plan}");
    assert!(
        apply.contains("Planned by:    d/0") && apply.contains("the state is empty"),
        "{apply}"
    );
}
