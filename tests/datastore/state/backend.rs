//! States as terraform's `http` backend reads, writes, locks and unlocks them.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use md5::{Digest as _, Md5};
use reqwest::Method;
use serde_json::Value;
use support::TestDatastore;

use super::documents::{STATE, document, lock, of, post, unlock, versions};
use crate::http::{files, request, send};

#[tokio::test]
async fn a_state_is_read_back_byte_for_byte_in_each_workspace() {
    for datastore in TestDatastore::each().await {
        for rest in [STATE.to_owned(), format!("{STATE}/blue"), format!("{STATE}/a%20b%2523")] {
            assert_eq!(of(&datastore, "GET", &rest, "").await.status, 404);
            let state = document("l", 1, &rest);
            assert_eq!(post(&datastore, &rest, &state).await, 200, "{rest}");
            let read = of(&datastore, "GET", &rest, "").await;
            assert_eq!((read.status, read.text()), (200, state));
            let newer = document("l", 2, &rest);
            assert_eq!(post(&datastore, &rest, &newer).await, 200);
            assert_eq!(of(&datastore, "GET", &rest, "").await.text(), newer);
            let head = send(request(&datastore, Method::HEAD, &rest)).await;
            assert_eq!(
                (head.status, head.header("content-length")),
                (200, Some(&*newer.len().to_string()))
            );
        }
    }
}

#[tokio::test]
async fn what_is_not_a_whole_state_is_refused_and_stored_nowhere() {
    let datastore = TestDatastore::temporary().await;
    let whole = document("l", 1, "a");
    let modules = r#"{"version":4,"serial":1,"lineage":"l","modules":1}"#;
    let encrypted = r#"{"version":4,"serial":1,"lineage":"l","encrypted_data":1}"#;
    let (cut, twice) = (&whole[..whole.len() - 4], format!("{whole}{whole}"));
    for body in ["", "{}", "x", "null", cut, &twice, modules, encrypted] {
        let refused = of(&datastore, "POST", STATE, body).await;
        assert_eq!(refused.status, 400, "{body}: {refused:?}");
        assert!(refused.text().contains("the body is not a whole state"), "{refused:?}");
    }
    let wrong = request(&datastore, Method::POST, STATE)
        .header("content-md5", BASE64_STANDARD.encode([7; 16]));
    assert_eq!(send(wrong.body(whole.clone())).await.status, 400);
    let malformed = request(&datastore, Method::POST, STATE).header("content-md5", "x");
    assert_eq!(send(malformed.body(whole.clone())).await.status, 400);
    let stored = files(&datastore.root());
    assert!(!stored.iter().any(|path| path.starts_with("states")), "{stored:?}");
    assert_eq!(of(&datastore, "GET", STATE, "").await.status, 404);
    let md5 = BASE64_STANDARD.encode(Md5::digest(&whole));
    let right = request(&datastore, Method::POST, STATE).header("content-md5", md5);
    assert_eq!(send(right.body(whole)).await.status, 200);
}

#[tokio::test]
async fn another_lineage_and_an_older_serial_are_refused_and_kept() {
    for datastore in TestDatastore::each().await {
        assert_eq!(post(&datastore, STATE, &document("l", 5, "a")).await, 200);
        // The answer to it may have been lost.
        assert_eq!(post(&datastore, STATE, &document("l", 5, "a")).await, 200);
        for (refused, reason) in [
            (document("l", 5, "b"), "serial 5"),
            (document("l", 4, "b"), "serial 5"),
            (document("other", 6, "b"), "lineage"),
        ] {
            let answer = of(&datastore, "POST", STATE, &refused).await;
            assert_eq!(answer.status, 409, "{answer:?}");
            assert!(answer.text().contains(reason), "{answer:?}");
            let rejected = versions(&datastore, "&kind=rejected").await["versions"][0].clone();
            assert!(rejected["reason"].as_str().unwrap().contains(reason), "{rejected}");
            let version = rejected["version"].as_str().unwrap();
            let kept = of(&datastore, "GET", &format!("{STATE}?version={version}"), "").await;
            assert_eq!((kept.status, kept.text()), (200, refused));
        }
        assert_eq!(of(&datastore, "GET", STATE, "").await.text(), document("l", 5, "a"));
        let listed = versions(&datastore, "").await;
        assert_eq!(listed["versions"].as_array().unwrap().len(), 1, "{listed}");
        assert_eq!(
            post(&datastore, &format!("{STATE}?force=true"), &document("other", 1, "c")).await,
            200
        );
        let listed = versions(&datastore, "").await;
        assert_eq!(listed["head"]["version"]["generation"], 2, "{listed}");
    }
}

#[tokio::test]
async fn a_lock_excludes_other_writers_until_it_is_removed() {
    for datastore in TestDatastore::each().await {
        for _ in 0..2 {
            assert_eq!(lock(&datastore, STATE, "one").await.status, 200);
        }
        let held = lock(&datastore, STATE, "two").await;
        assert_eq!((held.status, held.json()["ID"].as_str()), (423, Some("one")));
        assert_eq!(held.json()["Who"], "user-one@host");
        let refused = of(&datastore, "POST", STATE, &document("l", 1, "a")).await;
        assert_eq!((refused.status, refused.json()["ID"].as_str()), (423, Some("one")));
        assert_eq!(post(&datastore, &format!("{STATE}?ID=two"), &document("l", 1, "a")).await, 423);
        for _ in 0..2 {
            assert_eq!(
                post(&datastore, &format!("{STATE}?ID=one"), &document("l", 1, "a")).await,
                200
            );
        }
        assert_eq!(unlock(&datastore, STATE, "two").await.status, 409);
        assert_eq!(post(&datastore, STATE, &document("l", 2, "a")).await, 423);
        for _ in 0..2 {
            assert_eq!(unlock(&datastore, STATE, "one").await.status, 200);
        }
        // Its lock was removed, so another may have worked meanwhile.
        let late = of(&datastore, "POST", &format!("{STATE}?ID=one"), &document("l", 2, "a")).await;
        assert!(late.status == 409 && late.text().contains("not held any more"), "{late:?}");
        assert_eq!(post(&datastore, STATE, &document("l", 2, "b")).await, 200);
        // `force-unlock` of terraform sends no body.
        assert_eq!(lock(&datastore, STATE, "three").await.status, 200);
        assert_eq!(of(&datastore, "UNLOCK", STATE, "").await.status, 200);
        assert_eq!(lock(&datastore, STATE, "four").await.status, 200);
        for body in ["x", "{}", "{\"ID\":\"\"}", "{\"ID\":1}"] {
            assert_eq!(of(&datastore, "LOCK", STATE, body).await.status, 400, "{body}");
            assert_eq!(of(&datastore, "UNLOCK", STATE, body).await.status, 400, "{body}");
        }
    }
}

#[tokio::test]
async fn a_lost_control_object_is_no_missing_state() {
    for datastore in [TestDatastore::temporary().await] {
        assert_eq!(post(&datastore, STATE, &document("l", 1, "a")).await, 200);
        let control = datastore.root().join(".plancha/states/team-a/network/control");
        let bytes = std::fs::read(&control).unwrap();
        for damage in [None, Some(&b"{"[..]), Some(&b""[..])] {
            match damage {
                Some(damage) => std::fs::write(&control, damage).unwrap(),
                None => std::fs::remove_file(&control).unwrap(),
            }
            for (method, body) in [("GET", String::new()), ("POST", document("l", 2, "b"))] {
                let answer = of(&datastore, method, STATE, &body).await;
                assert_eq!(answer.status, 500, "{method}: {answer:?}");
            }
            assert_eq!(lock(&datastore, STATE, "one").await.status, 500);
        }
        std::fs::write(&control, bytes).unwrap();
        assert_eq!(of(&datastore, "GET", STATE, "").await.status, 200);
        let version = files(&datastore.root().join("states"));
        std::fs::remove_file(datastore.root().join("states").join(&version[0])).unwrap();
        assert_eq!(of(&datastore, "GET", STATE, "").await.status, 500);
    }
}

#[tokio::test]
async fn the_place_of_the_first_writer_is_kept_until_it_is_replaced_on_purpose() {
    let datastore = TestDatastore::memory().await;
    let at = |place: &str| format!("{STATE}?place={place}");
    assert_eq!(post(&datastore, &at("infra//vpc"), &document("l", 1, "a")).await, 200);
    assert_eq!(post(&datastore, STATE, &document("l", 2, "a")).await, 200);
    // terraform takes 409 for a lock that another holds.
    for (answer, status, serial) in [
        (lock(&datastore, &at("infra//db"), "x").await, 422, 2),
        (of(&datastore, "POST", &at("infra//db"), &document("l", 3, "a")).await, 409, 2),
    ] {
        assert!(answer.status == status && answer.text().contains("infra//vpc"), "{answer:?}");
        assert_eq!(versions(&datastore, "").await["head"]["version"]["serial"], serial);
    }
    let rebound = format!("{}&rebind=true", at("infra//db"));
    assert_eq!(post(&datastore, &rebound, &document("l", 3, "a")).await, 200);
    assert_eq!(versions(&datastore, "").await["head"]["place"], "infra//db");
}

#[tokio::test]
async fn a_state_is_deleted_and_undeleted_and_begins_a_new_generation() {
    for datastore in TestDatastore::each().await {
        let undelete = "states/undelete?namespace=team-a&layer=network";
        assert_eq!(post(&datastore, undelete, "").await, 404);
        assert_eq!(post(&datastore, STATE, &document("l", 7, "a")).await, 200);
        assert_eq!(post(&datastore, undelete, "").await, 409);
        for _ in 0..2 {
            assert_eq!(of(&datastore, "DELETE", STATE, "").await.status, 200);
            assert_eq!(of(&datastore, "GET", STATE, "").await.status, 404);
        }
        assert_eq!(post(&datastore, undelete, "").await, 200);
        assert_eq!(of(&datastore, "GET", STATE, "").await.text(), document("l", 7, "a"));
        assert_eq!(of(&datastore, "DELETE", STATE, "").await.status, 200);
        assert_eq!(post(&datastore, STATE, &document("new", 1, "b")).await, 200);
        let listed = versions(&datastore, "").await;
        let shown = |version: &Value| (version["generation"].clone(), version["serial"].clone());
        let shown = listed["versions"].as_array().unwrap().iter().map(shown).collect::<Vec<_>>();
        assert_eq!(shown, [(2.into(), 1.into()), (1.into(), 7.into())]);
        lock(&datastore, STATE, "one").await;
        assert_eq!(of(&datastore, "DELETE", STATE, "").await.status, 423);
        assert_eq!(of(&datastore, "DELETE", &format!("{STATE}?ID=one"), "").await.status, 200);
    }
}

#[tokio::test]
async fn a_wrong_address_of_a_state_is_never_a_missing_state() {
    let datastore = TestDatastore::memory().await;
    for rest in [
        "state",
        "state/team-a",
        "state/team-a/network/",
        "state/team-a/network/blue/x",
        "state//team-a/network",
        "/state/team-a/network",
        "State/team-a/network",
        "state/team-a%2Fnetwork",
        "state%2Fteam-a%2Fnetwork",
        "states/team-a/network",
    ] {
        for method in ["GET", "HEAD", "POST", "DELETE", "LOCK", "UNLOCK"] {
            let answer = of(&datastore, method, rest, &document("l", 1, "a")).await;
            assert_eq!(answer.status, 400, "{method} {rest}: {answer:?}");
            let expected = "/api/state/NAMESPACE/LAYER";
            assert!(method == "HEAD" || answer.text().contains(expected), "{rest}: {answer:?}");
        }
    }
    for method in ["PUT", "PATCH", "COPY"] {
        let answer = of(&datastore, method, STATE, "").await;
        let allowed = answer.header("allow");
        assert_eq!((answer.status, allowed), (405, Some("GET, HEAD, POST, DELETE, LOCK, UNLOCK")));
    }
    for (rest, text) in [
        ("state/team-a/..%2F", "the part LAYER of the address"),
        ("state/team-a/network/%2e%2e%2f", "the part WORKSPACE of the address"),
        ("leases/team-a/a%2Fb", "the part LAYER of the address"),
        ("state/team-a/network?fence=abc", "`fence`"),
    ] {
        let method = if rest.contains("fence") { "LOCK" } else { "GET" };
        let answer = of(&datastore, method, rest, &document("l", 1, "a")).await;
        assert!(answer.status == 400 && answer.text().contains(text), "{rest}: {answer:?}");
    }
    let malformed = request(&datastore, Method::POST, STATE).header("content-md5", "x");
    let malformed = send(malformed.body(document("l", 1, "a"))).await;
    assert!(malformed.text().contains("Base64") && !malformed.text().contains("PUT"));
}

#[tokio::test]
async fn workspaces_that_were_only_locked_take_no_room_and_those_in_use_are_limited() {
    let datastore = TestDatastore::memory().await;
    let workspace = |number: usize| format!("{STATE}/w{number}");
    assert_eq!(post(&datastore, &workspace(0), &document("l", 1, "a")).await, 200);
    // As plans of new workspaces do.
    for number in 1..500 {
        assert_eq!(lock(&datastore, &workspace(number), "x").await.status, 200);
        assert_eq!(unlock(&datastore, &workspace(number), "x").await.status, 200);
    }
    assert_eq!(unlock(&datastore, &workspace(1), "x").await.status, 200);
    for number in 500..999 {
        assert_eq!(lock(&datastore, &workspace(number), "x").await.status, 200, "{number}");
    }
    let refused = lock(&datastore, &workspace(999), "x").await;
    assert!(refused.status == 422 && refused.text().contains("500 workspaces"), "{refused:?}");
    assert_eq!(post(&datastore, &workspace(999), &document("l", 1, "a")).await, 409);
    assert_eq!(of(&datastore, "GET", &workspace(0), "").await.status, 200);
    assert_eq!(unlock(&datastore, &workspace(500), "x").await.status, 200);
    assert_eq!(lock(&datastore, &workspace(999), "x").await.status, 200);
    // Again, for example because the answer was lost.
    assert_eq!(unlock(&datastore, &workspace(500), "x").await.status, 200);
}
