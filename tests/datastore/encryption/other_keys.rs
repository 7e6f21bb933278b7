//! Objects that are encrypted with another key.

use super::*;

/// A file of `length` bytes that begins like a git bundle, a zip or a JSON object.
fn padded(head: &[u8], length: usize) -> Vec<u8> {
    [head.to_vec(), noise(length - head.len(), 3)].concat()
}

/// Stores bytes as another program would.
async fn place(root: Option<&TempDir>, double: Option<&FakeCloud>, key: &str, bytes: Vec<u8>) {
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
async fn objects_encrypted_with_another_key_are_never_returned_as_stored() {
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
                put(encrypted_by_burrito(&plain)).await;
                for method in [Method::GET, Method::HEAD] {
                    let sent = request(&datastore, method.clone(), &url);
                    assert_eq!(send(sent).await.status, 500, "{method} {url}");
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
fn commands_never_treat_objects_of_another_key_as_plain() {
    let root = TempDir::new().unwrap();
    let (_, key, plain) = kinds().swap_remove(3);
    write(&root, &key, &encrypted_by_burrito(&plain));
    let storage = format!("file://{}", root.path().display());
    for set in ["", "another"] {
        let run = |args: &[&str]| {
            let mut command = program(&[args, &["--storage", &storage]].concat());
            command.env("BURRITO_DATASTORE_STORAGE_ENCRYPTION_KEY", set).output().unwrap()
        };
        let cat = run(&["cat", &key]);
        assert_eq!((cat.status.code(), &*cat.stdout), (Some(10), &b""[..]));
        let output = String::from_utf8(cat.stderr).unwrap();
        assert!(output.contains("can be read in two ways"), "{output}");
        let verify = run(&["verify"]);
        assert_eq!(verify.status.code(), Some(10));
        let output = String::from_utf8(verify.stdout).unwrap();
        assert!(output.contains(&format!("unread (`{key}` can be read in two ways")), "{output}");
    }
}

/// Objects whose first bytes do not show their format: URL and key of each.
fn headless() -> [(String, String); 4] {
    let at = |name| format!("layers/team-a/network/plan-1/0/{name}");
    [
        (format!("plans?{RUN}&attempt=0&format=pretty"), at("pretty.plan")),
        (format!("plans?{RUN}&attempt=0&format=short"), at("short.diff")),
        (format!("logs?{RUN}&attempt=0"), at("run.log")),
        (format!("artifacts?{RUN}&attempt=0&name=cache.db"), at("cache.db")),
    ]
}

#[tokio::test]
async fn ciphertext_of_another_key_or_truncated_returns_500_for_every_kind() {
    for (storage, double, root) in storages() {
        if double.is_none() && root.is_none() {
            continue;
        }
        let config = Config { at_rest: sealed(KEY), ..Config::of(storage) };
        let datastore = TestDatastore::of(config).await;
        let put = async |key: &str, bytes| place(root.as_ref(), double.as_ref(), key, bytes).await;
        let text = "Plan: 1 to create\n".repeat(40).into_bytes();
        let cut = encrypted_by_burrito(&text);
        let cut = cut[..cut.len() - 16].to_vec();
        // That it is encrypted with another key shows nothing but that it looks so.
        let another = [noise(16, 1), noise(text.len() / 16 * 16, 2)].concat();
        for (url, key) in headless() {
            for bytes in [&cut, &another, &another[..32].to_vec()] {
                put(&key, bytes.clone()).await;
                for method in [Method::GET, Method::HEAD] {
                    let sent = request(&datastore, method.clone(), &url);
                    assert_eq!(send(sent).await.status, 500, "{method} {url}");
                }
                let part = request(&datastore, Method::GET, &url).header("range", "bytes=0-3");
                assert_eq!(send(part).await.status, 500, "{url}");
                let text = get(&datastore, &url).await.text();
                assert!(text.contains("can be read in two ways") && text.contains(&key), "{text}");
            }
            let colours = b"\x1b[31mError\x1b[0m: \xc3\xa9 no\n".repeat(16);
            let latin = b"La cl\xe9 n'existe pas\n..........".repeat(16);
            let mut plain = vec![b"No head at all. ".repeat(3), colours, latin, vec![0; 64]];
            if url.contains("artifacts") {
                let heads =
                    [&b"%PDF-1.7\n"[..], b"\x1f\x8b\x08", b"\x89PNG\r\n\x1a\n", b"PK\x03\x04"];
                plain.extend(heads.map(|head| padded(head, 640)));
            }
            for plain in plain {
                assert!(plain.len().is_multiple_of(16), "{}", plain.len());
                put(&key, plain.clone()).await;
                let answer = get(&datastore, &url).await;
                if url.contains("logs") {
                    assert_eq!(answer.status, 200, "{url}");
                } else {
                    assert_eq!((answer.status, answer.body), (200, plain), "{url}");
                }
            }
        }
    }
}

#[test]
fn verify_lists_what_may_be_ciphertext_of_every_kind() {
    let root = TempDir::new().unwrap();
    for (_, key) in headless() {
        write(&root, &key, &noise(640, 5));
    }
    let storage = format!("file://{}", root.path().display());
    let mut command = program(&["verify", "--storage", &storage]);
    command.env("BURRITO_DATASTORE_STORAGE_ENCRYPTION_KEY", KEY);
    let verify = command.output().unwrap();
    assert_eq!(verify.status.code(), Some(10));
    let output = String::from_utf8(verify.stdout).unwrap();
    assert_eq!(output.matches("unread (`").count(), 4, "{output}");
}
