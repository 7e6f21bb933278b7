//! Variables with arguments for the tool must not move an apply away from what was compared.

use support::{Ended, Sandbox, TestDatastore};

use crate::RUNNER;
use crate::binding::document::planned;

/// The plan would be applied to a state that nothing has compared.
#[tokio::test(flavor = "multi_thread")]
async fn variable_that_moves_an_apply_to_another_state_is_refused_by_name() {
    let planned = planned(&[]).await;
    let url = planned.datastore.url.as_str();
    let file = planned.sandbox.run(&["plan", "--plan-file", "p.tfplan"]);
    assert_eq!(file.code, 0, "{}", file.stderr);
    std::fs::remove_file(planned.sandbox.path("calls")).unwrap();
    let apply = |args: &[&str], variable: &str, value: &str| {
        let mut command = planned.sandbox.command(&[&["apply"], args].concat());
        Ended::from(command.env(variable, value).output().unwrap())
    };
    let stored = ["--name", "x", "--plan", "p", "--datastore", url];
    for (variable, value, option) in [
        ("TF_CLI_ARGS_apply", "-state-out=/other", "-state-out"),
        ("TF_CLI_ARGS_apply", "-lock=false '--state' /other", "-state"),
        ("TF_CLI_ARGS", "-backup=/other", "-backup"),
    ] {
        for (args, plan) in [(&stored[..], "p/0"), (&["--plan-file", "p.tfplan"], "p.tfplan")] {
            let refused = apply(args, variable, value);
            assert_eq!(refused.code, 9, "{value}: {}", refused.stderr);
            let expected =
                format!("{option} in {variable} applies the plan {plan} to another state");
            assert!(refused.stderr.contains(&expected), "{expected}: {}", refused.stderr);
            assert_eq!(planned.calls(), "", "{value}");
        }
    }
    let refused = planned.apply(&["--", "-state-out=/other"]);
    assert_eq!(refused.code, 8, "{}", refused.stderr);
    assert_eq!(planned.calls(), "");
    let applied = apply(&stored, "TF_CLI_ARGS_apply", "-backup=- -parallelism=2");
    assert_eq!(applied.code, 0, "{}", applied.stderr);
}

/// The tool would only print a text and end with 0, and an apply would be recorded.
#[tokio::test(flavor = "multi_thread")]
async fn argument_that_has_the_tool_only_print_a_text_is_refused_before_the_tool_runs() {
    let planned = planned(&[]).await;
    let url = planned.datastore.url.as_str();
    let stored = &["apply", "--name", "x", "--plan", "p", "--datastore", url][..];
    let unplanned = &["apply", "--name", "x", "--no-plan", "--datastore", url][..];
    let plan = &["plan", "--name", "x", "--datastore", url][..];
    for (args, variable, value, option) in [
        (stored, "TF_CLI_ARGS_apply", "-help", "-help"),
        (stored, "TF_CLI_ARGS", "-lock=false '-h'", "-h"),
        (stored, "TF_CLI_ARGS_init", "--help", "--help"),
        (unplanned, "TF_CLI_ARGS_apply", "-version", "-version"),
        (unplanned, "TF_CLI_ARGS_apply", "-v", "-v"),
        (plan, "TF_CLI_ARGS_plan", "--version", "--version"),
        (plan, "TF_CLI_ARGS_show", "-help", "-help"),
        (stored, "TF_CLI_ARGS_state_pull", "-help", "-help"),
        (plan, "TF_CLI_ARGS_state_pull", "-v", "-v"),
    ] {
        let mut command = planned.sandbox.command(args);
        let refused = Ended::from(command.env(variable, value).output().unwrap());
        assert_eq!(refused.code, 8, "{value}: {}", refused.stderr);
        let expected =
            format!("{option} in {variable} makes the tool print a text and do nothing else");
        assert!(refused.stderr.contains(&expected), "{expected}: {}", refused.stderr);
        assert_eq!(planned.calls(), "", "{value}");
    }
    for action in [&["plan"][..], &["apply", "--no-plan"]] {
        for option in ["-help", "--h", "-v", "-version"] {
            let args = [action, &["--name", "x", "--", option]].concat();
            let refused = planned.sandbox.run_with(&planned.datastore.url, &args);
            assert_eq!(refused.code, 64, "{option}: {}", refused.stderr);
            assert_eq!(planned.calls(), "", "{option}");
        }
    }
}

/// No apply would compare that state, or apply to it.
#[tokio::test(flavor = "multi_thread")]
async fn argument_that_moves_a_plan_to_another_state_is_refused_by_name() {
    let datastore = TestDatastore::memory().await;
    let sandbox = Sandbox::new(RUNNER).hello().fake_terraform("");
    for (args, option) in [
        (&["-state=x"][..], "-state"),
        (&["--state", "x"], "-state"),
        (&["-lock=false", "-state-out=x"], "-state-out"),
        (&["-backup=x"], "-backup"),
    ] {
        for action in [&["plan"][..], &["apply", "--no-plan"]] {
            let words = [action, &["--name", "x", "--"], args].concat();
            let refused = sandbox.run_with(&datastore.url, &words);
            assert_eq!(refused.code, 8, "{args:?}: {}", refused.stderr);
            let expected = format!("`{option}` after -- ");
            assert!(refused.stderr.contains(&expected), "{args:?}: {}", refused.stderr);
            assert!(refused.stderr.contains("backend `local`"), "{args:?}: {}", refused.stderr);
        }
    }
    assert_eq!(sandbox.calls(), [] as [&str; 0]);
    let planned = sandbox.run_with(&datastore.url, &["plan", "--name", "x", "--", "-backup=-"]);
    assert_eq!(planned.code, 0, "{}", planned.stderr);
}

/// Where the plan's state is a file of this machine, another one is another state.
#[tokio::test(flavor = "multi_thread")]
async fn another_absolute_path_of_a_local_state_is_refused() {
    let datastore = TestDatastore::memory().await;
    let sandbox = Sandbox::new(RUNNER);
    let code = "terraform {\n  backend \"local\" {}\n}\noutput \"x\" {\n  value = 1\n}\n";
    sandbox.write("main.tf", code);
    let run = |action: &str, state: &str| {
        drop(std::fs::remove_dir_all(sandbox.work().join(".terraform")));
        let path = sandbox.path(state).display().to_string();
        let stored = [action, "--name", "x", "--datastore", datastore.url.as_str()];
        let mut command = sandbox.command(&stored);
        command.env("TF_CLI_ARGS_init", format!("-backend-config=path={path}"));
        Ended::from(command.output().unwrap())
    };
    let planned = run("plan", "a.tfstate");
    assert_eq!(planned.code, 0, "{}", planned.stderr);
    let refused = run("apply", "b.tfstate");
    assert_eq!(refused.code, 9, "{}", refused.stderr);
    assert!(refused.stderr.contains("another backend: local, path"), "{}", refused.stderr);
    assert!(!sandbox.path("b.tfstate").exists());
    let applied = run("apply", "a.tfstate");
    assert_eq!(applied.code, 0, "{}", applied.stderr);
}

/// What else the tool takes from variables either shows after init, or the tool refuses it itself.
#[tokio::test(flavor = "multi_thread")]
async fn variables_that_move_init_plan_or_workspace_never_apply_to_another_state() {
    let datastore = TestDatastore::memory().await;
    let sandbox = Sandbox::new(RUNNER);
    let code = "terraform {\n  backend \"local\" {}\n}\noutput \"x\" {\n  value = 1\n}\n";
    sandbox.write("main.tf", code);
    sandbox.write("data/environment", "dev");
    let own = [("TF_CLI_ARGS_init", "-backend-config=path=own.tfstate")];
    let run = |action: &[&str], variables: &[(&str, &str)]| {
        drop(std::fs::remove_dir_all(sandbox.work().join(".terraform")));
        let stored = ["--name", "x", "--datastore", datastore.url.as_str()];
        let mut command = sandbox.command(&[action, &stored].concat());
        Ended::from(command.envs(variables.iter().copied()).output().unwrap())
    };
    let refused = |plan: &str, variables: &[(&str, &str)], code: i32, expected: &str| {
        let refused = run(&["apply", "--plan", plan], variables);
        assert_eq!(refused.code, code, "{variables:?}: {}", refused.stderr);
        assert!(refused.stderr.contains(expected), "{variables:?}: {}", refused.stderr);
    };
    let planned = run(&["plan", "--run", "p"], &own);
    assert_eq!(planned.code, 0, "{}", planned.stderr);

    let other = [("TF_CLI_ARGS_init", "-backend-config=path=other.tfstate")];
    refused("p", &other, 9, "another backend: local, path \"own.tfstate\"");
    refused("p", &[("TF_CLI_ARGS_init", "-backend=false")], 9, "another backend: local, path");
    refused("p", &[own[0], ("TF_DATA_DIR", "data")], 9, "workspace dev");
    refused("p", &[own[0], ("TF_WORKSPACE", "dev")], 9, "workspace dev");
    refused("p", &[("TF_CLI_ARGS", "-chdir=..")], 8, "not defined: -chdir");
    refused("p", &[own[0], ("TF_CLI_ARGS_apply", "other.tfplan")], 8, "Too many command line");
    for state in ["own.tfstate", "other.tfstate", "terraform.tfstate"] {
        assert!(!sandbox.work().join(state).exists(), "{state}");
    }
    let applied = run(&["apply", "--plan", "p"], &own);
    assert_eq!(applied.code, 0, "{}", applied.stderr);
    assert!(sandbox.work().join("own.tfstate").exists());
    // A plan of another state file.
    let state = [own[0], ("TF_CLI_ARGS_plan", "-state=other.tfstate")];
    let planned = run(&["plan", "--run", "q"], &state);
    assert_eq!(planned.code, 0, "{}", planned.stderr);
    refused("q", &own, 9, "another serial of the state: 0; here it is 1");
}
