//! Encrypted objects that are replaced, deleted or lost during a read.

use super::*;

#[tokio::test]
async fn a_power_failure_between_a_record_and_its_object_never_shows_ciphertext() {
    let root = TempDir::new().unwrap();
    let url = format!("artifacts?{RUN}&attempt=0&name=a");
    let (file, record, kept) = (
        root.path().join("layers/team-a/network/plan-1/0/a"),
        root.path().join(".plancha/sha256/layers/team-a/network/plan-1/0/a"),
        root.path().join("kept"),
    );
    // Nothing in them shows that they are encrypted.
    let (old, new) = (noise(1023, 1), noise(1023, 2));
    let plain = over(&root, AtRest { encrypts: false, ..sealed(KEY) }).await;
    let encrypting = over(&root, sealed(KEY)).await;
    stored(&plain, &url, old.clone()).await;
    std::fs::hard_link(&file, &kept).unwrap();
    let record_before = std::fs::read(&record).unwrap();
    stored(&encrypting, &url, new.clone()).await;
    let encrypted = std::fs::read(&file).unwrap();
    assert_ne!(encrypted, new);

    // The record was written, the object not yet renamed.
    std::fs::hard_link(&file, root.path().join("new")).unwrap();
    std::fs::rename(&kept, &file).unwrap();
    let answer = get(&encrypting, &url).await;
    assert!((answer.status, &answer.body) == (200, &old));
    assert_eq!(answer.header("etag"), Some(&*etag(&old)));

    // The object was renamed, and the record is still that of the plain one, as an earlier release could leave it.
    std::fs::rename(root.path().join("new"), &file).unwrap();
    std::fs::write(&record, record_before).unwrap();
    let _without_attributes = rustix::fs::removexattr(&file, "user.plancha");
    for headers in [&[][..], &[("range", "bytes=0-9")]] {
        let mut read = request(&encrypting, Method::GET, &url);
        for (name, value) in headers {
            read = read.header(*name, *value);
        }
        assert_eq!(send(read).await.status, 500);
    }
    stored(&encrypting, &url, new.clone()).await;
    assert!(get(&encrypting, &url).await.body == new);
}

#[tokio::test(flavor = "multi_thread")]
async fn gc_concurrent_with_a_writer_never_leaves_an_encrypted_object_without_its_record() {
    let root = TempDir::new().unwrap();
    let datastore = over(&root, sealed(KEY)).await;
    let url = format!("artifacts?{RUN}&attempt=0&name=a");
    // As another process has it.
    let store = datastore::store::Store::open(&Storage::File(root.path().to_owned())).unwrap();
    let deleting = async {
        loop {
            store.delete("layers/team-a/network/plan-1/0/a").await.unwrap();
            tokio::task::yield_now().await;
        }
    };
    let writing = async {
        for round in 0..200 {
            let plain = noise(1023, round);
            stored(&datastore, &url, plain.clone()).await;
            let answer = get(&datastore, &url).await;
            assert!(answer.status == 404 || answer.body == plain, "{}", answer.status);
        }
    };
    tokio::select! { () = deleting => {} () = writing => {} }
}

#[tokio::test(flavor = "multi_thread")]
async fn encrypted_object_replaced_during_a_read_is_the_new_version() {
    let double = FakeCloud::start(Dialect::S3);
    let config = Config { at_rest: sealed(KEY), ..Config::of(double.storage()) };
    let datastore = TestDatastore::of(config).await;
    let url = format!("plans?{RUN}&attempt=0&format=bin");
    stored(&datastore, &url, noise(9 * MIB + 15, 7)).await;
    forget_record(&double).await;
    // Its size is not known, so after the object and its record its last bytes are asked for.
    let delay = Duration::from_secs(5);
    let (method, key) = ("GET", "plan.bin");
    double.fault(CloudFault { method, key, after: 2, times: 1, delay, ..CloudFault::default() });
    let (read, ()) = tokio::join!(get(&datastore, &url), async {
        until_asked(&double, 3).await;
        stored(&datastore, &url, "new").await;
    });
    assert_eq!((read.status, read.text()), (200, "new".to_owned()));
}
