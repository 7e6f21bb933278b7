//! `/api/namespaces` and `/api/layers`

use std::time::Duration;

use datastore::config::Config;
use datastore::transport::limits::Limits;
use datastore::{Auth, Callers, Policy, Verb};
use reqwest::Method;
use serde_json::{Value, json};
use support::{Dialect, FakeCloud, TestDatastore};

use crate::access::authentication::{asked, token};
use crate::api::documents::{status, store_status};
use crate::http::{get, refusals, request, send, stored};

/// A record of a run.
fn record(outcome: &str) -> String {
    json!({
        "version": 1, "action": "plan", "outcome": outcome, "revision": "abc", "exit": 0,
        "tool": {"name": "tofu", "version": "1.10.1", "sha256": "", "source": ""},
        "plan": {"counts": {"create": 1, "update": 2, "delete": 0}}, "started": "2026-01-02T03:04:05Z",
    })
    .to_string()
}

async fn store_record(datastore: &TestDatastore, layer: &str, run: &str, outcome: &str) {
    let url = format!("artifacts?namespace=team-a&layer={layer}&run={run}&attempt=0&name=run.json");
    stored(datastore, &url, record(outcome)).await;
}

/// The layers on a page, without times.
async fn page(datastore: &TestDatastore, query: &str) -> Value {
    let answer = get(datastore, &format!("layers?namespace=team-a{query}")).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    let mut page = answer.json();
    for layer in page["layers"].as_array_mut().unwrap() {
        for name in ["created", "finished"] {
            if let Some(time) = layer["last_run"][name].as_str() {
                let time: jiff::Timestamp = time.parse().unwrap();
                assert!(jiff::Timestamp::now().duration_since(time).abs().as_secs() < 60);
                layer["last_run"][name] = "now".into();
            }
        }
    }
    page
}

fn names(page: &Value, list: &str) -> Vec<String> {
    let name = |item: &Value| item["name"].as_str().or(item.as_str()).unwrap().to_owned();
    page[list].as_array().unwrap().iter().map(name).collect()
}

#[tokio::test]
async fn layers_are_listed_with_their_last_run_and_status() {
    for datastore in TestDatastore::each().await {
        store_record(&datastore, "network", "plan-1", "failed").await;
        tokio::time::sleep(Duration::from_millis(2)).await;
        store_record(&datastore, "network", "plan-2", "changes").await;
        store_status(&datastore, "network", "changed").await;
        store_status(&datastore, "only-status", "ok").await;
        let burrito = "plans?namespace=team-a&layer=burrito&run=r1&attempt=3&format=short";
        stored(&datastore, burrito, "Plan: 0 to create, 0 to update, 1 to delete").await;
        let logs = "logs?namespace=team-a&layer=works&run=apply-1&attempt=0&offset=0";
        assert_eq!(
            send(request(&datastore, Method::POST, logs).body("a line\n")).await.status,
            200
        );
        let expected = page(&datastore, "").await;
        assert_eq!(names(&expected, "layers"), ["burrito", "network", "only-status", "works"]);
        assert_eq!(expected["next"], Value::Null);
        let [burrito, network, only_status, works] = [0, 1, 2, 3].map(|at| &expected["layers"][at]);
        insta::allow_duplicates! {
            insta::assert_snapshot!(burrito, @r#"{"name":"burrito","last_run":{"run":"r1","attempt":3,"action":"plan","outcome":"changes","created":"now","finished":"now","counts":{"create":0,"update":0,"delete":1},"revision":null,"tool":null,"tool_version":null,"live":null},"status":null}"#);
            insta::assert_snapshot!(network["last_run"], @r#"{"run":"plan-2","attempt":0,"action":"plan","outcome":"changes","created":"now","finished":"now","counts":{"create":1,"update":2,"delete":0},"revision":"abc","tool":"tofu","tool_version":"1.10.1","live":null}"#);
            insta::assert_snapshot!(works["last_run"], @r#"{"run":"apply-1","attempt":0,"action":null,"outcome":null,"created":"now","finished":null,"counts":null,"revision":null,"tool":null,"tool_version":null,"live":"running"}"#);
        }
        assert_eq!(
            (&network["status"]["status"], &only_status["status"]["status"]),
            (&json!("changed"), &json!("ok"))
        );
        assert_eq!(only_status["last_run"], Value::Null);

        // What is kept of a layer follows every write.
        assert_eq!(page(&datastore, "").await, expected);
        store_record(&datastore, "works", "apply-1", "applied").await;
        store_status(&datastore, "only-status", "changed").await;
        store_record(&datastore, "network", "plan-2", "no_changes").await;
        let next = page(&datastore, "").await;
        assert_eq!(next["layers"][3]["last_run"]["outcome"], "applied");
        assert_eq!(next["layers"][2]["status"]["status"], "changed");
        assert_eq!(next["layers"][1]["last_run"]["outcome"], "no_changes");
        let deleted = "documents?namespace=team-a&layer=only-status&name=status.json";
        assert_eq!(send(request(&datastore, Method::DELETE, deleted)).await.status, 200);
        assert_eq!(names(&page(&datastore, "").await, "layers"), ["burrito", "network", "works"]);
    }
}

#[tokio::test]
async fn pages_have_every_name_once_in_the_order_of_keys() {
    for datastore in TestDatastore::each().await {
        let all = ["a b", "a-b", "a.b", "a", "a0", "b", "é"];
        for name in all {
            store_record(&datastore, name, "r1", "changes").await;
            let url = format!("plans?namespace={name}&layer=x&run=r1&attempt=0");
            stored(&datastore, &url, "{}").await;
        }
        let status_only = "documents?namespace=z&layer=x&name=status.json";
        stored(&datastore, status_only, status("ok").to_string()).await;
        for limit in [1, 2, 3, 7, 8, 50] {
            for (list, url, more) in [
                ("layers", "layers?namespace=team-a&", &[][..]),
                ("namespaces", "namespaces?", &["team-a", "z"]),
            ] {
                let (mut found, mut after) = (Vec::new(), String::new());
                loop {
                    let url = format!("{url}limit={limit}&after={after}");
                    let page = get(&datastore, &url).await.json();
                    let names = names(&page, list);
                    assert!(names.len() <= limit);
                    found.extend(names);
                    match page["next"].as_str() {
                        Some(next) => next.clone_into(&mut after),
                        None => break,
                    }
                }
                let mut expected =
                    all.iter().chain(more).map(|name| (*name).to_owned()).collect::<Vec<_>>();
                expected.sort_by_key(|name| format!("{name}/"));
                assert_eq!(found, expected, "{list} {limit}");
            }
        }
        assert_eq!(
            names(&get(&datastore, "layers?namespace=none").await.json(), "layers"),
            [""; 0]
        );
    }
    insta::assert_snapshot!(refusals(&["GET layers", "GET layers?namespace=a&limit=0", "GET layers?namespace=a&after=..", "GET namespaces?limit=1001", "GET namespaces?after=a%2Fb"]).await, @r#"
    GET layers
        400 application/problem+json {"type":"about:blank","title":"Bad Request","status":400,"detail":"missing query parameter `namespace`"}
    GET layers?namespace=a&limit=0
        400 application/problem+json {"type":"about:blank","title":"Bad Request","status":400,"detail":"query parameter `limit`: is not a number from 1 to 1000"}
    GET layers?namespace=a&after=..
        400 application/problem+json {"type":"about:blank","title":"Bad Request","status":400,"detail":"query parameter `after`: `..` must not be `.` or `..`"}
    GET namespaces?limit=1001
        400 application/problem+json {"type":"about:blank","title":"Bad Request","status":400,"detail":"query parameter `limit`: is not a number from 1 to 1000"}
    GET namespaces?after=a%2Fb
        400 application/problem+json {"type":"about:blank","title":"Bad Request","status":400,"detail":"query parameter `after`: `a/b` must not contain `/` or `\\`"}
    "#);
}

#[tokio::test]
async fn a_directory_without_files_is_neither_a_namespace_nor_a_layer() {
    let datastore = TestDatastore::temporary().await;
    stored(&datastore, "plans?namespace=a&layer=b&run=r&attempt=0", "{}").await;
    std::fs::create_dir_all(datastore.root().join("layers/a/empty/run/0")).unwrap();
    std::fs::create_dir_all(datastore.root().join("layers/empty/b/run/0")).unwrap();
    std::fs::write(datastore.root().join("layers/file"), "x").unwrap();
    assert_eq!(names(&get(&datastore, "namespaces").await.json(), "namespaces"), ["a"]);
    assert_eq!(names(&get(&datastore, "layers?namespace=a").await.json(), "layers"), ["b"]);
}

/// Stores a run and a status in three namespaces.
async fn store_in_namespaces(datastore: &TestDatastore, writer: &str) {
    for namespace in ["other", "team-a", "team-b"] {
        let run = format!("namespace={namespace}&layer=network&run=r1&attempt=0");
        let put = async |rest: &str, body: String| {
            let put = request(datastore, Method::PUT, rest).header("authorization", writer);
            assert_eq!(send(put.body(body)).await.status, 200);
        };
        put(&format!("artifacts?{run}&name=run.json"), record("changes")).await;
        put(
            &format!("documents?namespace={namespace}&layer=network&name=status.json"),
            status("ok").to_string(),
        )
        .await;
    }
}

#[tokio::test]
async fn a_caller_sees_only_what_it_may_read() {
    let mut policy = Policy::default();
    let mut new = |id: &str, namespaces: &[&str], kinds: &[&str], verbs: &[Verb]| {
        let (secret, rule) = token(id, namespaces, kinds, verbs);
        policy.add(&rule).unwrap();
        secret
    };
    let writer = new("writer", &["*"], &["plan", "artifact", "status"], &[Verb::Write]);
    let all = new("all", &["team-*"], &["artifact", "status", "short"], &[Verb::Read, Verb::List]);
    let lister = new("lister", &["team-a"], &["log"], &[Verb::List]);
    let reader = new("reader", &["team-a"], &["artifact"], &[Verb::Read]);
    let bundles = new("bundles", &["*"], &["bundle"], &[Verb::Read, Verb::List]);
    let callers = Callers { tokens: true, policy, ..Callers::default() };
    let datastore = TestDatastore::guarded(Auth::Callers(Box::new(callers))).await;
    store_in_namespaces(&datastore, &writer).await;
    let ask = async |token: &str, rest: &str| asked(&datastore, Method::GET, rest, token).await;
    for (token, seen) in [
        (&all, &["team-a", "team-b"][..]),
        (&lister, &["team-a"]),
        (&reader, &[]),
        (&bundles, &[]),
        (&writer, &[]),
    ] {
        let page = ask(token, "namespaces").await.json();
        assert_eq!(
            (names(&page, "namespaces"), &page["next"]),
            (seen.iter().map(|name| (*name).to_owned()).collect(), &Value::Null)
        );
        for namespace in ["other", "team-a", "team-b", "none"] {
            let answer = ask(token, &format!("layers?namespace={namespace}")).await;
            let expected = if seen.contains(&namespace) { 200 } else { 403 };
            assert_eq!(answer.status, expected, "{namespace}");
        }
    }
    // No page ends at a name that the caller may not see.
    for (token, next) in [(&all, json!("team-a")), (&lister, Value::Null)] {
        let page = ask(token, "namespaces?limit=1").await.json();
        assert_eq!((names(&page, "namespaces"), &page["next"]), (vec!["team-a".to_owned()], &next));
    }
    assert_eq!(ask("nobody", "namespaces").await.status, 401);

    let whole = ask(&all, "layers?namespace=team-a").await.json()["layers"][0].take();
    assert_eq!(
        (&whole["last_run"]["outcome"], &whole["status"]["status"]),
        (&json!("changes"), &json!("ok"))
    );
    let part = ask(&lister, "layers?namespace=team-a").await.json()["layers"][0].take();
    assert_eq!((&part["last_run"]["run"], &part["status"]), (&json!("r1"), &Value::Null));
    for name in ["action", "outcome", "counts", "revision", "tool", "tool_version"] {
        assert_eq!(part["last_run"][name], Value::Null);
    }
}

/// A bucket with a namespace of this many layers, that another program has filled.
fn filled(layers: usize) -> FakeCloud {
    let cloud = FakeCloud::start(Dialect::S3);
    for at in 0..layers {
        let layer = format!("team-a/layer-{at:04}");
        cloud.put(&format!("layers/{layer}/r1/0/run.json"), record("changes"));
        cloud.put(&format!("layers/{layer}/r1/0/plan.bin"), "bin");
        cloud.put(&format!(".plancha/runs/{layer}/fffffe74301a97fe-r1"), "");
        cloud.put(&format!(".plancha/runs/{layer}/fffffe74301a97ff-r0"), "");
    }
    cloud
}

/// A page of layers after this one: how many, its `next`, and how many requests it took.
async fn counted(
    datastore: &TestDatastore,
    cloud: &FakeCloud,
    after: &str,
) -> (usize, Option<String>, usize) {
    // The server also tries the storage, at any time.
    let asked = || cloud.requests().iter().filter(|request| request.contains("team-a")).count();
    let before = asked();
    let page = get(datastore, &format!("layers?namespace=team-a&after={after}")).await.json();
    let requests = asked() - before;
    let layers = page["layers"].as_array().unwrap();
    assert!(layers.iter().all(|layer| layer["last_run"]["outcome"] == "changes"));
    (layers.len(), page["next"].as_str().map(str::to_owned), requests)
}

/// Reads pages after this layer until there are so many layers. Each takes at most 60 requests.
async fn walk(datastore: &TestDatastore, cloud: &FakeCloud, after: &str, layers: usize) {
    let (mut found, mut after) = (0, after.to_owned());
    while found < layers {
        let (more, next, requests) = counted(datastore, cloud, &after).await;
        assert!(more > 0 && requests <= 60, "{more} {requests}");
        found += more;
        match next {
            Some(next) => after = next,
            None => break,
        }
    }
    assert!(found >= layers, "{found}");
}

#[tokio::test]
async fn fifty_layers_of_a_namespace_of_5000_take_at_most_60_requests() {
    let datastore = TestDatastore::over(filled(5000)).await;
    // First nothing is known of the layers, then only that they may change.
    for _ in 0..2 {
        walk(&datastore, datastore.cloud(), "layer-2499", 50).await;
    }
    let (found, next, requests) = counted(&datastore, datastore.cloud(), "layer-2499").await;
    assert_eq!((found, next.as_deref()), (50, Some("layer-2549")));
    assert!(requests <= 60, "{requests}");
    let before = datastore.cloud().requests().len();
    let namespaces = get(&datastore, "namespaces").await.json();
    assert_eq!(names(&namespaces, "namespaces"), ["team-a"]);
    assert!(datastore.cloud().requests().len() - before <= 6);
}

#[tokio::test]
async fn what_is_known_of_layers_follows_writes_and_makes_the_next_page_cheap() {
    let cloud = filled(20);
    let limits = Limits { refresh: Duration::from_hours(1), ..Limits::default() };
    let datastore = TestDatastore::of(Config { limits, ..Config::of(cloud.storage()) }).await;
    for _ in 0..2 {
        walk(&datastore, &cloud, "", 20).await;
    }
    let (found, next, known) = counted(&datastore, &cloud, "").await;
    assert_eq!((found, next), (20, None));
    assert!(known <= 25, "{known}");
    store_record(&datastore, "layer-0003", "r2", "changes").await;
    store_status(&datastore, "layer-0004", "ok").await;
    let page = get(&datastore, "layers?namespace=team-a").await.json();
    assert_eq!(page["layers"][3]["last_run"]["run"], "r2");
    assert_eq!(page["layers"][4]["status"]["status"], "ok");
    let (found, _, requests) = counted(&datastore, &cloud, "").await;
    assert!(found == 20 && requests <= known, "{found} {requests}");
    // All summaries are outdated: pages are shorter, and none is empty.
    for layer in 0..20 {
        store_record(&datastore, &format!("layer-{layer:04}"), "r2", "changes").await;
    }
    walk(&datastore, &cloud, "", 20).await;
}

#[tokio::test]
async fn a_write_through_one_replica_is_shown_by_another() {
    for [first, second] in TestDatastore::replicas().await {
        for layer in ["a", "b", "c"] {
            store_record(&first, layer, "r1", "changes").await;
        }
        assert_eq!(page(&second, "").await["layers"][1]["last_run"]["outcome"], "changes");
        for outcome in ["failed", "applied"] {
            store_record(&first, "b", "r1", outcome).await;
            assert_eq!(page(&second, "").await["layers"][1]["last_run"]["outcome"], outcome);
        }
    }
}
