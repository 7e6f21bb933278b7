//! Variables with arguments for the tool must not move an apply away from what was compared.

use support::Ended;

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
    assert_eq!(refused.code, 64, "{}", refused.stderr);
    assert_eq!(planned.calls(), "");
    let applied = apply(&stored, "TF_CLI_ARGS_apply", "-backup=- -parallelism=2");
    assert_eq!(applied.code, 0, "{}", applied.stderr);
}
