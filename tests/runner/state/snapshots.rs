//! Snapshots of local states in the datastore, with the real tool.

use std::time::Duration;

use support::{Ended, Fault, FaultyDatastore, LATE, Sandbox, TestDatastore, eventually, wait_for};
use url::Url;

use crate::{RUNNER, json};

/// Each object is created when a file exists.
fn chain(names: &[&str]) -> String {
    let resources = names.iter().enumerate().map(|(index, name)| {
        let before = if index == 0 {
            "\"\"".to_owned()
        } else {
            format!("terraform_data.{}.id", names[index - 1])
        };
        format!(
            "resource \"terraform_data\" \"{name}\" {{
  input = {before}
  provisioner \"local-exec\" {{
    command = \"touch at-{name}; while [ ! -e {name} ]; do sleep 0.1; done\"
  }}
}}
"
        )
    });
    resources.collect()
}

const APPLY: [&str; 4] = ["apply", "--no-plan", "--name", "x"];

fn module(main: &str) -> Sandbox {
    let sandbox = Sandbox::new(RUNNER);
    sandbox.write("main.tf", main);
    sandbox
}

/// The snapshots of a workspace, newest first.
async fn snapshots(url: &Url, workspace: &str) -> Vec<serde_json::Value> {
    let query = format!("namespace=default&layer=x&workspace={workspace}&kind=snapshot");
    let response = reqwest::get(url.join(&format!("/api/states?{query}")).unwrap()).await.unwrap();
    assert_eq!(response.status(), 200);
    json(&response.bytes().await.unwrap())["versions"].as_array().unwrap().clone()
}

/// The names of the objects in a snapshot.
async fn objects(url: &Url, workspace: &str, snapshot: &serde_json::Value) -> Vec<String> {
    let version = snapshot["version"].as_str().unwrap();
    let below = if workspace == "default" { String::new() } else { format!("/{workspace}") };
    let route = format!("/api/state/default/x{below}?version={version}");
    let state = reqwest::get(url.join(&route).unwrap()).await.unwrap().bytes().await.unwrap();
    let state = json(&state);
    let resources = state["resources"].as_array().unwrap();
    resources.iter().map(|resource| resource["name"].as_str().unwrap().to_owned()).collect()
}

#[track_caller]
fn ok(ended: &Ended) {
    assert_eq!(ended.code, 0, "{}\n{}", ended.stdout, ended.stderr);
}

#[tokio::test(flavor = "multi_thread")]
async fn each_version_is_stored_while_the_apply_runs() {
    let datastore = TestDatastore::memory().await;
    let url = &datastore.url;
    let files = ["--state-in", "../state", "--state-out", "../state"];
    for (workspace, more) in [("default", &[][..]), ("dev", &[]), ("files", &files)] {
        let sandbox = module(&chain(&["a", "b"]));
        let mut command = sandbox.command(&[&APPLY[..], &["--run", workspace], more].concat());
        command.env("PLANCHA_DATASTORE_URL", url.as_str()).env("TF_WORKSPACE", workspace);
        let runner = support::Started::spawn(command);
        sandbox.write("a", "");
        let first = wait_for("the first object is in a snapshot", async || {
            let snapshots = snapshots(url, workspace).await;
            for snapshot in snapshots {
                if objects(url, workspace, &snapshot).await.contains(&"a".to_owned()) {
                    return Some(snapshot);
                }
            }
            None
        });
        let first = first.await;
        assert!(!sandbox.work().join("b").exists());
        assert_eq!(first["run"], format!("{workspace}/0"));
        assert_eq!(first["tool"]["name"], "terraform");
        sandbox.write("b", "");
        ok(&runner.wait());
        let stored = snapshots(url, workspace).await;
        assert_eq!(objects(url, workspace, &stored[0]).await, ["a", "b"], "the last version");
        let serials = stored.iter().map(|version| version["serial"].as_u64());
        assert!(serials.is_sorted_by(|later, earlier| later >= earlier));
        assert!(sandbox.is_clean());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn last_version_is_stored_after_a_failed_and_a_stopped_apply() {
    let datastore = TestDatastore::memory().await;
    let url = &datastore.url;
    let failing = "resource \"terraform_data\" \"z\" {\n  provisioner \"local-exec\" {\n    command = \"false\"\n  }\n}\n";
    let sandbox = module(failing);
    let ended = sandbox.run_with(url, &APPLY);
    assert_eq!(ended.code, 1, "{}", ended.stderr);
    let stored = snapshots(url, "default").await;
    assert_eq!(objects(url, "default", &stored[0]).await, ["z"]);

    let sandbox = module(&chain(&["a", "b"]));
    sandbox.write("a", "");
    let runner = sandbox.start(Some(url), &[&APPLY[..], &["--run", "s"]].concat());
    eventually("the second object is created", || sandbox.work().join("at-b").exists());
    runner.signal("TERM");
    assert_eq!(runner.wait().code, 143);
    let stored = snapshots(url, "default").await;
    assert!(objects(url, "default", &stored[0]).await.contains(&"a".to_owned()));
    assert_eq!(stored[0]["run"], "s/0");
}

/// A tool that truncates its file, waits, and writes it in pieces.
#[tokio::test(flavor = "multi_thread")]
async fn torn_versions_are_never_sent() {
    let datastore = TestDatastore::memory().await;
    let proxy = FaultyDatastore::before(&datastore.url, Vec::new()).await;
    let sandbox = Sandbox::new(RUNNER).fake_terraform(
        r#"
case "$*" in
  apply*)
    for serial in 1 2 3; do
      : > terraform.tfstate
      sleep 1.6
      printf '{"version": 4, "serial": %s, "lineage": "l",' $serial >> terraform.tfstate
      sleep 1.6
      printf ' "resources": []}' >> terraform.tfstate
      sleep 1.6
    done
    printf '{"version": 4, "serial": 9, "lineage": "other", "resources": []}' > terraform.tfstate
    sleep 1.6
    printf '{"version": 4, "serial": 2, "lineage": "l", "resources": []}' > terraform.tfstate
    sleep 1.6
    printf '{"version": 4, "serial": 4, "lineage": "l", "resources": []}' > terraform.tfstate
    ;;
esac
"#,
    );
    sandbox.write("main.tf", "");
    ok(&sandbox.run_with(&proxy.url, &APPLY));
    let puts = proxy.seen().into_iter().filter(|seen| seen.starts_with("PUT /api/states?")).count();
    let stored = snapshots(&datastore.url, "default").await;
    let serials = stored.iter().map(|version| version["serial"].as_u64().unwrap());
    assert_eq!(serials.collect::<Vec<_>>(), [4, 3, 2, 1]);
    assert_eq!(puts, 4, "nothing else was sent");
}

#[tokio::test(flavor = "multi_thread")]
async fn failed_uploads_are_tried_again_and_never_fail_the_apply() {
    let datastore = TestDatastore::memory().await;
    let fault = |status: u16, times| Fault { method: "PUT", part: "/api/states", status, times };
    for (status, times, stored, warned) in [
        // It is tried again.
        (500, 1, 1, None),
        // An older datastore.
        (404, usize::MAX, 0, None),
        (403, usize::MAX, 0, Some("needs a rule with the kind `state`")),
        (413, usize::MAX, 0, Some("the last snapshot of the state is not stored")),
    ] {
        let proxy = FaultyDatastore::before(&datastore.url, vec![fault(status, times)]).await;
        let sandbox = module("resource \"terraform_data\" \"a\" {}\n");
        let workspace = format!("w{status}");
        let mut command = sandbox.command(&["apply", "--no-plan", "--name", "x"]);
        command.env("PLANCHA_DATASTORE_URL", proxy.url.as_str()).env("TF_WORKSPACE", &workspace);
        let ended = Ended::from(command.output().unwrap());
        ok(&ended);
        assert_eq!(snapshots(&datastore.url, &workspace).await.len(), stored, "{status}");
        let warnings = ended.stderr.lines().filter(|line| line.contains("snapshot")).count();
        assert_eq!(warnings, usize::from(warned.is_some()), "{status}: {}", ended.stderr);
        if let Some(warned) = warned {
            assert!(ended.stderr.contains(warned), "{status}: {}", ended.stderr);
        }
    }
}

/// The datastore is silent about snapshots while the tool works, and slow after it.
#[tokio::test(flavor = "multi_thread")]
async fn silence_during_an_apply_does_not_shorten_the_uploads_after_it() {
    let datastore = TestDatastore::memory().await;
    let put = |part, status, times| Fault { method: "PUT", part, status, times };
    let faults = vec![put("/api/states", 0, 2), put("name=run.json", LATE, 1)];
    let proxy = FaultyDatastore::before(&datastore.url, faults).await;
    let sandbox = module(&chain(&["a", "b"]));
    sandbox.write("a", "");
    // After two silent tries a client gives up, and then waits for a quarter of a second.
    let runner =
        sandbox.start(Some(&proxy.url), &[&APPLY[..], &["--datastore-timeout", "3s"]].concat());
    eventually("two uploads are silent", || {
        proxy.seen().iter().filter(|seen| seen.starts_with("PUT /api/states?")).count() == 2
    });
    sandbox.write("b", "");
    let ended = runner.wait();
    ok(&ended);
    assert!(!ended.stderr.contains("snapshot"), "{}", ended.stderr);
    let stored = snapshots(&datastore.url, "default").await;
    assert_eq!(objects(&datastore.url, "default", &stored[0]).await, ["a", "b"]);
}

/// The plan is bound to the state that it was made of, and a state that cannot be written is an artifact, too.
#[tokio::test(flavor = "multi_thread")]
async fn stored_plan_is_applied_to_a_state_file() {
    let datastore = TestDatastore::memory().await;
    let url = &datastore.url;
    let main = "resource \"terraform_data\" \"a\" {\n  provisioner \"local-exec\" {\n    command = \"rm -rf ../gone\"\n  }\n}\n";
    let sandbox = module(main);
    let files = ["--name", "x", "--state-in", "../state", "--state-out", "../state"];
    let run = |args: &[&str]| sandbox.run_with(url, &[args, &files].concat());
    ok(&run(&["plan", "--run", "p"]));
    ok(&run(&["apply", "--run", "a"]));
    let state = std::fs::read(sandbox.path("state")).unwrap();
    ok(&run(&["plan", "--run", "q", "--replace", "terraform_data.a"]));
    // Another process has changed the state since.
    std::fs::write(
        sandbox.path("state"),
        String::from_utf8_lossy(&state).replace("\"serial\": 1", "\"serial\": 7"),
    )
    .unwrap();
    let refused = run(&["apply", "--run", "b"]);
    assert_eq!(refused.code, 9, "{}", refused.stderr);

    std::fs::create_dir(sandbox.path("gone")).unwrap();
    let gone = ["--name", "y", "--state-in", "../in", "--state-out", "../gone/state"];
    let args = [&["apply", "--no-plan", "--run", "c"][..], &gone].concat();
    let ended = sandbox.run_with(url, &args);
    assert_eq!(ended.code, 1, "{}", ended.stderr);
    assert!(ended.stderr.contains("errored.tfstate of the attempt"), "{}", ended.stderr);
    let route = "/api/artifacts?namespace=default&layer=y&run=c&attempt=0&name=errored.tfstate";
    let stored = reqwest::get(url.join(route).unwrap()).await.unwrap();
    assert_eq!(json(&stored.bytes().await.unwrap())["resources"][0]["name"], "a");
    let applied = "/api/artifacts?namespace=default&layer=y&run=c&attempt=0&name=run.json";
    let report = reqwest::get(url.join(applied).unwrap()).await.unwrap().bytes().await.unwrap();
    assert_eq!(json(&report)["outcome"], "applied");
}

/// The datastore is silent at the end.
#[tokio::test(flavor = "multi_thread")]
async fn silent_datastore_does_not_keep_a_stopped_apply() {
    let datastore = TestDatastore::memory().await;
    let fault = Fault { method: "PUT", part: "/api/states", status: 0, times: usize::MAX };
    let proxy = FaultyDatastore::before(&datastore.url, vec![fault]).await;
    let sandbox = module(&chain(&["a"]));
    let args = [&APPLY[..], &["--grace", "5s"]].concat();
    let runner = sandbox.start(Some(&proxy.url), &args);
    eventually("the object is created", || sandbox.work().join("at-a").exists());
    runner.signal("TERM");
    let (sender, ended) = std::sync::mpsc::channel();
    std::thread::spawn(move || sender.send(runner.wait()));
    let ended = ended.recv_timeout(Duration::from_secs(40)).unwrap();
    assert_eq!(ended.code, 143, "{}", ended.stderr);
}
