//! `/api/repository/revision/bundle`

use reqwest::Method;
use support::TestDatastore;

use crate::http::{etag, get, noise, put, refusals, request, send, stored};

const BUNDLE: &str = "repository/revision/bundle";

#[tokio::test]
async fn bundle_is_read_by_ref_and_revision() {
    for datastore in TestDatastore::each().await {
        let bundle = noise(300_000, 1);
        for git_ref in ["main", "refs%2Ftags%2Fv1", "feat/a+b%231~2"] {
            let url = |revision| {
                format!("{BUNDLE}?namespace=a&name=infra&ref={git_ref}&revision={revision}")
            };
            stored(&datastore, &url("0123abc"), bundle.clone()).await;
            assert_eq!(get(&datastore, &url("0123abc")).await.body, bundle);

            let head = send(request(&datastore, Method::HEAD, &url("0123abc"))).await;
            assert_eq!((head.status, head.body.len()), (200, 0));
            assert_eq!(head.header("content-length"), Some("300000"));
            assert_eq!(head.header("etag"), Some(&*etag(&bundle)));
            let head = send(request(&datastore, Method::HEAD, &url("0123abd"))).await;
            assert_eq!((head.status, head.body.len()), (404, 0));
        }
    }
}

#[tokio::test]
async fn bundles_are_stored_under_burritos_keys() {
    let datastore = TestDatastore::temporary().await;
    let url = format!("{BUNDLE}?namespace=team-a&name=infra&ref=feat/a+b%231~2&revision=0123abc");
    stored(&datastore, &url, "bundle").await;
    let path = "repositories/team-a/infra/feat/a b#1~2/0123abc.gitbundle";
    assert_eq!(std::fs::read_to_string(datastore.root().join(path)).unwrap(), "bundle");
}

#[tokio::test]
async fn errors_have_burritos_status_and_text() {
    let requests = [
        "GET repository/revision/bundle?namespace=a&name=b&revision=1",
        "GET repository/revision/bundle?namespace=a&name=b&ref=main",
        "PUT repository/revision/bundle?namespace=a&name=b&ref=main",
        "GET repository/revision/bundle?namespace=a&name=b&ref=main&revision=1",
        "PUT repository/revision/bundle?namespace=a&name=b&ref=a//b&revision=1",
        "PUT repository/revision/bundle?namespace=a&name=b&ref=main&revision=a/b",
    ];
    insta::assert_snapshot!(refusals(&requests).await, @r#"
    GET repository/revision/bundle?namespace=a&name=b&revision=1
        400 text/plain; charset=UTF-8 missing query parameters
    GET repository/revision/bundle?namespace=a&name=b&ref=main
        400 text/plain; charset=UTF-8 missing revision parameter
    PUT repository/revision/bundle?namespace=a&name=b&ref=main
        400 text/plain; charset=UTF-8 missing revision parameter
    GET repository/revision/bundle?namespace=a&name=b&ref=main&revision=1
        404 text/plain; charset=UTF-8 No bundle found for this revision
    PUT repository/revision/bundle?namespace=a&name=b&ref=a//b&revision=1
        400 text/plain; charset=UTF-8 query parameter `ref`: `a//b` must not be empty, start or end with `/`, or contain `//`
    PUT repository/revision/bundle?namespace=a&name=b&ref=main&revision=a/b
        400 text/plain; charset=UTF-8 query parameter `revision`: `a/b` must not contain `/` or `\`
    "#);
}

#[tokio::test]
async fn error_response_to_head_has_no_body() {
    for datastore in TestDatastore::each().await {
        let head = request(&datastore, Method::HEAD, &format!("{BUNDLE}?namespace=a"));
        let answer = send(head).await;
        assert_eq!((answer.status, answer.body.len()), (400, 0));
    }
}

#[tokio::test]
async fn names_that_are_too_long_together_return_400() {
    for datastore in TestDatastore::each().await {
        let query = format!("namespace={0}&name={0}&ref={0}/{0}/{0}&revision=1", "a".repeat(200));
        let answer = put(&datastore, &format!("{BUNDLE}?{query}"), "x").await;
        assert_eq!(answer.status, 400);
        assert!(answer.text().ends_with("is longer than 947 bytes"), "{}", answer.text());
    }
}
