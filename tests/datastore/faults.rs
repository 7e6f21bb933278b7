//! What goes wrong on the way to a cloud, and what a client sees of it: nothing, or the truth.
//!
//! Each fault is ordered from a double of S3 and one of Google Cloud Storage.

use std::io::Write as _;
use std::time::{Duration, Instant};

use reqwest::Method;
use support::{CloudFault, Dialect, Double, Pace, TestDatastore, eventually};

use crate::http::{Answer, RUN, etag, get, noise, put, request, send, stored};

const MIB: usize = 1 << 20;
const URL: &str = "plans?namespace=team-a&layer=network&run=plan-1&attempt=0&format=bin";
const FILE: &str = "layers/team-a/network/plan-1/0/plan.bin";
const FOR_EVER: usize = usize::MAX;

async fn create(datastore: &TestDatastore, body: Vec<u8>) -> Answer {
    send(request(datastore, Method::PUT, URL).header("if-none-match", "*").body(body)).await
}

fn puts() -> CloudFault {
    CloudFault { method: "PUT", key: "plan.bin", times: 1, ..CloudFault::default() }
}

fn gets() -> CloudFault {
    CloudFault { method: "GET", key: FILE, times: 1, ..CloudFault::default() }
}

fn completions() -> CloudFault {
    CloudFault { method: "POST", query: "uploadId", times: 1, ..CloudFault::default() }
}

/// How many requests there were of this method for the plan.
fn asked(cloud: &Double, method: &str) -> usize {
    let start = format!("{method} {FILE}");
    cloud.requests().iter().filter(|request| request.starts_with(&start)).count()
}

/// Whether an answer is none, or breaks off; never 200 and fewer bytes.
async fn is_broken_off(datastore: &TestDatastore, url: &str) -> bool {
    match request(datastore, Method::GET, url).send().await {
        Ok(response) => response.status() == 500 || response.bytes().await.is_err(),
        Err(error) => error.is_request(),
    }
}

#[tokio::test]
async fn a_put_that_is_refused_twice_is_stored_all_the_same() {
    for datastore in TestDatastore::doubles().await {
        datastore.cloud().fault(CloudFault { status: 503, times: 2, ..puts() });
        stored(&datastore, URL, "body").await;
        assert_eq!(get(&datastore, URL).await.text(), "body");
        assert_eq!(asked(datastore.cloud(), "PUT"), 3);
    }
}

#[tokio::test]
async fn a_put_that_is_refused_for_ever_is_500_within_20_s_and_shows_nothing() {
    for datastore in TestDatastore::doubles().await {
        datastore.cloud().fault(CloudFault { status: 503, times: FOR_EVER, ..puts() });
        for condition in [false, true] {
            let since = Instant::now();
            let answer = if condition {
                create(&datastore, b"body".to_vec()).await
            } else {
                put(&datastore, URL, "body").await
            };
            assert_eq!(answer.status, 500);
            let words = "could not put plan, there's an issue with the storage backend: ";
            assert!(answer.text().starts_with(words), "{}", answer.text());
            assert!(answer.text().contains("it answers 503"), "{}", answer.text());
            for place in ["127.0.0.1", "http://", "bucket/", FILE] {
                assert!(!answer.text().contains(place), "{place} in {}", answer.text());
            }
            assert!(since.elapsed() < Duration::from_secs(20));
        }
        assert_eq!(datastore.cloud().artifacts(), Vec::<String>::new());
        datastore.cloud().heal();
        assert_eq!(create(&datastore, b"body".to_vec()).await.status, 200);
    }
}

#[tokio::test]
async fn a_put_that_is_not_answered_is_500_within_20_s() {
    // The patient one waits longer for each byte than a put may take.
    let patient = Double::start(Dialect::S3);
    let delay = Duration::from_mins(1);
    let silent = async |datastore: &TestDatastore, double: &Double, condition| {
        double.fault(CloudFault { delay, times: FOR_EVER, ..puts() });
        let since = Instant::now();
        let answer = if condition {
            create(datastore, b"body".to_vec()).await
        } else {
            put(datastore, URL, "body").await
        };
        assert_eq!(answer.status, 500);
        assert!(since.elapsed() < Duration::from_secs(20), "{:?}", since.elapsed());
        assert_eq!(double.artifacts(), Vec::<String>::new());
    };
    let over_patient = TestDatastore::with(patient.storage()).await;
    get(&over_patient, URL).await;
    let [s3, gcs] = TestDatastore::doubles().await;
    tokio::join!(
        silent(&over_patient, &patient, true),
        silent(&s3, s3.cloud(), false),
        silent(&gcs, gcs.cloud(), true),
    );
}

#[tokio::test]
async fn a_creation_that_was_applied_but_told_as_failed_is_200() {
    for (times, size) in [(1, 10), (FOR_EVER, 10), (1, 3 * MIB)] {
        for datastore in TestDatastore::doubles().await {
            let fault = CloudFault { status: 500, apply_then_fail: true, times, ..puts() };
            datastore.cloud().fault(fault);
            let body = noise(size, 1);
            assert_eq!(create(&datastore, body.clone()).await.status, 200);
            assert_eq!(get(&datastore, URL).await.body, body);
        }
    }
}

#[tokio::test]
async fn a_put_that_was_applied_but_told_as_failed_is_200() {
    for datastore in TestDatastore::doubles().await {
        stored(&datastore, URL, "old").await;
        let times = FOR_EVER;
        datastore.cloud().fault(CloudFault { status: 500, apply_then_fail: true, times, ..puts() });
        stored(&datastore, URL, "new").await;
        assert_eq!(get(&datastore, URL).await.text(), "new");
    }
}

#[tokio::test]
async fn a_creation_that_fails_where_another_stands_is_412() {
    for datastore in TestDatastore::doubles().await {
        stored(&datastore, URL, "theirs").await;
        datastore.cloud().fault(CloudFault { status: 500, times: FOR_EVER, ..puts() });
        assert_eq!(create(&datastore, b"ours".to_vec()).await.status, 412);
        assert_eq!(create(&datastore, b"theirs".to_vec()).await.status, 200);
    }
}

#[tokio::test]
async fn a_creation_whose_answer_comes_too_late_is_looked_up() {
    for datastore in TestDatastore::doubles().await {
        let delay = Duration::from_secs(5);
        datastore.cloud().fault(CloudFault { delay, apply_then_fail: true, ..puts() });
        assert_eq!(create(&datastore, b"body".to_vec()).await.status, 200);
        assert_eq!(asked(datastore.cloud(), "PUT"), 1, "it was there: no second try");
    }
}

#[tokio::test]
async fn a_creation_that_came_too_late_to_be_applied_is_tried_again() {
    for datastore in TestDatastore::doubles().await {
        datastore.cloud().fault(CloudFault { delay: Duration::from_secs(5), ..puts() });
        assert_eq!(create(&datastore, b"body".to_vec()).await.status, 200);
        assert_eq!(get(&datastore, URL).await.text(), "body");
        assert_eq!(asked(datastore.cloud(), "PUT"), 2);
    }
}

#[tokio::test]
async fn a_conflict_where_nothing_stands_is_tried_again_three_times() {
    for datastore in TestDatastore::doubles().await {
        datastore.cloud().fault(CloudFault { status: 409, times: 3, ..puts() });
        assert_eq!(create(&datastore, b"body".to_vec()).await.status, 200);

        let other = URL.replace("attempt=0", "attempt=1");
        datastore.cloud().fault(CloudFault { status: 409, times: FOR_EVER, ..puts() });
        let create = request(&datastore, Method::PUT, &other).header("if-none-match", "*");
        assert_eq!(send(create.body("body")).await.status, 500);
        assert_eq!(datastore.cloud().artifacts(), [FILE]);
    }
}

#[tokio::test]
async fn a_get_that_is_cut_goes_on_where_it_was() {
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
async fn a_get_that_is_cut_again_and_again_arrives_as_long_as_it_moves() {
    for datastore in TestDatastore::doubles().await {
        let body = noise(9 * MIB, 1);
        stored(&datastore, URL, body.clone()).await;
        datastore.cloud().fault(CloudFault { cut_after: Some(MIB), times: FOR_EVER, ..gets() });
        assert!(get(&datastore, URL).await.body == body);
        assert!(asked(datastore.cloud(), "GET") >= 9);
    }
}

#[tokio::test]
async fn a_get_that_stalls_goes_on() {
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
async fn a_get_that_gets_nowhere_is_broken_off_and_never_short() {
    for datastore in TestDatastore::doubles().await {
        stored(&datastore, URL, noise(9 * MIB, 1)).await;
        datastore.cloud().fault(CloudFault { cut_after: Some(100), times: FOR_EVER, ..gets() });
        assert!(is_broken_off(&datastore, URL).await);
        datastore.cloud().heal();
        assert_eq!(get(&datastore, URL).await.body.len(), 9 * MIB);
    }
}

#[tokio::test]
async fn parts_that_end_early_are_asked_for_again_and_never_make_a_short_answer() {
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
async fn a_client_that_pauses_longer_than_the_backend_waits_gets_all() {
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
async fn what_is_replaced_while_it_is_read_is_broken_off_and_never_a_mix() {
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
async fn a_range_is_never_of_another_version_than_its_tag_says() {
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

/// Seven MiB in one piece, and 12 in parts, at a speed at which each takes more than half a minute.
#[tokio::test]
async fn an_upload_that_moves_slowly_is_not_given_up() {
    let slow = async |size: usize| {
        let double = Double::start(Dialect::S3);
        let datastore = TestDatastore::with(double.storage()).await;
        get(&datastore, URL).await;
        double.pace(Pace { bytes_per_second: 150 << 10, ..Pace::default() });
        assert_eq!(put(&datastore, URL, noise(size, 1)).await.status, 200, "{size}");
        assert_eq!(double.object(FILE).unwrap().len(), size);
    };
    tokio::join!(slow(7 * MIB), slow(12 * MIB));
}

#[tokio::test]
async fn a_creation_where_others_have_stored_something_larger_is_412_at_once() {
    for datastore in TestDatastore::doubles().await {
        datastore.cloud().put(FILE, noise(64 * MIB, 1));
        datastore.cloud().pace(Pace { bytes_per_second: 4 << 20, ..Pace::default() });
        let since = Instant::now();
        assert_eq!(create(&datastore, b"small".to_vec()).await.status, 412);
        assert!(since.elapsed() < Duration::from_secs(4), "{:?}", since.elapsed());
    }
}

#[tokio::test]
async fn a_run_whose_entry_met_a_conflict_is_found_all_the_same() {
    for datastore in TestDatastore::doubles().await {
        let (method, key) = ("PUT", ".plancha/runs");
        let conflict = CloudFault { method, key, times: 1, status: 409, ..CloudFault::default() };
        datastore.cloud().fault(conflict);
        // Either it is put again, or the caller knows.
        while put(&datastore, URL, "body").await.status != 200 {}
        let runs = get(&datastore, "runs?namespace=team-a&layer=network").await.json();
        assert_eq!(runs["runs"].as_array().unwrap().len(), 1);
    }
}

#[tokio::test]
async fn a_storage_that_says_nothing_at_all_is_500_within_20_s() {
    let double = Double::start(Dialect::S3);
    let datastore = TestDatastore::with(double.storage()).await;
    get(&datastore, URL).await;
    let delay = Duration::from_mins(1);
    double.fault(CloudFault { delay, times: FOR_EVER, ..CloudFault::default() });
    let since = Instant::now();
    let latest = format!("plans?{RUN}");
    let [attempts, runs] = [format!("attempts?{RUN}"), "runs?namespace=a&layer=b".to_owned()];
    let claim = format!("attempts?{RUN}&attempt=1&claim=0123456789abcdef0123456789abcdef");
    let bundle = "repository/revision/bundle?namespace=a&name=b&ref=c&revision=d";
    let answers = tokio::join!(
        put(&datastore, URL, "body"),
        put(&datastore, bundle, "body"),
        get(&datastore, URL),
        get(&datastore, &latest),
        get(&datastore, &attempts),
        get(&datastore, &runs),
        send(request(&datastore, Method::HEAD, bundle)),
    );
    assert!(since.elapsed() < Duration::from_secs(20), "{:?}", since.elapsed());
    let (put, put_bundle, get, latest, attempts, runs, head) = answers;
    for answer in [put, put_bundle, get, latest, attempts, runs, head] {
        assert_eq!(answer.status, 500, "{}", answer.text());
    }
    // It is read what became of the claim, so it takes two of the storage's silences.
    let since = Instant::now();
    let claims = (0..3).map(|_| send(request(&datastore, Method::POST, &claim)));
    for claim in futures::future::join_all(claims).await {
        assert!([500, 503].contains(&claim.status), "{}", claim.text());
    }
    assert!(since.elapsed() < Duration::from_secs(20), "{:?}", since.elapsed());
}

#[tokio::test]
async fn a_storage_that_falls_silent_in_the_middle_ends_the_answer_within_20_s() {
    let [s3, gcs] = TestDatastore::doubles().await;
    let silent = async |datastore: &TestDatastore, size: usize| {
        stored(datastore, URL, noise(size, 1)).await;
        datastore.cloud().fault(CloudFault { stall_after: Some(MIB), times: FOR_EVER, ..gets() });
        let mut answer = request(datastore, Method::GET, URL).send().await.unwrap();
        let since = Instant::now();
        // What came before the silence has come.
        while let Ok(Some(_)) = answer.chunk().await {}
        assert!(since.elapsed() < Duration::from_secs(20), "{:?}", since.elapsed());
    };
    tokio::join!(silent(&s3, 9 * MIB), silent(&gcs, 40 * MIB));
}

#[tokio::test]
async fn a_part_that_fails_for_ever_leaves_no_object_and_no_upload() {
    for datastore in TestDatastore::doubles().await {
        let query = "partNumber=2";
        datastore.cloud().fault(CloudFault { query, status: 503, times: FOR_EVER, ..puts() });
        assert_eq!(put(&datastore, URL, noise(20 * MIB, 1)).await.status, 500);
        assert_eq!(datastore.cloud().artifacts(), Vec::<String>::new());
        assert_eq!(datastore.cloud().open_uploads(), 0);
    }
}

#[tokio::test]
async fn a_part_that_is_refused_twice_is_sent_again() {
    for datastore in TestDatastore::doubles().await {
        let query = "partNumber=2";
        datastore.cloud().fault(CloudFault { query, status: 503, times: 2, ..puts() });
        let body = noise(20 * MIB, 1);
        stored(&datastore, URL, body.clone()).await;
        assert!(get(&datastore, URL).await.body == body);
    }
}

#[tokio::test]
async fn a_completion_that_was_applied_but_told_as_failed_is_200() {
    for times in [1, FOR_EVER] {
        for datastore in TestDatastore::doubles().await {
            let fault = CloudFault { status: 500, apply_then_fail: true, times, ..completions() };
            datastore.cloud().fault(fault);
            let body = noise(12 * MIB, 1);
            stored(&datastore, URL, body.clone()).await;
            let answer = get(&datastore, URL).await;
            assert!(answer.body == body);
            assert_eq!(answer.header("etag"), Some(&*etag(&body)), "its digest was written down");
        }
    }
}

#[tokio::test]
async fn a_completion_that_fails_is_500_and_leaves_what_was_there() {
    for datastore in TestDatastore::doubles().await {
        stored(&datastore, URL, noise(12 * MIB, 1)).await;
        let times = FOR_EVER;
        datastore.cloud().fault(CloudFault { status: 500, times, ..completions() });
        assert_eq!(put(&datastore, URL, noise(12 * MIB, 2)).await.status, 500);
        assert_eq!(datastore.cloud().open_uploads(), 0);
        datastore.cloud().heal();
        assert!(get(&datastore, URL).await.body == noise(12 * MIB, 1));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_leaves_between_two_parts_leaves_no_upload() {
    for datastore in TestDatastore::doubles().await {
        let address = datastore.url.socket_addrs(|| None).unwrap()[0];
        let mut socket = std::net::TcpStream::connect(address).unwrap();
        let head =
            format!("PUT /api/{URL} HTTP/1.1\r\nhost: x\r\ncontent-length: 40000000\r\n\r\n");
        socket.write_all(head.as_bytes()).unwrap();
        socket.write_all(&noise(12 * MIB, 1)).unwrap();
        eventually("an upload", || datastore.cloud().open_uploads() == 1);
        drop(socket);
        let since = Instant::now();
        eventually("none", || datastore.cloud().open_uploads() == 0);
        assert!(since.elapsed() < Duration::from_secs(1), "{since:?}");
        assert_eq!(datastore.cloud().artifacts(), Vec::<String>::new());
    }
}

#[tokio::test]
async fn ds25_a_storage_that_denies_is_500_in_upstreams_words_and_never_404() {
    let bundle = "repository/revision/bundle?namespace=a&name=b&ref=c&revision=d";
    for datastore in TestDatastore::doubles().await {
        let all = CloudFault { status: 403, times: FOR_EVER, ..CloudFault::default() };
        datastore.cloud().fault(all);
        for (method, url) in [
            (Method::GET, format!("plans?{RUN}&attempt=0")),
            (Method::GET, format!("plans?{RUN}")),
            (Method::PUT, format!("plans?{RUN}&attempt=0")),
            (Method::GET, format!("logs?{RUN}&attempt=0")),
            (Method::PUT, format!("logs?{RUN}&attempt=0")),
            (Method::GET, bundle.to_owned()),
            (Method::HEAD, bundle.to_owned()),
            (Method::PUT, bundle.to_owned()),
            (Method::GET, format!("attempts?{RUN}")),
            (Method::GET, "runs?namespace=a&layer=b".to_owned()),
        ] {
            let answer = send(request(&datastore, method.clone(), &url).body("x")).await;
            assert_eq!(answer.status, 500, "{method} {url}");
            if method != Method::HEAD && !url.starts_with(['a', 'r']) {
                let words = "there's an issue with the storage backend";
                assert!(answer.text().contains(words), "{}", answer.text());
            }
        }
    }
}

#[tokio::test]
async fn ds25_without_its_bucket_every_write_is_500() {
    for datastore in TestDatastore::doubles().await {
        datastore.cloud().has_bucket(false);
        for url in [URL, "repository/revision/bundle?namespace=a&name=b&ref=c&revision=d"] {
            assert_eq!(put(&datastore, url, "x").await.status, 500, "{url}");
            assert_eq!(put(&datastore, url, noise(9 * MIB, 1)).await.status, 500, "{url}");
        }
        assert_eq!(get(&datastore, &format!("plans?{RUN}")).await.status, 500);
    }
}
