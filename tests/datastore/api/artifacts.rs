//! `/api/artifacts`

use reqwest::Method;
use support::TestDatastore;

use crate::http::{RUN, get, refusals, request, send, stored};

#[tokio::test]
async fn other_files_of_an_attempt_are_stored_beside_burritos() {
    let datastore = TestDatastore::temporary().await;
    let url = format!("artifacts?{RUN}&attempt=0&name=workspace.tar.zst");
    stored(&datastore, &url, "zst").await;
    let path = "layers/team-a/network/plan-1/0/workspace.tar.zst";
    assert_eq!(std::fs::read_to_string(datastore.root().join(path)).unwrap(), "zst");
}

#[tokio::test]
async fn artifact_is_read_from_the_given_or_the_latest_attempt() {
    for datastore in TestDatastore::each().await {
        for attempt in [0, 1] {
            let url = format!("artifacts?{RUN}&attempt={attempt}&name=run.json");
            stored(&datastore, &url, attempt.to_string()).await;
        }
        assert_eq!(
            get(&datastore, &format!("artifacts?{RUN}&attempt=0&name=run.json")).await.text(),
            "0"
        );
        let latest = format!("artifacts?{RUN}&name=run.json");
        let answer = get(&datastore, &latest).await;
        assert_eq!(answer.text(), "1");
        assert_eq!(answer.header("cache-control"), Some("no-store"));
        let head = send(request(&datastore, Method::HEAD, &latest)).await;
        assert_eq!((head.status, head.header("content-length")), (200, Some("1")));
    }
}

#[tokio::test]
async fn errors_are_problem_documents() {
    let run = "namespace=a&layer=b&run=c";
    let requests = [
        format!("GET artifacts?{run}&attempt=0"),
        format!("GET artifacts?{run}&attempt=x&name=run.json"),
        format!("GET artifacts?{run}&attempt=0&name=run.json"),
        format!("GET artifacts?{run}&name=run.json"),
        format!("PUT artifacts?{run}&attempt=0&name=plan.bin"),
        format!("PUT artifacts?{run}&attempt=0&name=.hidden"),
        format!("PUT artifacts?{run}&name=run.json"),
    ];
    let requests = requests.each_ref().map(String::as_str);
    insta::assert_snapshot!(refusals(&requests).await, @r#"
    GET artifacts?namespace=a&layer=b&run=c&attempt=0
        400 application/problem+json {"type":"about:blank","title":"Bad Request","status":400,"detail":"missing query parameter `name`"}
    GET artifacts?namespace=a&layer=b&run=c&attempt=x&name=run.json
        400 application/problem+json {"type":"about:blank","title":"Bad Request","status":400,"detail":"query parameter `attempt`: `x` is not an attempt (0, 1, 2 ...)"}
    GET artifacts?namespace=a&layer=b&run=c&attempt=0&name=run.json
        404 application/problem+json {"type":"about:blank","title":"Not Found","status":404,"detail":"no such artifact"}
    GET artifacts?namespace=a&layer=b&run=c&name=run.json
        404 application/problem+json {"type":"about:blank","title":"Not Found","status":404,"detail":"no such artifact"}
    PUT artifacts?namespace=a&layer=b&run=c&attempt=0&name=plan.bin
        400 application/problem+json {"type":"about:blank","title":"Bad Request","status":400,"detail":"query parameter `name`: `plan.bin` has its own route: `/api/plans` or `/api/logs`"}
    PUT artifacts?namespace=a&layer=b&run=c&attempt=0&name=.hidden
        400 application/problem+json {"type":"about:blank","title":"Bad Request","status":400,"detail":"query parameter `name`: `.hidden` must not start with a dot"}
    PUT artifacts?namespace=a&layer=b&run=c&name=run.json
        400 application/problem+json {"type":"about:blank","title":"Bad Request","status":400,"detail":"missing query parameter `attempt`"}
    "#);
}
