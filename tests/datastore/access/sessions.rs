//! Sessions of browsers by tokens: signing in and out, and what a session may do.

use std::io::Write as _;

use datastore::config::Config;
use datastore::store::Storage;
use datastore::{Auth, Callers, Policy, SessionKeys, SessionSettings, Verb};
use reqwest::Method;
use support::TestDatastore;
use tempfile::TempDir;

use crate::access::authentication::{asked, guarded as with_accounts, token};
use crate::access::browser::Browser;
use crate::http::{RUN, put, request, send, stored};
use crate::transport::memory::{answer, connect};

/// A token for team-a, and its rules with more in them.
fn rules(more: &str) -> (String, String) {
    let (token, rule) = token("viewer", &["team-a"], &[], &[Verb::Read, Verb::List, Verb::Write]);
    (token, format!("{}{more}", rule.trim_end()) + "\n")
}

async fn over(rules: &str, sessions: SessionSettings, files: &[&std::path::Path]) -> TestDatastore {
    let mut policy = Policy::default();
    policy.add(rules).unwrap();
    let rule_files = files.iter().map(|file| (*file).to_owned()).collect();
    let callers = Callers { tokens: true, policy, rule_files, ..Callers::default() };
    let auth = Auth::Callers(Box::new(callers));
    TestDatastore::of(Config { auth, sessions, ..Config::of(Storage::Memory) }).await
}

fn sign_in_form(token: &str) -> String {
    format!("next=%2Fa%3Fb&token={token}")
}

#[tokio::test]
async fn a_session_reads_what_its_token_may_read_but_not_what_only_programs_need() {
    let (token, rules) = rules("");
    let datastore = over(&rules, SessionSettings::default(), &[]).await;
    let artifact = |name: &str| format!("artifacts?{RUN}&attempt=0&name={name}");
    let plan = |format: &str| format!("plans?{RUN}&attempt=0&format={format}");
    for rest in [plan("json"), plan("bin"), artifact("run.json"), artifact("outputs.json")] {
        assert_eq!(asked(&datastore, Method::PUT, &rest, &token).await.status, 200, "{rest}");
    }
    let mut browser = Browser::of(&datastore);
    assert_eq!(browser.status(&plan("json")).await, 401);
    let answer = browser.form("/sign-in", &sign_in_form(&token)).await;
    assert_eq!(
        (answer.status, answer.header("location")),
        (303, Some("/a?b")),
        "{}",
        answer.text()
    );
    assert_eq!(answer.header("cache-control"), Some("no-store"));
    assert!(!browser.cookies["plancha-session"].contains(&token));
    for rest in [plan("json"), artifact("run.json"), format!("attempts?{RUN}")] {
        assert_eq!(browser.status(&rest).await, 200, "{rest}");
    }
    let shown = browser.get(&format!("/api/{}", plan("json"))).await;
    assert_eq!(shown.header("content-type"), Some("application/octet-stream"));
    assert_eq!(shown.header("content-disposition"), Some("attachment"));
    assert_eq!(shown.header("x-content-type-options"), Some("nosniff"));
    assert!(shown.header("content-security-policy").unwrap().contains("sandbox"));
    for rest in [
        plan("bin"),
        artifact("workspace.tar.zst"),
        artifact("outputs.json"),
        artifact("a.tfstate"),
    ] {
        let refused = browser.get(&format!("/api/{rest}")).await;
        assert_eq!(refused.status, 403, "{rest}");
        assert!(
            refused.text().contains("token viewer by session may not read"),
            "{}",
            refused.text()
        );
        assert!(refused.text().contains("`browser: all`"), "{}", refused.text());
    }
    assert_eq!(browser.status("attempts?namespace=team-b&layer=a&run=b").await, 403);
    for method in [Method::PUT, Method::POST, Method::DELETE] {
        let request = browser.request(method.clone(), &format!("/api/{}", plan("short"))).body("x");
        assert_eq!(browser.send(request).await.status, 401, "{method}");
    }
    // Pages of other sites do not use the session, but links from there do.
    let from = |mode: &str| {
        let request = browser.request(Method::GET, &format!("/api/{}", plan("json")));
        request.header("sec-fetch-site", "cross-site").header("sec-fetch-mode", mode)
    };
    let (fetched, followed) = (from("no-cors"), from("navigate"));
    assert_eq!(browser.send(fetched).await.status, 401);
    assert_eq!(browser.send(followed).await.status, 200);
    // A token that is sent counts alone.
    let wrong = browser.request(Method::GET, &format!("/api/{}", plan("json")));
    assert_eq!(browser.send(wrong.header("authorization", "wrong")).await.status, 401);
}

#[tokio::test]
async fn a_rule_can_grant_a_session_everything() {
    let (token, rules) = rules("\n  browser: all");
    let datastore = over(&rules, SessionSettings::default(), &[]).await;
    let mut browser = Browser::of(&datastore);
    browser.form("/sign-in", &sign_in_form(&token)).await;
    assert_eq!(browser.status(&format!("plans?{RUN}&attempt=0&format=bin")).await, 404);
    assert_eq!(browser.status(&format!("artifacts?{RUN}&attempt=0&name=outputs.json")).await, 404);
    // Neither states nor documents are in the rule.
    assert_eq!(browser.status("documents?namespace=team-a&layer=l&name=outputs.json").await, 403);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_form_of_another_page_is_refused_before_its_body_is_read() {
    let (_, rules) = rules("");
    let datastore = over(&rules, SessionSettings::default(), &[]).await;
    let mut socket = connect(&datastore);
    let head = "POST /sign-in HTTP/1.1\r\nhost: localhost\r\nexpect: 100-continue\r\n";
    write!(socket, "{head}content-length: 10\r\n\r\n").unwrap();
    let refused = answer(&mut socket);
    assert!(refused.starts_with("HTTP/1.1 403 "), "{refused}");
}

#[tokio::test]
async fn forms_are_accepted_only_from_our_own_pages_and_with_a_known_token() {
    let (token, rules) = rules("");
    let datastore = over(&rules, SessionSettings::default(), &[]).await;
    let mut browser = Browser::of(&datastore);
    for origin in [None, Some("null"), Some("https://evil.example"), Some("http://localhost:1")] {
        let request = browser.request(Method::POST, "/sign-in").body(sign_in_form(&token));
        let request =
            origin.iter().fold(request, |request, origin| request.header("origin", *origin));
        let answer = browser.send(request).await;
        assert_eq!(answer.status, 403, "{origin:?}");
        assert!(
            answer.text().contains("not sent by a page of this datastore"),
            "{}",
            answer.text()
        );
        let out = browser.request(Method::POST, "/sign-out");
        let out = origin.iter().fold(out, |request, origin| request.header("origin", *origin));
        assert_eq!(browser.send(out).await.status, 403, "{origin:?}");
    }
    for form in ["", "token=", "token=wrong", &format!("token={}", "x".repeat(20_000))] {
        let answer = browser.form("/sign-in", form).await;
        assert_eq!(answer.status, 401, "{}", &form[..form.len().min(20)]);
        assert!(
            answer.text().contains("The token is unknown or has expired."),
            "{}",
            answer.text()
        );
    }
    assert!(browser.cookies.is_empty());
    let evil = format!("token={token}&next=//evil.example");
    assert_eq!(browser.form("/sign-in", &evil).await.header("location"), Some("/"));
    assert!(browser.get("/").await.text().contains("action=\"/sign-out\""));
    let out = browser.form("/sign-out", "").await;
    assert_eq!((out.status, out.header("location")), (303, Some("/sign-in")));
    assert!(browser.cookies.is_empty());
    assert!(!browser.get("/").await.text().contains("/sign-out"));
}

#[tokio::test]
async fn the_page_shows_the_forms_and_no_text_as_html() {
    let (_, rules) = rules("");
    let datastore = over(&rules, SessionSettings::default(), &[]).await;
    let page = Browser::of(&datastore).get("/sign-in?next=/%22%3E%3Cscript%3E").await;
    assert_eq!(page.status, 200);
    assert_eq!(page.header("content-type"), Some("text/html; charset=utf-8"));
    let policy = page.header("content-security-policy").unwrap();
    assert!(policy.contains("default-src 'none'") && policy.contains("frame-ancestors 'none'"));
    assert_eq!(page.header("referrer-policy"), Some("same-origin"));
    assert!(page.text().contains("value=\"/&#34;&#62;&#60;script&#62;\""), "{}", page.text());
    let open = TestDatastore::memory().await;
    let page = Browser::of(&open).get("/sign-in").await;
    assert_eq!(page.status, 404);
    assert!(page.text().contains("Callers are not authenticated here"), "{}", page.text());
}

#[tokio::test]
async fn a_session_is_of_its_address_and_its_keys() {
    let (token, rules) = rules("");
    let key = |byte: u8| base64::Engine::encode(&base64::prelude::BASE64_STANDARD, [byte; 32]);
    let with = |keys: &str, url: Option<&str>| SessionSettings {
        public_url: url.map(|url| url.parse().unwrap()),
        keys: Some(SessionKeys::parse(keys).unwrap()),
    };
    let public = Some("https://plancha.example");
    let old = over(&rules, with(&key(1), public), &[]).await;
    let mut browser = Browser::of(&old);
    let request = browser.request(Method::POST, "/sign-in").body(sign_in_form(&token));
    let answer = browser.send(request.header("origin", "https://plancha.example")).await;
    assert_eq!(answer.status, 303, "{}", answer.text());
    let cookie = answer.header("set-cookie").unwrap();
    assert!(
        cookie.starts_with("__Host-plancha-session=")
            && cookie.ends_with("; Path=/; Max-Age=28800; HttpOnly; SameSite=Lax; Secure"),
        "{cookie}"
    );
    let runs = "runs?namespace=team-a&layer=a";
    for (settings, status) in [
        (with(&key(1), public), 200),
        (with(&format!("{}\n{}", key(2), key(1)), public), 200),
        (with(&key(2), public), 401),
        (SessionSettings { public_url: public.map(|url| url.parse().unwrap()), keys: None }, 401),
        // There the cookie has another name.
        (with(&key(1), None), 401),
    ] {
        let other = over(&rules, settings, &[]).await;
        let mut there = Browser::of(&other);
        there.cookies = browser.cookies.clone();
        assert_eq!(there.status(runs).await, status);
    }
}

#[tokio::test]
async fn a_session_ends_when_its_token_is_removed_from_the_rules() {
    let (token, rules) = rules("");
    let directory = TempDir::new().unwrap();
    let file = directory.path().join("tokens.yaml");
    std::fs::write(&file, &rules).unwrap();
    let datastore = over(&rules, SessionSettings::default(), &[&file]).await;
    let mut browser = Browser::of(&datastore);
    browser.form("/sign-in", &sign_in_form(&token)).await;
    let runs = "runs?namespace=team-a&layer=a";
    assert_eq!(browser.status(runs).await, 200);
    std::fs::write(&file, "rules: []").unwrap();
    while browser.status(runs).await == 200 {
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
    assert_eq!(browser.status(runs).await, 401);
    assert_eq!(asked(&datastore, Method::GET, runs, &token).await.status, 401);
    // Invalid rules change nothing, and valid ones count again.
    std::fs::write(&file, "rules: [").unwrap();
    std::fs::write(&file, &rules).unwrap();
    while browser.status(runs).await != 200 {
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
}

#[tokio::test]
async fn a_follower_of_a_log_ends_with_the_permission_of_its_caller() {
    let (token, rules) = rules("");
    let directory = TempDir::new().unwrap();
    let file = directory.path().join("tokens.yaml");
    std::fs::write(&file, &rules).unwrap();
    let datastore = over(&rules, SessionSettings::default(), &[&file]).await;
    let log = format!("logs?{RUN}&attempt=0");
    let appended = asked(&datastore, Method::POST, &format!("{log}&offset=0"), &token).await;
    assert_eq!(appended.status, 200, "{}", appended.text());
    let mut browser = Browser::of(&datastore);
    browser.form("/sign-in", &sign_in_form(&token)).await;
    let follow = format!("{log}&follow=true");
    let events = |request: reqwest::RequestBuilder| request.header("accept", "text/event-stream");
    let with_token = request(&datastore, Method::GET, &follow).header("authorization", &token);
    let with_token = send(events(with_token));
    let with_session = browser.request(Method::GET, &format!("/api/{follow}"));
    let with_session = browser.send(events(with_session));
    let removed = async {
        tokio::time::sleep(std::time::Duration::from_millis(200)).await;
        std::fs::write(&file, "rules: []").unwrap();
    };
    // Without an end these would wait for ever.
    let (with_token, with_session, ()) = tokio::join!(with_token, with_session, removed);
    for answer in [with_token, with_session] {
        assert_eq!(answer.status, 200);
        assert!(answer.text().ends_with("data: shutdown\n\n"), "{}", answer.text());
    }
    assert_eq!(asked(&datastore, Method::GET, &follow, &token).await.status, 401);
}

#[tokio::test]
async fn a_session_of_a_service_account_ends_with_its_token() {
    let (datastore, kube) = with_accounts().await;
    let exp = jiff::Timestamp::now().as_second() + 6;
    let claims = serde_json::json!({ "exp": exp }).to_string();
    let claims = base64::Engine::encode(&base64::prelude::BASE64_URL_SAFE_NO_PAD, claims);
    let token = format!("e30.{claims}.c2ln");
    kube.account("team-a/viewer", &token);
    let mut browser = Browser::of(&datastore);
    let answer = browser.form("/sign-in", &sign_in_form(&token)).await;
    assert_eq!(answer.status, 303, "{}", answer.text());
    let runs = "runs?namespace=team-a&layer=a";
    assert_eq!(browser.status(runs).await, 200);
    assert_eq!(browser.status("runs?namespace=team-b&layer=a").await, 403);
    // Its own namespace grants an account every plan, but not to its session.
    assert_eq!(browser.status(&format!("plans?{RUN}&attempt=0&format=bin")).await, 403);
    while browser.status(runs).await == 200 {
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
}

#[tokio::test]
async fn without_authentication_pages_of_other_sites_reach_nothing() {
    let datastore = TestDatastore::memory().await;
    let plan = format!("plans?{RUN}&attempt=0");
    stored(&datastore, &plan, "{}").await;
    let path = format!("/api/{plan}");
    let mut browser = Browser::of(&datastore);
    for (name, value) in [
        ("host", "evil.example"),
        ("host", "10.0.0.1:8080"),
        ("origin", "https://evil.example"),
        ("origin", "null"),
        ("sec-fetch-site", "cross-site"),
    ] {
        for method in [Method::GET, Method::PUT] {
            let request = browser.request(method.clone(), &path).header(name, value).body("x");
            let answer = browser.send(request).await;
            assert_eq!(answer.status, 403, "{method} {name}: {value}");
            assert!(answer.text().contains("the request"), "{}", answer.text());
        }
    }
    assert_eq!(put(&datastore, &plan, "{}").await.status, 200);
    let ours = browser.request(Method::GET, &path).header("host", "localhost:8080");
    assert_eq!(browser.send(ours.header("origin", "http://localhost:8080")).await.status, 200);
    let metrics = browser.get("/metrics").await.text();
    assert!(metrics.contains("datastore_refusals_total{reason=\"origin\"} 10"), "{metrics}");
}
