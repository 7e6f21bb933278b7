//! `POST /api/attempts` and `/api/applied`: attempts are claimed once, applies are recorded once.

use std::time::{Duration, SystemTime};

use datastore_api::client::{Claimed, Settings, Upload};
use datastore_api::{AppliedKey, Attempt, Client, ClientError, RunKey, Sha256};
use futures::future::join_all;
use reqwest::Method;
use serde_json::json;
use support::{Fault, FaultyDatastore, PROBLEM, TestDatastore};
use url::Url;

use crate::http::{Answer, CLIENT, RUN, files, get, put, refusals, request, send, stored};
use crate::program::process::program;

const PLAN: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

async fn claim(datastore: &TestDatastore, attempt: u32, id: &str) -> Answer {
    let rest = format!("attempts?{RUN}&attempt={attempt}&claim={id}");
    send(request(datastore, Method::POST, &rest)).await
}

fn run() -> RunKey {
    let name = |text: &str| text.parse().unwrap();
    RunKey { namespace: name("team-a"), layer: name("network"), run: name("plan-1") }
}

fn client(url: &Url) -> Client {
    let first_pause = Duration::from_millis(1);
    Client::new(Settings { first_pause, ..Settings::new(url.clone()) }).unwrap()
}

#[tokio::test]
async fn attempt_is_claimed_once_and_repeating_the_same_claim_succeeds() {
    for datastore in TestDatastore::each().await {
        for _ in 0..2 {
            let answer = claim(&datastore, 3, "a").await;
            assert_eq!((answer.status, answer.text()), (200, String::new()));
        }
        let refused = claim(&datastore, 3, "b").await;
        assert_eq!(refused.status, 409);
        assert!(refused.text().contains("another run has claimed this attempt"));
        assert_eq!(claim(&datastore, 4, "b").await.status, 200);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn one_of_many_concurrent_claims_succeeds() {
    for datastore in TestDatastore::each().await {
        let ids = (0..16).map(|number| format!("claim-{number}")).collect::<Vec<_>>();
        let claims = join_all(ids.iter().map(|id| claim(&datastore, 0, id))).await;
        let mut statuses = claims.iter().map(|answer| answer.status).collect::<Vec<_>>();
        statuses.sort_unstable();
        assert_eq!(statuses, [&[200][..], &[409; 15]].concat());
    }
}

#[tokio::test]
async fn a_claimed_attempt_is_listed_without_files_and_is_never_the_latest() {
    for datastore in TestDatastore::each().await {
        stored(&datastore, &format!("plans?{RUN}&attempt=0"), "{}").await;
        assert_eq!(claim(&datastore, 0, "a").await.status, 200);
        assert_eq!(claim(&datastore, 7, "b").await.status, 200);
        let listed = get(&datastore, &format!("attempts?{RUN}")).await.json();
        assert_eq!(listed["attempts"][0]["artifacts"][0]["name"], "plan.json");
        assert_eq!(listed["attempts"][1], json!({"attempt": 7, "artifacts": [], "live": null}));
        assert_eq!(listed["attempts"].as_array().unwrap().len(), 2);
        // Without an attempt it is the latest one's, on Burrito's routes too.
        assert_eq!(get(&datastore, &format!("plans?{RUN}")).await.text(), "{}");
    }
}

#[tokio::test]
async fn a_claim_is_kept_outside_of_layers() {
    let datastore = TestDatastore::temporary().await;
    claim(&datastore, 7, "b").await;
    put(&datastore, &format!("applied?{RUN}&plan={PLAN}"), "record").await;
    assert!(!datastore.root().join("layers").exists());
    assert!(datastore.root().join(".plancha/claims/team-a/network/plan-1/7").exists());
    assert!(datastore.root().join(".plancha/applied/team-a/network").join(PLAN).exists());
}

#[tokio::test]
async fn the_record_of_an_apply_is_never_replaced() {
    for datastore in TestDatastore::each().await {
        let url = format!("applied?{RUN}&plan={PLAN}");
        assert_eq!(get(&datastore, &url).await.status, 404);
        stored(&datastore, &url, "first").await;
        stored(&datastore, &url, "first").await;
        assert_eq!(put(&datastore, &url, "second").await.status, 412);
        assert_eq!(get(&datastore, &url).await.text(), "first");
        let other_layer = url.replace("network", "other");
        assert_eq!(get(&datastore, &other_layer).await.status, 404);
    }
}

#[tokio::test]
async fn the_record_of_an_apply_that_is_lost_is_neither_absent_nor_made_again() {
    let datastore = TestDatastore::temporary().await;
    let url = format!("applied?{RUN}&plan={PLAN}");
    stored(&datastore, &url, "first").await;
    let record = datastore.root().join(".plancha/applied/team-a/network").join(PLAN);
    std::fs::remove_file(&record).unwrap();
    for answer in [get(&datastore, &url).await, put(&datastore, &url, "second").await] {
        assert_eq!((answer.status, answer.header("plancha-damaged")), (500, Some("lost")));
        let text = answer.text();
        assert!(
            text.contains("is missing: its digest is recorded, and its file is gone"),
            "{text}"
        );
    }
    // A retry would not help.
    let key = AppliedKey {
        namespace: run().namespace,
        layer: run().layer,
        plan: PLAN.parse::<Sha256>().unwrap(),
    };
    let client = client(&datastore.url);
    let read = client.get_applied(&key).await.map(drop);
    let written = client.put_applied(&key, &Upload::bytes("second")).await;
    for refused in [read, written] {
        assert!(matches!(refused, Err(ClientError::Lost { .. })), "{refused:?}");
    }
    assert!(!record.exists());
    std::fs::write(&record, "first").unwrap();
    assert_eq!(get(&datastore, &url).await.text(), "first", "it is restored");
    // A server that was killed between the digest and the file may leave it so, before it has answered.
    std::fs::remove_file(&record).unwrap();
    stored(&datastore, &url, "first").await;
    assert_eq!(get(&datastore, &url).await.text(), "first");
}

#[tokio::test]
async fn errors_are_problem_documents() {
    let run = "namespace=a&layer=b&run=c";
    let requests = [
        format!("POST attempts?{run}&attempt=0"),
        format!("POST attempts?{run}&attempt=0&claim=a%2Fb"),
        "GET applied?namespace=a&layer=b".to_owned(),
        "PUT applied?namespace=a&layer=b&plan=abc".to_owned(),
        format!("GET applied?namespace=a&layer=b&plan={PLAN}"),
    ];
    let requests = requests.each_ref().map(String::as_str);
    insta::assert_snapshot!(refusals(&requests).await, @r#"
    POST attempts?namespace=a&layer=b&run=c&attempt=0
        400 application/problem+json {"type":"about:blank","title":"Bad Request","status":400,"detail":"missing query parameter `claim`"}
    POST attempts?namespace=a&layer=b&run=c&attempt=0&claim=a%2Fb
        400 application/problem+json {"type":"about:blank","title":"Bad Request","status":400,"detail":"query parameter `claim`: `a/b` is not 1 to 64 characters of `A-Z a-z 0-9 -`"}
    GET applied?namespace=a&layer=b
        400 application/problem+json {"type":"about:blank","title":"Bad Request","status":400,"detail":"missing query parameter `plan`"}
    PUT applied?namespace=a&layer=b&plan=abc
        400 application/problem+json {"type":"about:blank","title":"Bad Request","status":400,"detail":"query parameter `plan`: not a SHA-256 digest in hex"}
    GET applied?namespace=a&layer=b&plan=e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855
        404 application/problem+json {"type":"about:blank","title":"Not Found","status":404,"detail":"no such artifact"}
    "#);
}

#[tokio::test]
async fn every_response_has_the_server_header() {
    let datastore = TestDatastore::memory().await;
    let api = format!("api/attempts?{RUN}");
    for path in ["healthz", "readyz", "metrics", "nowhere", "api/x", "api/openapi.json", &api] {
        for method in [Method::GET, Method::HEAD, Method::PUT, Method::DELETE] {
            let url = datastore.url.join(path).unwrap();
            let answer = send(CLIENT.request(method.clone(), url)).await;
            assert_eq!(answer.header("server"), Some("plancha"), "{method} {path}");
        }
    }
    let long = "x".repeat(17 << 10);
    let refused = send(CLIENT.get(datastore.url.clone()).header("x-long", long)).await;
    assert_eq!((refused.status, refused.header("server")), (431, Some("plancha")));
}

fn gc(datastore: &TestDatastore, flags: &[&str]) {
    let storage = format!("file://{}", datastore.root().display());
    let output = program(&["gc", "--storage", &storage]).args(flags).output().unwrap();
    assert!(output.status.success(), "{output:?}");
}

/// Makes one file, or everything below a directory, so old.
fn age(datastore: &TestDatastore, path: &str, days: u64) {
    let modified = SystemTime::now() - Duration::from_hours(days * 24);
    let path = datastore.root().join(path);
    let all = if path.is_file() {
        vec![path]
    } else {
        files(&path).iter().map(|file| path.join(file)).collect()
    };
    for file in all {
        std::fs::File::options().write(true).open(file).unwrap().set_modified(modified).unwrap();
    }
}

#[tokio::test]
async fn gc_removes_claims_with_their_run_and_unused_ones_after_a_week() {
    let datastore = TestDatastore::temporary().await;
    let claims = async |run: &str, attempt: u32| {
        let rest = format!("attempts?namespace=a&layer=b&run={run}&attempt={attempt}&claim=x");
        assert_eq!(send(request(&datastore, Method::POST, &rest)).await.status, 200);
    };
    let stores = async |run: &str| {
        stored(&datastore, &format!("logs?namespace=a&layer=b&run={run}&attempt=0"), "x").await;
    };
    for run in ["gone", "left"] {
        claims(run, 0).await;
        stores(run).await;
        age(&datastore, &format!("layers/a/b/{run}"), if run == "gone" { 20 } else { 10 });
    }
    for attempt in [1, 2] {
        claims("left", attempt).await;
    }
    claims("unused", 0).await;
    claims("recent", 0).await;
    let elsewhere = "attempts?namespace=a&layer=empty&run=r&attempt=0&claim=x";
    send(request(&datastore, Method::POST, elsewhere)).await;
    age(&datastore, ".plancha/claims", 8);
    age(&datastore, ".plancha/claims/a/b/left/2", 6);
    age(&datastore, ".plancha/claims/a/b/recent", 6);
    let before = files(&datastore.root());
    gc(&datastore, &["--keep-runs", "1", "--dry-run"]);
    assert_eq!(files(&datastore.root()), before);
    gc(&datastore, &["--keep-runs", "1"]);
    let left = files(&datastore.root().join(".plancha/claims"));
    let left = left.iter().map(|path| path.to_str().unwrap()).collect::<Vec<_>>();
    assert_eq!(left, ["a/b/left/0", "a/b/left/2", "a/b/recent/0"]);
}

#[tokio::test]
async fn gc_keeps_the_record_of_an_apply_as_long_as_its_plan_may_be_stored() {
    let datastore = TestDatastore::temporary().await;
    let record = |layer: &str, plan: &str| {
        format!("applied?namespace=a&layer={layer}&plan={}", Sha256::of(plan.as_bytes()))
    };
    let plan = |run: &str| format!("plans?namespace=a&layer=b&run={run}&attempt=0&format=bin");
    for (run, days) in [("old", 40), ("new", 20)] {
        stored(&datastore, &plan(run), run).await;
        age(&datastore, &format!("layers/a/b/{run}"), days);
    }
    let records = [
        ("b", "before", 50),
        ("b", "old", 39),
        ("b", "new", 19),
        ("empty", "x", 31),
        ("empty", "y", 29),
    ];
    for (layer, plan, days) in records {
        stored(&datastore, &record(layer, plan), plan).await;
        let path = format!(".plancha/applied/a/{layer}/{}", Sha256::of(plan.as_bytes()));
        age(&datastore, &path, days);
    }
    let left = async || {
        let mut left = Vec::new();
        for (layer, plan, _) in records {
            if get(&datastore, &record(layer, plan)).await.status == 200 {
                left.push(plan);
            }
        }
        left
    };
    gc(&datastore, &["--keep-runs", "10"]);
    assert_eq!(left().await, ["old", "new", "y"]);
    // A record goes once its plan has gone before.
    gc(&datastore, &["--keep-runs", "1"]);
    assert_eq!(left().await, ["old", "new", "y"]);
    gc(&datastore, &["--keep-runs", "1"]);
    assert_eq!(left().await, ["new", "y"]);
    let digests = files(&datastore.root().join(".plancha/sha256/.plancha/applied"));
    assert_eq!(digests.len(), 2, "a digest goes with its record: {digests:?}");
}

#[tokio::test]
async fn gc_keeps_the_record_of_an_apply_whose_plan_is_younger_by_a_copy_or_an_encryption() {
    let datastore = TestDatastore::temporary().await;
    let records = ["stored", "gone"].map(|plan| Sha256::of(plan.as_bytes()).to_string());
    let plan = "plans?namespace=a&layer=b&run=r&attempt=0&format=bin";
    stored(&datastore, plan, "stored").await;
    for record in &records {
        stored(&datastore, &format!("applied?namespace=a&layer=b&plan={record}"), "{}").await;
        age(&datastore, &format!(".plancha/applied/a/b/{record}"), 40);
    }
    let left = || {
        let left = files(&datastore.root().join(".plancha/applied/a/b"));
        left.into_iter().map(|path| path.to_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    // As another program stores it.
    let other = datastore.root().join("layers/a/b/other/0/plan.bin");
    std::fs::create_dir_all(other.parent().unwrap()).unwrap();
    std::fs::write(&other, "unknown").unwrap();
    gc(&datastore, &["--keep-runs", "10"]);
    assert_eq!(left().len(), 2, "any of them may be its record");
    std::fs::remove_file(&other).unwrap();
    gc(&datastore, &["--keep-runs", "10"]);
    assert_eq!(left(), records[..1]);
}

#[tokio::test]
async fn the_client_claims_and_records() {
    for datastore in TestDatastore::each().await {
        let client = client(&datastore.url);
        let [ours, theirs] = ["ours", "theirs"].map(|id| id.parse().unwrap());
        for _ in 0..2 {
            assert_eq!(client.claim(&run(), Attempt(0), &ours).await.unwrap(), Claimed::Ours);
        }
        assert_eq!(client.claim(&run(), Attempt(0), &theirs).await.unwrap(), Claimed::Another);
        let RunKey { namespace, layer, .. } = run();
        let key = AppliedKey { namespace, layer, plan: Sha256::of(b"plan") };
        assert_eq!(client.get_applied(&key).await.unwrap(), None);
        client.put_applied(&key, &Upload::bytes("first")).await.unwrap();
        client.put_applied(&key, &Upload::bytes("first")).await.unwrap();
        let refused = client.put_applied(&key, &Upload::bytes("second")).await.unwrap_err();
        assert_eq!(refused.status().unwrap(), 412);
        assert_eq!(client.get_applied(&key).await.unwrap().unwrap(), b"first");
    }
}

/// A proxy whose datastore is away for a moment: what it says is not the datastore's word.
#[tokio::test]
async fn proxys_404_is_retried_and_never_taken_as_an_answer() {
    let datastore = TestDatastore::memory().await;
    let id = "ours".parse().unwrap();
    let RunKey { namespace, layer, .. } = run();
    let key = AppliedKey { namespace, layer, plan: Sha256::of(b"plan") };
    let direct = client(&datastore.url);
    direct.put_applied(&key, &Upload::bytes("record")).await.unwrap();
    let bin = datastore_api::File::Plan(datastore_api::PlanFormat::Bin);
    let (bytes, replace) = (Upload::bytes("plan"), datastore_api::client::Condition::Replace);
    direct.put_file(&run(), Attempt(0), &bin, &bytes, replace).await.unwrap();
    let faults =
        ["GET", "POST"].map(|method| Fault { method, part: "/api/", status: 404, times: 3 });
    let proxy = FaultyDatastore::before(&datastore.url, faults.to_vec()).await;
    let sick = client(&proxy.url);
    assert!(sick.get_applied(&key).await.unwrap().is_some());
    assert_eq!(sick.claim(&run(), Attempt(0), &id).await.unwrap(), Claimed::Ours);
    for part in ["/api/attempts", "/api/plans", "/api/applied"] {
        let always = Fault { method: "GET", part, status: 404, times: usize::MAX };
        let proxy = FaultyDatastore::before(&datastore.url, vec![always]).await;
        let sick = client(&proxy.url);
        let error = match part {
            "/api/attempts" => sick.attempts_unless_burritos(&run()).await.map(drop),
            "/api/plans" => sick.get_file(&run(), None, &bin).await.map(drop),
            _ => sick.get_applied(&key).await.map(drop),
        };
        let error = error.unwrap_err();
        assert!(matches!(error, ClientError::Refused { .. }), "{error}");
        assert_eq!(error.status().unwrap(), 404);
        assert_eq!(proxy.seen().len(), 5, "{part}: {:?}", proxy.seen());
    }
}

/// A proxy that keeps the header `Server` of other answers has not passed this one on.
#[tokio::test]
async fn problem_document_without_the_header_of_other_answers_is_not_the_datastores_404() {
    let datastore = TestDatastore::memory().await;
    let RunKey { namespace, layer, .. } = run();
    let key = AppliedKey { namespace, layer, plan: Sha256::of(b"plan") };
    client(&datastore.url).put_applied(&key, &Upload::bytes("record")).await.unwrap();
    let fault = |times| vec![Fault { method: "GET", part: "/api/applied", status: PROBLEM, times }];
    let proxy = FaultyDatastore::before(&datastore.url, Vec::new()).await;
    let client = client(&proxy.url);
    client.attempts(&run()).await.unwrap();
    proxy.set_faults(fault(2));
    assert_eq!(client.get_applied(&key).await.unwrap().unwrap(), b"record");
    proxy.set_faults(fault(usize::MAX));
    for client in [client.clone(), client.once(Duration::from_mins(1))] {
        let error = client.get_applied(&key).await.unwrap_err();
        assert_eq!(error.status().unwrap(), 404, "{error}");
    }
}

/// A server that answers each path with what a test says: status, content type, `Server`, body.
async fn server(
    answers: Vec<(&'static str, u16, &'static str, &'static str, &'static str)>,
) -> (Url, tokio_util::sync::DropGuard) {
    use axum::http::{StatusCode, header};
    use axum::response::IntoResponse as _;
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap()).parse().unwrap();
    let router = axum::Router::new().fallback(async move |request: axum::extract::Request| {
        let path = request.uri().path();
        let (_, status, content, server, body) =
            *answers.iter().find(|(of, ..)| *of == path).unwrap();
        let headers = [(header::CONTENT_TYPE, content), (header::SERVER, server)];
        (StatusCode::from_u16(status).unwrap(), headers, body).into_response()
    });
    let stop = tokio_util::sync::CancellationToken::new();
    let stopped = stop.clone().cancelled_owned();
    tokio::spawn(async { axum::serve(listener, router).with_graceful_shutdown(stopped).await });
    (url, stop.drop_guard())
}

#[tokio::test]
async fn burritos_datastore_is_recognised_only_by_both_of_its_responses() {
    let json = "application/json";
    let text = "text/plain; charset=UTF-8";
    let not_found = "{\"message\":\"Not Found\"}\n";
    let no_parameters = "missing query parameters";
    let id = "ours".parse().unwrap();
    for (attempts, plans, is_burritos) in [
        ((404, json, "", not_found), (400, text, "", no_parameters), true),
        ((404, json, "plancha", not_found), (400, text, "plancha", no_parameters), false),
        ((404, json, "", not_found), (400, text, "plancha", no_parameters), false),
        ((404, json, "", not_found), (404, json, "", not_found), false),
        ((404, json, "", not_found), (400, text, "", "bad request"), false),
        ((404, "text/html", "nginx", "<h1>404</h1>"), (400, text, "", no_parameters), false),
        ((502, "text/html", "nginx", "<h1>502</h1>"), (400, text, "", no_parameters), false),
    ] {
        let of = |path, (status, content, server, body)| (path, status, content, server, body);
        let (url, _running) =
            server(vec![of("/api/attempts", attempts), of("/api/plans", plans)]).await;
        let client = client(&url);
        let found = client.attempts_unless_burritos(&run()).await;
        let claimed = client.claim(&run(), Attempt(0), &id).await;
        if is_burritos {
            assert_eq!(found.unwrap(), None, "{attempts:?} {plans:?}");
            assert_eq!(claimed.unwrap(), Claimed::Unsupported);
            let named = client.attempts(&run()).await.unwrap_err().to_string();
            assert!(named.contains("Burrito's own datastore"), "{named}");
        } else {
            found.unwrap_err();
            claimed.unwrap_err();
        }
    }
}
