//! Applies that fail because an object exists: it is imported only if this layer itself has created it.
//!
//! The tool is a real terraform with its own provider. A script before it has each apply fail as the file `steps` says, with
//! the words of a provider: a line `reset` is a broken connection, `exists` an object that exists. After `exists-hold` the next
//! plan waits until the file `hold` is removed.

use std::path::Path;

use serde_json::Value;
use support::{Ended, Sandbox, TestDatastore, eventually};

use crate::failure::apply_retries::applies;
use crate::stored_run::StoredRun;
use crate::{RUNNER, json};

const APPLY: &[&str] = &["apply", "--name", "x", "--run", "a", "--plan", "p"];
/// Two objects, of which the second one exists with the ID `thing-1`.
const MODULE: &str = r#"resource "terraform_data" "first" {}
resource "terraform_data" "second" {
  input = "thing-1"
}
"#;
const RULES: &str = r"rules:
  - id: thing-exists
    class: already_exists
    pattern: 'the thing (?P<id>\S+) already exists'
    import_id:
      types: [terraform_data]
      planned: '${input}'
";
/// Why an object is not imported.
const NO_CREATE: &str =
    "no ledger of this layer shows an earlier create of it that ended without an answer";
const EXISTED: &str = "an earlier create of it has found that it exists";

/// A module whose applies end like this, and then as they do.
fn module(code: &str, steps: &[&str]) -> Sandbox {
    let sandbox = Sandbox::new(RUNNER);
    sandbox.write("main.tf", code);
    std::fs::write(sandbox.path("rules.yaml"), RULES).unwrap();
    set_steps(&sandbox, steps);
    terraform(&sandbox, None);
    sandbox
}

fn set_steps(sandbox: &Sandbox, steps: &[&str]) {
    std::fs::write(sandbox.path("steps"), steps.join("\n") + "\n").unwrap();
}

/// A terraform that calls itself this version.
fn terraform(sandbox: &Sandbox, version: Option<&str>) {
    let version = version.map_or(String::new(), |version| {
        format!(
            r#"case "$*" in "version -json") echo '{{"terraform_version": "{version}", "platform": "linux_amd64"}}'; exit;; esac"#
        )
    });
    let script = format!(
        r#"#!/bin/sh
{version}
echo "$*" >> {dir}/calls
if [ "$1" = plan ] && [ -e {dir}/hold ]; then
    ls > {dir}/held
    while [ -e {dir}/hold ]; do sleep 0.05; done
fi
case $1 in apply) ;; *) exec {terraform} "$@";; esac
step=$(head -n 1 {dir}/steps)
sed -i 1d {dir}/steps
fail() {{
    printf '\nError: %s\n\n  with terraform_data.second,\n' "$1"
    printf '  on main.tf line 2, in resource "terraform_data" "second":\n   2: resource "terraform_data" "second" {{\n\n'
}}
[ -z "$step" ] || echo 'terraform_data.second: Creating...'
case $step in
"") exec {terraform} "$@";;
hang) echo > {dir}/hangs; sleep 60;;
reset) fail 'creating thing: read: connection reset by peer (please retry after 10ms)';;
unsent) fail 'creating thing: dial tcp 10.0.0.1:443: i/o timeout (please retry after 10ms)';;
throttled) fail 'creating thing: 429 Too Many Requests (please retry after 10ms)';;
exists) fail 'creating thing: the thing thing-1 already exists';;
exists-hold) echo > {dir}/hold; fail 'creating thing: the thing thing-1 already exists';;
nameless) fail 'creating thing: it already exists';;
mixed) fail 'creating thing: the thing thing-1 already exists'; fail 'creating thing: 403 Forbidden';;
esac
exit 1
"#,
        dir = sandbox.path("").display(),
        terraform = support::on_path("terraform").unwrap().display(),
    );
    sandbox.script("terraform", &script);
}

/// A run with the rules of this test.
fn run(sandbox: &Sandbox, datastore: &TestDatastore, args: &[&str]) -> Ended {
    let rules = sandbox.path("rules.yaml");
    sandbox.run_with(&datastore.url, &[args, &["--rules", rules.to_str().unwrap()]].concat())
}

fn planned(sandbox: &Sandbox, datastore: &TestDatastore) {
    planned_as(sandbox, datastore, "p");
}

fn planned_as(sandbox: &Sandbox, datastore: &TestDatastore, name: &str) {
    let ended = run(sandbox, datastore, &["plan", "--name", "x", "--run", name]);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
}

/// The IDs of the objects in the state, by their names.
fn ids(sandbox: &Sandbox) -> Vec<(String, String)> {
    let file = sandbox.work().join("terraform.tfstate");
    let state = std::fs::read(file).map(|state| json(&state)).unwrap_or_default();
    let resources = state["resources"].as_array().cloned().unwrap_or_default();
    let id = |of: &Value| of["instances"][0]["attributes"]["id"].as_str().unwrap().to_owned();
    resources.iter().map(|of| (of["name"].as_str().unwrap().to_owned(), id(of))).collect()
}

fn has_imported(sandbox: &Sandbox) -> bool {
    ids(sandbox).iter().any(|(name, id)| name == "second" && id == "thing-1")
}

fn import_files(dir: &Path) -> usize {
    let files = std::fs::read_dir(dir).unwrap();
    let names = files.map(|file| file.unwrap().file_name().into_string().unwrap());
    names.filter(|name| name.starts_with("plancha_import_")).count()
}

async fn ledger(datastore: &TestDatastore, run: &str, attempt: u32) -> Value {
    json(&StoredRun::new(datastore, "default", "x", run).artifact("ledger.json", attempt).await)
}

/// It has failed with the error of the tool, and no import would help.
fn is_refused_without_a_block(ended: &Ended, reason: &str) {
    assert_eq!(ended.code, 1, "{}", ended.stderr);
    assert!(ended.stderr.contains(reason), "{reason}: {}", ended.stderr);
    assert!(!ended.stderr.contains("import {"), "{}", ended.stderr);
}

/// It has failed with the error of the tool, and has printed how to import the object.
fn is_refused(ended: &Ended, reason: &str) {
    assert_eq!(ended.code, 1, "{}", ended.stderr);
    assert!(ended.stderr.contains(reason), "{reason}: {}", ended.stderr);
    for line in ["exists, and is not imported: ", "import {", "to = terraform_data.second"] {
        assert!(ended.stderr.contains(line), "{line}: {}", ended.stderr);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn object_whose_creation_got_no_answer_is_imported_by_a_plan_that_is_checked() {
    let datastore = TestDatastore::memory().await;
    let sandbox = module(MODULE, &["reset", "exists"]);
    planned(&sandbox, &datastore);

    let ended = run(&sandbox, &datastore, APPLY);

    assert_eq!((ended.code, applies(&sandbox)), (0, 3), "{}\n{}", ended.stdout, ended.stderr);
    assert!(has_imported(&sandbox), "{:?}", ids(&sandbox));
    assert!(ended.stderr.contains("importing what exists already: terraform_data.second"));
    assert!(ended.stdout.contains("Import complete"), "{}", ended.stdout);
    assert_eq!(import_files(&sandbox.work()), 0);
    assert!(!sandbox.calls().iter().any(|call| call.starts_with("import")));
    let failed = ledger(&datastore, "a", 0).await;
    assert_eq!(failed["resources"][0]["unanswered"], true, "{failed}");
    assert_eq!(failed["reviewed"][0]["run"], "p", "{failed}");
    let existing = ledger(&datastore, "a", 1).await;
    let import = &existing["imports"][0];
    assert_eq!(
        (&import["address"], &import["id"]),
        (&"terraform_data.second".into(), &"thing-1".into())
    );
    assert_eq!(import["state"], "accepted");
    let last = json(&StoredRun::new(&datastore, "default", "x", "a").artifact("run.json", 2).await);
    assert_eq!(
        (&last["outcome"], &last["parent"]),
        (&"applied".into(), &last["applied"]),
        "{last}"
    );
    let ended =
        run(&sandbox, &datastore, &["plan", "--name", "x", "--run", "q", "--detailed-exitcode"]);
    assert_eq!(ended.code, 0, "{}", ended.stdout);
}

/// Nothing foreign is ever imported.
#[tokio::test(flavor = "multi_thread")]
async fn object_that_may_be_someone_elses_is_not_imported() {
    for (steps, reason, count) in [
        (&["exists"][..], NO_CREATE, 1),
        (&["throttled", "exists"], NO_CREATE, 2),
        (&["unsent", "exists"], NO_CREATE, 2),
        (&["reset", "exists", "exists"], "this run has tried to import it before", 3),
        (&["reset", "mixed"], "the apply has other errors as well", 2),
        (&["reset", "nameless"], "its import ID is not known exactly", 2),
    ] {
        let datastore = TestDatastore::memory().await;
        let sandbox = module(MODULE, steps);
        planned(&sandbox, &datastore);
        let ended = run(&sandbox, &datastore, APPLY);
        if steps.last() == Some(&"mixed") {
            assert_ne!(ended.code, 0);
            assert!(ended.stderr.contains(reason), "{steps:?}: {}", ended.stderr);
        } else {
            is_refused(&ended, reason);
        }
        assert_eq!(applies(&sandbox), count, "{steps:?}: {}", ended.stderr);
        let id = if steps.contains(&"nameless") { "id = \"\" #" } else { "id = \"thing-1\"" };
        assert!(ended.stderr.contains(id), "{steps:?}: {}", ended.stderr);
        assert!(!has_imported(&sandbox), "{steps:?}");
        assert_eq!(import_files(&sandbox.work()), 0);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn object_that_was_there_before_is_not_imported_by_a_later_run_either() {
    let datastore = TestDatastore::memory().await;
    let sandbox = module(MODULE, &["exists"]);
    planned(&sandbox, &datastore);
    is_refused(&run(&sandbox, &datastore, APPLY), NO_CREATE);
    set_steps(&sandbox, &["reset", "exists"]);
    let ended = run(&sandbox, &datastore, &["apply", "--name", "x", "--run", "b", "--plan", "p"]);
    is_refused(&ended, EXISTED);
    assert_eq!(applies(&sandbox), 3);
    // The operator knows better.
    set_steps(&sandbox, &["exists"]);
    let again = ["apply", "--name", "x", "--run", "c", "--plan", "p", "--import-existing"];
    let ended = run(&sandbox, &datastore, &again);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    assert!(has_imported(&sandbox), "{:?}", ids(&sandbox));
}

#[tokio::test(flavor = "multi_thread")]
async fn object_that_the_state_has_at_another_address_is_not_imported() {
    let datastore = TestDatastore::memory().await;
    let other = "resource \"terraform_data\" \"other\" {\n  lifecycle {\n    ignore_changes = all\n  }\n}\n";
    let sandbox = module(&format!("{MODULE}{other}"), &["reset", "exists"]);
    let mut import = sandbox.program(
        &support::on_path("terraform").unwrap(),
        &["import", "terraform_data.other", "thing-1"],
    );
    let init = sandbox.program(&support::on_path("terraform").unwrap(), &["init"]).output();
    assert!(init.unwrap().status.success());
    assert!(import.output().unwrap().status.success());
    planned(&sandbox, &datastore);
    let ended = run(&sandbox, &datastore, &[APPLY, &["--import-existing"]].concat());
    is_refused_without_a_block(&ended, "the state has an object with this ID already");
    assert_eq!(ids(&sandbox).len(), 1);
}

/// Its replacement is created first, and that has failed.
#[tokio::test(flavor = "multi_thread")]
async fn object_is_not_imported_at_an_address_that_has_one() {
    for version in [None, Some("1.4.7")] {
        let datastore = TestDatastore::memory().await;
        let replaced = MODULE.replace(
            "input = \"thing-1\"",
            "input = \"thing-1\"\n  triggers_replace = [2]\n  lifecycle {\n    create_before_destroy = true\n  }",
        );
        let sandbox = module(&replaced.replace("[2]", "[1]"), &[""]);
        terraform(&sandbox, version);
        planned(&sandbox, &datastore);
        let ended = run(&sandbox, &datastore, APPLY);
        assert_eq!(ended.code, 0, "{}", ended.stderr);
        let before = ids(&sandbox);
        sandbox.write("main.tf", &replaced);
        planned_as(&sandbox, &datastore, "q");
        set_steps(&sandbox, &["exists"]);

        let apply = ["apply", "--name", "x", "--run", "b", "--plan", "q", "--import-existing"];
        let ended = run(&sandbox, &datastore, &apply);

        is_refused_without_a_block(&ended, "the state has another object at this address");
        assert_eq!(ids(&sandbox), before);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn import_is_no_retry() {
    for (steps, retries, count) in
        [(&["exists"][..], "0", 2), (&["exists", "reset"], "1", 3), (&["reset", "exists"], "1", 3)]
    {
        let datastore = TestDatastore::memory().await;
        let sandbox = module(MODULE, steps);
        planned(&sandbox, &datastore);
        let apply = [APPLY, &["--import-existing", "--retries", retries]].concat();
        let ended = run(&sandbox, &datastore, &apply);
        assert_eq!((ended.code, applies(&sandbox)), (0, count), "{steps:?}: {}", ended.stderr);
        assert!(has_imported(&sandbox), "{steps:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn import_that_would_replace_the_object_is_not_applied() {
    for version in [None, Some("1.4.7")] {
        let datastore = TestDatastore::memory().await;
        let code = MODULE.replace("input =", "triggers_replace = \"z\"\n  input =");
        let sandbox = module(&code, &["reset", "exists"]);
        terraform(&sandbox, version);
        planned(&sandbox, &datastore);
        let ended = run(&sandbox, &datastore, APPLY);
        is_refused(&ended, "delete and create");
        assert_eq!((applies(&sandbox), ids(&sandbox).len()), (2, 0), "{}", ended.stderr);
        let import = &ledger(&datastore, "a", 1).await["imports"][0];
        assert_eq!(import["state"], "refused");
        assert_eq!(import_files(&sandbox.work()), 0);
        let removals = sandbox.calls().iter().filter(|call| call.starts_with("state rm")).count();
        assert_eq!(removals, usize::from(version.is_some()));
    }
}

/// The pod is killed during the creation. The plan of the next attempt creates the same object, or another one; or the next
/// apply is another run, whose place and providers may be others, or has another region.
#[tokio::test(flavor = "multi_thread")]
async fn object_that_a_killed_attempt_was_creating_is_imported_if_the_next_plan_means_the_same() {
    for (is_same, next, region) in
        [(true, "a", ""), (false, "a", ""), (true, "b", ""), (true, "a", "eu-west-1")]
    {
        let datastore = TestDatastore::memory().await;
        let code = if is_same { MODULE.to_owned() } else { MODULE.replace("thing-1", "thing-0") };
        let sandbox = module(&code, &["hang"]);
        planned(&sandbox, &datastore);
        let runner = sandbox.start(Some(&datastore.url), APPLY);
        eventually("the tool works", || sandbox.path("hangs").exists());
        let stored = StoredRun::new(&datastore, "default", "x", "a");
        loop {
            let json = stored.get("artifacts", "attempt=0&name=ledger.json").await;
            if json.is_some_and(|json| String::from_utf8_lossy(&json).contains("second")) {
                break;
            }
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
        runner.kill_all();
        assert_eq!(runner.wait().code, -1);
        sandbox.write("main.tf", MODULE);
        set_steps(&sandbox, &["exists"]);
        // A plan of the same second may have the same bytes, and so be the same plan.
        tokio::time::sleep(std::time::Duration::from_millis(1100)).await;
        let plan = run(&sandbox, &datastore, &["plan", "--name", "x", "--run", "q"]);
        assert_eq!(plan.code, 0, "{}", plan.stderr);

        let rules = sandbox.path("rules.yaml");
        let apply = ["apply", "--name", "x", "--run", next, "--plan", "q", "--rules"];
        let mut command = sandbox.command(&[&apply[..], &[rules.to_str().unwrap()]].concat());
        command.env("PLANCHA_DATASTORE_URL", datastore.url.as_str());
        if !region.is_empty() {
            command.env("AWS_REGION", region);
        }
        let ended = Ended::from(command.output().unwrap());

        match (is_same, next) {
            (true, "a") if region.is_empty() => assert_eq!(ended.code, 0, "{}", ended.stderr),
            (true, "a") => is_refused(&ended, "had other environment variables of providers"),
            (true, _) => is_refused(&ended, "the earlier create of it was that of another run"),
            (false, _) => is_refused(&ended, "its earlier create was that of another object"),
        }
        let imports = is_same && next == "a" && region.is_empty();
        assert_eq!(has_imported(&sandbox), imports, "{:?}", ids(&sandbox));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn apply_without_a_stored_plan_imports_what_it_has_created_itself() {
    for replaces in [false, true] {
        let datastore = TestDatastore::memory().await;
        let trigger = if replaces { "triggers_replace = \"z\"\n  input =" } else { "input =" };
        let sandbox = module(&MODULE.replace("input =", trigger), &["reset", "exists"]);
        let ended = run(&sandbox, &datastore, &["apply", "--no-plan", "--name", "x", "--run", "a"]);
        if replaces {
            is_refused(&ended, "delete and create");
        } else {
            assert_eq!((ended.code, applies(&sandbox)), (0, 3), "{}", ended.stderr);
        }
        assert_eq!(has_imported(&sandbox), !replaces, "{:?}", ids(&sandbox));
    }
}

/// The file with the blocks is there while the tool plans. The next run removes that of a killed one.
#[tokio::test(flavor = "multi_thread")]
async fn import_file_of_a_killed_run_is_removed_by_the_next_one() {
    let datastore = TestDatastore::memory().await;
    let sandbox = module(MODULE, &["reset", "exists-hold"]);
    planned(&sandbox, &datastore);
    // Between the plan and the next one of the same run there is an apply.
    let rules = sandbox.path("rules.yaml");
    let apply = [APPLY, &["--rules", rules.to_str().unwrap()]].concat();
    let runner = sandbox.start(Some(&datastore.url), &apply);
    eventually("it plans the import", || sandbox.path("held").exists());
    assert_eq!(import_files(&sandbox.work()), 1);
    runner.kill_all();
    assert_eq!(runner.wait().code, -1);
    std::fs::remove_file(sandbox.path("hold")).unwrap();
    assert_eq!((import_files(&sandbox.work()), has_imported(&sandbox)), (1, false));

    let ended = run(&sandbox, &datastore, &["plan", "--name", "x", "--run", "q"]);

    assert_eq!((ended.code, import_files(&sandbox.work())), (0, 0), "{}", ended.stderr);
    assert!(ended.stderr.contains("which a killed run had left"), "{}", ended.stderr);
    assert!(!ended.stdout.contains("to import"), "{}", ended.stdout);
}

#[tokio::test(flavor = "multi_thread")]
async fn older_tool_imports_by_its_command_and_a_killed_import_is_undone_by_the_next_run() {
    let datastore = TestDatastore::memory().await;
    let sandbox = module(MODULE, &["reset", "exists-hold"]);
    terraform(&sandbox, Some("1.4.7"));
    planned(&sandbox, &datastore);
    let rules = sandbox.path("rules.yaml");
    let apply = [APPLY, &["--rules", rules.to_str().unwrap()]].concat();
    let runner = sandbox.start(Some(&datastore.url), &apply);
    eventually("it plans with the import", || sandbox.path("held").exists());
    assert!(has_imported(&sandbox) && import_files(&sandbox.work()) == 0);
    let other = run(&sandbox, &datastore, &["plan", "--name", "x", "--run", "early"]);
    assert_eq!(other.code, 4, "{}", other.stderr);
    assert!(other.stderr.contains("and is planning with them"), "{}", other.stderr);
    assert!(has_imported(&sandbox));
    runner.kill_all();
    runner.wait();
    std::fs::remove_file(sandbox.path("hold")).unwrap();
    assert_eq!(ledger(&datastore, "a", 1).await["imports"][0]["state"], "planned");

    let ended = run(&sandbox, &datastore, &["plan", "--name", "x", "--run", "other"]);

    assert_eq!(ended.code, 0, "{}", ended.stderr);
    let expected = "was killed before a plan with its import of terraform_data.second was accepted";
    assert!(ended.stderr.contains(expected), "{}", ended.stderr);
    assert_eq!(ids(&sandbox), []);
    assert_eq!(ledger(&datastore, "a", 1).await["imports"][0]["state"], "refused");

    // Not interrupted.
    planned_as(&sandbox, &datastore, "q");
    set_steps(&sandbox, &["exists"]);
    let apply = ["apply", "--name", "x", "--run", "b", "--plan", "q", "--import-existing"];
    let ended = run(&sandbox, &datastore, &apply);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    assert!(has_imported(&sandbox), "{:?}", ids(&sandbox));
    assert_eq!(ledger(&datastore, "b", 0).await["imports"][0]["state"], "accepted");
    let ended =
        run(&sandbox, &datastore, &["plan", "--name", "x", "--run", "r", "--detailed-exitcode"]);
    assert_eq!(ended.code, 0, "{}", ended.stdout);
}
