//! Objects in a bucket: their digests, large objects, and listing, reading and deleting by key.

use std::time::Duration;

use datastore::store::{Ability, BoxError, Storage, Store, Verdict};
use datastore_api::Sha256;
use futures::{StreamExt as _, TryStreamExt as _};
use jiff::{SignedDuration, Timestamp};
use reqwest::Method;
use support::{CloudFault, Dialect, FakeCloud, TestDatastore, wait_for};

use crate::http::{etag, get, noise, request, send, stored};

const MIB: usize = 1 << 20;
const URL: &str = "plans?namespace=team-a&layer=network&run=plan-1&attempt=0&format=bin";
/// Uploaded in parts. Without whole blocks of 16 bytes it cannot be taken for encrypted.
const LARGE: usize = 9 * MIB + 1;
const FILE: &str = "layers/team-a/network/plan-1/0/plan.bin";
pub(crate) const FOR_EVER: usize = usize::MAX;

pub(crate) fn doubles() -> Vec<FakeCloud> {
    Dialect::ALL.map(FakeCloud::start).into()
}

pub(crate) fn open(double: &FakeCloud) -> Store {
    Store::open(&double.impatient()).unwrap()
}

/// How many leftovers of killed processes were removed, or the first error.
pub(crate) async fn swept(store: &Store, now: Timestamp) -> Result<usize, BoxError> {
    store.sweep(now).await.into_iter().sum()
}

fn record() -> String {
    format!(".plancha/sha256/{FILE}")
}

#[tokio::test]
async fn digest_is_object_metadata_if_known_before_the_upload_else_a_record() {
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
async fn objects_stored_by_other_programs_are_served_without_a_digest() {
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
async fn read_of_corrupted_bytes_in_a_bucket_never_ends_cleanly() {
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
async fn large_object_is_read_back_whole_and_by_any_range() {
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
async fn large_creation_applied_by_the_backend_but_reported_failed_returns_200() {
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
async fn bucket_in_the_host_is_added_to_the_endpoint() {
    let double = FakeCloud::start(Dialect::S3);
    let address = double.address().to_owned();
    let storage = double.storage_with(&[
        ("AWS_VIRTUAL_HOSTED_STYLE_REQUEST", "true"),
        ("AWS_ENDPOINT_URL_S3", "http://s3.example.test"),
        // It sees each request with its host.
        ("AWS_PROXY_URL", &address),
    ]);
    let datastore = TestDatastore::with(storage).await;
    stored(&datastore, URL, noise(9 * MIB, 1)).await;
    assert!(get(&datastore, URL).await.body == noise(9 * MIB, 1));
    assert!(double.object(FILE).is_some_and(|object| object == noise(9 * MIB, 1)));
}

#[tokio::test]
async fn multipart_uploads_of_a_killed_process_are_aborted_after_a_day() {
    for dialect in Dialect::ALL {
        let double = FakeCloud::start(dialect);
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
        assert_eq!(swept(&store, now + SignedDuration::from_hours(23)).await.unwrap(), 0);
        assert_eq!(double.open_uploads(), 6);
        assert_eq!(swept(&below, now + SignedDuration::from_hours(25)).await.unwrap(), 1);
        assert_eq!(swept(&store, now + SignedDuration::from_hours(25)).await.unwrap(), 2);
        assert_eq!(double.open_uploads(), 3, "those of others");
    }
}

#[tokio::test]
async fn denied_listing_of_uploads_names_the_right() {
    for dialect in Dialect::ALL {
        let double = FakeCloud::start(dialect);
        double.fault(CloudFault {
            query: "uploads",
            status: 403,
            code: "AccessDenied",
            times: FOR_EVER,
            ..CloudFault::default()
        });
        let error = swept(&open(&double), Timestamp::now()).await.unwrap_err();
        let error = datastore::chain(&*error);
        let right = match dialect {
            Dialect::S3 => "s3:ListBucketMultipartUploads",
            Dialect::Gcs => "storage.multipartUploads.list",
        };
        let expected =
            format!("it denies access; the datastore's credentials need the right {right}:");
        assert!(error.contains(&expected) && error.contains("403 Forbidden"), "{error}");
    }
}

#[tokio::test]
async fn large_object_keeps_its_digest_if_the_completion_returns_another_etag() {
    for double in doubles() {
        double.return_wrong_etags();
        let datastore = TestDatastore::over(double).await;
        let body = noise(9 * MIB, 1);
        stored(&datastore, URL, body.clone()).await;
        let answer = get(&datastore, URL).await;
        assert_eq!(answer.header("etag"), Some(&*etag(&body)));
        assert!(answer.body == body);
        assert_eq!(
            open(datastore.cloud()).try_all().await.can(Ability::MultipartEtag),
            Some(false)
        );
    }
}

#[tokio::test]
async fn small_creation_succeeds_after_an_aborted_large_upload() {
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
async fn ds14_bundle_in_a_bucket_is_stored_under_the_unescaped_ref() {
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
async fn objects_are_listed_read_and_deleted_by_key() {
    let clouds = doubles();
    let directory = tempfile::TempDir::new().unwrap();
    let local = [Storage::Memory, Storage::File(directory.path().to_owned())];
    for storage in clouds.iter().map(FakeCloud::storage).chain(local) {
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
        store.put(&key, datastore::store::PutConditions::default(), body).await.unwrap();
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
        let mut left = keys("").await;
        // What changes with the summary of the layer.
        left.retain(|key| !key.starts_with(".plancha/layers/"));
        assert_eq!(left.len(), 1, "only the run's entry is left");
    }
}

#[tokio::test]
async fn put_returns_500_within_20_s_if_the_backend_refuses_connections() {
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", closed.local_addr().unwrap());
    drop(closed);
    let storage = FakeCloud::start(Dialect::S3).storage_with(&[("AWS_ENDPOINT_URL_S3", &url)]);
    let datastore = TestDatastore::with(storage).await;
    let put = send(request(&datastore, Method::PUT, URL).body("x"));
    let put = tokio::time::timeout(Duration::from_secs(20), put).await.unwrap();
    assert_eq!(put.status, 500);
    let ready = reqwest::get(datastore.url.join("readyz").unwrap()).await.unwrap();
    assert_eq!(ready.status(), 503);
}

#[tokio::test]
async fn verify_takes_a_record_of_another_version_for_no_record() {
    for datastore in TestDatastore::doubles().await {
        let (store, cloud) = (open(datastore.cloud()), datastore.cloud());
        // It has a record, and no digest in its metadata.
        let body = noise(LARGE, 1);
        stored(&datastore, URL, body.clone()).await;
        assert_eq!(store.verify(FILE).await.unwrap(), Verdict::Intact);
        // Another program, or an upload whose record was never written.
        cloud.put(FILE, noise(LARGE, 2));
        assert_eq!(store.verify(FILE).await.unwrap(), Verdict::Unverified);
        assert_eq!(get(&datastore, URL).await.status, 200);
        // A restored copy.
        cloud.put(FILE, body);
        assert_eq!(store.verify(FILE).await.unwrap(), Verdict::Healed);
        assert_eq!(store.verify(FILE).await.unwrap(), Verdict::Intact);
        cloud.rot(FILE, 5);
        assert_eq!(store.verify(FILE).await.unwrap(), Verdict::Changed);
    }
}

#[tokio::test]
async fn digests_survive_a_copy_from_a_directory_to_a_bucket() {
    let directory = TestDatastore::temporary().await;
    let small = FILE.replace("/0/", "/1/");
    stored(&directory, URL, noise(LARGE, 1)).await;
    stored(&directory, &URL.replace("attempt=0", "attempt=1"), "small").await;
    for double in doubles() {
        for file in crate::http::files(&directory.root()) {
            let bytes = std::fs::read(directory.root().join(&file)).unwrap();
            double.put(file.to_str().unwrap(), bytes);
        }
        let store = open(&double);
        for key in [FILE, &small] {
            assert_eq!(store.verify(key).await.unwrap(), Verdict::Healed, "{key}");
            assert_eq!(store.verify(key).await.unwrap(), Verdict::Intact, "{key}");
        }
        assert_eq!(store.reindex().await.unwrap(), 0, "the index was copied, too");
    }
}

/// How many requests so far start with `start`.
fn requests(double: &FakeCloud, start: &str) -> usize {
    double.requests().iter().filter(|request| request.starts_with(start)).count()
}

/// Delays the next request with this method and key, and waits until it arrives.
async fn delayed(double: &FakeCloud, method: &'static str, key: &'static str, seconds: u64) {
    let start = format!("{method} {key}");
    let before = requests(double, &start);
    let delay = Duration::from_secs(seconds);
    double.fault(CloudFault { method, key, times: 1, delay, ..CloudFault::default() });
    wait_for(&start, async || (requests(double, &start) > before).then_some(())).await;
}

/// Verifies the object while its record is being written.
async fn verify_before_record(double: &FakeCloud, store: &Store) -> Verdict {
    delayed(double, "PUT", ".plancha/sha256/", 4).await;
    store.verify(FILE).await.unwrap()
}

#[tokio::test]
async fn verify_between_an_object_and_its_record_reports_it_as_unverified() {
    for double in doubles() {
        let datastore = TestDatastore::with(double.storage()).await;
        let store = Store::open(&double.storage()).unwrap();
        stored(&datastore, URL, noise(LARGE, 0)).await;
        let verify = verify_before_record(&double, &store);
        let ((), verdict) = tokio::join!(stored(&datastore, URL, noise(LARGE, 1)), verify);
        assert_eq!(verdict, Verdict::Unverified);
        assert_eq!(store.verify(FILE).await.unwrap(), Verdict::Intact);
    }
}

#[tokio::test]
async fn verify_reads_an_object_again_that_an_upload_has_replaced_meanwhile() {
    for double in doubles() {
        let datastore = TestDatastore::with(double.storage()).await;
        let store = Store::open(&double.storage()).unwrap();
        stored(&datastore, URL, noise(LARGE, 0)).await;
        let verify = verify_before_record(&double, &store);
        let replace = async {
            // The last request of the comparison. Meanwhile another version is stored, with its record.
            delayed(&double, "HEAD", "layers/", 8).await;
            stored(&datastore, URL, noise(LARGE, 2)).await;
        };
        let upload = stored(&datastore, URL, noise(LARGE, 1));
        let ((), verdict, ()) = tokio::join!(upload, verify, replace);
        assert_eq!(verdict, Verdict::Intact);
    }
}

#[tokio::test]
async fn object_that_replaces_another_has_a_digest_if_the_record_of_that_is_written_later() {
    for double in doubles() {
        let datastore = TestDatastore::with(double.storage()).await;
        let other = TestDatastore::with(double.storage()).await;
        let replace = async {
            delayed(&double, "PUT", ".plancha/sha256/", 8).await;
            stored(&other, URL, noise(LARGE, 1)).await;
        };
        tokio::join!(stored(&datastore, URL, noise(LARGE, 0)), replace);
        let store = Store::open(&double.storage()).unwrap();
        assert_eq!(store.verify(FILE).await.unwrap(), Verdict::Intact);
        let read = get(&datastore, URL).await;
        assert!(read.body == noise(LARGE, 1) && read.header("repr-digest").is_some());
    }
}
