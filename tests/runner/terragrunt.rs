//! Real terragrunts, below and above 0.73.0, where `scripts/e2e-tools` has built them.

#![expect(clippy::disallowed_methods, reason = "real tools are named by a variable")]

use support::{Ended, Sandbox};

use crate::checkout::git;
use crate::{RUNNER, json};

const VERSIONS: [&str; 2] = ["0.72.5", "1.0.0"];

/// A sandbox with one of them.
struct Terragrunt {
    sandbox: Sandbox,
    tools: String,
    version: &'static str,
}

impl Terragrunt {
    /// Each version; none where they are not built.
    fn all() -> Vec<Self> {
        let tools = std::env::var("PLANCHA_TEST_TOOLS").ok();
        if !crate::can("real terragrunts (PLANCHA_TEST_TOOLS)", tools.is_some()) {
            return Vec::new();
        }
        let tools = tools.unwrap_or_default();
        let new = |version| Self { sandbox: Sandbox::new(RUNNER), tools: tools.clone(), version };
        VERSIONS.map(new).into()
    }

    fn plan(&self, dir: &str) -> Ended {
        let terragrunt = format!("--terragrunt={}", self.version);
        let tofu = ["--tool", "tofu", "--tool-version", "1.9.4", "--bin-dir", &self.tools];
        self.sandbox
            .run(&[&["plan", dir, &terragrunt, "--result", "result.json"][..], &tofu].concat())
    }

    fn report(&self) -> serde_json::Value {
        json(self.sandbox.read("result.json").as_bytes())
    }
}

#[test]
fn a_plan_with_the_mock_outputs_of_a_dependency() {
    for terragrunt in Terragrunt::all() {
        let sandbox = &terragrunt.sandbox;
        sandbox.write("dep/main.tf", "output \"id\" {\n  value = \"real\"\n}\n");
        sandbox.write("dep/terragrunt.hcl", "");
        sandbox.write("app/main.tf", "variable \"id\" {}\noutput \"x\" {\n  value = var.id\n}\n");
        sandbox.write(
            "app/terragrunt.hcl",
            "dependency \"dep\" {
               config_path                             = \"../dep\"
               mock_outputs                            = { id = \"mocked\" }
               mock_outputs_allowed_terraform_commands = [\"plan\"]
             }
             inputs = { id = dependency.dep.outputs.id }
             ",
        );
        let work = sandbox.work();
        git(&work, &["init", "--quiet"]);
        git(&work, &["add", "."]);
        git(&work, &["commit", "--quiet", "-m", "all"]);
        let head = git(&work, &["rev-parse", "HEAD"]);
        for _ in 0..2 {
            let ended = terragrunt.plan("app");
            assert_eq!(ended.code, 0, "{}\n{}", ended.stdout, ended.stderr);
            assert!(ended.stdout.contains("+ x = \"mocked\""), "{}", ended.stdout);
            let report = terragrunt.report();
            assert_eq!(report["revision"], *head, "what terragrunt writes is no change");
        }
        // Without outputs and without mocks there is an error of terragrunt's own.
        sandbox.write("app/terragrunt.hcl", "dependency \"dep\" {\n  config_path = \"../dep\"\n}\ninputs = { id = dependency.dep.outputs.id }\n");
        let ended = terragrunt.plan("app");
        assert_eq!(ended.code, 1, "{}", ended.stderr);
        let report = terragrunt.report();
        let message = report["message"].as_str().unwrap();
        assert!(message.contains("but detected no outputs"), "{message}");
    }
}

#[test]
fn the_reason_is_the_error_and_not_that_something_failed() {
    for terragrunt in Terragrunt::all() {
        let sandbox = &terragrunt.sandbox;
        for (hcl, tofu, reason) in [
            (
                "",
                "resource \"x\" \"y\" {\n  a =\n}\n",
                "Invalid expression (main.tf:2, in resource \"x\" \"y\"): Expected the start of an \
                 expression, but found an invalid expression token.",
            ),
            (
                "",
                "variable \"region\" {}\n",
                "No value for required variable (main.tf:1): The root module input variable \"region\" is \
                 not set, and has no default value. Use a -var or -var-file command line argument to \
                 provide a value for this variable.",
            ),
            ("inputs = { x = local.nope }\n", "", "terragrunt.hcl:1): This "),
        ] {
            sandbox.write("main.tf", tofu);
            sandbox.write("terragrunt.hcl", hcl);
            let ended = terragrunt.plan(".");
            assert_eq!(ended.code, 1, "{}", ended.stderr);
            let report = terragrunt.report();
            let message = report["message"].as_str().unwrap();
            assert!(message.contains(reason), "{message}");
            assert!(message.starts_with("terragrunt plan failed"), "{message}");
            assert!(report["errors"][0]["file"].is_string(), "{report}");
            assert!(!message.contains('\n'), "{message}");
        }
    }
}
