//! A lease that another takes over, and a datastore that does not answer.

use std::time::Duration;

use support::{Fault, FaultyDatastore, Started, TestDatastore, wait_for};

use super::layers::{
    BACKEND, LONG, SHORT, apply, finish, lease, machine, start, states, taken_by_bob,
};

/// Stops the runner, but not its tool, until another has taken over its lease.
async fn lose(datastore: &TestDatastore, running: &Started) {
    running.signal("STOP");
    wait_for("the lease has expired", async || {
        (taken_by_bob(datastore).await == 200).then_some(())
    })
    .await;
    running.signal("CONT");
}

#[tokio::test(flavor = "multi_thread")]
async fn lost_lease_stops_the_tool_once_and_its_state_is_kept() {
    let datastore = TestDatastore::hasty(SHORT).await;
    let sandbox = machine(BACKEND);
    let running = start(&sandbox, apply(&sandbox, &datastore.url, &["--run", "late"]));
    let number = lease(&datastore, "-").await["number"].clone();

    lose(&datastore, &running).await;
    let ended = running.wait();

    assert_eq!(ended.code, 4, "{}", ended.stderr);
    assert_eq!(ended.stdout.matches("Interrupt received").count(), 1, "{}", ended.stdout);
    assert!(ended.stderr.contains("bob on his-machine for the run his-run/0"), "{}", ended.stderr);
    let reason = format!("the fencing number {number} is no longer valid");
    assert!(ended.stderr.contains("the datastore has refused the state"), "{}", ended.stderr);
    assert!(ended.stderr.contains(&reason), "{}", ended.stderr);
    let rejected = states(&datastore, "-", "&kind=rejected").await;
    let version = &rejected["versions"][0];
    assert_eq!((&version["run"], &version["fence"]), (&"late/0".into(), &number), "{rejected}");
    assert!(version["reason"].as_str().unwrap().contains(&reason), "{rejected}");
    assert_eq!(rejected["head"]["version"], serde_json::Value::Null);
    assert_eq!(lease(&datastore, "-").await["holder"], "bob", "it is not released");
}

#[tokio::test(flavor = "multi_thread")]
async fn state_that_is_kept_elsewhere_is_saved_after_the_loss() {
    let datastore = TestDatastore::hasty(SHORT).await;
    let sandbox = machine("");
    let running = start(&sandbox, apply(&sandbox, &datastore.url, &[]));
    lose(&datastore, &running).await;
    let ended = running.wait();
    assert_eq!(ended.code, 4, "{}", ended.stderr);
    assert!(ended.stderr.contains("stopped by the loss of the lease"), "{}", ended.stderr);
    assert!(sandbox.read("terraform.tfstate").contains("terraform_data"));
}

/// Nobody has taken over, so the state is accepted under the expired lease.
#[tokio::test(flavor = "multi_thread")]
async fn apply_goes_on_while_the_lease_cannot_be_renewed() {
    let datastore = TestDatastore::hasty(SHORT).await;
    let faulty = FaultyDatastore::before(&datastore.url, Vec::new()).await;
    let sandbox = machine(BACKEND);
    let running = start(&sandbox, apply(&sandbox, &faulty.url, &[]));
    for status in [503, 0] {
        let (method, part, times) = ("PUT", "/api/leases/", usize::MAX);
        faulty.set_faults(vec![Fault { method, part, status, times }]);
        wait_for("the lease has expired", async || {
            (lease(&datastore, "-").await["valid"] == false).then_some(())
        })
        .await;
        if status == 503 {
            faulty.set_faults(Vec::new());
            wait_for("the lease is renewed", async || {
                (lease(&datastore, "-").await["valid"] == true).then_some(())
            })
            .await;
        }
    }
    finish(&sandbox);
    let ended = running.wait();
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    assert!(ended.stderr.contains("the lease is not renewed"), "{}", ended.stderr);
    assert!(ended.stderr.contains("the lease is renewed again"), "{}", ended.stderr);
    let states = states(&datastore, "-", "").await;
    assert_eq!(states["head"]["version"]["serial"], 1, "{states}");
}

/// The state is elsewhere. What cannot be stored is exit code 10, after the apply.
#[tokio::test(flavor = "multi_thread")]
async fn apply_succeeds_although_the_datastore_has_gone() {
    let datastore = TestDatastore::hasty(LONG).await;
    let sandbox = machine("");
    let args = ["--datastore-timeout", "10s"];
    let running = start(&sandbox, apply(&sandbox, &datastore.url, &args));
    drop(datastore);
    tokio::time::sleep(Duration::from_millis(500)).await;
    finish(&sandbox);
    let ended = running.wait();
    assert_eq!(ended.code, 10, "{}", ended.stderr);
    assert!(ended.stdout.contains("Apply complete!"), "{}", ended.stdout);
    assert!(ended.stderr.contains("is not released, and expires by itself"), "{}", ended.stderr);
}
