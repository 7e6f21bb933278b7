//! Layers that were applied and whose state is not there, and a datastore that does not say whether it is.

use support::{Fault, FaultyDatastore, TestDatastore};

use super::machines::{Origin, run, states};
use crate::json;
use crate::stored_run::StoredRun;

async fn delete_state(datastore: &TestDatastore) {
    let url = datastore.url.join("api/state/default/vpc").unwrap();
    let answer = reqwest::Client::new().delete(url).send().await.unwrap();
    assert!(answer.status().is_success());
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
    let planned = run(&machine, &datastore.url, &["plan", "--new-state"]);
    assert_eq!(planned.code, 0, "{}", planned.stderr);
    let applied = run(&machine, &datastore.url, &["apply"]);
    assert_eq!(applied.code, 0, "the plan was made for no state: {}", applied.stderr);
    assert_eq!(states(&datastore, "-", "default").await["head"]["version"]["resources"], 1);
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
