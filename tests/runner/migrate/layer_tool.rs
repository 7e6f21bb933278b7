//! The tool that the datastore records for a layer: another one is refused, and an older version of it.

use support::{Sandbox, TestDatastore};

use crate::RUNNER;

async fn put(datastore: &TestDatastore, name: &str, version: &str) {
    let url = datastore.url.join("/api/tools/default/x").unwrap();
    let tool = serde_json::json!({"name": name, "version": version}).to_string();
    let put = reqwest::Client::new().put(url).header("content-type", "application/json");
    assert_eq!(put.body(tool).send().await.unwrap().status(), 200);
}

async fn get(datastore: &TestDatastore) -> serde_json::Value {
    let url = datastore.url.join("/api/tools/default/x").unwrap();
    crate::json(&reqwest::get(url).await.unwrap().bytes().await.unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn other_tool_and_older_version_than_recorded_are_refused() {
    let datastore = TestDatastore::memory().await;
    let sandbox = Sandbox::new(RUNNER).hello().fake_terraform("");
    let run = |args: &[&str]| sandbox.run_with(&datastore.url, &[args, &["--name", "x"]].concat());
    assert_eq!(run(&["plan", "--run", "p"]).code, 0);
    for (name, version, text) in [
        (
            "tofu",
            "1.10.0",
            "the states of default/x belong to tofu 1.10.0, and this run would use terraform 1.9.8",
        ),
        (
            "terraform",
            "1.11.4",
            "were written by terraform 1.11.4, and this run would use the older terraform 1.9.8",
        ),
    ] {
        put(&datastore, name, version).await;
        let before = sandbox.calls().len();
        for args in [
            &["plan"][..],
            &["apply", "--plan", "p"],
            &["apply", "--no-plan"],
            &["destroy", "--auto-approve"],
        ] {
            let ended = run(args);
            assert_eq!(ended.code, 8, "{args:?}: {}", ended.stderr);
            assert!(ended.stderr.contains(text), "{args:?}: {}", ended.stderr);
            let next = format!("--tool {name} --tool-version {version}");
            assert!(ended.stderr.contains(&next), "{args:?}: {}", ended.stderr);
        }
        assert_eq!(sandbox.calls().len(), before, "the tool was not started");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn later_version_is_recorded_after_its_apply_and_only_then() {
    let datastore = TestDatastore::memory().await;
    let sandbox = Sandbox::new(RUNNER).hello().fake_terraform("");
    let run = |args: &[&str]| {
        let ended = sandbox.run_with(&datastore.url, &[args, &["--name", "x"]].concat());
        assert_eq!(ended.code, 0, "{args:?}: {}", ended.stderr);
    };
    put(&datastore, "terraform", "1.9.7").await;
    run(&["plan"]);
    assert_eq!(get(&datastore).await["version"], "1.9.7");
    run(&["apply"]);
    assert_eq!(get(&datastore).await["version"], "1.9.8");
    // Without a record nothing is recorded.
    let ended = sandbox.run_with(&datastore.url, &["apply", "--no-plan", "--name", "y"]);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    let url = datastore.url.join("/api/tools/default/y").unwrap();
    assert_eq!(reqwest::get(url).await.unwrap().status(), 404);
}
