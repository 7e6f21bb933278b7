//! What a plan does at once: it lists and claims its attempt while its code is checked out, and before init; and it renders
//! its plan as JSON and as text. And what an apply does: it reads the outputs while it is recorded.

use std::path::PathBuf;

use support::{Fault, FaultyDatastore, Sandbox, TestDatastore, eventually};

use crate::source::checkout::repository;
use crate::{RUNNER, json};

/// Puts a git on PATH that creates the file `called` when it fetches, and then waits as long as the file `wait` exists.
fn watched_git(sandbox: &Sandbox) -> [PathBuf; 2] {
    let files = ["called", "wait"].map(|name| sandbox.path(name));
    let [called, wait] = files.each_ref().map(|file| file.display());
    let real = support::on_path("git").unwrap();
    let script = format!(
        "#!/bin/sh\ncase \" $* \" in *' fetch '*) touch {called}; while [ -e {wait} ]; do sleep 0.05; done;; \
         esac\nexec {real} \"$@\"\n",
        real = real.display()
    );
    sandbox.script("git", &script);
    files
}

#[tokio::test(flavor = "multi_thread")]
async fn plan_claims_its_attempt_while_its_code_is_checked_out() {
    let datastore = TestDatastore::memory().await;
    let sandbox = Sandbox::new(RUNNER).fake_terraform("");
    let url = format!("file://{}", repository(&sandbox).dir.display());
    let plan = ["plan", &url, "--path", "live/vpc", "--name", "x", "--run", "p"];
    let [called, wait] = watched_git(&sandbox);
    let is_claimed = |datastore: &FaultyDatastore| {
        datastore.seen().iter().any(|line| line.starts_with("POST /api/attempts"))
    };

    // The checkout does not wait for the claim.
    let unanswered = Fault { method: "POST", part: "/api/attempts", status: 0, times: usize::MAX };
    let silent = FaultyDatastore::before(&datastore.url, vec![unanswered]).await;
    let runner = sandbox.start(Some(&silent.url), &plan);
    eventually("both have started", || is_claimed(&silent) && called.exists());
    runner.signal("TERM");
    let ended = runner.wait();
    assert_eq!(ended.code, 143, "{}", ended.stderr);
    assert_eq!(sandbox.calls(), Vec::<String>::new(), "init waits for the claim");

    // The claim does not wait for the checkout.
    std::fs::remove_file(&called).unwrap();
    std::fs::write(&wait, "").unwrap();
    let listening = FaultyDatastore::before(&datastore.url, vec![]).await;
    let runner = sandbox.start(Some(&listening.url), &plan);
    eventually("both have started", || is_claimed(&listening) && called.exists());
    std::fs::remove_file(&wait).unwrap();
    let ended = runner.wait();
    assert_eq!(ended.code, 0, "{}", ended.stderr);
}

/// Each rendering waits for the other one, at most 20 s.
const RENDEZVOUS: &str = r#"
case "$*" in
  *-json*) mine=json other=text;;
  show*) mine=text other=json;;
  *) mine=;;
esac
if [ -n "$mine" ]; then
  touch "$HOME/$mine"
  for i in $(seq 200); do [ -e "$HOME/$other" ] && break; sleep 0.1; done
  [ -e "$HOME/$other" ] || { echo "Error: $other does not run" >&2; exit 1; }
fi
"#;

#[test]
#[ignore = "needs a memory control group"]
fn plan_is_rendered_as_json_and_as_text_at_once() {
    let sandbox = Sandbox::new(RUNNER).hello().fake_terraform(RENDEZVOUS);
    let ended = sandbox.run(&["plan", "--result", "result.json"]);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    assert_eq!(steps(&sandbox), ["init", "plan", "show json", "show"]);
    assert_eq!(sandbox.calls().len(), 4, "{:?}", sandbox.calls());
}

#[test]
fn failure_and_warnings_of_the_rendering_as_text_are_those_of_a_step_of_its_own() {
    for (end, code) in [("", 0), ("exit 1", 1)] {
        let script = format!(
            "case \"$*\" in show\\ *-json*) ;; show*) echo 'Error: no text' >&2; {end};; esac"
        );
        let sandbox = Sandbox::new(RUNNER).hello().fake_terraform(&script);
        let ended = sandbox.run(&["plan", "--result", "result.json"]);
        assert_eq!(ended.code, code, "{}", ended.stderr);
        assert_eq!(steps(&sandbox), ["init", "plan", "show json", "show"]);
        let shown = ended.stderr.lines().filter(|line| *line == "Error: no text").count();
        assert_eq!(shown, 1, "{}", ended.stderr);
        if code == 1 {
            let message = "terraform show failed with exit code 1: no text";
            assert!(ended.stderr.contains(message), "{}", ended.stderr);
        }
    }
}

/// A plan that changes an output.
const OUTPUT: &str = r#"
case "$*" in
  show*-json*) echo '{"format_version":"1.2","resource_changes":[{"change":{"actions":["create"]}}],"output_changes":{"a":{"actions":["create"]}}}'; exit 0;;
  output*) echo '{"a":{"sensitive":false,"type":"string","value":"x"}}'; exit 0;;
esac
"#;

#[tokio::test(flavor = "multi_thread")]
async fn outputs_are_read_while_the_apply_is_recorded() {
    let datastore = TestDatastore::memory().await;
    let sandbox = Sandbox::new(RUNNER).hello().fake_terraform(OUTPUT);
    let planned = sandbox.run_with(&datastore.url, &["plan", "--name", "x", "--run", "p"]);
    assert_eq!(planned.code, 0, "{}", planned.stderr);
    let unanswered = Fault { method: "PUT", part: "/api/applied", status: 503, times: usize::MAX };
    let proxy = FaultyDatastore::before(&datastore.url, vec![unanswered]).await;
    let apply = ["apply", "--name", "x", "--run", "a", "--result", "result.json"];
    let runner = sandbox.start(Some(&proxy.url), &apply);
    eventually("the outputs are read", || {
        sandbox.calls().iter().any(|call| call.starts_with("output"))
    });
    proxy.set_faults(Vec::new());
    let ended = runner.wait();
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    assert_eq!(steps(&sandbox), ["init", "apply", "output"]);
    assert_eq!(sandbox.calls().iter().filter(|call| call.starts_with("output")).count(), 1);
    let outputs = "api/documents?namespace=default&layer=x&name=outputs.json";
    let stored = reqwest::get(datastore.url.join(outputs).unwrap()).await.unwrap();
    let stored = stored.text().await.unwrap();
    assert!(stored.contains("\"value\":\"x\""), "{stored}");
}

/// The steps of the report.
fn steps(sandbox: &Sandbox) -> Vec<String> {
    let report = json(sandbox.read("result.json").as_bytes());
    let steps = report["steps"].as_array().unwrap().iter();
    steps.map(|step| step["name"].as_str().unwrap().to_owned()).collect()
}
