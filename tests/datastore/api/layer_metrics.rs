//! `/api/metrics`: the statuses of a namespace as metrics.

#![expect(clippy::disallowed_types, reason = "promtool is the judge")]

use std::io::Write as _;
use std::process::{Command, Stdio};

use datastore::{Auth, Callers, Policy, Verb};
use reqwest::Method;
use support::TestDatastore;

use super::documents::{status, store_status};
use crate::access::authentication::{asked, token};
use crate::http::{get, request, send, stored};

async fn page(datastore: &TestDatastore, more: &str) -> String {
    let answer = get(datastore, &format!("metrics?namespace=team-a{more}")).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    assert_eq!(answer.header("content-type"), Some("text/plain; version=0.0.4; charset=utf-8"));
    answer.text()
}

#[tokio::test]
async fn a_page_has_every_layer_of_its_namespace_and_a_deleted_one_disappears() {
    for datastore in TestDatastore::each().await {
        store_status(&datastore, "network", "changed").await;
        store_status(&datastore, "gone", "ok").await;
        let mut node = status("absent");
        node["metric"] = "node_status{node_group=worker,name=w-1}".into();
        let url = "documents?namespace=team-a&layer=w-1&name=status.json";
        stored(&datastore, url, node.to_string()).await;
        let elsewhere = "documents?namespace=team-b&layer=x&name=status.json";
        stored(&datastore, elsewhere, status("ok").to_string()).await;
        let text = page(&datastore, "").await;
        for line in [
            r#"plancha_layer_status{layer="network",namespace="team-a",status="changed"} 1"#,
            r#"plancha_layer_status{layer="gone",namespace="team-a",status="ok"} 1"#,
            "plancha_exporter_errors 0",
        ] {
            assert!(text.lines().any(|there| there == line), "{line}\n{text}");
        }
        assert!(!text.contains("team-b"));
        let deleted = "documents?namespace=team-a&layer=gone&name=status.json";
        assert_eq!(send(request(&datastore, Method::DELETE, deleted)).await.status, 200);
        let text = page(&datastore, "&prefix=candi_converge").await;
        assert!(!text.contains("gone") && !text.contains("\nplancha"), "{text}");
        let line = r#"candi_converge_node_group_status{name="worker",status="absent"} 1"#;
        assert!(text.lines().any(|there| there == line), "{text}");
    }
}

#[tokio::test]
async fn unreadable_statuses_are_counted_and_do_not_hide_others() {
    let datastore = TestDatastore::memory().await;
    store_status(&datastore, "network", "ok").await;
    let url = "documents?namespace=team-a&layer=broken&name=status.json";
    stored(&datastore, url, "{").await;
    for errors in 1..4 {
        let text = page(&datastore, "").await;
        assert!(text.contains(&format!("\nplancha_exporter_errors {errors}\n")), "{text}");
        assert!(text.contains("layer=\"network\"") && !text.contains("broken"));
    }
    // Those of another namespace are not counted here.
    let other = get(&datastore, "metrics?namespace=team-b").await.text();
    assert!(other.contains("\nplancha_exporter_errors 0\n"), "{other}");
}

#[tokio::test]
async fn a_scrape_needs_only_the_right_to_list_statuses() {
    let mut policy = Policy::default();
    let [scraper, reader] = [("scraper", Verb::List), ("reader", Verb::Read)].map(|(id, verb)| {
        let (secret, rule) = token(id, &["team-a"], &["status"], &[verb]);
        policy.add(&rule).unwrap();
        secret
    });
    let callers = Callers { tokens: true, policy, ..Callers::default() };
    let datastore = TestDatastore::guarded(Auth::Callers(Box::new(callers))).await;
    for (token, rest, expected) in [
        (&*scraper, "metrics?namespace=team-a", 200),
        (&scraper, "statuses?namespace=team-a", 200),
        (&scraper, "metrics?namespace=team-b", 403),
        (&scraper, "documents?namespace=team-a&layer=a&name=status.json", 403),
        (&reader, "metrics?namespace=team-a", 403),
        ("nobody", "metrics?namespace=team-a", 401),
    ] {
        let answer = asked(&datastore, Method::GET, rest, token).await;
        assert_eq!(answer.status, expected, "{token} {rest}");
    }
}

#[tokio::test]
#[ignore = "needs promtool"]
async fn promtool_accepts_the_page_but_for_the_name_that_deckhouse_reads() {
    let datastore = TestDatastore::memory().await;
    for (layer, metric) in
        [("base", "cluster_status"), ("w-1", "node_status{node_group=worker,name=w-1}")]
    {
        let mut status = status("changed");
        status["metric"] = metric.into();
        status["locked_since"] = "2026-01-02T03:04:05Z".into();
        status["state_bytes"] = 1.into();
        status["tool"] = serde_json::json!({"name": "tofu", "version": "1.9.0"});
        let url = format!("documents?namespace=team-a&layer={layer}&name=status.json");
        stored(&datastore, &url, status.to_string()).await;
    }
    for prefix in ["plancha", "candi_converge"] {
        let page = page(&datastore, &format!("&prefix={prefix}")).await;
        let mut child = Command::new("promtool")
            .args(["check", "metrics"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all(page.as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        let said = [output.stdout, output.stderr].concat();
        let said = String::from_utf8(said).unwrap();
        let expected =
            format!("{prefix}_exporter_errors counter metrics should have \"_total\" suffix");
        assert_eq!(said.trim(), expected, "{page}");
    }
}
