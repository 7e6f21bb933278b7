//! Layers that were applied and whose state is not there, and a datastore that does not say whether it is.

use support::{Fault, FaultyDatastore, GATEWAY, TestDatastore};

use super::machines::{Origin, module, run, states};
use crate::json;
use crate::stored_run::StoredRun;

async fn delete_state(datastore: &TestDatastore) {
    let url = datastore.url.join("api/state/default/vpc").unwrap();
    let answer = reqwest::Client::new().delete(url).send().await.unwrap();
    assert!(answer.status().is_success());
}

/// As a tool locks it that a person has started.
async fn lock(datastore: &TestDatastore) {
    let url = datastore.url.join("api/state/default/vpc").unwrap();
    let lock = r#"{"ID": "11111111-1111-1111-1111-111111111111", "Who": "someone@there"}"#;
    let lock = reqwest::Client::new().request("LOCK".parse().unwrap(), url).body(lock);
    assert!(lock.send().await.unwrap().status().is_success());
}

#[tokio::test(flavor = "multi_thread")]
async fn layer_that_was_applied_is_not_planned_from_nothing() {
    let datastore = TestDatastore::memory().await;
    let machine = Origin::new().machine();
    assert_eq!(run(&machine, &datastore.url, &["plan"]).code, 0);
    assert_eq!(run(&machine, &datastore.url, &["plan"]).code, 0, "nothing was applied yet");
    assert_eq!(run(&machine, &datastore.url, &["apply", "--run", "a"]).code, 0);
    assert_eq!(run(&machine, &datastore.url, &["plan"]).code, 0);
    delete_state(&datastore).await;
    for args in [&["plan"][..], &["apply", "--no-plan"]] {
        let refused = run(&machine, &datastore.url, args);
        assert_eq!(refused.code, 8, "{}", refused.stderr);
        for text in ["has no state of default/vpc/default", "deleted at", "run a/0", "--new-state"]
        {
            assert!(refused.stderr.contains(text), "{text}: {}", refused.stderr);
        }
    }
    // In the same second it would be the very plan that was applied.
    tokio::time::sleep(std::time::Duration::from_secs(1)).await;
    let planned = run(&machine, &datastore.url, &["plan", "--new-state"]);
    assert_eq!(planned.code, 0, "{}", planned.stderr);
    let applied = run(&machine, &datastore.url, &["apply"]);
    assert_eq!(applied.code, 0, "the plan was made for no state: {}", applied.stderr);
    assert_eq!(states(&datastore, "-", "default").await["head"]["version"]["resources"], 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn first_apply_of_another_run_is_a_held_lock_and_no_lost_state() {
    let datastore = TestDatastore::memory().await;
    lock(&datastore).await;
    let machine = Origin::new().machine();
    for args in [&["plan"][..], &["check"], &["converge"]] {
        let refused = run(&machine, &datastore.url, args);
        assert_eq!(refused.code, 4, "{}", refused.stderr);
        assert!(refused.stderr.contains("someone@there holds its lock"), "{}", refused.stderr);
    }
}

/// The token of a plan may end before the plan does, and its lock would stay.
#[tokio::test(flavor = "multi_thread")]
async fn plan_takes_no_lock_and_an_apply_says_how_to_remove_that_of_a_dead_holder() {
    let datastore = TestDatastore::memory().await;
    let machine = Origin::new().machine();
    assert_eq!(run(&machine, &datastore.url, &["apply", "--no-plan"]).code, 0);
    lock(&datastore).await;
    let planned = run(&machine, &datastore.url, &["plan"]);
    assert_eq!(planned.code, 0, "{}", planned.stderr);
    let refused = run(&machine, &datastore.url, &["apply", "--no-plan"]);
    assert_eq!(refused.code, 4, "{}", refused.stderr);
    for text in ["the state is locked: by someone@there", "datastore state unlock KEY --id ID"] {
        assert!(refused.stderr.contains(text), "{text}: {}", refused.stderr);
    }
}

/// The first apply of a layer whose state was refused: it is only on this machine.
#[tokio::test(flavor = "multi_thread")]
async fn state_that_waits_here_is_named_before_a_new_one_is_advised() {
    let datastore = TestDatastore::memory().await;
    let refuse = Fault { method: "POST", part: "/api/state/", status: 409, times: 100 };
    let faulty = FaultyDatastore::before(&datastore.url, vec![refuse]).await;
    let machine = Origin::new().machine();
    let failed = run(&machine, &faulty.url, &["apply", "--no-plan", "--run", "a"]);
    assert_eq!(failed.code, 1, "{}", failed.stderr);
    let kept = machine.path("home/.local/state/plancha/unsent/default/vpc/a/0/errored.tfstate");
    let push = format!(
        "`datastore state push default/vpc/default {} --url {}`",
        kept.display(),
        faulty.url
    );
    assert!(failed.stderr.contains(&push), "{push}: {}", failed.stderr);
    faulty.set_faults(Vec::new());
    for args in [&["plan"][..], &["apply", "--no-plan"]] {
        let refused = run(&machine, &faulty.url, args);
        assert_eq!(refused.code, 8, "{}", refused.stderr);
        assert!(refused.stderr.contains(&push), "{push}: {}", refused.stderr);
        assert!(!refused.stderr.contains("--new-state"), "{}", refused.stderr);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn run_that_forgets_the_state_in_the_datastore_is_refused() {
    let datastore = TestDatastore::memory().await;
    let machine = Origin::new().machine();
    assert_eq!(run(&machine, &datastore.url, &["apply", "--no-plan"]).code, 0);
    let forgetful = |args: &[&str]| {
        let mut command = machine.command(&[args, &["--name", "vpc"]].concat());
        command.current_dir(module(&machine)).env("PLANCHA_DATASTORE_URL", datastore.url.as_str());
        support::Ended::from(command.output().unwrap())
    };
    for args in [&["plan"][..], &["apply", "--no-plan"], &["destroy", "--auto-approve"]] {
        let refused = forgetful(args);
        assert_eq!(refused.code, 8, "{args:?}: {}", refused.stderr);
        assert!(refused.stderr.contains("add --state datastore"), "{args:?}: {}", refused.stderr);
        assert!(!module(&machine).join("terraform.tfstate").exists());
    }
    let new = forgetful(&["apply", "--no-plan", "--new-state"]);
    assert_eq!(new.code, 0, "{}", new.stderr);
}

#[tokio::test(flavor = "multi_thread")]
async fn run_is_refused_if_the_datastore_does_not_say_whether_it_has_a_state() {
    let datastore = TestDatastore::memory().await;
    let fails = |status| Fault { method: "GET", part: "/api/states?", status, times: 100 };
    let faulty = FaultyDatastore::before(&datastore.url, Vec::new()).await;
    let machine = Origin::new().machine();
    for status in [500, GATEWAY] {
        faulty.set_faults(vec![fails(status)]);
        let mut command = machine.command(&["apply", "--no-plan", "--name", "vpc"]);
        command.current_dir(module(&machine)).env("PLANCHA_DATASTORE_URL", faulty.url.as_str());
        let refused = support::Ended::from(command.output().unwrap());
        assert_eq!(refused.code, 10, "{status}: {}", refused.stderr);
        assert!(!module(&machine).join("terraform.tfstate").exists());
    }
}

/// A proxy answers for the datastore when the tool reads the state.
#[tokio::test(flavor = "multi_thread")]
async fn other_state_than_that_of_the_datastore_is_never_planned() {
    let datastore = TestDatastore::memory().await;
    let machine = Origin::new().machine();
    assert_eq!(run(&machine, &datastore.url, &["apply", "--no-plan"]).code, 0);
    let absent = Fault { method: "GET", part: "/api/state/", status: 404, times: 100 };
    let faulty = FaultyDatastore::before(&datastore.url, vec![absent]).await;
    for args in [&["plan"][..], &["apply", "--no-plan"]] {
        let refused = run(&machine, &faulty.url, args);
        assert_eq!(refused.code, 10, "{args:?}: {}\n{}", refused.stderr, refused.stdout);
        assert!(refused.stderr.contains("the tool has read another state"), "{}", refused.stderr);
    }
    let head = states(&datastore, "-", "default").await["head"]["version"].clone();
    assert_eq!(head["resources"], 1, "{head}");
}

#[tokio::test(flavor = "multi_thread")]
async fn layer_that_was_destroyed_completely_is_planned_again() {
    let datastore = TestDatastore::memory().await;
    let machine = Origin::new().machine();
    for args in [&["plan"][..], &["apply", "--run", "a"]] {
        assert_eq!(run(&machine, &datastore.url, args).code, 0);
    }
    delete_state(&datastore).await;
    let report =
        json(&StoredRun::new(&datastore, "default", "vpc", "a").artifact("run.json", 0).await);
    for (run_name, empty, expected) in [("d", false, 8), ("e", true, 0)] {
        let mut report = report.clone();
        report["action"] = "destroy".into();
        report["state"] = serde_json::json!({"empty": empty});
        let stored = StoredRun::new(&datastore, "default", "vpc", run_name);
        stored.put_artifact("run.json", 0, report.to_string().into_bytes()).await;
        stored.put_artifact("applied.json", 0, b"{}".to_vec()).await;
        let ended = run(&machine, &datastore.url, &["plan"]);
        assert_eq!(ended.code, expected, "{run_name}: {}", ended.stderr);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn datastore_that_cannot_read_the_state_is_never_taken_for_one_without() {
    let datastore = TestDatastore::memory().await;
    let machine = Origin::new().machine();
    assert_eq!(run(&machine, &datastore.url, &["apply", "--no-plan"]).code, 0);
    for (part, status, codes) in [
        ("/api/states?", 500, &[10][..]),
        ("/api/states?", 403, &[5]),
        ("/api/states?", 404, &[8, 10]),
        ("/api/state/", 403, &[1, 5, 8]),
    ] {
        let fault = Fault { method: "GET", part, status, times: usize::MAX };
        let faulty = FaultyDatastore::before(&datastore.url, vec![fault]).await;
        let args = ["plan", "--datastore-timeout", "2s"];
        let ended = run(&machine, &faulty.url, &args);
        assert!(codes.contains(&ended.code), "{part} {status}: {} {}", ended.code, ended.stderr);
        assert!(!ended.stdout.contains("to add"), "{part} {status}: {}", ended.stdout);
    }
}
