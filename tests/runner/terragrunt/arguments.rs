//! Arguments and variables for terragrunt with which the runner cannot work.

use super::Terragrunt;

#[test]
#[ignore = "needs real tools"]
fn argument_that_can_hide_mock_outputs_is_refused() {
    let terragrunt = Terragrunt::newest();
    terragrunt.mocked();
    for arguments in [
        &["--log-level=error"][..],
        &["--log-level", "error"],
        &["-log-disable"],
        &["--log-custom-format=x"],
        &["--terragrunt-log-level=error"],
        &["--terragrunt-log-disable"],
    ] {
        for command in [
            &["plan", "app"][..],
            &["apply", "app", "--no-plan"],
            &["check", "app"],
            &["converge", "app"],
            &["destroy", "app", "--auto-approve"],
        ] {
            let ended = terragrunt.run_with(command, arguments);
            assert_eq!(ended.code, 64, "{command:?} {arguments:?}: {}", ended.stderr);
            let expected = format!("`{}` after -- can hide", arguments[0]);
            assert!(ended.stderr.contains(&expected), "{}", ended.stderr);
            assert!(ended.stderr.contains("set TG_LOG_"), "{}", ended.stderr);
        }
    }
}

#[test]
#[ignore = "needs real tools"]
fn several_units_in_one_run_and_another_tool_are_refused() {
    let terragrunt = Terragrunt::newest();
    let sandbox = &terragrunt.sandbox;
    for unit in ["", "sub/"] {
        sandbox.write(&format!("{unit}main.tf"), "output \"x\" {\n  value = 1\n}\n");
        sandbox.write(&format!("{unit}terragrunt.hcl"), "");
    }
    let plan = ["plan", "--plan-file", "the.plan"];
    for arguments in [&["--all"][..], &["-a"], &["--graph"], &["--filter", "./**"]] {
        let ended = terragrunt.run_with(&plan, arguments);
        assert_eq!(ended.code, 64, "{arguments:?}: {}", ended.stderr);
        assert!(ended.stderr.contains("use one run for each unit"), "{}", ended.stderr);
    }
    for argument in ["--tf-path=/bin/true", "--terragrunt-tfpath=/bin/true"] {
        let ended = terragrunt.run_with(&plan, &[argument]);
        assert_eq!(ended.code, 64, "{argument}: {}", ended.stderr);
        assert!(ended.stderr.contains("choose the tool with --tool"), "{}", ended.stderr);
    }
    for (name, value) in [("TG_ALL", "true"), ("TG_GRAPH", "1"), ("TG_FILTER", "./**")] {
        let ended = terragrunt.run(&plan, &[(name, value)]);
        assert_eq!(ended.code, 8, "{name}: {}", ended.stderr);
        assert!(ended.stderr.contains(&format!("{name} makes terragrunt run")), "{}", ended.stderr);
    }
    assert!(!sandbox.work().join("the.plan").exists());
    for value in ["false", ""] {
        let ended = terragrunt.run(&plan, &[("TG_ALL", value)]);
        assert_eq!(ended.code, 0, "{}", ended.stderr);
    }
}
