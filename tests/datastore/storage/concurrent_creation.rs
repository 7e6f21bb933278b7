//! Concurrent creations of one object: one succeeds, whatever the storage and however many replicas.

use std::time::Duration;

use datastore::store::{Ability, Key, PutConditions};
use futures::future::join_all;
use futures::stream;
use jiff::{SignedDuration, Timestamp};
use reqwest::Method;
use support::{CloudFault, Dialect, FakeCloud, TestDatastore, eventually, wait_for};
use tokio_util::sync::CancellationToken;

use super::buckets::{open, swept};
use crate::http::{RUN, get, noise, request, send};

const MIB: usize = 1 << 20;
const URL: &str = "plans?namespace=team-a&layer=network&run=plan-1&attempt=0&format=bin";
const FILE: &str = "layers/team-a/network/plan-1/0/plan.bin";

#[tokio::test(flavor = "multi_thread")]
async fn one_of_16_concurrent_creations_wins_on_every_backend() {
    let careless = FakeCloud::start(Dialect::S3);
    careless.ignore_conditions();
    let mut datastores = TestDatastore::each().await;
    datastores.push(TestDatastore::over(careless).await);
    for datastore in datastores {
        for (attempt, size) in [10, 9 * MIB].into_iter().enumerate() {
            let url = format!("plans?{RUN}&attempt={attempt}");
            let create = async |seed| {
                let put = request(&datastore, Method::PUT, &url).header("if-none-match", "*");
                send(put.body(noise(size, seed))).await.status
            };
            let statuses = join_all((0..16).map(create)).await;
            assert_eq!(statuses.iter().filter(|status| **status == 200).count(), 1, "{statuses:?}");
            assert_eq!(
                statuses.iter().filter(|status| **status == 412).count(),
                15,
                "{statuses:?}"
            );
            let winner = statuses.iter().position(|status| *status == 200).unwrap() as u64;
            assert!(get(&datastore, &url).await.body == noise(size, winner));

            let same = join_all((0..16).map(|_| create(winner))).await;
            assert_eq!(same, [200; 16]);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn one_of_16_creations_by_two_replicas_wins() {
    for [datastore, other] in TestDatastore::replicas().await {
        for (attempt, size) in [1000, 9 * MIB].into_iter().enumerate() {
            for replica in [&datastore, &other] {
                // The first answer comes once the storage was tried.
                let _started = get(replica, "runs?namespace=a&layer=b").await;
            }
            let url = format!("plans?{RUN}&attempt={attempt}");
            let create = async |seed: u64| {
                let datastore = if seed.is_multiple_of(2) { &datastore } else { &other };
                let put = request(datastore, Method::PUT, &url).header("if-none-match", "*");
                send(put.body(noise(size, seed))).await.status
            };
            let statuses = join_all((0..16).map(create)).await;
            let count = |wanted: u16| statuses.iter().filter(|status| **status == wanted).count();
            assert_eq!((count(200), count(412)), (1, 15), "{statuses:?}");
            let winner = statuses.iter().position(|status| *status == 200).unwrap() as u64;
            assert!(get(&other, &url).await.body == noise(size, winner));
            // The same bytes again are no conflict.
            assert_eq!(create(winner).await, 200);
        }
    }
}

/// Where the storage passes over the condition of a completion, as Azure cannot be asked for it.
fn without_conditional_completions(dialect: Dialect) -> FakeCloud {
    let double = FakeCloud::start(dialect);
    double.ignore_conditions_of_completions();
    double
}

#[tokio::test(flavor = "multi_thread")]
async fn one_creation_by_two_replicas_wins_without_conditional_completions() {
    for dialect in Dialect::ALL {
        let first = TestDatastore::over(without_conditional_completions(dialect)).await;
        let second = first.beside().await;
        get(&second, "runs?namespace=a&layer=b").await;
        for round in 0..4_u64 {
            // Some are put in one piece, others in parts.
            let sizes = [9 * MIB, 9 * MIB, if round % 2 == 0 { 9 * MIB } else { 1000 }];
            let url = format!("plans?{RUN}&attempt={round}");
            let create = async |n: usize| {
                let datastore = if n.is_multiple_of(2) { &first } else { &second };
                let put = request(datastore, Method::PUT, &url).header("if-none-match", "*");
                send(put.body(noise(sizes[n % 3], n as u64))).await.status
            };
            let statuses = join_all((0..6).map(create)).await;
            let count = |wanted: u16| statuses.iter().filter(|status| **status == wanted).count();
            assert_eq!((count(200), count(412)), (1, 5), "{statuses:?}");
            let winner = statuses.iter().position(|status| *status == 200).unwrap();
            assert!(get(&second, &url).await.body == noise(sizes[winner % 3], winner as u64));
            assert_eq!(create(winner).await, 200, "the same bytes again are no conflict");
        }
        let left = first.cloud().keys();
        assert!(!left.iter().any(|key| key.starts_with(".plancha/leases/")), "{left:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn lease_of_a_killed_process_expires_and_a_recent_one_does_not() {
    let double = without_conditional_completions(Dialect::S3);
    let lease = format!(".plancha/leases/{FILE}");
    double.clock(SignedDuration::from_mins(-13));
    double.put(&lease, "a process that has ended");
    double.clock(SignedDuration::ZERO);
    let first = TestDatastore::over(double).await;
    let second = first.beside().await;
    get(&second, "runs?namespace=a&layer=b").await;
    let create = async |datastore, seed| {
        let put = request(datastore, Method::PUT, URL).header("if-none-match", "*");
        send(put.body(noise(9 * MIB, seed))).await.status
    };
    let statuses: [u16; 2] = tokio::join!(create(&first, 0), create(&second, 1)).into();
    assert!([[200, 412], [412, 200]].contains(&statuses), "{statuses:?}");
    assert_eq!(first.cloud().object(&lease), None);

    // One that is younger may still be at work.
    let other = URL.replace("attempt=0", "attempt=1");
    let lease = format!(".plancha/leases/{}", FILE.replace("/0/", "/1/"));
    first.cloud().put(&lease, "a process that is at work");
    let put = request(&first, Method::PUT, &other).header("if-none-match", "*");
    let answer = send(put.body(noise(9 * MIB, 0))).await;
    assert_eq!(answer.status, 503);
    assert!(answer.text().contains("is being completed; try again"), "{}", answer.text());
    assert_eq!(first.cloud().open_uploads(), 0);
    let now = Timestamp::now();
    let store = open(first.cloud());
    assert_eq!(swept(&store, now + SignedDuration::from_hours(23)).await.unwrap(), 0);
    // The datastores that run have objects of probes there.
    assert!(swept(&store, now + SignedDuration::from_hours(25)).await.unwrap() > 0);
    assert_eq!(first.cloud().object(&lease), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn lease_of_a_killed_process_is_not_taken_over_where_the_storage_cannot_replace_it() {
    let double = without_conditional_completions(Dialect::S3);
    double.ignore_conditions_of_updates();
    let lease = format!(".plancha/leases/{FILE}");
    double.clock(SignedDuration::from_mins(-13));
    double.put(&lease, "a process that has ended");
    double.clock(SignedDuration::ZERO);
    let datastore = TestDatastore::over(double).await;
    let put = request(&datastore, Method::PUT, URL).header("if-none-match", "*");
    let answer = send(put.body(noise(9 * MIB, 0))).await;
    assert_eq!(answer.status, 503);
    assert!(answer.text().contains("is being completed; try again"), "{}", answer.text());
    assert_eq!(datastore.cloud().object(&lease).unwrap(), b"a process that has ended");
    assert_eq!(datastore.cloud().open_uploads(), 0);
    let store = open(datastore.cloud());
    assert!(swept(&store, Timestamp::now() + SignedDuration::from_hours(25)).await.unwrap() > 0);
    let put = request(&datastore, Method::PUT, URL).header("if-none-match", "*");
    assert_eq!(send(put.body(noise(9 * MIB, 0))).await.status, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_probe_does_not_let_two_replicas_create() {
    let double = without_conditional_completions(Dialect::S3);
    // The probe cannot try the creation, after a part and the object.
    let key = ".plancha/probe/";
    let creation = CloudFault {
        method: "PUT",
        key,
        after: 2,
        times: usize::MAX,
        status: 503,
        ..Default::default()
    };
    double.fault(creation);
    double.put(&format!(".plancha/leases/{FILE}"), "a replica that is at work");
    let datastore = TestDatastore::with(double.storage()).await;
    let put = request(&datastore, Method::PUT, URL).header("if-none-match", "*");
    assert_eq!(send(put.body(noise(9 * MIB, 0))).await.status, 503);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replica_whose_probe_failed_does_not_overwrite_what_another_creates() {
    for dialect in Dialect::ALL {
        let double = FakeCloud::start(dialect);
        let fault = CloudFault { method: "POST", times: 4, status: 503, ..Default::default() };
        double.fault(CloudFault { key: ".plancha/probe/", query: "uploads", ..fault });
        let first = TestDatastore::over(double).await;
        let second = first.beside().await;
        get(&second, "runs?namespace=a&layer=b").await;
        // The first has looked for the object when the second creates it.
        let delay = Duration::from_secs(2);
        let late = CloudFault { method: "POST", key: FILE, times: 1, delay, ..Default::default() };
        first.cloud().fault(CloudFault { query: "uploadId", ..late });
        let create = async |datastore, seed| {
            let put = request(datastore, Method::PUT, URL).header("if-none-match", "*");
            send(put.body(noise(9 * MIB, seed))).await.status
        };
        let second_put = async {
            wait_for("the completion", async || completes(first.cloud()).then_some(())).await;
            create(&second, 1).await
        };
        let statuses: [u16; 2] = tokio::join!(create(&first, 0), second_put).into();
        assert_eq!(statuses, [412, 200]);
        assert!(get(&first, URL).await.body == noise(9 * MIB, 1));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_transient_error_of_a_probe_changes_nothing_that_an_earlier_one_has_seen() {
    for dialect in Dialect::ALL {
        let double = FakeCloud::start(dialect);
        double.reject_conditions_of_completions(501, "NotImplemented");
        let store = open(&double);
        store.start().await.unwrap();
        assert_eq!(store.probe_results().can(Ability::CreateLarge), Some(false));
        let before = double.requests().len();
        store.try_all().await;
        let requests = double.requests().split_off(before);
        let is_put = |request: &&String| request.starts_with("PUT .plancha/probe/");
        let puts = requests.iter().filter(is_put).filter(|put| put.ends_with(' ')).count();
        assert_eq!(puts, 2, "nothing is restored that was not replaced: {requests:#?}");

        let fault = CloudFault { method: "POST", times: 4, status: 503, ..Default::default() };
        double.fault(CloudFault { key: ".plancha/probe/", query: "uploads", ..fault });
        let seen = store.try_all().await;
        assert_eq!(seen.can(Ability::CreateLarge), Some(false));
        assert!(seen.unseen.iter().any(|(ability, _)| *ability == Ability::CreateLarge));
        let key = Key::from_path(FILE).unwrap();
        let create = PutConditions { create: true, ..PutConditions::default() };
        let body = stream::iter([Ok(noise(9 * MIB, 0).into())]);
        store.put(&key, create, body).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_refuses_the_condition_takes_large_creations_before_a_probe_has_seen_it() {
    for dialect in Dialect::ALL {
        for (status, code) in [(501, "NotImplemented"), (400, "InvalidArgument"), (405, "")] {
            let double = FakeCloud::start(dialect);
            double.reject_conditions_of_completions(status, code);
            let fault =
                CloudFault { method: "POST", times: usize::MAX, status: 503, ..Default::default() };
            double.fault(CloudFault { key: ".plancha/probe/", query: "uploads", ..fault });
            let datastore = TestDatastore::over(double).await;
            let create = async |seed| {
                let put = request(&datastore, Method::PUT, URL).header("if-none-match", "*");
                send(put.body(noise(9 * MIB, seed))).await.status
            };
            assert_eq!(create(0).await, 200, "{status} {code}");
            assert_eq!([create(1).await, create(0).await], [412, 200], "{status} {code}");
            assert!(get(&datastore, URL).await.body == noise(9 * MIB, 0));
            let left = datastore.cloud().keys();
            assert!(!left.iter().any(|key| key.starts_with(".plancha/leases/")), "{left:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_completion_is_not_sent_without_its_condition_after_an_error_that_may_pass() {
    for dialect in Dialect::ALL {
        for (status, code) in [(400, "RequestTimeout"), (403, "AccessDenied")] {
            let double = FakeCloud::start(dialect);
            let fault = CloudFault { method: "POST", times: usize::MAX, ..Default::default() };
            let of_probe = CloudFault {
                key: ".plancha/probe/",
                query: "uploads",
                status: 503,
                ..fault.clone()
            };
            double.fault(of_probe);
            double.fault(CloudFault { key: FILE, query: "uploadId", status, code, ..fault });
            let datastore = TestDatastore::over(double).await;
            let put = request(&datastore, Method::PUT, URL).header("if-none-match", "*");
            assert_eq!(send(put.body(noise(9 * MIB, 0))).await.status, 500);
            let start = format!("POST {FILE} uploadId=");
            let requests = datastore.cloud().requests();
            assert_eq!(requests.iter().filter(|request| request.starts_with(&start)).count(), 1);
        }
    }
}

/// Whether the completion of the object was requested.
fn completes(double: &FakeCloud) -> bool {
    let start = format!("POST {FILE} uploadId=");
    double.requests().iter().any(|request| request.starts_with(&start))
}

#[tokio::test]
async fn leftovers_that_cannot_be_deleted_do_not_keep_the_others() {
    let double = FakeCloud::start(Dialect::S3);
    double.put(".plancha/probe/a", "x");
    double.begin_upload(FILE);
    let (status, code) = (403, "AccessDenied");
    let fault = CloudFault { times: usize::MAX, status, code, ..CloudFault::default() };
    double.fault(CloudFault { method: "DELETE", key: ".plancha/", ..fault.clone() });
    double.fault(CloudFault { method: "POST", query: "delete", ..fault });
    let later = Timestamp::now() + SignedDuration::from_hours(25);
    let error = swept(&open(&double), later).await.unwrap_err();
    assert!(datastore::chain(&*error).contains("s3:DeleteObject"), "{error}");
    assert_eq!((double.keys().len(), double.open_uploads()), (1, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn leftovers_are_swept_by_the_clock_of_the_storage() {
    let double = FakeCloud::start(Dialect::Gcs);
    let behind = SignedDuration::from_secs(-100_000);
    let prefixes = [".plancha/leases/layers/", ".plancha/probe/"];
    for (name, age) in [("b-old", SignedDuration::from_hours(25)), ("c-new", SignedDuration::ZERO)]
    {
        double.clock(behind - age);
        for prefix in &prefixes {
            double.put(&format!("{prefix}{name}"), "x");
        }
    }
    let store = open(&double);
    store.start().await.unwrap();
    let shutdown = CancellationToken::new();
    let tidying = tokio::spawn(store.tidy(shutdown.clone()));
    let old = prefixes.map(|prefix| format!("{prefix}b-old"));
    eventually("the sweep", || old.iter().all(|key| double.object(key).is_none()));
    shutdown.cancel();
    tidying.await.unwrap();
    assert_eq!(double.keys(), prefixes.map(|prefix| format!("{prefix}c-new")));
}
