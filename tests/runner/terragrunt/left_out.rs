//! Units that terragrunt leaves out, and hooks that print into the output of a step.

use super::Terragrunt;

/// What terragrunt needs in order to leave out a unit for a command, and its message.
fn left_out(version: &str, command: &str) -> (String, &'static str) {
    if version == "0.72.5" {
        let hcl = format!("skip = get_terraform_command() == \"{command}\"\n");
        return (hcl, "Skipping terragrunt module");
    }
    let hcl = format!(
        "exclude {{\n  if      = true\n  no_run  = true\n  actions = [\"{command}\"]\n}}\n"
    );
    (hcl, "Early exit in terragrunt unit")
}

#[test]
#[ignore = "needs real tools"]
fn plan_of_a_unit_that_terragrunt_leaves_out_says_so() {
    for terragrunt in Terragrunt::all() {
        let (hcl, message) = left_out(terragrunt.version, "plan");
        terragrunt.sandbox.write("main.tf", "resource \"terraform_data\" \"a\" {}\n");
        terragrunt.sandbox.write("terragrunt.hcl", &hcl);
        for command in [&["plan"][..], &["check"], &["converge"]] {
            let ended = terragrunt.run(command, &[]);
            assert_eq!(ended.code, 8, "{command:?}: {}", ended.stderr);
            let expected =
                format!("terragrunt plan has made no plan, although its exit code is 0: {message}");
            assert!(ended.stderr.contains(&expected), "{}", ended.stderr);
            assert!(!ended.stderr.contains("disk"), "{}", ended.stderr);
        }
    }
}

#[test]
#[ignore = "needs real tools"]
fn apply_of_a_unit_that_terragrunt_leaves_out_has_failed() {
    for terragrunt in Terragrunt::all() {
        let (hcl, message) = left_out(terragrunt.version, "apply");
        terragrunt.sandbox.write("main.tf", "resource \"terraform_data\" \"a\" {}\n");
        terragrunt.sandbox.write("terragrunt.hcl", &hcl);
        let ended = terragrunt.run(&["plan", "--plan-file", "p"], &[]);
        assert_eq!(ended.code, 0, "{}", ended.stderr);
        for command in [&["apply", "--plan-file", "p"][..], &["apply", "--no-plan"]] {
            let ended = terragrunt.run(command, &[]);
            assert_eq!(ended.code, 8, "{command:?}: {}", ended.stderr);
            assert!(ended.stderr.contains("has not completed the apply"), "{}", ended.stderr);
            assert!(ended.stderr.contains(message), "{}", ended.stderr);
        }
    }
}

#[test]
#[ignore = "needs real tools"]
fn plan_is_shown_without_terragrunt_if_a_hook_prints() {
    for terragrunt in Terragrunt::all() {
        let sandbox = &terragrunt.sandbox;
        sandbox.write("main.tf", "resource \"terraform_data\" \"a\" {}\n");
        sandbox.write(
            "terragrunt.hcl",
            "terraform {\n  after_hook \"x\" {\n    commands = [\"show\"]\n    execute  = [\"echo\", \"printed\"]\n  }\n}\n",
        );
        let ended = terragrunt.run(&["plan", "--plan-file", "p"], &[]);
        assert_eq!(ended.code, 0, "{}", ended.stderr);
        assert!(ended.stderr.contains("running the tool without terragrunt"), "{}", ended.stderr);
        assert_eq!(terragrunt.report()["plan"]["counts"]["create"], 1);
        let ended = terragrunt.run(&["apply", "--plan-file", "p"], &[]);
        assert_eq!(ended.code, 0, "{}", ended.stderr);
    }
}
