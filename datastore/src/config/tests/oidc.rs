//! `--auth oidc=...`, `--public-url` and `--session-key-file`.

use super::*;
use crate::auth::Callers;

const RULES: &str = "rules: [{who: {oidc: 'https://dex.example', claims: {groups: infra}}, namespaces: [a], verbs: [read]}]";
const KEY: &str = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";
const FILES: Texts =
    &[("/rules", RULES), ("/secret", "hush\n"), ("/keys", KEY), ("/short", "c2hvcnQ=")];

fn serve(flags: &str) -> Result<Serve, String> {
    let args = format!("datastore serve --policy /rules {flags}");
    read_with(&args, &[HOME], FILES).map_err(|(code, text)| {
        assert_eq!(code, USAGE);
        text.trim_end().to_owned()
    })
}

fn callers(serve: &Serve) -> &Callers {
    let Auth::Callers(callers) = &serve.config.auth else { panic!("no callers") };
    callers
}

#[test]
fn options_follow_their_issuer() {
    let serve = serve(
        "--auth oidc=https://dex.example,audience=ci,client-id=web,client-secret-file=/secret,scope=groups,scope=email \
         --auth tokens=/rules --auth oidc=https://other.example/x,audience=ci",
    );
    let serve = serve.unwrap();
    let callers = callers(&serve);
    assert!(callers.tokens && callers.oidc.len() == 2 && callers.rule_files.len() == 2);
    let [first, second] = &callers.oidc[..] else { panic!() };
    assert_eq!(
        (first.issuer.as_str(), first.audience.as_deref()),
        ("https://dex.example", Some("ci"))
    );
    let client = first.client.as_ref().unwrap();
    assert_eq!(
        (client.id.as_str(), &client.scopes[..]),
        ("web", &["groups".to_owned(), "email".to_owned()][..])
    );
    assert!(client.secret.is_some() && second.client.is_none());
    assert_eq!(
        serve.config.auth.to_string(),
        "tokens,oidc=https://dex.example,oidc=https://other.example/x"
    );
    assert!(!format!("{serve:?}").contains("hush"));
    let other =
        "no rule in --policy is about the issuer https://other.example/x: its tokens are refused";
    assert!(serve.warnings.iter().any(|warning| warning == other), "{:?}", serve.warnings);
}

#[test]
fn the_redirect_uri_to_register_is_shown() {
    let shown = |flags: &str| {
        let flags = format!(
            "--auth oidc=https://dex.example/a,client-id=web --auth oidc=https://dex.example,audience=ci {flags}"
        );
        let settings = serve(&flags)?.settings;
        let uri = settings.into_iter().find(|setting| setting.name == "redirect URI");
        Ok::<_, String>(uri.unwrap().value)
    };
    assert_eq!(
        shown("--public-url https://plancha.example/ --listen :80").unwrap(),
        "https://plancha.example/sign-in/oidc/dex.example-a/callback"
    );
    assert!(shown("").unwrap().starts_with("(the address that the browser shows)"));
    insta::assert_snapshot!(shown("--listen :80").unwrap_err(), @"
    error: --auth oidc=https://dex.example/a: people cannot sign in without the address that their browsers use
    hint: set --public-url, such as https://plancha.example.com
    ");
}

#[test]
fn an_invalid_setting_of_an_issuer_or_of_sessions_is_an_error() {
    let refusal = |flags: &str| serve(flags).unwrap_err();
    let with = |options: &str| refusal(&format!("--auth oidc=https://dex.example{options}"));
    insta::assert_snapshot!(with(""), @"
    error: --auth oidc=https://dex.example: for whom must its tokens be?
    hint: add audience=NAME for programs, client-id=ID for people who sign in with a browser, or both
    ");
    insta::assert_snapshot!(with(",audience=a,client-id=a"), @"
    error: --auth oidc=https://dex.example: `audience` and `client-id` are both `a`: then a token of a browser would pass as one of a program
    hint: use two names
    ");
    insta::assert_snapshot!(with(",audience=a,scope=b"), @"error: --auth oidc=https://dex.example: client-secret-file and scope need client-id");
    insta::assert_snapshot!(with(",client-id=a,client-secret-file=/none"), @"error: --auth oidc=https://dex.example: client-secret-file: /none: entity not found");
    assert!(
        with(",audience=a,audience=b")
            .contains("`audience` of oidc=https://dex.example is set twice")
    );
    assert!(with(",audience=").contains("`audience` of oidc=https://dex.example has no value"));
    assert!(with(",other=a").contains("expected kubernetes, tokens=FILE, oidc=ISSUER"));
    assert!(with(",audience=a,none").contains("`none` cannot be combined"));
    insta::assert_snapshot!(refusal("--auth oidc=http://dex.example,audience=a"), @"error: --auth: invalid value `oidc=http://dex.example,audience=a`: expected https://: ID tokens are verified with keys of this address");
    insta::assert_snapshot!(refusal("--auth oidc=https://x,audience=a"), @"error: a rule names the issuer `https://dex.example`, but no --auth oidc=https://dex.example does");
    let twice = with(",audience=a --auth oidc=https://dex.example/,audience=b");
    assert!(twice.contains("this issuer is given twice"), "{twice}");
    let sessions =
        |flags: &str| refusal(&format!("--auth oidc=https://dex.example,audience=a {flags}"));
    insta::assert_snapshot!(sessions("--public-url http://plancha.example"), @"
    error: --public-url: invalid value `http://plancha.example`: expected https://: sessions need an encrypted connection, except on a loopback address
    hint: serve TLS (--tls-cert) or put a proxy with TLS in front
    ");
    insta::assert_snapshot!(sessions("--public-url https://plancha.example/path"), @"error: --public-url: invalid value `https://plancha.example/path`: expected https://HOST or https://HOST:PORT, without a path");
    insta::assert_snapshot!(sessions("--session-key-file /short"), @"
    error: --session-key-file: /short: key 1: expected at least 32 bytes in Base64
    hint: create one with `openssl rand -base64 32`
    ");
    assert!(serve("--auth oidc=https://dex.example,audience=a --session-key-file /keys").is_ok());
}
