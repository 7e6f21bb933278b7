//! `gc`: what is deleted, what is kept, and concurrent traffic.

use std::collections::BTreeMap;
use std::fs::{File, FileTimes};
use std::path::Path;
use std::time::{Duration, SystemTime};

use datastore::cli::commands;
use datastore::cli::gc::select::Rules;
use datastore::config::{StorageCommand, StorageConfig};
use datastore::store::{Storage, Store};
use futures::TryStreamExt as _;
use jiff::SignedDuration;
use support::{CloudFault, Dialect, FakeCloud, Pace, TestDatastore};

use crate::http::{files, get, stored};
use crate::program::process::program;

const HOUR: u64 = 3600;

/// Lets everything below a directory, or one file, be that old.
fn age(path: &Path, hours: u64) {
    let modified = SystemTime::now() - Duration::from_secs(hours * HOUR);
    let set = |path: &Path| {
        let times = FileTimes::new().set_modified(modified);
        File::options().write(true).open(path).unwrap().set_times(times).unwrap();
    };
    if path.is_file() {
        return set(path);
    }
    for file in files(path) {
        set(&path.join(file));
    }
}

fn gc(root: &Path, flags: &str) -> String {
    let storage = format!("file://{}", root.display());
    let flags = flags.split_whitespace().collect::<Vec<_>>();
    let output = program(&["gc", "--storage", &storage]).args(flags).output().unwrap();
    assert_eq!((output.status.code(), &*String::from_utf8_lossy(&output.stderr)), (Some(0), ""));
    let mut lines =
        String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect::<Vec<_>>();
    let summary = lines.pop().unwrap();
    lines.sort();
    lines.push(summary);
    lines.join("\n")
}

/// Three runs: r1 planned and applied 50 hours ago, r2 40, r3 30 without a plan.bin.
async fn three_runs(datastore: &TestDatastore) {
    for (run, names, hours) in [
        ("r1", &["format=bin", "name=run.json", "log"][..], 50),
        ("r2", &["format=bin", "name=run.json", "format=json", "log"], 40),
        ("r3", &["name=run.json", "log"], 30),
    ] {
        for name in names {
            let route = match name.split('=').next() {
                Some("format") => "plans",
                Some("name") => "artifacts",
                _ => "logs",
            };
            let url = format!("{route}?namespace=a&layer=b&run={run}&attempt=0&{name}");
            stored(datastore, &url, "12345").await;
        }
        age(&datastore.root().join("layers/a/b").join(run), hours);
    }
    age(&datastore.root().join(".plancha/runs"), 50);
}

#[tokio::test]
async fn dry_run_lists_what_would_be_deleted_and_deletes_nothing() {
    let datastore = TestDatastore::temporary().await;
    three_runs(&datastore).await;
    let before = files(&datastore.root());
    insta::assert_snapshot!(gc(&datastore.root(), "--keep-runs 1 --max-age log=1d --dry-run"), @r"
    would delete layers/a/b/r1/0/plan.bin (its run is not one of the last 1)
    would delete layers/a/b/r1/0/run.json (its run is not one of the last 1)
    would delete layers/a/b/r1/0/run.log (its run is not one of the last 1)
    would delete layers/a/b/r2/0/plan.json (its run is not one of the last 1)
    would delete layers/a/b/r2/0/run.log (its run is not one of the last 1)
    would delete layers/a/b/r3/0/run.log (it is older than 24h)
    6 of 9 artifacts would be deleted, 30B
    ");
    assert_eq!(files(&datastore.root()), before);
}

#[tokio::test]
async fn digest_records_and_index_entries_are_deleted_with_their_objects() {
    let datastore = TestDatastore::temporary().await;
    three_runs(&datastore).await;
    insta::assert_snapshot!(gc(&datastore.root(), "--keep-runs 2"), @r"
    deleted layers/a/b/r1/0/plan.bin (its run is not one of the last 2)
    deleted layers/a/b/r1/0/run.json (its run is not one of the last 2)
    deleted layers/a/b/r1/0/run.log (its run is not one of the last 2)
    3 of 9 artifacts deleted, 15B
    ");
    insta::assert_snapshot!(gc(&datastore.root(), "--keep-runs 0"), @r"
    deleted layers/a/b/r2/0/plan.json (its run is not one of the last 0)
    deleted layers/a/b/r2/0/run.log (its run is not one of the last 0)
    deleted layers/a/b/r3/0/run.json (its run is not one of the last 0)
    deleted layers/a/b/r3/0/run.log (its run is not one of the last 0)
    4 of 6 artifacts deleted, 20B
    ");
    let left = files(&datastore.root());
    let left = left.iter().map(|path| path.to_string_lossy()).collect::<Vec<_>>();
    let left = left.iter().map(|path| match path.strip_prefix(".plancha/runs/a/b/") {
        Some(entry) => format!(".plancha/runs/a/b/[time]{}", &entry[16..]),
        None => path.to_string(),
    });
    insta::assert_snapshot!(left.collect::<Vec<_>>().join("\n"), @r"
    .plancha/runs/a/b/[time]-r2
    .plancha/sha256/layers/a/b/r2/0/plan.bin
    .plancha/sha256/layers/a/b/r2/0/run.json
    layers/a/b/r2/0/plan.bin
    layers/a/b/r2/0/run.json
    ");
    let runs = get(&datastore, "runs?namespace=a&layer=b").await.json();
    assert_eq!(runs["runs"].as_array().unwrap().len(), 1);
    assert_eq!(get(&datastore, "plans?namespace=a&layer=b&run=r2&format=bin").await.status, 200);
}

#[tokio::test]
async fn run_modified_during_gc_is_kept() {
    let datastore = TestDatastore::temporary().await;
    three_runs(&datastore).await;
    stored(&datastore, "logs?namespace=a&layer=b&run=r1&attempt=1", "again").await;
    let reported = gc(&datastore.root(), "--keep-runs 0");
    assert!(!reported.contains("/r1/") && reported.contains("/r3/"), "{reported}");
    assert!(gc(&datastore.root(), "--keep-runs 0 --min-age 0s").contains("/r1/1/run.log"));
}

#[tokio::test]
async fn foreign_objects_are_kept() {
    let datastore = TestDatastore::temporary().await;
    three_runs(&datastore).await;
    for name in ["layers/a/b/r1/0/.hidden", "layers/a/b/r1/notes/x", "layers/a/x", "other/x"] {
        let path = datastore.root().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, "theirs").unwrap();
        age(&path, 100);
    }
    gc(&datastore.root(), "--keep-runs 0");
    let left = files(&datastore.root());
    for name in ["layers/a/b/r1/0/.hidden", "layers/a/b/r1/notes/x", "layers/a/x", "other/x"] {
        assert!(left.contains(&name.into()), "{name}");
    }
    assert!(!left.contains(&"layers/a/b/r1/0/run.log".into()));
}

#[tokio::test]
async fn index_entry_without_a_run_is_deleted_after_a_day() {
    let datastore = TestDatastore::temporary().await;
    three_runs(&datastore).await;
    let entries = datastore.root().join(".plancha/runs/a/b");
    for (name, hours) in [("fffffe74301a97fe-young", 23), ("fffffe74301a97fe-old", 25)] {
        std::fs::write(entries.join(name), "").unwrap();
        age(&entries.join(name), hours);
    }
    gc(&datastore.root(), "--keep-runs 9");
    let left = files(&entries);
    assert_eq!(left.len(), 4, "{left:?}");
    assert!(left.contains(&"fffffe74301a97fe-young".into()));
}

#[tokio::test]
async fn index_entry_created_by_reindex_is_deleted_with_its_expired_run() {
    let datastore = TestDatastore::temporary().await;
    three_runs(&datastore).await;
    let entries = datastore.root().join(".plancha/runs");
    std::fs::remove_dir_all(&entries).unwrap();
    let config = StorageConfig::plain(Storage::File(datastore.root()));
    commands::run(&config, StorageCommand::Reindex, &mut Vec::new()).await.unwrap();
    assert_eq!(files(&entries).len(), 3);
    gc(&datastore.root(), "--keep-runs 2");
    let left = files(&entries);
    assert_eq!(left.len(), 2, "{left:?}");
    assert!(!left.iter().any(|entry| entry.to_string_lossy().ends_with("-r1")), "{left:?}");
}

#[test]
fn gc_without_a_rule_or_with_an_invalid_one_is_a_usage_error() {
    let refusal = |flags: &str| {
        let flags = flags.split_whitespace().collect::<Vec<_>>();
        let output = program(&["gc", "--storage", "file:///nowhere"]).args(flags).output().unwrap();
        let text = String::from_utf8(output.stderr).unwrap();
        format!("{} {}", output.status.code().unwrap(), text.lines().next().unwrap())
    };
    insta::assert_snapshot!(refusal(""), @"64 error: gc: no rule says what expires");
    insta::assert_snapshot!(refusal("--keep-runs -1"), @"64 error: unexpected argument '-1' found");
    insta::assert_snapshot!(refusal("--max-age log"), @"64 error: --max-age: invalid value `log`: expected KIND=VALUE");
    insta::assert_snapshot!(refusal("--max-age plan=3d"), @"64 error: --max-age: invalid value `plan=3d`: invalid kind `plan`: expected one of bin, json, pretty, short, log, bundle, artifact, workspace, state, lease, status, outputs");
    insta::assert_snapshot!(refusal("--max-age lease=3d"), @"64 error: --max-age: invalid value `lease=3d`: leases expire by themselves");
    insta::assert_snapshot!(refusal("--max-age outputs=3d"), @"64 error: --max-age: invalid value `outputs=3d`: gc deletes no documents of layers: the next run replaces them");
    insta::assert_snapshot!(refusal("--max-age log=3d --max-age bundle=1d --max-age log=9d"), @"64 error: --max-age: `log` is set twice");
    insta::assert_snapshot!(refusal("--max-age log=3"), @"64 error: --max-age: invalid value `log=3`: expected a duration with a unit, such as 500ms, 30s, 5m, 1h30m or 7d");
    insta::assert_snapshot!(refusal("--keep-runs 1 --min-age x"), @"64 error: --min-age: invalid value `x`: expected a duration with a unit, such as 500ms, 30s, 5m, 1h30m or 7d");
}

async fn sweep(storage: &Storage, keep_runs: usize) -> String {
    let (max_age, min_age) = (BTreeMap::new(), Duration::ZERO);
    let rules =
        Rules { keep_runs: Some(keep_runs), keep_states: None, max_age, min_age, dry_run: false };
    let mut reported = Vec::new();
    commands::run(&StorageConfig::plain(storage.clone()), StorageCommand::Gc(rules), &mut reported)
        .await
        .unwrap();
    String::from_utf8(reported).unwrap()
}

#[tokio::test]
async fn gc_behaves_the_same_on_every_backend() {
    let file = TestDatastore::temporary().await;
    let file_storage = Storage::File(file.root());
    let (s3, gcs) =
        (TestDatastore::double(Dialect::S3).await, TestDatastore::double(Dialect::Gcs).await);
    let (s3_storage, gcs_storage) = (s3.cloud().storage(), gcs.cloud().storage());
    for (datastore, storage) in [(file, file_storage), (s3, s3_storage), (gcs, gcs_storage)] {
        for run in ["r1", "Run+2", "r3"] {
            for attempt in [0, 1] {
                let url =
                    format!("plans?namespace=a&layer=b&run={run}&attempt={attempt}&format=bin");
                stored(&datastore, &url, "12345").await;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        assert!(sweep(&storage, 2).await.ends_with("2 of 6 artifacts deleted, 10B\n"));
        let runs = get(&datastore, "runs?namespace=a&layer=b").await.json();
        assert_eq!(
            (&runs["runs"][0]["run"], &runs["runs"][1]["run"]),
            (&"r3".into(), &"Run 2".into())
        );
        assert_eq!(runs["runs"].as_array().unwrap().len(), 2);
        assert!(sweep(&storage, 0).await.ends_with("3 of 4 artifacts deleted, 15B\n"));
        let plan = "plans?namespace=a&layer=b&run=r3&attempt=1&format=bin";
        assert_eq!(get(&datastore, plan).await.text(), "12345");
        assert_eq!(
            get(&datastore, "runs?namespace=a&layer=b").await.json()["runs"]
                .as_array()
                .unwrap()
                .len(),
            1
        );
    }
}

/// Uploads to a layer that is swept all the time: whatever was acknowledged within the least age is
/// there, and found.
#[tokio::test(flavor = "multi_thread")]
async fn concurrent_traffic_loses_no_recent_object() {
    let datastore = TestDatastore::temporary().await;
    stored(&datastore, "plans?namespace=a&layer=b&run=r&attempt=0", "first").await;
    let storage = Storage::File(datastore.root());
    let rules = Rules {
        keep_runs: Some(0),
        keep_states: None,
        max_age: BTreeMap::new(),
        min_age: Duration::from_secs(HOUR),
        dry_run: false,
    };
    let sweeping = async {
        loop {
            let config = StorageConfig::plain(storage.clone());
            commands::run(&config, StorageCommand::Gc(rules.clone()), &mut Vec::new())
                .await
                .unwrap();
        }
    };
    let uploading = async {
        for run in 0..60 {
            let old = datastore.root().join(format!("layers/a/b/r{run}/0/run.log"));
            std::fs::create_dir_all(old.parent().unwrap()).unwrap();
            std::fs::write(&old, "old").unwrap();
            age(&old, 2);
            let url = format!("plans?namespace=a&layer=b&run=r{run}&attempt=0&format=json");
            stored(&datastore, &url, "12345").await;
        }
    };
    tokio::select! { () = sweeping => {} () = uploading => {} }
    for run in 0..60 {
        let url = format!("plans?namespace=a&layer=b&run=r{run}&attempt=0&format=json");
        assert_eq!(get(&datastore, &url).await.text(), "12345");
    }
}

#[tokio::test]
async fn an_object_that_was_replaced_since_it_was_listed_is_not_deleted() {
    let datastore = TestDatastore::temporary().await;
    let directory = datastore.root().join("repositories/a/b/main");
    std::fs::create_dir_all(&directory).unwrap();
    for number in 0..100 {
        let bundle = directory.join(format!("{number:040x}.gitbundle"));
        std::fs::write(&bundle, "old").unwrap();
        age(&bundle, 2);
    }
    let store = Store::open(&Storage::File(datastore.root())).unwrap();
    let listed = store.list("repositories/a/b/").unwrap().try_collect::<Vec<_>>().await.unwrap();
    for file in files(&directory).iter().step_by(2) {
        std::fs::write(directory.join(file), "new").unwrap();
    }
    let deleted = store.delete_listed("repositories/a/b", &listed, |_| true).await;
    let deleted = deleted.into_iter().map(Result::unwrap).collect::<Vec<_>>();
    assert_eq!(deleted, [false, true].repeat(50));
    let left = files(&directory);
    assert_eq!(left.len(), 50);
    for file in left {
        assert_eq!(std::fs::read_to_string(directory.join(file)).unwrap(), "new");
    }
}

#[tokio::test]
async fn a_digest_record_that_cannot_be_removed_is_reported_for_its_own_object() {
    let double = FakeCloud::start(Dialect::S3);
    let keys = [0, 1, 2].map(|n| format!("layers/a/b/r/0/file-{n}"));
    for key in &keys {
        double.put(key, "content");
    }
    let record = format!(".plancha/sha256/{}", keys[1]);
    double.put(&record, "{}");
    let store = Store::open(&double.impatient()).unwrap();
    let listed = store.list("layers/a/b/").unwrap().try_collect::<Vec<_>>().await.unwrap();
    let fault = CloudFault { times: usize::MAX, status: 403, ..CloudFault::default() };
    // The first request deletes the objects, the second the record.
    double.fault(CloudFault { method: "POST", query: "delete", after: 1, ..fault });
    let deleted = store.delete_listed("layers/a/b", &listed, |_| true).await;
    let failed = deleted.iter().map(Result::is_err).collect::<Vec<_>>();
    assert_eq!(failed, [false, true, false]);
    let error = datastore::chain(deleted[1].as_ref().unwrap_err());
    assert!(error.starts_with("it is deleted, but not its digest record"), "{error}");
    assert_eq!(double.keys(), std::slice::from_ref(&record));

    // The next deletion below the same owner finds and removes it.
    double.heal();
    double.put(&keys[0], "content");
    let listed = store.list("layers/a/b/").unwrap().try_collect::<Vec<_>>().await.unwrap();
    let deleted = store.delete_listed("layers/a/b", &listed, |key| key == keys[0]).await;
    assert!(deleted.iter().all(Result::is_ok));
    assert_eq!(double.keys(), Vec::<String>::new());

    // Where the owner of a remaining record is unknown, each record is reported.
    for key in &keys {
        double.put(key, "content");
    }
    let listed = store.list("layers/a/b/").unwrap().try_collect::<Vec<_>>().await.unwrap();
    double.heal();
    double.fault(CloudFault { method: "GET", query: "sha256", ..fault });
    let deleted = store.delete_listed("layers/a/b", &listed, |_| true).await;
    for deleted in deleted {
        let error = datastore::chain(&deleted.unwrap_err());
        assert!(error.contains("the digest records could not be listed"), "{error}");
    }
}

#[test]
fn a_deletion_whose_answer_is_lost_counts_as_done_and_its_record_is_removed() {
    for apply_then_fail in [true, false] {
        let double = FakeCloud::start(Dialect::S3);
        double.clock(SignedDuration::from_mins(-10));
        double.put("layers/a/b/r/0/plan.json", "content");
        double.put(".plancha/sha256/layers/a/b/r/0/plan.json", "{}");
        double.clock(SignedDuration::ZERO);
        let fault =
            CloudFault { method: "POST", query: "delete", status: 403, ..Default::default() };
        // What `gc` deletes first is the object that shows it the storage's clock.
        let fault = CloudFault { after: 1, times: usize::MAX, apply_then_fail, ..fault };
        double.fault(fault);
        let mut gc = program(&["gc", "--max-age", "json=0s", "--min-age", "0s"]);
        let output =
            gc.args(["--storage", double.url()]).envs(double.variables()).output().unwrap();
        let shown = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
        assert_eq!(output.status.success(), apply_then_fail, "{shown}");
        assert_eq!(shown.contains("could not delete"), !apply_then_fail, "{shown}");
        assert_eq!(double.keys().is_empty(), apply_then_fail, "{shown}");
    }
}

/// Puts a file into r3 of layer b as soon as something of layer a is deleted.
struct Meddler {
    reported: Vec<u8>,
    root: std::path::PathBuf,
}

impl std::io::Write for Meddler {
    fn write(&mut self, text: &[u8]) -> std::io::Result<usize> {
        if text.windows(12).any(|part| part == b"layers/a/a/r") {
            let new = self.root.join("layers/a/b/r3/1");
            std::fs::create_dir_all(&new)?;
            std::fs::write(new.join("run.log"), "again")?;
        }
        self.reported.write(text)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[tokio::test]
async fn run_modified_between_listing_and_deletion_is_kept() {
    let datastore = TestDatastore::temporary().await;
    three_runs(&datastore).await;
    stored(&datastore, "logs?namespace=a&layer=a&run=r&attempt=0", "12345").await;
    age(&datastore.root().join("layers/a/a"), 50);
    let rules = Rules {
        keep_runs: Some(0),
        keep_states: None,
        max_age: BTreeMap::new(),
        min_age: Duration::from_secs(HOUR),
        dry_run: false,
    };
    let mut out = Meddler { reported: Vec::new(), root: datastore.root() };
    let config = StorageConfig::plain(Storage::File(datastore.root()));
    commands::run(&config, StorageCommand::Gc(rules), &mut out).await.unwrap();
    let reported = String::from_utf8(out.reported).unwrap();
    assert!(reported.contains("kept layers/a/b/r3/: it has changed meanwhile"), "{reported}");
    assert_eq!(get(&datastore, "logs?namespace=a&layer=b&run=r3&attempt=0").await.status, 200);
}

#[tokio::test]
async fn a_serving_datastore_indexes_a_run_again_that_gc_has_removed() {
    for run in ["r1", "Run 7"] {
        let datastore = TestDatastore::temporary().await;
        let log = format!("logs?namespace=a&layer=b&run={run}&attempt=0");
        let runs = async || {
            let runs = get(&datastore, "runs?namespace=a&layer=b").await.json();
            runs["runs"]
                .as_array()
                .unwrap()
                .iter()
                .map(|run| run["run"].clone())
                .collect::<Vec<_>>()
        };
        stored(&datastore, &log, "first").await;
        assert_eq!(runs().await, [run]);
        gc(&datastore.root(), "--keep-runs 0 --min-age 0s");
        assert!(runs().await.is_empty());
        stored(&datastore, &log, "second").await;
        assert_eq!(runs().await, [run]);
    }
}

#[tokio::test]
async fn many_runs_of_a_bucket_are_deleted_by_few_requests() {
    let datastore = TestDatastore::double(Dialect::S3).await;
    let double = datastore.cloud();
    for layer in ["b", "b-2"] {
        for run in 0..30 {
            let url = format!("logs?namespace=a&layer={layer}&run=r{run}&attempt=0");
            stored(&datastore, &url, "12345").await;
        }
    }
    let before = double.requests().len();
    let rules = Rules {
        keep_runs: Some(10),
        keep_states: None,
        max_age: BTreeMap::new(),
        min_age: Duration::ZERO,
        dry_run: false,
    };
    let config = StorageConfig {
        storage: double.storage(),
        at_rest: datastore::store::encryption::AtRest::default(),
    };
    let mut out = Vec::new();
    commands::run(&config, StorageCommand::Gc(rules), &mut out).await.unwrap();
    let out = String::from_utf8(out).unwrap();
    assert!(out.ends_with("40 of 60 artifacts deleted, 200B\n"), "{out}");
    let lines = out.lines().filter(|line| line.starts_with("deleted ")).collect::<Vec<_>>();
    assert!(lines.is_sorted() && lines.len() == 40, "the order of the keys: {lines:?}");
    let mut requests = double.requests().split_off(before);
    // The service looks at the storage from time to time, and gc at the clock.
    requests.retain(|request| {
        !request.contains(".plancha/probe/") && !request.contains(".plancha%2Fprobe")
    });
    assert!(requests.len() < 40, "{} requests: {requests:?}", requests.len());
    for layer in ["b", "b-2"] {
        let runs = get(&datastore, &format!("runs?namespace=a&layer={layer}")).await.json();
        assert_eq!(runs["runs"].as_array().unwrap().len(), 10);
    }
}

#[tokio::test]
async fn several_layers_of_a_bucket_are_swept_at_once() {
    let most_of = async |layers: usize| {
        let double = FakeCloud::start(Dialect::S3);
        for (layer, run) in (0..layers).flat_map(|layer| (0..3).map(move |run| (layer, run))) {
            double.put(&format!("layers/a/b{layer}/r{run}/0/run.log"), "12345");
        }
        let latency = Duration::from_millis(600);
        double.pace(Pace { latency, ..Pace::default() });
        let swept = sweep(&double.storage(), 0).await;
        let all = layers * 3;
        let end = format!("{all} of {all} artifacts deleted, {}B\n", all * 5);
        assert!(swept.ends_with(&end), "{swept}");
        assert_eq!(double.artifacts(), [""; 0]);
        double.most_in_flight()
    };
    assert_eq!(most_of(1).await, 1);
    let most = most_of(8).await;
    assert!(most >= 4, "{most} in flight");
}
