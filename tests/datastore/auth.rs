//! Who is let in, and that nobody gets at what is another tenant's.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use datastore::{Auth, Callers, Isolation, Kubernetes, NewToken, Policy, Verb};
use futures::future::join_all;
use proptest::prelude::*;
use proptest::strategy::ValueTree as _;
use proptest::test_runner::TestRunner;
use reqwest::{Method, RequestBuilder};
use secrecy::ExposeSecret as _;
use support::{FakeKube, KubeFault, TestDatastore};

use crate::http::{Answer, CLIENT, RUN, etag, files, get, request, send};

const BUNDLE: &str = "repository/revision/bundle?namespace=team-a&name=infra&ref=main&revision=abc";

fn kubernetes(kube: &FakeKube) -> Kubernetes {
    Kubernetes {
        api: kube.api(),
        allowed: None,
        main_namespace: Some("burrito-system".to_owned()),
        isolation: Isolation::Namespace,
    }
}

fn by(kubernetes: Kubernetes) -> Auth {
    let kubernetes = Some(kubernetes);
    Auth::Callers(Box::new(Callers { kubernetes, ..Callers::default() }))
}

/// A datastore that tells `ServiceAccounts` apart, and who is known to it.
async fn guarded() -> (TestDatastore, FakeKube) {
    let kube = FakeKube::start().await;
    for account in ["team-a/runner", "team-b/runner", "burrito-system/burrito-controllers"] {
        kube.account(account, &format!("token of {account}"));
    }
    (TestDatastore::guarded(by(kubernetes(&kube))).await, kube)
}

const A: &str = "token of team-a/runner";
const B: &str = "token of team-b/runner";
const CONTROLLERS: &str = "token of burrito-system/burrito-controllers";

async fn asked(datastore: &TestDatastore, method: Method, rest: &str, token: &str) -> Answer {
    send(request(datastore, method, rest).header("authorization", token).body("body")).await
}

async fn status(datastore: &TestDatastore, method: Method, rest: &str, token: &str) -> u16 {
    asked(datastore, method, rest, token).await.status
}

fn plan(format: &str) -> String {
    format!("plans?{RUN}&attempt=0&format={format}")
}

#[tokio::test]
async fn ds01_health_is_told_without_a_token() {
    let (datastore, kube) = guarded().await;
    for path in ["healthz", "readyz"] {
        let answer = send(CLIENT.get(datastore.url.join(path).unwrap())).await;
        assert_eq!((answer.status, answer.text().as_str()), (200, "OK"));
    }
    assert!(kube.reviews().is_empty());
}

#[tokio::test]
async fn ds02_ds05_who_cannot_be_told_is_refused_in_upstreams_words() {
    let (datastore, kube) = guarded().await;
    kube.user("admin", "burrito", "of a user");
    kube.user("system:serviceaccount:team-a:runner", "kubernetes", "for another audience");
    let refusal =
        async |token| asked(&datastore, Method::GET, &plan("json"), token).await.refusal();
    let none = get(&datastore, &plan("json")).await;
    insta::assert_snapshot!(none.refusal(), @r#"401 application/json {"message":"missing Authorization header"}"#);
    assert!(none.text().ends_with("}\n"));
    insta::assert_snapshot!(refusal("").await, @r#"401 application/json {"message":"missing Authorization header"}"#);
    insta::assert_snapshot!(refusal("rubbish").await, @r#"401 application/json {"message":"invalid token"}"#);
    insta::assert_snapshot!(refusal("for another audience").await, @r#"401 application/json {"message":"invalid token"}"#);
    insta::assert_snapshot!(refusal("of a user").await, @r#"401 application/json {"message":"unauthorized user"}"#);
    kube.fault(Some(KubeFault::Status(500)));
    insta::assert_snapshot!(refusal("not seen before").await, @r#"500 application/json {"message":"error validating token"}"#);
    kube.fault(Some(KubeFault::Status(403)));
    insta::assert_snapshot!(refusal("nor this").await, @r#"500 application/json {"message":"error validating token"}"#);
    let head = asked(&datastore, Method::HEAD, BUNDLE, "rubbish").await;
    assert_eq!((head.status, head.body.len()), (401, 0));
}

#[tokio::test]
async fn ds03_a_token_is_taken_raw_and_after_bearer() {
    let (datastore, _kube) = guarded().await;
    for token in [A.to_owned(), format!("Bearer {A}"), format!("bearer {A}")] {
        assert_eq!(status(&datastore, Method::GET, &plan("json"), &token).await, 404);
    }
    let twice = request(&datastore, Method::GET, &plan("json")).header("authorization", A);
    assert_eq!(send(twice.header("authorization", A)).await.status, 401);
}

#[tokio::test]
async fn ds04_a_review_is_for_our_audience_and_asked_for_once() {
    let (datastore, kube) = guarded().await;
    for _ in 0..3 {
        assert_eq!(status(&datastore, Method::GET, &plan("json"), A).await, 404);
    }
    let reviews = kube.reviews();
    assert_eq!(reviews.len(), 1);
    assert_eq!(reviews[0]["spec"]["token"], A);
    assert_eq!(reviews[0]["spec"]["audiences"], serde_json::json!(["burrito"]));
    for _ in 0..3 {
        assert_eq!(status(&datastore, Method::GET, &plan("json"), "rubbish").await, 401);
    }
    assert_eq!(kube.reviews().len(), 2);
}

#[tokio::test]
async fn an_api_that_knows_no_audience_lets_nobody_in() {
    let (datastore, kube) = guarded().await;
    kube.fault(Some(KubeFault::KnowsNoAudience));
    assert_eq!(status(&datastore, Method::GET, &plan("json"), A).await, 401);
}

#[tokio::test]
async fn a_token_is_forgotten_when_it_ends() {
    let (datastore, kube) = guarded().await;
    let exp = jiff::Timestamp::now().as_second() + 1;
    let claims = serde_json::json!({ "exp": exp }).to_string();
    let claims = base64::Engine::encode(&base64::prelude::BASE64_URL_SAFE_NO_PAD, claims);
    let token = format!("e30.{claims}.c2ln");
    kube.account("team-a/runner", &token);
    assert_eq!(status(&datastore, Method::GET, &plan("json"), &token).await, 404);
    kube.revoke(&token);
    let since = Instant::now();
    while status(&datastore, Method::GET, &plan("json"), &token).await != 401 {
        assert!(since.elapsed() < Duration::from_secs(5), "it is still let in");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test]
async fn ds05_the_list_of_accounts_lets_in_nobody_else() {
    let kube = FakeKube::start().await;
    for account in ["team-a/runner", "team-a/other", "burrito-system/burrito-server"] {
        kube.account(account, account);
    }
    let allowed = ["team-a/runner"].map(|account| account.parse().unwrap()).to_vec();
    let allowed = Kubernetes { allowed: Some(allowed), ..kubernetes(&kube) };
    let datastore = TestDatastore::guarded(by(allowed)).await;
    assert_eq!(status(&datastore, Method::GET, &plan("json"), "team-a/runner").await, 404);
    for unlisted in ["team-a/other", "burrito-system/burrito-server"] {
        let answer = asked(&datastore, Method::GET, &plan("json"), unlisted).await;
        assert_eq!(
            (answer.status, answer.text().as_str()),
            (401, "{\"message\":\"unauthorized user\"}\n")
        );
    }
}

#[tokio::test]
async fn ds17_paths_that_nobody_knows_are_refused_first_and_then_not_found() {
    let (datastore, _kube) = guarded().await;
    for (method, rest) in [
        (Method::DELETE, plan("json")),
        (Method::POST, plan("json")),
        (Method::GET, "x".to_owned()),
        (Method::GET, "plans/".to_owned()),
        (Method::PATCH, "x/y".to_owned()),
    ] {
        let without = send(request(&datastore, method.clone(), &rest)).await;
        assert_eq!(
            (without.status, without.text().as_str()),
            (401, "{\"message\":\"missing Authorization header\"}\n"),
            "{method} {rest}"
        );
        for token in [A, CONTROLLERS] {
            let with = asked(&datastore, method.clone(), &rest, token).await;
            let told = (with.status, with.text());
            assert_eq!(told, (404, "{\"message\":\"Not Found\"}\n".to_owned()), "{method} {rest}");
        }
    }
}

#[tokio::test]
async fn ds27_an_account_has_its_own_namespace_and_the_controllers_have_all() {
    let (datastore, _kube) = guarded().await;
    let log = format!("logs?{RUN}&attempt=0");
    let artifact = format!("artifacts?{RUN}&attempt=0&name=run.json");
    let attempts = format!("attempts?{RUN}");
    let mut all = ["json", "pretty", "short", "bin"].map(plan).to_vec();
    all.extend([log, artifact]);
    for rest in &all {
        assert_eq!(status(&datastore, Method::PUT, rest, B).await, 403, "{rest}");
        assert_eq!(status(&datastore, Method::PUT, rest, A).await, 200, "{rest}");
    }
    assert_eq!(status(&datastore, Method::PUT, BUNDLE, A).await, 403, "its own bundle");
    assert_eq!(status(&datastore, Method::PUT, BUNDLE, CONTROLLERS).await, 200);
    all.extend([BUNDLE.to_owned(), attempts, "runs?namespace=team-a&layer=network".to_owned()]);
    for rest in &all {
        for method in [Method::GET, Method::HEAD] {
            assert_eq!(status(&datastore, method.clone(), rest, A).await, 200, "{rest}");
            assert_eq!(status(&datastore, method.clone(), rest, CONTROLLERS).await, 200, "{rest}");
            assert_eq!(status(&datastore, method.clone(), rest, B).await, 403, "{rest}");
        }
    }
    insta::assert_snapshot!(asked(&datastore, Method::GET, &plan("json"), B).await.refusal(), @"403 text/plain; charset=UTF-8 this caller may not do that in this namespace");
    let attempts = asked(&datastore, Method::GET, &format!("attempts?{RUN}"), B).await;
    insta::assert_snapshot!(attempts.refusal(), @r#"403 application/problem+json {"type":"about:blank","title":"Forbidden","status":403,"detail":"this caller may not do that in this namespace"}"#);
}

#[tokio::test]
async fn upstreams_rule_is_one_for_all_who_are_listed() {
    let kube = FakeKube::start().await;
    kube.account("team-a/runner", A);
    kube.account("team-b/runner", B);
    kube.account("team-c/runner", "c");
    let allowed = ["team-a/runner", "team-b/runner"].map(|one| one.parse().unwrap()).to_vec();
    let (allowed, isolation) = (Some(allowed), Isolation::Burrito);
    let rule = Kubernetes { allowed, isolation, ..kubernetes(&kube) };
    let datastore = TestDatastore::guarded(by(rule)).await;
    assert_eq!(status(&datastore, Method::PUT, BUNDLE, B).await, 200);
    assert_eq!(status(&datastore, Method::PUT, &plan("bin"), B).await, 200);
    assert_eq!(status(&datastore, Method::GET, &plan("bin"), A).await, 200);
    assert_eq!(status(&datastore, Method::GET, &plan("bin"), "c").await, 401);
}

/// A token and the rule that it is known by.
fn token(id: &str, namespaces: &[&str], kinds: &[&str], verbs: &[Verb]) -> (String, String) {
    let new = NewToken {
        id: id.to_owned(),
        namespaces: namespaces.iter().map(|text| (*text).to_owned()).collect(),
        kinds: kinds.iter().map(|text| text.parse().unwrap()).collect(),
        verbs: verbs.to_vec(),
    };
    let (token, rule) = new.make().unwrap();
    (token.expose_secret().to_owned(), rule)
}

#[tokio::test]
async fn a_token_may_do_what_its_rules_say_and_nothing_else() {
    let (reader, first) = token("reader", &["team-*"], &["plan"], &[Verb::Read]);
    let (writer, second) = token("writer", &["team-a"], &[], &[Verb::Write, Verb::List]);
    let (stranger, _) = token("reader", &["*"], &[], &[Verb::Read]);
    let mut policy = Policy::default();
    policy.add(&first).unwrap();
    policy.add(&second).unwrap();
    policy
        .add("rules: [{who: {token: reader}, namespaces: [team-a], kinds: [log], verbs: [read]}]")
        .unwrap();
    let callers = Callers { tokens: true, policy, ..Callers::default() };
    let datastore = TestDatastore::guarded(Auth::Callers(Box::new(callers))).await;
    let log = format!("logs?{RUN}&attempt=0");
    let of = async |method, rest: &str, token: &str| status(&datastore, method, rest, token).await;
    assert_eq!(of(Method::PUT, &plan("bin"), &writer).await, 200);
    assert_eq!(of(Method::PUT, BUNDLE, &writer).await, 200);
    assert_eq!(of(Method::PUT, &log, &writer).await, 200);
    assert_eq!(of(Method::GET, &format!("attempts?{RUN}"), &writer).await, 200);
    assert_eq!(of(Method::GET, &plan("bin"), &writer).await, 403);
    assert_eq!(of(Method::PUT, &plan("bin").replace("team-a", "team-b"), &writer).await, 403);
    assert_eq!(of(Method::GET, &plan("bin"), &reader).await, 200);
    assert_eq!(of(Method::GET, &plan("bin").replace("team-a", "team-b"), &reader).await, 404);
    assert_eq!(of(Method::GET, &log, &reader).await, 200);
    assert_eq!(of(Method::GET, BUNDLE, &reader).await, 403);
    assert_eq!(of(Method::PUT, &plan("bin"), &reader).await, 403);
    assert_eq!(of(Method::GET, &format!("attempts?{RUN}"), &reader).await, 403);
    assert_eq!(of(Method::GET, &plan("bin"), &stranger).await, 401);
    assert_eq!(of(Method::GET, &plan("bin"), "reader").await, 401);
}

#[tokio::test]
async fn rules_add_to_what_an_account_has_and_tokens_stand_beside_accounts() {
    let kube = FakeKube::start().await;
    kube.account("team-a/runner", A);
    let (ci, mine) = token("ci", &["team-b"], &["plan"], &[Verb::Read]);
    let mut policy = Policy::default();
    policy.add(&mine).unwrap();
    policy
        .add("rules: [{who: {serviceaccount: team-a/*}, namespaces: [shared], kinds: [bundle], verbs: [read]}]")
        .unwrap();
    let kubernetes = Some(kubernetes(&kube));
    let callers = Callers { tokens: true, kubernetes, policy };
    let datastore = TestDatastore::guarded(Auth::Callers(Box::new(callers))).await;
    let shared = BUNDLE.replace("team-a", "shared");
    assert_eq!(status(&datastore, Method::GET, &shared, A).await, 404);
    assert_eq!(
        status(&datastore, Method::GET, &plan("bin").replace("team-a", "shared"), A).await,
        403
    );
    assert_eq!(
        status(&datastore, Method::GET, &plan("bin").replace("team-a", "team-b"), &ci).await,
        404
    );
    assert!(
        kube.reviews().iter().all(|review| review["spec"]["token"] == A),
        "a token of ours was shown around"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_requests_by_a_hundred_tokens_cost_a_hundred_reviews() {
    let (datastore, mut kube) = guarded().await;
    let tokens = (0..100).map(|number| format!("token {number}")).collect::<Vec<_>>();
    for token in &tokens {
        kube.account("team-a/runner", token);
    }
    kube.fault(Some(KubeFault::Slow(Duration::from_millis(50))));
    let url = plan("json");
    let requests =
        (0..1000).map(|number| status(&datastore, Method::GET, &url, &tokens[number % 100]));
    let since = Instant::now();
    let told = join_all(requests).await;
    println!(
        "1,000 requests by 100 tokens: {:?}, {} reviews",
        since.elapsed(),
        kube.reviews().len()
    );
    assert!(told.iter().all(|status| *status == 404), "{told:?}");
    assert!(kube.reviews().len() <= 100, "{}", kube.reviews().len());

    kube.stop();
    let since = Instant::now();
    let known = join_all(tokens.iter().map(|token| status(&datastore, Method::GET, &url, token)));
    assert!(known.await.iter().all(|status| *status == 404), "whoever is still known is let in");
    let strangers = (0..100).map(|number| format!("stranger {number}")).collect::<Vec<_>>();
    let strangers = strangers.iter().map(|token| status(&datastore, Method::GET, &url, token));
    assert!(join_all(strangers).await.iter().all(|status| *status == 500), "nobody else is");
    println!("with the API down: {:?}", since.elapsed());
    assert!(since.elapsed() < Duration::from_secs(4), "{:?}", since.elapsed());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_api_that_hangs_holds_nobody_for_long() {
    let (datastore, kube) = guarded().await;
    assert_eq!(status(&datastore, Method::GET, &plan("json"), A).await, 404);
    kube.fault(Some(KubeFault::Hangs));
    let since = Instant::now();
    let url = plan("json");
    let strangers = (0..200).map(|number| format!("stranger {}", number % 50)).collect::<Vec<_>>();
    let strangers =
        join_all(strangers.iter().map(|token| status(&datastore, Method::GET, &url, token)));
    let known = async {
        let since = Instant::now();
        assert_eq!(status(&datastore, Method::GET, &plan("json"), A).await, 404);
        assert!(since.elapsed() < Duration::from_secs(1), "{:?}", since.elapsed());
    };
    let (told, ()) = tokio::join!(strangers, known);
    assert!(told.iter().all(|status| *status == 500), "{told:?}");
    assert!(since.elapsed() < Duration::from_secs(8), "{:?}", since.elapsed());
    kube.fault(None);
    assert_eq!(status(&datastore, Method::GET, &plan("json"), B).await, 403);
}

/// What is team-b's, by its URL; each with bytes that can be known again.
fn of_team_b() -> Vec<(String, String)> {
    let run = "namespace=team-b&layer=network&run=plan-1";
    let mut all = ["json", "pretty", "short", "bin"]
        .map(|format| format!("plans?{run}&attempt=0&format={format}"))
        .to_vec();
    all.push(format!("logs?{run}&attempt=0"));
    all.push(format!("artifacts?{run}&attempt=0&name=run.json"));
    all.push(
        "repository/revision/bundle?namespace=team-b&name=infra&ref=main&revision=abc".to_owned(),
    );
    all.into_iter().enumerate().map(|(n, url)| (url, format!("S3CRET-{n} of team-b"))).collect()
}

/// Every kind of caller that has no business with team-b, and one that may only read its logs.
fn strangers(kube: &FakeKube, policy: &mut Policy) -> Vec<(&'static str, Option<String>)> {
    let accounts = [
        ("an account of another namespace", "team-a/runner"),
        ("an account that is called so", "team-a/team-b"),
        ("a namespace that begins so", "team-b-2/runner"),
        ("a namespace that ends so", "my-team-b/runner"),
        ("the beginning of a namespace", "team/runner"),
        ("one in capitals", "TEAM-B/runner"),
    ];
    let mut callers = vec![
        ("nobody", None),
        ("an empty token", Some(String::new())),
        ("rubbish", Some("rubbish".to_owned())),
        ("the name of an account", Some("system:serviceaccount:team-b:runner".to_owned())),
    ];
    for (name, account) in accounts {
        kube.account(account, name);
        callers.push((name, Some(name.to_owned())));
    }
    for (name, user) in [
        ("a user that is no account", "team-b"),
        ("a user with a colon too many", "system:serviceaccount:team-a:x:team-b"),
        ("a node", "system:node:team-b"),
    ] {
        kube.user(user, "burrito", name);
        callers.push((name, Some(name.to_owned())));
    }
    kube.user("system:serviceaccount:team-b:runner", "other", "for another audience");
    callers.push(("for another audience", Some("for another audience".to_owned())));
    for (name, namespaces, verbs) in [
        ("a token of another namespace", "team-a", &[Verb::Read, Verb::Write, Verb::List][..]),
        ("a token of a pattern beside", "team-a*", &[Verb::Read, Verb::Write, Verb::List]),
        ("a token that may do nothing", "team-b", &[]),
        ("a token that may only append and delete", "*", &[Verb::Append, Verb::Delete]),
    ] {
        let (token, rule) = token(name, &[namespaces], &[], verbs);
        policy.add(&rule).unwrap();
        callers.push((name, Some(token)));
    }
    callers
}

/// Ways to write a URL of team-b's so that somebody might be mistaken.
fn spellings(url: &str) -> Vec<String> {
    let (path, query) = url.split_once('?').unwrap();
    let with = |namespace: &str| format!("{path}?{}", query.replace("namespace=team-b", namespace));
    let mut all = [
        "namespace=team-b",
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
        "namespace=team-b/",
        "namespace=/team-b",
        "namespace=./team-b",
        "namespace=team-a/../team-b",
        "namespace=team-a%2F..%2Fteam-b",
        "namespace=team-a%5C..%5Cteam-b",
        "namespace=..%2Flayers%2Fteam-b",
        "Namespace=team-b",
        "namespace[]=team-b",
        "namespace[0]=team-b",
        "%6Eamespace=team-b",
        "namespace=team-a&layer=..%2Fteam-b%2Fnetwork",
        "namespace=team-a&layer=../team-b/network",
        "namespace=team-a&layer=..&layer=network",
        "namespace=team-a&run=..%2F..%2Fteam-b%2Fnetwork%2Fplan-1",
        "namespace=team-a&attempt=..%2F..%2F..%2Fteam-b%2Fnetwork%2Fplan-1%2F0",
        "namespace=team-a&name=..%2F..%2F..%2F..%2Fteam-b%2Fnetwork%2Fplan-1%2F0%2Frun.json",
        "namespace=team-a&name=..%2Fteam-b%2Finfra",
        "namespace=team-a&ref=..%2F..%2F..%2Fteam-b%2Finfra%2Fmain",
        "namespace=team-a&ref=..&revision=..%2F..%2Fteam-b%2Finfra%2Fmain%2Fabc",
        "namespace=team-a&format=..%2F..%2F..%2F..%2Fteam-b%2Fnetwork%2Fplan-1%2F0%2Fplan",
        "namespace=team-a&cursor=..%2F..%2Fteam-b%2Fnetwork%2F",
    ]
    .map(with)
    .to_vec();
    all.push(url.replacen('?', "/?", 1));
    all.push(format!("./{url}"));
    all.push(format!("x/../{url}"));
    all.push(format!("x/%2e%2e/{url}"));
    all.push(format!("/{url}"));
    all.push(url.replacen('?', "%3F", 1));
    all.push(format!("{path}/team-b?{query}"));
    all
}

fn twisted(request: RequestBuilder, twist: usize, tag: &str) -> RequestBuilder {
    match twist {
        0 => request,
        1 => request.header("if-none-match", tag),
        2 => request.header("range", "bytes=0-3").header("if-match", tag),
        3 => request.header("x-http-method-override", "GET").header("x-forwarded-user", "team-b"),
        _ => request
            .header("x-original-url", "/api/plans?namespace=team-b")
            .header("content-type", "application/x-www-form-urlencoded"),
    }
}

/// Everything that is stored, but for what is in namespaces that the callers live in.
fn stored_elsewhere(datastore: &TestDatastore) -> BTreeSet<(PathBuf, Vec<u8>)> {
    let theirs = ["team-a", "team-b-2", "my-team-b", "team", "TEAM-B"];
    let all = files(&datastore.root()).into_iter().filter(|path| {
        let at_home =
            |part: std::path::Component| theirs.iter().any(|name| part.as_os_str() == *name);
        !path.components().take(4).any(at_home)
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
    let mut urls = of_team_b();
    for (url, secret) in &urls {
        let put = request(&datastore, Method::PUT, url).header("authorization", CONTROLLERS);
        assert_eq!(send(put.body(secret.clone())).await.status, 200);
        // Read by its owner, so that whatever could be kept somewhere on the way is.
        assert_eq!(status(&datastore, Method::GET, url, B).await, 200);
    }
    let hidden = urls[0].0.replace("plan-1", "hidden-run");
    assert_eq!(status(&datastore, Method::PUT, &hidden, B).await, 200);
    let tags = urls.iter().map(|(_, secret)| etag(secret.as_bytes())).collect::<Vec<_>>();
    urls.push(("attempts?namespace=team-b&layer=network&run=plan-1".to_owned(), String::new()));
    urls.push(("runs?namespace=team-b&layer=network".to_owned(), String::new()));
    urls.push(("encrypt?namespace=team-b".to_owned(), String::new()));
    let before = stored_elsewhere(&datastore);
    let methods = ["GET", "HEAD", "PUT", "POST", "DELETE", "PATCH", "OPTIONS", "LINK"];

    // One that keeps its connections: there are many requests.
    let client = reqwest::Client::new();
    let mut tried = 0;
    for (caller, token) in &callers {
        for (number, (url, _)) in urls.iter().enumerate() {
            let tag = tags.get(number).map_or("*", String::as_str);
            let mut requests = Vec::new();
            for (twist, spelling) in spellings(url).into_iter().enumerate() {
                // Odd verbs are refused by their name, whatever is asked for.
                let verbs = if twist == 0 { &methods[..] } else { &methods[..3] };
                for method in verbs {
                    let method = Method::from_bytes(method.as_bytes()).unwrap();
                    let url = format!("{}api/{spelling}", datastore.url);
                    let mut request = client.request(method.clone(), url);
                    if let Some(token) = token {
                        request = request.header("authorization", token);
                    }
                    if method != Method::GET && method != Method::HEAD {
                        request = request.body("overwritten");
                    }
                    let request = twisted(request, twist % 5, tag);
                    requests.push(async move { (method, send(request).await) });
                }
            }
            tried += requests.len();
            for (method, answer) in join_all(requests).await {
                no_leak(caller, url, &method, &answer, &tags);
            }
        }
    }
    println!("{tried} requests by {} callers", callers.len());
    assert_eq!(stored_elsewhere(&datastore), before, "something was written");
    for (url, secret) in of_team_b() {
        let answer = asked(&datastore, Method::GET, &url, B).await;
        assert!(answer.text().contains(&secret), "{url}");
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

#[tokio::test]
async fn ds27_a_refusal_does_not_tell_what_is_there() {
    let (datastore, _kube) = guarded().await;
    assert_eq!(status(&datastore, Method::PUT, &plan("json"), A).await, 200);
    let nowhere = plan("json").replace("plan-1", "plan-2");
    for method in [Method::GET, Method::HEAD, Method::PUT] {
        let mut told = Vec::new();
        for url in [plan("json"), nowhere.clone()] {
            let answer = asked(&datastore, method.clone(), &url, B).await;
            let mut headers = answer.headers.clone();
            headers.remove("x-request-id");
            headers.remove("date");
            told.push(format!("{} {headers:?} {}", answer.status, answer.text()));
        }
        assert_eq!(told[0], told[1]);
    }
}

/// Texts that could lead astray, and plain ones.
fn value() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        3 => prop::sample::select(vec![
            "team-a", "team-b", "network", "plan-1", "..", ".", "/", "%2F", "%2e", "\\", "%5C", "%00", "layers",
            "repositories", ".plancha", "&namespace=team-b", "=", ";", "?", "#", "+", "%", "0", "main", "bin",
        ]).prop_map(str::to_owned),
        1 => "\\PC{0,3}",
    ];
    prop::collection::vec(piece, 0..5).prop_map(|pieces| pieces.concat())
}

fn query() -> impl Strategy<Value = String> {
    let name = prop::sample::select(vec![
        "namespace",
        "namespace",
        "layer",
        "run",
        "attempt",
        "format",
        "name",
        "ref",
        "revision",
        "cursor",
        "Namespace",
        "namespace[]",
    ]);
    let plain =
        "namespace=team-a&layer=network&run=plan-1&attempt=0&name=infra&ref=main&revision=abc";
    prop::collection::vec((name, value()), 1..5).prop_flat_map(move |pairs| {
        let odd = pairs
            .iter()
            .map(|(name, value)| format!("{name}={value}"))
            .collect::<Vec<_>>()
            .join("&");
        prop::sample::select(vec![format!("{odd}&{plain}"), odd])
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn ds27_no_query_whatever_leads_out_of_a_callers_namespace() {
    let (datastore, _kube) = guarded().await;
    for (url, secret) in of_team_b() {
        let put = request(&datastore, Method::PUT, &url).header("authorization", CONTROLLERS);
        assert_eq!(send(put.body(secret)).await.status, 200);
    }
    let before = stored_elsewhere(&datastore);
    let mut runner = TestRunner::default();
    let routes = ["plans", "logs", "artifacts", "attempts", "runs", "repository/revision/bundle"];
    let mut statuses = BTreeSet::new();
    for _ in 0..200 {
        let batch = (0..20).map(|number| {
            let query = query().new_tree(&mut runner).unwrap().current();
            let (route, method) = (routes[number % 6], if number % 2 == 0 { "GET" } else { "PUT" });
            let url = format!("{}api/{route}?{query}", datastore.url);
            let request = CLIENT.request(method.parse().unwrap(), url).header("authorization", A);
            async move { (query, send(request.body("overwritten")).await) }
        });
        for (query, answer) in join_all(batch.collect::<Vec<_>>()).await {
            assert!(!String::from_utf8_lossy(&answer.body).contains("S3CRET"), "{query}");
            statuses.insert(answer.status);
        }
    }
    assert_eq!(stored_elsewhere(&datastore), before, "something was written");
    // Else it was no test of anything.
    for status in [200, 400, 403] {
        assert!(statuses.contains(&status), "{statuses:?}");
    }
}
