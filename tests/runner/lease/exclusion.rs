//! Two applies of one layer, and leases of runners that were killed.

use std::time::Duration;

use support::{
    Fault, FaultyDatastore, GATEWAY, LATE, Sandbox, Started, TestDatastore, eventually, wait_for,
};

use crate::run::apply_once::applies;

use super::layers::{LONG, SHORT, apply, finish, lease, machine, start};

#[tokio::test(flavor = "multi_thread")]
async fn second_apply_of_a_layer_is_refused_and_names_the_first_one() {
    let datastore = TestDatastore::hasty(LONG).await;
    let (first, second) = (machine(""), machine(""));
    let mut command = apply(&first, &datastore.url, &["--run", "first"]);
    command.env("GITHUB_SERVER_URL", "https://github.com");
    command.env("GITHUB_REPOSITORY", "me/infra").env("GITHUB_RUN_ID", "7");
    let running = start(&first, command);
    let held = lease(&datastore, "-").await;
    assert_eq!((&held["run"], &held["valid"]), (&"first/0".into(), &true.into()), "{held}");

    let ended = second.run_with(&datastore.url, &["apply", "--no-plan", "--name", "x"]);
    assert_eq!(ended.code, 4, "{}", ended.stderr);
    let holder = "by github.com/me/infra/actions/runs/7@";
    assert!(ended.stderr.contains("lease of the layer default/x is not"), "{}", ended.stderr);
    assert!(ended.stderr.contains(holder) && ended.stderr.contains("first/0"), "{}", ended.stderr);
    assert!(!second.work().join("started").exists());

    finish(&first);
    let ended = running.wait();
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    assert_eq!(lease(&datastore, "-").await, serde_json::Value::Null, "it is released");
    let ended = second.run_with(&datastore.url, &["apply", "--no-plan", "--name", "x"]);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
}

#[tokio::test(flavor = "multi_thread")]
async fn destroy_is_refused_while_another_machine_applies() {
    let datastore = TestDatastore::hasty(LONG).await;
    let (first, second) = (machine(""), machine(""));
    let ended = apply(&second, &datastore.url, &[]).output().unwrap();
    assert_eq!(ended.status.code(), Some(0), "{ended:?}");
    let running = start(&first, apply(&first, &datastore.url, &["--run", "first"]));
    let destroy = ["destroy", "--auto-approve", "--name", "x"];
    let ended = second.run_with(&datastore.url, &destroy);
    assert_eq!(ended.code, 4, "{}", ended.stderr);
    assert!(ended.stderr.contains("run first/0"), "{}", ended.stderr);
    finish(&first);
    assert_eq!(running.wait().code, 0);
    let ended = second.run_with(&datastore.url, &destroy);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    assert_eq!(lease(&datastore, "-").await, serde_json::Value::Null);
}

#[tokio::test(flavor = "multi_thread")]
async fn failed_apply_releases_its_lease() {
    let datastore = TestDatastore::hasty(LONG).await;
    let sandbox = machine("");
    sandbox
        .write("main.tf", "resource \"terraform_data\" \"x\" {\n  input = file(\"missing\")\n}\n");
    let ended = apply(&sandbox, &datastore.url, &[]).output().unwrap();
    assert_eq!(ended.status.code(), Some(8), "{ended:?}");
    assert_eq!(lease(&datastore, "-").await, serde_json::Value::Null);
}

#[tokio::test(flavor = "multi_thread")]
async fn interrupted_apply_releases_its_lease() {
    let datastore = TestDatastore::hasty(LONG).await;
    let sandbox = machine("");
    let running = start(&sandbox, apply(&sandbox, &datastore.url, &[]));
    running.signal("TERM");
    assert_eq!(running.wait().code, 143);
    assert_eq!(lease(&datastore, "-").await, serde_json::Value::Null);
}

#[tokio::test(flavor = "multi_thread")]
async fn apply_that_is_interrupted_while_it_waits_for_its_lease_releases_it() {
    let datastore = TestDatastore::hasty(LONG).await;
    let fault = Fault { method: "POST", part: "/api/leases/", status: LATE, times: 1 };
    let late = FaultyDatastore::before(&datastore.url, vec![fault]).await;
    let sandbox = machine("");
    let running = Started::spawn(apply(&sandbox, &late.url, &[]));
    while lease(&datastore, "-").await.is_null() {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    running.signal("TERM");
    assert_eq!(running.wait().code, 143);
    assert_eq!(lease(&datastore, "-").await, serde_json::Value::Null);
}

#[tokio::test(flavor = "multi_thread")]
async fn lease_of_a_killed_machine_is_taken_over_when_it_has_expired() {
    let datastore = TestDatastore::hasty(SHORT).await;
    let (first, second) = (machine(""), machine(""));
    let running = start(&first, apply(&first, &datastore.url, &[]));
    running.kill_all();
    running.wait();
    let mut taken_over = String::new();
    eventually("the lease has expired", || {
        let ended = second.run_with(&datastore.url, &["apply", "--no-plan", "--name", "x"]);
        assert!(matches!(ended.code, 0 | 4), "{}", ended.stderr);
        taken_over = ended.stderr;
        ended.code == 0
    });
    assert!(taken_over.contains("the lease of the layer default/x had expired"), "{taken_over}");
}

#[tokio::test(flavor = "multi_thread")]
async fn lease_of_a_killed_runner_does_not_stop_the_next_one_of_this_machine() {
    let datastore = TestDatastore::hasty(LONG).await;
    let sandbox = machine("");
    let running = start(&sandbox, apply(&sandbox, &datastore.url, &[]));
    running.kill_all();
    running.wait();
    finish(&sandbox);
    let ended = sandbox.run_with(&datastore.url, &["apply", "--no-plan", "--name", "x"]);
    assert!(ended.stderr.contains("was killed: its lease is released"), "{}", ended.stderr);
    assert_ne!(ended.code, 4, "{}", ended.stderr);
}

/// The datastore has granted the lease, and its answer is still under way.
#[tokio::test(flavor = "multi_thread")]
async fn lease_of_a_runner_that_was_killed_before_it_knew_of_it_stops_nobody_either() {
    let datastore = TestDatastore::hasty(LONG).await;
    let fault = Fault { method: "POST", part: "/api/leases/", status: LATE, times: 1 };
    let late = FaultyDatastore::before(&datastore.url, vec![fault]).await;
    let sandbox = Sandbox::new(crate::RUNNER).hello();
    let running = Started::spawn(apply(&sandbox, &late.url, &[]));
    wait_for("the lease is granted", async || {
        (!lease(&datastore, "-").await.is_null()).then_some(())
    })
    .await;
    running.kill_all();
    running.wait();
    let ended = sandbox.run_with(&late.url, &["apply", "--no-plan", "--name", "x"]);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    assert!(ended.stderr.contains("was killed: its lease is released"), "{}", ended.stderr);
}

/// The tool hears no signal, so that it works on until the file `wait` is removed.
#[tokio::test(flavor = "multi_thread")]
async fn lease_of_a_killed_runner_is_kept_until_its_tool_has_saved_the_state() {
    let datastore = TestDatastore::hasty(LONG).await;
    let sandbox = Sandbox::new(crate::RUNNER);
    sandbox.write("main.tf", "resource \"terraform_data\" \"a\" {}\n");
    let (wait, started) = (sandbox.path("wait"), sandbox.path("started"));
    std::fs::write(&wait, "").unwrap();
    let slow = format!(
        "#!/bin/sh\ntrap '' INT TERM\nif [ \"$1\" = apply ]; then touch {1}; while [ -e {0} ]; do sleep 0.1; done; fi\nexec {2} \"$@\"\n",
        wait.display(),
        started.display(),
        support::on_path("terraform").unwrap().display()
    );
    sandbox.script("terraform", &slow);
    let run = |args: &[&str]| {
        let more = ["--name", "x", "--state", "datastore"];
        sandbox.start(Some(&datastore.url), &[args, &more].concat())
    };
    let killed = run(&["apply", "--no-plan"]);
    eventually("the tool applies", || started.exists());
    killed.signal("KILL");
    let checked = run(&["check"]).wait();
    assert!(
        checked.stderr.contains("keeps the lease of the layer default/x"),
        "{}",
        checked.stderr
    );
    assert!(!lease(&datastore, "-").await.is_null());

    let locked = run(&["converge"]).wait();
    assert_eq!(locked.code, 4, "{}", locked.stderr);

    std::fs::remove_file(wait).unwrap();
    killed.wait();
    let mut ended = None;
    eventually("the tool has ended", || {
        let next = run(&["converge"]).wait();
        assert!(matches!(next.code, 0 | 4), "{}", next.stderr);
        ended = (next.code == 0).then_some(next.stderr);
        ended.is_some()
    });
    let ended = ended.unwrap_or_default();
    assert!(ended.contains("status: ok"), "{ended}");
    assert_eq!(lease(&datastore, "-").await, serde_json::Value::Null);
}

#[tokio::test(flavor = "multi_thread")]
async fn datastore_without_leases_is_only_a_warning() {
    let datastore = TestDatastore::hasty(LONG).await;
    let early = FaultyDatastore::early(&datastore.url).await;
    let sandbox = machine("");
    let ended = sandbox.run_with(&early.url, &["apply", "--no-plan", "--name", "x"]);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    assert!(ended.stderr.contains("has no leases"), "{}", ended.stderr);
}

/// It may have leases, and another run may hold this one.
#[tokio::test(flavor = "multi_thread")]
async fn apply_without_an_answer_to_its_request_for_a_lease_changes_nothing() {
    let datastore = TestDatastore::hasty(LONG).await;
    let fault = |status, times| Fault { method: "POST", part: "/api/leases/", status, times };
    for status in [503, GATEWAY] {
        let sick = FaultyDatastore::before(&datastore.url, vec![fault(status, usize::MAX)]).await;
        let sandbox = Sandbox::new(crate::RUNNER).hello().fake_terraform("");
        let apply = ["apply", "--no-plan", "--name", "x"];
        let ended = sandbox.run_with(&sick.url, &apply);
        assert_eq!((ended.code, applies(&sandbox)), (10, 0), "{status}: {}", ended.stderr);
        for text in ["the lease: POST ", "/api/leases/default/x: ", "next: "] {
            assert!(ended.stderr.contains(text), "{status}: {text}: {}", ended.stderr);
        }
        sick.set_faults(vec![fault(status, 2)]);
        let ended = sandbox.run_with(&sick.url, &apply);
        assert_eq!((ended.code, applies(&sandbox)), (0, 1), "{status}: {}", ended.stderr);
        assert!(!ended.stderr.contains("is not excluded"), "{status}: {}", ended.stderr);
    }
}
