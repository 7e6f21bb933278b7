//! Uploads to a directory that replace nothing (`If-None-Match: *`) and come again after the stored bytes were damaged.

use std::fs::{self, File, FileTimes};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::time::SystemTime;

use datastore::config::Config;
use datastore::store::Storage;
use datastore::store::encryption::AtRest;
use futures::future::join_all;
use reqwest::Method;
use support::TestDatastore;
use tempfile::TempDir;

use crate::api::transfer::{FILE, MIB, URL};
use crate::http::{Answer, RUN, files, get, noise, put, request, send, stored};
use crate::storage::modified_objects::rot_file;

const PLAN: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

/// How the stored file of an object is damaged.
const DAMAGES: [fn(&Path); 4] =
    [rot, rot_with_new_mtime, truncate, |file| fs::write(file, "").unwrap()];

fn rot(file: &Path) {
    let bytes = fs::read(file).unwrap();
    rot_file(file, bytes.len() / 2, bytes[bytes.len() / 2] ^ 1);
}

fn rot_with_new_mtime(file: &Path) {
    rot(file);
    let times = FileTimes::new().set_modified(SystemTime::UNIX_EPOCH);
    File::options().write(true).open(file).unwrap().set_times(times).unwrap();
}

fn truncate(file: &Path) {
    let all = fs::metadata(file).unwrap().len();
    File::options().write(true).open(file).unwrap().set_len(all - 1).unwrap();
}

async fn create(datastore: &TestDatastore, url: &str, body: &[u8]) -> Answer {
    let request = request(datastore, Method::PUT, url).header("if-none-match", "*");
    send(request.body(body.to_vec())).await
}

/// One that stores in plain, and one that encrypts.
async fn plain_and_encrypting() -> Vec<(TempDir, TestDatastore)> {
    let mut both = Vec::new();
    for at_rest in [AtRest::default(), AtRest { key: Some("a key".into()), encrypts: true }] {
        let root = TempDir::new().unwrap();
        let storage = Storage::File(root.path().to_owned());
        let datastore = TestDatastore::of(Config { at_rest, ..Config::of(storage) }).await;
        both.push((root, datastore));
    }
    both
}

fn assert_nothing_is_staged(root: &Path) {
    // The datastore's own probe of the storage may be writing.
    let is_staged = |file: &str| file.contains('#') && !file.contains(".plancha/probe/");
    let staged = files(root).into_iter().find(|file| is_staged(&file.to_string_lossy()));
    assert_eq!(staged, None);
}

#[tokio::test]
async fn repeated_creation_over_damaged_bytes_stores_them_again() {
    for (root, datastore) in plain_and_encrypting().await {
        let file = root.path().join(FILE);
        for size in [5, 9 * MIB] {
            let body = noise(size, 3);
            stored(&datastore, URL, body.clone()).await;
            for (n, damage) in DAMAGES.into_iter().enumerate() {
                damage(&file);
                let damaged = fs::read(&file).unwrap();
                let other = create(&datastore, URL, &noise(size, 4)).await;
                assert_eq!(other.status, 412, "other bytes, {size} {n}");
                assert!(fs::read(&file).unwrap() == damaged, "{size} {n}");
                let same = create(&datastore, URL, &body).await;
                assert_eq!(same.status, 200, "{size} {n}: {}", same.text());
                let read = get(&datastore, URL).await;
                assert!(read.status == 200 && read.body == body, "{size} {n}: {}", read.status);
                assert_nothing_is_staged(root.path());
            }
        }
    }
}

#[tokio::test]
async fn repeated_record_of_an_apply_over_damaged_bytes_is_stored_again() {
    let url = format!("applied?{RUN}&plan={PLAN}");
    for (root, datastore) in plain_and_encrypting().await {
        let file = root.path().join(".plancha/applied/team-a/network").join(PLAN);
        stored(&datastore, &url, "a record").await;
        for (n, damage) in DAMAGES.into_iter().enumerate() {
            damage(&file);
            assert_eq!(put(&datastore, &url, "another").await.status, 412, "{n}");
            assert_eq!(put(&datastore, &url, "a record").await.status, 200, "{n}");
            assert_eq!(get(&datastore, &url).await.body, b"a record", "{n}");
        }
    }
}

#[tokio::test]
async fn repeated_creation_of_intact_bytes_writes_nothing() {
    for (root, datastore) in plain_and_encrypting().await {
        let file = root.path().join(FILE);
        for size in [0, 5, 9 * MIB] {
            let body = noise(size, 3);
            stored(&datastore, URL, body.clone()).await;
            let inode = fs::metadata(&file).unwrap().ino();
            assert_eq!(create(&datastore, URL, &body).await.status, 200, "{size}");
            assert_eq!(fs::metadata(&file).unwrap().ino(), inode, "{size}");
            assert_nothing_is_staged(root.path());
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn repeated_creations_over_damaged_bytes_by_two_processes_all_succeed() {
    let root = TempDir::new().unwrap();
    let both = [TestDatastore::file(root.path()).await, TestDatastore::file(root.path()).await];
    for size in [5, 9 * MIB] {
        let body = noise(size, 3);
        stored(&both[0], URL, body.clone()).await;
        for damage in DAMAGES {
            damage(&root.path().join(FILE));
            let puts = (0..6_usize).map(|n| create(&both[n % 2], URL, &body));
            let statuses = join_all(puts).await.iter().map(|put| put.status).collect::<Vec<_>>();
            assert_eq!(statuses, [200; 6], "{size}");
            assert!(get(&both[0], URL).await.body == body, "{size}");
        }
    }
    assert_nothing_is_staged(root.path());
}
