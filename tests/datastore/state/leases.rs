//! Leases of layers, their numbers, and their credentials.

use std::collections::BTreeMap;
use std::time::Duration;

use datastore::store::Storage;
use datastore_api::Client;
use datastore_api::client::{LeaseAnswer, Settings};
use datastore_api::state::{LayerTool, LeaseRequest, ToolRecord};
use reqwest::Method;
use serde_json::json;
use support::{Fault, FaultyDatastore, GATEWAY, TestDatastore};
use url::Url;

use super::documents::{
    STATE, document, expiry, hasty, lease, lock, number, of, post, unlock, versions,
};
use crate::http::{request, send};

const LEASE: &str = "leases/team-a/network";

#[tokio::test]
async fn a_lease_excludes_other_leases_locks_and_writers() {
    for datastore in TestDatastore::each().await {
        assert_eq!(of(&datastore, "GET", LEASE, "").await.status, 404);
        let first = number(&lease(&datastore, "a").await);
        // A retry of the same caller.
        assert_eq!(number(&lease(&datastore, "a").await), first);
        let held = lease(&datastore, "b").await;
        assert_eq!(held.status, 423);
        assert!(held.text().contains("a@machine") && held.text().contains("apply-1/0"), "{held:?}");
        let outside = lock(&datastore, STATE, "x").await;
        assert_eq!((outside.status, outside.json()["Who"].as_str()), (423, Some("a@machine")));
        assert_eq!(post(&datastore, STATE, &document("l", 1, "a")).await, 423);
        let fenced = format!("{STATE}?fence={first}");
        assert_eq!(lock(&datastore, &fenced, "x").await.status, 200);
        assert_eq!(post(&datastore, &format!("{fenced}&ID=x"), &document("l", 1, "a")).await, 200);
        // By its lock alone it is known as well.
        assert_eq!(post(&datastore, &format!("{STATE}?ID=x"), &document("l", 2, "a")).await, 200);
        assert_eq!(unlock(&datastore, &fenced, "x").await.status, 200);
        let shown = of(&datastore, "GET", LEASE, "").await.json();
        assert_eq!((&shown["holder"], &shown["valid"]), (&json!("a"), &json!(true)));
        for _ in 0..2 {
            assert_eq!(of(&datastore, "DELETE", &format!("{LEASE}?id=a"), "").await.status, 200);
        }
        assert_eq!(of(&datastore, "PUT", &format!("{LEASE}?id=a"), "").await.status, 409);
        let second = number(&lease(&datastore, "b").await);
        assert!(second > first);
        // The first one's number is worth nothing any more.
        assert_eq!(post(&datastore, &fenced, &document("l", 3, "a")).await, 409);
        assert_eq!(of(&datastore, "DELETE", &format!("{LEASE}?id=a"), "").await.status, 200);
        assert_eq!(lease(&datastore, "c").await.status, 423);
    }
}

#[tokio::test]
async fn a_lease_is_refused_while_another_locks_a_state() {
    let datastore = TestDatastore::memory().await;
    assert_eq!(lock(&datastore, &format!("{STATE}/blue"), "person").await.status, 200);
    let refused = lease(&datastore, "a").await;
    assert_eq!((refused.status, refused.json()["ID"].as_str()), (423, Some("person")));
    assert_eq!(unlock(&datastore, &format!("{STATE}/blue"), "person").await.status, 200);
    assert_eq!(lease(&datastore, "a").await.status, 200);
}

#[tokio::test]
async fn an_expired_lease_counts_until_another_takes_over() {
    for take_over in [false, true] {
        let datastore = hasty(Storage::Memory).await;
        let first = number(&lease(&datastore, "a").await);
        let fenced = format!("{STATE}?fence={first}");
        assert_eq!(lock(&datastore, &fenced, "x").await.status, 200);
        assert_eq!(post(&datastore, &format!("{fenced}&ID=x"), &document("l", 1, "a")).await, 200);
        expiry().await;
        if take_over {
            let granted = lease(&datastore, "b").await.json();
            assert!(
                granted["lease"]["took_over"].as_str().unwrap().contains("a on machine"),
                "{granted}"
            );
            // The lock of the dead stays, and names it.
            let second = granted["lease"]["number"].as_u64().unwrap();
            let held = lock(&datastore, &format!("{STATE}?fence={second}"), "y").await;
            assert_eq!((held.status, held.json()["ID"].as_str()), (423, Some("x")));
            assert_eq!(held.json()["fence"], first);
            let late =
                of(&datastore, "POST", &format!("{fenced}&ID=x"), &document("l", 2, "late")).await;
            assert_eq!(late.status, 409, "{late:?}");
            assert_eq!(of(&datastore, "PUT", &format!("{LEASE}?id=a"), "").await.status, 409);
            let rejected = versions(&datastore, "&kind=rejected").await;
            assert_eq!(rejected["versions"][0]["serial"], 2, "{rejected}");
            assert_eq!(rejected["head"]["version"]["serial"], 1);
            // The new holder may remove it by its ID.
            assert_eq!(unlock(&datastore, STATE, "x").await.status, 200);
            assert_eq!(lock(&datastore, &format!("{STATE}?fence={second}"), "y").await.status, 200);
        } else {
            assert_eq!(
                post(&datastore, &format!("{fenced}&ID=x"), &document("l", 2, "late")).await,
                200
            );
            let renewed = of(&datastore, "PUT", &format!("{LEASE}?id=a"), "").await;
            assert_eq!(renewed.json()["lease"]["valid"], true);
        }
    }
}

#[tokio::test]
async fn a_lock_without_a_number_ends_an_expired_lease() {
    let datastore = hasty(Storage::Memory).await;
    let first = number(&lease(&datastore, "a").await);
    expiry().await;
    assert_eq!(lock(&datastore, STATE, "person").await.status, 200);
    assert_eq!(of(&datastore, "PUT", &format!("{LEASE}?id=a"), "").await.status, 409);
    assert_eq!(
        post(&datastore, &format!("{STATE}?fence={first}"), &document("l", 1, "a")).await,
        409
    );
    assert_eq!(post(&datastore, &format!("{STATE}?ID=person"), &document("l", 1, "a")).await, 200);
    assert_eq!(unlock(&datastore, STATE, "person").await.status, 200);
    assert!(number(&lease(&datastore, "b").await) > first + 1);
}

#[tokio::test]
async fn a_lock_is_not_forced_open_while_its_holders_lease_is_valid() {
    let datastore = hasty(Storage::Memory).await;
    let first = number(&lease(&datastore, "a").await);
    assert_eq!(lock(&datastore, &format!("{STATE}?fence={first}"), "x").await.status, 200);
    assert_eq!(of(&datastore, "UNLOCK", STATE, "").await.status, 409);
    // tofu sends the ID.
    let refused = unlock(&datastore, STATE, "x").await;
    assert!(refused.status == 409 && refused.text().contains("a on machine"), "{refused:?}");
    let other = format!("{STATE}?fence={}", first + 1);
    assert_eq!(unlock(&datastore, &other, "x").await.status, 409);
    let locked = versions(&datastore, "").await["head"]["lock"]["ID"].clone();
    assert_eq!(locked, "x");
    assert_eq!(unlock(&datastore, &format!("{STATE}?fence={first}"), "x").await.status, 200);
    assert_eq!(lock(&datastore, &format!("{STATE}?fence={first}"), "y").await.status, 200);
    // An operator may.
    let remove = "states/unlock?namespace=team-a&layer=network&id=y";
    assert_eq!(post(&datastore, remove, "").await, 200);
    assert_eq!(lock(&datastore, &format!("{STATE}?fence={first}"), "z").await.status, 200);
    expiry().await;
    assert_eq!(of(&datastore, "UNLOCK", STATE, "").await.status, 200);
}

/// A datastore, the token of a caller that may use states and leases, and one of a caller that may use leases only.
async fn guarded() -> (TestDatastore, String, String) {
    use datastore::{Auth, Callers, Policy, Verb};

    let (token, rule) = crate::access::authentication::token(
        "ci",
        &["team-*"],
        &["state", "lease"],
        &[Verb::Read, Verb::Write],
    );
    let (poor, poor_rule) = crate::access::authentication::token(
        "poor",
        &["team-a"],
        &["lease"],
        &[Verb::Read, Verb::Write],
    );
    let mut policy = Policy::default();
    policy.add(&rule).unwrap();
    policy.add(&poor_rule).unwrap();
    let callers = Callers { tokens: true, policy, ..Callers::default() };
    (TestDatastore::guarded(Auth::Callers(Box::new(callers))).await, token, poor)
}

#[tokio::test]
async fn a_caller_without_the_state_gets_no_credential() {
    let (datastore, _, poor) = guarded().await;
    let body = json!({"holder": "a", "host": "machine", "run": null}).to_string();
    let rest = format!("{LEASE}?id=poor&workspace=default");
    let granted =
        send(request(&datastore, Method::POST, &rest).bearer_auth(&poor).body(body)).await;
    assert_eq!((granted.status, &granted.json()["credential"]), (200, &json!(null)));
}

#[tokio::test]
async fn a_credential_opens_one_state_until_its_lease_ends() {
    let (datastore, token, _) = guarded().await;
    let body = json!({"holder": "a", "host": "machine", "run": null}).to_string();
    let asked = async |method: &str, rest: &str, token: &str, body: &str| {
        let request = request(&datastore, Method::from_bytes(method.as_bytes()).unwrap(), rest);
        send(request.basic_auth("plancha", Some(token)).body(body.to_owned())).await
    };
    let take = async |id: &str, token: &str| {
        let rest = format!("{LEASE}?id={id}&workspace=default");
        send(request(&datastore, Method::POST, &rest).bearer_auth(token).body(body.clone())).await
    };
    let granted = take("a", &token).await.json();
    let credential = granted["credential"].as_str().unwrap();
    let fenced = format!("{STATE}?fence={}", granted["lease"]["number"]);
    assert_eq!(
        asked("LOCK", &fenced, credential, &super::documents::lock_info("x")).await.status,
        200
    );
    assert_eq!(
        asked("POST", &format!("{fenced}&ID=x"), credential, &document("l", 1, "a")).await.status,
        200
    );
    assert_eq!(asked("GET", STATE, credential, "").await.status, 200);
    // The token of a caller is a password, too.
    assert_eq!(asked("GET", STATE, &token, "").await.status, 200);
    for (method, rest, status) in [
        ("GET", "state/team-a/other", 401),
        ("GET", "state/team-b/network", 401),
        ("GET", "state/team-a/network/blue", 401),
        ("GET", "state/team-a/network?namespace=team-a", 401),
        ("DELETE", STATE, 403),
        ("POST", "state/team-a/network?force=true", 403),
        ("GET", "states?namespace=team-a&layer=other", 401),
        ("GET", LEASE, 401),
        ("POST", "leases/team-a/network?id=x", 401),
        ("DELETE", "leases/team-a/network?id=a", 401),
        ("PUT", "leases/team-a/other?id=a", 401),
        ("GET", "runs?namespace=team-a&layer=network", 401),
    ] {
        let answer = asked(method, rest, credential, "").await;
        assert_eq!(answer.status, status, "{method} {rest}: {answer:?}");
        assert!(!answer.text().contains(credential));
        assert!(!answer.text().contains("PLANCHA_POLICY"), "{answer:?}");
    }
    // terraform's `force-unlock` names no lock. The one of the lease is meant.
    assert_eq!(asked("UNLOCK", STATE, credential, "").await.status, 200);
    let next = super::documents::lock_info("y");
    assert_eq!(asked("LOCK", &fenced, credential, &next).await.status, 200, "x is free");
    let rest = format!("{LEASE}?id=a");
    // It outlives the token of the runner, which has to renew the lease.
    assert_eq!(asked("PUT", &rest, credential, "").await.status, 200);
    assert_eq!(
        asked("GET", "states?namespace=team-a&layer=network", credential, "").await.status,
        200
    );
    assert_eq!(
        send(request(&datastore, Method::DELETE, &rest).bearer_auth(&token)).await.status,
        200
    );
    assert_eq!(asked("GET", STATE, credential, "").await.status, 401);
    let stored =
        std::fs::read_to_string(datastore.root().join(".plancha/states/team-a/network/control"))
            .unwrap();
    assert!(!stored.contains(credential));
}

#[tokio::test]
async fn a_credential_has_the_number_of_its_lease() {
    let datastore = hasty(Storage::Memory).await;
    let asked = async |method: &str, rest: &str, credential: &str, body: &str| {
        let request = request(&datastore, Method::from_bytes(method.as_bytes()).unwrap(), rest);
        send(request.basic_auth("plancha", Some(credential)).body(body.to_owned())).await
    };
    let first = lease(&datastore, "a").await;
    let granted = first.json();
    let credential = granted["credential"].as_str().unwrap();
    let info = super::documents::lock_info("x");
    assert_eq!(asked("LOCK", STATE, "another password", &info).await.status, 423);
    assert_eq!(asked("LOCK", STATE, credential, &info).await.status, 200);
    let written = asked("POST", &format!("{STATE}?ID=x"), credential, &document("l", 1, "a")).await;
    assert_eq!(written.status, 200, "{written:?}");
    assert_eq!(versions(&datastore, "").await["versions"][0]["fence"], number(&first));
    expiry().await;
    let second = number(&lease(&datastore, "b").await);
    // Another number in the address does not help.
    for rest in [format!("{STATE}?ID=x"), format!("{STATE}?ID=x&fence={second}")] {
        assert_eq!(of(&datastore, "PUT", &format!("{LEASE}?id=b"), "").await.status, 200);
        assert_eq!(asked("GET", STATE, credential, "").await.status, 200);
        let late = asked("POST", &rest, credential, &document("l", 2, "late")).await;
        assert_eq!(late.status, 409, "{late:?}");
    }
    let rejected = versions(&datastore, "&kind=rejected").await;
    assert_eq!(rejected["versions"][0]["fence"], number(&first));
    assert!(rejected["versions"][0]["reason"].as_str().unwrap().contains("b on machine"));
    let renewed = asked("PUT", &format!("{LEASE}?id=a"), credential, "").await;
    assert_eq!(renewed.status, 409, "{renewed:?}");
}

#[tokio::test]
async fn a_lock_tells_when_its_lease_has_ended_and_whose_it_was() {
    for release in [false, true] {
        let datastore = hasty(Storage::Memory).await;
        let first = number(&lease(&datastore, "a").await);
        assert_eq!(lock(&datastore, &format!("{STATE}?fence={first}"), "x").await.status, 200);
        let head = async || versions(&datastore, "").await["head"].clone();
        assert_eq!(head().await["lock"]["ended"], json!(null));
        if release {
            let released = of(&datastore, "DELETE", &format!("{LEASE}?id=a"), "").await;
            assert_eq!(released.status, 200);
        } else {
            expiry().await;
            assert_eq!(lease(&datastore, "b").await.status, 200);
            assert_eq!(of(&datastore, "DELETE", &format!("{LEASE}?id=b"), "").await.status, 200);
        }
        assert_eq!(lease(&datastore, "c").await.status, 200);
        let locked = head().await["lock"].clone();
        let ended: jiff::Timestamp = locked["ended"].as_str().unwrap().parse().unwrap();
        assert!(ended <= jiff::Timestamp::now(), "{locked}");
        let holder = locked["holder"].as_str().unwrap();
        assert!(holder.starts_with("a on machine for the run apply-1/0"), "{holder}");
    }
}

#[tokio::test]
async fn a_lock_that_was_removed_already_is_removed_again_beside_another_lock() {
    let datastore = TestDatastore::memory().await;
    for turn in 0..10 {
        assert_eq!(lock(&datastore, STATE, &format!("l{turn}")).await.status, 200);
        assert_eq!(unlock(&datastore, STATE, &format!("l{turn}")).await.status, 200);
    }
    assert_eq!(lock(&datastore, STATE, "other").await.status, 200);
    for (id, status) in [("l9", 200), ("l2", 200), ("l1", 409), ("x", 409)] {
        assert_eq!(unlock(&datastore, STATE, id).await.status, status, "{id}");
    }
    assert_eq!(versions(&datastore, "").await["head"]["lock"]["ID"], "other");
}

#[tokio::test]
async fn a_write_under_a_lease_has_the_run_of_the_lease() {
    let datastore = hasty(Storage::Memory).await;
    let granted = lease(&datastore, "a").await;
    let (first, granted) = (number(&granted), granted.json());
    let credential = granted["credential"].as_str().unwrap();
    let by_credential = async |rest: &str, body: String| {
        let request = request(&datastore, Method::POST, rest);
        send(request.basic_auth("plancha", Some(credential)).body(body)).await.status
    };
    let run = async |kind: &str| {
        versions(&datastore, &format!("&kind={kind}")).await["versions"][0]["run"].clone()
    };
    assert_eq!(
        post(&datastore, &format!("{STATE}?fence={first}"), &document("l", 1, "a")).await,
        200
    );
    assert_eq!(run("head").await, "apply-1/0");
    assert_eq!(by_credential(STATE, document("l", 2, "a")).await, 200);
    assert_eq!(run("head").await, "apply-1/0");
    let named = format!("{STATE}?fence={first}&run=other/1");
    assert_eq!(post(&datastore, &named, &document("l", 3, "a")).await, 200);
    assert_eq!(run("head").await, "other/1");
    assert_eq!(by_credential(STATE, document("l", 2, "late")).await, 409);
    assert_eq!(run("rejected").await, "apply-1/0");
    expiry().await;
    number(&lease(&datastore, "b").await);
    assert_eq!(by_credential(STATE, document("l", 4, "later")).await, 409);
    assert_eq!(run("rejected").await, "apply-1/0");
    let unnumbered = format!("{STATE}?fence=99");
    assert_eq!(post(&datastore, &unnumbered, &document("l", 4, "x")).await, 409);
    assert_eq!(run("rejected").await, json!(null));
}

/// A gateway may give the same answer for a moment. Only a second request shows which of the two it is.
#[tokio::test]
async fn a_gateways_404_is_not_the_word_of_a_datastore_without_leases() {
    let datastore = TestDatastore::memory().await;
    let [namespace, layer] = ["team-a", "network"].map(|name| name.parse().unwrap());
    let tool = LayerTool { name: "tofu".to_owned(), version: "1.10.5".to_owned() };
    let tool = ToolRecord { tool, migrations: BTreeMap::new() };
    let client = |url: &Url| {
        let first_pause = Duration::from_millis(1);
        Client::new(Settings { first_pause, ..Settings::new(url.clone()) }).unwrap()
    };
    client(&datastore.url).put_layer_tool(&namespace, &layer, &tool).await.unwrap();
    let request = LeaseRequest { holder: "a".to_owned(), host: "machine".to_owned(), run: None };
    let faults = |times| {
        ["GET", "POST"].map(|method| Fault { method, part: "/api/", status: GATEWAY, times })
    };
    let id = "a".parse().unwrap();
    let proxy = FaultyDatastore::before(&datastore.url, faults(2).to_vec()).await;
    let sick = client(&proxy.url);
    let lease = sick.take_lease(&namespace, &layer, None, &id, &request).await.unwrap();
    assert!(matches!(lease, LeaseAnswer::Granted(_)), "{lease:?}");
    assert_eq!(sick.layer_tool(&namespace, &layer).await.unwrap(), Some(tool));
    proxy.set_faults(faults(usize::MAX).to_vec());
    for error in [
        sick.take_lease(&namespace, &layer, None, &id, &request).await.map(drop).unwrap_err(),
        sick.layer_tool(&namespace, &layer).await.map(drop).unwrap_err(),
        sick.lease(&namespace, &layer).await.map(drop).unwrap_err(),
    ] {
        assert_eq!(error.status().unwrap(), 404, "{error}");
    }
}

#[tokio::test]
async fn the_number_of_a_lease_counts_only_for_the_caller_that_has_taken_it() {
    use datastore::{Auth, Callers, Policy, Verb};

    let mut policy = Policy::default();
    let mut caller = |name: &str| {
        let verbs = [Verb::Read, Verb::Write];
        let (token, rule) =
            crate::access::authentication::token(name, &["team-a"], &["state", "lease"], &verbs);
        policy.add(&rule).unwrap();
        token
    };
    let (holder, other) = (caller("holder"), caller("other"));
    let callers = Callers { tokens: true, policy, ..Callers::default() };
    let datastore = TestDatastore::guarded(Auth::Callers(Box::new(callers))).await;
    let asked = async |token: &str, method: &str, rest: &str, body: String| {
        let request = request(&datastore, Method::from_bytes(method.as_bytes()).unwrap(), rest);
        send(request.basic_auth("plancha", Some(token)).body(body)).await
    };
    let body = json!({"holder": "a", "host": "machine", "run": null}).to_string();
    let rest = format!("{LEASE}?id=a&workspace=default");
    let granted =
        send(request(&datastore, Method::POST, &rest).bearer_auth(&holder).body(body)).await;
    let (granted, first) = (granted.json(), number(&granted));
    let credential = granted["credential"].as_str().unwrap();
    let fenced = format!("{STATE}?fence={first}");
    let info = || super::documents::lock_info("x");
    let refused = asked(&other, "LOCK", &fenced, info()).await;
    assert!(refused.status == 423 && refused.json()["Who"] == "a@machine", "{refused:?}");
    assert_eq!(asked(&other, "POST", &fenced, document("l", 1, "o")).await.status, 423);
    assert_eq!(asked(credential, "LOCK", &fenced, info()).await.status, 200);
    for rest in [format!("{fenced}&ID=x"), format!("{STATE}?ID=x")] {
        let refused = asked(&other, "POST", &rest, document("l", 1, "o")).await;
        assert_eq!(refused.status, 423, "{refused:?}");
    }
    assert_eq!(asked(&other, "LOCK", &fenced, info()).await.status, 423);
    assert_eq!(asked(&other, "UNLOCK", &fenced, info()).await.status, 409);
    for (token, serial) in [(&*holder, 1), (credential, 2)] {
        let rest = format!("{fenced}&ID=x");
        assert_eq!(asked(token, "POST", &rest, document("l", serial, "h")).await.status, 200);
    }
    assert_eq!(asked(credential, "UNLOCK", STATE, info()).await.status, 200);
}
