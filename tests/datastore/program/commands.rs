//! `ls`, `cat`, `reindex` and `check`, run as programs over a directory that a datastore has filled.

use std::path::Path;
use std::process::{Output, Stdio};

use support::TestDatastore;

use crate::http::{RUN, files, forget_digest, get, noise, stored};
use crate::program::process::{Running, program};

const FILE: &str = "layers/team-a/network/plan-1/0/plan.json";

/// Runs a word over a directory: exit code, standard output, the first line of standard error.
fn run(root: &Path, words: &[&str]) -> (i32, String, String) {
    ended(&output(root, words))
}

fn output(root: &Path, words: &[&str]) -> Output {
    let storage = format!("file://{}", root.display());
    program(words).args(["--storage", &storage]).output().unwrap()
}

pub(crate) fn ended(output: &Output) -> (i32, String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let reported = text(&output.stderr).lines().next().unwrap_or_default().to_owned();
    (output.status.code().unwrap(), text(&output.stdout), reported)
}

fn plan(attempt: u32) -> String {
    format!("plans?{RUN}&attempt={attempt}")
}

#[tokio::test]
async fn ls_prints_size_time_and_key_of_objects_with_the_prefix() {
    let datastore = TestDatastore::temporary().await;
    stored(&datastore, &plan(0), "12345").await;
    stored(&datastore, &plan(1), "1").await;
    let bundle = "repository/revision/bundle?namespace=a&name=b&ref=c&revision=d";
    stored(&datastore, bundle, "123").await;
    let listed = |prefix: &str| {
        let (code, listed, reported) = run(&datastore.root(), &["ls", prefix]);
        assert_eq!((code, reported.as_str()), (0, ""));
        let mut lines = listed
            .lines()
            .map(|line| {
                let fields = line.split('\t').collect::<Vec<_>>();
                let modified: jiff::Timestamp = fields[1].parse().unwrap();
                assert!(jiff::Timestamp::now().duration_since(modified).abs().as_secs() < 60);
                format!("{} {}", fields[0], fields[2])
            })
            .collect::<Vec<_>>();
        lines.sort();
        lines.join("\n")
    };
    insta::assert_snapshot!(listed("layers/"), @r"
    1 layers/team-a/network/plan-1/1/plan.json
    5 layers/team-a/network/plan-1/0/plan.json
    ");
    insta::assert_snapshot!(listed("layers/team-a/network/plan-1/0/pl"), @"5 layers/team-a/network/plan-1/0/plan.json");
    insta::assert_snapshot!(listed("rep"), @"3 repositories/a/b/c/d.gitbundle");
    let (code, listed_none, message) = run(&datastore.root(), &["ls", "layers/team-b"]);
    assert_eq!((code, &*listed_none, &*message), (0, "", "no key begins with `layers/team-b`"));
    let (code, shown, message) = run(&datastore.root(), &["verify", "layers/team-b"]);
    assert_eq!((code, &*shown), (8, ""));
    insta::assert_snapshot!(message, @"error: no key begins with `layers/team-b`");
    assert_eq!(listed("").lines().filter(|line| line.contains(".plancha/")).count(), 5);
}

#[tokio::test]
async fn ls_lists_a_directory_in_key_order() {
    let datastore = TestDatastore::temporary().await;
    for run in ["r2", "r1", "r1-b", "r10", "r1.a"] {
        stored(&datastore, &format!("logs?namespace=a&layer=b&run={run}&attempt=0"), "1").await;
    }
    let (_, listed, _) = run(&datastore.root(), &["ls"]);
    let keys = listed.lines().map(|line| line.rsplit('\t').next().unwrap()).collect::<Vec<_>>();
    assert_eq!(keys.len(), 15);
    assert!(keys.is_sorted(), "{keys:#?}");
}

#[tokio::test]
async fn cat_prints_the_stored_bytes() {
    let datastore = TestDatastore::temporary().await;
    for size in [0, 5, 3 << 20] {
        stored(&datastore, &plan(0), noise(size, 1)).await;
        let output = output(&datastore.root(), &["cat", FILE]);
        assert_eq!(output.status.code(), Some(0));
        assert!(output.stdout == noise(size, 1));
    }
}

#[tokio::test]
async fn cat_exits_9_for_corrupted_bytes_and_8_for_a_missing_object() {
    let datastore = TestDatastore::temporary().await;
    for size in [5, 3 << 20] {
        stored(&datastore, &plan(0), noise(size, 1)).await;
        crate::storage::modified_objects::rot_file(&datastore.root().join(FILE), size - 1, 0);
        let output = output(&datastore.root(), &["cat", FILE]);
        assert!(output.stdout.len() < size);
        let (code, _, reported) = ended(&output);
        assert_eq!(code, 9);
        insta::allow_duplicates! {
            insta::assert_snapshot!(reported, @"error: discard the output: `layers/team-a/network/plan-1/0/plan.json` no longer has the sha256 it was stored with");
        }
    }
    let (code, shown, reported) = run(&datastore.root(), &["cat", "layers/a/b/c/0/plan.bin"]);
    assert_eq!((code, shown.as_str()), (8, ""));
    insta::assert_snapshot!(reported, @"error: no object has the key `layers/a/b/c/0/plan.bin`");
}

#[tokio::test]
async fn cat_reports_unverified_without_a_recorded_digest() {
    let datastore = TestDatastore::temporary().await;
    stored(&datastore, &plan(0), "12345").await;
    let root = datastore.root();
    assert_eq!(run(&root, &["cat", FILE]), (0, "12345".into(), String::new()));
    forget_digest(&root, FILE);
    let (code, shown, message) = run(&root, &["cat", FILE]);
    assert_eq!((code, &*shown), (0, "12345"));
    assert_eq!(message, format!("unverified: no digest of `{FILE}` is recorded"));
}

/// Copies a directory as a backup that loses extended attributes does.
fn copied(from: &Path) -> tempfile::TempDir {
    let copy = tempfile::TempDir::new().unwrap();
    for file in files(from) {
        std::fs::create_dir_all(copy.path().join(&file).parent().unwrap()).unwrap();
        let bytes = std::fs::read(from.join(&file)).unwrap();
        std::fs::write(copy.path().join(&file), bytes).unwrap();
    }
    copy
}

#[tokio::test]
#[ignore = "needs file attributes"]
async fn verify_writes_the_copies_of_digests_that_a_backup_without_attributes_needs() {
    let datastore = TestDatastore::temporary().await;
    let root = datastore.root();
    let at = |attempt: u32| {
        root.join(".plancha/sha256").join(FILE.replace("/0/", &format!("/{attempt}/")))
    };
    for attempt in 0..4 {
        stored(&datastore, &plan(attempt), "{\"old\": 1}").await;
    }
    rustix::fs::removexattr(root.join(FILE), "user.plancha").unwrap();
    stored(&datastore, &plan(0), "{\"old\": 1}").await;
    stored(&datastore, &plan(0), "{\"old\": 1}").await;
    let stale = std::fs::read(at(0)).unwrap();
    for attempt in 0..4 {
        stored(&datastore, &plan(attempt), "{\"new\": 2}").await;
    }
    // What a power failure may leave of copies that were not synced yet.
    std::fs::write(at(0), &stale).unwrap();
    std::fs::write(at(1), "").unwrap();
    std::fs::remove_file(at(2)).unwrap();
    let lost = copied(&root);
    let (code, shown, _) = run(lost.path(), &["verify"]);
    assert!(code == 9 && shown.contains("changed"), "{shown}");

    let (code, shown, message) = run(&root, &["verify"]);
    assert_eq!((code, &*message), (0, ""));
    let mut lines = shown.lines().collect::<Vec<_>>();
    lines.sort_unstable();
    insta::assert_snapshot!(lines.join("\n"), @r"
    4 objects: 4 intact, 0 healed, 0 unverified, 0 changed, 0 missing, 0 unread; 3 copies written
    copy written layers/team-a/network/plan-1/0/plan.json
    copy written layers/team-a/network/plan-1/1/plan.json
    copy written layers/team-a/network/plan-1/2/plan.json
    ");
    let (_, shown, _) = run(&root, &["verify"]);
    assert!(shown.ends_with(" 0 copies written\n") && shown.lines().count() == 1, "{shown}");
    let whole = copied(&root);
    let (code, shown, _) = run(whole.path(), &["verify"]);
    assert!(code == 0 && shown.contains("4 objects: 0 intact, 4 healed"), "{shown}");
}

#[tokio::test]
async fn verify_repairs_digest_copies_and_lists_corrupted_objects() {
    let datastore = TestDatastore::temporary().await;
    for (attempt, size) in [5, 100_000, 3 << 20, 5, 3 << 20, 7].into_iter().enumerate() {
        // What has whole blocks and no head could be encrypted with another key.
        let body = if attempt == 4 { b"{\"a\": 1}".repeat(size / 8) } else { noise(size, 1) };
        stored(&datastore, &plan(u32::try_from(attempt).unwrap()), body).await;
    }
    let at = |attempt: u32| format!("layers/team-a/network/plan-1/{attempt}/plan.json");
    // A restored backup: everything has another inode.
    let copy = tempfile::TempDir::new().unwrap();
    let root = copy.path();
    for file in files(&datastore.root()) {
        std::fs::create_dir_all(root.join(&file).parent().unwrap()).unwrap();
        std::fs::copy(datastore.root().join(&file), root.join(&file)).unwrap();
    }
    for (changed, place) in [(3, 0), (4, 1_000_000)] {
        crate::storage::modified_objects::rot_file(&root.join(at(changed)), place, 0);
    }
    std::fs::remove_file(root.join(".plancha/sha256").join(at(5))).unwrap();
    let (code, shown, message) = run(root, &["verify", "layers/team-a/"]);
    let mut lines = shown.lines().collect::<Vec<_>>();
    lines.sort_unstable();
    insta::assert_snapshot!(lines.join("\n"), @r"
    6 objects: 0 intact, 3 healed, 1 unverified, 2 changed, 0 missing, 0 unread; 0 copies written
    changed layers/team-a/network/plan-1/3/plan.json
    changed layers/team-a/network/plan-1/4/plan.json
    healed layers/team-a/network/plan-1/0/plan.json
    healed layers/team-a/network/plan-1/1/plan.json
    healed layers/team-a/network/plan-1/2/plan.json
    unverified layers/team-a/network/plan-1/5/plan.json
    ");
    assert_eq!(code, 9);
    insta::assert_snapshot!(message, @"error: 2 objects have changed since they were stored");
    let (code, shown, _) = run(root, &["cat", &at(3)]);
    assert_eq!((code, &*shown), (9, ""));
    for adopted in [3, 4, 5] {
        let (code, shown, _) = run(root, &["verify", "--accept", &at(adopted)]);
        let bytes = std::fs::read(root.join(at(adopted))).unwrap();
        let sha256 = datastore_api::Sha256::of(&bytes);
        assert_eq!((code, shown), (0, format!("accepted {}, sha256 {sha256}\n", at(adopted))));
        let output = output(root, &["cat", &at(adopted)]);
        assert!(output.status.success() && output.stdout == bytes && output.stderr.is_empty());
    }
    let (code, shown, _) = run(root, &["verify"]);
    let all = "6 objects: 6 intact, 0 healed, 0 unverified, 0 changed, 0 missing, 0 unread; 0 copies written\n";
    assert_eq!((code, &*shown), (0, all));
    assert_eq!(run(root, &["verify", "--accept", "layers/a/b/c/0/plan.bin"]).0, 8);
}

#[tokio::test]
#[expect(clippy::disallowed_types, reason = "cp copies times and attributes")]
async fn backup_that_keeps_times_and_attributes_loses_no_digest() {
    let datastore = TestDatastore::temporary().await;
    let sizes = [5, 100_000, 3 << 20];
    for (attempt, size) in (0..).zip(sizes) {
        stored(&datastore, &plan(attempt), noise(size, 1)).await;
    }
    let copy = tempfile::TempDir::new().unwrap();
    let (from, root) = (datastore.root().join("."), copy.path());
    let copied = std::process::Command::new("cp").arg("-a").arg(from).arg(root).status().unwrap();
    assert!(copied.success());
    crate::storage::modified_objects::rot_file(&root.join(FILE.replace("/0/", "/2/")), 7, 0);
    for (attempt, size) in [(0, 5), (1, 100_000)] {
        let output = output(root, &["cat", &FILE.replace("/0/", &format!("/{attempt}/"))]);
        assert!(output.stdout == noise(size, 1) && output.stderr.is_empty(), "{size}: {output:?}");
    }
    let (code, shown, _) = run(root, &["verify"]);
    assert_eq!(code, 9, "{shown}");
    let total = "0 unverified, 1 changed, 0 missing, 0 unread";
    assert!(shown.contains("3 objects: ") && shown.contains(total), "{shown}");
}

#[tokio::test]
async fn verify_lists_objects_of_a_directory_that_are_gone() {
    let datastore = TestDatastore::temporary().await;
    for attempt in 0..5 {
        stored(&datastore, &plan(attempt), "{\"a\": 1}").await;
    }
    let root = datastore.root();
    let at = |attempt: u32| root.join(FILE.replace("/0/", &format!("/{attempt}/")));
    for attempt in [1, 3, 4] {
        std::fs::remove_file(at(attempt)).unwrap();
    }
    std::fs::remove_dir_all(at(2).parent().unwrap()).unwrap();
    std::fs::create_dir(at(3)).unwrap();
    nix::unistd::mkfifo(&at(4), nix::sys::stat::Mode::S_IRWXU).unwrap();
    let (code, shown, message) = run(&root, &["verify", "layers/team-a/"]);
    insta::assert_snapshot!(shown, @r"
    missing layers/team-a/network/plan-1/1/plan.json
    missing layers/team-a/network/plan-1/2/plan.json
    unread (the storage backend failed: Generic file error: its path is a directory, not a file) layers/team-a/network/plan-1/3/plan.json
    unread (the storage backend failed: Generic file error: its path is a FIFO, not a file) layers/team-a/network/plan-1/4/plan.json
    5 objects: 1 intact, 0 healed, 0 unverified, 0 changed, 2 missing, 2 unread; 0 copies written
    ");
    assert_eq!(code, 9);
    let all = "error: 2 objects are missing: their digests are recorded, and their files are gone; 2 objects could not be read";
    assert_eq!(message, all);
    // A restore brings them back.
    for attempt in 1..5 {
        let _directory = std::fs::remove_dir(at(attempt));
        let _fifo = std::fs::remove_file(at(attempt));
        stored(&datastore, &plan(attempt), "{\"a\": 1}").await;
    }
    assert_eq!(run(&root, &["verify"]).0, 0);
}

#[tokio::test]
async fn missing_directory_is_not_created() {
    let directory = tempfile::TempDir::new().unwrap();
    let root = directory.path().join("nowhere");
    for words in
        [&["ls"][..], &["cat", FILE], &["reindex"], &["verify"], &["gc", "--keep-runs", "1"]]
    {
        let (code, _, reported) = run(&root, words);
        assert_eq!(
            (code, reported),
            (8, format!("error: the directory {} does not exist", root.display()))
        );
    }
    assert!(!root.exists());
}

#[tokio::test]
async fn closed_stdout_exits_1_silently() {
    let datastore = TestDatastore::temporary().await;
    stored(&datastore, &plan(0), noise(3 << 20, 1)).await;
    let storage = format!("file://{}", datastore.root().display());
    let mut cat = program(&["cat", FILE, "--storage", &storage]);
    let mut cat = cat.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(cat.stdout.take());
    let (code, _, reported) = ended(&cat.wait_with_output().unwrap());
    assert_eq!((code, reported.as_str()), (1, ""));
}

#[tokio::test]
async fn reindex_finds_runs_stored_by_other_programs() {
    let datastore = TestDatastore::temporary().await;
    let theirs = datastore.root().join("layers/team-a/network/theirs/0");
    std::fs::create_dir_all(&theirs).unwrap();
    std::fs::write(theirs.join("plan.json"), "{}").unwrap();
    stored(&datastore, &plan(0), "ours").await;
    let (code, reported, _) = run(&datastore.root(), &["reindex"]);
    assert_eq!((code, reported.as_str()), (0, "1 run was missing in the index\n"));
    let runs = get(&datastore, "runs?namespace=team-a&layer=network").await.text();
    assert!(runs.contains("\"theirs\"") && runs.contains("\"plan-1\""), "{runs}");
    let (_, reported, _) = run(&datastore.root(), &["reindex"]);
    assert_eq!(reported, "0 runs were missing in the index\n");
}

#[tokio::test]
async fn invalid_keys_and_internal_files_are_usage_errors() {
    let datastore = TestDatastore::temporary().await;
    stored(&datastore, &plan(0), "12345").await;
    let index = files(&datastore.root()).into_iter().find(|file| file.starts_with(".plancha/runs"));
    let index = index.unwrap().display().to_string();
    let status = ".plancha/documents/a/b/status.json";
    for (words, reason) in [
        (&["cat", "../x"][..], "invalid key `../x`"),
        (&["cat", ""], "invalid key ``"),
        (&["ls", "../"], "invalid key `../`"),
        (&["verify", "layers/../x"], "invalid key `layers/../x`"),
        (&["verify", "--accept", "../x"], "invalid key `../x`"),
        (&["verify", "--accept", &index], "is one of the datastore's own files"),
        (&["verify", "--accept", status], "of which only records of applies are accepted"),
    ] {
        let (code, _, reported) = run(&datastore.root(), words);
        assert_eq!(code, 64, "{words:?}: {reported}");
        assert!(reported.contains(reason), "{words:?}: {reported}");
    }
}

const NOT_A_DIRECTORY: &str = "it is not a directory";
const DANGLING_LINK: &str = "it is a symbolic link to nowhere, which does not exist";

#[test]
fn ls_cat_and_verify_name_the_reason_why_a_directory_cannot_be_used() {
    let directory = tempfile::TempDir::new().unwrap();
    let file = directory.path().join("file");
    std::fs::write(&file, "").unwrap();
    let link = directory.path().join("link");
    std::os::unix::fs::symlink("nowhere", &link).unwrap();
    for (root, reason) in [(file, NOT_A_DIRECTORY), (link, DANGLING_LINK)] {
        for words in [&["ls"][..], &["cat", FILE], &["verify"]] {
            let (code, _, reported) = run(&root, words);
            assert!(code == 10 && reported.contains(reason), "{words:?}: {code} {reported}");
        }
    }
}

#[test]
fn check_and_serve_report_a_bad_directory_with_the_same_message() {
    let directory = tempfile::TempDir::new().unwrap();
    let missing = directory.path().join("missing");
    let (code, _, reported) = run(&missing, &["check"]);
    let expected = format!("error: the directory {} does not exist", missing.display());
    assert_eq!((code, reported), (8, expected));
    assert!(!missing.exists(), "check creates nothing");
    let file = directory.path().join("file");
    std::fs::write(&file, "").unwrap();
    let link = directory.path().join("link");
    std::os::unix::fs::symlink("nowhere", &link).unwrap();
    for (root, reason) in [
        (file.as_path(), NOT_A_DIRECTORY),
        (&link, DANGLING_LINK),
        // No user can create files there, not even root.
        (Path::new("/sys/kernel"), "it cannot be written"),
    ] {
        let (code, _, reported) = run(root, &["check"]);
        assert_eq!(code, 10, "{reported}");
        assert!(reported.contains(reason), "{reported}");
        let message = reported.trim_start_matches("error: ");
        let (code, _, reported) = run(root, &["serve", "--listen", "127.0.0.1:0"]);
        assert_eq!(code, 10, "{reported}");
        assert!(reported.contains(message), "{reported}: {message}");
    }
}

#[test]
fn check_and_serve_report_an_address_in_use_with_the_same_code() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    for word in ["serve", "check"] {
        let words = [word, "--storage", "memory://", "--listen", &address];
        let output = program(&words).output().unwrap();
        let shown = [output.stdout, output.stderr].concat();
        let shown = String::from_utf8(shown).unwrap();
        assert_eq!(output.status.code(), Some(1), "{word}: {shown}");
        let expected = format!("cannot listen on {address}: Address already in use (os error 98)");
        assert!(shown.contains(&expected), "{word}: {shown}");
        assert!(
            shown.contains("hint: another program listens there: end it, or"),
            "{word}: {shown}"
        );
    }
    drop(listener);
    let datastore = Running::over("memory://", &[], &[]);
    let address = datastore.address.clone();
    let words = ["check", "--storage", "memory://", "--listen", &address];
    let (code, shown, _) = ended(&program(&words).output().unwrap());
    assert_eq!(code, 0, "{shown}");
    let expected = format!("warning: a datastore listens on {address} already");
    assert!(shown.contains(&expected), "{shown}");
}

#[test]
fn check_prints_every_setting_with_its_source_and_no_secret() {
    let directory = tempfile::TempDir::new().unwrap();
    let storage = format!("file://{}", directory.path().display());
    let mut check = program(&["check", "--max-size", "log=5MiB", "--drain-delay", "5s"]);
    let output = check.env("PLANCHA_STORAGE", &storage).env("PLANCHA_LOG_FORMAT", "json").output();
    let (code, shown, reported) = ended(&output.unwrap());
    assert_eq!((code, reported.as_str()), (0, ""));
    insta::assert_snapshot!(shown.replace(&storage, "file:///[root]"), @r"
    --listen         127.0.0.1:8080  (default)
    --storage        file:///[root]  (PLANCHA_STORAGE)
    --auth           none  (default)
    --max-size       bin=512MiB  (default)
    --max-size       json=1GiB  (default)
    --max-size       pretty=1GiB  (default)
    --max-size       short=1MiB  (default)
    --max-size       log=5MiB  (--max-size)
    --max-size       bundle=4GiB  (default)
    --max-size       artifact=4GiB  (default)
    --max-size       workspace=4GiB  (default)
    --max-size       state=256MiB  (default)
    --max-size       status=256KiB  (default)
    --max-size       outputs=16MiB  (default)
    --max-memory     256MiB  (default)
    --drain-delay    5s  (--drain-delay)
    --drain-timeout  30s  (default)
    --log-format     json  (PLANCHA_LOG_FORMAT)
    --ui             on  (default)
    storage can list                   yes
    storage can write                  yes
    storage can conditional_create     yes
    storage can conditional_update     yes
    storage can conditional_multipart  yes
    storage can multipart_etag         yes
    storage can read                   yes
    storage can delete                 yes
    storage can keep_states            yes
    storage can multipart_begin        not tried (this storage has no uploads in parts)
    storage can multipart_part         not tried (this storage has no uploads in parts)
    storage can multipart_complete     not tried (this storage has no uploads in parts)
    storage can multipart_list         not tried (this storage has no uploads in parts)
    storage can multipart_abort        not tried (this storage has no uploads in parts)
    ");
}

#[test]
fn check_names_the_variable_of_a_missing_azure_account() {
    let output = program(&["check", "--storage", "az://container"]).output().unwrap();
    let reported = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(64), "{reported}");
    assert!(reported.contains("AZURE_STORAGE_ACCOUNT_NAME is not set\nhint: "), "{reported}");
}

#[test]
fn check_of_a_cloud_that_refuses_connections_prints_no_secret() {
    let mut check = program(&["check", "--storage", "s3://bucket"]);
    let output = check
        .env("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
        .env("AWS_ALLOW_HTTP", "true")
        .env("AWS_ACCESS_KEY_ID", "an-access-key")
        .env("AWS_SECRET_ACCESS_KEY", "s3cr3t")
        .output();
    let output = output.unwrap();
    let (code, shown, reported) = ended(&output);
    assert_eq!(code, 10, "{reported}");
    for secret in ["s3cr3t", "an-access-key"] {
        assert!(!format!("{shown}{}", String::from_utf8_lossy(&output.stderr)).contains(secret));
    }
    for variable in ["AWS_ENDPOINT_URL", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"] {
        assert!(shown.contains(variable), "{shown}");
    }
}
