//! Many writers of one state, with and without locks and leases, over every storage and by two replicas.

use datastore::store::Storage;
use futures::future::join_all;
use support::{Dialect, TestDatastore};
use tokio::time::{Duration, sleep};

use super::documents::{STATE, document, lease, lock, number, of, post, unlock, versions};

/// Storages that several processes may share, with two datastores over each.
async fn pairs() -> Vec<[TestDatastore; 2]> {
    let mut pairs = Vec::new();
    for pair in TestDatastore::replicas().await {
        // Over a directory, only one of the two serves states.
        if of(&pair[1], "GET", STATE, "").await.status != 503
            || of(&pair[0], "GET", STATE, "").await.status != 503
        {
            pairs.push(pair);
        }
    }
    pairs
}

#[tokio::test(flavor = "multi_thread")]
async fn one_of_many_writes_of_the_same_serial_wins() {
    let mut datastores =
        TestDatastore::each().await.into_iter().map(|one| vec![one]).collect::<Vec<_>>();
    for dialect in Dialect::ALL {
        let one = TestDatastore::double(dialect).await;
        let other = one.beside().await;
        datastores.push(vec![one, other]);
    }
    for datastores in datastores {
        let writers = (0..16).map(async |writer: usize| {
            let datastore = &datastores[writer % datastores.len()];
            of(datastore, "POST", STATE, &document("l", 1, &format!("w{writer}"))).await.status
        });
        let mut statuses = join_all(writers).await;
        statuses.sort_unstable();
        assert_eq!(statuses, [&[200][..], &[409; 15]].concat());
        let listed = versions(&datastores[0], "").await;
        assert_eq!(listed["versions"].as_array().unwrap().len(), 1, "{listed}");
        let rejected = versions(&datastores[0], "&kind=rejected").await;
        assert_eq!(rejected["versions"].as_array().unwrap().len(), 15, "nothing is thrown away");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn writers_with_locks_lose_no_change() {
    for datastores in pairs().await {
        let writers = (0..8).map(async |writer: usize| {
            let datastore = &datastores[writer % 2];
            if of(datastore, "GET", STATE, "").await.status == 503 {
                return 0;
            }
            for turn in 0..2 {
                let id = format!("{writer}-{turn}");
                while lock(datastore, STATE, &id).await.status != 200 {
                    sleep(Duration::from_millis(20)).await;
                }
                let read = of(datastore, "GET", STATE, "").await;
                let (serial, names) = if read.status == 404 {
                    (0, String::new())
                } else {
                    let state = read.json();
                    let names = state["resources"][0]["name"].as_str().unwrap().to_owned();
                    (state["serial"].as_u64().unwrap(), names)
                };
                let state = document("l", serial + 1, &format!("{names}+{id}"));
                assert_eq!(post(datastore, &format!("{STATE}?ID={id}"), &state).await, 200);
                assert_eq!(unlock(datastore, STATE, &id).await.status, 200);
            }
            2
        });
        let written: u64 = join_all(writers).await.iter().sum();
        let serving = usize::from(of(&datastores[0], "GET", STATE, "").await.status == 503);
        let state = of(&datastores[serving], "GET", STATE, "").await.json();
        assert_eq!(state["serial"], written);
        let names = state["resources"][0]["name"].as_str().unwrap();
        assert_eq!(names.matches('+').count() as u64, written, "{names}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn one_of_many_leases_is_granted_and_numbers_only_rise() {
    for datastores in pairs().await {
        let mut last = 0;
        for round in 0..3 {
            let ids = (0..8).map(|taker| format!("{round}-{taker}")).collect::<Vec<_>>();
            let takers =
                ids.iter().enumerate().map(|(taker, id)| lease(&datastores[taker % 2], id));
            let granted = join_all(takers).await;
            let winners = ids.iter().zip(&granted).filter(|(_, granted)| granted.status == 200);
            let winners = winners.collect::<Vec<_>>();
            assert_eq!(winners.len(), 1, "{granted:?}");
            let (id, granted) = winners[0];
            assert!(number(granted) > last);
            last = number(granted);
            for datastore in &datastores {
                let released =
                    of(datastore, "DELETE", &format!("leases/team-a/network?id={id}"), "").await;
                assert!([200, 503].contains(&released.status));
            }
        }
    }
}

#[tokio::test]
async fn a_second_process_over_a_directory_serves_no_states() {
    let first = TestDatastore::temporary().await;
    assert_eq!(post(&first, STATE, &document("l", 1, "a")).await, 200);
    let second = TestDatastore::with(Storage::File(first.root())).await;
    for answer in [
        of(&second, "GET", STATE, "").await,
        of(&second, "POST", STATE, &document("l", 2, "a")).await,
        lease(&second, "a").await,
    ] {
        assert_eq!(answer.status, 503, "{answer:?}");
        assert!(
            answer.text().contains("another process serves the states of this directory"),
            "{answer:?}"
        );
    }
    assert_eq!(of(&first, "GET", STATE, "").await.text(), document("l", 1, "a"));
}
