//! The ledger of an apply: it survives the runner, and an apply without one is refused.

use std::time::{Duration, Instant};

use serde_json::Value;
use support::{Fault, FaultyDatastore, Sandbox, TestDatastore, eventually};

use crate::failure::apply_retries::{self, BROKEN, failing};
use crate::run::apply_once::{UNPLANNED, applies, lost_everything, unsent};
use crate::stored_run::StoredRun;
use crate::{RUNNER, json};

/// A module with this code.
fn module(code: &str) -> Sandbox {
    let sandbox = Sandbox::new(RUNNER);
    sandbox.write("main.tf", code);
    sandbox
}

/// A tool whose apply prints these lines of the shell.
fn printing(script: &str) -> Sandbox {
    Sandbox::new(RUNNER).hello().fake_terraform(&format!("if [ $STEP = apply ]; then {script}; fi"))
}

async fn ledger(datastore: &TestDatastore) -> Value {
    json(&StoredRun::new(datastore, "default", "x", "a").artifact("ledger.json", 0).await)
}

/// Address, action, state and class of each resource.
fn resources(ledger: &Value) -> Vec<String> {
    let text = |resource: &Value, field: &str| resource[field].as_str().unwrap_or("-").to_owned();
    let fields = ["address", "action", "state", "class"];
    let resources = ledger["resources"].as_array().unwrap().iter();
    resources.map(|one| fields.map(|field| text(one, field)).join(" ")).collect()
}

/// Waits until the stored ledger has this many resources.
async fn has_resources(datastore: &TestDatastore, count: usize) -> Value {
    let stored = StoredRun::new(datastore, "default", "x", "a");
    let since = Instant::now();
    loop {
        let json = stored.get("artifacts", "attempt=0&name=ledger.json").await;
        let ledger = json.map(|bytes| crate::json(&bytes));
        if let Some(ledger) = ledger.filter(|ledger| resources(ledger).len() == count) {
            return ledger;
        }
        assert!(since.elapsed() < Duration::from_mins(1), "{count} resources");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// With the real tool. Nothing of the pod lives on: neither the runner nor its guard nor the tool.
#[tokio::test(flavor = "multi_thread")]
async fn ledger_holds_the_resource_that_a_killed_pod_was_creating() {
    let datastore = TestDatastore::memory().await;
    let sandbox = module(
        r#"resource "terraform_data" "slow" {
             for_each = toset(["a: Creating..."])
             provisioner "local-exec" { command = "touch started; sleep 60" }
           }"#,
    );
    let runner = sandbox.start(Some(&datastore.url), UNPLANNED);
    eventually("the provisioner runs", || sandbox.work().join("started").exists());
    let since = Instant::now();
    has_resources(&datastore, 1).await;
    // One second, and what a busy machine takes: the tool needs 60.
    assert!(since.elapsed() < Duration::from_secs(30), "{:?}", since.elapsed());
    runner.kill_all();
    assert_eq!(runner.wait().code, -1);

    let ledger = ledger(&datastore).await;
    let address = r#"terraform_data.slow["a: Creating..."]"#;
    assert_eq!(resources(&ledger), [format!("{address} create started -")]);
    assert_eq!((&ledger["version"], &ledger["tries"]), (&1.into(), &1.into()));
    assert!(ledger.get("ended").is_none() && ledger["plan_sha256"].is_null(), "{ledger}");
    let shown = sandbox.run_with(&datastore.url, &["show", "a/0", "--name", "x"]);
    assert_eq!(shown.code, 0, "{}", shown.stderr);
    let expected = format!("{address} (create)");
    assert!(shown.stdout.contains("was started and did not complete"), "{}", shown.stdout);
    assert!(shown.stdout.contains(&expected), "{}", shown.stdout);
    // If the log had begun already, it runs until a minute after its last word.
    let is_unfinished = |text: &str| text.contains("running") || text.contains("not finished");
    assert!(is_unfinished(&shown.stdout), "{}", shown.stdout);
    let shown = sandbox.run_with(&datastore.url, &["show", "a", "--name", "x", "--json"]);
    let unfinished = &json(shown.stdout.as_bytes())["unfinished"];
    assert_eq!(unfinished[0]["address"], address);
    let listed = sandbox.run_with(&datastore.url, &["runs", "--name", "x"]);
    assert!(is_unfinished(&listed.stdout), "{}", listed.stdout);
}

/// With the real tool.
#[tokio::test(flavor = "multi_thread")]
async fn ledger_has_what_an_apply_completed_and_why_it_failed() {
    let datastore = TestDatastore::memory().await;
    let sandbox = module(
        r#"resource "terraform_data" "a" {}
           resource "terraform_data" "b" {
             depends_on = [terraform_data.a]
             provisioner "local-exec" {
               command = "echo 'Error: dial tcp 10.0.0.1:443: i/o timeout'; echo 'terraform_data.forged: Creating...'; exit 1"
             }
           }"#,
    );
    let ended = sandbox.run_with(&datastore.url, UNPLANNED);
    assert_ne!(ended.code, 0, "{}", ended.stderr);
    assert!(!ended.stderr.contains("without an answer"), "{}", ended.stderr);
    let failed = ledger(&datastore).await;
    let [a, b] = &*resources(&failed) else { panic!("{failed}") };
    assert_eq!(a, "terraform_data.a create completed -");
    assert!(b.starts_with("terraform_data.b create failed ") && !b.ends_with('-'), "{b}");
    assert_eq!(failed["resources"][1]["summary"], "local-exec provisioner error");
    assert!(failed["ended"].is_string() && failed["resources"][0]["id"].is_string(), "{failed}");
    assert_eq!(failed["tool"]["name"], "terraform");
    let shown = sandbox.run_with(&datastore.url, &["show", "a", "--name", "x"]);
    assert!(!shown.stdout.contains("Unfinished:"), "{}", shown.stdout);
}

/// The real tool is killed by its provisioner.
#[tokio::test(flavor = "multi_thread")]
async fn killed_tool_leaves_resources_without_an_answer_which_the_message_names() {
    let datastore = TestDatastore::memory().await;
    let sandbox = module(
        r#"resource "terraform_data" "a" {}
           resource "terraform_data" "b" {
             depends_on = [terraform_data.a]
             provisioner "local-exec" { command = "kill -KILL $PPID" }
           }"#,
    );
    let ended = sandbox.run_with(&datastore.url, UNPLANNED);
    assert_eq!(ended.code, 1, "{}", ended.stderr);
    let expected = "; it is not known how these ended: terraform_data.b (create)";
    assert!(ended.stderr.contains(expected), "{}", ended.stderr);
    let expected = ["terraform_data.a create completed -", "terraform_data.b create unknown -"];
    assert_eq!(resources(&ledger(&datastore).await), expected);
    let shown = sandbox.run_with(&datastore.url, &["show", "a", "--name", "x"]);
    let unfinished = "was started and did not complete: terraform_data.b (create)";
    assert!(shown.stdout.contains(unfinished), "{}", shown.stdout);
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_applied_if_the_first_ledger_cannot_be_stored() {
    let datastore = TestDatastore::memory().await;
    let sandbox = printing("true");
    let down = Fault { method: "PUT", part: "name=ledger.json", status: 500, times: usize::MAX };
    let faulty = FaultyDatastore::before(&datastore.url, vec![down]).await;
    let ended = sandbox.run_with(&faulty.url, UNPLANNED);
    assert_eq!((ended.code, applies(&sandbox)), (10, 0), "{}", ended.stderr);
    assert!(ended.stderr.contains("nothing was applied, because its ledger"), "{}", ended.stderr);
    // The same order, later.
    faulty.set_faults(Vec::new());
    let ended = sandbox.run_with(&faulty.url, UNPLANNED);
    assert_eq!((ended.code, applies(&sandbox)), (0, 1), "{}", ended.stderr);
}

#[tokio::test(flavor = "multi_thread")]
async fn datastore_that_dies_during_the_apply_gets_the_ledger_from_the_upload() {
    let datastore = TestDatastore::memory().await;
    let sandbox = printing(
        "echo 'a_b.c: Creating...'; touch started; while [ ! -e go ]; do sleep 0.1; done; \
         echo 'a_b.c: Creation complete after 0s [id=1]'; sleep 4",
    );
    let dying = FaultyDatastore::before(&datastore.url, Vec::new()).await;
    let runner = sandbox.start(Some(&dying.url), UNPLANNED);
    let sandbox_work = sandbox.work();
    eventually("the tool works", || sandbox_work.join("started").exists());
    has_resources(&datastore, 1).await;
    let dead = Fault { method: "PUT", part: "", status: 403, times: usize::MAX };
    dying.set_faults(vec![dead]);
    std::fs::write(sandbox_work.join("go"), "").unwrap();
    let ended = runner.wait();
    assert_eq!((ended.code, applies(&sandbox)), (10, 1), "{}", ended.stderr);
    let warnings = ended.stderr.matches("the ledger of the apply is not stored now").count();
    assert_eq!(warnings, 1, "{}", ended.stderr);
    assert_eq!(resources(&ledger(&datastore).await), ["a_b.c create started -"]);
    let dir = unsent(&sandbox).join("default/x/a/0");
    assert!(dir.join("ledger.json").exists(), "{}", ended.stderr);

    let upload = ["upload", "--datastore", datastore.url.as_str(), dir.to_str().unwrap()];
    let sent = sandbox.run(&upload);
    assert_eq!(sent.code, 0, "{}", sent.stderr);
    assert!(sent.stderr.contains("ledger.json: sent"), "{}", sent.stderr);
    let ledger = ledger(&datastore).await;
    assert_eq!(resources(&ledger), ["a_b.c create completed -"]);
    assert_eq!((&ledger["resources"][0]["id"], dir.exists()), (&"1".into(), false));
}

#[tokio::test(flavor = "multi_thread")]
async fn upload_does_not_replace_a_later_ledger() {
    let datastore = TestDatastore::memory().await;
    let sandbox = printing("echo 'a_b.c: Creating...'");
    let lossy = lost_everything(&datastore).await;
    assert_eq!(sandbox.run_with(&lossy.url, UNPLANNED).code, 10);
    let dir = unsent(&sandbox).join("default/x/a/0");
    let mut later = json(&std::fs::read(dir.join("ledger.json")).unwrap());
    later["tries"] = 2.into();
    let stored = StoredRun::new(&datastore, "default", "x", "a");
    stored.put_artifact("ledger.json", 0, later.to_string().into_bytes()).await;
    let upload = ["upload", "--datastore", datastore.url.as_str(), dir.to_str().unwrap()];
    let sent = sandbox.run(&upload);
    assert_eq!(sent.code, 9, "{}", sent.stderr);
    assert!(sent.stderr.contains("already holds another ledger.json"), "{}", sent.stderr);
    assert_eq!(ledger(&datastore).await["tries"], 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn ledger_of_many_changes_is_stored_once_a_second() {
    let datastore = TestDatastore::memory().await;
    let sandbox = printing(
        "i=0; while [ $i -lt 2000 ]; do i=$((i+1)); echo \"a_b.c[$i]: Creating...\"; \
         [ $((i % 100)) != 0 ] || sleep 0.2; done",
    );
    let proxy = FaultyDatastore::before(&datastore.url, Vec::new()).await;
    let started = Instant::now();
    let ended = sandbox.run_with(&proxy.url, UNPLANNED);
    let most = usize::try_from(started.elapsed().as_secs()).unwrap() + 3;
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    assert_eq!(resources(&ledger(&datastore).await).len(), 2000);
    // The first one comes before the tool, the last one after it.
    let puts = proxy.ledgers().len();
    assert!((4..=most).contains(&puts), "{puts} of {most}");
}

/// The apply has started: what it has started is finished.
#[tokio::test(flavor = "multi_thread")]
async fn a_later_try_goes_on_without_its_first_ledger() {
    let datastore = TestDatastore::memory().await;
    let sandbox = failing(1, BROKEN);
    assert_eq!(sandbox.run_with(&datastore.url, &["plan", "--name", "x", "--run", "p"]).code, 0);
    let part = "attempt=1&name=ledger.json";
    let fault = Fault { method: "PUT", part, status: 403, times: usize::MAX };
    let faulty = FaultyDatastore::before(&datastore.url, vec![fault]).await;
    let apply = ["apply", "--name", "x", "--run", "a", "--plan", "p"];
    let ended = sandbox.run_with(&faulty.url, &apply);
    assert_eq!((ended.code, apply_retries::applies(&sandbox)), (10, 2), "{}", ended.stderr);
    assert!(ended.stderr.contains("the ledger of the apply is not stored now"), "{}", ended.stderr);
    let kept = std::fs::read(unsent(&sandbox).join("default/x/a/1/ledger.json")).unwrap();
    assert!(resources(&json(&kept)).iter().all(|one| one.contains(" completed ")));
}

/// A class of the user's rules, not of the runner's own.
#[tokio::test(flavor = "multi_thread")]
async fn classes_of_the_ledger_are_those_of_the_rules_of_the_run() {
    let datastore = TestDatastore::memory().await;
    let sandbox = printing(
        "echo 'a_b.c: Creating...'; printf '\\nError: strange\\n\\n  with a_b.c,\\n  on main.tf line 1, in resource \"a_b\" \"c\":\\n\\n'; exit 1",
    );
    sandbox.write(
        "rules.yaml",
        "rules:\n  - {id: mine, class: quota, pattern: strange, explanation: x, source: x}\n",
    );
    let rules = sandbox.work().join("rules.yaml");
    let ended = sandbox
        .run_with(&datastore.url, &[UNPLANNED, &["--rules", rules.to_str().unwrap()]].concat());
    assert_eq!(ended.code, 7, "{}", ended.stderr);
    assert_eq!(resources(&ledger(&datastore).await), ["a_b.c create failed quota"]);
}

/// Only attempts that exist are looked at.
#[tokio::test(flavor = "multi_thread")]
async fn attempt_with_the_largest_number_is_applied() {
    let datastore = TestDatastore::memory().await;
    let sandbox = printing("echo 'a_b.c: Creating...'");
    let attempt = ["--attempt", "4294967295"];
    let ended = sandbox.run_with(&datastore.url, &[UNPLANNED, &attempt].concat());
    assert_eq!(ended.code, 0, "{}", ended.stderr);
}

/// Terraform 0.14 and older name neither the module nor the index.
#[tokio::test(flavor = "multi_thread")]
async fn error_of_an_old_terraform_is_that_of_the_only_such_resource() {
    let datastore = TestDatastore::memory().await;
    let sandbox = printing(
        "echo 'module.m[0].aws_vpc.c[0]: Creating...'; printf '\\nError: AccessDenied: not authorized\\n\\n  on modules/m/main.tf line 1, in resource \"aws_vpc\" \"c\":\\n   1: resource \"aws_vpc\" \"c\" {\\n\\n'; exit 1",
    );
    let ended = sandbox.run_with(&datastore.url, UNPLANNED);
    assert_ne!(ended.code, 0, "{}", ended.stderr);
    let ledger = ledger(&datastore).await;
    assert_eq!(resources(&ledger), ["module.m[0].aws_vpc.c[0] create failed auth"]);
}
