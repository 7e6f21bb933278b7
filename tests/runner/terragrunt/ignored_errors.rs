//! Errors that terragrunt ignores by its configuration, and ends with exit code 0.

use support::TestDatastore;

use super::Terragrunt;
use crate::json;
use crate::stored_run::StoredRun;

/// Ignores errors with this text.
fn ignoring(text: &str) -> String {
    format!("errors {{\n  ignore \"x\" {{\n    ignorable_errors = [\"(?s).*{text}.*\"]\n  }}\n}}\n")
}

const FAILING: &str = "resource \"terraform_data\" \"b\" {\n  provisioner \"local-exec\" {\n    \
    command = \"echo REASON >&2; exit 3\"\n  }\n}\n";

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs real tools"]
async fn apply_whose_error_terragrunt_ignores_has_failed() {
    for terragrunt in Terragrunt::all() {
        let datastore = TestDatastore::memory().await;
        let url = [("PLANCHA_DATASTORE_URL", datastore.url.as_str())];
        let sandbox = &terragrunt.sandbox;
        sandbox.write("unit/main.tf", FAILING);
        sandbox.write("unit/terragrunt.hcl", &ignoring("REASON"));
        let run =
            |args: &[&str]| terragrunt.run(&[args, &["unit", "--name", "unit"]].concat(), &url);
        let ended = run(&["plan", "--run", "planned"]);
        assert_eq!(ended.code, 0, "{}", ended.stderr);
        for (name, attempt, args) in [
            ("applied", 0, &["apply", "--plan", "planned", "--run", "applied"][..]),
            ("unplanned", 0, &["apply", "--no-plan", "--run", "unplanned"]),
            ("converged", 1, &["converge", "--run", "converged"]),
        ] {
            let ended = run(args);
            assert_eq!(ended.code, 1, "{name}: {}\n{}", ended.stdout, ended.stderr);
            assert!(ended.stderr.contains("terragrunt has ignored an error"), "{}", ended.stderr);
            let report = terragrunt.report();
            assert_eq!(report["outcome"], "failed", "{report}");
            let message = report["message"].as_str().unwrap();
            assert!(message.contains("local-exec provisioner error"), "{message}");
            let stored = StoredRun::new(&datastore, "default", "unit", name);
            let ledger = json(&stored.artifact("ledger.json", attempt).await);
            let last = ledger["resources"].as_array().unwrap().last().unwrap();
            assert_eq!((&last["action"], &last["state"]), (&"create".into(), &"failed".into()));
            assert_eq!(ledger["state_saved"], true, "{ledger}");
            let applied = stored.names(attempt as usize).await;
            assert!(!applied.contains(&"applied.json".to_owned()), "{applied:?}");
        }
    }
}

#[test]
#[ignore = "needs real tools"]
fn plan_whose_error_terragrunt_ignores_has_failed() {
    for terragrunt in Terragrunt::all() {
        let sandbox = &terragrunt.sandbox;
        // The tool leaves a plan, which it would not apply.
        sandbox.write(
            "main.tf",
            "resource \"terraform_data\" \"a\" {}\nresource \"terraform_data\" \"b\" {\n  lifecycle {\n    \
             precondition {\n      condition     = terraform.workspace == \"x\"\n      \
             error_message = \"The reason.\"\n    }\n  }\n}\n",
        );
        sandbox.write("terragrunt.hcl", &ignoring("precondition failed"));
        for args in [&["plan", "--plan-file", "the.plan"][..], &["check"], &["converge"]] {
            let ended = terragrunt.run(args, &[]);
            assert_eq!(ended.code, 8, "{args:?}: {}\n{}", ended.stdout, ended.stderr);
            let message = terragrunt.report()["message"].as_str().unwrap().to_owned();
            assert!(message.contains("Resource precondition failed"), "{message}");
        }
        assert!(!sandbox.work().join("the.plan").exists());
    }
}

/// The tool has done its work, whatever the hook prints.
#[test]
#[ignore = "needs real tools"]
fn ignored_error_of_a_hook_fails_nothing() {
    for terragrunt in Terragrunt::all() {
        let sandbox = &terragrunt.sandbox;
        sandbox.write("main.tf", "resource \"terraform_data\" \"a\" {}\n");
        for prints in ["REASON", "Error: REASON"] {
            sandbox.write("terragrunt.hcl", &hooks(&[hook("after", prints, 3)]));
            for args in [&["plan", "--plan-file", "p"][..], &["apply", "--plan-file", "p"]] {
                let ended = terragrunt.run(args, &[]);
                assert_eq!(ended.code, 0, "{args:?}: {}\n{}", ended.stdout, ended.stderr);
            }
        }
    }
}

/// Hooks that fail and print errors of their own, before and after that of the tool.
#[test]
#[ignore = "needs real tools"]
fn ignored_error_of_the_tool_is_one_beside_those_of_hooks() {
    for terragrunt in Terragrunt::all() {
        let sandbox = &terragrunt.sandbox;
        sandbox.write("main.tf", FAILING);
        let (before, error) = (hook("before", "REASON", 0), hook("error", "Error: REASON", 3));
        sandbox.write("terragrunt.hcl", &hooks(&[before, error]));
        let plan = terragrunt.run(&["plan", "--plan-file", "p"], &[]);
        assert_eq!(plan.code, 0, "{}\n{}", plan.stdout, plan.stderr);
        let apply = terragrunt.run(&["apply", "--plan-file", "p"], &[]);
        assert_eq!(apply.code, 1, "{}\n{}", apply.stdout, apply.stderr);
        let message = terragrunt.report()["message"].as_str().unwrap().to_owned();
        assert!(message.contains("local-exec provisioner error"), "{message}");
    }
}

/// A hook that prints this and ends with this code.
fn hook(kind: &str, prints: &str, code: u8) -> String {
    let condition = if kind == "error" { "on_errors = [\".*\"]" } else { "" };
    format!(
        "  {kind}_hook \"{kind}\" {{\n    commands = [\"plan\", \"apply\"]\n    {condition}\n    execute = \
         [\"sh\", \"-c\", \"echo '{prints}' >&2; exit {code}\"]\n  }}\n"
    )
}

/// A unit with these hooks that ignores errors with REASON.
fn hooks(hooks: &[String]) -> String {
    format!("terraform {{\n{}}}\n{}", hooks.concat(), ignoring("REASON"))
}
