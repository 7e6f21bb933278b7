//! The command that `runner plan` prints where a snapshot is of no use.

use support::{Ended, Sandbox, TestDatastore};

use crate::RUNNER;

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
    assert!(planned.stderr.contains(" --snapshot=never --plan p/0"), "{}", planned.stderr);

    let refused = run(&["apply", "--name", "l", "--plan", "p"]);
    assert_eq!(refused.code, 8, "{}", refused.stderr);
    assert!(refused.stderr.contains("--snapshot=never"), "{}", refused.stderr);
    let applied = run(&["apply", "--name", "l", "--plan", "p", "--snapshot=never"]);
    assert_eq!(applied.code, 0, "{}", applied.stderr);
}
