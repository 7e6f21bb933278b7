//! A caller that may not take leases.

use support::{Ended, Sandbox, TestDatastore};

use super::layers::{BACKEND, LONG, apply, machine, states};

const WITHOUT_LEASE: [&str; 4] = ["state", "plan", "log", "artifact"];

fn applied(sandbox: &Sandbox, datastore: &TestDatastore, token: &str) -> Ended {
    let mut command = apply(sandbox, &datastore.url, &[]);
    command.env("PLANCHA_TOKEN", token).env("TF_HTTP_PASSWORD", token).output().unwrap().into()
}

#[tokio::test(flavor = "multi_thread")]
async fn apply_without_the_right_to_a_lease_goes_on_unless_the_state_is_kept_here() {
    let (datastore, [token]) = TestDatastore::hasty_with_tokens(LONG, [&WITHOUT_LEASE]).await;
    let ended = applied(&machine(""), &datastore, &token);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    assert!(ended.stderr.contains("the lease of the layer is not taken"), "{}", ended.stderr);
    let here = machine(BACKEND);
    let ended = applied(&here, &datastore, &token);
    assert_eq!(ended.code, 5, "{}", ended.stderr);
    assert!(ended.stderr.contains("`lease`"), "{}", ended.stderr);
    assert!(!here.work().join("started").exists());
}

/// It has no credential, so the tool uses the password of its user. The number is in the addresses.
#[tokio::test(flavor = "multi_thread")]
async fn tool_keeps_its_own_password_if_the_runner_may_not_use_the_state() {
    let runner: &[_] = &["lease", "plan", "log", "artifact"];
    let (datastore, [runner, user]) =
        TestDatastore::hasty_with_tokens(LONG, [runner, &["state"]]).await;
    let sandbox = machine(BACKEND);
    let mut command = apply(&sandbox, &datastore.url, &[]);
    command.env("PLANCHA_TOKEN", &runner).env("TF_HTTP_PASSWORD", &user);
    let ended = command.output().unwrap();
    assert_eq!(ended.status.code(), Some(0), "{ended:?}");
    let variables = sandbox.read("env.txt");
    assert!(variables.contains(&format!("TF_HTTP_PASSWORD={user}")), "{variables}");
    assert_eq!(states(&datastore, &user, "").await["head"]["version"]["fence"], 1);
}
