//! `/api/logs`

use reqwest::Method;
use support::TestDatastore;

use crate::http::{RUN, get, refusals, request, send, stored};

#[tokio::test]
async fn a_log_is_read_as_an_array_of_lines() {
    for datastore in TestDatastore::each().await {
        let url = format!("logs?{RUN}&attempt=0");
        for (log, json) in [
            (&b"a\nb\n<c>\xff"[..], r#"{"results":["a","b","\u003cc\u003e\ufffd"]}"#),
            (b"a\n", r#"{"results":["a",""]}"#),
            (b"", r#"{"results":[""]}"#),
        ] {
            stored(&datastore, &url, log).await;
            let answer = get(&datastore, &url).await;
            assert_eq!((answer.status, answer.text()), (200, format!("{json}\n")));
            assert_eq!(answer.header("content-type"), Some("application/json"));
            assert_eq!(answer.header("cache-control"), Some("no-store"));
            assert_eq!(answer.header("x-content-type-options"), Some("nosniff"));
            assert_eq!(answer.header("repr-digest"), None);
        }
    }
}

#[tokio::test]
async fn multibyte_characters_across_chunk_boundaries_are_kept() {
    for datastore in TestDatastore::each().await {
        let url = format!("logs?{RUN}&attempt=0");
        // Three bytes each, so that every piece of a power of two cuts one.
        let log = format!("{}\n", "\u{20ac}".repeat(99)).repeat(10_000);
        stored(&datastore, &url, log.as_str()).await;
        let json = get(&datastore, &url).await.json();
        let lines = json["results"].as_array().unwrap();
        assert_eq!(lines.len(), 10_001);
        assert!(lines[..10_000].iter().all(|line| line == &"\u{20ac}".repeat(99)));
    }
}

#[tokio::test]
async fn log_with_a_matching_etag_returns_304() {
    for datastore in TestDatastore::each().await {
        let url = format!("logs?{RUN}&attempt=0");
        stored(&datastore, &url, "a").await;
        let tag = get(&datastore, &url).await.header("etag").unwrap().to_owned();
        assert!(tag.starts_with("W/\"sha256-"), "{tag}");
        let known = request(&datastore, Method::GET, &url).header("if-none-match", &tag);
        assert_eq!(send(known).await.status, 304);
        stored(&datastore, &url, "b").await;
        let changed = request(&datastore, Method::GET, &url).header("if-none-match", &tag);
        assert_eq!(send(changed).await.text(), "{\"results\":[\"b\"]}\n");
    }
}

#[tokio::test]
async fn errors_have_burritos_status_and_text() {
    let requests = [
        "GET logs?namespace=a&layer=b",
        "GET logs?namespace=a&layer=b&run=c",
        "PUT logs?namespace=a&layer=b&run=c",
    ];
    insta::assert_snapshot!(refusals(&requests).await, @r#"
    GET logs?namespace=a&layer=b
        400 text/plain; charset=UTF-8 missing query parameters
    GET logs?namespace=a&layer=b&run=c
        404 text/plain; charset=UTF-8 No logs for this attempt
    PUT logs?namespace=a&layer=b&run=c
        400 text/plain; charset=UTF-8 missing query parameters
    "#);
}
