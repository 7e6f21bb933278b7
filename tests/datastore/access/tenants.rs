//! DS27: no tenant reaches the objects of another, for every route of the OpenAPI document, every verb, every
//! kind of caller and many spellings.

use std::collections::BTreeSet;
use std::path::PathBuf;

use datastore::{Auth, Callers, Policy, Verb};
use futures::future::join_all;
use reqwest::{Method, RequestBuilder};
use serde_json::Value;
use support::{FakeTokenReviews, TestDatastore};

use crate::access::authentication::{B, CONTROLLERS, asked, kubernetes, status, token};
use crate::http::{Answer, CLIENT, etag, files, get, request, send};

/// A route and a method that somebody may ask for, with the names of team-b.
pub(crate) struct Operation {
    pub(crate) method: Method,
    /// As in the document.
    pub(crate) path: String,
    /// Below `/api/`.
    pub(crate) url: String,
}

impl Operation {
    fn is(&self, method: &Method) -> bool {
        self.method == *method || self.method == Method::GET && *method == Method::HEAD
    }
}

/// Every operation below `/api` that the document has, which has all that there are: so a new one is
/// tried, and one with a new parameter fails here until this says what a stranger would ask for. Those of states, whose
/// names are in the path, have tests of their own (`state/tenants.rs`).
pub(crate) async fn operations(datastore: &TestDatastore) -> Vec<Operation> {
    let document = get(datastore, "openapi.json").await.json();
    let mut all = Vec::new();
    for (path, methods) in document["paths"].as_object().unwrap() {
        let Some(rest) = path.strip_prefix("/api/").filter(|rest| *rest != "openapi.json") else {
            continue;
        };
        // The namespaces are of no namespace: `lists::layers` tests who sees which.
        let others = ["state", "leases", "tools", "namespaces"];
        if others.iter().any(|prefix| rest.starts_with(prefix)) {
            continue;
        }
        for (method, operation) in methods.as_object().unwrap() {
            let method = method.to_uppercase().parse::<Method>().unwrap();
            for query in queries(path, &operation["parameters"]) {
                let url =
                    if query.is_empty() { rest.to_owned() } else { format!("{rest}?{query}") };
                all.push(Operation { method: method.clone(), path: path.clone(), url });
            }
        }
    }
    assert!(all.len() >= 20, "{} operations", all.len());
    all
}

/// The queries that name what is team-b's.
fn queries(path: &str, parameters: &Value) -> Vec<String> {
    let mut queries = vec![String::new()];
    for parameter in parameters.as_array().unwrap().iter().filter(|one| one["in"] == "query") {
        let name = parameter["name"].as_str().unwrap();
        let values: &[&str] = match (path, name) {
            (_, "namespace") => &["team-b"],
            (_, "layer") => &["network"],
            ("/api/approvals" | "/api/approvals/claim", "run") => &["plan-1/0"],
            (_, "run") => &["plan-1"],
            (_, "attempt") => &["0"],
            ("/api/plans", "format") => &["json", "pretty", "short", "bin"],
            ("/api/artifacts", "name") => &["run.json"],
            ("/api/repository/revision/bundle", "name") => &["infra"],
            ("/api/documents", "name") => &["status.json"],
            ("/api/attempts" | "/api/approvals/claim", "claim") => &["claim-1"],
            (_, "set" | "approval") => {
                &["e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"]
            }
            ("/api/logs", "follow" | "complete") => &["true"],
            ("/api/logs", "offset") => &["0"],
            ("/api/approvals", "lifetime_seconds") => &["60"],
            ("/api/metrics", "prefix") => &["plancha"],
            ("/api/applied", "plan") => {
                &["e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"]
            }
            (_, "ref") => &["main"],
            (_, "revision") => &["abc"],
            ("/api/runs" | "/api/statuses" | "/api/approvals" | "/api/layers", "limit") => &["5"],
            ("/api/layers", "after") => &["a"],
            ("/api/runs" | "/api/statuses", "cursor") => &[""],
            other => panic!("what would a stranger ask for at {other:?}?"),
        };
        queries = queries
            .iter()
            .flat_map(|query| values.iter().map(move |value| (query, value)))
            .map(|(query, value)| format!("{query}&{name}={value}"))
            .collect();
    }
    queries.iter().map(|query| query.trim_start_matches('&').to_owned()).collect()
}

/// The URLs of operations, each once.
fn urls(operations: &[Operation]) -> BTreeSet<String> {
    operations.iter().map(|operation| operation.url.clone()).collect()
}

/// Puts what is team-b's wherever something can be put; each with bytes that can be known again.
pub(crate) async fn fill(
    datastore: &TestDatastore,
    operations: &[Operation],
) -> Vec<(String, String)> {
    let mut kept = Vec::new();
    for Operation { url, .. } in operations.iter().filter(|one| one.method == Method::PUT) {
        let secret = format!("S3CRET-{} of team-b", kept.len());
        let put = request(datastore, Method::PUT, url).header("authorization", CONTROLLERS);
        assert_eq!(send(put.body(secret.clone())).await.status, 200, "{url}");
        kept.push((url.clone(), secret));
    }
    assert!(kept.len() >= 7);
    kept
}

/// Every kind of caller that has no business with team-b, and whether it is known at all.
fn strangers(
    kube: &FakeTokenReviews,
    policy: &mut Policy,
) -> Vec<(&'static str, Option<String>, bool)> {
    let unknown = [
        ("an empty token", ""),
        ("rubbish", "rubbish"),
        ("the name of an account", "system:serviceaccount:team-b:runner"),
        ("another's token, cut", &B[..B.len() - 1]),
        ("another's token, and more", "token of team-b/runner2"),
        ("another's token in capitals", "TOKEN OF TEAM-B/RUNNER"),
        ("another's token twice", "token of team-b/runner,token of team-b/runner"),
    ];
    let mut callers = vec![("no token", None, false)];
    callers.extend(unknown.map(|(name, token)| (name, Some(token.to_owned()), false)));
    for (name, account) in [
        ("an account of another namespace", "team-a/runner"),
        ("an account that is called so", "team-a/team-b"),
        ("a namespace that begins so", "team-b-2/runner"),
        ("a namespace that ends so", "my-team-b/runner"),
        ("the beginning of a namespace", "team/runner"),
        ("one in capitals", "TEAM-B/runner"),
        ("a namespace like the main one", "burrito-system-2/burrito-controllers"),
        ("an account with a rule for its own", "team-a/ruled"),
    ] {
        kube.account(account, name);
        callers.push((name, Some(name.to_owned()), true));
    }
    policy.add("rules: [{who: {serviceaccount: team-a/ruled}, namespaces: [team-a], verbs: [read, write, list, delete, admin]}]").unwrap();
    for (name, user) in [
        ("a user that is no account", "team-b"),
        ("a user with a colon too many", "system:serviceaccount:team-a:x:team-b"),
        ("a node", "system:node:team-b"),
    ] {
        kube.user(user, "burrito", name);
        callers.push((name, Some(name.to_owned()), false));
    }
    kube.user("system:serviceaccount:team-b:runner", "other", "for another audience");
    callers.push(("for another audience", Some("for another audience".to_owned()), false));
    for (name, namespaces, verbs) in [
        ("a token of another namespace", "team-a", &[Verb::Read, Verb::Write, Verb::List][..]),
        ("a token of a pattern beside", "team-a*", &[Verb::Read, Verb::Write, Verb::List]),
        ("a token that may do nothing", "team-b", &[]),
        ("a token that may only delete", "*", &[Verb::Delete]),
        ("a token that may only append elsewhere", "team-a", &[Verb::Append]),
        ("a token that administers one namespace", "team-a", &[Verb::Admin]),
    ] {
        let (token, rule) = token(name, &[namespaces], &[], verbs);
        policy.add(&rule).unwrap();
        callers.push((name, Some(token), true));
    }
    callers
}

/// Ways to write a URL of team-b's so that somebody might be mistaken; the first is the plain one.
fn spellings(url: &str) -> Vec<String> {
    let (path, query) = url.split_once('?').unwrap_or((url, "namespace=team-b"));
    let with = |namespace: &str| format!("{path}?{}", query.replace("namespace=team-b", namespace));
    let mut all = vec![url.to_owned()];
    all.extend(
        [
            "namespace=team%2Db",
            "namespace=team%2db&namespace=team-a",
            "namespace=&namespace=team-b",
            "namespace=team-a&namespace=team-b",
            "namespace=team-b&namespace=team-a",
            "namespace=team-a%26namespace=team-b",
            "namespace=team-a;namespace=team-b",
            "namespace=team-b%00",
            "namespace=team-b%20",
            "namespace=+team-b",
            "namespace=team-b.",
            "namespace=TEAM-B",
            "namespace=team%252Db",
            "namespace=%EF%BD%94eam-b",
            "namespace=team-b%CC%81",
            "namespace=team-b%C0%AF",
            "namespace=team-b/",
            "namespace=/team-b",
            "namespace=./team-b",
            "namespace=team-a/../team-b",
            "namespace=team-a%2F..%2Fteam-b",
            "namespace=team-a%5C..%5Cteam-b",
            "namespace=..%2Flayers%2Fteam-b",
            "namespace=%252e%252e",
            "namespace=team-a%252f..%252fteam-b",
            "Namespace=team-b",
            "namespace[]=team-b",
            "namespace[0]=team-b",
            "%6Eamespace=team-b",
            "namespace=team-a&layer=..%2Fteam-b%2Fnetwork",
            "namespace=team-a&layer=../team-b/network",
            "namespace=team-a&layer=..&layer=network",
            "namespace=team-a&layer=%252e%252e",
            "namespace=team-a&layer=%252e%252e%252fteam-b%252fnetwork",
            "namespace=team-a&run=..%2F..%2Fteam-b%2Fnetwork%2Fplan-1",
            "namespace=team-a&run=%252e%252e&run=plan-1",
            "namespace=team-a&attempt=..%2F..%2F..%2Fteam-b%2Fnetwork%2Fplan-1%2F0",
            "namespace=team-a&name=..%2F..%2F..%2F..%2Fteam-b%2Fnetwork%2Fplan-1%2F0%2Frun.json",
            "namespace=team-a&name=..%2Fteam-b%2Finfra",
            "namespace=team-a&ref=..%2F..%2F..%2Fteam-b%2Finfra%2Fmain",
            "namespace=team-a&ref=%252e%252e%2F%252e%252e%2Fteam-b%2Finfra%2Fmain",
            "namespace=team-a&ref=..&revision=..%2F..%2Fteam-b%2Finfra%2Fmain%2Fabc",
            "namespace=team-a&format=..%2F..%2F..%2F..%2Fteam-b%2Fnetwork%2Fplan-1%2F0%2Fplan",
            "namespace=team-a&cursor=..%2F..%2Fteam-b%2Fnetwork%2F",
            "namespace=team-a&layer=..%2F..%2F..%2F.plancha%2Fruns%2Fteam-b%2Fnetwork",
        ]
        .map(with),
    );
    all
}

fn twisted(request: RequestBuilder, twist: usize, tag: &str) -> RequestBuilder {
    match twist % 6 {
        0 => request,
        1 => request.header("if-none-match", tag),
        2 => request.header("range", "bytes=0-3").header("if-match", tag),
        3 => request.header("x-http-method-override", "GET").header("x-forwarded-user", "team-b"),
        4 => request.header("x-request-id", "team-b/network").header("if-range", tag),
        _ => request
            .header("x-original-url", "/api/plans?namespace=team-b")
            .header("content-type", "application/x-www-form-urlencoded"),
    }
}

/// Everything that is stored, but for what is in namespaces that the callers live in.
fn stored_elsewhere(datastore: &TestDatastore) -> BTreeSet<(PathBuf, Vec<u8>)> {
    let theirs = ["team-b-2", "my-team-b", "team", "TEAM-B", "burrito-system-2"];
    let all = files(&datastore.root()).into_iter().filter(|path| {
        // One of them has every namespace that begins so.
        let at_home = |part: std::path::Component| {
            let part = part.as_os_str().to_string_lossy();
            part.starts_with("team-a") || theirs.contains(&&*part)
        };
        !path.starts_with(".plancha/probe") && !path.components().take(5).any(at_home)
    });
    all.map(|path| (path.clone(), std::fs::read(datastore.root().join(path)).unwrap())).collect()
}

/// The statuses with which a stranger's request to a plainly spelled URL may be refused.
fn refusals(
    operations: &[Operation],
    url: &str,
    method: &Method,
    is_known: bool,
) -> &'static [u16] {
    let is_url = |one: &&Operation| one.url == *url;
    let is_there = operations.iter().filter(is_url).any(|one| one.is(method));
    // The query may be that of another method of this path.
    let path = &operations.iter().find(is_url).unwrap().path;
    let takes_another = operations.iter().any(|one| one.path == *path && one.is(method));
    match (is_known, is_there) {
        (false, _) => &[401],
        (true, true) => &[403],
        (true, false) if takes_another => &[400, 403],
        (true, false) => &[404],
    }
}

/// Routes without authentication contain no names.
async fn assert_public_routes_contain_no_names(datastore: &TestDatastore) {
    for path in ["metrics", "readyz", "healthz", "api/openapi.json"] {
        let reported = send(CLIENT.get(datastore.url.join(path).unwrap())).await.text();
        for name in ["team-a", "team-b", "plan-1", "hidden-run", "infra", "S3CRET"] {
            assert!(!reported.contains(name), "{path} names {name}: {reported}");
        }
    }
}

/// Odd verbs are refused by their name. Each other spelling is read, and tried with one of the other verbs.
fn verbs(twist: usize) -> Vec<&'static str> {
    let methods = ["GET", "HEAD", "PUT", "POST", "DELETE", "PATCH", "OPTIONS", "TRACE", "LINK"];
    if twist == 0 { methods.to_vec() } else { vec![methods[0], methods[1 + twist % 3]] }
}

#[tokio::test(flavor = "multi_thread")]
async fn ds27_no_route_verb_spelling_or_header_reaches_another_tenant() {
    let kube = FakeTokenReviews::start().await;
    kube.account("team-b/runner", B);
    kube.account("burrito-system/burrito-controllers", CONTROLLERS);
    let mut policy = Policy::default();
    let callers = strangers(&kube, &mut policy);
    let auth =
        Callers { tokens: true, kubernetes: Some(kubernetes(&kube)), policy, ..Callers::default() };
    let datastore = TestDatastore::guarded(Auth::Callers(Box::new(auth))).await;
    let operations = operations(&datastore).await;
    let kept = fill(&datastore, &operations).await;
    for (url, _) in &kept {
        // Read by its owner, so that whatever could be kept somewhere on the way is.
        assert_eq!(status(&datastore, Method::GET, url, B).await, 200);
    }
    let hidden = kept[0].0.replace("plan-1", "hidden-run");
    assert_eq!(status(&datastore, Method::PUT, &hidden, B).await, 200);
    let tags = kept.iter().map(|(_, secret)| etag(secret.as_bytes())).collect::<Vec<_>>();
    let before = stored_elsewhere(&datastore);

    // One that keeps its connections: there are many requests.
    let client = reqwest::Client::new();
    let mut tried = 0;
    for (caller, token, is_known) in &callers {
        for url in &urls(&operations) {
            let tag = kept.iter().position(|(of, _)| of == url).map_or("*", |at| &*tags[at]);
            let mut requests = Vec::new();
            for (twist, spelling) in spellings(url).into_iter().enumerate() {
                for method in verbs(twist) {
                    let method = Method::from_bytes(method.as_bytes()).unwrap();
                    let url = format!("{}api/{spelling}", datastore.url);
                    let mut request = client.request(method.clone(), url);
                    if let Some(token) = token {
                        request = request.header("authorization", token);
                    }
                    // A condition could keep a PUT from being seen that should not have been let in.
                    let request = match method {
                        Method::GET | Method::HEAD => twisted(request, twist, tag),
                        _ => request.body("overwritten"),
                    };
                    requests.push(async move { (twist, method, send(request).await) });
                }
            }
            tried += requests.len();
            for (twist, method, answer) in join_all(requests).await {
                no_leak(caller, url, &method, &answer, &tags);
                if twist == 0 {
                    let refused = refusals(&operations, url, &method, *is_known);
                    assert!(
                        refused.contains(&answer.status),
                        "{caller}: {method} {url}: {answer:?}"
                    );
                }
            }
        }
    }
    println!("{tried} requests by {} callers", callers.len());
    assert_eq!(stored_elsewhere(&datastore), before, "something was written");
    for (url, secret) in &kept {
        let answer = asked(&datastore, Method::GET, url, B).await;
        assert!(answer.text().contains(secret), "{url}");
    }
    assert_public_routes_contain_no_names(&datastore).await;
}

fn no_leak(caller: &str, url: &str, method: &Method, answer: &Answer, tags: &[String]) {
    let shown = format!("{caller}: {method} {url}: {answer:?}");
    let text = String::from_utf8_lossy(&answer.body);
    assert!(!text.contains("S3CRET"), "{shown}");
    assert!(!text.contains("hidden-run"), "{shown}");
    let head = format!("{:?}", answer.headers);
    assert!(!tags.iter().any(|tag| head.contains(tag.trim_matches('"'))), "{shown}");
    // In its own namespace a caller may write and look for what is not there.
    let fine = [200, 206, 400, 401, 403, 404, 409, 412, 416, 422];
    assert!(fine.contains(&answer.status), "{shown}");
    let own = ["overwritten", "over", "{\"results\":[\"overwritten\"]}\n", ""].contains(&&*text);
    let listings = [
        "{\"runs\":[",
        "{\"attempts\":[",
        "{\"statuses\":[",
        "{\"layers\":[",
        "{\"approvals\":[",
        "{\"approval\":",
        "{\"approved_by\":\"",
        "# HELP plancha_",
    ];
    let listed = listings.iter().any(|listing| text.starts_with(listing));
    assert!(answer.status != 200 || own || listed, "{shown}");
}
