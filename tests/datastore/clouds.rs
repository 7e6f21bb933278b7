//! What a bucket holds, what a cloud is tried for, and what must not depend on which cloud it is.

use std::time::Duration;

use datastore::store::{Ability, Storage, Store};
use datastore_api::Sha256;
use futures::future::join_all;
use futures::{StreamExt as _, TryStreamExt as _};
use jiff::{SignedDuration, Timestamp};
use reqwest::Method;
use serde_json::Value;
use support::{CloudFault, Dialect, Double, TestDatastore};

use crate::http::{RUN, etag, get, noise, request, send, stored};

const MIB: usize = 1 << 20;
const URL: &str = "plans?namespace=team-a&layer=network&run=plan-1&attempt=0&format=bin";
const FILE: &str = "layers/team-a/network/plan-1/0/plan.bin";
pub(crate) const FOR_EVER: usize = usize::MAX;

pub(crate) fn doubles() -> [Double; 2] {
    [Double::start(Dialect::S3), Double::start(Dialect::Gcs)]
}

pub(crate) fn open(double: &Double) -> Store {
    Store::open(&double.impatient()).unwrap()
}

fn record() -> String {
    format!(".plancha/sha256/{FILE}")
}

#[tokio::test]
async fn the_digest_is_in_the_metadata_where_it_is_known_in_time_else_in_a_record() {
    for datastore in TestDatastore::doubles().await {
        for (size, announced, has_record) in [
            (0, false, false),
            (8 * MIB, false, false),
            (9 * MIB, true, false),
            (9 * MIB, false, true),
        ] {
            let body = noise(size, 1);
            let mut put = request(&datastore, Method::PUT, URL);
            if announced {
                put = put.header("repr-digest", Sha256::of(&body).to_repr_digest());
            }
            assert_eq!(send(put.body(body.clone())).await.status, 200);
            let keys = datastore.cloud().keys();
            assert_eq!(keys.contains(&record()), has_record, "{size} {announced}");
            let answer = get(&datastore, URL).await;
            assert_eq!(answer.header("etag"), Some(&*etag(&body)));
            assert!(answer.body == body);
            assert_eq!(datastore.cloud().object(FILE).unwrap(), body, "the bytes are plain");
        }
    }
}

#[tokio::test]
async fn what_another_program_stored_in_a_bucket_is_served_without_a_digest() {
    let zip = |size| [b"PK\x03\x04".to_vec(), noise(size, 1)].concat()[..size].to_vec();
    for datastore in TestDatastore::doubles().await {
        for size in [0, 6, 20 * MIB] {
            datastore.cloud().put(FILE, zip(size));
            let answer = get(&datastore, URL).await;
            assert_eq!((answer.status, answer.body.len()), (200, size));
            assert_eq!(answer.header("repr-digest"), None);
            assert!(answer.header("etag").unwrap().starts_with("\"be-"));
            // To put the same bytes again writes their digest down.
            let create = request(&datastore, Method::PUT, URL).header("if-none-match", "*");
            assert_eq!(send(create.body(zip(size))).await.status, 200);
            assert_eq!(get(&datastore, URL).await.header("etag"), Some(&*etag(&zip(size))));
        }
    }
}

#[tokio::test]
async fn bytes_that_rot_in_a_bucket_never_end_cleanly() {
    for datastore in TestDatastore::doubles().await {
        for size in [5, 9 * MIB, 20 * MIB] {
            for at in [0, size / 2, size - 1] {
                stored(&datastore, URL, noise(size, 1)).await;
                datastore.cloud().rot(FILE, at);
                let answer = request(&datastore, Method::GET, URL).send().await;
                let ended = match answer {
                    Ok(answer) => answer.status() == 200 && answer.bytes().await.is_ok(),
                    Err(_) => false,
                };
                assert!(!ended, "{at} of {size}");
            }
        }
    }
}

#[tokio::test]
async fn a_large_object_comes_back_whole_and_in_any_range() {
    for datastore in TestDatastore::each().await {
        for size in [16 * MIB, 16 * MIB + 1, 20 * MIB - 1, 33 * MIB] {
            let body = noise(size, size as u64);
            stored(&datastore, URL, body.clone()).await;
            assert!(get(&datastore, URL).await.body == body);
            for (first, last) in
                [(0, size - 1), (1, size - 2), (4 * MIB, 8 * MIB), (size - 1, size - 1)]
            {
                let range = format!("bytes={first}-{last}");
                let answer =
                    send(request(&datastore, Method::GET, URL).header("range", &range)).await;
                assert_eq!(answer.status, 206);
                assert!(answer.body == body[first..=last], "{range} of {size}");
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn of_16_creations_at_once_one_wins_on_every_backend() {
    let careless = Double::start(Dialect::S3);
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
async fn of_16_creations_by_two_replicas_one_wins() {
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
fn without_conditional_completions(dialect: Dialect) -> Double {
    let double = Double::start(dialect);
    double.ignore_conditions_of_completions();
    double
}

#[tokio::test(flavor = "multi_thread")]
async fn of_creations_by_two_replicas_one_wins_where_completions_have_no_condition() {
    for dialect in [Dialect::S3, Dialect::Gcs] {
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
async fn what_a_killed_process_was_about_to_create_others_create_later() {
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
    assert_eq!(store.sweep(now + SignedDuration::from_hours(23)).await.unwrap(), 0);
    assert_eq!(store.sweep(now + SignedDuration::from_hours(25)).await.unwrap(), 1);
    assert_eq!(first.cloud().object(&lease), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_large_creation_that_was_applied_but_reported_as_failed_is_200() {
    for datastore in TestDatastore::doubles().await {
        let (method, query) = ("POST", "uploadId");
        let fault = CloudFault { method, query, times: 1, status: 500, ..CloudFault::default() };
        datastore.cloud().fault(CloudFault { apply_then_fail: true, ..fault });
        let put = request(&datastore, Method::PUT, URL).header("if-none-match", "*");
        assert_eq!(send(put.body(noise(9 * MIB, 1))).await.status, 200);
        assert!(get(&datastore, URL).await.body == noise(9 * MIB, 1));
    }
}

#[tokio::test]
async fn uploads_that_a_killed_process_left_are_aborted_after_a_day() {
    for dialect in [Dialect::S3, Dialect::Gcs] {
        let double = Double::start(dialect);
        let Storage::Cloud(cloud) = double.storage() else { unreachable!() };
        let below = Store::open(&Storage::Cloud(datastore::store::Cloud {
            prefix: "below".to_owned(),
            ..cloud
        }));
        let (store, below) = (open(&double), below.unwrap());
        let ours = ["layers/a/b/c/0/plan.bin", "repositories/a/b/main/0123.gitbundle"];
        let others = ["layers/something", "other/plan.bin", "below/other"];
        for key in ours.into_iter().chain(others).chain(["below/layers/a/b/c/0/plan.bin"]) {
            double.begin_upload(key);
        }
        let now = Timestamp::now();
        assert_eq!(store.sweep(now + SignedDuration::from_hours(23)).await.unwrap(), 0);
        assert_eq!(double.open_uploads(), 6);
        assert_eq!(below.sweep(now + SignedDuration::from_hours(25)).await.unwrap(), 1);
        assert_eq!(store.sweep(now + SignedDuration::from_hours(25)).await.unwrap(), 2);
        assert_eq!(double.open_uploads(), 3, "those of others");
    }
}

#[tokio::test]
async fn a_large_object_has_its_digest_where_a_completion_names_another_tag() {
    for double in doubles() {
        double.mistell_tags();
        let datastore = TestDatastore::over(double).await;
        let body = noise(9 * MIB, 1);
        stored(&datastore, URL, body.clone()).await;
        let answer = get(&datastore, URL).await;
        assert_eq!(answer.header("etag"), Some(&*etag(&body)));
        assert!(answer.body == body);
        assert_eq!(open(datastore.cloud()).try_all().await.can(Ability::Tag), Some(false));
    }
}

#[tokio::test]
async fn after_a_large_upload_that_broke_off_a_small_creation_succeeds() {
    for datastore in TestDatastore::each().await {
        let pieces = [Ok(noise(12 * MIB, 1)), Err(std::io::Error::other("gone"))];
        let body = reqwest::Body::wrap_stream(futures::stream::iter(pieces));
        assert!(request(&datastore, Method::PUT, URL).body(body).send().await.is_err());
        // What has arrived of it is taken back without anybody waiting.
        tokio::time::sleep(Duration::from_millis(300)).await;
        let create = request(&datastore, Method::PUT, URL).header("if-none-match", "*");
        assert_eq!(send(create.body("small")).await.status, 200);
        assert_eq!(get(&datastore, URL).await.text(), "small");
    }
}

#[tokio::test]
async fn ds14_a_bundle_of_any_ref_lies_under_its_plain_key() {
    for datastore in TestDatastore::doubles().await {
        for (git_ref, key) in [
            ("feat%2Fa+b%231~2", "repositories/a/b/feat/a b#1~2/0123.gitbundle"),
            ("refs%2Ftags%2Fv1", "repositories/a/b/refs/tags/v1/0123.gitbundle"),
            ("a%26b%3Cc%3E%25", "repositories/a/b/a&b<c>%/0123.gitbundle"),
        ] {
            let url = format!(
                "repository/revision/bundle?namespace=a&name=b&ref={git_ref}&revision=0123"
            );
            stored(&datastore, &url, "bundle").await;
            assert_eq!(datastore.cloud().object(key).as_deref(), Some(&b"bundle"[..]), "{key}");
            assert_eq!(get(&datastore, &url).await.text(), "bundle");
            let head = send(request(&datastore, Method::HEAD, &url)).await;
            assert_eq!((head.status, head.body.len()), (200, 0));
            assert_eq!(get(&datastore, &url.replace("0123", "4567")).await.status, 404);
        }
    }
}

#[tokio::test]
async fn ds26_the_latest_attempt_is_found_on_every_backend() {
    for datastore in TestDatastore::each().await {
        for attempt in [9, 10, 2] {
            stored(&datastore, &format!("plans?{RUN}&attempt={attempt}"), attempt.to_string())
                .await;
        }
        assert_eq!(get(&datastore, &format!("plans?{RUN}&attempt=")).await.text(), "10");
        let attempts = get(&datastore, &format!("attempts?{RUN}")).await.json();
        let attempts = attempts["attempts"].as_array().unwrap().iter();
        assert_eq!(
            attempts.map(|a| a["attempt"].as_u64().unwrap()).collect::<Vec<_>>(),
            [2, 9, 10]
        );
    }
}

#[tokio::test]
async fn the_latest_attempt_is_found_past_the_first_page() {
    for datastore in TestDatastore::doubles().await {
        for attempt in 0..1100 {
            datastore
                .cloud()
                .put(&format!("layers/team-a/network/plan-1/{attempt}/plan.json"), "x");
        }
        datastore.cloud().put("layers/team-a/network/plan-1/1099/plan.json", "latest");
        assert_eq!(get(&datastore, &format!("plans?{RUN}")).await.text(), "latest");
    }
}

/// The name of an entry of the index, as `docs/datastore.md` describes it.
fn entry(second: u64, run: &str) -> String {
    format!(".plancha/runs/a/b/{:016x}-{run}", u64::MAX - second * 1000)
}

fn names(page: &Value) -> Vec<String> {
    let runs = page["runs"].as_array().unwrap();
    runs.iter().map(|run| run["run"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn a_page_of_100_000_runs_costs_one_listing_of_a_page() {
    for datastore in TestDatastore::doubles().await {
        for run in 0..100_000 {
            datastore.cloud().put(&entry(run, &format!("r{run}")), "");
        }
        get(&datastore, "runs?namespace=a&layer=none").await;
        let (mut cursor, mut expected) = (String::new(), (0..100_000).rev());
        for _ in 0..3 {
            let before = datastore.cloud().requests().len();
            let url = format!("runs?namespace=a&layer=b&limit=70&cursor={cursor}");
            let page = get(&datastore, &url).await.json();
            assert_eq!(datastore.cloud().requests().len() - before, 1);
            let last = datastore.cloud().requests().pop().unwrap();
            assert!(last.contains("max-keys=70") || last.contains("max-keys=71"), "{last}");
            let these = expected.by_ref().take(70).map(|run| format!("r{run}"));
            assert_eq!(names(&page), these.collect::<Vec<_>>());
            cursor =
                url::form_urlencoded::byte_serialize(page["next"].as_str().unwrap().as_bytes())
                    .collect();
        }
    }
}

#[tokio::test]
async fn pages_go_on_among_many_runs_of_one_millisecond_and_where_the_last_was_deleted() {
    for datastore in TestDatastore::doubles().await {
        // A restored bucket: every run has the same time.
        let all = (0..1500).map(|run| format!("r{run:04}")).collect::<Vec<_>>();
        for run in &all {
            datastore.cloud().put(&entry(7, run), "");
        }
        for deletes in [false, true] {
            let (mut cursor, mut shown) = (String::new(), Vec::new());
            loop {
                let url = format!("runs?namespace=a&layer=b&limit=400&cursor={cursor}");
                let page = get(&datastore, &url).await.json();
                shown.extend(names(&page));
                let Some(next) = page["next"].as_str() else { break };
                assert!(next.bytes().all(|c| c.is_ascii_hexdigit()), "{next}");
                cursor = next.to_owned();
                if deletes && shown.len() == 400 {
                    let store = open(datastore.cloud());
                    store.delete(&entry(7, "r0399")).await.unwrap();
                }
            }
            shown.sort();
            shown.dedup();
            assert!(shown == all, "{} of {}", shown.len(), all.len());
        }
    }
}

#[tokio::test]
async fn pages_below_a_prefix_are_of_that_prefix_alone() {
    let double = Double::start(Dialect::S3);
    let Storage::Cloud(cloud) = double.storage() else { unreachable!() };
    let below = |prefix: &str| {
        TestDatastore::with(Storage::Cloud(datastore::store::Cloud {
            prefix: prefix.to_owned(),
            ..cloud.clone()
        }))
    };
    let (one, two) = (below("one").await, below("one/more").await);
    for (datastore, run) in [(&one, "r1"), (&two, "r2")] {
        stored(datastore, &format!("plans?namespace=a&layer=b&run={run}&attempt=0"), run).await;
        let page = get(datastore, "runs?namespace=a&layer=b").await.json();
        assert_eq!(names(&page), [run]);
        let plan = get(datastore, &format!("plans?namespace=a&layer=b&run={run}")).await;
        assert_eq!(plan.text(), run);
    }
    assert!(double.object("one/layers/a/b/r1/0/plan.json").is_some());
    assert!(double.object("one/more/layers/a/b/r2/0/plan.json").is_some());
}

#[tokio::test]
async fn runs_from_before_the_index_are_found_after_reindex_which_can_be_done_again() {
    for double in doubles() {
        for key in ["a/b/r1/0/plan.json", "a/b/r1/3/run.log", "a/b/Run 7/0/plan.bin", "a/c/r1/0/x"]
        {
            double.put(&format!("layers/{key}"), "x");
        }
        for key in ["a/b/r9/latest/plan.json", "a/b/r8/0", "a/b", "a/b/r7/x/0/plan.json"] {
            double.put(&format!("layers/{key}"), "not of an attempt");
        }
        let datastore = TestDatastore::over(double).await;
        stored(&datastore, "plans?namespace=a&layer=b&run=r2&attempt=0", "ours").await;
        let store = open(datastore.cloud());
        assert_eq!(store.reindex().await.unwrap(), 3);
        let keys = datastore.cloud().keys();
        assert_eq!(store.reindex().await.unwrap(), 0);
        assert_eq!(datastore.cloud().keys(), keys);
        let mut runs = names(&get(&datastore, "runs?namespace=a&layer=b").await.json());
        runs.sort();
        assert_eq!(runs, ["Run 7", "r1", "r2"]);
        assert_eq!(names(&get(&datastore, "runs?namespace=a&layer=c").await.json()), ["r1"]);
    }
}

#[tokio::test]
async fn objects_are_listed_read_and_deleted_by_their_keys() {
    let clouds = doubles();
    let directory = tempfile::TempDir::new().unwrap();
    let local = [Storage::Memory, Storage::File(directory.path().join("store"))];
    for storage in clouds.iter().map(Double::storage).chain(local) {
        let store = Store::open(&storage).unwrap();
        let key = datastore::store::Key::File(
            datastore_api::RunKey {
                namespace: "team-a".parse().unwrap(),
                layer: "network".parse().unwrap(),
                run: "plan-1".parse().unwrap(),
            },
            datastore_api::Attempt(0),
            datastore_api::File::Log,
        );
        let body = futures::stream::once(async { Ok(noise(9 * MIB, 1).into()) }).boxed();
        store.put(&key, datastore::store::Terms::default(), body).await.unwrap();
        let keys = async |prefix| {
            let listed = store.list(prefix).unwrap().try_collect::<Vec<_>>().await.unwrap();
            listed.into_iter().map(|object| object.key).collect::<Vec<_>>()
        };
        let log = "layers/team-a/network/plan-1/0/run.log";
        assert_eq!(keys("layers/").await, [log]);
        let object = store.list("layers/").unwrap().try_next().await.unwrap().unwrap();
        let age = store.now().await.unwrap().duration_since(object.modified);
        assert!(age.as_secs().abs() < 60 && object.size == 9 * MIB as u64);
        let (meta, bytes) = store.open_key(log).await.unwrap();
        let bytes = bytes.try_collect::<Vec<_>>().await.unwrap().concat();
        assert_eq!(meta.sha256, Some(Sha256::of(&bytes)));
        store.delete(log).await.unwrap();
        store.delete(log).await.unwrap();
        assert_eq!(keys("layers/").await, Vec::<String>::new());
        assert_eq!(keys("").await.len(), 1, "only the run's entry is left");
    }
}

#[tokio::test]
async fn without_anything_listening_a_put_is_500_within_20_s() {
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", closed.local_addr().unwrap());
    drop(closed);
    let storage = Double::start(Dialect::S3).storage_with(&[("AWS_ENDPOINT_URL_S3", &url)]);
    let datastore = TestDatastore::with(storage).await;
    let put = send(request(&datastore, Method::PUT, URL).body("x"));
    let put = tokio::time::timeout(Duration::from_secs(20), put).await.unwrap();
    assert_eq!(put.status, 500);
    let ready = reqwest::get(datastore.url.join("readyz").unwrap()).await.unwrap();
    assert_eq!(ready.status(), 503);
}
