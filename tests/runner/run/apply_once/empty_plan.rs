//! A plan that changes nothing can keep the layer's `apply-sum`, and is then never given to the tool.

#![expect(clippy::disallowed_methods, reason = "real tools are named by a variable")]

use support::{Ended, Sandbox, TestDatastore};

use super::applies;
use crate::RUNNER;
use crate::stored_run::StoredRun;

/// The plan changes nothing while the file `empty` is there.
const SCRIPT: &str = r#"case "$*" in *-json*) if [ -e empty ]; then echo '{"format_version":"1.2","applyable":false}'; exit 0; fi;; esac"#;

/// The value of an annotation in the layer's manifest.
fn annotation(sandbox: &Sandbox, name: &str) -> Option<String> {
    let layer = sandbox.read("layer.yaml");
    let mut lines =
        layer.lines().map(|line| line.trim().trim_start_matches("runner.terraform.padok.cloud/"));
    let value = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))?;
    Some(value.trim_matches(['"', '\'']).to_owned())
}

#[tokio::test(flavor = "multi_thread")]
async fn plan_without_changes_keeps_the_sum_of_the_last_apply_and_is_not_applied() {
    let datastore = TestDatastore::memory().await;
    let sandbox = Sandbox::new(RUNNER).hello().fake_terraform(SCRIPT);
    let sum = |name| annotation(&sandbox, name);
    let plan = |run: &str, option: &[&str]| {
        let words = [&["plan", "--layer", "layer.yaml", "--run", run], option].concat();
        let ended = sandbox.run_with(&datastore.url, &words);
        assert_eq!(ended.code, 0, "{}", ended.stderr);
    };
    let apply = |count: usize| -> Ended {
        let ended = sandbox.run_with(&datastore.url, &["apply", "--layer", "layer.yaml"]);
        assert_eq!((ended.code, applies(&sandbox)), (0, count), "{}", ended.stderr);
        assert_eq!(sum("plan-sum"), sum("apply-sum"));
        ended
    };
    let skip: &[&str] = &["--skip-empty-plans"];
    sandbox.write("empty", "");
    // Nothing was applied before: Burrito's controllers need a first apply.
    plan("a", skip);
    apply(1);
    let kept = sum("apply-sum");

    plan("b", skip);
    assert_eq!(sum("plan-sum"), kept);
    let calls = sandbox.calls().len();
    assert!(apply(1).stderr.contains("the plan changes nothing"), "not applied");
    assert_eq!((sandbox.calls().len(), sum("apply-sum")), (calls, kept.clone()), "no init");
    assert!(apply(1).stderr.contains("nothing is appl"), "a second order");

    // Without the option, and with changes, the plan is applied as before.
    plan("c", &[]);
    assert_ne!(sum("plan-sum"), kept);
    apply(2);
    std::fs::remove_file(sandbox.work().join("empty")).unwrap();
    plan("d", skip);
    assert_ne!(sum("plan-sum"), sum("apply-sum"));
    apply(3);
}

#[tokio::test(flavor = "multi_thread")]
async fn empty_plan_whose_layer_has_another_plan_sum_is_refused() {
    let datastore = TestDatastore::memory().await;
    let sandbox = Sandbox::new(RUNNER).hello().fake_terraform(SCRIPT);
    sandbox.write("empty", "");
    let run = |words: &[&str]| {
        sandbox.run_with(&datastore.url, &[words, &["--layer", "layer.yaml"]].concat())
    };
    assert_eq!(run(&["plan"]).code, 0);
    assert_eq!(run(&["apply"]).code, 0);
    assert_eq!(run(&["plan", "--run", "kept", "--skip-empty-plans"]).code, 0);
    let kept = sandbox.read("layer.yaml");
    let sum = annotation(&sandbox, "plan-sum").unwrap();
    let other = datastore_api::Sha256::of(b"another plan").to_base64();
    sandbox.write("layer.yaml", &kept.replace(&sum, &other));
    let refused = run(&["apply"]);
    assert_eq!((refused.code, applies(&sandbox)), (9, 1), "{}", refused.stderr);
    assert!(refused.stderr.contains("the annotation plan-sum has"), "{}", refused.stderr);

    sandbox.write("layer.yaml", &kept);
    assert_eq!(run(&["apply", "--run", "done", "--summary", "summary.md"]).code, 0);
    let summary = sandbox.read("summary.md");
    let expected = "### Apply of default/hello: changes nothing, nothing is applied\n";
    assert!(summary.starts_with(expected), "{summary}");
    let stored = StoredRun::new(&datastore, "default", "hello", "done");
    let report = crate::json(&stored.artifact("run.json", 0).await);
    assert_eq!(report["kept_sum"], sum);
    let record = crate::json(&stored.artifact("applied.json", 0).await);
    let bin = StoredRun::new(&datastore, "default", "hello", "kept").plan("bin", 0).await;
    assert_eq!(record["applied"], datastore_api::Sha256::of(&bin).to_string());
    assert_eq!((&record["sum"], applies(&sandbox)), (&sum.into(), 1));
}

/// All plans that have kept a sum have the same one.
#[tokio::test(flavor = "multi_thread")]
async fn older_empty_plan_is_refused_where_the_layer_names_a_newer_one() {
    let datastore = TestDatastore::memory().await;
    let sandbox = Sandbox::new(RUNNER).hello().fake_terraform(SCRIPT);
    sandbox.write("empty", "");
    let run = |words: &[&str]| {
        sandbox.run_with(&datastore.url, &[words, &["--layer", "layer.yaml"]].concat())
    };
    assert_eq!(run(&["plan"]).code, 0);
    assert_eq!(run(&["apply"]).code, 0);
    for name in ["older", "newer"] {
        sandbox.write("main.tf", &format!("# {name}\n"));
        assert_eq!(run(&["plan", "--run", name, "--skip-empty-plans"]).code, 0);
    }
    assert_eq!(annotation(&sandbox, "plan-run").as_deref(), Some("newer/0"));
    let before = sandbox.read("layer.yaml");
    let refused = run(&["apply", "--plan", "older"]);
    assert_eq!((refused.code, applies(&sandbox)), (9, 1), "{}", refused.stderr);
    assert!(refused.stderr.contains("the annotation plan-sum has"), "{}", refused.stderr);
    assert_eq!(sandbox.read("layer.yaml"), before, "nothing is annotated");
    let applied = run(&["apply", "--plan", "newer/0"]);
    assert_eq!((applied.code, applies(&sandbox)), (0, 1), "{}", applied.stderr);
    assert!(applied.stderr.contains("the plan changes nothing"), "{}", applied.stderr);
}

/// Only the layer's `plan-sum` shows that the plan is still the layer's newest.
#[tokio::test(flavor = "multi_thread")]
async fn empty_plan_is_given_to_the_tool_where_no_plan_sum_is_known() {
    let datastore = TestDatastore::memory().await;
    let sandbox = Sandbox::new(RUNNER).hello().fake_terraform(SCRIPT);
    sandbox.write("empty", "");
    let run = |words: &[&str]| {
        let ended = sandbox.run_with(&datastore.url, words);
        assert_eq!(ended.code, 0, "{words:?}: {}", ended.stderr);
    };
    let layer = ["--layer", "layer.yaml"];
    run(&["plan", layer[0], layer[1]]);
    run(&["apply", layer[0], layer[1]]);
    run(&["plan", layer[0], layer[1], "--run", "kept", "--skip-empty-plans"]);
    run(&["apply", "--name", "hello", "--plan", "kept/0"]);
    assert_eq!(applies(&sandbox), 2);
}

/// What terraform and tofu say themselves: `applyable` came with terraform 1.8, and tofu has none.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs real tools"]
async fn old_and_new_tools_agree_on_which_plans_are_empty() {
    let tools = std::env::var("PLANCHA_TEST_TOOLS").unwrap();
    let of = |tool: &'static str, version| {
        vec!["--tool", tool, "--tool-version", version, "--bin-dir", &tools]
    };
    for tool in [Vec::new(), of("terraform", "1.5.7"), of("tofu", "1.9.4")] {
        let datastore = TestDatastore::memory().await;
        let sandbox = Sandbox::new(RUNNER).hello();
        let main = sandbox.read("main.tf");
        let run = |words: &[&str]| {
            let words = [words, &["--layer", "layer.yaml"], &tool].concat();
            let ended = sandbox.run_with(&datastore.url, &words);
            assert_eq!(ended.code, 0, "{tool:?} {words:?}: {}", ended.stderr);
            ended
        };
        run(&["plan"]);
        run(&["apply"]);
        let is_kept = || {
            run(&["plan", "--skip-empty-plans"]);
            let kept = annotation(&sandbox, "plan-sum") == annotation(&sandbox, "apply-sum");
            let applied = run(&["apply"]);
            assert_eq!(applied.stdout.is_empty(), kept, "{tool:?}: {}", applied.stdout);
            kept
        };
        assert!(is_kept(), "{tool:?}");
        for (change, text) in [
            ("an output", "output \"more\" {\n  value = 1\n}\n"),
            (
                "a move",
                "moved {\n  from = terraform_data.greeting\n  to   = terraform_data.moved\n}\n",
            ),
        ] {
            let is_move = change == "a move";
            let changed = if is_move {
                sandbox
                    .read("main.tf")
                    .replace("terraform_data\" \"greeting", "terraform_data\" \"moved")
                    .replace("terraform_data.greeting", "terraform_data.moved")
            } else {
                main.clone()
            };
            sandbox.write("main.tf", &format!("{changed}{text}"));
            assert!(!is_kept(), "{change} with {tool:?}");
            assert!(is_kept(), "after {change} with {tool:?}");
        }
    }
}
