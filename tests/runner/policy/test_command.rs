//! `runner policy test`.

use std::path::{Path, PathBuf};

use serde_json::Value;
use support::{Ended, Sandbox, TestDatastore};

use crate::stored_run::StoredRun;
use crate::{RUNNER, json};

const NO_DELETION: &str = "package main\ndeny contains msg if {\n  some change in input.resource_changes\n  \
    \"delete\" in change.change.actions\n  msg := concat(\" \", [\"no\", change.address])\n}\n";

/// A file of `tests/fixtures`.
pub(crate) fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures").join(name)
}

fn plan(name: &str) -> String {
    fixture("plans").join(name).display().to_string()
}

fn rows(ended: &Ended, code: i32) -> Vec<Value> {
    assert_eq!(ended.code, code, "{}", ended.stderr);
    json(ended.stdout.as_bytes()).as_array().unwrap().clone()
}

#[test]
fn plans_in_files_are_judged_without_a_datastore() {
    let sandbox = Sandbox::new(RUNNER);
    sandbox.write("rules.yaml", "rules: [{id: gone, verdict: allow, actions: [delete]}]\n");
    sandbox.write("no.rego", NO_DELETION);
    sandbox.write("broken.json", "{\"format_version\": \"9.0\"}");
    let (create, destroy) = (plan("create.json"), plan("destroy.json"));
    let update = plan("update_replace_delete.json");
    let files = ["--plan-json", &create, "--plan-json", &update, "--plan-json", "broken.json"];
    let ended = sandbox.run(&[&["policy", "test", "rules.yaml"][..], &files].concat());
    assert_eq!(ended.code, 8, "{}", ended.stderr);
    assert!(ended.stderr.contains("1 of 3 plans cannot be judged"), "{}", ended.stderr);
    let table = ended.stdout.replace(&fixture("plans").display().to_string(), "PLANS");
    let cells = table.lines().map(|line| line.split("  ").filter(|cell| !cell.is_empty()));
    let cells = cells.map(|cells| cells.map(str::trim).collect::<Vec<_>>().join("|"));
    assert_eq!(
        cells.collect::<Vec<_>>(),
        [
            "PLAN|VERDICT|REASONS",
            "PLANS/create.json|allowed",
            "PLANS/update_replace_delete.json|needs approval|terraform_data.first: replace (replace_because_cannot_update): an object would be destroyed and created anew",
            "terraform_data.secret: replace (replace_because_cannot_update): an object would be destroyed and created anew",
            "broken.json|unreadable|the plan's JSON has format_version `9.0`; versions from 0.1 to 1.x can be read",
        ]
    );
    assert!(ended.stderr.contains("the policy has the digest "), "{}", ended.stderr);

    let both = ["policy", "test", "rules.yaml", "no.rego", "--json", "--plan-json", &destroy];
    let rows = rows(&sandbox.run(&both), 0);
    assert_eq!((&rows[0]["verdict"], rows.len()), (&"denied".into(), 1));
    let reasons = rows[0]["reasons"].as_array().unwrap();
    assert!(reasons.contains(&"denied: no terraform_data.keep".into()), "{reasons:?}");
    assert_eq!(rows[0]["destructive_sha256"], Value::Null, "the rules allow deletions");
    assert_eq!(rows[0]["details"]["counts"]["delete"], 5);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_newest_stored_plans_of_a_layer_are_judged() {
    let datastore = TestDatastore::memory().await;
    let sandbox = Sandbox::new(RUNNER);
    sandbox.write("limit.yaml", "max_changes: 4\n");
    let names = ["create", "no_changes", "destroy", "tainted"];
    for (at, name) in names.into_iter().enumerate() {
        let stored = StoredRun::new(&datastore, "default", "hello", &format!("run-{at}"));
        let bytes = std::fs::read(plan(&format!("{name}.json"))).unwrap();
        stored.put_plan("json", 0, bytes).await;
    }
    let stored = StoredRun::new(&datastore, "default", "hello", "apply");
    stored.put_artifact("run.json", 0, b"{}".to_vec()).await;
    let broken = StoredRun::new(&datastore, "default", "hello", "broken");
    broken.put_plan("json", 0, b"not json".to_vec()).await;
    let args = ["policy", "test", "limit.yaml", "--name", "hello", "--json"];
    let verdicts = |args: &[&str], code: i32| {
        let rows = rows(&sandbox.run_with(&datastore.url, args), code);
        let text = |row: &Value| {
            format!("{}: {}", row["plan"].as_str().unwrap(), row["verdict"].as_str().unwrap())
        };
        rows.iter().map(text).collect::<Vec<_>>()
    };
    let mut all = verdicts(&args, 8);
    all.sort();
    assert_eq!(
        all,
        [
            "broken/0: unreadable",
            "run-0/0: denied",
            "run-1/0: allowed",
            "run-2/0: denied",
            "run-3/0: needs approval",
        ]
        .map(|line| line.replace("needs approval", "needs_approval"))
    );
    assert_eq!(verdicts(&[&args[..], &["--last", "2"]].concat(), 8).len(), 2);
    let no_changes = plan("no_changes.json");
    let files = verdicts(&[&args[..], &["--plan-json", &no_changes]].concat(), 0);
    assert_eq!(files.len(), 1, "{files:?}");
    let ended =
        sandbox.run_with(&datastore.url, &["policy", "test", "limit.yaml", "--name", "other"]);
    assert_eq!(ended.code, 8, "{}", ended.stderr);
    assert!(ended.stderr.contains("has no stored plans"), "{}", ended.stderr);
}

#[test]
fn an_invalid_policy_is_exit_code_8_with_file_and_line() {
    let sandbox = Sandbox::new(RUNNER);
    let path = plan("no_changes.json");
    for (name, text, expected) in [
        ("a.rego", "package main\n\ndeny contains msg if {\n  msg :=\n}", "a.rego:"),
        (
            "b.rego",
            "package main\ndeny contains \"x\" if { false; http.send({}) }",
            "b.rego:2:40: there is no function http.send",
        ),
        ("c.rego", "package main\nallow := true", "nothing could be denied"),
        (
            "d.rego",
            "package main\ndeny contains 1 if true",
            "a result of the rule deny is a number",
        ),
        ("e.rego", "package main\ndeny contains startswith(null, \"x\") if true", "e.rego:2:"),
        ("f.yaml", "rules:\n- id: x\n  verdict: permit\n", "f.yaml, line 3: "),
        ("g.yaml", "", "g.yaml, line 1: "),
    ] {
        sandbox.write(name, text);
        let ended = sandbox.run(&["policy", "test", name, "--plan-json", &path]);
        assert_eq!(ended.code, 8, "{name}: {}", ended.stderr);
        assert!(ended.stderr.contains(expected), "{name}: {}", ended.stderr);
        assert!(ended.stderr.contains("docs/policy.md"), "what to do: {}", ended.stderr);
        assert_eq!(ended.stdout, "", "{name}");
    }
    let ended = sandbox.run(&["policy", "test", "missing.yaml", "--plan-json", &path]);
    assert_eq!(ended.code, 8, "{}", ended.stderr);
    assert_eq!(sandbox.run(&["policy", "test", "--plan-json", &path]).code, 64);
    assert_eq!(sandbox.run(&["policy", "test", "f.yaml", "--rego-version", "v2"]).code, 64);
    assert_eq!(sandbox.run(&["policy", "test", "f.yaml", "--last", "0"]).code, 64);
}

#[test]
fn a_policy_that_takes_too_much_is_exit_code_8() {
    let sandbox = Sandbox::new(RUNNER);
    let path = plan("no_changes.json");
    for (name, text, expected) in [
        (
            "memory.rego",
            "deny contains \"x\" if count(numbers.range(1, 1000000000)) > 0",
            "it needed too much memory",
        ),
        (
            "small.rego",
            "long := concat(\"\", [\"text\" | some _ in numbers.range(1, 2000)])\ndeny contains \"x\" if { b := [y | some x in numbers.range(1, 100000); y := sprintf(\"%s%d\", [long, x])]; count(b) > 0 }",
            "it needed too much memory",
        ),
        (
            "depth.rego",
            "f(x) := f(x + 1)\ndeny contains \"x\" if f(1) > 0",
            "it called itself too often",
        ),
        (
            "time.rego",
            "deny contains \"x\" if { n := numbers.range(1, 20000); some x in n; some y in n; some z in n; x + y + z < 0 }",
            "it took longer than 10 s",
        ),
    ] {
        sandbox.write(name, &format!("package main\n{text}\n"));
        let ended = sandbox.run(&["policy", "test", name, "--plan-json", &path]);
        assert_eq!(ended.code, 8, "{name}: {}", ended.stderr);
        assert!(ended.stderr.contains(expected), "{name}: {}", ended.stderr);
    }
}

#[test]
fn secrets_of_a_plan_are_not_printed() {
    let sandbox = Sandbox::new(RUNNER);
    let text = "package main\ndeny contains sprintf(\"it is %s\", [input.variables.password.value]) if true";
    sandbox.write("leak.rego", text);
    let path = plan("create.json");
    for more in [&[][..], &["--json"]] {
        let ended =
            sandbox.run(&[&["policy", "test", "leak.rego", "--plan-json", &path], more].concat());
        assert_eq!(ended.code, 0, "{}", ended.stderr);
        assert!(ended.stdout.contains("it is "), "{}", ended.stdout);
        assert!(!ended.stdout.contains("correct-horse-battery"), "{}", ended.stdout);
    }
}
