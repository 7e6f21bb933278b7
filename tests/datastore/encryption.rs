//! Encrypted objects in Burrito's format.

#![expect(clippy::disallowed_types, reason = "openssl is the judge")]

mod encrypt_request;
mod interrupted_encryption;
mod other_keys;
mod replaced_objects;

use std::io::Write as _;
use std::process::{Command, Stdio};
use std::time::Duration;

use datastore::config::Config;
use datastore::store::Storage;
use datastore::store::encryption::AtRest;
use datastore_api::Sha256;
use reqwest::Method;
use support::{CloudFault, Dialect, FakeCloud, TestDatastore};
use tempfile::TempDir;

use crate::http::{RUN, etag, files, get, noise, put, request, send, stored};
use crate::program::process::program;

const KEY: &str = "test-encryption-key";
const MIB: usize = 1 << 20;
/// `hello burrito` under that key, by Burrito's own code.
const HELLO: &str = "000102030405060708090a0b0c0d0e0f4e2c7688db31356313fedc03a740f13d";

fn sealed(key: &str) -> AtRest {
    AtRest { key: Some(key.into()), encrypts: true }
}

/// One over a directory, and the directory.
async fn over(root: &TempDir, at_rest: AtRest) -> TestDatastore {
    let storage = Storage::File(root.path().to_owned());
    TestDatastore::of(Config { at_rest, ..Config::of(storage) }).await
}

/// Removes the digest of the plan.
async fn forget_record(double: &FakeCloud) {
    let record = ".plancha/sha256/layers/team-a/network/plan-1/0/plan.bin";
    let gone = format!("{}/bucket/{record}", double.address());
    assert_eq!(reqwest::Client::new().delete(gone).send().await.unwrap().status(), 204);
}

/// Waits until the plan or its record were asked for so often.
async fn until_asked(double: &FakeCloud, times: usize) {
    let asked = |request: &&String| request.starts_with("GET") && request.contains("plan.bin");
    while double.requests().iter().filter(asked).count() < times {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().concat()
}

fn unhex(text: &str) -> Vec<u8> {
    (0..text.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap())
        .collect()
}

/// What openssl makes of bytes: `-e` or `-d`.
fn openssl(way: &str, iv: &[u8], bytes: &[u8]) -> Vec<u8> {
    let key = Sha256::of(KEY.as_bytes()).to_string();
    let mut child = Command::new("openssl")
        .args(["enc", way, "-aes-256-cbc", "-K", &key, "-iv", &hex(iv)])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("openssl is there: scripts/setup installs it");
    let mut stdin = child.stdin.take().unwrap();
    let bytes = bytes.to_vec();
    let writing = std::thread::spawn(move || stdin.write_all(&bytes).unwrap());
    let output = child.wait_with_output().unwrap();
    writing.join().unwrap();
    assert!(output.status.success());
    output.stdout
}

/// Bytes as Burrito would have stored them.
fn encrypted_by_burrito(plain: &[u8]) -> Vec<u8> {
    let iv = noise(16, plain.len() as u64 + 7);
    [iv.clone(), openssl("-e", &iv, plain)].concat()
}

/// Every kind of artifact: its URL, its key, and what it may hold.
fn kinds() -> Vec<(String, String, Vec<u8>)> {
    let plan = |format| format!("plans?{RUN}&attempt=0&format={format}");
    let at = |name| format!("layers/team-a/network/plan-1/0/{name}");
    let text = "Plan: 1 to create, 0 to update, 0 to delete";
    let bundle = "repository/revision/bundle?namespace=team-a&name=infra&ref=feat/x&revision=abc";
    vec![
        (plan("json"), at("plan.json"), b"{\"format_version\":\"1.2\"}".to_vec()),
        (plan("pretty"), at("pretty.plan"), format!("{text} \u{e9}\n").into_bytes()),
        (plan("short"), at("short.diff"), text.into()),
        (plan("bin"), at("plan.bin"), [b"PK\x03\x04".to_vec(), noise(5000, 1)].concat()),
        (
            bundle.to_owned(),
            "repositories/team-a/infra/feat/x/abc.gitbundle".to_owned(),
            [b"# v2 git bundle\n".to_vec(), noise(3 * MIB, 2)].concat(),
        ),
    ]
}

fn write(root: &TempDir, key: &str, bytes: &[u8]) {
    let path = root.path().join(key);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, bytes).unwrap();
}

#[tokio::test]
async fn ds18_burritos_plain_and_encrypted_objects_are_read() {
    for encrypted in [false, true] {
        let root = TempDir::new().unwrap();
        let datastore = over(&root, sealed(KEY)).await;
        for (url, key, plain) in kinds() {
            write(
                &root,
                &key,
                &if encrypted { encrypted_by_burrito(&plain) } else { plain.clone() },
            );
            let answer = get(&datastore, &url).await;
            assert_eq!((answer.status, &answer.body), (200, &plain), "{url}, {encrypted}");
            assert_eq!(answer.header("repr-digest"), None, "no digest is recorded");
            let head = send(request(&datastore, Method::HEAD, &url)).await;
            assert_eq!(head.header("content-length").unwrap(), plain.len().to_string());
        }
        let log = "a\nb\n<c>";
        let bytes = if encrypted { encrypted_by_burrito(log.as_bytes()) } else { log.into() };
        write(&root, "layers/team-a/network/plan-1/0/run.log", &bytes);
        let answer = get(&datastore, &format!("logs?{RUN}")).await;
        assert_eq!(answer.text(), "{\"results\":[\"a\",\"b\",\"\\u003cc\\u003e\"]}\n");
    }
}

#[tokio::test]
async fn ds18_burrito_reads_what_we_encrypted() {
    for at_rest in [AtRest::default(), sealed(KEY)] {
        let (root, encrypted) = (TempDir::new().unwrap(), at_rest.encrypts);
        let datastore = over(&root, at_rest).await;
        let log = "layers/team-a/network/plan-1/0/run.log".to_owned();
        let log = (format!("logs?{RUN}&attempt=0"), log, b"a\nb\n<c>".to_vec());
        for (url, key, plain) in kinds().into_iter().chain([log]) {
            stored(&datastore, &url, plain.clone()).await;
            let stored_bytes = std::fs::read(root.path().join(&key)).unwrap();
            let read = if encrypted {
                openssl("-d", &stored_bytes[..16], &stored_bytes[16..])
            } else {
                stored_bytes
            };
            assert!(read == plain, "{key}, {encrypted}");
        }
        // Burrito would take a file beside the attempts for attempt 0.
        let attempts = std::fs::read_dir(root.path().join("layers/team-a/network/plan-1")).unwrap();
        let attempts = attempts.map(|entry| entry.unwrap().file_name()).collect::<Vec<_>>();
        assert_eq!(attempts, ["0"]);
    }
}

#[test]
fn ds21_encryption_without_a_key_prevents_startup() {
    let home = TempDir::new().unwrap();
    write(
        &home,
        ".burrito/config.yaml",
        b"datastore: {storage: {mock: true, encryption: {enabled: true}}}",
    );
    let burrito = home.path().join("burrito");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_datastore"), &burrito).unwrap();
    let ended = |command: &mut Command| {
        let output = command.env("HOME", home.path()).current_dir("/").output().unwrap();
        let reported = String::from_utf8(output.stderr).unwrap();
        format!("{}: {}", output.status.code().unwrap(), reported.trim())
    };
    let start = ended(Command::new(&burrito).env_clear().args(["datastore", "start"]));
    insta::assert_snapshot!(start, @"
    1: error: ~/.burrito/config.yaml: datastore.storage.encryption.enabled is true, but BURRITO_DATASTORE_STORAGE_ENCRYPTION_KEY is not set
    hint: set BURRITO_DATASTORE_STORAGE_ENCRYPTION_KEY to the encryption key, from a secret
    ");
    let mut serve = program(&["serve", "--storage", "memory://"]);
    serve.env("BURRITO_DATASTORE_STORAGE_ENCRYPTION_ENABLED", "1");
    serve.env("BURRITO_DATASTORE_STORAGE_ENCRYPTION_KEY", "");
    insta::assert_snapshot!(ended(&mut serve), @"
    64: error: BURRITO_DATASTORE_STORAGE_ENCRYPTION_ENABLED is 1, but BURRITO_DATASTORE_STORAGE_ENCRYPTION_KEY is not set
    hint: set BURRITO_DATASTORE_STORAGE_ENCRYPTION_KEY to the encryption key, from a secret
    ");
}

#[tokio::test]
async fn ds19_burritos_vectors_decrypt_and_openssl_decrypts_ours() {
    let root = TempDir::new().unwrap();
    let datastore = over(&root, sealed(KEY)).await;
    let empty = "000102030405060708090a0b0c0d0e0f95ee8787d6de8e568e330bdf5c733880";
    let url = format!("plans?{RUN}&attempt=0&format=bin");
    for (vector, plain) in [(HELLO, "hello burrito"), (empty, "")] {
        write(&root, "layers/team-a/network/plan-1/0/plan.bin", &unhex(vector));
        assert_eq!(get(&datastore, &url).await.text(), plain);
    }
    let mut ivs = std::collections::HashSet::new();
    for size in [0, 1, 15, 16, 17, 1000, 256 << 10, 9 * MIB + 5] {
        let plain = noise(size, 3);
        stored(&datastore, &url, plain.clone()).await;
        let stored_bytes =
            std::fs::read(root.path().join("layers/team-a/network/plan-1/0/plan.bin")).unwrap();
        assert_eq!(stored_bytes.len(), 16 + (size / 16 + 1) * 16);
        assert_eq!(openssl("-d", &stored_bytes[..16], &stored_bytes[16..]), plain, "{size}");
        assert!(ivs.insert(stored_bytes[..16].to_vec()), "no initial vector twice");
    }
}

#[tokio::test]
async fn ds20_plain_objects_are_returned_unchanged_or_refused_never_garbled() {
    let root = TempDir::new().unwrap();
    let datastore = over(&root, sealed(KEY)).await;
    let url = format!("plans?{RUN}&attempt=0&format=bin");
    let plan = |seed| [b"PK\x03\x04".to_vec(), noise(4092, seed)].concat();
    for plain in (0..600).map(plan).chain([vec![], vec![b'a'; 4096]]) {
        write(&root, "layers/team-a/network/plan-1/0/plan.bin", &plain);
        assert!(get(&datastore, &url).await.body == plain, "{plain:?}");
    }
    // Neither head nor text: another key may have encrypted it.
    for plain in [vec![0; 32], vec![16; 64], noise(4096, 1)] {
        write(&root, "layers/team-a/network/plan-1/0/plan.bin", &plain);
        let answer = get(&datastore, &url).await;
        assert!(answer.status == 500 && answer.text().contains("in two ways"), "{plain:?}");
    }
    // Other artifacts have no head that all of them share: what looks random may be encrypted with another key.
    let url = format!("artifacts?{RUN}&attempt=0&name=cache.db");
    for seed in 0..200 {
        write(&root, "layers/team-a/network/plan-1/0/cache.db", &noise(4096, seed));
        assert_eq!(get(&datastore, &url).await.status, 500, "{seed}");
    }
    let sparse = |seed| noise(2048, seed).into_iter().flat_map(|byte| [byte, 0]).collect();
    let mut refused = 0;
    for plain in [vec![0; 32], vec![16; 64]].into_iter().chain((0..600).map(sparse)) {
        write(&root, "layers/team-a/network/plan-1/0/cache.db", &plain);
        let answer = get(&datastore, &url).await;
        if answer.status == 500 {
            assert!(answer.text().contains("as it is stored, or decrypted"), "{}", answer.text());
            refused += 1;
        } else {
            assert!(answer.body == plain, "{plain:?}");
        }
    }
    assert!(refused < 12, "1 of 248 is expected: {refused}");
}

#[tokio::test]
async fn object_with_one_byte_of_padding_is_never_returned_encrypted() {
    let root = TempDir::new().unwrap();
    let datastore = over(&root, sealed(KEY)).await;
    let log = format!("logs?{RUN}&attempt=0");
    let plain = [vec![0, 0xff], noise(4093, 3)].concat();
    write(&root, "layers/team-a/network/plan-1/0/run.log", &encrypted_by_burrito(&plain));
    let answer = get(&datastore, &log).await;
    assert_eq!(answer.status, 500);
    assert!(answer.text().contains("can be read in two ways"), "{}", answer.text());

    for (url, key, content) in kinds() {
        let plain = [content, vec![b' '; 16]].concat();
        let plain = &plain[..plain.len() / 16 * 16 - 1];
        write(&root, &key, &encrypted_by_burrito(plain));
        let answer = get(&datastore, &url).await;
        assert_eq!((answer.status, &*answer.body), (200, plain), "{url}");
    }
}

/// A storage of every kind, with what must live as long as it.
fn storages() -> Vec<(Storage, Option<FakeCloud>, Option<TempDir>)> {
    let root = TempDir::new().unwrap();
    let mut all = vec![
        (Storage::File(root.path().to_owned()), None, Some(root)),
        (Storage::Memory, None, None),
    ];
    for dialect in Dialect::ALL {
        let double = FakeCloud::start(dialect);
        all.push((double.storage(), Some(double), None));
    }
    all
}

#[tokio::test(flavor = "multi_thread")]
async fn digest_and_size_of_encrypted_objects_are_those_of_the_plaintext() {
    for (storage, _double, _root) in storages() {
        let config = Config { at_rest: sealed(KEY), ..Config::of(storage) };
        let datastore = TestDatastore::of(config).await;
        for (size, announced) in
            [(0, false), (13, true), (100_000, false), (9 * MIB + 3, false), (9 * MIB + 3, true)]
        {
            let url = format!("plans?{RUN}&attempt=0&format=bin");
            let plain = noise(size, 5);
            let digest = Sha256::of(&plain).to_repr_digest();
            let mut put = request(&datastore, Method::PUT, &url);
            if announced {
                put = put.header("repr-digest", &digest);
            }
            let answer = send(put.body(plain.clone())).await;
            assert_eq!((answer.status, answer.header("etag")), (200, Some(&*etag(&plain))));
            let answer = get(&datastore, &url).await;
            assert!(answer.status == 200 && answer.body == plain, "{} bytes", answer.body.len());
            assert_eq!(answer.header("etag"), Some(&*etag(&plain)));
            assert_eq!(answer.header("repr-digest"), Some(&*digest));
            let head = send(request(&datastore, Method::HEAD, &url)).await;
            assert_eq!(head.header("content-length").unwrap(), size.to_string());
            for (from, to) in [
                (0, 1),
                (5, 40),
                (15, 17),
                (16, 32),
                (size.saturating_sub(20), size + 9),
                (0, size),
            ] {
                let range = request(&datastore, Method::GET, &url)
                    .header("range", format!("bytes={from}-{to}"));
                let answer = send(range).await;
                if from >= size {
                    assert_eq!(answer.status, 416);
                } else {
                    assert_eq!(answer.status, 206);
                    assert!(answer.body == plain[from..size.min(to + 1)], "{from}-{to} of {size}");
                }
            }
            let again = request(&datastore, Method::PUT, &url).header("if-none-match", "*");
            assert_eq!(send(again.body(plain.clone())).await.status, 200, "the same again");
            let other = request(&datastore, Method::PUT, &url).header("if-none-match", "*");
            assert_eq!(send(other.body("other")).await.status, 412);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn encrypted_objects_around_the_single_put_size_are_read_back() {
    for (storage, _double, _root) in storages() {
        let whole = if matches!(storage, Storage::File(_)) { 256 << 10 } else { 8 * MIB };
        let config = Config { at_rest: sealed(KEY), ..Config::of(storage) };
        let datastore = TestDatastore::of(config).await;
        let url = format!("plans?{RUN}&attempt=0&format=bin");
        let sizes = [whole - 17, whole - 16, whole - 8, whole - 1, whole, whole + 1];
        // One of them with its digest announced as well.
        for (size, announced) in sizes.map(|size| (size, false)).into_iter().chain([(whole, true)])
        {
            let plain = noise(size, 6);
            let mut put = request(&datastore, Method::PUT, &url);
            if announced {
                put = put.header("repr-digest", Sha256::of(&plain).to_repr_digest());
            }
            assert_eq!(send(put.body(plain.clone())).await.status, 200);
            let answer = get(&datastore, &url).await;
            assert!(answer.status == 200 && answer.body == plain, "{size}, {announced}");
            let range = request(&datastore, Method::GET, &url).header("range", "bytes=-20");
            assert!(send(range).await.body == plain[size - 20..], "{size}, {announced}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn encrypted_object_without_a_digest_record_is_recognised() {
    let double = FakeCloud::start(Dialect::S3);
    let config = Config { at_rest: sealed(KEY), ..Config::of(double.storage()) };
    let datastore = TestDatastore::of(config).await;
    let url = format!("plans?{RUN}&attempt=0&format=bin");
    // Nothing shows that it is encrypted: no known kind of file, and the shortest padding.
    let plain = noise(9 * MIB + 15, 7);
    stored(&datastore, &url, plain.clone()).await;
    forget_record(&double).await;
    let answer = get(&datastore, &url).await;
    assert!(answer.header("etag").unwrap().starts_with("\"be-"));
    assert!(answer.body == plain);
}

#[tokio::test]
async fn copy_of_an_encrypted_object_is_read_only_with_its_key() {
    let root = TempDir::new().unwrap();
    let url = format!("artifacts?{RUN}&attempt=0&name=a");
    // Nothing in it shows that it is encrypted.
    let plain = noise(1023, 1);
    stored(&over(&root, sealed(KEY)).await, &url, plain.clone()).await;
    let file = root.path().join("layers/team-a/network/plan-1/0/a");
    let bytes = std::fs::read(&file).unwrap();
    std::fs::remove_file(&file).unwrap();
    std::fs::write(root.path().join("another"), b"takes its inode").unwrap();
    std::fs::write(&file, bytes).unwrap();
    assert_eq!(get(&over(&root, sealed(KEY)).await, &url).await.body, plain);
    for at_rest in [AtRest::default(), sealed("another")] {
        assert_eq!(get(&over(&root, at_rest).await, &url).await.status, 500);
    }
    // What is as long, and something else, is no answer in any form.
    std::fs::write(&file, vec![b'a'; 1040]).unwrap();
    assert_eq!(get(&over(&root, sealed(KEY)).await, &url).await.status, 500);
}

#[tokio::test]
async fn with_encryption_on_no_artifact_is_stored_in_plain() {
    let root = TempDir::new().unwrap();
    let datastore = over(&root, sealed(KEY)).await;
    let marker = b"S3CRET-CONTENT-OF-A-TENANT";
    let mut urls = kinds().into_iter().map(|(url, ..)| url).collect::<Vec<_>>();
    urls.extend([
        format!("logs?{RUN}&attempt=0"),
        format!("artifacts?{RUN}&attempt=0&name=run.json"),
    ]);
    for url in &urls {
        stored(&datastore, url, *marker).await;
        assert!(String::from_utf8_lossy(&get(&datastore, url).await.body).contains("S3CRET"));
    }
    let mut seen = 0;
    for path in files(root.path()) {
        let bytes = std::fs::read(root.path().join(&path)).unwrap();
        assert!(!bytes.windows(6).any(|six| six == b"S3CRET"), "{}", path.display());
        seen += 1;
    }
    assert!(seen > 7);
}

#[tokio::test]
async fn encrypted_bytes_are_never_returned_without_the_right_key() {
    let root = TempDir::new().unwrap();
    let url = format!("plans?{RUN}&attempt=0&format=json");
    stored(&over(&root, sealed(KEY)).await, &url, "{\"a\":1}").await;
    for at_rest in
        [AtRest::default(), sealed("another"), AtRest { encrypts: false, ..sealed("another") }]
    {
        let datastore = over(&root, at_rest).await;
        assert_eq!(get(&datastore, &url).await.status, 500);
        let range = request(&datastore, Method::GET, &url).header("range", "bytes=0-3");
        assert_eq!(send(range).await.status, 500);
        assert_eq!(send(request(&datastore, Method::HEAD, &url)).await.status, 500);
    }
    let off = over(&root, AtRest { encrypts: false, ..sealed(KEY) }).await;
    assert_eq!(get(&off, &url).await.text(), "{\"a\":1}");
    stored(&off, &url, "{\"a\":2}").await;
    assert_eq!(
        std::fs::read(root.path().join("layers/team-a/network/plan-1/0/plan.json")).unwrap(),
        b"{\"a\":2}"
    );
    assert_eq!(get(&over(&root, sealed(KEY)).await, &url).await.text(), "{\"a\":2}");
}

#[test]
fn cat_decrypts_with_the_key() {
    let root = TempDir::new().unwrap();
    write(&root, "layers/a/b/c/0/short.diff", &unhex(HELLO));
    let storage = format!("file://{}", root.path().display());
    let cat = |key: &str| {
        let mut command = program(&["cat", "layers/a/b/c/0/short.diff", "--storage", &storage]);
        command.env("BURRITO_DATASTORE_STORAGE_ENCRYPTION_KEY", key).output().unwrap().stdout
    };
    assert_eq!(cat(KEY), b"hello burrito");
    assert_eq!(cat(""), unhex(HELLO));
}

#[tokio::test]
async fn runs_and_attempts_are_listed_with_encryption() {
    let root = TempDir::new().unwrap();
    let datastore = over(&root, sealed(KEY)).await;
    for attempt in [0, 2, 10] {
        let text = format!("{{\"attempt\":{attempt}}}");
        assert_eq!(
            put(&datastore, &format!("plans?{RUN}&attempt={attempt}"), text).await.status,
            200
        );
    }
    assert_eq!(get(&datastore, &format!("plans?{RUN}")).await.text(), "{\"attempt\":10}");
    assert_eq!(
        get(&datastore, "runs?namespace=team-a&layer=network").await.json()["runs"][0]["run"],
        "plan-1"
    );
}
