//! Objects of a directory that another program has changed, and keys that collide.

mod repeated_uploads;

use std::fs::{File, FileTimes};
use std::io::Write as _;
use std::time::{Duration, SystemTime};

use datastore::store::{Storage, Store, StoreError, Verdict};
use futures::future::join_all;
use reqwest::Method;
use support::TestDatastore;
use tokio_util::sync::CancellationToken;

use crate::api::transfer::{FILE, KIB, MIB, URL, with};
use crate::http::{RUN, etag, get, noise, put, request, stored};

#[tokio::test]
async fn read_of_corrupted_bytes_never_ends_cleanly() {
    let datastore = TestDatastore::temporary().await;
    for size in [5, 256 * KIB, 3 * MIB] {
        for at in [0, size / 2, size - 1] {
            let body = noise(size, 3);
            stored(&datastore, URL, body.clone()).await;
            rot(&datastore, at, body[at] ^ 1);
            refused(&datastore, URL, size).await;
        }
    }
    let log = format!("logs?{RUN}&attempt=0");
    stored(&datastore, &log, "a log").await;
    rot_file(&datastore.root().join(FILE).with_file_name("run.log"), 0, b'A');
    refused(&datastore, &log, 5).await;
}

/// An object of one piece is a 500 with a message, a larger one is broken off.
async fn refused(datastore: &TestDatastore, url: &str, size: usize) {
    let response = request(datastore, Method::GET, url).send().await.unwrap();
    if size <= 256 * KIB {
        assert_eq!(response.status(), 500, "{size}");
        let text = response.text().await.unwrap();
        assert!(text.contains("issue with the storage backend"), "{text}");
    } else {
        assert_eq!(response.status(), 200, "{size}");
        response.bytes().await.unwrap_err();
    }
}

#[tokio::test]
async fn range_that_covers_a_small_damaged_object_returns_500() {
    let mut all = TestDatastore::doubles().await;
    all.push(TestDatastore::temporary().await);
    let last = all.len() - 1;
    for (n, datastore) in all.iter().enumerate() {
        for size in [100, 256 * KIB] {
            let body = noise(size, 3);
            stored(datastore, URL, body.clone()).await;
            let to_the_end = format!("bytes=0-{}", size - 1);
            let ranges = ["bytes=0-", &to_the_end, "bytes=0-999999", "bytes=-999999"];
            for range in ranges {
                let answer = with(datastore, Method::GET, &[("range", range)], b"").await;
                assert!(answer.status == 206 && answer.body == body, "{range}");
            }
            if n == last {
                rot(datastore, size - 1, body[size - 1] ^ 1);
            } else {
                datastore.cloud().rot(FILE, size - 1);
            }
            for range in ranges {
                let answer = with(datastore, Method::GET, &[("range", range)], b"").await;
                let damaged = answer.header("plancha-damaged");
                assert_eq!((answer.status, damaged), (500, Some("1")), "{range}");
            }
        }
    }
}

/// As a restored backup: the same bytes, at another time.
fn touch(datastore: &TestDatastore) {
    let file = File::options().write(true).open(datastore.root().join(FILE)).unwrap();
    file.set_times(FileTimes::new().set_modified(SystemTime::UNIX_EPOCH)).unwrap();
}

#[tokio::test]
async fn touched_object_is_verified_and_its_digest_record_renewed() {
    let datastore = TestDatastore::temporary().await;
    for size in [0, 5, 100 * KIB, 256 * KIB, 3 * MIB] {
        let body = noise(size, 4);
        stored(&datastore, URL, body.clone()).await;
        touch(&datastore);
        let head = with(&datastore, Method::HEAD, &[], b"").await;
        assert_eq!((head.status, head.header("repr-digest")), (200, None), "{size}");
        if size > 0 {
            let part = with(&datastore, Method::GET, &[("range", "bytes=0-0")], b"").await;
            assert_eq!((part.status, part.header("repr-digest")), (206, None), "{size}");
        }
        let answer = get(&datastore, URL).await;
        assert!(answer.status == 200 && answer.body == body, "{size}");
        let head = with(&datastore, Method::HEAD, &[], b"").await;
        assert_eq!(head.header("etag"), Some(&*etag(&body)), "{size}");
        let tag = etag(&body);
        let known = with(&datastore, Method::GET, &[("if-none-match", &tag)], b"").await;
        assert_eq!(known.status, 304, "{size}");
    }
}

#[tokio::test]
async fn digest_is_read_from_the_file_attribute_or_the_record() {
    let datastore = TestDatastore::temporary().await;
    let (file, beside) = (datastore.root().join(FILE), datastore.root().join(".plancha/sha256"));
    for size in [5, 3 * MIB] {
        let body = noise(size, 5);
        let known = async || {
            let head = with(&datastore, Method::HEAD, &[], b"").await;
            assert_eq!((head.status, head.header("etag")), (200, Some(&*etag(&body))), "{size}");
        };
        stored(&datastore, URL, body.clone()).await;
        let record = std::fs::read(beside.join(FILE)).unwrap();
        if rustix::fs::removexattr(&file, "user.plancha").is_ok() {
            known().await;
            // As a power failure leaves an unsynced copy.
            stored(&datastore, URL, body.clone()).await;
            stored(&datastore, URL, body.clone()).await;
            for cut in [&b""[..], &record[..record.len() / 2]] {
                std::fs::write(beside.join(FILE), cut).unwrap();
                known().await;
                assert!(get(&datastore, URL).await.body == body);
            }
            // What replaces it describes it again, for a backup without attributes.
            stored(&datastore, URL, body.clone()).await;
            rustix::fs::removexattr(&file, "user.plancha").unwrap();
        }
        known().await;
    }
}

#[tokio::test]
async fn modified_object_with_a_new_mtime_is_never_served_whole() {
    let datastore = TestDatastore::temporary().await;
    for size in [5, 256 * KIB, 3 * MIB] {
        let body = noise(size, 3);
        stored(&datastore, URL, body.clone()).await;
        rot(&datastore, size - 1, body[size - 1] ^ 1);
        touch(&datastore);
        refused(&datastore, URL, size).await;
        let head = with(&datastore, Method::HEAD, &[], b"").await;
        assert_eq!((head.status, head.header("repr-digest")), (200, None));
        let tag = head.header("etag").unwrap().to_owned();
        let same = with(&datastore, Method::GET, &[("if-none-match", &tag)], b"").await;
        assert_eq!(same.status, 304);
        stored(&datastore, URL, body.clone()).await;
        assert!(get(&datastore, URL).await.body == body, "replaced");
    }
}

#[tokio::test]
async fn truncated_object_returns_500_for_every_method() {
    let datastore = TestDatastore::temporary().await;
    for size in [5, 3 * MIB] {
        stored(&datastore, URL, noise(size, 3)).await;
        let file = File::options().write(true).open(datastore.root().join(FILE)).unwrap();
        file.set_len(size as u64 - 1).unwrap();
        for (method, range) in [(Method::GET, ""), (Method::HEAD, ""), (Method::GET, "bytes=0-0")] {
            let answer = with(&datastore, method.clone(), &[("range", range)], b"").await;
            assert_eq!(answer.status, 500, "{method} {range}");
        }
        let create = with(&datastore, Method::PUT, &[("if-none-match", "*")], b"x").await;
        assert_eq!(create.status, 412);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn two_processes_on_one_directory_keep_objects_and_records_consistent() {
    let directory = tempfile::TempDir::new().unwrap();
    let both =
        [TestDatastore::file(directory.path()).await, TestDatastore::file(directory.path()).await];
    for round in 0..20 {
        let puts = (0..8_usize).map(|n| put(&both[n % 2], URL, noise(100 + n, round)));
        assert!(join_all(puts).await.iter().all(|answer| answer.status == 200));
        let answer = get(&both[0], URL).await;
        assert_eq!((answer.status, answer.header("etag")), (200, Some(&*etag(&answer.body))));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn valid_object_is_never_refused_while_two_processes_replace_touch_and_verify_it() {
    let directory = tempfile::TempDir::new().unwrap();
    let both =
        [TestDatastore::file(directory.path()).await, TestDatastore::file(directory.path()).await];
    stored(&both[0], URL, noise(1000, 0)).await;
    let is_over = CancellationToken::new();
    let (file, ended) = (directory.path().join(FILE), is_over.clone());
    let touching = tokio::task::spawn_blocking(move || {
        let mut times = 0;
        while !ended.is_cancelled() {
            times += 1;
            let modified = SystemTime::UNIX_EPOCH + Duration::from_micros(times);
            File::open(&file).unwrap().set_times(FileTimes::new().set_modified(modified)).unwrap();
        }
        times
    });
    let writing = async {
        for round in 0..300_u64 {
            let puts = (0..2_u64)
                .map(|n| put(&both[usize::from(n == 1)], URL, noise(1000, 2 * round + n)));
            assert!(join_all(puts).await.iter().all(|answer| answer.status == 200));
        }
        is_over.cancel();
    };
    let reading = async |datastore: &TestDatastore| {
        let mut read = 0;
        while !is_over.is_cancelled() {
            let answer = get(datastore, URL).await;
            assert_eq!((answer.status, answer.body.len()), (200, 1000), "{}", answer.text());
            let part = with(datastore, Method::GET, &[("range", "bytes=0-9")], b"").await;
            assert_eq!(part.status, 206, "{}", part.text());
            read += 1;
        }
        read
    };
    let third = Store::open(&Storage::File(directory.path().to_owned())).unwrap();
    let verifying = async {
        while !is_over.is_cancelled() {
            let verdict = third.verify(FILE).await.unwrap();
            assert!(matches!(verdict, Verdict::Intact | Verdict::Healed), "{verdict:?}");
        }
    };
    let ((), first, second, ()) =
        tokio::join!(writing, reading(&both[0]), reading(&both[1]), verifying);
    assert!(first > 0 && second > 0 && touching.await.unwrap() > 0);
}

#[tokio::test]
async fn accept_beside_uploads_reports_that_the_object_was_replaced() {
    let datastore = TestDatastore::temporary().await;
    let store = Store::open(&Storage::File(datastore.root())).unwrap();
    stored(&datastore, URL, noise(1000, 0)).await;
    let is_over = CancellationToken::new();
    let uploading = async {
        let mut round = 1;
        while !is_over.is_cancelled() {
            assert_eq!(put(&datastore, URL, noise(1000, round)).await.status, 200);
            round += 1;
        }
    };
    // Each upload comes in between of some of many.
    let accepting = async {
        let mut replaced = false;
        for _ in 0..20_000 {
            match store.accept(FILE).await {
                Ok(_) => {}
                Err(StoreError::Replaced) => replaced = true,
                Err(error) => panic!("{error:?}"),
            }
            if replaced {
                break;
            }
        }
        is_over.cancel();
        replaced
    };
    let ((), replaced) = tokio::join!(uploading, accepting);
    assert!(replaced, "no upload came in between");
}

#[tokio::test]
async fn objects_that_are_stored_and_deleted_meanwhile_are_not_lost() {
    let datastore = TestDatastore::temporary().await;
    let open = || Store::open(&Storage::File(datastore.root())).unwrap();
    let (deleting, checking_store, is_over) = (open(), open(), CancellationToken::new());
    let changing = async {
        for round in 0..300 {
            stored(&datastore, URL, noise(100, round)).await;
            deleting.delete(FILE).await.unwrap();
        }
        is_over.cancel();
    };
    let checking = async {
        while !is_over.is_cancelled() {
            assert!(!checking_store.is_lost(FILE).await.unwrap());
        }
    };
    tokio::join!(changing, checking);
}

#[tokio::test]
async fn ref_that_collides_with_a_bundle_in_a_directory_returns_409() {
    let datastore = TestDatastore::temporary().await;
    let bundle = |git_ref: &str, revision: &str| {
        format!("repository/revision/bundle?namespace=a&name=b&ref={git_ref}&revision={revision}")
    };
    stored(&datastore, &bundle("main", "x"), "bundle").await;
    stored(&datastore, &bundle("other/y.gitbundle", "z"), "bundle").await;
    for (git_ref, revision) in [("main/x.gitbundle", "y"), ("other", "y")] {
        for body in [b"small".to_vec(), noise(3 * MIB, 1)] {
            let url = bundle(git_ref, revision);
            let answer = put(&datastore, &url, body).await;
            assert_eq!(answer.status, 409, "{}", answer.text());
            assert!(answer.text().contains("a file and a directory of the same name"));
            assert_eq!(get(&datastore, &url).await.status, 404);
        }
    }
    assert_eq!(get(&datastore, &bundle("main", "x")).await.text(), "bundle");
}

#[tokio::test]
async fn directory_in_place_of_a_digest_record_returns_500_not_409() {
    let datastore = TestDatastore::temporary().await;
    let url = format!("artifacts?{RUN}&attempt=0&name=a");
    stored(&datastore, &url, "12345").await;
    let key = "layers/team-a/network/plan-1/0/a";
    crate::http::forget_digest(&datastore.root(), key);
    std::fs::create_dir_all(datastore.root().join(".plancha/sha256").join(key).join("x")).unwrap();
    for answer in [get(&datastore, &url).await, put(&datastore, &url, "new").await] {
        assert_eq!(answer.status, 500, "{}", answer.text());
        assert!(answer.text().contains("the datastore's log has the details"), "{}", answer.text());
    }
}

fn rot(datastore: &TestDatastore, at: usize, byte: u8) {
    rot_file(&datastore.root().join(FILE), at, byte);
}

/// Changes a byte as a dying disk does: without a trace in the file's times.
pub(crate) fn rot_file(path: &std::path::Path, at: usize, byte: u8) {
    use std::io::{Seek as _, SeekFrom};
    let modified = std::fs::metadata(path).unwrap().modified().unwrap();
    let mut file = File::options().write(true).open(path).unwrap();
    file.seek(SeekFrom::Start(at as u64)).unwrap();
    file.write_all(&[byte]).unwrap();
    file.set_times(FileTimes::new().set_modified(modified)).unwrap();
}
