//! Objects that another key has encrypted.

use super::*;

/// A file of `length` bytes that begins like a git bundle, a zip or a JSON object.
fn padded(head: &[u8], length: usize) -> Vec<u8> {
    [head.to_vec(), noise(length - head.len(), 3)].concat()
}

/// Stores bytes as another program would.
async fn place(root: Option<&TempDir>, double: Option<&Double>, key: &str, bytes: Vec<u8>) {
    match (root, double) {
        (Some(root), _) => write(root, key, &bytes),
        (None, Some(double)) => {
            let url = format!("{}/bucket/{key}", double.address());
            let put = reqwest::Client::new().put(url).body(bytes).send().await.unwrap();
            assert_eq!(put.status(), 200);
        }
        (None, None) => {}
    }
}

#[tokio::test]
async fn what_another_key_has_encrypted_is_never_answered_as_it_is_stored() {
    for at_rest in [AtRest::default(), sealed("another"), sealed("yet-another")] {
        for (storage, double, root) in storages() {
            if double.is_none() && root.is_none() {
                continue;
            }
            let config = Config { at_rest: at_rest.clone(), ..Config::of(storage) };
            let datastore = TestDatastore::of(config).await;
            for (url, key, plain) in kinds() {
                if url.contains("pretty") || url.contains("short") {
                    continue;
                }
                let put = async |bytes| place(root.as_ref(), double.as_ref(), &key, bytes).await;
                put(upstreams(&plain)).await;
                for method in [Method::GET, Method::HEAD] {
                    let asked = request(&datastore, method.clone(), &url);
                    assert_eq!(send(asked).await.status, 500, "{method} {url}");
                }
                let part = request(&datastore, Method::GET, &url).header("range", "bytes=0-3");
                assert_eq!(send(part).await.status, 500, "{url}");
                let text = get(&datastore, &url).await.text();
                assert!(text.contains("can be read in two ways") && text.contains(&key), "{text}");
                // What is stored in plain has blocks of the same length, by chance.
                let heads = [&b"{\"a\":1}"[..], b"PK\x03\x04", b"# v2 git bundle\n"];
                let head =
                    heads[["json", "bin", "bundle"].iter().position(|k| url.contains(k)).unwrap()];
                let plain =
                    if url.contains("json") { b"{\"a\":1}".repeat(8) } else { padded(head, 640) };
                for plain in [plain, b"No head at all. ".repeat(3)] {
                    put(plain.clone()).await;
                    let answer = get(&datastore, &url).await;
                    assert_eq!((answer.status, answer.body), (200, plain), "{url}");
                }
            }
        }
    }
}

#[test]
fn commands_never_take_what_another_key_has_encrypted_for_plain() {
    let root = TempDir::new().unwrap();
    let (_, key, plain) = kinds().swap_remove(3);
    write(&root, &key, &upstreams(&plain));
    let storage = format!("file://{}", root.path().display());
    for set in ["", "another"] {
        let run = |args: &[&str]| {
            let mut command = program(&[args, &["--storage", &storage]].concat());
            command.env("BURRITO_DATASTORE_STORAGE_ENCRYPTION_KEY", set).output().unwrap()
        };
        let cat = run(&["cat", &key]);
        assert_eq!((cat.status.code(), &*cat.stdout), (Some(10), &b""[..]));
        let said = String::from_utf8(cat.stderr).unwrap();
        assert!(said.contains("can be read in two ways"), "{said}");
        let verify = run(&["verify"]);
        assert_eq!(verify.status.code(), Some(10));
        let said = String::from_utf8(verify.stdout).unwrap();
        assert!(said.contains(&format!("unread (`{key}` can be read in two ways")), "{said}");
    }
}
