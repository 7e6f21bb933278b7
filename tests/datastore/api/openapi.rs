//! `/api/openapi.json`

use reqwest::Method;
use serde_json::Value;
use support::TestDatastore;

use crate::http::{CLIENT, get, request, send};
use crate::state::documents::{document as document_of_state, lock_info};

/// The digest of a set of changes.
const SET: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

async fn document(datastore: &TestDatastore) -> Value {
    let answer = get(datastore, "openapi.json").await;
    assert_eq!((answer.status, answer.header("content-type")), (200, Some("application/json")));
    answer.json()
}

#[tokio::test]
async fn document_matches_the_reviewed_snapshot() {
    let mut document = document(&TestDatastore::memory().await).await;
    document["info"]["version"] = "[version]".into();
    insta::assert_snapshot!(format!("{document:#}"));
}

/// Every operation: method, path below `/`, description.
fn operations(document: &Value) -> Vec<(Method, String, Value)> {
    let paths = document["paths"].as_object().unwrap();
    let operations = paths.iter().flat_map(|(path, methods)| {
        let methods = methods.as_object().unwrap();
        methods.iter().map(move |(method, operation)| {
            // `OpenAPI` has no word for LOCK.
            let method = method.trim_start_matches("x-").to_uppercase();
            (method.parse().unwrap(), path.clone(), operation.clone())
        })
    });
    operations.collect()
}

#[tokio::test]
async fn every_documented_route_is_served_and_has_its_own_metric_label() {
    let datastore = TestDatastore::memory().await;
    let document = document(&datastore).await;
    let operations = operations(&document);
    assert_eq!(operations.len(), 56);
    for (method, path, _) in &operations {
        let url = datastore.url.join(path.trim_start_matches('/')).unwrap();
        let answer = send(CLIENT.request(method.clone(), url)).await;
        assert_ne!(answer.text(), "{\"message\":\"Not Found\"}\n", "{method} {path}");
    }
    let metrics = send(CLIENT.get(datastore.url.join("metrics").unwrap())).await.text();
    assert!(!metrics.contains("route=\"other\""), "{metrics}");
}

/// A body that the route accepts.
fn body(path: &str, method: &Method) -> String {
    match (path, method.as_str()) {
        ("/api/states", "PUT") | (_, "POST")
            if path.starts_with("/api/state/") || path == "/api/states" =>
        {
            document_of_state("l", 1, "a")
        }
        (_, "LOCK" | "UNLOCK") => lock_info("1"),
        ("/api/leases/{namespace}/{layer}", "POST") => {
            r#"{"holder": "a", "host": "b", "run": null}"#.to_owned()
        }
        ("/api/tools/{namespace}/{layer}", "PUT") => {
            r#"{"name": "tofu", "version": "1.9.0"}"#.to_owned()
        }
        _ => "x".to_owned(),
    }
}

#[tokio::test]
async fn only_parameters_documented_as_required_are_required() {
    let datastore = TestDatastore::memory().await;
    let document = document(&datastore).await;
    for (method, path, operation) in operations(&document) {
        let Some(parameters) = operation["parameters"].as_array() else { continue };
        let query = parameters.iter().filter(|parameter| parameter["in"] == "query");
        let query =
            query.map(|p| (p["name"].as_str().unwrap(), p["required"] == true)).collect::<Vec<_>>();
        for (omitted, required) in &query {
            if (path.as_str(), *omitted) == ("/api/logs", "follow") {
                // The offset is only for a log that is followed.
                continue;
            }
            let given = query.iter().filter(|(name, _)| name != omitted);
            let given = given.map(|(name, _)| match *name {
                "format" => "format=bin".to_owned(),
                "cursor" => "cursor=".to_owned(),
                "kind" => "kind=head".to_owned(),
                "force" | "rebind" | "follow" | "complete" => format!("{name}=true"),
                "set" | "approval" => format!("{name}={SET}"),
                "run" if path.starts_with("/api/approvals") => "run=1/0".to_owned(),
                "prefix" => "prefix=p".to_owned(),
                "version" => "version=fffa0b1c2d3e4f50-0123456789abcdef".to_owned(),
                name => format!("{name}=1"),
            });
            let rest = path.strip_prefix("/api/").unwrap();
            let url = format!("{rest}?{}", given.collect::<Vec<_>>().join("&"));
            let body = body(&path, &method);
            let status = send(request(&datastore, method.clone(), &url).body(body)).await.status;
            assert_eq!(status == 400, *required, "{method} {url} without {omitted}: {status}");
        }
    }
}
