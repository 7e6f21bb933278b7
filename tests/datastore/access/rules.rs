//! DS27 for accounts and rules: each gives access to exactly what it names.

use datastore::{Auth, Callers, Policy, Verb};
use reqwest::Method;
use support::TestDatastore;

use super::tenants::{Operation, operations};
use crate::access::authentication::{A, B, CONTROLLERS, asked, guarded, status, token};
use crate::http::RUN;

#[tokio::test]
async fn ds27_account_accesses_its_namespace_and_controllers_access_all() {
    let (datastore, _kube) = guarded().await;
    let mut operations = operations(&datastore).await;
    // What is written comes first.
    operations.sort_by_key(|operation| operation.method != Method::PUT);
    for operation in &operations {
        let Operation { method, path, url } = operation;
        let is_bundle = path == "/api/repository/revision/bundle";
        let at_home = match (path.as_str(), is_bundle && *method == Method::PUT) {
            ("/api/encrypt", _) | (_, true) => 403,
            _ => allowed(operation),
        };
        let everywhere = if path == "/api/encrypt" { 400 } else { allowed(operation) };
        let of =
            async |method: &Method, token| status(&datastore, method.clone(), url, token).await;
        assert_eq!(of(method, CONTROLLERS).await, everywhere, "{method} {url}");
        assert_eq!(of(method, B).await, at_home, "{method} {url}");
        assert_eq!(of(method, A).await, 403, "{method} {url}");
        if *method == Method::GET {
            assert_eq!(of(&Method::HEAD, B).await, allowed(operation), "{url}");
            assert_eq!(of(&Method::HEAD, A).await, 403, "{url}");
        }
    }
    let refusal = async |path: &str| {
        let operation = operations.iter().find(|one| one.path == path).unwrap();
        asked(&datastore, Method::GET, &operation.url, A).await.refusal()
    };
    insta::assert_snapshot!(refusal("/api/plans").await, @"403 text/plain; charset=UTF-8 serviceaccount team-a/runner may not read `json` in the namespace `team-b`; a rule in the datastore's policy (PLANCHA_POLICY) can allow it");
    insta::assert_snapshot!(refusal("/api/attempts").await, @r#"403 application/problem+json {"type":"about:blank","title":"Forbidden","status":403,"detail":"serviceaccount team-a/runner may not list runs and attempts in the namespace `team-b`; a rule with the verb `list` for any kind but `bundle` in the datastore's policy (PLANCHA_POLICY) can allow it"}"#);
}

/// The status of an operation that the caller may use. What is stored as a plan is none.
fn allowed(operation: &Operation) -> u16 {
    if operation.path == "/api/changes" { 422 } else { 200 }
}

/// Kind and verb that an operation needs; no kind for a listing, nothing for what needs everything.
fn needs(operation: &Operation) -> Option<(Option<&'static str>, Verb)> {
    let verb = if operation.method == Method::PUT { Verb::Write } else { Verb::Read };
    let format = |name: &str| operation.url.contains(&format!("format={name}"));
    Some(match operation.path.as_str() {
        "/api/plans" => {
            (["bin", "json", "pretty", "short"].into_iter().find(|name| format(name)), verb)
        }
        "/api/logs" if operation.method == Method::POST => (Some("log"), Verb::Append),
        "/api/logs" => (Some("log"), verb),
        "/api/artifacts" => (Some("artifact"), verb),
        "/api/repository/revision/bundle" => (Some("bundle"), verb),
        "/api/attempts" if operation.method == Method::POST => (Some("artifact"), Verb::Write),
        "/api/applied" => (Some("artifact"), verb),
        "/api/documents" if operation.method == Method::DELETE => (Some("status"), Verb::Write),
        "/api/documents" => (Some("status"), verb),
        "/api/statuses" | "/api/metrics" => (Some("status"), Verb::List),
        "/api/approvals" if operation.method == Method::GET => (None, Verb::List),
        "/api/approvals" | "/api/approvals/claim" => (Some("artifact"), Verb::Write),
        "/api/attempts" | "/api/runs" | "/api/layers" => (None, Verb::List),
        "/api/changes" => (Some("json"), verb),
        "/api/encrypt" => return None,
        other => panic!("what does {other} need?"),
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn ds27_rule_for_one_kind_and_verb_allows_only_that() {
    let kinds = [
        "plan", "bin", "json", "pretty", "short", "log", "bundle", "artifact", "status", "outputs",
    ];
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
                // Who may store a log may append to it.
                let appends = needed == Verb::Append && *verb == Verb::Write;
                (needed == *verb || appends) && fits
            });
            let expected = if may { allowed(operation) } else { 403 };
            let reported = status(&datastore, method.clone(), url, token).await;
            assert_eq!(reported, expected, "{kind} {verb:?}: {method} {url}");
            let elsewhere = url.replace("team-b", "team-c");
            let reported = status(&datastore, method.clone(), &elsewhere, token).await;
            assert_eq!(reported, 403, "{kind} {verb:?}: {method} {elsewhere}");
        }
    }
}

/// Outputs are as secret as a state: only a rule that names them includes them, as in the namespace of an account.
#[tokio::test]
async fn outputs_need_a_rule_that_names_them() {
    let mut policy = Policy::default();
    let verbs = [Verb::Read, Verb::Write, Verb::List];
    let mut of = |name: &str, kinds: &[&str]| {
        let (secret, rule) = token(name, &["*"], kinds, &verbs);
        policy.add(&rule).unwrap();
        secret
    };
    let (all, status_only) = (of("all", &[]), of("status", &["status"]));
    let outputs = of("outputs", &["outputs"]);
    let kube = support::FakeTokenReviews::start().await;
    kube.account("team-b/runner", B);
    kube.account("burrito-system/burrito-controllers", CONTROLLERS);
    let kubernetes = Some(crate::access::authentication::kubernetes(&kube));
    let callers = Callers { tokens: true, policy, kubernetes, ..Callers::default() };
    let datastore = TestDatastore::guarded(Auth::Callers(Box::new(callers))).await;
    for (token, of_status, of_outputs) in [
        (&*all, 200, 403),
        (&*status_only, 200, 403),
        (&*outputs, 403, 200),
        (CONTROLLERS, 200, 403),
        (B, 200, 200),
        (A, 401, 401),
    ] {
        for (name, expected) in
            [("status.json", of_status), ("outputs.json", of_outputs), ("graph.json", of_outputs)]
        {
            let url = format!("documents?namespace=team-b&layer=network&name={name}");
            for method in [Method::PUT, Method::GET, Method::HEAD, Method::DELETE] {
                let reported = status(&datastore, method.clone(), &url, token).await;
                assert_eq!(reported, expected, "{token} {method} {name}");
            }
        }
    }
}

/// A snapshot and a state are as secret as a plan.
#[tokio::test]
async fn files_of_an_attempt_need_the_right_for_their_own_kind() {
    let mut policy = Policy::default();
    let of = ["artifact", "workspace", "bin", "plan"].map(|kind| {
        let (secret, rule) = token(kind, &["*"], &[kind], &[Verb::Read, Verb::Write]);
        policy.add(&rule).unwrap();
        secret
    });
    let callers = Callers { tokens: true, policy, ..Callers::default() };
    let datastore = TestDatastore::guarded(Auth::Callers(Box::new(callers))).await;
    for (name, allowed) in [
        ("run.json", [true, false, false, false]),
        ("workspace.tar.zst", [false, true, false, true]),
        ("errored.tfstate", [false, false, true, true]),
    ] {
        let file = format!("artifacts?{RUN}&attempt=0&name={name}");
        for method in [Method::PUT, Method::GET] {
            for (token, is_allowed) in of.iter().zip(allowed) {
                let status = status(&datastore, method.clone(), &file, token).await;
                assert_eq!(status, if is_allowed { 200 } else { 403 }, "{method} {name}");
            }
        }
    }
}
