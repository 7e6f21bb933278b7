//! Which callers are authenticated. [`crate::access::tenants`] tests what they may access.

use std::pin::pin;
use std::time::{Duration, Instant};

use datastore::{Auth, Callers, Isolation, Kubernetes, NewToken, Policy, Verb};
use futures::future::{self, Either, join_all};
use futures::{StreamExt as _, stream};
use reqwest::Method;
use secrecy::ExposeSecret as _;
use support::{FakeTokenReviews, TestDatastore, TokenReviewFault};

use tempfile::TempDir;

use crate::api::health::becomes_ready;
use crate::http::{Answer, CLIENT, RUN, get, request, send};
use crate::program::process::{Running, program, until};

const BUNDLE: &str = "repository/revision/bundle?namespace=team-a&name=infra&ref=main&revision=abc";

pub(crate) fn kubernetes(kube: &FakeTokenReviews) -> Kubernetes {
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

/// A datastore that authenticates `ServiceAccounts`, and the accounts that it accepts.
pub(crate) async fn guarded() -> (TestDatastore, FakeTokenReviews) {
    let kube = FakeTokenReviews::start().await;
    for account in ["team-a/runner", "team-b/runner", "burrito-system/burrito-controllers"] {
        kube.account(account, &format!("token of {account}"));
    }
    (TestDatastore::guarded(by(kubernetes(&kube))).await, kube)
}

pub(crate) const A: &str = "token of team-a/runner";
pub(crate) const B: &str = "token of team-b/runner";
pub(crate) const CONTROLLERS: &str = "token of burrito-system/burrito-controllers";

pub(crate) async fn asked(
    datastore: &TestDatastore,
    method: Method,
    rest: &str,
    token: &str,
) -> Answer {
    send(request(datastore, method, rest).header("authorization", token).body("body")).await
}

pub(crate) async fn status(
    datastore: &TestDatastore,
    method: Method,
    rest: &str,
    token: &str,
) -> u16 {
    asked(datastore, method, rest, token).await.status
}

fn plan(format: &str) -> String {
    format!("plans?{RUN}&attempt=0&format={format}")
}

#[tokio::test]
async fn ds01_health_needs_no_token() {
    let (datastore, kube) = guarded().await;
    becomes_ready(&datastore).await;
    for path in ["healthz", "readyz"] {
        let answer = send(CLIENT.get(datastore.url.join(path).unwrap())).await;
        assert_eq!((answer.status, answer.text().as_str()), (200, "OK"));
    }
    assert!(kube.reviews().is_empty());
}

#[tokio::test]
async fn ds02_ds05_missing_or_unknown_token_returns_401_with_burritos_message() {
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
    kube.fault(Some(TokenReviewFault::Status(500)));
    insta::assert_snapshot!(refusal("not seen before").await, @r#"500 application/json {"message":"error validating token"}"#);
    kube.fault(Some(TokenReviewFault::Status(403)));
    insta::assert_snapshot!(refusal("nor this").await, @r#"500 application/json {"message":"error validating token"}"#);
    let head = asked(&datastore, Method::HEAD, BUNDLE, "rubbish").await;
    assert_eq!((head.status, head.body.len()), (401, 0));
}

#[tokio::test]
async fn ds03_token_is_accepted_raw_and_after_bearer() {
    let (datastore, _kube) = guarded().await;
    for token in [A.to_owned(), format!("Bearer {A}"), format!("bearer {A}")] {
        assert_eq!(status(&datastore, Method::GET, &plan("json"), &token).await, 404);
    }
    let twice = request(&datastore, Method::GET, &plan("json")).header("authorization", A);
    assert_eq!(send(twice.header("authorization", A)).await.status, 401);
}

#[tokio::test]
async fn ds04_token_review_names_our_audience_and_is_cached() {
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
async fn api_server_without_audiences_authenticates_no_caller() {
    let (datastore, kube) = guarded().await;
    kube.fault(Some(TokenReviewFault::KnowsNoAudience));
    assert_eq!(status(&datastore, Method::GET, &plan("json"), A).await, 401);
}

#[tokio::test]
async fn cached_token_review_ends_when_the_token_expires() {
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
        assert!(since.elapsed() < Duration::from_secs(30), "it is still let in");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test]
async fn ds05_only_listed_service_accounts_are_accepted() {
    let kube = FakeTokenReviews::start().await;
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
async fn ds17_unknown_path_returns_401_without_a_token_and_404_with_one() {
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
            let reported = (with.status, with.text());
            assert_eq!(
                reported,
                (404, "{\"message\":\"Not Found\"}\n".to_owned()),
                "{method} {rest}"
            );
        }
    }
    for path in ["api", "api/", "api?namespace=team-a", "api/openapi.json/x"] {
        let answer = send(CLIENT.get(datastore.url.join(path).unwrap())).await;
        assert_eq!(answer.status, 401, "{path}");
    }
}

#[tokio::test]
async fn burritos_rule_gives_all_listed_accounts_the_same_rights() {
    let kube = FakeTokenReviews::start().await;
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
pub(crate) fn token(
    id: &str,
    namespaces: &[&str],
    kinds: &[&str],
    verbs: &[Verb],
) -> (String, String) {
    let new = NewToken {
        id: id.to_owned(),
        namespaces: namespaces.iter().map(|text| (*text).to_owned()).collect(),
        kinds: kinds.iter().map(|text| text.parse().unwrap()).collect(),
        verbs: verbs.to_vec(),
    };
    let (token, rule) = new.create().unwrap();
    (token.expose_secret().to_owned(), rule)
}

#[tokio::test]
async fn token_has_only_the_rights_of_its_rules() {
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
async fn rules_extend_an_accounts_rights_and_tokens_work_beside_accounts() {
    let kube = FakeTokenReviews::start().await;
    kube.account("team-a/runner", A);
    let (ci, mine) = token("ci", &["team-b"], &["plan"], &[Verb::Read]);
    let mut policy = Policy::default();
    policy.add(&mine).unwrap();
    policy
        .add("rules: [{who: {serviceaccount: team-a/*}, namespaces: [shared], kinds: [bundle], verbs: [read]}]")
        .unwrap();
    let kubernetes = Some(kubernetes(&kube));
    let callers = Callers { tokens: true, kubernetes, policy, ..Callers::default() };
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
async fn thousand_requests_with_hundred_tokens_make_hundred_token_reviews() {
    let (datastore, mut kube) = guarded().await;
    let tokens = (0..100).map(|number| format!("token {number}")).collect::<Vec<_>>();
    for token in &tokens {
        kube.account("team-a/runner", token);
    }
    kube.fault(Some(TokenReviewFault::Slow(Duration::from_millis(50))));
    let url = plan("json");
    // Ten with each token at once.
    let requests =
        (0..1000).map(|number| status(&datastore, Method::GET, &url, &tokens[number / 10]));
    let reported = stream::iter(requests).buffered(100).collect::<Vec<_>>().await;
    assert!(reported.iter().all(|status| *status == 404), "{reported:?}");
    assert!(kube.reviews().len() <= 100, "{}", kube.reviews().len());

    kube.stop();
    let known = join_all(tokens.iter().map(|token| status(&datastore, Method::GET, &url, token)));
    assert!(known.await.iter().all(|status| *status == 404), "cached callers are accepted");
    let strangers = (0..100).map(|number| format!("stranger {number}")).collect::<Vec<_>>();
    let strangers = strangers.iter().map(|token| status(&datastore, Method::GET, &url, token));
    assert!(join_all(strangers).await.iter().all(|status| *status == 500), "no other caller is");
}

#[tokio::test(flavor = "multi_thread")]
async fn hanging_api_server_delays_no_request_for_long() {
    let (datastore, kube) = guarded().await;
    assert_eq!(status(&datastore, Method::GET, &plan("json"), A).await, 404);
    kube.fault(Some(TokenReviewFault::Hangs));
    let url = plan("json");
    let strangers = (0..200).map(|number| format!("stranger {number}")).collect::<Vec<_>>();
    let strangers =
        join_all(strangers.iter().map(|token| status(&datastore, Method::GET, &url, token)));
    let known = status(&datastore, Method::GET, &url, A);
    match future::select(pin!(known), pin!(strangers)).await {
        Either::Left((known, strangers)) => {
            assert_eq!(known, 404);
            let reported = strangers.await;
            assert!(reported.iter().all(|status| *status == 500), "{reported:?}");
        }
        Either::Right(_) => panic!("a known caller waited for the reviews of others"),
    }
    kube.fault(None);
    assert_eq!(status(&datastore, Method::GET, &plan("json"), B).await, 403);
}

#[test]
fn tokens_created_concurrently_are_all_in_the_policy_and_readers_see_whole_files() {
    use std::os::unix::fs::PermissionsExt as _;
    const TOKENS: usize = 12;
    let home = TempDir::new().unwrap();
    let (rules, link) = (home.path().join("tokens.yaml"), home.path().join("link.yaml"));
    let comment = "# ours\n".repeat(2000);
    std::fs::write(&rules, &comment).unwrap();
    std::fs::set_permissions(&rules, std::fs::Permissions::from_mode(0o640)).unwrap();
    std::os::unix::fs::symlink(&rules, &link).unwrap();
    let mut running = (0..TOKENS)
        .map(|number| {
            let id = format!("ci-{number}");
            let words = ["token", &id, "--namespace", "team-a", "--rules"];
            let mut program = program(&words);
            program.arg(&link).stdout(std::process::Stdio::null()).spawn().unwrap()
        })
        .collect::<Vec<_>>();
    let mut left = TOKENS;
    while left > 0 {
        let text = std::fs::read_to_string(&rules).unwrap();
        assert!(text.starts_with(&comment), "{} bytes", text.len());
        running
            .retain_mut(|child| child.try_wait().unwrap().is_none_or(|status| !status.success()));
        left = running.len();
    }
    let text = std::fs::read_to_string(&rules).unwrap();
    assert_eq!(text.matches("token: ci-").count(), TOKENS, "{text}");
    assert_eq!(std::fs::metadata(&rules).unwrap().permissions().mode() & 0o777, 0o640);
    assert!(link.is_symlink());
    assert_eq!(std::fs::read_dir(home.path()).unwrap().count(), 2, "nothing is left behind");
}

/// The audit lines of a log, each as its fields in a row.
fn audit_lines(log: &str) -> Vec<String> {
    const KEYS: &str =
        "message caller method path namespace layer run attempt format status sha256";
    let body = datastore_api::Sha256::of(b"body").to_string();
    let row = |line: &serde_json::Value| {
        let values = KEYS.split(' ').map(|key| match &line[key] {
            serde_json::Value::Null => "-".to_owned(),
            serde_json::Value::String(text) => text.clone(),
            value => value.to_string(),
        });
        values.collect::<Vec<_>>().join(" | ").replace(&body, "[sha256]")
    };
    let lines = log.lines().filter(|line| line.contains("audit: "));
    let mut lines = lines
        .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap())
        .collect::<Vec<_>>();
    // Lines of unknown callers are queued, so they can follow younger ones.
    lines.sort_by_key(|line| line["timestamp"].to_string());
    lines.iter().map(row).collect()
}

/// A new token that `datastore token` adds to a file of rules.
fn made(rules: &std::path::Path, words: &[&str]) -> String {
    let output = program(words).arg("--rules").arg(rules).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

/// An upload whose client disconnects in the middle.
async fn disconnect(datastore: &Running, url: &str, token: &str) {
    let mut socket = datastore.connect();
    let head = format!(
        "PUT /api/{url} HTTP/1.1\r\nhost: localhost\r\nauthorization: {token}\r\ncontent-length: 9\r\n\r\nb"
    );
    std::io::Write::write_all(&mut socket, head.as_bytes()).unwrap();
    tokio::time::sleep(Duration::from_millis(200)).await;
}

#[tokio::test]
async fn every_refusal_and_write_has_an_audit_line_without_the_token() {
    let home = TempDir::new().unwrap();
    let rules = home.path().join("tokens.yaml");
    let ci = made(&rules, &["token", "ci", "--namespace", "team-a"]);
    let reader = made(&rules, &["token", "reader", "--namespace", "team-a", "--verb", "read"]);
    let written = std::fs::read_to_string(&rules).unwrap();
    assert!(!written.contains(&ci) && !written.contains(&reader), "{written}");
    let ways = format!("tokens={}", rules.display());
    let flags = ["--auth", &*ways, "--log-format", "json"];
    let datastore = Running::start(&home.path().join("store"), &flags);
    let ask = async |method: Method, rest: &str, token: &str, digest: &str| {
        let url = format!("http://{}/api/{rest}", datastore.address);
        let mut request = CLIENT.request(method, url).body("body");
        for (name, value) in [("authorization", token), ("repr-digest", digest)] {
            if !value.is_empty() {
                request = request.header(name, value);
            }
        }
        send(request).await.status
    };
    let mine = plan("bin");
    let other = mine.replace("team-a", "team-b");
    let wrong = format!("sha-256=:{}=:", "A".repeat(43));
    let mut reported = Vec::new();
    for (method, rest, token, digest) in [
        (Method::PUT, &*mine, &*ci, ""),
        (Method::GET, &mine, &reader, ""),
        (Method::HEAD, &mine, &reader, ""),
        (Method::PUT, &mine, &reader, ""),
        (Method::GET, &other, &ci, ""),
        (Method::HEAD, &other, &ci, ""),
        (Method::GET, &mine, "", ""),
        (Method::PUT, &mine, "rubb1sh", ""),
        (Method::PUT, &mine, &ci, &wrong),
        (Method::DELETE, &mine, &ci, ""),
        (Method::POST, "encrypt", &ci, ""),
    ] {
        reported.push(ask(method, rest, token, digest).await);
    }
    assert_eq!(reported, [200, 200, 200, 403, 403, 403, 401, 401, 400, 404, 403]);
    disconnect(&datastore, &mine, &ci).await;
    let log = || datastore.log.lock().unwrap().clone();
    until("a line for each", || audit_lines(&log()).len() >= 10);
    insta::assert_snapshot!(audit_lines(&log()).join("\n"), @"
        audit: written | token ci | PUT | /api/plans | team-a | network | plan-1 | 0 | bin | 200 | [sha256]
        audit: refused | token reader | PUT | /api/plans | team-a | network | plan-1 | 0 | bin | 403 | -
        audit: refused | token ci | GET | /api/plans | team-b | network | plan-1 | 0 | bin | 403 | -
        audit: refused | token ci | HEAD | /api/plans | team-b | network | plan-1 | 0 | bin | 403 | -
        audit: refused | - | GET | /api/plans | team-a | network | plan-1 | 0 | bin | 401 | -
        audit: refused | - | PUT | /api/plans | team-a | network | plan-1 | 0 | bin | 401 | -
        audit: not written | token ci | PUT | /api/plans | team-a | network | plan-1 | 0 | bin | 400 | -
        audit: not written | token ci | DELETE | /api/plans | team-a | network | plan-1 | 0 | bin | 404 | -
        audit: refused | token ci | POST | /api/encrypt | - | - | - | - | - | 403 | -
        audit: not written | token ci | PUT | /api/plans | team-a | network | plan-1 | 0 | bin | 400 | -
        ");
    for secret in [&*ci, &reader, "rubb1sh"] {
        assert!(!log().contains(secret));
    }
}

#[tokio::test]
async fn expired_token_is_rejected_while_the_api_server_is_down() {
    let (datastore, mut kube) = guarded().await;
    let exp = jiff::Timestamp::now().as_second() + 6;
    let claims = serde_json::json!({ "exp": exp }).to_string();
    let claims = base64::Engine::encode(&base64::prelude::BASE64_URL_SAFE_NO_PAD, claims);
    let token = format!("e30.{claims}.c2ln");
    kube.account("team-a/runner", &token);
    assert_eq!(status(&datastore, Method::GET, &plan("json"), &token).await, 404);
    kube.stop();
    assert_eq!(status(&datastore, Method::GET, &plan("json"), &token).await, 404);
    let since = Instant::now();
    while status(&datastore, Method::GET, &plan("json"), &token).await != 500 {
        assert!(since.elapsed() < Duration::from_secs(30), "it is still let in");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}
