//! States, and requests for them.

use datastore::config::Config;
use datastore::store::{StateSettings, Storage};
use reqwest::Method;
use serde_json::{Value, json};
use support::TestDatastore;

use crate::http::{Answer, request, send};

pub(crate) const STATE: &str = "state/team-a/network";

/// A state document.
pub(crate) fn document(lineage: &str, serial: u64, content: &str) -> String {
    let resource = json!({"mode": "managed", "type": "terraform_data", "name": content});
    let state = json!({
        "version": 4,
        "terraform_version": "1.11.4",
        "serial": serial,
        "lineage": lineage,
        "outputs": {},
        "resources": [resource],
    });
    format!("{state:#}\n")
}

pub(crate) async fn of(datastore: &TestDatastore, method: &str, rest: &str, body: &str) -> Answer {
    let method = Method::from_bytes(method.as_bytes()).unwrap();
    send(request(datastore, method, rest).body(body.to_owned())).await
}

pub(crate) async fn post(datastore: &TestDatastore, rest: &str, body: &str) -> u16 {
    of(datastore, "POST", rest, body).await.status
}

/// The same datastore, as soon as it serves states: over a directory, one before it may not have ended yet.
pub(crate) async fn serving(datastore: TestDatastore) -> TestDatastore {
    for _ in 0..500 {
        if of(&datastore, "GET", STATE, "").await.status != 503 {
            return datastore;
        }
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    panic!("another datastore serves the states")
}

/// The information about a lock, as terraform sends it.
pub(crate) fn lock_info(id: &str) -> String {
    json!({"ID": id, "Operation": "OperationTypeApply", "Info": "", "Who": format!("user-{id}@host"), "Version": "1.11.4",
           "Created": "2026-11-26T12:00:00Z", "Path": ""})
    .to_string()
}

pub(crate) async fn lock(datastore: &TestDatastore, rest: &str, id: &str) -> Answer {
    of(datastore, "LOCK", rest, &lock_info(id)).await
}

pub(crate) async fn unlock(datastore: &TestDatastore, rest: &str, id: &str) -> Answer {
    of(datastore, "UNLOCK", rest, &lock_info(id)).await
}

/// Takes the lease of team-a's network.
pub(crate) async fn lease(datastore: &TestDatastore, id: &str) -> Answer {
    let request = json!({"holder": id, "host": "machine", "run": "apply-1/0"});
    of(
        datastore,
        "POST",
        &format!("leases/team-a/network?id={id}&workspace=default"),
        &request.to_string(),
    )
    .await
}

/// The number of a lease that was granted.
pub(crate) fn number(granted: &Answer) -> u64 {
    assert_eq!(granted.status, 200, "{granted:?}");
    granted.json()["lease"]["number"].as_u64().unwrap()
}

/// The versions of team-a's network.
pub(crate) async fn versions(datastore: &TestDatastore, more: &str) -> Value {
    let listed =
        of(datastore, "GET", &format!("states?namespace=team-a&layer=network{more}"), "").await;
    assert_eq!(listed.status, 200, "{listed:?}");
    listed.json()
}

/// A datastore whose leases expire soon.
pub(crate) async fn hasty(storage: Storage) -> TestDatastore {
    let lease_ttl = std::time::Duration::from_millis(400);
    let states = StateSettings { lease_ttl, ..StateSettings::default() };
    TestDatastore::of(Config { states, ..Config::of(storage) }).await
}

/// Waits until a lease of a [`hasty`] datastore has expired.
pub(crate) async fn expiry() {
    tokio::time::sleep(std::time::Duration::from_millis(600)).await;
}
