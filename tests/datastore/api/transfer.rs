//! Digests, conditions, ranges, and what may never happen to the bytes of an artifact.

use std::path::PathBuf;
use std::time::Duration;

use datastore_api::Sha256;
use futures::future::join_all;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use reqwest::Method;
use reqwest::header::HeaderValue;
use support::{CloudFault, Dialect, FakeCloud, TestDatastore};

use crate::http::{
    Answer, RUN, etag, files, forget_digest, get, noise, put, request, send, stored,
};
use crate::program::process::until;

pub(crate) const KIB: usize = 1 << 10;
pub(crate) const MIB: usize = 1 << 20;
pub(crate) const URL: &str = "plans?namespace=team-a&layer=network&run=plan-1&attempt=0&format=bin";
pub(crate) const FILE: &str = "layers/team-a/network/plan-1/0/plan.bin";

pub(crate) async fn with(
    datastore: &TestDatastore,
    method: Method,
    headers: &[(&str, &str)],
    body: &[u8],
) -> Answer {
    let request = request(datastore, method, URL).body(body.to_vec());
    send(headers.iter().fold(request, |request, (name, value)| request.header(*name, *value))).await
}

#[tokio::test]
async fn if_match_selects_exactly_one_version() {
    let datastore = TestDatastore::memory().await;
    let url = format!("plans?{RUN}&attempt=0");
    stored(&datastore, &url, "body").await;
    let tag = etag(b"body");
    let ask = async |tags: &[&[u8]]| {
        let mut get = request(&datastore, Method::GET, &url);
        for tag in tags {
            get = get.header("if-match", HeaderValue::from_bytes(tag).unwrap());
        }
        send(get).await.status
    };
    assert_eq!(ask(&[tag.as_bytes()]).await, 200);
    assert_eq!(ask(&[b"\"other\"", tag.as_bytes()]).await, 200, "on another line");
    assert_eq!(ask(&[b"\"other\""]).await, 412);
    assert_eq!(ask(&[format!("W/{tag}").as_bytes()]).await, 412, "a weak one");
    assert_eq!(ask(&[b"\"\xff\""]).await, 412, "one that is no text");
}

#[tokio::test(flavor = "multi_thread")]
async fn if_match_never_returns_a_version_stored_after_the_check() {
    let double = FakeCloud::start(Dialect::S3);
    let datastore = TestDatastore::with(double.storage()).await;
    let url = "plans?namespace=team-a&layer=network&run=plan-1&attempt=0&format=bin";
    stored(&datastore, url, "old").await;
    let (method, key, delay) = ("GET", "plan.bin", Duration::from_secs(5));
    double.fault(CloudFault { method, key, times: 1, delay, ..CloudFault::default() });
    let read = request(&datastore, Method::GET, url).header("if-match", etag(b"old"));
    let (read, ()) = tokio::join!(send(read), async {
        while !double.requests().iter().any(|request| request.starts_with("GET layers/")) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        stored(&datastore, url, "new").await;
    });
    assert_eq!(read.status, 412);
}

#[tokio::test]
async fn every_response_has_the_digest_of_the_whole_object() {
    for datastore in TestDatastore::each().await {
        for size in [0, 1, MIB, 9 * MIB] {
            let body = noise(size, 7);
            let put = put(&datastore, URL, body.clone()).await;
            assert_eq!((put.status, put.header("etag")), (200, Some(&*etag(&body))));
            let repr_digest = Sha256::of(&body).to_repr_digest();
            for (method, range) in
                [(Method::GET, ""), (Method::HEAD, ""), (Method::GET, "bytes=0-0")]
            {
                let answer = with(&datastore, method, &[("range", range)], b"").await;
                if size == 0 && !range.is_empty() {
                    assert_eq!(answer.status, 416);
                    continue;
                }
                assert_eq!(answer.header("etag"), Some(&*etag(&body)));
                assert_eq!(answer.header("repr-digest"), Some(&*repr_digest));
                assert_eq!(answer.header("accept-ranges"), Some("bytes"));
            }
        }
    }
}

#[tokio::test]
async fn body_that_differs_from_its_announced_digest_is_refused_and_not_stored() {
    for datastore in TestDatastore::each().await {
        for (attempt, size) in [10, 3 * MIB, 9 * MIB].into_iter().enumerate() {
            let url = format!("plans?{RUN}&attempt={attempt}");
            let put = async |digest: &str, body: &[u8]| {
                let put = request(&datastore, Method::PUT, &url).header("repr-digest", digest);
                send(put.body(body.to_vec())).await
            };
            let body = noise(size, 1);
            let wrong = Sha256::of(b"other").to_repr_digest();
            let answer = put(&wrong, &body).await;
            assert_eq!(answer.status, 400);
            assert!(answer.text().contains(&Sha256::of(&body).to_string()), "{}", answer.text());
            assert_eq!(get(&datastore, &url).await.status, 404);

            let right = format!("sha-512=:AAAA:, {}", Sha256::of(&body).to_repr_digest());
            let answer = put(&right, &body).await;
            assert_eq!(answer.status, 200);
            let answer = put(&wrong, &body).await;
            assert_eq!(answer.status, 400);
            let answer = get(&datastore, &url).await;
            assert_eq!(answer.body, body, "the one before is still there");
            let repr_digest = Sha256::of(&body).to_repr_digest();
            assert_eq!(answer.header("repr-digest"), Some(&*repr_digest));
        }
        for nonsense in ["x", "sha-256=x", "sha-256=:AAAA:"] {
            let answer = with(&datastore, Method::PUT, &[("repr-digest", nonsense)], b"x").await;
            assert_eq!(answer.status, 400, "{nonsense}");
        }
        let mut reported = String::new();
        for announced in ["x", &Sha256::of(b"other").to_repr_digest()] {
            let answer = with(&datastore, Method::PUT, &[("repr-digest", announced)], b"x").await;
            reported += &(answer.refusal() + "\n");
        }
        insta::allow_duplicates! {
            insta::assert_snapshot!(reported, @r#"
400 text/plain; charset=UTF-8 header `Repr-Digest`: not a SHA-256 digest in Repr-Digest (sha-256=:<base64>:)
400 text/plain; charset=UTF-8 the body has the sha256 2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881, announced was d9298a10d1b0735837dc4bd85dac641b0f3cef27a47e5d53a54f2f3f5b2fcffa
"#);
        }
    }
}

#[tokio::test]
async fn creation_succeeds_over_identical_bytes_only() {
    for datastore in TestDatastore::each().await {
        for (attempt, size) in [10, 3 * MIB, 9 * MIB].into_iter().enumerate() {
            let url = format!("plans?{RUN}&attempt={attempt}");
            let create = async |body: &[u8]| {
                let put = request(&datastore, Method::PUT, &url).header("if-none-match", "*");
                send(put.body(body.to_vec())).await
            };
            let (body, other) = (noise(size, 1), noise(size, 2));
            assert_eq!(create(&body).await.status, 200);
            assert_eq!(create(&body).await.status, 200);
            let refused = create(&other).await;
            insta::allow_duplicates! {
                insta::assert_snapshot!(refused.refusal(), @"412 text/plain; charset=UTF-8 it is already stored with other content, which is kept: store it as another attempt, or without `If-None-Match` to replace it");
            }
            assert_eq!(get(&datastore, &url).await.body, body);
            stored(&datastore, &url, other.clone()).await;
            assert_eq!(get(&datastore, &url).await.body, other, "without a condition it replaces");
        }
    }
}

#[tokio::test]
async fn creation_over_an_object_of_another_program_compares_the_bytes() {
    let datastore = TestDatastore::temporary().await;
    let path = datastore.root().join(FILE);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, "theirs").unwrap();
    let create = async |body| with(&datastore, Method::PUT, &[("if-none-match", "*")], body).await;
    assert_eq!(create(b"theirs").await.status, 200);
    assert_eq!(create(b"ours").await.status, 412);
}

#[tokio::test]
async fn put_with_unsupported_conditions_is_refused() {
    for datastore in TestDatastore::each().await {
        for (name, value) in
            [("if-match", "*"), ("if-none-match", "\"x\""), ("content-range", "bytes 0-0/2")]
        {
            let answer = with(&datastore, Method::PUT, &[(name, value)], b"x").await;
            assert_eq!(answer.status, 400, "{name}");
        }
        assert_eq!(get(&datastore, URL).await.status, 404);
    }
}

#[tokio::test]
async fn if_none_match_with_the_current_etag_returns_304() {
    for datastore in TestDatastore::each().await {
        stored(&datastore, URL, "body").await;
        let tag = etag(b"body");
        for method in [Method::GET, Method::HEAD] {
            for known in [tag.clone(), format!("W/{tag}"), format!("\"x\", {tag}"), "*".to_owned()]
            {
                let answer =
                    with(&datastore, method.clone(), &[("if-none-match", &known)], b"").await;
                assert_eq!((answer.status, answer.body.len()), (304, 0), "{known}");
                assert_eq!(answer.header("etag"), Some(&*tag));
                assert_eq!(answer.header("content-length"), None, "RFC 9110, 8.6");
            }
            let answer = with(&datastore, method.clone(), &[("if-none-match", "\"x\"")], b"").await;
            assert_eq!(answer.status, 200);
            let answer = with(&datastore, method.clone(), &[("if-match", &tag)], b"").await;
            assert_eq!(answer.status, 200);
            let answer = with(&datastore, method, &[("if-match", "\"x\"")], b"").await;
            assert_eq!(answer.status, 412);
        }
    }
}

#[tokio::test]
async fn single_range_is_returned_and_several_return_the_whole() {
    for datastore in TestDatastore::each().await {
        stored(&datastore, URL, "0123456789").await;
        let tag = etag(b"0123456789");
        let range = async |range: &str, if_range: Option<&str>| {
            let mut headers = vec![("range", range)];
            headers.extend(if_range.map(|tag| ("if-range", tag)));
            let answer = with(&datastore, Method::GET, &headers, b"").await;
            let place = answer.header("content-range").unwrap_or("-").to_owned();
            format!("{} {place} {}", answer.status, answer.text())
        };
        assert_eq!(range("bytes=2-4", None).await, "206 bytes 2-4/10 234");
        assert_eq!(range("bytes=8-", None).await, "206 bytes 8-9/10 89");
        assert_eq!(range("bytes=-3", None).await, "206 bytes 7-9/10 789");
        assert_eq!(range("bytes=0-99", None).await, "206 bytes 0-9/10 0123456789");
        assert_eq!(range("bytes=0-1,4-5", None).await, "200 - 0123456789");
        assert_eq!(range("bytes=x", None).await, "200 - 0123456789");
        assert_eq!(range("bytes=2-4", Some(&tag)).await, "206 bytes 2-4/10 234");
        assert_eq!(range("bytes=2-4", Some("\"x\"")).await, "200 - 0123456789");
        assert!(range("bytes=10-", None).await.starts_with("416 bytes */10 "));
        let head = with(&datastore, Method::HEAD, &[("range", "bytes=2-4")], b"").await;
        assert_eq!((head.status, head.header("content-length")), (200, Some("10")));
    }
}

#[test]
fn any_range_of_any_size_matches_the_stored_bytes() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let datastores = runtime.block_on(TestDatastore::each());
    let borders = vec![0, 64 * KIB, 256 * KIB, 512 * KIB, MIB, 2 * MIB, 8 * MIB];
    let size = (proptest::sample::select(borders), 0_usize..3)
        .prop_map(|(border, off)| (border + off).saturating_sub(1));
    let case = (size, any::<u64>(), 0.0..1.0_f64, 0.0..1.0_f64);
    let mut runner =
        TestRunner::new(Config { cases: 40, failure_persistence: None, ..Config::default() });
    let checked = runner.run(&case, |(size, seed, from, to)| {
        runtime.block_on(async {
            for datastore in &datastores {
                let body = noise(size, seed);
                stored(datastore, URL, body.clone()).await;
                assert!(get(datastore, URL).await.body == body, "whole");
                let (first, last) = (at(size, from.min(to)), at(size, from.max(to)));
                let range = format!("bytes={first}-{last}");
                let answer = with(datastore, Method::GET, &[("range", &range)], b"").await;
                if size == 0 {
                    assert_eq!(answer.status, 416);
                } else {
                    assert!(answer.body == body[first..=last], "{range} of {size}");
                }
            }
        });
        Ok(())
    });
    checked.unwrap();
}

#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "any place will do"
)]
fn at(size: usize, place: f64) -> usize {
    (size.saturating_sub(1) as f64 * place) as usize
}

#[tokio::test(flavor = "multi_thread")]
async fn one_of_several_concurrent_puts_wins_completely() {
    for datastore in TestDatastore::each().await {
        for size in [100 * KIB, 3 * MIB, 9 * MIB] {
            let bodies = (0..8).map(|seed| noise(size, seed)).collect::<Vec<_>>();
            let puts = join_all(bodies.iter().map(|body| stored(&datastore, URL, body.clone())));
            let gets = join_all((0..8).map(|_| get(&datastore, URL)));
            let ((), reads) = tokio::join!(
                async {
                    puts.await;
                },
                gets
            );
            for read in reads.into_iter().chain([get(&datastore, URL).await]) {
                if read.status == 200 {
                    assert_eq!(read.header("etag"), Some(&*etag(&read.body)));
                    let before = read.body.len() != size;
                    assert!(before || bodies.contains(&read.body), "a mix of several");
                }
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn reads_during_a_put_return_the_digest_of_the_bytes_read() {
    for datastore in TestDatastore::each().await {
        stored(&datastore, URL, "0").await;
        let writing = async {
            for body in 1..60 {
                stored(&datastore, URL, body.to_string()).await;
            }
        };
        let reading = async {
            loop {
                let answer = get(&datastore, URL).await;
                assert_eq!(answer.header("etag"), Some(&*etag(&answer.body)));
            }
        };
        tokio::select! { () = writing => {} () = reading => {} }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn one_of_several_concurrent_creations_wins_and_the_others_get_412() {
    for datastore in TestDatastore::each().await {
        for (attempt, size) in [100 * KIB, 3 * MIB, 9 * MIB].into_iter().enumerate() {
            let url = format!("plans?{RUN}&attempt={attempt}");
            let create = async |seed| {
                let put = request(&datastore, Method::PUT, &url).header("if-none-match", "*");
                send(put.body(noise(size, seed))).await.status
            };
            let mut statuses = join_all((0..8).map(create)).await;
            statuses.sort_unstable();
            assert_eq!(statuses, [200, 412, 412, 412, 412, 412, 412, 412]);
            assert_eq!(get(&datastore, &url).await.body.len(), size);
        }
    }
}

#[tokio::test]
async fn files_stored_by_other_programs_are_served_without_a_digest() {
    let datastore = TestDatastore::temporary().await;
    stored(&datastore, URL, "ours").await;
    std::fs::write(datastore.root().join(FILE), "theirs").unwrap();
    forget_digest(&datastore.root(), FILE);
    let answer = get(&datastore, URL).await;
    assert_eq!((answer.status, answer.text().as_str()), (200, "theirs"));
    assert_eq!(answer.header("repr-digest"), None);
    let tag = answer.header("etag").unwrap().to_owned();
    assert!(tag.starts_with("\"be-"), "{tag}");
    assert_eq!(with(&datastore, Method::GET, &[("if-none-match", &tag)], b"").await.status, 304);
    assert_eq!(with(&datastore, Method::GET, &[("range", "bytes=0-1")], b"").await.text(), "th");
}

#[tokio::test]
async fn truncated_digest_record_counts_as_missing() {
    let datastore = TestDatastore::temporary().await;
    stored(&datastore, URL, "body").await;
    forget_digest(&datastore.root(), FILE);
    std::fs::write(record(&datastore), "{\"etag\":").unwrap();
    let answer = get(&datastore, URL).await;
    assert_eq!((answer.status, answer.header("repr-digest")), (200, None));
}

pub(crate) fn record(datastore: &TestDatastore) -> PathBuf {
    datastore.root().join(".plancha/sha256").join(FILE)
}

#[tokio::test]
async fn upload_leaves_only_object_digest_record_and_index_entry() {
    let datastore = TestDatastore::temporary().await;
    for size in [10, 3 * MIB] {
        stored(&datastore, URL, noise(size, 1)).await;
        let create =
            with(&datastore, Method::PUT, &[("if-none-match", "*")], &noise(size, 2)).await;
        assert_eq!(create.status, 412);
        // The staged bytes of the second upload are removed in the background.
        until("its staged file is removed", || files(&datastore.root()).len() == 3);
        let files = files(&datastore.root());
        assert_eq!(files[1], std::path::Path::new(".plancha/sha256").join(FILE));
        assert_eq!(files[2], std::path::Path::new(FILE));
    }
}
