//! Control objects and documents that are damaged, lost or exchanged: never "there is no state".

use datastore::store::{Storage, Store};
use datastore_api::Sha256;
use reqwest::Method;
use support::TestDatastore;

use super::documents::{STATE, document, lock, lock_info, of, post, unlock, versions};
use super::program::{Ended, Place, Way, done, ended, send};
use crate::http::{files, request, send as sent};
use crate::program::process::program;

const KEY: &str = "team-a/network";
const CONTROL: &str = ".plancha/states/team-a/network/control";

fn verify(place: &Place) -> Ended {
    ended(&mut program(&["verify", "--storage", &place.storage]), "")
}

#[tokio::test]
async fn no_changed_byte_of_a_control_object_hides_a_state_or_a_lock() {
    let datastore = TestDatastore::temporary().await;
    assert_eq!(post(&datastore, STATE, &document("l", 1, "a")).await, 200);
    assert_eq!(lock(&datastore, STATE, "one").await.status, 200);
    let control = datastore.root().join(CONTROL);
    let stored = std::fs::read_to_string(&control).unwrap();
    for name in ["states", "default", "version", "deleted", "lock", "lease", "fence", "former"] {
        let quoted = format!("\"{name}\"");
        assert!(stored.contains(&quoted), "{name}");
        std::fs::write(&control, stored.replacen(&quoted, &format!("\"_{}\"", &name[1..]), 1))
            .unwrap();
        for (method, body) in [("GET", String::new()), ("POST", document("l", 2, "b"))] {
            assert_eq!(of(&datastore, method, STATE, &body).await.status, 500, "{name}");
        }
        assert_eq!(lock(&datastore, STATE, "two").await.status, 500, "{name}");
    }
    std::fs::write(&control, stored).unwrap();
    assert_eq!(unlock(&datastore, STATE, "one").await.status, 200);
}

#[tokio::test]
async fn a_control_object_that_is_too_large_is_not_read() {
    let datastore = TestDatastore::temporary().await;
    assert_eq!(post(&datastore, STATE, &document("l", 1, "a")).await, 200);
    let control = std::fs::File::options().write(true).open(datastore.root().join(CONTROL));
    control.unwrap().set_len(1 << 40).unwrap();
    let refused = of(&datastore, "GET", STATE, "").await;
    assert_eq!(refused.status, 500, "{refused:?}");
    assert!(refused.text().contains("has more than 8 MiB"), "{refused:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_layer_with_anything_but_a_control_object_has_lost_it() {
    let snapshot = "states?namespace=team-a&layer=network";
    for (method, rest) in [("POST", STATE), ("PUT", snapshot)] {
        let place = Place::directory();
        let root = place.root();
        {
            let datastore = place.serve(&[]);
            let body = document("l", 1, "a");
            assert_eq!(send(&datastore, method, rest, body).await, 200);
        }
        assert_eq!(verify(&place).code, 0);
        // The directory was restored without the datastore's own objects.
        std::fs::remove_dir_all(root.join(".plancha")).unwrap();
        assert!(files(&root).iter().all(|path| path.starts_with("states")));
        let verified = verify(&place);
        assert!(verified.code == 9 && verified.out.contains(&format!("missing {CONTROL}\n")));
        assert!(
            verified.message.contains("that the lines above name from a backup, and no others")
        );
        assert!(!verified.message.contains("sha256"), "{verified:?}");
        for words in [&["pull", KEY][..], &["ls", KEY], &["ls"]] {
            let damaged = place.state(&Way::Storage, words);
            assert_eq!(damaged.code, 9, "{words:?}: {damaged:?}");
        }
        let datastore = place.serve(&[]);
        for (method, rest) in [("GET", STATE), ("POST", STATE), ("PUT", snapshot)] {
            let body = document("l", 2, "b");
            let status = send(&datastore, method, rest, body).await;
            assert_eq!(status, 500, "{method} {rest}");
        }
    }
}

#[tokio::test]
async fn a_document_with_another_digest_than_the_control_object_has_is_not_served() {
    let datastore = TestDatastore::temporary().await;
    assert_eq!(post(&datastore, STATE, &document("l", 1, "a")).await, 200);
    let root = datastore.root();
    let path = files(&root.join("states"))[0].clone();
    let key = format!("states/{}", path.display());
    std::fs::write(root.join(&key), document("l", 1, "b")).unwrap();
    let storage = format!("file://{}", root.display());
    let refused = ended(&mut program(&["verify", "--accept", &key, "--storage", &storage]), "");
    assert!(refused.code == 64 && refused.message.contains("state restore"), "{refused:?}");
    // Nothing accepts it, but another program may have recorded another digest.
    let accepted = Store::open(&Storage::File(root)).unwrap().accept(&key).await.unwrap();
    assert_eq!(accepted, Sha256::of(document("l", 1, "b").as_bytes()));
    for method in ["GET", "HEAD"] {
        assert_eq!(of(&datastore, method, STATE, "").await.status, 500, "{method}");
    }
    let id = versions(&datastore, "").await["head"]["version"]["version"].clone();
    let version = format!("{STATE}?version={}", id.as_str().unwrap());
    assert_eq!(of(&datastore, "GET", &version, "").await.status, 500);
    let restore =
        format!("states/restore?namespace=team-a&layer=network&version={}", id.as_str().unwrap());
    assert_eq!(post(&datastore, &restore, "").await, 500);
    let verified = ended(&mut program(&["verify", "--storage", &storage]), "");
    assert!(verified.code == 9 && verified.out.contains(&format!("changed {key}\n")));
    assert!(verified.message.contains("state restore"), "{verified:?}");
    assert!(!verified.message.contains("--accept"), "{verified:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_push_of_the_same_bytes_replaces_a_damaged_or_lost_state() {
    let state = document("l", 1, "a");
    for is_served in [false, true] {
        let place = Place::directory();
        let way = if is_served { Way::Datastore(place.serve(&[])) } else { Way::Storage };
        let push = || done(place.with_input(&way, &["push", KEY, "-"], &state));
        push();
        assert!(push().contains("has this content already"));
        let states = place.root().join("states");
        for is_lost in [false, true] {
            let paths = files(&states);
            assert_eq!(paths.len(), 1, "{paths:?}");
            let path = states.join(&paths[0]);
            if is_lost {
                std::fs::remove_file(&path).unwrap();
            } else {
                std::fs::write(&path, document("l", 1, "b")).unwrap();
            }
            assert_ne!(place.state(&way, &["pull", KEY]).code, 0);
            let pushed = push();
            assert!(pushed.contains("it replaced the version"), "{pushed}");
            assert_eq!(done(place.state(&way, &["pull", KEY])), state);
            // The next turn is about the new one.
            if !is_lost {
                std::fs::remove_file(&path).unwrap();
            }
        }
    }
}

#[tokio::test]
async fn a_write_of_the_same_bytes_replaces_a_damaged_state_in_a_bucket() {
    let state = document("l", 1, "a");
    for datastore in TestDatastore::doubles().await {
        assert_eq!(post(&datastore, STATE, &state).await, 200);
        let keys = datastore.cloud().keys();
        let key = keys.iter().find(|key| key.ends_with(".tfstate")).unwrap();
        datastore.cloud().rot(key, 10);
        assert_eq!(of(&datastore, "GET", STATE, "").await.status, 500);
        assert_eq!(post(&datastore, STATE, &state).await, 200);
        assert_eq!(of(&datastore, "GET", STATE, "").await.text(), state);
    }
}

#[tokio::test]
async fn a_snapshot_that_is_lost_is_stored_again() {
    let datastore = TestDatastore::temporary().await;
    let snapshot = "states?namespace=team-a&layer=network";
    let states = datastore.root().join("states");
    for is_lost in [true, false] {
        assert_eq!(of(&datastore, "PUT", snapshot, &document("l", 1, "a")).await.status, 200);
        let paths = files(&states);
        assert_eq!(paths.len(), 1, "{paths:?}");
        if is_lost {
            std::fs::remove_file(states.join(&paths[0])).unwrap();
        }
    }
}

#[tokio::test]
async fn a_changed_description_of_a_version_is_not_served_and_verify_names_it() {
    let datastore = TestDatastore::temporary().await;
    for serial in [1, 2] {
        assert_eq!(post(&datastore, STATE, &document("l", serial, "a")).await, 200);
    }
    let listed = versions(&datastore, "").await;
    let id = listed["versions"][1]["version"].as_str().unwrap();
    let key = format!(".plancha/states/team-a/network/workspaces/default/versions/{id}");
    let path = datastore.root().join(&key);
    let stored = std::fs::read_to_string(&path).unwrap();
    let storage = format!("file://{}", datastore.root().display());
    let verify = || ended(&mut program(&["verify", "--storage", &storage]), "");
    assert_eq!(verify().code, 0, "{:?}", verify());
    let sha256 = listed["versions"][1]["sha256"].as_str().unwrap();
    let other = Sha256::of(b"another").to_string();
    for changed in [
        stored.replacen("\"serial\":1", "\"serial\":7", 1),
        stored.replacen(sha256, &other, 1),
        stored.replacen("description_sha256\":\"", "description_sha256\":\"0", 1),
    ] {
        assert_ne!(changed, stored);
        std::fs::write(&path, changed).unwrap();
        for rest in ["states?namespace=team-a&layer=network", &format!("{STATE}?version={id}")] {
            let refused = of(&datastore, "GET", rest, "").await;
            let expected =
                format!("the description `{key}` of a version is damaged: restore this file");
            assert!(refused.status == 500 && refused.text().contains(&expected), "{refused:?}");
        }
        let verified = verify();
        assert!(verified.code == 9 && verified.out.contains(&format!("changed {key}\n")));
        assert!(verified.message.contains("this file alone"), "{verified:?}");
        for other in ["restore states/", "--accept"] {
            assert!(!verified.message.contains(other), "{verified:?}");
        }
        let swept = ended(&mut program(&["gc", "--keep-runs", "1", "--storage", &storage]), "");
        let kept = "kept the states of team-a/network: the description ";
        assert!(swept.code == 9 && swept.out.contains(kept), "{swept:?}");
    }
    // Without it, the version is not listed.
    std::fs::remove_file(&path).unwrap();
    assert_eq!(versions(&datastore, "").await["versions"].as_array().unwrap().len(), 1);
    assert_eq!(of(&datastore, "GET", &format!("{STATE}?version={id}"), "").await.status, 404);
    assert_eq!(verify().code, 0);
    // That of an earlier release has no digest.
    let mut earlier = serde_json::from_str::<serde_json::Value>(&stored).unwrap();
    assert!(earlier.as_object_mut().unwrap().remove("description_sha256").is_some());
    std::fs::write(&path, earlier.to_string()).unwrap();
    assert_eq!(versions(&datastore, "").await, listed);
    assert_eq!(of(&datastore, "GET", &format!("{STATE}?version={id}"), "").await.status, 200);
    assert_eq!(verify().code, 0);
}

#[tokio::test]
async fn a_document_without_a_recorded_digest_is_compared_with_that_of_the_control_object() {
    // Beyond 256 KiB an answer has begun before its end is read.
    for content in ["a".to_owned(), "a".repeat(300 << 10)] {
        let datastore = TestDatastore::temporary().await;
        let state = document("l", 1, &content);
        assert_eq!(post(&datastore, STATE, &state).await, 200);
        let before = of(&datastore, "GET", STATE, "").await;
        let etag = before.header("etag").unwrap();
        let root = datastore.root();
        let file = root.join("states").join(&files(&root.join("states"))[0]);
        // As a backup restores it that has neither attributes nor the datastore's own records.
        let restore = |bytes: &str| {
            std::fs::remove_file(&file).unwrap();
            let records = root.join(".plancha/sha256");
            if records.exists() {
                std::fs::remove_dir_all(records).unwrap();
            }
            std::fs::write(&file, bytes).unwrap();
        };
        restore(&state);
        for (name, value, status) in [
            ("x-none", "", 200),
            ("range", "bytes=1-2", 200),
            ("if-match", etag, 200),
            ("if-none-match", etag, 304),
        ] {
            let request = request(&datastore, Method::GET, STATE).header(name, value);
            let answer = sent(request).await;
            assert_eq!((answer.status, answer.header("etag")), (status, Some(etag)), "{name}");
            assert!(status != 200 || answer.text() == state, "{name}");
        }
        restore(&state.replace("\"serial\": 1", "\"serial\": 7"));
        for name in ["x-none", "range", "if-match"] {
            let request = request(&datastore, Method::GET, STATE).header(name, etag);
            let is_whole = match request.send().await {
                Ok(answer) if answer.status() == 200 => answer.bytes().await.is_ok(),
                Ok(answer) => {
                    assert_eq!(answer.status(), 500, "{name}");
                    false
                }
                Err(_) => false,
            };
            assert!(!is_whole, "{name}");
        }
    }
}

#[test]
fn the_hints_of_verify_are_those_of_the_objects_that_it_names() {
    let place = Place::directory();
    done(place.with_input(&Way::Storage, &["push", KEY, "-"], &document("l", 1, "a")));
    std::fs::write(place.root().join(CONTROL), "{}").unwrap();
    let verified = verify(&place);
    assert_eq!(verified.code, 9, "{verified:?}");
    assert!(!verified.message.contains(".plancha/sha256/"), "{verified:?}");
    assert!(!verified.message.contains("--accept"), "{verified:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_whose_lock_file_was_removed_serves_no_states_any_more() {
    let place = Place::directory();
    let datastore = place.serve(&[]);
    assert_eq!(send(&datastore, "POST", STATE, document("l", 1, "a")).await, 200);
    std::fs::remove_file(place.root().join(".plancha/states.lock")).unwrap();
    let other = place.serve(&[]);
    assert_eq!(send(&other, "POST", STATE, document("l", 2, "b")).await, 200);
    for _ in 0..2 {
        assert_eq!(send(&datastore, "POST", STATE, document("l", 3, "c")).await, 503);
    }
    for (method, body) in [("LOCK", lock_info("x")), ("GET", String::new())] {
        assert_eq!(send(&datastore, method, STATE, body).await, 503, "{method}");
    }
    assert_eq!(send(&other, "POST", STATE, document("l", 3, "b")).await, 200);
}
