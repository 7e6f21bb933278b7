//! DS27 for states and leases: no default right and no spelling of a path reaches the state of another, and a state needs a
//! rule that names it.

use datastore::config::Config;
use datastore::{Auth, Callers, Isolation, Kubernetes, Policy, Verb};
use reqwest::Method;
use serde_json::json;
use support::{Dialect, FakeCloud, FakeTokenReviews, TestDatastore};

use super::documents::{document, lock_info};
use crate::access::authentication::{A, B, CONTROLLERS, kubernetes, token};
use crate::http::{Answer, get, request, send};

/// The requests for the state and the lease of team-b's network: method, path and body.
fn requests() -> Vec<(&'static str, &'static str, String)> {
    let lease = json!({"holder": "x", "host": "y", "run": null}).to_string();
    let tool = json!({"name": "tofu", "version": "1.9.0"}).to_string();
    let state = || document("l", 9, "S3CRET");
    let key = "namespace=team-b&layer=network";
    let leak = |rest: String| &*Box::leak(rest.into_boxed_str());
    let version = "fffa0b1c2d3e4f50-0123456789abcdef";
    vec![
        ("GET", "state/team-b/network", String::new()),
        ("HEAD", "state/team-b/network", String::new()),
        ("GET", leak(format!("state/team-b/network?version={version}")), String::new()),
        ("POST", "state/team-b/network", state()),
        ("POST", "state/team-b/network?force=true", state()),
        ("DELETE", "state/team-b/network", String::new()),
        ("LOCK", "state/team-b/network", lock_info("x")),
        ("UNLOCK", "state/team-b/network", lock_info("x")),
        ("UNLOCK", "state/team-b/network", String::new()),
        ("GET", "state/team-b/network/default", String::new()),
        ("GET", leak(format!("states?{key}")), String::new()),
        ("PUT", leak(format!("states?{key}")), state()),
        ("POST", leak(format!("states/restore?{key}&version={version}")), String::new()),
        ("POST", leak(format!("states/unlock?{key}&id=x")), String::new()),
        ("POST", leak(format!("states/undelete?{key}")), String::new()),
        ("POST", "leases/team-b/network?id=x&workspace=default", lease),
        ("GET", "leases/team-b/network", String::new()),
        ("PUT", "leases/team-b/network?id=x", String::new()),
        ("DELETE", "leases/team-b/network?id=x", String::new()),
        ("PUT", "tools/team-b/network", tool),
        ("GET", "tools/team-b/network", String::new()),
    ]
}

async fn ask(
    datastore: &TestDatastore,
    method: &str,
    rest: &str,
    token: &str,
    body: &str,
) -> Answer {
    let method = Method::from_bytes(method.as_bytes()).unwrap();
    let request = request(datastore, method, rest).header("authorization", token);
    send(request.body(body.to_owned())).await
}

fn is_of_lease(rest: &str) -> bool {
    rest.starts_with("leases") || rest.starts_with("tools")
}

/// A datastore with three accounts, and with this rule of isolation.
async fn with_accounts(isolation: Isolation, policy: Policy) -> (TestDatastore, FakeTokenReviews) {
    let kube = FakeTokenReviews::start().await;
    for account in ["team-a/runner", "team-b/runner", "burrito-system/burrito-controllers"] {
        kube.account(account, &format!("token of {account}"));
    }
    let kubernetes = Some(Kubernetes { isolation, ..kubernetes(&kube) });
    let callers = Callers { tokens: true, kubernetes, policy, ..Callers::default() };
    (TestDatastore::guarded(Auth::Callers(Box::new(callers))).await, kube)
}

#[tokio::test]
async fn no_default_right_includes_a_state_and_only_the_own_namespace_includes_leases() {
    for isolation in [Isolation::Namespace, Isolation::Burrito] {
        let (datastore, _kube) = with_accounts(isolation, Policy::default()).await;
        for (method, rest, body) in requests() {
            for token in [A, B, CONTROLLERS] {
                let answer = ask(&datastore, method, rest, token, &body).await;
                let may = is_of_lease(rest) && token == B;
                assert_eq!(
                    answer.status == 403,
                    !may,
                    "{isolation:?} {token}: {method} {rest}: {answer:?}"
                );
            }
        }
        // The account has the lease, and no credential for the state.
        let (_, _, body) = requests().swap_remove(15);
        let granted =
            ask(&datastore, "POST", "leases/team-b/network?id=y&workspace=default", B, &body).await;
        assert_eq!((granted.status, &granted.json()["credential"]), (200, &json!(null)));
    }
}

#[tokio::test]
async fn a_state_needs_a_rule_that_names_its_kind_and_verb() {
    let all = [Verb::Read, Verb::Write, Verb::Append, Verb::List, Verb::Delete, Verb::Admin];
    let mut policy = Policy::default();
    let mut caller = |kinds: &[&str], verbs: &[Verb]| {
        let (token, rule) = token(&format!("{kinds:?} {verbs:?}"), &["team-b"], kinds, verbs);
        policy.add(&rule).unwrap();
        token
    };
    let without_kinds = caller(&[], &all);
    let others = caller(&["plan", "log", "bundle", "artifact", "lease"], &all);
    let single =
        [Verb::Read, Verb::Write, Verb::Admin].map(|verb| (verb, caller(&["state"], &[verb])));
    let (datastore, _kube) = with_accounts(Isolation::Namespace, policy).await;
    for (method, rest, body) in requests() {
        let is_forbidden =
            async |token: &str| ask(&datastore, method, rest, token, &body).await.status == 403;
        assert_eq!(is_forbidden(&without_kinds).await, !is_of_lease(rest), "{method} {rest}");
        assert_eq!(is_forbidden(&others).await, !is_of_lease(rest), "{method} {rest}");
        if is_of_lease(rest) {
            continue;
        }
        let is_forced_unlock = method == "UNLOCK" && body.is_empty();
        let needed = match (method, rest) {
            ("DELETE", _) => Verb::Admin,
            ("POST", rest) if rest.contains("force=") || rest.starts_with("states/") => Verb::Admin,
            ("GET" | "HEAD", _) => Verb::Read,
            _ => Verb::Write,
        };
        for (verb, token) in &single {
            // It needs both: the right to unlock, and that to do so without an ID.
            let expected = *verb != needed || is_forced_unlock;
            assert_eq!(is_forbidden(token).await, expected, "{verb:?}: {method} {rest}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn no_spelling_of_a_path_reaches_the_state_of_another() {
    let mut policy = Policy::default();
    for namespace in ["team-a", "team-b"] {
        let rule = format!(
            "rules: [{{who: {{serviceaccount: {namespace}/runner}}, namespaces: [{namespace}], kinds: [state, lease], \
             verbs: [read, write, admin]}}]"
        );
        policy.add(&rule).unwrap();
    }
    let (datastore, _kube) = with_accounts(Isolation::Namespace, policy).await;
    let state = document("l", 1, "S3CRET");
    assert_eq!(ask(&datastore, "POST", "state/team-b/network", B, &state).await.status, 200);
    for rest in [
        "state/team-b/network",
        "state/team%2Db/network",
        "state/team-a/..%2F..%2Fteam-b%2Fnetwork",
        "state/team-a%2F..%2Fteam-b/network",
        "state/team-a/../team-b/network",
        "state/team-a/%2e%2e/team-b/network",
        "state/team-a/network/..%2F..%2F..%2Fteam-b%2Fnetwork%2Fdefault",
        "state/team-a/network?namespace=team-b",
        "state/team-b/network?namespace=team-a",
        "state/team-a/network?layer=..%2Fteam-b%2Fnetwork",
        "state/team-a/network/default?workspace=..%2Fteam-b",
        "state/team-a/%2e%2e",
        "state/team-a/network%00",
        "state//team-b/network",
        "state/TEAM-B/network",
        "states?namespace=team-a&namespace=team-b&layer=network",
        "states?namespace=team-a&layer=..%2Fteam-b%2Fnetwork",
        "states?namespace=team-a&layer=network&workspace=..%2F..%2Fteam-b%2Fnetwork%2Fdefault",
        "leases/team-a/..%2F..%2Fteam-b%2Fnetwork",
        "leases/team-b/network?namespace=team-a",
        "tools/team-a/%2e%2e%2fteam-b",
    ] {
        for method in ["GET", "HEAD", "POST", "PUT", "DELETE", "LOCK", "UNLOCK", "PATCH", "COPY"] {
            let body = document("l", 99, "overwritten");
            let answer = ask(&datastore, method, rest, A, &body).await;
            assert!([400, 403, 404, 405].contains(&answer.status), "{method} {rest}: {answer:?}");
            assert!(!String::from_utf8_lossy(&answer.body).contains("S3CRET"), "{method} {rest}");
            let unknown = ask(&datastore, method, rest, "rubbish", &body).await;
            assert!([401, 404].contains(&unknown.status), "{method} {rest}: {unknown:?}");
        }
    }
    assert_eq!(ask(&datastore, "GET", "state/team-b/network", B, "").await.text(), state);
}

#[tokio::test]
async fn a_made_up_credential_is_refused_alike_for_any_layer_and_reads_at_most_one_object() {
    let double = FakeCloud::start(Dialect::S3);
    let mut policy = Policy::default();
    let (ci, rule) = token("ci", &["team-b"], &["state", "lease"], &[Verb::Read, Verb::Write]);
    policy.add(&rule).unwrap();
    let callers = Callers { tokens: true, policy, ..Callers::default() };
    let auth = Auth::Callers(Box::new(callers));
    let datastore = TestDatastore::of(Config { auth, ..Config::of(double.impatient()) }).await;
    while get(&datastore, "../readyz").await.status != 200 {
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    for layer in ["network", "damaged"] {
        let rest = format!("state/team-b/{layer}");
        let written = ask(&datastore, "POST", &rest, &ci, &document("l", 1, "a")).await;
        assert_eq!(written.status, 200, "{written:?}");
    }
    double.put(".plancha/states/team-b/damaged/control", "{}");
    double.put("states/team-b/lost/default/fffa0b1c2d3e4f50-0123456789abcdef.tfstate", "{}");
    let of_form = format!("plancha-lease-{}", "A".repeat(43));
    let states = |line: &&String| line.contains("states/");
    for layer in ["network", "damaged", "lost", "absent"] {
        for (credential, reads) in [
            (&*of_form, 1),
            (&of_form[1..], 0),
            (&of_form[..of_form.len() - 1], 0),
            (&format!("{of_form}AA"), 0),
            (&of_form.replace("AAA", "A.A"), 0),
            ("plancha-lease-", 0),
        ] {
            let before = double.requests().len();
            let rest = format!("state/team-b/{layer}");
            let refused = ask(&datastore, "GET", &rest, credential, "").await;
            assert_eq!(refused.status, 401, "{layer} {credential}: {refused:?}");
            let requests = double.requests().split_off(before);
            let control = format!("GET .plancha/states/team-b/{layer}/control ");
            let asked = requests.iter().filter(states).collect::<Vec<_>>();
            assert!(
                asked.len() == reads && asked.iter().all(|line| line.starts_with(&control)),
                "{asked:?}"
            );
        }
    }
}
