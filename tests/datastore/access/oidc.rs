//! Callers with ID tokens of an issuer: programs, and people who sign in with a browser.

use datastore::config::Config;
use datastore::store::Storage;
use datastore::{Auth, Callers, Oidc, OidcClient, Policy, SessionSettings};
use reqwest::Method;
use serde_json::{Value, json};
use support::{FakeIssuer, IssuerFault, Signature, TestDatastore};

use crate::access::authentication::{asked, status};
use crate::access::browser::Browser;
use crate::http::{Answer, RUN};

/// The audience of programs, and the client of browsers.
const AUDIENCE: &str = "plancha";
const CLIENT: &str = "plancha-browser";
const RUNS: &str = "runs?namespace=team-a&layer=a";

fn settings(issuer: &FakeIssuer) -> Oidc {
    let scopes = vec!["groups".to_owned()];
    let client = OidcClient { id: CLIENT.to_owned(), secret: None, scopes };
    Oidc {
        issuer: issuer.url().parse().unwrap(),
        audience: Some(AUDIENCE.to_owned()),
        client: Some(client),
    }
}

fn rule(issuer: &FakeIssuer, claims: &str) -> String {
    let url = issuer.url();
    format!(
        "{{who: {{oidc: \"{url}\", claims: {claims}}}, namespaces: [team-a], verbs: [read, list]}}"
    )
}

async fn over(oidc: Vec<Oidc>, rules: &[String]) -> TestDatastore {
    let mut policy = Policy::default();
    policy.add(&format!("rules: [{}]", rules.join(", "))).unwrap();
    let auth = Auth::Callers(Box::new(Callers { oidc, policy, ..Callers::default() }));
    let sessions = SessionSettings::default();
    TestDatastore::of(Config { auth, sessions, ..Config::of(Storage::Memory) }).await
}

/// A datastore that accepts the tokens of an issuer for the group `infra`, and programs of `org`.
async fn guarded() -> (TestDatastore, FakeIssuer) {
    let issuer = FakeIssuer::start().await;
    let rules = [rule(&issuer, "{groups: infra}"), rule(&issuer, "{repository: org/*}")];
    (over(vec![settings(&issuer)], &rules).await, issuer)
}

/// The name of an issuer in the addresses of the datastore.
fn name(issuer: &FakeIssuer) -> String {
    issuer.url().trim_start_matches("http://").replace([':', '/'], "-")
}

/// Claims of a program of `org`, with others.
fn of_org(more: &Value) -> Value {
    let mut claims = json!({"repository": "org/a"});
    for (name, value) in more.as_object().unwrap() {
        claims[name] = value.clone();
    }
    claims
}

#[tokio::test]
async fn a_program_is_known_by_a_valid_id_token_for_our_audience() {
    let (datastore, issuer) = guarded().await;
    let now = jiff::Timestamp::now().as_second();
    let get = async |token: &str| status(&datastore, Method::GET, RUNS, token).await;
    for signature in [Signature::Rs256, Signature::Es256, Signature::EdDsa] {
        let token = issuer.signed(signature, AUDIENCE, &of_org(&json!({})));
        assert_eq!(get(&token).await, 200, "{signature:?}");
        assert_eq!(get(&format!("Bearer {token}")).await, 200, "{signature:?}");
    }
    for claims in [
        json!({"exp": now - 30}),
        json!({"nbf": now + 30}),
        json!({"aud": [AUDIENCE]}),
        json!({"iat": null}),
    ] {
        assert_eq!(get(&issuer.token(AUDIENCE, &of_org(&claims))).await, 200, "{claims}");
    }
    let stranger = issuer.token(AUDIENCE, &json!({"repository": "evil/a"}));
    let answer = asked(&datastore, Method::GET, RUNS, &stranger).await;
    assert_eq!((answer.status, answer.text().trim()), (401, r#"{"message":"unauthorized user"}"#));
    let token = issuer.token(AUDIENCE, &of_org(&json!({"sub": "repo:org/a"})));
    let other = asked(&datastore, Method::GET, "runs?namespace=team-b&layer=a", &token).await;
    assert_eq!(other.status, 403);
    let caller = format!("oidc repo:org/a of {} may not list", issuer.url());
    assert!(other.text().contains(&caller), "{}", other.text());
    assert_eq!((issuer.requests("document"), issuer.requests("keys")), (1, 1));
}

#[tokio::test]
async fn an_id_token_that_is_not_valid_or_not_for_us_alone_is_refused() {
    let (datastore, issuer) = guarded().await;
    let now = jiff::Timestamp::now().as_second();
    let mut tokens = Vec::new();
    for signature in
        [Signature::None, Signature::Hs256ByPublicKey, Signature::ForeignKey, Signature::Confused]
    {
        let token = issuer.signed(signature, AUDIENCE, &of_org(&json!({})));
        tokens.push((token, format!("{signature:?}")));
    }
    for claims in [
        json!({"aud": "other"}),
        json!({"aud": CLIENT}),
        json!({"aud": [AUDIENCE, "other"]}),
        json!({"aud": null}),
        json!({"exp": now - 90}),
        json!({"exp": null}),
        json!({"exp": "soon"}),
        json!({"nbf": now + 90}),
        json!({"nbf": "now"}),
        json!({"iat": now + 90}),
        json!({"iss": "https://other.example"}),
        json!({"iss": format!("{}/", issuer.url())}),
        json!({"sub": null}),
        json!({"sub": ""}),
        json!({"sub": "a\nb"}),
        json!({"sub": "x".repeat(300)}),
    ] {
        tokens.push((issuer.token(AUDIENCE, &of_org(&claims)), claims.to_string()));
    }
    for header in [
        json!({"alg": "RS256", "kid": "rsa-1", "crit": ["x"], "x": 1}),
        json!({"alg": "RS256", "kid": "rsa-1", "typ": "at+jwt"}),
        json!({"alg": "RS512", "kid": "rsa-1"}),
        json!({"alg": "RS256", "kid": "other"}),
        json!({"alg": "ES256", "kid": "rsa-1"}),
        json!({"kid": "rsa-1"}),
    ] {
        tokens.push((issuer.with_header(&header, AUDIENCE), header.to_string()));
    }
    for (token, what) in tokens {
        let answer = asked(&datastore, Method::GET, RUNS, &token).await;
        let refusal = (401, r#"{"message":"invalid token"}"#);
        assert_eq!((answer.status, answer.text().trim()), refusal, "{what}");
    }
    let header = json!({"alg": "RS256", "kid": "rsa-1"});
    let valid = issuer.with_header(&header, AUDIENCE);
    assert_eq!(asked(&datastore, Method::GET, RUNS, &valid).await.status, 200);
    // Within the first minute, no unknown key fetches the keys again.
    assert_eq!((issuer.requests("document"), issuer.requests("keys")), (1, 1));
}

#[tokio::test]
async fn an_issuer_that_cannot_be_used_is_an_error_and_not_a_refusal() {
    let other = FakeIssuer::start().await;
    for fault in [
        IssuerFault::Status(500),
        IssuerFault::NamesIssuer(other.url().to_owned()),
        IssuerFault::KeysAt("http://keys.example.com/".to_owned()),
        IssuerFault::KeysAt("file:///etc/passwd".to_owned()),
        IssuerFault::RedirectsKeys(format!("{}/keys", other.url())),
        IssuerFault::Large(300 << 10),
    ] {
        let (datastore, issuer) = guarded().await;
        issuer.fault(Some(fault.clone()));
        let token = issuer.token(AUDIENCE, &json!({"groups": "infra"}));
        for _ in 0..2 {
            let answer = asked(&datastore, Method::GET, RUNS, &token).await;
            let text = r#"{"message":"error validating token"}"#;
            assert_eq!((answer.status, answer.text().trim()), (500, text), "{fault:?}");
        }
        assert_eq!(issuer.requests("document"), 1, "{fault:?}");
    }
    assert_eq!(other.requests("keys"), 0);
}

#[tokio::test]
async fn people_sign_in_at_an_issuer_and_read_what_the_rules_say() {
    let (datastore, issuer) = guarded().await;
    issuer.user(json!({"groups": ["x", "infra"], "sub": "alice"}));
    let mut browser = Browser::of(&datastore);
    let page = browser.get("/sign-in?next=/a").await.text();
    assert!(
        page.contains(&format!("href=\"/sign-in/oidc/{}?next=%2Fa\"", name(&issuer))),
        "{page}"
    );
    assert!(!page.contains("<form"), "{page}");
    let answer = browser.sign_in(&name(&issuer)).await;
    assert_eq!(
        (answer.status, answer.header("location")),
        (303, Some("/api/runs?x")),
        "{}",
        answer.text()
    );
    assert_eq!(browser.cookies.keys().collect::<Vec<_>>(), ["plancha-session"]);
    assert_eq!(browser.status(RUNS).await, 200);
    let refused = browser.get(&format!("/api/plans?{RUN}&attempt=0&format=bin")).await.text();
    assert!(
        refused.contains("oidc alice of") && refused.contains("by session may not read"),
        "{refused}"
    );
    // Neither the session nor a token for browsers is one for programs.
    let token = issuer.token(CLIENT, &json!({"groups": "infra"}));
    assert_eq!(status(&datastore, Method::GET, RUNS, &token).await, 401);
    // And a token for programs signs nobody in.
    let token = issuer.token(AUDIENCE, &json!({"groups": "infra"}));
    let form = Browser::of(&datastore).form("/sign-in", &format!("token={token}")).await;
    assert_eq!(form.status, 401);
    issuer.user(json!({"groups": ["x"], "sub": "mallory"}));
    let answer = Browser::of(&datastore).sign_in(&name(&issuer)).await;
    assert_eq!(answer.status, 403);
    assert!(
        answer.text().contains("You are known as `mallory`, but no rule is about you."),
        "{}",
        answer.text()
    );
    issuer.user(json!({"groups": ["infra"], "exp": jiff::Timestamp::now().as_second() + 2}));
    let mut brief = Browser::of(&datastore);
    assert_eq!(brief.sign_in(&name(&issuer)).await.status, 303);
    while brief.status(RUNS).await == 200 {
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    assert_eq!(browser.status(RUNS).await, 200);
}

/// That nobody has signed in, and why.
fn failed(browser: &Browser, answer: &Answer, reason: &str) {
    assert!([400, 403, 502].contains(&answer.status), "{}: {}", answer.status, answer.text());
    assert!(answer.text().contains(reason), "{reason}: {}", answer.text());
    assert!(!browser.cookies.contains_key("plancha-session"));
}

#[tokio::test]
async fn the_answer_to_a_sign_in_counts_once_and_only_where_it_was_started() {
    let (datastore, issuer) = guarded().await;
    issuer.user(json!({"groups": ["infra"]}));
    let mut browser = Browser::of(&datastore);
    let back = browser.begin(&name(&issuer)).await;
    // Another browser was sent to this address (login CSRF).
    let mut victim = Browser::of(&datastore);
    let answer = victim.get(&back).await;
    failed(&victim, &answer, "was started in another browser");
    // With a sign-in of its own, too.
    victim.begin(&name(&issuer)).await;
    let answer = victim.get(&back).await;
    failed(&victim, &answer, "was started in another browser");
    assert!(victim.cookies.is_empty());
    assert_eq!(issuer.requests("token"), 0);
    let before = browser.clone();
    assert_eq!(browser.get(&back).await.status, 303);
    // A replay with the cookie of the sign-in: the code was used.
    let mut replay = before;
    let answer = replay.get(&back).await;
    failed(&replay, &answer, "did not accept the answer: invalid_grant");
    let mut without = Browser::of(&datastore);
    let back = without.begin(&name(&issuer)).await;
    let state = back.split("state=").nth(1).unwrap().to_owned();
    let refused =
        format!("/sign-in/oidc/{}/callback?error=access_denied&state={state}", name(&issuer));
    let answer = without.get(&refused).await;
    failed(&without, &answer, "the issuer refused the sign-in: access_denied");
    let mut twice = Browser::of(&datastore);
    let back = twice.begin(&name(&issuer)).await;
    let answer = twice.get(&format!("{back}&code=other")).await;
    failed(&twice, &answer, "was started in another browser");
    assert_eq!(Browser::of(&datastore).get("/sign-in/oidc/other").await.status, 404);
}

#[tokio::test]
async fn an_id_token_that_is_not_the_answer_to_the_sign_in_is_refused() {
    let (datastore, issuer) = guarded().await;
    let now = jiff::Timestamp::now().as_second();
    for (claims, reason) in [
        (json!({"nonce": "other"}), "`nonce`"),
        (json!({"nonce": null}), "`nonce`"),
        (json!({"aud": AUDIENCE}), "another audience"),
        (json!({"aud": [CLIENT, "other"]}), "`azp`"),
        (json!({"azp": "other"}), "`azp`"),
        (json!({"exp": now - 90}), "expired"),
        (json!({"nbf": now + 90}), "not valid yet"),
        (json!({"iss": "https://other.example"}), "another issuer"),
    ] {
        issuer.fault(Some(IssuerFault::Claims(claims)));
        let mut browser = Browser::of(&datastore);
        let answer = browser.sign_in(&name(&issuer)).await;
        failed(&browser, &answer, reason);
        assert_eq!(answer.status, 403);
    }
    issuer.user(json!({"groups": ["infra"]}));
    let azp = json!({"aud": [CLIENT, "other"], "azp": CLIENT});
    issuer.fault(Some(IssuerFault::Claims(azp)));
    assert_eq!(Browser::of(&datastore).sign_in(&name(&issuer)).await.status, 303);
}

#[tokio::test]
async fn an_issuer_cannot_pass_as_another_one() {
    let (honest, other) = (FakeIssuer::start().await, FakeIssuer::start().await);
    let rules = [rule(&honest, "{groups: infra}"), rule(&other, "{}")];
    let datastore = over(vec![settings(&honest), settings(&other)], &rules).await;
    honest.user(json!({"groups": ["infra"]}));
    // The other issuer has sent the browser on to the honest one, and the answer comes to the address of either.
    let mut browser = Browser::of(&datastore);
    browser.begin(&name(&other)).await;
    let mut elsewhere = Browser::of(&datastore);
    let back = elsewhere.begin(&name(&honest)).await;
    for back in [back.clone(), back.replace(&name(&honest), &name(&other))] {
        let mut browser = browser.clone();
        let answer = browser.get(&back).await;
        failed(&browser, &answer, "was started in another browser");
    }
    // With the state of this sign-in, which that issuer knows.
    let mut mixed = Browser::of(&datastore);
    let back = mixed.begin(&name(&other)).await;
    let answer = mixed.get(&back.replace(&name(&other), &name(&honest))).await;
    failed(&mixed, &answer, "of another issuer");
    assert_eq!(honest.requests("token") + other.requests("token"), 0);
    // An issuer that names itself must do so, and rightly.
    for (fault, reason) in [
        (IssuerFault::IsSilent, "of another issuer"),
        (IssuerFault::Pretends(honest.url().to_owned()), "of another issuer"),
    ] {
        let issuer = FakeIssuer::start().await;
        issuer.fault(Some(fault));
        let datastore = over(vec![settings(&issuer)], &[rule(&issuer, "{}")]).await;
        let mut browser = Browser::of(&datastore);
        let answer = browser.sign_in(&name(&issuer)).await;
        failed(&browser, &answer, reason);
    }
}

#[tokio::test]
async fn a_client_sends_its_secret_to_the_issuer_only() {
    let issuer = FakeIssuer::start().await;
    issuer.expect_secret("hush-%2B");
    issuer.user(json!({"groups": ["infra"]}));
    let with = |secret: Option<&str>| {
        let mut settings = settings(&issuer);
        let client = settings.client.as_mut().unwrap();
        client.secret = secret.map(|secret| secret.to_owned().into());
        settings
    };
    for (secret, status) in [(Some("hush-+"), 303), (Some("other"), 502), (None, 502)] {
        let datastore = over(vec![with(secret)], &[rule(&issuer, "{groups: infra}")]).await;
        let mut browser = Browser::of(&datastore);
        let back = browser.begin(&name(&issuer)).await;
        assert!(!back.contains("hush"), "{back}");
        assert_eq!(browser.get(&back).await.status, status, "{secret:?}");
    }
}
