//! A property of every query: the authorised namespace is the one that the storage is asked for.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use datastore::config::Config;
use datastore::transport::limits::Limits;
use datastore::{Auth, Callers, Policy, Verb};
use proptest::prelude::*;
use proptest::test_runner::{Config as Cases, TestRunner};
use support::{Dialect, FakeCloud, TestDatastore};

use crate::access::authentication::token;
use crate::access::tenants::operations;
use crate::http::send;

/// Namespaces of callers, and others that somebody could take for them.
const NAMES: [&str; 14] = [
    "team-a",
    "team-b",
    "team a",
    "team+a",
    "team%2Da",
    "team-a ",
    "TEAM-A",
    "t\u{e9}am",
    "%2e%2e",
    "a&b=c",
    "a#b",
    "layers",
    ".plancha",
    "team-a;x",
];

/// One of all ways to write a text in a query.
fn written(text: &'static str) -> impl Strategy<Value = String> {
    let length = text.len();
    prop::collection::vec(0..4_u8, length).prop_map(move |ways| {
        let mut out = String::new();
        for (byte, way) in text.bytes().zip(ways) {
            let plain = byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
            match way {
                0 | 1 if plain => out.push(byte.into()),
                2 if byte == b' ' => out.push('+'),
                1 => write!(out, "%{byte:02x}").unwrap(),
                _ => write!(out, "%{byte:02X}").unwrap(),
            }
        }
        out
    })
}

/// Which namespace is asked for, if one is; and its parameters, of which the first counts.
fn namespaces() -> impl Strategy<Value = (Option<&'static str>, Vec<String>)> {
    let one = prop::sample::select(NAMES.to_vec())
        .prop_flat_map(|name| (Just(name), written("namespace"), written(name)))
        .prop_map(|(name, key, value)| (Some(name), format!("{key}={value}")));
    let none = prop::sample::select(vec!["namespace=", "namespace"])
        .prop_map(|text| (None, text.to_owned()));
    let others = prop::sample::select(vec!["Namespace=team-b", "namespace[]=team-b", "x", ""])
        .prop_map(str::to_owned);
    let first = prop_oneof![8 => one.clone(), 1 => none.clone()];
    let more = prop_oneof![2 => one, 1 => none];
    (prop::option::of(others), first, prop::collection::vec(more, 0..3)).prop_map(
        |(other, (meant, first), more)| {
            let mut all = other.into_iter().collect::<Vec<_>>();
            all.push(first);
            all.extend(more.into_iter().map(|(_, text)| text));
            (meant, all)
        },
    )
}

/// What else there is in a query, which may be nonsense too.
fn rest() -> impl Strategy<Value = Vec<String>> {
    let odd = (
        prop::sample::select(vec![
            "layer", "run", "attempt", "name", "ref", "revision", "format", "cursor", "claim",
            "plan",
        ]),
        prop::sample::select(vec![
            "..",
            ".",
            "%2e%2e",
            "..%2Fteam-b",
            "%252e%252e",
            "team-b%2Fx",
            "%5C..",
            "%00",
            "%ff",
            "a%2F%2Fb",
            "%2F",
            "x",
            "0",
            "1",
            "..%2F..%2F..%2Fteam-b",
            ".plancha",
            "%EF%BC%8F..",
            "a+b%231~2",
        ]),
    );
    let runs = prop::sample::select(vec!["plan-1", "plan-1/0"]);
    (prop::collection::vec(odd, 0..3), runs).prop_map(|(odd, run)| {
        let digest = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        let plain = format!(
            "layer=network&run={run}&attempt=0&name=infra&ref=main&revision=abc&claim=c&\
                     plan={digest}&set={digest}&approval={digest}"
        );
        let odd = odd.into_iter().map(|(name, value)| format!("{name}={value}"));
        odd.chain(plain.split('&').map(str::to_owned)).collect::<Vec<_>>()
    })
}

/// Keys and prefixes that the storage was asked for, in the order of the requests to it.
fn asked_for(double: &FakeCloud) -> Vec<String> {
    // A deletion of many, by the probe, has its keys in the body.
    let requests = double.requests().into_iter().filter(|line| !line.starts_with("POST  delete"));
    let requests = requests.map(|line| {
        // The method, the key, and a query without spaces; a key may have some.
        let (_, rest) = line.split_once(' ').unwrap();
        let (key, query) = rest.rsplit_once(' ').unwrap();
        let mut query = url::form_urlencoded::parse(query.as_bytes());
        let prefix = query.find(|(name, _)| name == "prefix");
        prefix.map_or(key.to_owned(), |(_, prefix)| prefix.into_owned())
    });
    requests.filter(|key| !key.starts_with(".plancha/probe")).collect()
}

/// The folders of a storage that have a folder for each namespace.
const ROOTS: [&str; 17] = [
    "layers",
    "repositories",
    ".plancha/runs",
    ".plancha/claims",
    ".plancha/live",
    ".plancha/applied",
    ".plancha/documents",
    ".plancha/approvals",
    ".plancha/changes",
    ".plancha/layers",
    ".plancha/sha256/.plancha/applied",
    ".plancha/sha256/.plancha/live",
    ".plancha/sha256/.plancha/documents",
    ".plancha/sha256/.plancha/changes",
    ".plancha/sha256/.plancha/layers",
    ".plancha/sha256/layers",
    ".plancha/sha256/repositories",
];

/// A token for each namespace, and the rules that contain them.
fn tokens() -> (Vec<(&'static str, String)>, Policy) {
    let mut policy = Policy::default();
    let tokens = NAMES.map(|name| {
        let verbs = [Verb::Read, Verb::Write, Verb::List];
        let (token, rule) = token(name, &[name], &[], &verbs);
        policy.add(&rule).unwrap();
        // A rule for all kinds does not include outputs.
        let who = serde_json::json!({"token": name});
        let outputs = serde_json::json!({"rules": [
            {"who": who, "namespaces": [name], "kinds": ["outputs"], "verbs": ["read", "write"]},
        ]});
        policy.add(&outputs.to_string()).unwrap();
        (name, token)
    });
    (tokens.into(), policy)
}

#[test]
fn ds27_authorised_namespace_is_the_namespace_read_from_storage() {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let double = FakeCloud::start(Dialect::S3);
    let (tokens, policy) = tokens();
    let auth = Auth::Callers(Box::new(Callers { tokens: true, policy, ..Callers::default() }));
    // No summary of a layer is made during the request of another caller.
    let limits = Limits { refresh: Duration::from_hours(1), ..Limits::default() };
    let config = Config { auth, limits, ..Config::of(double.storage()) };
    let datastore = runtime.block_on(TestDatastore::of(config));
    let operations = runtime.block_on(operations(&datastore));
    let routes = operations
        .iter()
        .filter(|one| one.path != "/api/encrypt")
        .map(|one| (one.method.clone(), one.path.trim_start_matches("/api/").to_owned()))
        .collect::<Vec<_>>();
    let client = reqwest::Client::new();
    let seen = RefCell::new(BTreeMap::<u16, usize>::new());
    let strategy = (
        prop::sample::select(routes),
        prop::sample::select(tokens),
        namespaces(),
        rest(),
        any::<prop::sample::Index>(),
    );
    let mut runner =
        TestRunner::new(Cases { cases: 1500, failure_persistence: None, ..Cases::default() });
    let done =
        runner.run(&strategy, |((method, route), (home, token), (meant, first), mut all, at)| {
            let at = at.index(all.len() + 1);
            all.splice(at..at, first);
            let url = format!("{}api/{route}?{}", datastore.url, all.join("&"));
            let before = asked_for(&double).len();
            let asking = client.request(method, &url).header("authorization", token).body("x");
            let status = runtime.block_on(send(asking)).status;
            *seen.borrow_mut().entry(status).or_default() += 1;
            let keys = asked_for(&double).split_off(before);
            for key in &keys {
                let below = ROOTS.iter().any(|root| key.starts_with(&format!("{root}/{home}/")));
                prop_assert!(below, "{home} reached {key} by {url}");
            }
            prop_assert_ne!(status, 401);
            if meant == Some(home) {
                prop_assert_ne!(status, 403, "{} is refused its own: {}", home, url);
            } else {
                prop_assert!(keys.is_empty(), "{home} reached {keys:?} by {url}");
                prop_assert!([400, 403].contains(&status), "{status} to {home}: {url}");
            }
            Ok(())
        });
    if let Err(error) = done {
        panic!("{error}");
    }
    // Else it was no test of anything.
    println!("{:?}", seen.borrow());
    for status in [200, 400, 403, 404] {
        assert!(seen.borrow().contains_key(&status), "{seen:?}");
    }
}
