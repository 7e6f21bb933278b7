//! What the tool does not keep with a plan, and what it writes while it plans.

use support::{Sandbox, TestDatastore};

use crate::RUNNER;
use crate::run::plan_origin::{modules, run_in, run_json};
use crate::source::checkout::git;

/// The tool keeps no value of such a variable with the plan.
#[tokio::test(flavor = "multi_thread")]
async fn ephemeral_variables_of_a_plan_are_named_for_its_apply() {
    let datastore = TestDatastore::memory().await;
    let sandbox = Sandbox::new(RUNNER);
    let code = "variable \"x\" {\n  ephemeral = true\n}\nvariable \"unset\" {\n  ephemeral = true\n  \
                default   = null\n}\nresource \"terraform_data\" \"a\" {}\n";
    sandbox.write("vpc/x.tfvars", "x = \"s\"\n");
    let value = [("TF_VAR_x", "s")];
    for (variables, args) in [(&value[..], &[][..]), (&[], &["--var-file", "x.tfvars"])] {
        // Plans of equal code that are made within two seconds can be equal.
        sandbox.write("vpc/main.tf", &format!("{code}# {args:?}\n"));
        let planned = run_in(&sandbox, "vpc", &datastore, variables, &[&["plan"], args].concat());
        assert_eq!(planned.code, 0, "{}", planned.stderr);
        let named =
            "set TF_VAR_x again (ephemeral, not in the plan) and apply it with: runner apply";
        assert!(planned.stderr.contains(named), "{}", planned.stderr);
        let refused = run_in(&sandbox, "vpc", &datastore, &[], &["apply"]);
        assert_eq!(refused.code, 8, "{}", refused.stderr);
        let next = "set the same value as for the plan in the environment variable TF_VAR_x";
        assert!(refused.stderr.contains(next), "{}", refused.stderr);
        let applied = run_in(&sandbox, "vpc", &datastore, &value, &["apply"]);
        assert_eq!(applied.code, 0, "{}", applied.stderr);
        std::fs::remove_file(sandbox.work().join("vpc/terraform.tfstate")).unwrap();
    }
}

/// The tool writes this file during the plan, into the tree.
#[tokio::test(flavor = "multi_thread")]
async fn configuration_that_the_plan_generates_belongs_to_it() {
    let datastore = TestDatastore::memory().await;
    let sandbox = Sandbox::new(RUNNER);
    let import = "import {\n  to = terraform_data.x\n  id = \"i\"\n}\n";
    sandbox.write("vpc/import.tf", import);
    modules(&sandbox, "git@git.example.com:team/infra", &[]);
    let head = git(&sandbox.work(), &["rev-parse", "HEAD"]);
    let run = |args: &[&str]| run_in(&sandbox, "vpc", &datastore, &[], args);
    for is_edited in [true, false] {
        let planned = run(&["plan", "--run", "p", "--", "-generate-config-out=gen.tf"]);
        assert_eq!(planned.code, 0, "{}", planned.stderr);
        let generated = sandbox.work().join("vpc/gen.tf");
        assert!(generated.exists());
        if is_edited {
            std::fs::write(&generated, "resource \"terraform_data\" \"x\" {\n  input = 1\n}\n")
                .unwrap();
            let refused = run(&["apply"]);
            assert_eq!(refused.code, 9, "{}", refused.stderr);
            let expected = "the configuration has changed";
            assert!(refused.stderr.contains(expected), "{}", refused.stderr);
            std::fs::remove_file(&generated).unwrap();
        }
    }
    let applied = run(&["apply", "--run", "a"]);
    assert_eq!(applied.code, 0, "{}", applied.stderr);
    let report = run_json(&datastore, "infra.vpc", "a").await;
    assert_eq!(report["revision"], format!("{head}-dirty"));
}
