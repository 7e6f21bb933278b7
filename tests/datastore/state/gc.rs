//! `gc` of states: which versions go, which stay, and beside a datastore that serves.

use std::fs::{File, FileTimes};
use std::path::Path;
use std::time::{Duration, SystemTime};

use datastore::cli::commands;
use datastore::cli::gc::select::Rules;
use datastore::config::{StorageCommand, StorageConfig};
use datastore::kind::Kind;
use datastore::store::Storage;
use datastore_api::Sha256;
use jiff::SignedDuration;
use reqwest::Method;
use serde_json::Value;
use support::{Dialect, FakeCloud, TestDatastore};

use super::documents::{STATE, document, lease, number, of, post, versions};
use crate::http::{files, get, request, send, stored};

const DAY: u64 = 24 * 3600;

/// Deletes at once, by no rule.
fn rules() -> Rules {
    Rules {
        keep_runs: None,
        keep_states: None,
        max_age: [].into(),
        min_age: Duration::ZERO,
        dry_run: false,
    }
}

fn keep(states: usize) -> Rules {
    Rules { keep_states: Some(states), ..rules() }
}

fn max_age(age: Duration) -> Rules {
    Rules { max_age: [(Kind::State, age)].into(), ..rules() }
}

async fn gc(storage: &Storage, rules: Rules) -> String {
    let (reported, result) = swept(storage, rules).await;
    assert_eq!(result, Ok(()), "{reported}");
    reported
}

/// What it prints, and its result.
async fn swept(storage: &Storage, rules: Rules) -> (String, Result<(), String>) {
    let mut reported = Vec::new();
    let config = StorageConfig::plain(storage.clone());
    let result = commands::run(&config, StorageCommand::Gc(rules), &mut reported).await;
    (String::from_utf8(reported).unwrap(), result.map_err(|error| error.to_string()))
}

/// The clock of a bucket shows whole seconds.
async fn a_second() {
    tokio::time::sleep(Duration::from_millis(1100)).await;
}

/// Datastores over a directory and over a bucket, with their storages.
async fn each() -> [(TestDatastore, Storage); 2] {
    let directory = TestDatastore::temporary().await;
    let bucket = TestDatastore::double(Dialect::S3).await;
    let storages = [Storage::File(directory.root()), bucket.cloud().storage()];
    let [first, second] = storages;
    [(directory, first), (bucket, second)]
}

/// All keys of a datastore that `part` is in.
fn keys(datastore: &TestDatastore, storage: &Storage, part: &str) -> Vec<String> {
    let all = match storage {
        Storage::File(root) => {
            files(root).iter().map(|path| path.to_string_lossy().into_owned()).collect()
        }
        _ => datastore.cloud().keys(),
    };
    all.into_iter().filter(|key| key.contains(part)).collect()
}

async fn snapshot(datastore: &TestDatastore, run: &str, body: String) {
    let rest = format!("states?namespace=team-a&layer=network&run={run}");
    let put = send(request(datastore, Method::PUT, &rest).body(body)).await;
    assert_eq!(put.status, 200, "{put:?}");
}

/// The serials of a listing.
fn serials(listed: &Value) -> Vec<u64> {
    let versions = listed["versions"].as_array().unwrap();
    versions.iter().map(|version| version["serial"].as_u64().unwrap()).collect()
}

async fn serials_of(datastore: &TestDatastore, kind: &str) -> Vec<u64> {
    serials(&versions(datastore, &format!("&kind={kind}")).await)
}

/// Five versions, three snapshots and two refused writes.
async fn history(datastore: &TestDatastore) {
    for serial in 1..=5 {
        let rest = format!("{STATE}?run=r{serial}/0");
        assert_eq!(post(datastore, &rest, &document("l", serial, "a")).await, 200);
    }
    for serial in 11..=13 {
        snapshot(datastore, &format!("r{serial}/0"), document("s", serial, "a")).await;
    }
    for serial in 1..=2 {
        assert_eq!(post(datastore, STATE, &document("l", serial, "b")).await, 409);
    }
}

#[tokio::test]
async fn the_last_versions_of_each_kind_are_kept() {
    for (datastore, storage) in each().await {
        history(&datastore).await;
        let before = keys(&datastore, &storage, "");
        let dry = gc(&storage, Rules { dry_run: true, ..keep(2) }).await;
        assert_eq!(keys(&datastore, &storage, ""), before);
        assert_eq!(dry.matches("would delete states/team-a/network/default/").count(), 4, "{dry}");
        assert_eq!(dry.matches("(it is not one of the last 2 versions)").count(), 3, "{dry}");
        assert_eq!(dry.matches("(it is not one of the last 2 snapshots)").count(), 1, "{dry}");
        assert!(dry.contains("4 of 10 artifacts would be deleted, "), "{dry}");

        let young = gc(&storage, Rules { min_age: Duration::from_hours(1), ..keep(1) }).await;
        assert!(young.contains("0 of 10 artifacts deleted"), "{young}");
        let deleted = gc(&storage, keep(2)).await;
        assert_eq!(
            deleted,
            dry.replace("would delete", "deleted").replace("would be deleted", "deleted")
        );
        assert_eq!(serials_of(&datastore, "head").await, [5, 4]);
        assert_eq!(serials_of(&datastore, "snapshot").await, [13, 12]);
        assert_eq!(serials_of(&datastore, "rejected").await, [2, 1]);
        assert_eq!(keys(&datastore, &storage, "/hashes/").len(), 2);

        let deleted = gc(&storage, keep(0)).await;
        assert!(deleted.contains("it is not one of the last 0 refused writes"), "{deleted}");
        assert_eq!(serials_of(&datastore, "head").await, [5]);
        assert_eq!(of(&datastore, "GET", STATE, "").await.text(), document("l", 5, "a"));
        let left = keys(&datastore, &storage, "states/");
        let left = left.iter().filter(|key| !key.ends_with("/control")).collect::<Vec<_>>();
        let of_control = |key: &&&String| !key.contains("sha256/") && !key.contains("/versions/");
        assert_eq!(left.iter().filter(of_control).count(), 1, "{left:?}");
        // A snapshot that was deleted is stored again.
        snapshot(&datastore, "r13/0", document("s", 13, "a")).await;
        assert_eq!(serials_of(&datastore, "snapshot").await, [13]);
        assert_eq!(post(&datastore, STATE, &document("l", 6, "a")).await, 200);
    }
}

#[tokio::test]
async fn the_last_version_of_a_good_apply_is_kept_with_its_record() {
    for (datastore, storage) in each().await {
        history(&datastore).await;
        for run in ["r2", "r3", "r11"] {
            let file = format!(
                "artifacts?namespace=team-a&layer=network&run={run}&attempt=0&name=applied.json"
            );
            stored(&datastore, &file, "{}").await;
        }
        stored(&datastore, "logs?namespace=team-a&layer=network&run=r3&attempt=0", "log").await;
        gc(&storage, Rules { keep_runs: Some(0), ..keep(1) }).await;
        // The state itself is of a run that has not applied.
        assert_eq!(serials_of(&datastore, "head").await, [5, 3]);
        assert_eq!(serials_of(&datastore, "snapshot").await, [13, 11]);
        assert_eq!(
            keys(&datastore, &storage, "layers/")
                .into_iter()
                .filter(|key| key.starts_with("layers"))
                .collect::<Vec<_>>(),
            ["layers/team-a/network/r11/0/applied.json", "layers/team-a/network/r3/0/applied.json"]
        );
        // The record is kept as long as the version, also by rules about runs alone.
        gc(&storage, Rules { keep_runs: Some(0), ..rules() }).await;
        a_second().await;
        gc(&storage, max_age(Duration::ZERO)).await;
        assert_eq!(serials_of(&datastore, "head").await, [5, 3]);
        assert_eq!(serials_of(&datastore, "snapshot").await, [11]);
    }
}

#[tokio::test]
async fn versions_that_were_replaced_are_deleted_by_their_age() {
    for (datastore, storage) in each().await {
        history(&datastore).await;
        assert!(
            gc(&storage, max_age(Duration::from_secs(DAY))).await.contains("0 of 10 artifacts")
        );
        a_second().await;
        let deleted = gc(&storage, max_age(Duration::ZERO)).await;
        assert!(deleted.contains("(it was replaced before the last 0s)"), "{deleted}");
        assert_eq!(serials_of(&datastore, "head").await, [5]);
        assert_eq!(serials_of(&datastore, "rejected").await, [0; 0]);
    }
}

#[tokio::test]
async fn documents_of_interrupted_writes_are_deleted_after_a_week() {
    let datastore = TestDatastore::temporary().await;
    history(&datastore).await;
    let directory = datastore.root().join("states/team-a/network/default");
    for (id, days) in
        [("fff0000000000000-0000000000000001", 6), ("fff0000000000000-0000000000000002", 8)]
    {
        let path = directory.join(format!("{id}.tfstate"));
        std::fs::write(&path, document("l", 9, "a")).unwrap();
        age(&path, days);
    }
    for file in files(&directory)
        .iter()
        .filter(|file| !file.to_string_lossy().starts_with("fff0000000000000"))
    {
        age(&directory.join(file), 100);
    }
    let rules = Rules { keep_states: Some(100), min_age: Duration::from_hours(1), ..rules() };
    let deleted = gc(&Storage::File(datastore.root()), rules).await;
    let line = "deleted states/team-a/network/default/fff0000000000000-0000000000000002.tfstate (an interrupted write has left it)\n";
    assert!(
        deleted.starts_with(line) && deleted.contains("1 of 12 artifacts deleted"),
        "{deleted}"
    );
    assert_eq!(serials_of(&datastore, "head").await, [5, 4, 3, 2, 1]);
    for version in versions(&datastore, "").await["versions"].as_array().unwrap() {
        let rest = format!("{STATE}?version={}", version["version"].as_str().unwrap());
        assert_eq!(of(&datastore, "GET", &rest, "").await.status, 200);
    }
}

fn age(path: &Path, days: u64) {
    let modified = SystemTime::now() - Duration::from_secs(days * DAY);
    let times = FileTimes::new().set_modified(modified);
    File::options().write(true).open(path).unwrap().set_times(times).unwrap();
}

/// Makes what a directory has of states that many days older: ids, and times in control objects.
fn backdate(root: &Path, days: u64) {
    let micros = days * DAY * 1_000_000;
    let old = |text: &str| {
        let mut parts = Vec::new();
        // Only times of ids have 16 hex digits before a `-`.
        for part in text.split('-') {
            let (before, digits) = part.split_at(part.len().saturating_sub(16));
            match u64::from_str_radix(digits, 16) {
                Ok(time) if digits.starts_with("fff") => {
                    parts.push(format!("{before}{:016x}", time + micros));
                }
                _ => parts.push(part.to_owned()),
            }
        }
        parts.join("-")
    };
    for file in files(root) {
        let name = file.to_string_lossy().into_owned();
        if !name.contains("states/") {
            continue;
        }
        let path = root.join(&file);
        if name.starts_with(".plancha/states/") {
            let text = std::fs::read_to_string(&path).unwrap();
            // The first line of a control object is the digest of the second.
            let is_control = name.ends_with("/control");
            let text = text.split_once('\n').filter(|_| is_control).map_or(&*text, |lines| lines.1);
            let mut text = old(text);
            if let Ok(mut control) = serde_json::from_str::<Value>(&text)
                && let Some(states) = control["states"].as_object_mut()
            {
                for state in states.values_mut().filter(|state| state["deleted"].is_string()) {
                    let deleted: jiff::Timestamp =
                        state["deleted"].as_str().unwrap().parse().unwrap();
                    let hours = i64::try_from(days * 24).unwrap();
                    let deleted = deleted - SignedDuration::from_hours(hours);
                    state["deleted"] = deleted.to_string().into();
                }
                text = control.to_string();
            }
            if let Ok(Value::Object(mut described)) = serde_json::from_str(&text)
                && described.remove("description_sha256").is_some()
            {
                // As an earlier release has written it.
                text = Value::from(described).to_string();
            }
            if is_control {
                text = format!("{}\n{text}", Sha256::of(text.as_bytes()));
            }
            std::fs::write(&path, text).unwrap();
        }
        std::fs::rename(&path, root.join(old(&name))).unwrap();
    }
}

#[tokio::test]
async fn a_deleted_state_goes_completely_30_days_later_if_the_rules_ask_for_it() {
    let serving = TestDatastore::temporary().await;
    let (root, storage) = (serving.root(), Storage::File(serving.root()));
    assert_eq!(number(&lease(&serving, "a").await), 1);
    assert_eq!(of(&serving, "DELETE", "leases/team-a/network?id=a", "").await.status, 200);
    history(&serving).await;
    assert_eq!(post(&serving, &format!("{STATE}/blue"), &document("l", 1, "a")).await, 200);
    assert_eq!(of(&serving, "DELETE", STATE, "").await.status, 200);

    backdate(&root, 29);
    let kept = gc(&storage, Rules { keep_states: Some(0), ..max_age(Duration::ZERO) }).await;
    assert!(kept.contains("0 of 11 artifacts deleted"), "nothing of a deleted state: {kept}");
    backdate(&root, 2);
    let old = gc(&storage, max_age(Duration::from_secs(40 * DAY))).await;
    assert!(old.contains("0 of 11 artifacts deleted"), "{old}");
    let dry = gc(&storage, Rules { dry_run: true, ..max_age(Duration::from_secs(DAY)) }).await;
    assert!(
        dry.starts_with("would delete the state team-a/network/default (it was deleted at "),
        "{dry}"
    );
    assert!(dry.contains("10 of 11 artifacts would be deleted"), "{dry}");

    // The datastore that serves has the lock of the directory.
    let beside = gc(&storage, max_age(Duration::from_secs(DAY))).await;
    let line = "kept the deleted state team-a/network/default: another process serves the states of this directory";
    assert!(beside.contains(line), "{beside}");
    let undelete = "states/undelete?namespace=team-a&layer=network";
    assert_eq!(post(&serving, undelete, "").await, 200);
    assert_eq!(of(&serving, "GET", STATE, "").await.text(), document("l", 5, "a"));
    assert_eq!(of(&serving, "DELETE", STATE, "").await.status, 200);
    backdate(&root, 31);

    let copied = tempfile::TempDir::new().unwrap();
    for file in files(&root).iter().filter(|file| !file.ends_with("states.lock")) {
        let target = copied.path().join(file);
        std::fs::create_dir_all(target.parent().unwrap()).unwrap();
        std::fs::copy(root.join(file), target).unwrap();
    }
    let storage = Storage::File(copied.path().to_owned());
    let deleted = gc(&storage, max_age(Duration::from_secs(DAY))).await;
    assert!(deleted.starts_with("deleted the state team-a/network/default"), "{deleted}");
    let left = files(copied.path());
    let left =
        left.iter().map(|path| path.to_string_lossy()).filter(|path| path.contains("/default/"));
    assert_eq!(left.collect::<Vec<_>>(), [""; 0]);

    // Nothing of another state has gone, and the numbers of leases still rise.
    let datastore = TestDatastore::with(storage.clone()).await;
    assert_eq!(post(&datastore, undelete, "").await, 404);
    assert_eq!(of(&datastore, "GET", STATE, "").await.status, 404);
    assert_eq!(of(&datastore, "GET", &format!("{STATE}/blue"), "").await.status, 200);
    assert_eq!(number(&lease(&datastore, "b").await), 2);
}

#[tokio::test]
async fn a_deleted_state_of_a_bucket_goes_beside_a_serving_datastore() {
    // S3 refuses requests of another time.
    let cloud = FakeCloud::start(Dialect::Gcs);
    // Ids and times are those of the storage.
    cloud.clock(SignedDuration::from_hours(-31 * 24));
    let datastore = TestDatastore::over(cloud).await;
    history(&datastore).await;
    assert_eq!(post(&datastore, &format!("{STATE}/blue"), &document("l", 1, "a")).await, 200);
    assert_eq!(of(&datastore, "DELETE", STATE, "").await.status, 200);
    let cloud = datastore.cloud();
    cloud.clock(SignedDuration::ZERO);
    assert!(gc(&cloud.storage(), keep(100)).await.contains("0 of 11 artifacts deleted"));
    let deleted = gc(&cloud.storage(), max_age(Duration::from_secs(DAY))).await;
    assert!(deleted.contains("deleted the state team-a/network/default"), "{deleted}");
    assert!(deleted.contains("10 of 11 artifacts deleted"), "{deleted}");
    assert!(!cloud.keys().iter().any(|key| key.contains("states") && key.contains("/default/")));
    assert_eq!(of(&datastore, "GET", STATE, "").await.status, 404);
    assert_eq!(of(&datastore, "GET", &format!("{STATE}/blue"), "").await.status, 200);
}

#[tokio::test]
async fn states_whose_control_object_is_damaged_are_kept() {
    let datastore = TestDatastore::temporary().await;
    history(&datastore).await;
    assert_eq!(post(&datastore, "state/team-b/x", &document("l", 1, "a")).await, 200);
    assert_eq!(post(&datastore, "state/team-b/x", &document("l", 2, "a")).await, 200);
    let control = datastore.root().join(".plancha/states/team-a/network/control");
    for damage in [Some("{"), None] {
        match damage {
            Some(damage) => std::fs::write(&control, damage).unwrap(),
            None => std::fs::remove_file(&control).unwrap(),
        }
        let (reported, result) = swept(&Storage::File(datastore.root()), keep(0)).await;
        assert!(result.unwrap_err().starts_with("the states of 1 layer cannot be read"));
        assert!(reported.starts_with("kept the states of team-a/network: "), "{reported}");
        assert!(!reported.contains("deleted states/team-a/"), "{reported}");
    }
    let listed = versions_of(&datastore, "team-b", "x").await;
    assert_eq!(serials(&listed), [2]);
}

#[tokio::test]
async fn a_damaged_description_or_control_object_leaves_the_good_versions_of_all_workspaces() {
    for damaged in ["control", "workspaces/default/versions"] {
        let datastore = TestDatastore::temporary().await;
        let storage = Storage::File(datastore.root());
        for layer in ["network", "other"] {
            let name = format!("team-a/{layer}");
            for state in [format!("state/{name}"), format!("state/{name}/zone")] {
                for serial in 1..=3 {
                    let rest = format!("{state}?run=r{serial}/0");
                    assert_eq!(post(&datastore, &rest, &document("l", serial, "a")).await, 200);
                }
            }
            for (run, file) in [(1, "applied.json"), (1, "x.txt"), (2, "x.txt"), (3, "x.txt")] {
                let file = format!(
                    "artifacts?namespace=team-a&layer={layer}&run=r{run}&attempt=0&name={file}"
                );
                stored(&datastore, &file, "{}").await;
            }
        }
        let mut path = datastore.root().join(".plancha/states/team-a/network").join(damaged);
        if path.is_dir() {
            // The newest one.
            path.push(&files(&path)[0]);
        }
        let intact = std::fs::read(&path).unwrap();
        std::fs::write(&path, "damaged").unwrap();
        let rules = || Rules { keep_runs: Some(0), ..keep(1) };
        let (reported, result) = swept(&storage, rules()).await;
        assert!(result.unwrap_err().starts_with("the states of 1 layer cannot be read"));
        assert!(reported.contains("kept the states of team-a/network: "), "{reported}");
        assert!(reported.contains("deleted layers/team-a/other/r3/0/x.txt"), "{reported}");
        std::fs::write(&path, intact).unwrap();
        gc(&storage, rules()).await;
        for layer in ["network", "other"] {
            for workspace in ["default", "zone"] {
                let rest = format!("{layer}&workspace={workspace}");
                let listed = versions_of(&datastore, "team-a", &rest).await;
                assert_eq!(serials(&listed), [3, 1], "{damaged}: {rest}");
            }
        }
    }
}

async fn versions_of(datastore: &TestDatastore, namespace: &str, layer: &str) -> Value {
    let listed = get(datastore, &format!("states?namespace={namespace}&layer={layer}")).await;
    assert_eq!(listed.status, 200, "{listed:?}");
    listed.json()
}

#[tokio::test(flavor = "multi_thread")]
async fn writers_lose_nothing_beside_gc() {
    for (datastore, storage) in each().await {
        let sweeping = async {
            loop {
                gc(&storage, keep(0)).await;
            }
        };
        let writing = async {
            for serial in 1..=40 {
                assert_eq!(post(&datastore, STATE, &document("l", serial, "a")).await, 200);
                assert_eq!(
                    of(&datastore, "GET", STATE, "").await.text(),
                    document("l", serial, "a")
                );
            }
        };
        tokio::select! { () = sweeping => {} () = writing => {} }
        gc(&storage, keep(0)).await;
        assert_eq!(serials_of(&datastore, "head").await, [40]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn copy_that_a_rollback_of_a_migration_needs_stays() {
    for (datastore, storage) in each().await {
        for serial in 1..4 {
            snapshot(&datastore, &format!("r{serial}/0"), document("l", serial, "a")).await;
        }
        let listed = versions(&datastore, "").await;
        let oldest = listed["versions"][2].clone();
        let tool = |name: &str| serde_json::json!({"name": name, "version": "1.10.0"});
        let backup = serde_json::json!({
            "version": oldest["version"], "lineage": "l", "serial": 1, "sha256": oldest["sha256"],
        });
        let mut record = tool("tofu");
        record["migrations"] = serde_json::json!({"default": {
            "from": tool("terraform"), "to": tool("tofu"), "backup": backup, "started": "2026-01-01T00:00:00Z",
        }});
        let put = request(&datastore, Method::PUT, "tools/team-a/network");
        assert_eq!(send(put.body(record.to_string())).await.status, 200);
        let report = gc(&storage, keep(1)).await;
        assert_eq!(serials(&versions(&datastore, "").await), [3, 1], "{report}");
        // Without the migration it is like any other.
        let put = request(&datastore, Method::PUT, "tools/team-a/network");
        assert_eq!(send(put.body(tool("tofu").to_string())).await.status, 200);
        gc(&storage, keep(1)).await;
        assert_eq!(serials(&versions(&datastore, "").await), [3]);
    }
}
