//! `/api/approvals`: a set of destructive changes is offered, and approved once.

use std::time::{Duration, SystemTime};

use datastore::{Auth, Callers, Policy, Verb};
use datastore_api::approval::{RunAttempt, approval_digest};
use datastore_api::client::{ApprovalAnswer, Settings};
use datastore_api::{ClaimId, Client, ClientError, Name, Sha256};
use futures::future::join_all;
use jiff::Timestamp;
use reqwest::Method;
use serde_json::{Value, json};
use support::{Dialect, FakeCloud, Fault, FaultyDatastore, LOST, TestDatastore};
use url::Url;

use crate::access::authentication::{asked, token};
use crate::http::{Answer, files, get, refusals, request, send};
use crate::program::process::program;

const LAYER: &str = "namespace=team-a&layer=network";

fn set() -> Sha256 {
    Sha256::of(b"set")
}

async fn offered(datastore: &TestDatastore, set: Sha256, more: &str) -> Value {
    let rest = format!("approvals?{LAYER}&set={set}&run=check-1/0{more}");
    let answer = send(request(datastore, Method::POST, &rest)).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    answer.json()
}

async fn claimed(datastore: &TestDatastore, approval: Sha256, set: Sha256, claim: &str) -> Answer {
    let rest = format!(
        "approvals/claim?{LAYER}&approval={approval}&set={set}&claim={claim}&run=apply-{claim}/0"
    );
    send(request(datastore, Method::POST, &rest)).await
}

fn time(value: &Value) -> Timestamp {
    value.as_str().unwrap().parse().unwrap()
}

fn client(url: &Url) -> Client {
    let first_pause = Duration::from_millis(1);
    Client::new(Settings { first_pause, ..Settings::new(url.clone()) }).unwrap()
}

fn layer() -> [Name; 2] {
    ["team-a", "network"].map(|name| name.parse().unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_offer_is_stored_once_and_used_once_over_every_storage() {
    for datastore in TestDatastore::each().await {
        let first = offered(&datastore, set(), "").await;
        assert_eq!(first["approval"], set().to_string());
        let lifetime = time(&first["expires"]).duration_since(time(&first["first_stored"]));
        assert_eq!(lifetime.as_hours(), 24);
        // Its lifetime is that of the first request.
        assert_eq!(offered(&datastore, set(), "&lifetime_seconds=60").await, first);
        for _ in 0..2 {
            let granted = claimed(&datastore, set(), set(), "a").await;
            assert_eq!(granted.status, 200, "{granted:?}");
            assert_eq!(granted.json()["run"], "apply-a/0");
            assert_eq!(granted.json()["approved_by"], json!(null));
        }
        let refused = claimed(&datastore, set(), set(), "b").await;
        assert_eq!(refused.status, 409);
        assert_eq!(refused.json()["used"]["run"], "apply-a/0");
        assert!(refused.text().contains("was used at"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn no_digest_approves_twice() {
    for datastore in TestDatastore::each().await {
        let mut digests = Vec::new();
        for generation in 0..4 {
            let offer = offered(&datastore, set(), "").await;
            let approval = approval_digest(set(), generation);
            assert_eq!(offer["approval"], approval.to_string());
            let claim = format!("c{generation}");
            assert_eq!(claimed(&datastore, approval, set(), &claim).await.status, 200);
            digests.push(approval);
            for old in &digests {
                assert_eq!(claimed(&datastore, *old, set(), "late").await.status, 409);
            }
        }
        let listed = get(&datastore, &format!("approvals?{LAYER}")).await.json();
        let listed = listed["approvals"].as_array().unwrap();
        let of = |key: &str| listed.iter().map(|one| one[key].clone()).collect::<Vec<_>>();
        assert_eq!(of("generation"), [3, 2, 1, 0]);
        assert_eq!(of("run"), ["check-1/0"; 4]);
        assert_eq!(listed[0]["used"]["run"], "apply-c3/0");
        let newest = get(&datastore, &format!("approvals?{LAYER}&limit=1")).await.json();
        assert_eq!(newest["approvals"].as_array().unwrap()[..], listed[..1]);
        let other = "approvals?namespace=team-a&layer=other";
        let none = json!({"approvals": [], "unreadable": []});
        assert_eq!(get(&datastore, other).await.json(), none);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unknown_an_expired_and_a_foreign_approval_are_refused() {
    for datastore in TestDatastore::each().await {
        let (unknown, other) = (Sha256::of(b"unknown"), Sha256::of(b"other"));
        let refused = claimed(&datastore, unknown, unknown, "a").await;
        assert_eq!((refused.status, &refused.json()["unknown"]), (404, &json!(true)));
        offered(&datastore, other, "").await;
        let refused = claimed(&datastore, other, set(), "a").await;
        assert_eq!((refused.status, &refused.json()["set"]), (409, &json!(other)));
        // The digest of a generation that is not offered yet.
        let early = claimed(&datastore, approval_digest(other, 1), other, "a").await;
        assert_eq!(early.status, 404);

        let short = offered(&datastore, set(), "&lifetime_seconds=1").await;
        tokio::time::sleep(Duration::from_millis(2100)).await;
        let expired = claimed(&datastore, set(), set(), "a").await;
        assert_eq!((expired.status, &expired.json()["expired"]), (410, &short["expires"]));
        let next = offered(&datastore, set(), "").await;
        assert_eq!(next["approval"], approval_digest(set(), 1).to_string());
        assert_eq!(claimed(&datastore, set(), set(), "a").await.status, 410);
        assert_eq!(claimed(&datastore, approval_digest(set(), 1), set(), "a").await.status, 200);
        let used = get(&datastore, &format!("approvals?{LAYER}")).await.text();
        assert_eq!(used.matches("\"at\"").count(), 1, "{used}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn one_of_16_claims_wins_on_every_backend() {
    let careless = FakeCloud::start(Dialect::S3);
    careless.ignore_conditions();
    let mut datastores = TestDatastore::each().await;
    datastores.push(TestDatastore::over(careless).await);
    for datastore in datastores {
        let offers = join_all((0..16).map(|_| offered(&datastore, set(), ""))).await;
        assert!(offers.iter().all(|offer| *offer == offers[0]), "{offers:?}");
        let ids = (0..16).map(|number| format!("c{number}")).collect::<Vec<_>>();
        let answers = join_all(ids.iter().map(|id| claimed(&datastore, set(), set(), id))).await;
        one_of(&answers);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn one_of_16_claims_by_two_replicas_wins() {
    for [datastore, other] in TestDatastore::replicas().await {
        for replica in [&datastore, &other] {
            let _started = get(replica, "runs?namespace=a&layer=b").await;
        }
        let of = |number: usize| if number.is_multiple_of(2) { &datastore } else { &other };
        for generation in 0..3 {
            let offers = join_all((0..16).map(|number| offered(of(number), set(), ""))).await;
            assert!(offers.iter().all(|offer| *offer == offers[0]), "{offers:?}");
            let approval = approval_digest(set(), generation);
            assert_eq!(offers[0]["approval"], approval.to_string());
            let ids = (0..16).map(|number| format!("c{generation}-{number}")).collect::<Vec<_>>();
            let claims = ids.iter().enumerate();
            let claims = claims.map(|(number, id)| claimed(of(number), approval, set(), id));
            one_of(&join_all(claims).await);
        }
    }
}

/// One answer of these is 200, and the others name it.
fn one_of(answers: &[Answer]) {
    let granted = answers.iter().filter(|answer| answer.status == 200).collect::<Vec<_>>();
    assert_eq!(granted.len(), 1, "{answers:?}");
    let run = &granted[0].json()["run"];
    for refused in answers.iter().filter(|answer| answer.status != 200) {
        assert_eq!((refused.status, &refused.json()["used"]["run"]), (409, run));
    }
}

#[tokio::test]
async fn the_caller_is_recorded_as_authentication_knows_it() {
    let mut policy = Policy::default();
    let [check, person, reader] =
        [("check", Verb::Write), ("person", Verb::Write), ("reader", Verb::Read)].map(
            |(id, verb)| {
                let (secret, rule) = token(id, &["team-a"], &["artifact"], &[verb, Verb::List]);
                policy.add(&rule).unwrap();
                secret
            },
        );
    let callers = Callers { tokens: true, policy, ..Callers::default() };
    let datastore = TestDatastore::guarded(Auth::Callers(Box::new(callers))).await;
    let offer = format!("approvals?{LAYER}&set={}&run=check-1/0", set());
    let claim = format!("approvals/claim?{LAYER}&set={0}&approval={0}&claim=c&run=r/0", set());
    for url in [&offer, &claim] {
        assert_eq!(asked(&datastore, Method::POST, url, &reader).await.status, 403);
    }
    assert_eq!(asked(&datastore, Method::POST, &offer, &check).await.status, 200);
    let granted = asked(&datastore, Method::POST, &claim, &person).await.json();
    assert_eq!(granted["approved_by"], "token person");
    let listed =
        asked(&datastore, Method::GET, &format!("approvals?{LAYER}"), &reader).await.json();
    assert_eq!(listed["approvals"][0]["offered_by"], "token check");
    assert_eq!(listed["approvals"][0]["used"]["approved_by"], "token person");
}

#[tokio::test]
async fn a_damaged_use_or_offer_approves_nothing() {
    for part in ["offer", "used"] {
        let datastore = TestDatastore::temporary().await;
        offered(&datastore, set(), "").await;
        if part == "used" {
            assert_eq!(claimed(&datastore, set(), set(), "a").await.status, 200);
        }
        let path = format!(".plancha/approvals/team-a/network/{}/0/{part}", set());
        std::fs::write(datastore.root().join(&path), "{}").unwrap();
        assert_eq!(claimed(&datastore, set(), set(), "b").await.status, 500);
        let offer = format!("approvals?{LAYER}&set={}&run=check-1/0", set());
        assert_eq!(send(request(&datastore, Method::POST, &offer)).await.status, 500);
    }
}

#[tokio::test]
async fn refusals_are_problem_documents() {
    let set = set();
    let requests = [
        format!("POST approvals?{LAYER}&set={set}"),
        format!("POST approvals?{LAYER}&set={set}&run=r"),
        format!("POST approvals?{LAYER}&set={set}&run=r/0&lifetime_seconds=2592001"),
        format!("POST approvals/claim?{LAYER}&set={set}&approval={set}&run=r/0"),
        format!("POST approvals/claim?{LAYER}&set={set}&approval={set}&run=r/0&claim=c"),
        "GET approvals?namespace=a".to_owned(),
    ];
    insta::assert_snapshot!(refusals(&requests.each_ref().map(String::as_str)).await);
}

/// Makes everything below a directory so old.
fn age(datastore: &TestDatastore, path: &str, days: u64) {
    let modified = SystemTime::now() - Duration::from_hours(days * 24);
    let path = datastore.root().join(path);
    for file in files(&path) {
        let file = std::fs::File::options().write(true).open(path.join(file)).unwrap();
        file.set_modified(modified).unwrap();
    }
}

#[tokio::test]
async fn gc_removes_old_approvals_and_no_old_digest_becomes_valid_again() {
    let datastore = TestDatastore::temporary().await;
    let lone = Sha256::of(b"lone");
    for generation in 0..3 {
        offered(&datastore, set(), "").await;
        let approval = approval_digest(set(), generation);
        assert_eq!(claimed(&datastore, approval, set(), "a").await.status, 200);
    }
    offered(&datastore, lone, "").await;
    let directory = format!(".plancha/approvals/team-a/network/{}", set());
    age(&datastore, ".plancha/approvals", 100);
    age(&datastore, &format!("{directory}/1"), 59);
    let left = || {
        let left = files(&datastore.root().join(".plancha/approvals/team-a/network"));
        left.iter().map(|path| path.display().to_string()).collect::<Vec<_>>()
    };
    let gc = |flags: &[&str]| {
        let storage = format!("file://{}", datastore.root().display());
        let output = program(&["gc", "--storage", &storage]).args(flags).output().unwrap();
        assert!(output.status.success(), "{output:?}");
    };
    let before = left();
    gc(&["--keep-runs", "1", "--dry-run"]);
    assert_eq!(left(), before);
    gc(&["--keep-runs", "1"]);
    let mut expected =
        ["1/offer", "1/used", "2/offer", "2/used"].map(|file| format!("{}/{file}", set())).to_vec();
    expected.push(format!("{lone}/0/offer"));
    expected.sort();
    assert_eq!(left(), expected);
    let digests = files(&datastore.root().join(".plancha/sha256/.plancha/approvals"));
    assert_eq!(digests.len(), 5, "a digest goes with its object: {digests:?}");
    // The old digests are refused, and the next offer has a new one.
    assert_eq!(claimed(&datastore, set(), set(), "b").await.status, 404);
    assert_eq!(claimed(&datastore, approval_digest(set(), 2), set(), "b").await.status, 409);
    let next = offered(&datastore, set(), "").await;
    assert_eq!(next["approval"], approval_digest(set(), 3).to_string());
}

#[tokio::test]
async fn an_approval_whose_use_is_lost_approves_nothing() {
    for lost in ["0/used", "0"] {
        let datastore = TestDatastore::temporary().await;
        offered(&datastore, set(), "").await;
        assert_eq!(claimed(&datastore, set(), set(), "a").await.status, 200);
        let of_set = format!(".plancha/approvals/team-a/network/{}", set());
        let path = datastore.root().join(of_set).join(lost);
        if path.is_dir() {
            std::fs::remove_dir_all(path).unwrap();
        } else {
            std::fs::remove_file(path).unwrap();
            let refused = claimed(&datastore, set(), set(), "b").await;
            assert_eq!(refused.status, 500, "{refused:?}");
            assert!(refused.text().contains("its file is gone"), "{refused:?}");
        }
        let rest = format!("approvals?{LAYER}&set={}&run=check-1/0", set());
        let refused = send(request(&datastore, Method::POST, &rest)).await;
        assert_eq!(refused.status, 500, "{lost}: {refused:?}");
        assert_ne!(claimed(&datastore, set(), set(), "b").await.status, 200, "{lost}");
    }
}

#[tokio::test]
async fn a_damaged_or_lost_approval_hides_no_other_from_a_listing() {
    let datastore = TestDatastore::temporary().await;
    let [damaged, lost, intact] =
        ["damaged", "lost", "intact"].map(|set| Sha256::of(set.as_bytes()));
    for set in [damaged, lost, intact] {
        offered(&datastore, set, "").await;
        assert_eq!(claimed(&datastore, set, set, "a").await.status, 200);
    }
    let of_layer = datastore.root().join(".plancha/approvals/team-a/network");
    std::fs::write(of_layer.join(format!("{damaged}/0/offer")), "{}").unwrap();
    std::fs::remove_file(of_layer.join(format!("{lost}/0/used"))).unwrap();
    let listed = get(&datastore, &format!("approvals?{LAYER}")).await;
    assert_eq!(listed.status, 200, "{listed:?}");
    let listed = listed.json();
    assert_eq!(listed["approvals"].as_array().unwrap().len(), 1, "{listed}");
    assert_eq!(listed["approvals"][0]["set"], intact.to_string());
    let unreadable = listed["unreadable"].as_array().unwrap();
    assert_eq!(unreadable.len(), 2, "{listed}");
    for (set, expected) in [(damaged, "/0/offer` no longer has"), (lost, "/0/used` is missing")] {
        let found = unreadable.iter().find(|offer| offer["set"] == set.to_string()).unwrap();
        assert_eq!((&found["approval"], &found["generation"]), (&found["set"], &json!(0)));
        assert!(found["reason"].as_str().unwrap().contains(expected), "{found}");
    }
}

#[tokio::test]
async fn the_client_offers_and_claims() {
    let [namespace, layer] = layer();
    let run = "check-1/0".parse::<RunAttempt>().unwrap();
    let [ours, theirs] = ["ours", "theirs"].map(|id| id.parse::<ClaimId>().unwrap());
    for datastore in TestDatastore::each().await {
        // A lost answer does no harm.
        let lost = Fault { method: "POST", part: "/api/approvals", status: LOST, times: 1 };
        let proxy = FaultyDatastore::before(&datastore.url, vec![lost]).await;
        let client = client(&proxy.url);
        let claim = async |approval, set, id| {
            client.claim_approval(&namespace, &layer, approval, set, id, &run).await.unwrap()
        };
        assert_eq!(claim(set(), set(), &ours).await, ApprovalAnswer::Unknown);
        let offer =
            client.offer_approval(&namespace, &layer, set(), &run, Some(600)).await.unwrap();
        assert_eq!(offer.approval, set());
        let other = Sha256::of(b"other");
        assert_eq!(claim(set(), other, &ours).await, ApprovalAnswer::OtherSet { set: set() });
        let granted = claim(set(), set(), &ours).await;
        assert!(matches!(granted, ApprovalAnswer::Granted { by: None, .. }), "{granted:?}");
        assert_eq!(claim(set(), set(), &ours).await, granted);
        let used = claim(set(), set(), &theirs).await;
        assert!(
            matches!(&used, ApprovalAnswer::Used { run, .. } if run == "check-1/0"),
            "{used:?}"
        );
        client.offer_approval(&namespace, &layer, other, &run, Some(1)).await.unwrap();
        tokio::time::sleep(Duration::from_millis(2100)).await;
        let expired = claim(other, other, &ours).await;
        assert!(matches!(expired, ApprovalAnswer::Expired { .. }), "{expired:?}");
        assert_eq!(client.approvals(&namespace, &layer).await.unwrap().approvals.len(), 2);
    }
}

#[tokio::test]
async fn a_datastore_without_approvals_is_recognised() {
    let datastore = TestDatastore::memory().await;
    let [namespace, layer] = layer();
    let (run, id) = ("r/0".parse().unwrap(), "c".parse().unwrap());
    let older = datastore.url.join("older/").unwrap();
    let burritos = FaultyDatastore::burritos(&datastore.url).await;
    for url in [&older, &burritos.url] {
        let client = client(url);
        let claim = client.claim_approval(&namespace, &layer, set(), set(), &id, &run).await;
        assert_eq!(claim.unwrap(), ApprovalAnswer::Unsupported);
        let offer = client.offer_approval(&namespace, &layer, set(), &run, None).await;
        assert!(matches!(offer, Err(ClientError::Unsupported { .. })), "{offer:?}");
    }
    // What a proxy says for a moment is not the datastore's word.
    let sick = Fault { method: "POST", part: "/api/approvals", status: 404, times: 2 };
    let proxy = FaultyDatastore::before(&datastore.url, vec![sick]).await;
    let client = client(&proxy.url);
    let claim = client.claim_approval(&namespace, &layer, set(), set(), &id, &run);
    assert_eq!(claim.await.unwrap(), ApprovalAnswer::Unknown);
}
