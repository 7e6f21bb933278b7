//! `deploy/burrito`: values for Burrito's chart, and what the chart makes of them.

use datastore::Policy;
use serde_json::{Map, Value, json};

const README: &str = include_str!("../../../deploy/burrito/README.md");
const VALUES: &str = include_str!("../../../deploy/burrito/values.yaml");

/// The values, as Helm reads them.
pub(crate) fn values() -> Value {
    serde_saphyr::from_str(VALUES).unwrap()
}

/// `over` laid over `below`, key by key, as Helm does it.
fn merged(below: &mut Value, over: &Value) {
    let (Value::Object(below), Value::Object(over)) = (&mut *below, over) else {
        *below = over.clone();
        return;
    };
    for (key, value) in over {
        merged(below.entry(key).or_insert(Value::Null), value);
    }
}

/// The `config.yaml` that the chart writes for a release in `main` with these tenants, `more` being the
/// operator's own values: the defaults, the values, and what its template sets.
pub(crate) fn config(main: &str, tenants: &[&str], more: &Value) -> Value {
    let mut all = json!({
        "config": {"burrito": {
            "controller": {
                "namespaces": [], "defaultSyncWindows": [], "maxConcurrentReconciles": 1,
                "timers": {"driftDetection": "10m", "repositorySync": "5m"},
                "types": ["layer", "repository", "run", "pullrequest"],
                "leaderElection": {"enabled": true, "id": "6d185457.terraform.padok.cloud"},
                "metricsBindAddress": ":8080", "kubernetesWebhookPort": 9443,
            },
            "hermitcrab": {},
            "datastore": {
                "serviceAccounts": [], "addr": ":8080",
                "hostname": "burrito-datastore.burrito-system.svc.cluster.local",
                "storage": {
                    "mock": false, "gcs": {"bucket": ""}, "s3": {"bucket": "", "usePathStyle": false},
                    "azure": {"storageAccount": "", "container": ""},
                },
            },
            "server": {"addr": ":8080", "basicAuth": {"enabled": true}},
            "runner": {"command": ["burrito"], "args": ["runner", "start"], "image": {"pullPolicy": "Always"}},
        }},
        "datastore": {"tls": {"enabled": false, "secretName": "burrito-datastore-tls"}},
        "hermitcrab": {"enabled": false},
    });
    merged(&mut all, &values());
    merged(&mut all, more);
    let mut config = all["config"]["burrito"].clone();
    config["controller"]["mainNamespace"] = main.into();
    config["controller"]["namespaces"] = tenants.into();
    let mut accounts =
        tenants.iter().map(|tenant| format!("{tenant}/burrito-runner")).collect::<Vec<_>>();
    accounts.extend([format!("{main}/burrito-controllers"), format!("{main}/burrito-server")]);
    config["datastore"]["serviceAccounts"] = accounts.into();
    config["datastore"]["tls"] = all["datastore"]["tls"]["enabled"].clone();
    config["datastore"]["certificateSecretName"] = "burrito-datastore-tls".into();
    config["hermitcrab"]["enabled"] = all["hermitcrab"]["enabled"].clone();
    config
}

/// Every value by its path.
fn leaves(path: &str, value: &Value, found: &mut Map<String, Value>) {
    match value {
        Value::Object(keys) => {
            for (key, value) in keys {
                leaves(&format!("{path}.{key}"), value, found);
            }
        }
        value => drop(found.insert(path.trim_start_matches('.').to_owned(), value.clone())),
    }
}

/// A key that the chart does not have changes nothing and is not refused, so they are written out here,
/// as the chart of v0.13.0 has them.
#[test]
fn the_values_change_two_images_and_nothing_else() {
    let mut found = Map::new();
    leaves("", &values(), &mut found);
    let expected = json!({
        "config.burrito.runner.image.repository": "plancha-runner",
        "config.burrito.runner.image.tag": "dev",
        "config.burrito.runner.image.pullPolicy": "IfNotPresent",
        "datastore.deployment.image.repository": "plancha-datastore",
        "datastore.deployment.image.tag": "dev",
        "datastore.deployment.image.pullPolicy": "IfNotPresent",
    });
    assert_eq!(Value::Object(found), expected);
}

#[test]
fn rule_in_the_readme_is_a_valid_policy() {
    let (_, rest) = README.split_once("<<END\n").unwrap();
    let (rules, _) = rest.split_once("END\n").unwrap();
    Policy::default().add(rules).unwrap();
}
