//! `POST /api/encrypt`: plain objects are encrypted on request.

use std::collections::BTreeMap;

use datastore::cli::commands;
use datastore::cli::gc::select::Rules;
use datastore::config::{StorageCommand, StorageConfig};
use datastore::kind::Kind;
use futures::TryStreamExt as _;
use jiff::SignedDuration;

use super::*;

const ORDER: &str = "{\"encryptionKey\":\"test-encryption-key\"}";

/// The answer to a request to encrypt everything.
async fn encrypt(datastore: &TestDatastore, body: &str) -> crate::http::Answer {
    send(request(datastore, Method::POST, "encrypt").body(body.to_owned())).await
}

#[tokio::test]
async fn ds22_encrypt_request_is_refused_like_burritos() {
    let refusals = async |at_rest: AtRest| {
        let config = Config { at_rest, ..Config::of(Storage::Memory) };
        let datastore = TestDatastore::of(config).await;
        let mut refusals = Vec::new();
        let wrong = ORDER.replace("test", "toast");
        for body in ["", "{", "[]", "{}", "{\"encryptionKey\":null}", &wrong, ORDER] {
            let answer = encrypt(&datastore, body).await;
            assert!(answer.text().ends_with("}\n"));
            refusals.push(answer.refusal());
        }
        refusals.dedup();
        refusals.join("\n")
    };
    insta::assert_snapshot!(refusals(AtRest::default()).await, @r#"
    400 application/json {"error":"Invalid JSON format"}
    400 application/json {"error":"encryptionKey is required"}
    500 application/json {"error":"No encryption key configured on server"}
    "#);
    insta::assert_snapshot!(refusals(AtRest { encrypts: false, ..sealed(KEY) }).await, @r#"
    400 application/json {"error":"Invalid JSON format"}
    400 application/json {"error":"encryptionKey is required"}
    401 application/json {"error":"Invalid encryption key"}
    400 application/json {"error":"Encryption is not enabled in configuration"}
    "#);
    let datastore =
        TestDatastore::of(Config { at_rest: sealed(KEY), ..Config::of(Storage::Memory) });
    let answer = encrypt(&datastore.await, &" ".repeat(1 << 20)).await;
    insta::assert_snapshot!(answer.refusal(), @r#"400 application/json {"error":"Failed to read request body"}"#);
}

#[tokio::test]
async fn states_and_documents_that_are_stored_in_plain_are_encrypted_on_request() {
    let root = TempDir::new().unwrap();
    let plain = over(&root, AtRest::default()).await;
    let state = r#"{"version": 4, "terraform_version": "1.9.8", "serial": 1, "lineage": "l", "outputs": {"a": {"value": "S3CRET", "type": "string"}}, "resources": []}"#;
    let document = "documents?namespace=team-a&layer=network&name=outputs.json";
    let applied = format!("applied?namespace=team-a&layer=network&plan={}", Sha256::of(b"a plan"));
    let write = async |method, url: &str| {
        let sent = send(request(&plain, method, url).body(state)).await;
        assert_eq!(sent.status, 200, "{url}: {}", sent.text());
    };
    write(Method::POST, "state/team-a/network").await;
    write(Method::PUT, document).await;
    write(Method::PUT, &applied).await;
    drop(plain);
    let with_secret = || {
        let has = |path: &&std::path::PathBuf| {
            let bytes = std::fs::read(root.path().join(path)).unwrap();
            bytes.windows(6).any(|six| six == b"S3CRET")
        };
        files(root.path()).iter().filter(has).count()
    };
    assert_eq!(with_secret(), 3);
    let datastore = over(&root, sealed(KEY)).await;
    let datastore = crate::state::documents::serving(datastore).await;
    let answer = encrypt(&datastore, ORDER).await;
    assert!(
        answer.status == 200 && answer.text().contains("3 files encrypted"),
        "{}",
        answer.text()
    );
    assert_eq!(with_secret(), 0);
    for url in ["state/team-a/network", document, &applied] {
        assert_eq!(get(&datastore, url).await.text(), state, "{url}");
    }
    let second = state.replace("\"serial\": 1", "\"serial\": 2");
    let next = send(request(&datastore, Method::POST, "state/team-a/network").body(second)).await;
    assert_eq!(next.status, 200, "{}", next.text());
}

#[tokio::test]
async fn ds22_plain_objects_are_encrypted_once_and_read_unchanged() {
    for (storage, double, root) in storages() {
        let config = |at_rest| Config { at_rest, ..Config::of(storage.clone()) };
        let large = (
            format!("plans?{RUN}&attempt=1&format=bin"),
            [b"PK\x03\x04".to_vec(), noise(9 * MIB, 4)].concat(),
        );
        let mut contents =
            kinds().into_iter().map(|(url, _, plain)| (url, plain)).collect::<Vec<_>>();
        contents.push(large);
        if matches!(storage, Storage::Memory) {
            continue;
        }
        let plain = TestDatastore::of(config(AtRest::default())).await;
        for (url, content) in &contents {
            stored(&plain, url, content.clone()).await;
        }
        let datastore = TestDatastore::of(config(sealed(KEY))).await;
        let tags = async || {
            let mut tags = Vec::new();
            for (url, content) in &contents {
                let answer = get(&datastore, url).await;
                assert!((answer.status, &answer.body) == (200, content), "{url}");
                tags.push(answer.header("repr-digest").unwrap().to_owned());
            }
            tags
        };
        let before = tags().await;
        let (first, second) = tokio::join!(encrypt(&datastore, ORDER), encrypt(&datastore, ORDER));
        let mut answers = [first.text(), second.text()];
        answers.sort();
        assert_eq!((first.status, second.status), (200, 200), "{answers:?}");
        assert_eq!(
            answers,
            [
                "{\"message\":\"Encryption process completed. 0 files encrypted.\",\"filesEncrypted\":0}\n",
                "{\"message\":\"Encryption process completed. 6 files encrypted.\",\"filesEncrypted\":6}\n",
            ]
        );
        assert_eq!(tags().await, before);
        let without = TestDatastore::of(config(AtRest::default())).await;
        for (url, content) in &contents {
            assert!(get(&without, url).await.body != *content, "{url} is still plain");
        }
        drop((double, root));
    }
}

#[tokio::test]
async fn ds22_objects_of_another_key_are_not_encrypted_again() {
    let root = TempDir::new().unwrap();
    let datastore = over(&root, sealed("another-key")).await;
    let mut before = Vec::new();
    for (_, key, content) in kinds() {
        let stored = encrypted_by_burrito(&content);
        write(&root, &key, &stored);
        before.push((key, stored));
    }
    // It does not look encrypted, and nothing shows that it is not.
    let (unknown, stored) = ("layers/team-a/network/plan-1/0/cache.db", vec![0; 96]);
    write(&root, unknown, &stored);
    before.push((unknown.to_owned(), stored));
    let answer = encrypt(&datastore, "{\"encryptionKey\":\"another-key\"}").await;
    assert_eq!((answer.status, answer.json()["filesEncrypted"].as_u64()), (206, Some(0)));
    assert!(answer.text().contains("may be encrypted with another key"), "{}", answer.text());
    assert!(answer.text().contains("can be read in two ways"), "{}", answer.text());
    for (key, stored) in before {
        assert!(std::fs::read(root.path().join(&key)).unwrap() == stored, "{key}");
    }
}

#[tokio::test]
async fn ds22_object_that_cannot_be_encrypted_is_reported_and_the_others_are_encrypted() {
    let root = TempDir::new().unwrap();
    let plain = over(&root, AtRest::default()).await;
    for (url, _, content) in kinds() {
        stored(&plain, &url, content).await;
    }
    let file = root.path().join("layers/team-a/network/plan-1/0/plan.bin");
    let mut bytes = std::fs::read(&file).unwrap();
    bytes[100] ^= 1;
    std::fs::write(&file, bytes).unwrap();
    let datastore = over(&root, sealed(KEY)).await;
    let answer = encrypt(&datastore, ORDER).await;
    assert_eq!((answer.status, answer.json()["filesEncrypted"].as_u64()), (206, Some(4)));
    let errors = answer.json()["errors"].as_array().unwrap().clone();
    assert_eq!(errors.len(), 1);
    assert!(errors[0].as_str().unwrap().starts_with("layers/team-a/network/plan-1/0/plan.bin: "));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_large_object_that_is_replaced_while_it_is_encrypted_is_encrypted_as_the_new_one() {
    for dialect in [Dialect::S3, Dialect::Gcs] {
        let double = FakeCloud::start(dialect);
        let key = "layers/team-a/network/plan-1/0/plan.bin";
        let plain = TestDatastore::of(Config::of(double.storage())).await;
        let url = format!("plans?{RUN}&attempt=0&format=bin");
        stored(&plain, &url, [b"PK\x03\x04".to_vec(), noise(9 * MIB, 4)].concat()).await;
        let datastore =
            TestDatastore::of(Config { at_rest: sealed(KEY), ..Config::of(double.storage()) })
                .await;
        let completions = || {
            let requests = double.requests();
            requests
                .iter()
                .filter(|request| request.starts_with(&format!("POST {key} uploadId")))
                .count()
        };
        let before = completions();
        let (method, query, delay) = ("POST", "uploadId", Duration::from_secs(2));
        double.fault(CloudFault { method, key, query, times: 1, delay, ..CloudFault::default() });
        let (answer, ()) = tokio::join!(encrypt(&datastore, ORDER), async {
            // Another replica acknowledges an upload after the last look at the version.
            support::wait_for("the completion", async || (completions() > before).then_some(()))
                .await;
            double.put(key, b"PK\x03\x04 another".to_vec());
        });
        assert_eq!((answer.status, answer.json()["filesEncrypted"].as_u64()), (200, Some(1)));
        assert_ne!(double.object(key).unwrap(), &b"PK\x03\x04 another"[..]);
        assert!(get(&datastore, &url).await.body == b"PK\x03\x04 another"[..]);
        assert_eq!(double.open_uploads(), 0);
    }
}

#[tokio::test]
async fn the_newest_of_each_kind_are_the_same_for_gc_after_an_encryption() {
    for (storage, double, root) in storages() {
        if matches!(storage, Storage::Memory) {
            continue;
        }
        let config = |at_rest| Config { at_rest, ..Config::of(storage.clone()) };
        let unencrypted = TestDatastore::of(config(AtRest::default())).await;
        // Encrypted in another order than they were stored in; the newest plan is a large object.
        for (run, size) in [("zzz-old", 500), ("mmm-mid", 500), ("aaa-new", 9 * MIB)] {
            let plan = format!("plans?namespace=a&layer=b&run={run}&attempt=0&format=bin");
            stored(&unencrypted, &plan, [b"PK\x03\x04".to_vec(), noise(size, 1)].concat()).await;
            let bundle =
                format!("repository/revision/bundle?namespace=a&name=c&ref=main&revision={run}");
            stored(&unencrypted, &bundle, format!("# v2 git bundle\n{run}")).await;
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        drop(unencrypted);
        let datastore = TestDatastore::of(config(sealed(KEY))).await;
        assert_eq!(encrypt(&datastore, ORDER).await.json()["filesEncrypted"], 6);
        // The storage shows its clock in whole seconds.
        if let Some(double) = &double {
            double.clock(SignedDuration::from_mins(1));
        }
        let gc = async |keep_runs| {
            let rules = Rules {
                keep_runs: Some(keep_runs),
                keep_states: None,
                max_age: BTreeMap::from([(Kind::Bundle, Duration::ZERO)]),
                min_age: Duration::ZERO,
                dry_run: false,
            };
            let config = StorageConfig::plain(storage.clone());
            commands::run(&config, StorageCommand::Gc(rules), &mut Vec::new()).await.unwrap();
            let store = datastore::store::Store::open(&storage).unwrap();
            let mut left = Vec::new();
            for root in ["layers/", "repositories/"] {
                let mut listed = store.list(root).unwrap();
                while let Some(object) = listed.try_next().await.unwrap() {
                    left.push(object.key);
                }
            }
            left
        };
        let newest = ["layers/a/b/aaa-new/0/plan.bin", "repositories/a/c/main/aaa-new.gitbundle"];
        assert_eq!(
            gc(2).await,
            [newest[0], "layers/a/b/mmm-mid/0/plan.bin", newest[1]],
            "{storage:?}"
        );
        assert_eq!(gc(0).await, newest, "{storage:?}");
        // What is stored later is newer.
        stored(&datastore, "plans?namespace=a&layer=b&run=after&attempt=0&format=bin", "x").await;
        assert_eq!(gc(0).await, ["layers/a/b/after/0/plan.bin", newest[1]], "{storage:?}");
        drop((double, root));
    }
}

#[tokio::test]
async fn the_newest_run_is_the_same_for_gc_that_began_before_the_first_encryption() {
    let double = FakeCloud::start(Dialect::S3);
    let config = |at_rest| Config { at_rest, ..Config::of(double.storage()) };
    let plain = TestDatastore::of(config(AtRest::default())).await;
    let encrypted = TestDatastore::of(config(sealed(KEY))).await;
    // The clock of the storage shows whole seconds. Only the older run is encrypted later.
    for (datastore, run, minutes) in [(&plain, "old", 0), (&encrypted, "new", 1)] {
        double.clock(SignedDuration::from_mins(minutes));
        let log = format!("logs?namespace=a&layer=b&run={run}&attempt=0");
        stored(datastore, &log, noise(500, 1)).await;
    }
    double.clock(SignedDuration::from_mins(2));
    let (method, query, delay) = ("GET", "live", Duration::from_secs(2));
    double.fault(CloudFault { method, query, times: 1, delay, ..CloudFault::default() });
    let rules = Rules {
        keep_runs: Some(1),
        keep_states: None,
        max_age: BTreeMap::new(),
        min_age: Duration::ZERO,
        dry_run: false,
    };
    let before = double.requests().len();
    let gc = async {
        let config = StorageConfig::plain(double.storage());
        commands::run(&config, StorageCommand::Gc(rules), &mut Vec::new()).await.unwrap();
    };
    let encryption = async {
        let is_listing = |request: &String| request.contains("live");
        support::wait_for("the listing", async || {
            double.requests()[before..].iter().any(is_listing).then_some(())
        })
        .await;
        assert_eq!(encrypt(&encrypted, ORDER).await.json()["filesEncrypted"], 1);
    };
    tokio::join!(gc, encryption);
    assert_eq!(double.artifacts(), ["layers/a/b/new/0/run.log"]);
}

#[tokio::test]
async fn runs_and_approvals_are_listed_in_their_order_after_an_encryption() {
    let double = FakeCloud::start(Dialect::S3);
    let config = |at_rest| Config { at_rest, ..Config::of(double.storage()) };
    let plain = TestDatastore::of(config(AtRest::default())).await;
    let sets = (0..40).map(|number: u8| Sha256::of(&[number]).to_string());
    // Those with later keys are older.
    let mut sets = sets.collect::<Vec<_>>();
    sets.sort_unstable_by(|one, other| other.cmp(one));
    for (seconds, set) in (0..).step_by(2).zip(&sets) {
        double.clock(SignedDuration::from_secs(seconds));
        let offer = format!("approvals?namespace=a&layer=b&set={set}&run=r/0");
        assert_eq!(send(request(&plain, Method::POST, &offer)).await.status, 200);
    }
    let runs = ["mmm-old", "zzz-mid", "aaa-new"];
    for (run, minutes) in runs.into_iter().zip(2..) {
        double.clock(SignedDuration::from_mins(minutes));
        for kind in ["logs", "plans"] {
            let file = format!("{kind}?namespace=a&layer=b&run={run}&attempt=0");
            stored(&plain, &file, noise(500, 1)).await;
        }
    }
    double.clock(SignedDuration::from_mins(6));
    let datastore = TestDatastore::of(config(sealed(KEY))).await;
    assert_eq!(encrypt(&datastore, ORDER).await.json()["filesEncrypted"], 46);
    for (limit, expected) in [("1", 1), ("20", 20), ("100", 40)] {
        let listed = format!("approvals?namespace=a&layer=b&limit={limit}");
        let listed = get(&datastore, &listed).await.json();
        let listed = listed["approvals"].as_array().unwrap().iter();
        let listed = listed.map(|offer| offer["set"].as_str().unwrap().to_owned());
        let expected = sets.iter().rev().take(expected).cloned().collect::<Vec<_>>();
        assert_eq!(listed.collect::<Vec<_>>(), expected);
    }

    let store = datastore::store::Store::open(&double.storage()).unwrap();
    for entry in double.keys().iter().filter(|key| key.starts_with(".plancha/runs/")) {
        store.delete(entry).await.unwrap();
    }
    assert_eq!(store.reindex().await.unwrap(), 3);
    let listed = get(&datastore, "runs?namespace=a&layer=b").await.json();
    let listed = listed["runs"].as_array().unwrap().iter().map(|run| &run["run"]);
    assert_eq!(listed.collect::<Vec<_>>(), ["aaa-new", "zzz-mid", "mmm-old"]);
}
