//! The command that `runner plan` prints.

use support::{Ended, Sandbox, TestDatastore};

use crate::{RUNNER, json};

#[tokio::test(flavor = "multi_thread")]
async fn printed_command_accepts_names_that_begin_with_a_dash() {
    let datastore = TestDatastore::memory().await;
    let sandbox = Sandbox::new(RUNNER).fake_terraform("");
    sandbox.write("-dir/-sub/main.tf", "");
    let plan = ["plan", "--source=-dir", "--path=-sub", "--name=-l", "--run=-p"];
    let planned = sandbox.run_with(&datastore.url, &plan);
    assert_eq!(planned.code, 0, "{}", planned.stderr);
    let (_, command) = planned.stderr.split_once("apply it with: runner ").unwrap();
    let words = command.split_whitespace().collect::<Vec<_>>();
    assert_eq!(words[..4], ["apply", "./-dir", "--path=-sub", "--name=-l"]);
    let applied = sandbox.run_with(&datastore.url, &words);
    assert_eq!(applied.code, 0, "{}", applied.stderr);
}

#[test]
fn setting_of_a_variable_that_does_not_fit_is_named_with_the_variable() {
    let sandbox = Sandbox::new(RUNNER).hello();
    let key = sandbox.path("key");
    std::fs::write(&key, "s".repeat(32)).unwrap();
    sandbox.write("the.plan", "x");
    let datastore = "--datastore=http://127.0.0.1:9";
    let always = ("PLANCHA_SNAPSHOT", "always");
    let signed = ("PLANCHA_SIGNING_KEY", key.to_str().unwrap());
    for (args, (variable, value), next) in [
        (
            &["apply", "--no-plan", datastore][..],
            always,
            "leave out --no-plan, or choose --snapshot=never",
        ),
        (
            &["apply", "--plan-file", "the.plan"],
            always,
            "leave out --plan-file, or choose --snapshot=never",
        ),
        (&["plan"], always, "or choose --snapshot=never"),
        (&["plan"], signed, "or leave out the key"),
    ] {
        let ended = Ended::from(sandbox.command(args).env(variable, value).output().unwrap());
        assert_eq!(ended.code, 64, "{args:?}: {}", ended.stderr);
        assert!(ended.stderr.contains(&format!("({variable})")), "{args:?}: {}", ended.stderr);
        assert!(ended.stderr.contains(next), "{args:?}: {}", ended.stderr);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn printed_command_of_a_plan_that_is_tied_to_its_directory_does_not_use_the_snapshot() {
    let datastore = TestDatastore::memory().await;
    let sandbox = Sandbox::new(RUNNER).hello();
    let run = |args: &[&str]| {
        let mut command = sandbox.command(args);
        command.env("PLANCHA_DATASTORE_URL", datastore.url.as_str());
        command.env("PLANCHA_SNAPSHOT", "always");
        Ended::from(tokio::task::block_in_place(|| command.output().unwrap()))
    };
    let planned = run(&["plan", "--name", "l", "--run", "p"]);
    assert_eq!(planned.code, 0, "{}", planned.stderr);
    assert!(
        planned.stderr.contains(" --snapshot=never --plan p/0 --strict\n"),
        "{}",
        planned.stderr
    );

    let refused = run(&["apply", "--name", "l", "--plan", "p"]);
    assert_eq!(refused.code, 8, "{}", refused.stderr);
    assert!(refused.stderr.contains("--snapshot=never"), "{}", refused.stderr);
    let applied = run(&["apply", "--name", "l", "--plan", "p", "--snapshot=never"]);
    assert_eq!(applied.code, 0, "{}", applied.stderr);
}

/// With `--plan` alone a difference is only a warning.
#[tokio::test(flavor = "multi_thread")]
async fn printed_command_applies_its_own_plan_and_refuses_changed_code() {
    let datastore = TestDatastore::memory().await;
    let sandbox = Sandbox::new(RUNNER).hello().fake_terraform("");
    let planned = sandbox.run_with(&datastore.url, &["plan", "--name", "x", "--run", "p"]);
    assert_eq!(planned.code, 0, "{}", planned.stderr);
    let (_, command) = planned.stderr.split_once("apply it with: runner ").unwrap();
    let command = command.lines().next().unwrap();
    assert!(command.ends_with(" --plan p/0 --strict"), "{command}");
    let words = command.split_whitespace().collect::<Vec<_>>();

    sandbox.write("more.tf", "# more\n");
    let refused = sandbox.run_with(&datastore.url, &words);
    assert_eq!(refused.code, 9, "{command}: {}", refused.stderr);
    assert!(refused.stderr.contains("has changed since the plan p/0"), "{}", refused.stderr);
    std::fs::remove_file(sandbox.work().join("more.tf")).unwrap();

    let newer = sandbox.run_with(&datastore.url, &["plan", "--name", "x", "--run", "q"]);
    assert_eq!(newer.code, 0, "{}", newer.stderr);
    let applied = sandbox.run_with(&datastore.url, &words);
    assert_eq!(applied.code, 0, "{command}: {}", applied.stderr);
    let report = sandbox.run_with(&datastore.url, &["show", "p", "--name", "x", "--json"]);
    assert!(json(report.stdout.as_bytes())["applied"].is_object(), "{}", report.stdout);
}
