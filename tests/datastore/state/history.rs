//! Versions of states: listings, snapshots and restores.

use datastore::config::Config;
use datastore::store::Storage;
use datastore::transport::limits::Limits;
use jiff::SignedDuration;
use serde_json::json;
use support::TestDatastore;

use super::documents::{STATE, document, lock, of, post, serving, unlock, versions};
use super::program::{Place, Way, done, json as read};

const SNAPSHOT: &str =
    "states?namespace=team-a&layer=network&run=apply-1/0&tool=tofu&tool_version=1.9.0";

#[tokio::test]
async fn every_version_is_listed_page_by_page_newest_first() {
    for datastore in TestDatastore::each().await {
        for serial in 1..=5 {
            let origin = format!("{STATE}?run=apply-{serial}/0&tool=terraform&tool_version=1.11.4");
            assert_eq!(post(&datastore, &origin, &document("l", serial, "a")).await, 200);
        }
        let (mut serials, mut cursor) = (Vec::new(), String::new());
        loop {
            let page = versions(&datastore, &format!("&limit=2&cursor={cursor}")).await;
            assert_eq!(page["head"]["version"]["serial"], 5);
            for version in page["versions"].as_array().unwrap() {
                let serial = version["serial"].as_u64().unwrap();
                assert_eq!(version["run"], format!("apply-{serial}/0"));
                assert_eq!(version["tool"], json!({"name": "terraform", "version": "1.11.4"}));
                assert_eq!((&version["kind"], &version["resources"]), (&json!("head"), &json!(1)));
                let id = version["version"].as_str().unwrap();
                let read = of(&datastore, "GET", &format!("{STATE}?version={id}"), "").await;
                assert_eq!(read.text(), document("l", serial, "a"));
                serials.push(serial);
            }
            match page["next"].as_str() {
                Some(next) => next.clone_into(&mut cursor),
                None => break,
            }
        }
        assert_eq!(serials, [5, 4, 3, 2, 1]);
        let unknown = format!("{STATE}?version=0000000000000000-0000000000000000");
        assert_eq!(of(&datastore, "GET", &unknown, "").await.status, 404);
        assert_eq!(of(&datastore, "GET", &format!("{STATE}?version=x"), "").await.status, 400);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn versions_are_listed_in_their_order_if_the_clock_of_the_storage_goes_back() {
    let (place, way) = (Place::bucket(), Way::Storage);
    let push = |serial| {
        place.with_input(&way, &["push", "team-a/network", "-"], &document("lineage", serial, "a"))
    };
    for (serial, ahead) in [(1, 4), (2, 2), (3, 0)] {
        place.cloud.as_ref().unwrap().clock(SignedDuration::from_secs(ahead));
        done(push(serial));
    }
    let first =
        read(place.state(&way, &["ls", "team-a/network", "--json"]))["versions"][2]["version"]
            .clone();
    place.cloud.as_ref().unwrap().clock(SignedDuration::from_secs(-2));
    done(place.state(&way, &["restore", "team-a/network", "--version", first.as_str().unwrap()]));
    let listed = read(place.state(&way, &["ls", "team-a/network", "--json"]));
    let serials = listed["versions"].as_array().unwrap().iter().map(|version| &version["serial"]);
    assert_eq!(serials.collect::<Vec<_>>(), [4, 3, 2, 1], "{listed}");
}

#[tokio::test]
async fn a_snapshot_is_stored_once_and_never_becomes_the_state() {
    for datastore in TestDatastore::each().await {
        for name in ["a", "a", "b"] {
            assert_eq!(of(&datastore, "PUT", SNAPSHOT, &document("l", 3, name)).await.status, 200);
        }
        assert_eq!(of(&datastore, "GET", STATE, "").await.status, 404);
        let listed = versions(&datastore, "&kind=snapshot").await;
        assert_eq!(listed["versions"].as_array().unwrap().len(), 2, "{listed}");
        assert_eq!(listed["versions"][0]["tool"]["name"], "tofu");
        assert_eq!(of(&datastore, "PUT", SNAPSHOT, "{\"version\": 4").await.status, 400);
        assert_eq!(post(&datastore, STATE, &document("l", 1, "c")).await, 200);
        assert_eq!(versions(&datastore, "").await["versions"].as_array().unwrap().len(), 3);
    }
}

#[tokio::test]
async fn an_old_version_is_restored_with_the_next_serial() {
    for datastore in TestDatastore::each().await {
        for (serial, name) in [(1, "old"), (2, "new")] {
            assert_eq!(post(&datastore, STATE, &document("l", serial, name)).await, 200);
        }
        let old =
            versions(&datastore, "").await["versions"][1]["version"].as_str().unwrap().to_owned();
        let restore = format!("states/restore?namespace=team-a&layer=network&version={old}");
        assert_eq!(lock(&datastore, STATE, "x").await.status, 200);
        assert_eq!(post(&datastore, &restore, "").await, 423);
        assert_eq!(unlock(&datastore, STATE, "x").await.status, 200);
        assert_eq!(post(&datastore, &restore, "").await, 200);
        assert_eq!(of(&datastore, "GET", STATE, "").await.text(), document("l", 3, "old"));
        let head = versions(&datastore, "").await["head"]["version"].clone();
        assert_eq!((&head["generation"], &head["kind"]), (&json!(1), &json!("head")));
        assert!(head["reason"].as_str().unwrap().contains(&old), "{head}");
        // A snapshot of another lineage begins a new generation.
        assert_eq!(of(&datastore, "PUT", SNAPSHOT, &document("other", 9, "s")).await.status, 200);
        let snapshot =
            versions(&datastore, "&kind=snapshot").await["versions"][0]["version"].clone();
        let restore = format!(
            "states/restore?namespace=team-a&layer=network&version={}",
            snapshot.as_str().unwrap()
        );
        assert_eq!(post(&datastore, &restore, "").await, 200);
        assert_eq!(of(&datastore, "GET", STATE, "").await.text(), document("other", 4, "s"));
        assert_eq!(versions(&datastore, "").await["head"]["version"]["generation"], 2);
    }
}

#[tokio::test]
async fn an_encrypted_state_is_restored_unchanged_in_a_new_generation() {
    let datastore = TestDatastore::memory().await;
    let encrypted = |serial: u64| {
        let state = json!({"serial": serial, "lineage": "l", "meta": {"k": "v"}, "encrypted_data": "x", "encryption_version": "v0"});
        state.to_string()
    };
    for serial in 1..=2 {
        assert_eq!(post(&datastore, STATE, &encrypted(serial)).await, 200);
    }
    let old = versions(&datastore, "").await["versions"][1].clone();
    assert_eq!((&old["encrypted"], &old["resources"]), (&json!(true), &json!(null)));
    let restore = format!(
        "states/restore?namespace=team-a&layer=network&version={}",
        old["version"].as_str().unwrap()
    );
    assert_eq!(post(&datastore, &restore, "").await, 200);
    assert_eq!(of(&datastore, "GET", STATE, "").await.text(), encrypted(1));
    assert_eq!(versions(&datastore, "").await["head"]["version"]["generation"], 2);
    assert_eq!(post(&datastore, STATE, &encrypted(2)).await, 200);
}

#[tokio::test]
async fn the_tool_of_a_layer_is_recorded() {
    let datastore = TestDatastore::memory().await;
    let tool = "tools/team-a/network";
    assert_eq!(of(&datastore, "GET", tool, "").await.status, 404);
    let tofu = json!({"name": "tofu", "version": "1.9.0"});
    assert_eq!(of(&datastore, "PUT", tool, &tofu.to_string()).await.status, 200);
    assert_eq!(of(&datastore, "GET", tool, "").await.json(), tofu);
    for body in ["", "x", "{}", "{\"name\":\"a\\u0007\",\"version\":\"1\"}"] {
        assert_eq!(of(&datastore, "PUT", tool, body).await.status, 400, "{body}");
    }
}

#[tokio::test]
async fn the_highest_serial_can_be_written_and_no_restore_exceeds_it() {
    let datastore = TestDatastore::memory().await;
    for serial in [u64::MAX, i64::MAX as u64 + 1] {
        let refused = of(&datastore, "POST", STATE, &document("l", serial, "a")).await;
        assert!(refused.status == 400 && refused.text().contains("`serial`"), "{refused:?}");
    }
    assert_eq!(post(&datastore, STATE, &document("l", 1, "old")).await, 200);
    assert_eq!(post(&datastore, STATE, &document("l", i64::MAX as u64, "a")).await, 200);
    let old = versions(&datastore, "").await["versions"][1]["version"].as_str().unwrap().to_owned();
    let restore = format!("states/restore?namespace=team-a&layer=network&version={old}");
    let refused = of(&datastore, "POST", &restore, "").await;
    assert_eq!(refused.status, 409, "{refused:?}");
    assert!(refused.text().contains("no higher one is possible"), "{refused:?}");
}

#[tokio::test]
async fn a_restore_needs_free_memory_for_the_document() {
    let storage = tempfile::TempDir::new().unwrap();
    let storage = Storage::File(storage.path().to_owned());
    let large = document("l", 1, &"x".repeat(3 << 20));
    let restore = {
        let datastore = TestDatastore::of(Config::of(storage.clone())).await;
        assert_eq!(post(&datastore, STATE, &large).await, 200);
        assert_eq!(post(&datastore, STATE, &document("l", 2, "a")).await, 200);
        let listed = versions(&datastore, "").await;
        let old = listed["versions"][1]["version"].as_str().unwrap().to_owned();
        format!("states/restore?namespace=team-a&layer=network&version={old}")
    };
    let limits = Limits { memory: 2 << 20, ..Limits::default() };
    let small = TestDatastore::of(Config { limits, ..Config::of(storage.clone()) }).await;
    let small = serving(small).await;
    let refused = of(&small, "POST", &restore, "").await;
    assert!(refused.status == 503 && refused.text().contains("--max-memory"), "{refused:?}");
    assert_eq!(of(&small, "GET", STATE, "").await.text(), document("l", 2, "a"));
    drop(small);
    let datastore = serving(TestDatastore::of(Config::of(storage)).await).await;
    assert_eq!(post(&datastore, &restore, "").await, 200);
    let restored = large.replacen("\"serial\": 1", "\"serial\": 3", 1);
    assert_eq!(of(&datastore, "GET", STATE, "").await.text(), restored);
}
