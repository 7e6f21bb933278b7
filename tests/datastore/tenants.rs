//! That nobody gets at what is another tenant's: DS27 for every route of the document, every verb, every
//! kind of caller, every spelling that somebody has thought of, and many that nobody has.

use std::collections::BTreeSet;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::PathBuf;

use datastore::{Auth, Callers, Policy, Verb};
use datastore_api::Sha256;
use futures::future::join_all;
use reqwest::{Method, RequestBuilder};
use serde_json::Value;
use support::{FakeKube, TestDatastore};

use crate::auth::{A, B, CONTROLLERS, asked, guarded, kubernetes, status, token};
use crate::http::{Answer, CLIENT, etag, files, get, request, send};

/// A route and a method that somebody may ask for, with the names of team-b.
pub(crate) struct Operation {
    pub(crate) method: Method,
    /// As in the document.
    pub(crate) path: String,
    /// Below `/api/`.
    url: String,
}

impl Operation {
    /// Below `/api/`, with a query.
    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    fn is(&self, method: &Method) -> bool {
        self.method == *method || self.method == Method::GET && *method == Method::HEAD
    }
}

/// Every operation below `/api` that the document has, which has all that there are: so a new one is
/// tried, and one with a new parameter fails here until this says what a stranger would ask for.
pub(crate) async fn operations(datastore: &TestDatastore) -> Vec<Operation> {
    let document = get(datastore, "openapi.json").await.json();
    let mut all = Vec::new();
    for (path, methods) in document["paths"].as_object().unwrap() {
        let Some(rest) = path.strip_prefix("/api/").filter(|rest| *rest != "openapi.json") else {
            continue;
        };
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
            (_, "run") => &["plan-1"],
            (_, "attempt") => &["0"],
            ("/api/plans", "format") => &["json", "pretty", "short", "bin"],
            ("/api/artifacts", "name") => &["run.json"],
            ("/api/repository/revision/bundle", "name") => &["infra"],
            ("/api/attempts", "claim") => &["claim-1"],
            ("/api/applied", "plan") => {
                &["e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"]
            }
            (_, "ref") => &["main"],
            (_, "revision") => &["abc"],
            ("/api/runs", "limit") => &["5"],
            ("/api/runs", "cursor") => &[""],
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
async fn fill(datastore: &TestDatastore, operations: &[Operation]) -> Vec<(String, String)> {
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
fn strangers(kube: &FakeKube, policy: &mut Policy) -> Vec<(&'static str, Option<String>, bool)> {
    let unknown = [
        ("an empty token", ""),
        ("rubbish", "rubbish"),
        ("the name of an account", "system:serviceaccount:team-b:runner"),
        ("another's token, cut", &B[..B.len() - 1]),
        ("another's token, and more", "token of team-b/runner2"),
        ("another's token in capitals", "TOKEN OF TEAM-B/RUNNER"),
        ("another's token twice", "token of team-b/runner,token of team-b/runner"),
    ];
    let mut callers = vec![("nobody", None, false)];
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
        ("a token that may only append and delete", "*", &[Verb::Append, Verb::Delete]),
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

#[tokio::test(flavor = "multi_thread")]
async fn ds27_nobody_gets_at_anothers_by_any_route_verb_spelling_or_header() {
    let kube = FakeKube::start().await;
    kube.account("team-b/runner", B);
    kube.account("burrito-system/burrito-controllers", CONTROLLERS);
    let mut policy = Policy::default();
    let callers = strangers(&kube, &mut policy);
    let auth = Callers { tokens: true, kubernetes: Some(kubernetes(&kube)), policy };
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
    let methods = ["GET", "HEAD", "PUT", "POST", "DELETE", "PATCH", "OPTIONS", "TRACE", "LINK"];

    // One that keeps its connections: there are many requests.
    let client = reqwest::Client::new();
    let mut tried = 0;
    for (caller, token, is_known) in &callers {
        for url in &urls(&operations) {
            let of_url = operations.iter().filter(|one| one.url == *url).collect::<Vec<_>>();
            let tag = kept.iter().position(|(of, _)| of == url).map_or("*", |at| &*tags[at]);
            let mut requests = Vec::new();
            for (twist, spelling) in spellings(url).into_iter().enumerate() {
                // Odd verbs are refused by their name, whatever is asked for.
                let verbs = if twist == 0 { &methods[..] } else { &methods[..4] };
                for method in verbs {
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
                    let is_there = of_url.iter().any(|one| one.is(&method));
                    // The query may be that of another method of this path.
                    let path = &of_url[0].path;
                    let takes_another =
                        operations.iter().any(|one| one.path == *path && one.is(&method));
                    let refused: &[u16] = match (is_known, is_there) {
                        (false, _) => &[401],
                        (true, true) => &[403],
                        (true, false) if takes_another => &[400, 403],
                        (true, false) => &[404],
                    };
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
    // What anybody may ask for names nobody.
    for path in ["metrics", "readyz", "healthz", "api/openapi.json"] {
        let told = send(CLIENT.get(datastore.url.join(path).unwrap())).await.text();
        for name in ["team-a", "team-b", "plan-1", "hidden-run", "infra", "S3CRET"] {
            assert!(!told.contains(name), "{path} tells of {name}: {told}");
        }
    }
}

fn no_leak(caller: &str, url: &str, method: &Method, answer: &Answer, tags: &[String]) {
    let shown = format!("{caller}: {method} {url}: {answer:?}");
    let text = String::from_utf8_lossy(&answer.body);
    assert!(!text.contains("S3CRET"), "{shown}");
    assert!(!text.contains("hidden-run"), "{shown}");
    let head = format!("{:?}", answer.headers);
    assert!(!tags.iter().any(|tag| head.contains(tag.trim_matches('"'))), "{shown}");
    // In its own namespace a caller may write and look for what is not there.
    let fine = [200, 206, 400, 401, 403, 404, 412, 416];
    assert!(fine.contains(&answer.status), "{shown}");
    let own = ["overwritten", "over", "{\"results\":[\"overwritten\"]}\n", ""].contains(&&*text);
    let listed = text.starts_with("{\"runs\":[") || text.starts_with("{\"attempts\":[");
    assert!(answer.status != 200 || own || listed, "{shown}");
}

/// What is answered to bytes on a connection of their own.
fn on_the_wire(datastore: &TestDatastore, bytes: &str) -> String {
    let mut socket = TcpStream::connect(datastore.url.socket_addrs(|| None).unwrap()[0]).unwrap();
    socket.set_read_timeout(Some(std::time::Duration::from_secs(10))).unwrap();
    socket.write_all(bytes.as_bytes()).unwrap();
    let mut answer = Vec::new();
    let _reset = socket.read_to_end(&mut answer);
    String::from_utf8_lossy(&answer).into_owned()
}

/// A client tidies a path before it sends it, so these are sent as they stand.
#[tokio::test(flavor = "multi_thread")]
async fn ds27_no_spelling_of_a_path_gets_past_the_door() {
    let (datastore, _kube) = guarded().await;
    let kept = fill(&datastore, &operations(&datastore).await).await;
    for (url, secret) in &kept {
        let (path, query) = url.split_once('?').unwrap();
        let paths = [
            format!("/api/{path}"),
            format!("//api/{path}"),
            format!("/api//{path}"),
            format!("/api/{path}/"),
            format!("/api/./{path}"),
            format!("/api/x/../{path}"),
            format!("/api/%2e%2e/api/{path}"),
            format!("/healthz/../api/{path}"),
            format!("/healthz/..%2Fapi/{path}"),
            format!("/metrics/%2e%2e/api/{path}"),
            format!("/%61pi/{path}"),
            format!("/API/{path}"),
            format!("/api/openapi.json/../{path}"),
            format!("/api/openapi.json/{path}"),
            format!("/api/{path};x"),
            format!("/api/{path}%00"),
            format!("http://127.0.0.1/api/{path}"),
            format!("http://team-b@healthz/api/{path}"),
        ];
        for path in paths {
            let target = format!("{path}?{query}");
            for (token, fine) in [("", [401, 404, 400]), (A, [403, 404, 400])] {
                let token = if token.is_empty() {
                    String::new()
                } else {
                    format!("authorization: {token}\r\n")
                };
                for method in ["GET", "HEAD", "PUT"] {
                    let answer = on_the_wire(
                        &datastore,
                        &format!(
                            "{method} {target} HTTP/1.1\r\nhost: x\r\n{token}content-length: 0\r\nconnection: close\r\n\r\n"
                        ),
                    );
                    let status = answer.get(9..12).and_then(|text| text.parse().ok());
                    assert!(
                        status.is_some_and(|one| fine.contains(&one)),
                        "{method} {target}: {answer}"
                    );
                    assert!(!answer.contains(secret), "{method} {target}: {answer}");
                }
            }
        }
        assert!(asked(&datastore, Method::GET, url, B).await.text().contains(secret), "{url}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn ds27_a_connection_remembers_nobody() {
    let (datastore, _kube) = guarded().await;
    let kept = fill(&datastore, &operations(&datastore).await).await;
    let url = &kept[0].0;
    let get = |more: &str| format!("GET /api/{url} HTTP/1.1\r\nhost: x\r\n{more}\r\n");
    let by = |token: &str| get(&format!("authorization: {token}\r\n"));
    let all =
        [by(B), get(""), by(B), by(A), by(B), by("rubbish"), by(B), get("connection: close\r\n")];
    let answers = on_the_wire(&datastore, &all.concat());
    let statuses = answers.split("HTTP/1.1 ").skip(1).map(|answer| &answer[..3]);
    assert_eq!(
        statuses.collect::<Vec<_>>(),
        ["200", "401", "200", "403", "200", "401", "200", "401"],
        "{answers}"
    );
    assert_eq!(answers.matches("S3CRET").count(), 4, "{answers}");
    // Two that disagree are nobody.
    for pair in [[A, B], [B, A], [B, B]] {
        let more = pair.map(|token| format!("authorization: {token}\r\n")).concat();
        let answer = on_the_wire(&datastore, &get(&format!("{more}connection: close\r\n")));
        assert!(answer.starts_with("HTTP/1.1 401"), "{answer}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn ds27_a_refusal_does_not_tell_what_is_there() {
    let (datastore, _kube) = guarded().await;
    let operations = operations(&datastore).await;
    let kept = fill(&datastore, &operations).await;
    for operation in operations.iter().filter(|one| one.url.contains('?')) {
        let mut methods = vec![operation.method.clone()];
        if operation.method == Method::GET {
            methods.push(Method::HEAD);
        }
        let nowhere = operation.url.replace("plan-1", "plan-2").replace("infra", "infra-2");
        let nowhere = nowhere.replace("network", "network-2");
        let secret = kept.iter().find(|(url, _)| *url == operation.url);
        let secret = secret.map_or("", |(_, secret)| secret).as_bytes();
        let tag = etag(secret);
        let digest = Sha256::of(secret).to_repr_digest();
        for method in methods {
            let mut told = BTreeSet::new();
            for url in [&operation.url, &nowhere] {
                for (name, value) in [
                    ("x-none", ""),
                    ("if-none-match", &*tag),
                    ("if-none-match", "*"),
                    ("if-match", &tag),
                    ("if-match", "\"other\""),
                    ("range", "bytes=0-1"),
                    ("range", "bytes=9999-"),
                    ("repr-digest", &digest),
                    ("repr-digest", "sha-256=:AAAA:"),
                ] {
                    let asking = request(&datastore, method.clone(), url);
                    let asking = asking.header("authorization", A).header(name, value);
                    let mut answer = send(asking).await;
                    answer.headers.remove("x-request-id");
                    answer.headers.remove("date");
                    told.insert(format!(
                        "{} {:?} {:?}",
                        answer.status, answer.headers, answer.body
                    ));
                }
            }
            assert_eq!(told.len(), 1, "{method} {}: {told:?}", operation.url);
            assert!(told.iter().all(|told| told.starts_with("403 ")), "{told:?}");
        }
    }
}

#[tokio::test]
async fn ds27_an_account_has_its_own_namespace_and_the_controllers_have_all() {
    let (datastore, _kube) = guarded().await;
    let mut operations = operations(&datastore).await;
    // What is written comes first.
    operations.sort_by_key(|operation| operation.method != Method::PUT);
    for Operation { method, path, url } in &operations {
        let is_bundle = path == "/api/repository/revision/bundle";
        let at_home = match (path.as_str(), is_bundle && *method == Method::PUT) {
            ("/api/encrypt", _) | (_, true) => 403,
            _ => 200,
        };
        let everywhere = if path == "/api/encrypt" { 400 } else { 200 };
        let of =
            async |method: &Method, token| status(&datastore, method.clone(), url, token).await;
        assert_eq!(of(method, CONTROLLERS).await, everywhere, "{method} {url}");
        assert_eq!(of(method, B).await, at_home, "{method} {url}");
        assert_eq!(of(method, A).await, 403, "{method} {url}");
        if *method == Method::GET {
            assert_eq!(of(&Method::HEAD, B).await, 200, "{url}");
            assert_eq!(of(&Method::HEAD, A).await, 403, "{url}");
        }
    }
    let refusal = async |path: &str| {
        let operation = operations.iter().find(|one| one.path == path).unwrap();
        asked(&datastore, Method::GET, &operation.url, A).await.refusal()
    };
    insta::assert_snapshot!(refusal("/api/plans").await, @"403 text/plain; charset=UTF-8 serviceaccount team-a/runner may not read `json` in the namespace `team-b`; a rule in the datastore's policy (PLANCHA_POLICY) can allow it");
    insta::assert_snapshot!(refusal("/api/attempts").await, @r#"403 application/problem+json {"type":"about:blank","title":"Forbidden","status":403,"detail":"serviceaccount team-a/runner may not list runs and attempts in the namespace `team-b`; a rule in the datastore's policy (PLANCHA_POLICY) can allow it"}"#);
}

/// Kind and verb that an operation needs; no kind for a listing, nothing for what needs everything.
fn needs(operation: &Operation) -> Option<(Option<&'static str>, Verb)> {
    let verb = if operation.method == Method::PUT { Verb::Write } else { Verb::Read };
    let format = |name: &str| operation.url.contains(&format!("format={name}"));
    Some(match operation.path.as_str() {
        "/api/plans" => {
            (["bin", "json", "pretty", "short"].into_iter().find(|name| format(name)), verb)
        }
        "/api/logs" => (Some("log"), verb),
        "/api/artifacts" => (Some("artifact"), verb),
        "/api/repository/revision/bundle" => (Some("bundle"), verb),
        "/api/attempts" if operation.method == Method::POST => (Some("artifact"), Verb::Write),
        "/api/applied" => (Some("artifact"), verb),
        "/api/attempts" | "/api/runs" => (None, Verb::List),
        "/api/encrypt" => return None,
        other => panic!("what does {other} need?"),
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn ds27_a_rule_for_one_kind_and_one_verb_opens_that_and_nothing_else() {
    let kinds = ["plan", "bin", "json", "pretty", "short", "log", "bundle", "artifact"];
    let verbs = [Verb::Read, Verb::Write, Verb::Append, Verb::List, Verb::Delete, Verb::Admin];
    let mut policy = Policy::default();
    let mut callers = Vec::new();
    for kind in kinds {
        for verb in verbs {
            let (token, rule) = token(&format!("{kind} {verb:?}"), &["team-b"], &[kind], &[verb]);
            policy.add(&rule).unwrap();
            callers.push((kind, verb, token));
        }
    }
    let (everything, rule) = token("everything", &["*"], &[], &verbs);
    policy.add(&rule).unwrap();
    let callers_of = Callers { tokens: true, policy, ..Callers::default() };
    let datastore = TestDatastore::guarded(Auth::Callers(Box::new(callers_of))).await;
    let operations = operations(&datastore).await;
    for operation in operations.iter().filter(|one| one.method == Method::PUT) {
        assert_eq!(status(&datastore, Method::PUT, &operation.url, &everything).await, 200);
    }
    for (kind, verb, token) in &callers {
        for operation in &operations {
            let Operation { method, url, .. } = operation;
            let may = needs(operation).is_some_and(|(of_kind, needed)| {
                let is_plan = matches!(of_kind, Some("bin" | "json" | "pretty" | "short"));
                let fits = match of_kind {
                    None => *kind != "bundle",
                    Some(of) => of == *kind || *kind == "plan" && is_plan,
                };
                needed == *verb && fits
            });
            let expected = if may { 200 } else { 403 };
            let told = status(&datastore, method.clone(), url, token).await;
            assert_eq!(told, expected, "{kind} {verb:?}: {method} {url}");
            let elsewhere = url.replace("team-b", "team-c");
            let told = status(&datastore, method.clone(), &elsewhere, token).await;
            assert_eq!(told, 403, "{kind} {verb:?}: {method} {elsewhere}");
        }
    }
}
