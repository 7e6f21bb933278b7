//! `/api/documents` and `/api/statuses`: documents of layers, replaced by each run.

use std::time::Duration;

use datastore::config::Config;
use datastore::store::Storage;
use datastore::store::encryption::AtRest;
use datastore_api::client::{Settings, Upload};
use datastore_api::{Client, ClientError, DocumentKey};
use reqwest::Method;
use serde_json::json;
use support::{FaultyDatastore, TestDatastore};

use crate::http::{RUN, etag, files, get, put, refusals, request, send, stored};
use crate::program::process::program;

fn url(layer: &str, name: &str) -> String {
    format!("documents?namespace=team-a&layer={layer}&name={name}")
}

/// A status, in JSON.
pub(crate) fn status(condition: &str) -> serde_json::Value {
    json!({
        "version": 1, "status": condition, "result": "changes", "action": "check",
        "ended": "2026-01-02T03:04:05Z", "last_success": "2026-01-02T03:04:05Z",
        "counts": {"create": 1}, "seconds": {"plan": 1.5}, "runs_by_class": {"ok": 2},
    })
}

/// Stores the status of a layer of team-a.
pub(crate) async fn store_status(datastore: &TestDatastore, layer: &str, condition: &str) {
    stored(datastore, &url(layer, "status.json"), status(condition).to_string()).await;
}

fn key(name: &str) -> DocumentKey {
    let [namespace, layer] = ["team-a", "network"].map(|name| name.parse().unwrap());
    DocumentKey { namespace, layer, name: name.parse().unwrap() }
}

fn client(url: &url::Url) -> Client {
    let first_pause = Duration::from_millis(1);
    Client::new(Settings { first_pause, ..Settings::new(url.clone()) }).unwrap()
}

#[tokio::test]
async fn a_document_is_replaced_read_and_deleted_over_every_storage() {
    for datastore in TestDatastore::each().await {
        let url = url("network", "outputs.json");
        assert_eq!(get(&datastore, &url).await.status, 404);
        for body in ["first", "second", "second"] {
            let answer = put(&datastore, &url, body).await;
            assert_eq!(
                (answer.status, answer.header("etag")),
                (200, Some(&*etag(body.as_bytes())))
            );
            let read = get(&datastore, &url).await;
            assert_eq!(
                (read.text(), read.header("etag")),
                (body.to_owned(), Some(&*etag(body.as_bytes())))
            );
            assert!(read.header("repr-digest").is_some());
        }
        let unchanged =
            request(&datastore, Method::GET, &url).header("if-none-match", etag(b"second"));
        assert_eq!(send(unchanged).await.status, 304);
        let head = send(request(&datastore, Method::HEAD, &url)).await;
        assert_eq!((head.status, head.header("content-length")), (200, Some("6")));
        for _ in 0..2 {
            let deleted = send(request(&datastore, Method::DELETE, &url)).await;
            assert_eq!((deleted.status, deleted.text()), (200, String::new()));
            assert_eq!(get(&datastore, &url).await.status, 404);
        }
        assert_eq!(put(&datastore, &url, "again").await.status, 200);
        let listed = get(&datastore, "runs?namespace=team-a&layer=network").await.json();
        assert_eq!(listed, json!({"runs": [], "next": null}));
    }
}

#[tokio::test]
async fn a_document_is_outside_of_layers_and_its_digest_goes_with_it() {
    let datastore = TestDatastore::temporary().await;
    store_status(&datastore, "network", "ok").await;
    assert!(!datastore.root().join("layers").exists());
    let path = ".plancha/documents/team-a/network/status.json";
    assert!(datastore.root().join(path).exists());
    let gc = |flags: &[&str]| {
        let storage = format!("file://{}", datastore.root().display());
        let output = program(&["gc", "--storage", &storage]).args(flags).output().unwrap();
        assert!(output.status.success(), "{output:?}");
    };
    let file = std::fs::File::options().write(true).open(datastore.root().join(path)).unwrap();
    file.set_modified(std::time::SystemTime::UNIX_EPOCH).unwrap();
    gc(&["--keep-runs", "1", "--max-age", "log=1d"]);
    assert_eq!(get(&datastore, &url("network", "status.json")).await.status, 200);
    send(request(&datastore, Method::DELETE, &url("network", "status.json"))).await;
    let left = files(&datastore.root());
    assert!(!left.iter().any(|path| path.ends_with("status.json")), "{left:?}");
}

#[tokio::test]
async fn documents_are_encrypted_whenever_there_is_a_key() {
    let root = tempfile::tempdir().unwrap();
    let at_rest = AtRest { key: Some("a key".into()), encrypts: false };
    let storage = Storage::File(root.path().to_owned());
    let datastore = TestDatastore::of(Config { at_rest, ..Config::of(storage) }).await;
    let of_run = format!("artifacts?{RUN}&attempt=0&name=run.json");
    for (url, is_encrypted) in [
        (url("network", "status.json"), true),
        (url("network", "outputs.json"), true),
        (of_run, false),
    ] {
        stored(&datastore, &url, "S3CRET").await;
        assert_eq!(get(&datastore, &url).await.text(), "S3CRET");
        let name = url.rsplit_once('=').unwrap().1;
        let file = files(root.path())
            .into_iter()
            .find(|file| file.ends_with(name) && !file.starts_with(".plancha/sha256"));
        let kept = std::fs::read(root.path().join(file.unwrap())).unwrap();
        assert_eq!(kept != b"S3CRET", is_encrypted, "{name}");
    }
}

#[tokio::test]
async fn a_document_has_a_maximum_size() {
    let datastore = TestDatastore::memory().await;
    let large = vec![b'x'; (16 << 20) + 1];
    assert_eq!(put(&datastore, &url("a", "outputs.json"), large.clone()).await.status, 413);
    assert_eq!(put(&datastore, &url("a", "outputs.json"), &large[1..]).await.status, 200);
    assert_eq!(put(&datastore, &url("a", "status.json"), &large[..=256 << 10]).await.status, 413);
}

#[tokio::test]
async fn a_page_of_large_statuses_is_short() {
    let datastore = TestDatastore::memory().await;
    for number in 0..8 {
        let mut large = status("ok");
        large["message"] = "x".repeat(250 << 10).into();
        let url = url(&format!("l{number}"), "status.json");
        stored(&datastore, &url, large.to_string()).await;
    }
    let first = get(&datastore, "statuses?namespace=team-a&limit=100").await.json();
    assert_eq!((first["statuses"].as_array().unwrap().len(), &first["next"]), (5, &json!("l4")));
    let rest = get(&datastore, "statuses?namespace=team-a&limit=100&cursor=l4").await.json();
    assert_eq!((rest["statuses"].as_array().unwrap().len(), &rest["next"]), (3, &json!(null)));
}

#[tokio::test]
async fn statuses_are_listed_by_name_and_an_unreadable_one_is_not_hidden() {
    for datastore in TestDatastore::each().await {
        for layer in ["b-1", "b", "a", "c"] {
            store_status(&datastore, layer, "changed").await;
        }
        stored(&datastore, &url("broken", "status.json"), "{").await;
        let newer = json!({"version": 2}).to_string();
        stored(&datastore, &url("newer", "status.json"), newer).await;
        stored(&datastore, &url("none", "outputs.json"), "{}").await;
        stored(&datastore, "documents?namespace=team-b&layer=x&name=status.json", "{}").await;
        let (mut layers, mut cursor) = (Vec::new(), String::new());
        loop {
            let url = format!("statuses?namespace=team-a&limit=2&cursor={cursor}");
            let page = get(&datastore, &url).await.json();
            let statuses = page["statuses"].as_array().unwrap();
            assert!((1..=2).contains(&statuses.len()));
            layers.extend(statuses.iter().cloned());
            match page["next"].as_str() {
                Some(next) => next.clone_into(&mut cursor),
                None => break,
            }
        }
        let names = layers.iter().map(|layer| layer["layer"].as_str().unwrap()).collect::<Vec<_>>();
        assert_eq!(names, ["a", "b", "b-1", "broken", "c", "newer"]);
        assert_eq!(layers[0]["status"]["status"], "changed");
        assert_eq!(layers[0]["unreadable"], json!(null));
        for broken in [3, 5] {
            assert_eq!(layers[broken]["status"], json!(null));
            assert!(layers[broken]["unreadable"].is_string());
        }
    }
}

#[tokio::test]
async fn refusals_are_problem_documents() {
    let requests = [
        "GET documents?namespace=a&layer=b",
        "GET documents?namespace=a&layer=b&name=status.json",
        "PUT documents?namespace=a&layer=b&name=plan.json",
        "GET documents?namespace=a&layer=b&name=..",
        "GET statuses?namespace=a&limit=0",
        "GET metrics?namespace=a&prefix=1a",
    ];
    insta::assert_snapshot!(refusals(&requests).await);
}

#[tokio::test]
async fn the_client_stores_reads_and_deletes() {
    for datastore in TestDatastore::each().await {
        let client = client(&datastore.url);
        let (document, status) = (key("graph.json"), key("status.json"));
        assert_eq!(client.get_document(&document).await.unwrap(), None);
        client.put_document(&document, &Upload::bytes("first")).await.unwrap();
        client.put_document(&document, &Upload::bytes("second")).await.unwrap();
        assert_eq!(client.get_document(&document).await.unwrap().unwrap(), b"second");
        client.delete_document(&document).await.unwrap();
        client.delete_document(&document).await.unwrap();
        assert_eq!(client.get_document(&document).await.unwrap(), None);
        let text = super::documents::status("ok").to_string();
        client.put_document(&status, &Upload::bytes(text)).await.unwrap();
        let page = client.statuses(&status.namespace, 10, None).await.unwrap();
        assert_eq!(page.statuses.len(), 1);
        assert!(page.statuses[0].status.is_some());
    }
}

/// A datastore without the routes: an older one of Plancha, by its header, and Burrito's.
#[tokio::test]
async fn a_datastore_without_documents_is_not_one_without_this_document() {
    let datastore = TestDatastore::memory().await;
    // It answers so below a path that it does not have.
    let older = datastore.url.join("older/").unwrap();
    let burritos = FaultyDatastore::burritos(&datastore.url).await;
    for url in [&older, &burritos.url] {
        let client = client(url);
        let answers = [
            client.get_document(&key("status.json")).await.map(drop),
            client.put_document(&key("status.json"), &Upload::bytes("x")).await,
            client.delete_document(&key("status.json")).await,
        ];
        for answer in answers {
            assert!(matches!(answer, Err(ClientError::Unsupported { .. })), "{answer:?}");
        }
    }
}
