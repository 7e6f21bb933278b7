//! `/api/attempts` and `/api/runs`

use datastore_api::Sha256;
use futures::stream;
use reqwest::Method;
use serde_json::{Value, json};
use support::{CloudFault, TestDatastore};

use crate::http::{RUN, files, get, noise, put, refusals, request, stored};

fn names(runs: &Value) -> Vec<&str> {
    runs["runs"].as_array().unwrap().iter().map(|run| run["run"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn attempts_are_listed_oldest_first_with_their_files() {
    for datastore in TestDatastore::each().await {
        for attempt in [10, 2] {
            stored(&datastore, &format!("plans?{RUN}&attempt={attempt}&format=short"), "12345")
                .await;
        }
        stored(&datastore, &format!("artifacts?{RUN}&attempt=2&name=run.json"), "{}").await;
        let mut listed = get(&datastore, &format!("attempts?{RUN}")).await.json();
        for attempt in listed["attempts"].as_array_mut().unwrap() {
            for file in attempt["artifacts"].as_array_mut().unwrap() {
                let modified = file.as_object_mut().unwrap().remove("modified").unwrap();
                let modified: jiff::Timestamp = modified.as_str().unwrap().parse().unwrap();
                assert!(jiff::Timestamp::now().duration_since(modified).abs().as_secs() < 60);
            }
        }
        let short = json!({"name": "short.diff", "size": 5});
        let run = json!({"name": "run.json", "size": 2});
        assert_eq!(
            listed,
            json!({"attempts": [
                {"attempt": 2, "artifacts": [run, short], "live": null},
                {"attempt": 10, "artifacts": [short], "live": null},
            ]})
        );
    }
}

#[tokio::test]
async fn an_unknown_run_has_no_attempts_and_an_unknown_layer_no_runs() {
    for datastore in TestDatastore::each().await {
        let attempts = get(&datastore, &format!("attempts?{RUN}")).await;
        assert_eq!((attempts.status, attempts.json()), (200, json!({"attempts": []})));
        let runs = get(&datastore, &format!("runs?{RUN}")).await;
        assert_eq!((runs.status, runs.json()), (200, json!({"runs": [], "next": null})));
    }
}

#[tokio::test]
async fn files_outside_attempts_are_not_listed() {
    let datastore = TestDatastore::temporary().await;
    stored(&datastore, &format!("plans?{RUN}&attempt=1"), "{}").await;
    let run = datastore.root().join("layers/team-a/network/plan-1");
    std::fs::create_dir_all(run.join("7")).unwrap();
    std::fs::create_dir_all(run.join("latest")).unwrap();
    std::fs::write(run.join("latest/plan.json"), "other").unwrap();
    std::fs::write(run.join("9"), "a file").unwrap();
    let listed = get(&datastore, &format!("attempts?{RUN}")).await.json();
    assert_eq!(listed["attempts"].as_array().unwrap().len(), 1);
    assert_eq!(get(&datastore, &format!("plans?{RUN}")).await.text(), "{}");
}

#[tokio::test]
async fn runs_are_paged_newest_first_without_duplicates() {
    for datastore in TestDatastore::each().await {
        let put = async |run: &str, attempt: u32| {
            let url = format!("plans?namespace=a&layer=b&run={run}&attempt={attempt}");
            stored(&datastore, &url, "{}").await;
            tokio::time::sleep(std::time::Duration::from_millis(2)).await;
        };
        for run in ["r1", "r2", "Run+7", "r3"] {
            put(run, 0).await;
        }
        put("r1", 1).await;
        let all = get(&datastore, "runs?namespace=a&layer=b").await.json();
        assert_eq!(names(&all), ["r1", "r3", "Run 7", "r2"]);
        assert_eq!(all["next"], Value::Null);

        let mut paged = Vec::new();
        let mut cursor = String::new();
        loop {
            let url = format!("runs?namespace=a&layer=b&limit=1&cursor={cursor}");
            let page = get(&datastore, &url).await.json();
            paged.extend(names(&page).into_iter().map(str::to_owned));
            match page["next"].as_str() {
                Some(next) => cursor = next.to_owned(),
                None => break,
            }
        }
        assert_eq!(paged, ["r1", "r3", "Run 7", "r2"]);
        let other = get(&datastore, "runs?namespace=a&layer=b2").await.json();
        assert_eq!(names(&other), Vec::<&str>::new());
    }
}

#[tokio::test]
async fn run_is_indexed_once_per_attempt() {
    let datastore = TestDatastore::temporary().await;
    let formats = ["json", "pretty", "short", "bin"];
    let url = |attempt, format| format!("plans?{RUN}&attempt={attempt}&format={format}");
    for attempt in [0, 1] {
        let urls = formats.map(|format| url(attempt, format));
        futures::future::join_all(urls.iter().map(|url| stored(&datastore, url, "x"))).await;
    }
    let entries = files(&datastore.root().join(".plancha/runs/team-a/network"));
    assert_eq!(entries.len(), 2);

    // A run of another process is found by its files.
    let again = TestDatastore::file(&datastore.root()).await;
    stored(&again, &url(1, "json"), "y").await;
    assert_eq!(files(&datastore.root().join(".plancha/runs/team-a/network")), entries);
}

/// Refused by its digest, after all of it was received.
async fn refused(datastore: &TestDatastore, size: usize) -> u16 {
    let url = format!("plans?{RUN}&attempt=0");
    let put = request(datastore, Method::PUT, &url).body(noise(size, 1));
    let digest = Sha256::of(b"something else").to_repr_digest();
    put.header("repr-digest", digest).send().await.unwrap().status().as_u16()
}

#[tokio::test]
async fn failed_upload_leaves_no_run() {
    for datastore in TestDatastore::each().await {
        let listed = async || get(&datastore, &format!("runs?{RUN}")).await.json();
        for size in [10, 9 << 20] {
            assert_eq!(refused(&datastore, size).await, 400, "{size}");
            assert_eq!(listed().await, json!({"runs": [], "next": null}), "{size}");
        }
        let url = format!("plans?{RUN}&attempt=0");
        let broken = stream::iter([Ok(vec![0; 100]), Err(std::io::Error::other("left"))]);
        let body = reqwest::Body::wrap_stream(broken);
        request(&datastore, Method::PUT, &url).body(body).send().await.unwrap_err();
        assert_eq!(listed().await, json!({"runs": [], "next": null}));
        stored(&datastore, &url, "{}").await;
        assert_eq!(names(&listed().await), ["plan-1"]);
        assert_eq!(refused(&datastore, 10).await, 400);
        assert_eq!(names(&listed().await), ["plan-1"]);
    }
}

#[tokio::test]
async fn upload_refused_by_the_storage_leaves_no_run_unless_another_file_is_stored() {
    for datastore in TestDatastore::doubles().await {
        let listed = async || get(&datastore, &format!("runs?{RUN}")).await.json();
        let deny = |times| {
            let (method, key) = ("PUT", "layers/team-a/network/plan-1/0/plan.json");
            datastore.cloud().fault(CloudFault {
                method,
                key,
                times,
                status: 403,
                ..CloudFault::default()
            });
        };
        let url = |format: &str| format!("plans?{RUN}&attempt=0&format={format}");
        for size in [10, 9 << 20] {
            deny(1);
            assert_eq!(put(&datastore, &url("json"), noise(size, 1)).await.status, 500, "{size}");
            assert_eq!(listed().await, json!({"runs": [], "next": null}), "{size}");
        }
        for round in 0..10 {
            deny(1);
            let (refused, kept) = (url("json"), url("short"));
            let both = (put(&datastore, &refused, "a"), put(&datastore, &kept, "b"));
            let (refused, kept) = futures::future::join(both.0, both.1).await;
            assert_eq!((refused.status, kept.status), (500, 200), "{round}");
            assert_eq!(names(&listed().await), ["plan-1"], "{round}");
        }
    }
}

#[tokio::test]
async fn page_limit_is_bounded() {
    for datastore in TestDatastore::each().await {
        for limit in ["0", "1001", "-1", "x"] {
            let answer = get(&datastore, &format!("runs?{RUN}&limit={limit}")).await;
            assert_eq!(answer.status, 400, "{limit}");
        }
    }
    let requests = ["GET runs?namespace=a&layer=b&limit=1001", "GET runs?namespace=a"];
    insta::assert_snapshot!(refusals(&requests).await, @r#"
    GET runs?namespace=a&layer=b&limit=1001
        400 application/problem+json {"type":"about:blank","title":"Bad Request","status":400,"detail":"query parameter `limit`: is not a number from 1 to 1000"}
    GET runs?namespace=a
        400 application/problem+json {"type":"about:blank","title":"Bad Request","status":400,"detail":"missing query parameter `layer`"}
    "#);
}

#[tokio::test]
async fn cursor_of_another_layer_or_invalid_cursor_returns_400() {
    for datastore in TestDatastore::each().await {
        for (layer, run) in [("b", "r1"), ("b", "r2"), ("c", "r1"), ("c", "r2")] {
            let url = format!("plans?namespace=a&layer={layer}&run={run}&attempt=0");
            stored(&datastore, &url, "x").await;
        }
        let page = get(&datastore, "runs?namespace=a&layer=b&limit=1").await.json();
        let cursor = page["next"].as_str().unwrap();
        assert!(cursor.bytes().all(|c| c.is_ascii_hexdigit()), "{cursor}");
        let ask = async |layer: &str, cursor: &str| {
            let url = format!("runs?namespace=a&layer={layer}&limit=1&cursor={cursor}");
            get(&datastore, &url).await
        };
        assert_eq!(ask("b", cursor).await.status, 200);
        for foreign in
            ["x", "..%2F..%2Fteam-b%2F", "fffffe74301a97fe-r1", "abc.token", &cursor[2..]]
        {
            let answer = ask("b", foreign).await;
            assert_eq!(answer.status, 400, "{foreign}");
            assert!(answer.text().contains("query parameter `cursor`"), "{}", answer.text());
        }
        assert_eq!(ask("c", cursor).await.status, 400, "of another layer");
    }
}
