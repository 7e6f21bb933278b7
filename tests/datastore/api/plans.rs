//! `/api/plans`

use reqwest::Method;
use support::TestDatastore;

use crate::http::{RUN, files, get, put, refusals, request, send, stored};

const FORMATS: [(&str, &str); 4] = [
    ("json", "plan.json"),
    ("pretty", "pretty.plan"),
    ("short", "short.diff"),
    ("bin", "plan.bin"),
];

#[tokio::test]
async fn every_format_is_read_back_unchanged() {
    for datastore in TestDatastore::each().await {
        for (format, file) in FORMATS {
            let url = format!("plans?{RUN}&attempt=0&format={format}");
            stored(&datastore, &url, file).await;
            let answer = get(&datastore, &url).await;
            assert_eq!((answer.status, answer.text().as_str()), (200, file));
            assert_eq!(answer.header("content-type"), Some("application/octet-stream"));
            assert_eq!(answer.header("content-length"), Some(&*file.len().to_string()));
            assert_eq!(answer.header("cache-control"), Some("no-store"));
            assert_eq!(answer.header("x-content-type-options"), Some("nosniff"));
        }
    }
}

#[tokio::test]
async fn plans_are_stored_under_burritos_keys() {
    let datastore = TestDatastore::temporary().await;
    for (format, _) in FORMATS {
        stored(&datastore, &format!("plans?{RUN}&attempt=10&format={format}"), format).await;
    }
    for (format, file) in FORMATS {
        let path = datastore.root().join("layers/team-a/network/plan-1/10").join(file);
        assert_eq!(std::fs::read_to_string(path).unwrap(), format);
    }
}

#[tokio::test]
async fn unusual_names_are_stored_exactly() {
    let datastore = TestDatastore::temporary().await;
    let url = "plans?namespace=a%231~2%20b&layer=%252F&run=%C3%A9%3F*%5B&attempt=0";
    stored(&datastore, url, "{}").await;
    assert_eq!(get(&datastore, url).await.text(), "{}");
    let plan = datastore.root().join("layers/a#1~2 b/%2F/é?*[/0/plan.json");
    assert_eq!(std::fs::read_to_string(plan).unwrap(), "{}");
    let attempts = get(&datastore, &url.replace("plans?", "attempts?")).await;
    assert_eq!(attempts.json()["attempts"][0]["attempt"], 0);
}

#[tokio::test]
async fn missing_format_means_json_and_an_unknown_one_only_when_reading() {
    for datastore in TestDatastore::each().await {
        stored(&datastore, &format!("plans?{RUN}&attempt=0"), "{}").await;
        for format in ["", "&format=", "&format=json", "&format=zzz"] {
            assert_eq!(
                get(&datastore, &format!("plans?{RUN}&attempt=0{format}")).await.text(),
                "{}"
            );
        }
        let answer = put(&datastore, &format!("plans?{RUN}&attempt=0&format=zzz"), "other").await;
        assert_eq!(answer.status, 400);
        assert_eq!(get(&datastore, &format!("plans?{RUN}&attempt=0")).await.text(), "{}");
    }
}

#[tokio::test]
async fn without_an_attempt_the_numerically_greatest_one_is_read() {
    for datastore in TestDatastore::each().await {
        for attempt in [0, 1, 10, 2] {
            stored(&datastore, &format!("plans?{RUN}&attempt={attempt}"), attempt.to_string())
                .await;
        }
        for attempt in ["", "&attempt="] {
            assert_eq!(get(&datastore, &format!("plans?{RUN}{attempt}")).await.text(), "10");
        }
        // Another run whose name begins alike is another run.
        let other = RUN.replace("plan-1", "plan-10");
        stored(&datastore, &format!("plans?{other}&attempt=99"), "99").await;
        assert_eq!(get(&datastore, &format!("plans?{RUN}")).await.text(), "10");
    }
}

#[tokio::test]
async fn latest_attempt_is_read_even_without_a_plan() {
    for datastore in TestDatastore::each().await {
        stored(&datastore, &format!("plans?{RUN}&attempt=2"), "{}").await;
        stored(&datastore, &format!("logs?{RUN}&attempt=3"), "log").await;
        let answer = get(&datastore, &format!("plans?{RUN}&attempt=")).await;
        assert_eq!((answer.status, &*answer.text()), (404, "No plan for this attempt"));
    }
}

#[tokio::test]
async fn put_with_a_repeated_parameter_stores_nothing() {
    for datastore in TestDatastore::each().await {
        let answer = put(&datastore, &format!("plans?{RUN}&attempt=1&attempt=2"), "{}").await;
        let text = "query parameter `attempt`: is given more than once";
        assert_eq!((answer.status, answer.text().trim()), (400, text));
        for attempt in [1, 2] {
            let answer = get(&datastore, &format!("plans?{RUN}&attempt={attempt}")).await;
            assert_eq!(answer.status, 404);
        }
    }
}

#[tokio::test]
async fn errors_have_burritos_status_and_text() {
    let requests = [
        "GET plans?namespace=a&layer=b",
        "PUT plans?namespace=a&layer=b&run=c",
        "GET plans?namespace=a&layer=b&run=c&attempt=0",
        "GET plans?namespace=a&layer=b&run=c&attempt=01",
        "GET plans?namespace=..&layer=b&run=c",
        "GET plans?namespace=a%2Fb&layer=b&run=c",
        "PUT plans?namespace=a&layer=b&run=%ff&attempt=0",
        "PUT plans?namespace=a&layer=b&run=c&attempt=0&format=zzz",
    ];
    insta::assert_snapshot!(refusals(&requests).await, @r#"
    GET plans?namespace=a&layer=b
        400 text/plain; charset=UTF-8 missing query parameters
    PUT plans?namespace=a&layer=b&run=c
        400 text/plain; charset=UTF-8 missing query parameters
    GET plans?namespace=a&layer=b&run=c&attempt=0
        404 text/plain; charset=UTF-8 No plan for this attempt
    GET plans?namespace=a&layer=b&run=c&attempt=01
        400 text/plain; charset=UTF-8 query parameter `attempt`: `01` is not an attempt (0, 1, 2 ...)
    GET plans?namespace=..&layer=b&run=c
        400 text/plain; charset=UTF-8 query parameter `namespace`: `..` must not be `.` or `..`
    GET plans?namespace=a%2Fb&layer=b&run=c
        400 text/plain; charset=UTF-8 query parameter `namespace`: `a/b` must not contain `/` or `\`
    PUT plans?namespace=a&layer=b&run=%ff&attempt=0
        400 text/plain; charset=UTF-8 query parameter `run`: is not UTF-8
    PUT plans?namespace=a&layer=b&run=c&attempt=0&format=zzz
        400 text/plain; charset=UTF-8 query parameter `format`: `zzz` is not a format (json, pretty, short or bin)
    "#);
}

#[tokio::test]
async fn names_that_could_escape_their_directory_are_refused_and_store_nothing() {
    let datastore = TestDatastore::temporary().await;
    for run in ["..", ".", "a%2Fb", "..%2F..%2Fx", "a%5Cb", "a%00", "a%0A", &"a".repeat(254)] {
        let url = format!("plans?namespace=a&layer=b&run={run}&attempt=0");
        assert_eq!(put(&datastore, &url, "x").await.status, 400, "{run}");
    }
    assert_eq!(files(&datastore.root()), Vec::<std::path::PathBuf>::new());
}

#[tokio::test]
async fn without_authentication_any_token_or_none_is_accepted() {
    for datastore in TestDatastore::each().await {
        for token in ["raw", "Bearer token", ""] {
            let url = format!("plans?{RUN}&attempt=0");
            let put = request(&datastore, Method::PUT, &url).header("authorization", token);
            assert_eq!(send(put.body("{}")).await.status, 200);
        }
    }
}
