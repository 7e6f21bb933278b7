//! Faults of a cloud during a write: the client sees success, or an error that is true.
//!
//! Each fault is injected into a fake S3 and a fake Google Cloud Storage.

use std::io::Write as _;
use std::time::{Duration, Instant};

use datastore::config::Config;
use datastore::store::encryption::AtRest;
use reqwest::Method;
use support::{CloudFault, Dialect, FakeCloud, Pace, TestDatastore, eventually};

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

fn completions() -> CloudFault {
    CloudFault { method: "POST", query: "uploadId", times: 1, ..CloudFault::default() }
}

/// How many requests there were of this method for the plan.
pub(crate) fn asked(cloud: &FakeCloud, method: &str) -> usize {
    let start = format!("{method} {FILE}");
    cloud.requests().iter().filter(|request| request.starts_with(&start)).count()
}

#[tokio::test]
async fn put_refused_twice_by_the_backend_is_retried_and_stored() {
    for datastore in TestDatastore::doubles().await {
        datastore.cloud().fault(CloudFault { status: 503, times: 2, ..puts() });
        stored(&datastore, URL, "body").await;
        assert_eq!(get(&datastore, URL).await.text(), "body");
        assert_eq!(asked(datastore.cloud(), "PUT"), 3);
    }
}

#[tokio::test]
async fn put_always_refused_by_the_backend_returns_500_within_20_s_without_details() {
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
            assert!(since.elapsed() < Duration::from_secs(25));
        }
        assert_eq!(datastore.cloud().artifacts(), Vec::<String>::new());
        datastore.cloud().heal();
        assert_eq!(create(&datastore, b"body".to_vec()).await.status, 200);
    }
}

#[tokio::test]
async fn put_unanswered_by_the_backend_returns_500_within_20_s() {
    // The patient one waits longer for each byte than a put may take.
    let patient = FakeCloud::start(Dialect::S3);
    let delay = Duration::from_mins(1);
    let silent = async |datastore: &TestDatastore, double: &FakeCloud, condition| {
        double.fault(CloudFault { delay, times: FOR_EVER, ..puts() });
        let since = Instant::now();
        let answer = if condition {
            create(datastore, b"body".to_vec()).await
        } else {
            put(datastore, URL, "body").await
        };
        assert_eq!(answer.status, 500);
        assert!(since.elapsed() < Duration::from_secs(25), "{:?}", since.elapsed());
        assert_eq!(double.artifacts(), Vec::<String>::new());
    };
    let over_patient = TestDatastore::with(patient.storage()).await;
    get(&over_patient, URL).await;
    let (s3, gcs) =
        tokio::join!(TestDatastore::double(Dialect::S3), TestDatastore::double(Dialect::Gcs));
    tokio::join!(
        silent(&over_patient, &patient, true),
        silent(&s3, s3.cloud(), false),
        silent(&gcs, gcs.cloud(), true),
    );
}

#[tokio::test]
async fn creation_applied_by_the_backend_but_reported_failed_returns_200() {
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
async fn put_applied_by_the_backend_but_reported_failed_returns_200() {
    for datastore in TestDatastore::doubles().await {
        stored(&datastore, URL, "old").await;
        let times = FOR_EVER;
        datastore.cloud().fault(CloudFault { status: 500, apply_then_fail: true, times, ..puts() });
        stored(&datastore, URL, "new").await;
        assert_eq!(get(&datastore, URL).await.text(), "new");
    }
}

#[tokio::test]
async fn failed_creation_over_another_object_returns_412() {
    for datastore in TestDatastore::doubles().await {
        stored(&datastore, URL, "theirs").await;
        datastore.cloud().fault(CloudFault { status: 500, times: FOR_EVER, ..puts() });
        assert_eq!(create(&datastore, b"ours".to_vec()).await.status, 412);
        assert_eq!(create(&datastore, b"theirs".to_vec()).await.status, 200);
    }
}

#[tokio::test]
async fn creation_with_a_late_response_is_resolved_by_reading_the_object() {
    for datastore in TestDatastore::doubles().await {
        let delay = Duration::from_secs(5);
        datastore.cloud().fault(CloudFault { delay, apply_then_fail: true, ..puts() });
        assert_eq!(create(&datastore, b"body".to_vec()).await.status, 200);
        assert_eq!(asked(datastore.cloud(), "PUT"), 1, "it was there: no second try");
    }
}

#[tokio::test]
async fn creation_not_applied_in_time_is_retried() {
    for datastore in TestDatastore::doubles().await {
        datastore.cloud().fault(CloudFault { delay: Duration::from_secs(5), ..puts() });
        assert_eq!(create(&datastore, b"body".to_vec()).await.status, 200);
        assert_eq!(get(&datastore, URL).await.text(), "body");
        assert_eq!(asked(datastore.cloud(), "PUT"), 2);
    }
}

#[tokio::test]
async fn conflict_without_an_existing_object_is_retried_three_times() {
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

/// Seven MiB in one piece, and 12 in parts, at a speed at which each takes more than half a minute.
#[tokio::test]
async fn slow_upload_does_not_time_out() {
    let slow = async |size: usize| {
        let double = FakeCloud::start(Dialect::S3);
        let datastore = TestDatastore::with(double.storage()).await;
        get(&datastore, URL).await;
        double.pace(Pace { bytes_per_second: 150 << 10, ..Pace::default() });
        assert_eq!(put(&datastore, URL, noise(size, 1)).await.status, 200, "{size}");
        assert_eq!(double.object(FILE).unwrap().len(), size);
    };
    tokio::join!(slow(7 * MIB), slow(12 * MIB));
}

#[tokio::test]
async fn creation_over_a_larger_object_of_another_program_returns_412_at_once() {
    for datastore in TestDatastore::doubles().await {
        datastore.cloud().put(FILE, noise(64 * MIB, 1));
        datastore.cloud().pace(Pace { bytes_per_second: 4 << 20, ..Pace::default() });
        let since = Instant::now();
        assert_eq!(create(&datastore, b"small".to_vec()).await.status, 412);
        assert!(since.elapsed() < Duration::from_secs(12), "{:?}", since.elapsed());
    }
}

#[tokio::test]
async fn run_is_listed_although_its_index_entry_met_a_conflict() {
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
async fn silent_storage_returns_500_within_20_s() {
    let double = FakeCloud::start(Dialect::S3);
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
    assert!(since.elapsed() < Duration::from_secs(25), "{:?}", since.elapsed());
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
    assert!(since.elapsed() < Duration::from_secs(25), "{:?}", since.elapsed());
}

#[tokio::test]
async fn part_that_always_fails_leaves_no_object_and_no_open_upload() {
    for datastore in TestDatastore::doubles().await {
        let query = "partNumber=2";
        datastore.cloud().fault(CloudFault { query, status: 503, times: FOR_EVER, ..puts() });
        assert_eq!(put(&datastore, URL, noise(20 * MIB, 1)).await.status, 500);
        assert_eq!(datastore.cloud().artifacts(), Vec::<String>::new());
        assert_eq!(datastore.cloud().open_uploads(), 0);
    }
}

#[tokio::test]
async fn part_refused_twice_is_retried() {
    for datastore in TestDatastore::doubles().await {
        let query = "partNumber=2";
        datastore.cloud().fault(CloudFault { query, status: 503, times: 2, ..puts() });
        let body = noise(20 * MIB, 1);
        stored(&datastore, URL, body.clone()).await;
        assert!(get(&datastore, URL).await.body == body);
    }
}

#[tokio::test]
async fn completion_applied_by_the_backend_but_reported_failed_returns_200() {
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
async fn failed_completion_returns_500_and_keeps_the_old_object() {
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
async fn client_disconnecting_between_parts_leaves_no_open_upload() {
    for datastore in TestDatastore::doubles().await {
        let address = datastore.url.socket_addrs(|| None).unwrap()[0];
        let mut socket = std::net::TcpStream::connect(address).unwrap();
        let head = format!(
            "PUT /api/{URL} HTTP/1.1\r\nhost: localhost\r\ncontent-length: 40000000\r\n\r\n"
        );
        socket.write_all(head.as_bytes()).unwrap();
        socket.write_all(&noise(12 * MIB, 1)).unwrap();
        eventually("an upload", || datastore.cloud().open_uploads() == 1);
        drop(socket);
        let since = Instant::now();
        eventually("none", || datastore.cloud().open_uploads() == 0);
        assert!(since.elapsed() < Duration::from_secs(20), "{:?}", since.elapsed());
        assert_eq!(datastore.cloud().artifacts(), Vec::<String>::new());
    }
}

#[tokio::test]
async fn ds25_storage_denying_access_returns_500_with_burritos_message_never_404() {
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
async fn ds25_write_to_a_missing_bucket_returns_500() {
    for datastore in TestDatastore::doubles().await {
        datastore.cloud().has_bucket(false);
        for url in [URL, "repository/revision/bundle?namespace=a&name=b&ref=c&revision=d"] {
            assert_eq!(put(&datastore, url, "x").await.status, 500, "{url}");
            assert_eq!(put(&datastore, url, noise(9 * MIB, 1)).await.status, 500, "{url}");
        }
        assert_eq!(get(&datastore, &format!("plans?{RUN}")).await.status, 500);
    }
}

#[tokio::test]
async fn object_without_its_digest_record_is_read_in_the_format_it_was_stored_in() {
    // Neither is recognised by its content: a plan that is no JSON, and a file of random bytes.
    let plan = URL.replace("format=bin", "format=json");
    let file = format!("artifacts?{RUN}&attempt=0&name=a");
    for dialect in Dialect::ALL {
        let double = FakeCloud::start(dialect);
        let key = Some("key".into());
        let at_rest = AtRest { key, encrypts: false };
        let with_key = Config { at_rest, ..Config::of(double.storage()) };
        for config in [Config::of(double.storage()), with_key] {
            let datastore = TestDatastore::of(config).await;
            for (url, seed) in [(&plan, 1), (&file, 2)] {
                // As after a kill between the completion of an upload and its record.
                let records = CloudFault { key: ".plancha/sha256/", times: FOR_EVER, ..puts() };
                double.fault(CloudFault { status: 500, ..records });
                let body = noise(9 * MIB, seed);
                assert_eq!(put(&datastore, url, body.clone()).await.status, 500);
                double.heal();
                let answer = get(&datastore, url).await;
                assert_eq!(answer.status, 200, "{url}: {:?}", answer.body.get(..200));
                assert!(answer.body == body);
                assert!(answer.header("etag").unwrap().starts_with("\"be-"));
            }
        }
    }
}
