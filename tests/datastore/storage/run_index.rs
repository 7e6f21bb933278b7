//! The index of runs: the latest attempt, pages, and what `reindex` adds.

use std::collections::BTreeSet;

use datastore::store::Storage;
use serde_json::Value;
use support::{Dialect, FakeCloud, Pace, TestDatastore};

use super::buckets::{doubles, open};
use crate::http::{RUN, get, stored};

#[tokio::test]
async fn ds26_latest_attempt_is_found_on_every_backend() {
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

/// The requests without those that the datastore makes from time to time: the probe's, and lists of old uploads.
fn asked(datastore: &TestDatastore) -> Vec<String> {
    let mut requests = datastore.cloud().requests();
    requests.retain(|request| !request.contains("probe") && !request.contains("uploads"));
    requests
}

#[tokio::test]
async fn page_of_100_000_runs_makes_one_list_request() {
    for datastore in TestDatastore::doubles().await {
        for run in 0..100_000 {
            datastore.cloud().put(&entry(run, &format!("r{run}")), "");
        }
        get(&datastore, "runs?namespace=a&layer=none").await;
        let (mut cursor, mut expected) = (String::new(), (0..100_000).rev());
        for _ in 0..3 {
            let before = asked(&datastore).len();
            let url = format!("runs?namespace=a&layer=b&limit=70&cursor={cursor}");
            let page = get(&datastore, &url).await.json();
            let made = asked(&datastore).split_off(before);
            assert_eq!(made.len(), 1, "{made:?}");
            let last = &made[0];
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
async fn paging_continues_among_runs_of_one_millisecond_and_after_a_deleted_run() {
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
async fn paging_below_a_storage_prefix_lists_only_that_prefix() {
    let double = FakeCloud::start(Dialect::S3);
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
async fn reindex_finds_unindexed_runs_and_can_be_repeated() {
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
async fn reindex_reads_several_layers_and_writes_many_entries_at_once() {
    let latency = std::time::Duration::from_millis(600);
    for double in doubles() {
        for (layer, run) in (0..8).flat_map(|layer| (0..20).map(move |run| (layer, run))) {
            double.put(&format!("layers/a/b{layer}/r{run}/0/run.log"), "x");
        }
        double.pace(Pace { latency, ..Pace::default() });
        let store = open(&double);
        let before = double.requests().len();
        assert_eq!(store.reindex().await.unwrap(), 160);
        let most = double.most_in_flight();
        assert!(most >= 16, "{most} in flight");
        // On a busy machine some are repeated.
        let different = double.requests().into_iter().skip(before).collect::<BTreeSet<_>>();
        // Each layer is listed, and its summary is outdated; one object shows whether any was encrypted.
        assert_eq!(different.len(), 160 + 9 + 8 + 1);
        // All are written, so only the listings remain for the second time.
        assert_eq!(store.reindex().await.unwrap(), 0);
        let most = double.most_in_flight();
        assert!((4..=8).contains(&most), "{most} listings of layers in flight");
    }
}
