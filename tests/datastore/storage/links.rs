//! Symbolic links in a directory: those that stay inside are followed, and none leads out of it.

use std::os::unix::fs::symlink;
use std::path::Path;

use reqwest::Method;
use support::TestDatastore;
use tempfile::TempDir;

use crate::http::{files, get, put, request, send, stored};
use crate::program::process::program;

fn plan(namespace: &str, attempt: u32) -> String {
    format!("plans?namespace={namespace}&layer=network&run=plan-1&attempt={attempt}")
}

/// What a command prints, and its exit code.
fn output(root: &Path, words: &[&str]) -> (Option<i32>, String) {
    let storage = format!("file://{}", root.display());
    let output = program(words).args(["--storage", &storage]).output().unwrap();
    let shown = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8(shown).unwrap())
}

#[tokio::test]
async fn no_link_leads_out_of_the_directory() {
    let datastore = TestDatastore::temporary().await;
    let (root, other) = (datastore.root(), TempDir::new().unwrap());
    let theirs = other.path().join("network/plan-1/0");
    std::fs::create_dir_all(&theirs).unwrap();
    std::fs::write(theirs.join("plan.json"), "secret").unwrap();
    let before = files(other.path());
    stored(&datastore, &plan("team-a", 0), "{}").await;
    let linked = root.join("layers/team-a/network/plan-1/1");
    std::fs::create_dir(&linked).unwrap();
    symlink(theirs.join("plan.json"), linked.join("plan.json")).unwrap();
    symlink(other.path(), root.join("layers/evil")).unwrap();
    // Where the records of another namespace would be.
    symlink(other.path(), root.join(".plancha/sha256/layers/team-c")).unwrap();

    for url in [plan("evil", 0), plan("team-a", 1)] {
        for method in [Method::GET, Method::HEAD] {
            let answer = send(request(&datastore, method, &url)).await;
            assert_eq!(answer.status, 500, "{url}");
            assert!(!answer.text().contains("secret"), "{url}");
        }
    }
    for url in [plan("evil", 0), plan("evil", 7), plan("team-a", 1), plan("team-c", 0)] {
        let answer = put(&datastore, &url, "ours").await;
        assert_eq!(answer.status, 500, "{url}");
        assert!(answer.text().contains("a symbolic link leads out of its directory"), "{url}");
    }
    let listed = get(&datastore, "attempts?namespace=evil&layer=network&run=plan-1").await;
    assert_eq!(listed.status, 500, "{}", listed.text());
    let (exit, shown) = output(&root, &["cat", "layers/evil/network/plan-1/0/plan.json"]);
    assert!(exit == Some(10) && shown.contains("remove it, or mount"), "{shown}");
    let (exit, shown) = output(&root, &["ls"]);
    assert_eq!((exit, shown.matches("plan.json").count()), (Some(0), 2), "{shown}");
    let (exit, shown) = output(&root, &["gc", "--max-age", "json=0s", "--min-age", "0s"]);
    assert!(exit == Some(0) && shown.contains("1 of 1 artifacts deleted"), "{shown}");
    assert_eq!(files(other.path()), before);
    assert_eq!(std::fs::read_to_string(theirs.join("plan.json")).unwrap(), "secret");
}

#[tokio::test]
async fn a_link_that_stays_in_the_directory_is_followed() {
    let datastore = TestDatastore::temporary().await;
    stored(&datastore, &plan("team-a", 0), "{}").await;
    symlink("team-a", datastore.root().join("layers/alias")).unwrap();
    assert_eq!(get(&datastore, &plan("alias", 0)).await.text(), "{}");
    stored(&datastore, &plan("alias", 1), "[]").await;
    assert_eq!(get(&datastore, &plan("team-a", 1)).await.text(), "[]");
}
