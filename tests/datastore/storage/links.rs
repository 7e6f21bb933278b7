//! Symbolic links in a directory: those that stay inside are followed, and none leads out of it.

use std::os::unix::fs::symlink;
use std::path::Path;

use reqwest::Method;
use support::TestDatastore;
use tempfile::TempDir;

use crate::api::health::{becomes_ready, outside};
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
    assert_eq!((exit, shown.matches("plan.json\n").count()), (Some(0), 2), "{shown}");
    let named = "left out layers/evil, a symbolic link: it leads out of the directory";
    assert!(shown.contains(named), "{shown}");
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

#[tokio::test]
async fn gc_deletes_nothing_through_a_link_and_names_it() {
    let datastore = TestDatastore::temporary().await;
    let root = datastore.root();
    stored(&datastore, &plan("team-a", 0), "{}").await;
    stored(&datastore, &plan("team-b", 0), "{}").await;
    let layer = |namespace: &str| root.join(format!("layers/{namespace}/network"));
    std::fs::rename(layer("team-b"), root.join("kept")).unwrap();
    symlink("../../kept", layer("team-b")).unwrap();
    let attempt = layer("team-b").join("plan-1/1");
    std::fs::create_dir(&attempt).unwrap();
    symlink("../0/plan.json", attempt.join("plan.json")).unwrap();
    let rules = ["gc", "--max-age", "json=0s", "--min-age", "0s"];
    for dry_run in [&["--dry-run"][..], &[]] {
        let (exit, shown) = output(&root, &[&rules, dry_run].concat());
        assert!(exit == Some(0) && shown.contains("1 of 3 artifacts"), "{shown}");
        let named =
            "left out layers/team-b/network, a symbolic link: nothing is deleted through it";
        assert!(shown.contains(named), "{shown}");
    }
    assert_eq!(get(&datastore, &plan("team-a", 0)).await.status, 404);
    assert_eq!(get(&datastore, &plan("team-b", 0)).await.text(), "{}");
    assert!(attempt.join("plan.json").is_symlink());
    // The run is still in the index.
    let runs = get(&datastore, "runs?namespace=team-b&layer=network").await.text();
    assert!(runs.contains("plan-1"), "{runs}");
}

#[tokio::test]
async fn links_that_lead_back_are_left_out_and_named() {
    let datastore = TestDatastore::temporary().await;
    let root = datastore.root();
    stored(&datastore, &plan("team-a", 0), "{}").await;
    let team = root.join("layers/team-a");
    symlink("itself", team.join("itself")).unwrap();
    symlink("..", team.join("network/above")).unwrap();
    symlink("../../team-c", team.join("network/there")).unwrap();
    std::fs::create_dir(root.join("layers/team-c")).unwrap();
    symlink("../team-a/network", root.join("layers/team-c/back")).unwrap();
    for words in [&["ls"][..], &["verify"], &["reindex"], &["gc", "--keep-runs", "1"]] {
        let (exit, shown) = output(&root, words);
        assert_eq!(exit, Some(0), "{words:?}: {shown}");
        for link in ["itself", "network/above", "network/there/back"] {
            let named =
                format!("left out layers/team-a/{link}, a symbolic link: it leads to itself");
            assert!(shown.contains(&named), "{words:?}: {shown}");
        }
    }
}

#[tokio::test]
async fn layers_as_a_link_that_leads_out_makes_it_unready() {
    let datastore = TestDatastore::temporary().await;
    let (root, other) = (datastore.root(), TempDir::new().unwrap());
    becomes_ready(&datastore).await;
    symlink(other.path(), root.join("layers")).unwrap();
    let ready = outside(&datastore, "readyz").await;
    assert_eq!(ready.status, 503);
    assert!(
        ready.text().contains("a symbolic link leads out of its directory"),
        "{}",
        ready.text()
    );
    let (exit, shown) = output(&root, &["check"]);
    let named = format!("a symbolic link leads from {}/layers out of", root.display());
    assert!(exit == Some(10) && shown.contains(&named), "{exit:?} {shown}");
    std::fs::remove_file(root.join("layers")).unwrap();
    std::fs::write(root.join("layers"), "").unwrap();
    assert_eq!(outside(&datastore, "readyz").await.status, 503);
    let (exit, shown) = output(&root, &["check"]);
    assert!(exit == Some(10) && shown.contains("layers cannot be used: it is not a"), "{shown}");
}

#[tokio::test]
async fn gc_keeps_the_newest_plan_of_a_layer_beside_a_link_to_a_newer_one() {
    let datastore = TestDatastore::temporary().await;
    let root = datastore.root();
    stored(&datastore, &format!("{}&format=bin", plan("team-a", 0)), "ours").await;
    stored(&datastore, &format!("{}&format=bin", plan("team-b", 0)), "theirs").await;
    let runs = root.join("layers/team-a/network");
    let old = std::fs::File::options().write(true).open(runs.join("plan-1/0/plan.bin")).unwrap();
    let hour = std::time::Duration::from_hours(1);
    old.set_modified(std::time::SystemTime::now() - hour).unwrap();
    std::fs::create_dir_all(runs.join("plan-2/0")).unwrap();
    let theirs = root.join("layers/team-b/network/plan-1/0/plan.bin");
    symlink(theirs, runs.join("plan-2/0/plan.bin")).unwrap();
    let linked = "plans?namespace=team-a&layer=network&run=plan-2&attempt=0&format=bin";
    assert_eq!(get(&datastore, linked).await.text(), "theirs");
    for rules in ["--max-age bin=0s", "--keep-runs 1"] {
        let rules = rules.split(' ').collect::<Vec<_>>();
        let (exit, shown) = output(&root, &[&["gc", "--min-age", "0s"], &*rules].concat());
        assert_eq!(exit, Some(0), "{shown}");
        let answer = get(&datastore, &format!("{}&format=bin", plan("team-a", 0))).await;
        assert_eq!((answer.status, answer.text()), (200, "ours".to_owned()), "{shown}");
    }
}
