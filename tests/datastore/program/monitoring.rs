//! `deploy/monitoring`: alerts and a dashboard, of metrics that there are.

#![expect(clippy::disallowed_types, reason = "promtool is the judge")]

use std::collections::BTreeSet;
use std::process::Command;

use datastore_api::status::metrics::{NAMES, PREFIX};
use serde_json::Value;
use support::{Dialect, TestDatastore};

use crate::http::{CLIENT, RUN, get, send, stored};

const ALERTS: &str = include_str!("../../../deploy/monitoring/alerts.yaml");
const TESTS: &str = include_str!("../../../deploy/monitoring/alerts_test.yaml");
const DASHBOARD: &str = include_str!("../../../deploy/monitoring/dashboard.json");

/// What the page of a datastore has only with TLS.
const WITH_TLS: &str = "datastore_certificate_expiry_timestamp_seconds";

/// The names of metrics in a text: words that begin with a prefix of ours.
fn names(text: &str) -> impl Iterator<Item = &str> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    words.filter(|word| word.starts_with("plancha_") || word.starts_with("datastore_"))
}

/// The rules: name and expression.
fn rules() -> Vec<(String, String)> {
    let alerts: Value = serde_saphyr::from_str(ALERTS).unwrap();
    let groups = alerts["groups"].as_array().unwrap().iter();
    let rules = groups.flat_map(|group| group["rules"].as_array().unwrap());
    let text = |rule: &Value, key: &str| rule[key].as_str().unwrap().to_owned();
    rules.map(|rule| (text(rule, "alert"), text(rule, "expr"))).collect()
}

/// Every expression of the dashboard.
fn expressions(value: &Value, found: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            for (key, value) in fields {
                match value.as_str() {
                    Some(text) if ["expr", "query", "definition"].contains(&&**key) => {
                        found.push(text.to_owned());
                    }
                    _ => expressions(value, found),
                }
            }
        }
        Value::Array(values) => values.iter().for_each(|value| expressions(value, found)),
        _ => {}
    }
}

#[tokio::test]
async fn every_metric_of_an_alert_or_a_panel_is_exported() {
    let datastore = TestDatastore::double(Dialect::S3).await;
    stored(&datastore, &format!("plans?{RUN}&attempt=0"), "{}").await;
    get(&datastore, &format!("plans?{RUN}&attempt=0")).await;
    let page = send(CLIENT.get(datastore.url.join("metrics").unwrap())).await.text();
    let families = page.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next());
    let mut exported = families.map(str::to_owned).collect::<BTreeSet<_>>();
    exported.extend(NAMES.map(|name| format!("{PREFIX}_{name}")));
    exported.insert(WITH_TLS.to_owned());
    let mut used = rules().into_iter().map(|(_, expression)| expression).collect::<Vec<_>>();
    let dashboard: Value = serde_json::from_str(DASHBOARD).unwrap();
    expressions(&dashboard, &mut used);
    let used = used.iter().flat_map(|text| names(text)).collect::<BTreeSet<_>>();
    assert!(used.len() > 25, "{used:?}");
    for name in used {
        let family = name.strip_suffix("_bucket").unwrap_or(name);
        assert!(exported.contains(family), "no page has {name}: {exported:?}");
    }
}

#[test]
fn every_alert_has_a_test_in_which_it_fires_and_one_in_which_it_does_not() {
    let tests: Value = serde_saphyr::from_str(TESTS).unwrap();
    let tests = tests["tests"].as_array().unwrap().iter();
    let cases = tests.flat_map(|test| test["alert_rule_test"].as_array().unwrap());
    let cases = cases
        .map(|case| {
            (case["alertname"].as_str().unwrap(), case["exp_alerts"] != Value::Array(vec![]))
        })
        .collect::<BTreeSet<_>>();
    for (alert, _) in rules() {
        for fires in [true, false] {
            assert!(cases.contains(&(alert.as_str(), fires)), "{alert}, fires: {fires}");
        }
    }
}

#[test]
#[ignore = "needs promtool"]
fn promtool_accepts_the_alerts_and_their_tests() {
    let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/../deploy/monitoring");
    for arguments in [["check", "rules", "alerts.yaml"], ["test", "rules", "alerts_test.yaml"]] {
        let output =
            Command::new("promtool").args(arguments).current_dir(directory).output().unwrap();
        let said = [output.stdout, output.stderr].concat();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&said));
    }
}
