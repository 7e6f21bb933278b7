//! Faults of a cloud during a read: the client gets the right bytes or an error.

use std::time::{Duration, Instant};

use reqwest::Method;
use support::{CloudFault, Dialect, FakeCloud, Pace, TestDatastore};

use super::put_faults::asked;
use crate::api::health::becomes_ready;
use crate::http::{etag, get, noise, request, send, stored};

const MIB: usize = 1 << 20;
const URL: &str = "plans?namespace=team-a&layer=network&run=plan-1&attempt=0&format=bin";
const FILE: &str = "layers/team-a/network/plan-1/0/plan.bin";
const FOR_EVER: usize = usize::MAX;

fn gets() -> CloudFault {
    CloudFault { method: "GET", key: FILE, times: 1, ..CloudFault::default() }
}

/// Whether an answer is none, or breaks off; never 200 and fewer bytes.
async fn is_broken_off(datastore: &TestDatastore, url: &str) -> bool {
    match request(datastore, Method::GET, url).send().await {
        Ok(response) => response.status() == 500 || response.bytes().await.is_err(),
        Err(error) => error.is_request(),
    }
}

#[tokio::test]
async fn interrupted_get_resumes_at_its_offset() {
    for datastore in TestDatastore::doubles().await {
        for (size, after) in [(9 * MIB, 0), (40 * MIB, 0), (40 * MIB, 3)] {
            let body = noise(size, 1);
            stored(&datastore, URL, body.clone()).await;
            let before = asked(datastore.cloud(), "GET");
            // One of them meets the record of the digest, which is shorter.
            let fault = CloudFault { cut_after: Some(3 * MIB), times: 3, after, ..gets() };
            datastore.cloud().fault(fault);
            let answer = get(&datastore, URL).await;
            assert_eq!((answer.status, answer.body.len()), (200, size));
            assert!(answer.body == body);
            let asked = asked(datastore.cloud(), "GET") - before;
            assert!(asked >= 3, "{asked} requests for {size} bytes");
        }
    }
}

#[tokio::test]
async fn repeatedly_interrupted_get_completes_while_it_makes_progress() {
    for datastore in TestDatastore::doubles().await {
        let body = noise(9 * MIB, 1);
        stored(&datastore, URL, body.clone()).await;
        datastore.cloud().fault(CloudFault { cut_after: Some(MIB), times: FOR_EVER, ..gets() });
        assert!(get(&datastore, URL).await.body == body);
        assert!(asked(datastore.cloud(), "GET") >= 9);
    }
}

#[tokio::test]
async fn stalled_get_is_resumed() {
    for datastore in TestDatastore::doubles().await {
        for size in [9 * MIB, 40 * MIB] {
            let body = noise(size, 1);
            stored(&datastore, URL, body.clone()).await;
            let stall_after = Some(3 * MIB);
            datastore.cloud().fault(CloudFault { stall_after, times: 2, ..gets() });
            assert!(get(&datastore, URL).await.body == body);
        }
    }
}

#[tokio::test]
async fn get_without_progress_is_aborted_and_never_ends_short() {
    for datastore in TestDatastore::doubles().await {
        stored(&datastore, URL, noise(9 * MIB, 1)).await;
        datastore.cloud().fault(CloudFault { cut_after: Some(100), times: FOR_EVER, ..gets() });
        assert!(is_broken_off(&datastore, URL).await);
        datastore.cloud().heal();
        assert_eq!(get(&datastore, URL).await.body.len(), 9 * MIB);
    }
}

#[tokio::test]
async fn short_range_responses_are_requested_again() {
    for datastore in TestDatastore::doubles().await {
        let body = noise(20 * MIB, 1);
        stored(&datastore, URL, body.clone()).await;
        // The first is asked for the object, the second for its record, the others for parts.
        let part = || CloudFault { ends_after: Some(100), after: 2, ..gets() };
        datastore.cloud().fault(CloudFault { times: 3, ..part() });
        assert!(get(&datastore, URL).await.body == body);
        datastore.cloud().fault(CloudFault { times: FOR_EVER, ..part() });
        assert!(is_broken_off(&datastore, URL).await);
    }
}

#[tokio::test]
async fn client_pausing_longer_than_the_backend_timeout_gets_the_whole_object() {
    for datastore in TestDatastore::doubles().await {
        for size in [15 * MIB, 40 * MIB] {
            let body = noise(size, 1);
            stored(&datastore, URL, body.clone()).await;
            let mut answer = request(&datastore, Method::GET, URL).send().await.unwrap();
            let mut received = answer.chunk().await.unwrap().unwrap().to_vec();
            tokio::time::sleep(Duration::from_secs(3)).await;
            while let Some(piece) = answer.chunk().await.unwrap() {
                received.extend_from_slice(&piece);
            }
            assert!(received == body);
        }
    }
}

#[tokio::test]
async fn object_replaced_during_a_read_aborts_it_and_never_mixes_versions() {
    let heeding = TestDatastore::doubles().await.into_iter().map(|datastore| (datastore, true));
    let others = TestDatastore::doubles().await.into_iter().map(|datastore| (datastore, false));
    for (datastore, heeds_conditions) in heeding.chain(others) {
        let zip = |seed| [b"PK\x03\x04".to_vec(), noise(40 * MIB, seed)].concat();
        let (old, new) = (zip(1), zip(2));
        if heeds_conditions {
            stored(&datastore, URL, old.clone()).await;
        } else {
            // Nothing verifies what another program has stored.
            datastore.cloud().put(FILE, old.clone());
            datastore.cloud().ignore_conditions();
        }
        datastore.cloud().pace(Pace { bytes_per_second: 40 << 20, ..Pace::default() });
        let mut answer = request(&datastore, Method::GET, URL).send().await.unwrap();
        let first = answer.chunk().await.unwrap().unwrap().to_vec();
        assert!(old.starts_with(&first));
        datastore.cloud().pace(Pace::default());
        datastore.cloud().put(FILE, new);
        let rest = answer.bytes().await;
        assert!(rest.is_err() || [&first[..], &rest.unwrap()].concat() == old);
    }
}

#[tokio::test]
async fn small_object_replaced_while_a_read_is_resumed_is_the_new_version() {
    for datastore in TestDatastore::doubles().await {
        let (old, new) = (noise(200 << 10, 1), noise(200 << 10, 2));
        for headers in [&[][..], &[("range", "bytes=0-")], &[("if-none-match", "\"x\"")]] {
            stored(&datastore, URL, old.clone()).await;
            let before = asked(datastore.cloud(), "GET");
            // The first answer stalls, and the object is replaced before the rest is requested.
            let delay = Duration::from_millis(1500);
            datastore.cloud().fault(CloudFault { stall_after: Some(100 << 10), ..gets() });
            datastore.cloud().fault(CloudFault { delay, ..gets() });
            let read = request(&datastore, Method::GET, URL);
            let read = headers.iter().fold(read, |read, (name, value)| read.header(*name, *value));
            let (read, ()) = tokio::join!(send(read), async {
                while asked(datastore.cloud(), "GET") < before + 2 {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
                stored(&datastore, URL, new.clone()).await;
            });
            assert!(read.status == 200 || read.status == 206, "{headers:?}: {}", read.status);
            assert!(read.body == new, "{headers:?}");
            assert_eq!(read.header("etag"), Some(&*etag(&new)), "{headers:?}");
            datastore.cloud().heal();
        }
    }
}

#[tokio::test]
async fn object_replaced_again_and_again_during_reads_returns_503() {
    for datastore in TestDatastore::doubles().await {
        stored(&datastore, URL, noise(200 << 10, 1)).await;
        let replaced = CloudFault { status: 412, code: "PreconditionFailed", ..gets() };
        datastore.cloud().fault(CloudFault { times: FOR_EVER, ..replaced });
        let part = request(&datastore, Method::GET, URL).header("range", "bytes=0-99");
        let answer = send(part).await;
        assert_eq!(answer.status, 503, "{}", answer.text());
        assert!(answer.header("retry-after").is_some());
    }
}

#[tokio::test]
async fn range_always_belongs_to_the_version_of_its_etag() {
    for datastore in TestDatastore::doubles().await {
        datastore.cloud().ignore_conditions();
        stored(&datastore, URL, "the old one").await;
        let delay = Duration::from_millis(500);
        datastore.cloud().fault(CloudFault { delay, ..gets() });
        let part = request(&datastore, Method::GET, URL).header("range", "bytes=4-6");
        let (part, ()) = tokio::join!(send(part), async {
            while asked(datastore.cloud(), "GET") == 0 {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            datastore.cloud().put(FILE, "THE NEW ONE");
        });
        assert_eq!((part.status, part.text()), (206, "NEW".to_owned()));
        assert!(part.header("etag").unwrap().starts_with("\"be-"));
    }
}

#[tokio::test]
async fn storage_that_stalls_during_a_read_aborts_the_response_within_20_s() {
    let silent = async |dialect, size: usize| {
        let double = FakeCloud::start(dialect);
        // Each further try reads another MiB.
        let short = [("AWS_READ_TIMEOUT", "1s"), ("GOOGLE_READ_TIMEOUT", "1s")];
        let datastore = TestDatastore::with(double.storage_with(&short)).await;
        becomes_ready(&datastore).await;
        stored(&datastore, URL, noise(size, 1)).await;
        double.fault(CloudFault { stall_after: Some(MIB), times: FOR_EVER, ..gets() });
        let mut answer = request(&datastore, Method::GET, URL).send().await.unwrap();
        let since = Instant::now();
        // What came before the silence has come.
        while let Ok(Some(_)) = answer.chunk().await {}
        assert!(since.elapsed() < Duration::from_secs(20), "{:?}", since.elapsed());
    };
    tokio::join!(silent(Dialect::S3, 9 * MIB), silent(Dialect::Gcs, 40 * MIB));
}
