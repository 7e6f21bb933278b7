//! `runner show`.

use datastore_api::Sha256;
use support::{Fault, FaultyDatastore, Sandbox, TestDatastore};

use crate::run::apply_once::lost_everything;
use crate::stored_run::StoredRun;
use crate::{RUNNER, json};

const PLAN: &[&str] = &["plan", "--layer", "layer.yaml", "--run", "p"];

/// The value after a label.
fn fact<'a>(text: &'a str, label: &str) -> &'a str {
    let line = text.lines().find_map(|line| line.strip_prefix(label));
    line.unwrap_or_else(|| panic!("{label} is missing:\n{text}")).trim()
}

/// Claims attempt 0 of a run, as its runner does when it starts.
async fn claim(datastore: &TestDatastore, layer: &str, run: &str) {
    let claim = format!("api/attempts?namespace=default&layer={layer}&run={run}&attempt=0&claim=1");
    let claim = reqwest::Client::new().post(datastore.url.join(&claim).unwrap());
    assert!(claim.send().await.unwrap().status().is_success());
}

#[tokio::test(flavor = "multi_thread")]
async fn plan_and_its_apply_are_shown_with_their_facts() {
    let datastore = TestDatastore::memory().await;
    let sandbox = Sandbox::new(RUNNER).hello();
    let run = |args: &[&str]| {
        let ended = sandbox.run_with(&datastore.url, args);
        assert_eq!(ended.code, 0, "{args:?}: {}", ended.stderr);
        ended.stdout
    };
    run(PLAN);

    let text = run(&["show", "p", "--layer", "layer.yaml"]);

    let sum = Sha256::of(&StoredRun::new(&datastore, "default", "hello", "p").plan("bin", 0).await);
    assert!(text.starts_with("run p/0 (plan)\nLayer:         default/hello\n"), "{text}");
    assert_eq!(fact(&text, "Outcome:"), "changes: 1 to create, 0 to update, 0 to delete");
    assert!(fact(&text, "Started:").contains(" UTC ("), "{text}");
    assert!(fact(&text, "Took:").contains("(init ") && fact(&text, "Took:").contains(", plan "));
    assert!(fact(&text, "Tool:").starts_with("terraform 1."), "{text}");
    assert_eq!(fact(&text, "Workspace:"), "default");
    assert!(fact(&text, "Backend:").starts_with("local"), "{text}");
    assert!(text.contains(&format!("sha256:{sum}\n")), "{text}");
    assert_eq!(fact(&text, "Applied:"), "no");
    assert!(fact(&text, "Configuration:").starts_with("sha256:"), "{text}");
    assert!(fact(&text, "Files:").contains("plan.bin ("), "{text}");
    let (_, plan) = text.split_once("\n\n").unwrap();
    assert!(plan.starts_with("Terraform used"), "{plan}");
    assert!(plan.contains("  # terraform_data.greeting will be created\n"), "{plan}");
    assert!(plan.contains("Plan: 1 to add") && !text.contains('\x1b'), "{plan}");

    run(&["apply", "--layer", "layer.yaml", "--run", "a"]);
    let text = run(&["show", "p/0", "--layer", "layer.yaml"]);
    assert!(fact(&text, "Applied:").starts_with("by a/0, "), "{text}");
    let text = run(&["show", "default/hello/a"]);
    assert!(text.starts_with("run a/0 (apply)\n"), "{text}");
    assert_eq!(fact(&text, "Outcome:"), "applied: 1 created, 0 updated, 0 deleted");
    assert_eq!(fact(&text, "Planned by:"), "p/0");
    assert!(text.contains("\nThe plan of p/0:\n"), "{text}");
    assert!(text.contains("# terraform_data.greeting will be created"), "{text}");
    assert!(sandbox.is_clean());
}

#[tokio::test(flavor = "multi_thread")]
async fn newest_run_of_this_directory_is_the_default() {
    let datastore = TestDatastore::memory().await;
    let sandbox = Sandbox::new(RUNNER).fake_terraform("");
    sandbox.write("live/vpc/main.tf", "");
    for run in ["first", "second"] {
        let ended = sandbox.run_with(&datastore.url, &["plan", "live/vpc", "--run", run]);
        assert_eq!(ended.code, 0, "{}", ended.stderr);
    }

    let shown = sandbox.run_with(&datastore.url, &["show", "--path", "live/vpc"]);
    assert!(
        shown.stdout.starts_with("run second/0 (plan)\nLayer:         default/vpc\n"),
        "{shown:?}"
    );
    let shown = sandbox.run_with(&datastore.url, &["show", "first", "live/vpc"]);
    assert!(shown.stdout.starts_with("run first/0 (plan)\n"), "{shown:?}");
    let shown = sandbox.run_with(&datastore.url, &["show", "first", "--name", "vpc"]);
    assert!(shown.stdout.starts_with("run first/0 (plan)\n"), "{shown:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn json_has_the_report_and_the_files() {
    let datastore = TestDatastore::memory().await;
    let sandbox = Sandbox::new(RUNNER).hello().fake_terraform("");
    for args in [PLAN, &["apply", "--layer", "layer.yaml", "--run", "a"]] {
        assert_eq!(sandbox.run_with(&datastore.url, args).code, 0);
    }

    let shown = sandbox.run_with(&datastore.url, &["show", "default/hello/p/0", "--json"]);

    assert_eq!(shown.code, 0, "{}", shown.stderr);
    let document = json(shown.stdout.as_bytes());
    let stored = StoredRun::new(&datastore, "default", "hello", "p");
    assert_eq!(document["report"], json(&stored.artifact("run.json", 0).await));
    assert_eq!((&document["run"], &document["attempt"]), (&"p".into(), &0.into()));
    assert_eq!(document["attempts"], serde_json::json!([0]));
    assert_eq!(document["applied"]["run"], "a");
    let names = document["files"].as_array().unwrap().iter();
    assert!(names.map(|file| &file["name"]).any(|name| name == "plan.json"));
}

#[tokio::test(flavor = "multi_thread")]
async fn apply_is_denied_only_where_it_is_known() {
    let datastore = TestDatastore::memory().await;
    let sandbox = Sandbox::new(RUNNER).hello().fake_terraform("");
    assert_eq!(sandbox.run_with(&datastore.url, PLAN).code, 0);
    let theirs = StoredRun::new(&datastore, "default", "hello", "theirs");
    theirs.put_plan("short", 0, b"Plan: 2 to create, 1 to update, 0 to delete".to_vec()).await;
    let fault = Fault { method: "GET", part: "/api/applied", status: 403, times: usize::MAX };
    let guarded = FaultyDatastore::before(&datastore.url, vec![fault]).await;
    for (url, run, is_known) in [
        (&datastore.url, "default/hello/p", true),
        (&datastore.url, "default/hello/theirs", false),
        (&guarded.url, "default/hello/p", false),
    ] {
        let shown = sandbox.run_with(url, &["show", run]);
        assert_eq!(shown.code, 0, "{}", shown.stderr);
        assert_eq!(shown.stdout.contains("\nApplied: "), is_known, "{}", shown.stdout);
        let shown = sandbox.run_with(url, &["show", run, "--json"]);
        let applied = json(shown.stdout.as_bytes()).get("applied").cloned();
        assert_eq!(applied, is_known.then_some(serde_json::Value::Null), "{}", shown.stdout);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn lost_record_of_an_apply_hides_no_run_and_refuses_another_apply() {
    let datastore = TestDatastore::temporary().await;
    let sandbox = Sandbox::new(RUNNER).hello().fake_terraform("");
    let apply = ["apply", "--layer", "layer.yaml"];
    assert_eq!(sandbox.run_with(&datastore.url, PLAN).code, 0);
    assert_eq!(sandbox.run_with(&datastore.url, &apply).code, 0);
    let records = datastore.root().join(".plancha/applied/default/hello");
    for record in std::fs::read_dir(records).unwrap() {
        std::fs::remove_file(record.unwrap().path()).unwrap();
    }
    let lost = "is missing: its digest is recorded, and its file is gone";
    let shown = sandbox.run_with(&datastore.url, &["show", "default/hello/p"]);
    assert_eq!(shown.code, 0, "{}", shown.stderr);
    assert!(shown.stdout.contains("\nOutcome: ") && !shown.stdout.contains("\nApplied: "));
    assert!(shown.stderr.contains("whether the plan was applied cannot be read"));
    assert!(shown.stderr.contains(lost), "{}", shown.stderr);
    let refused = sandbox.run_with(&datastore.url, &apply);
    assert_eq!(refused.code, 9, "{}", refused.stderr);
    assert!(refused.stderr.contains(lost), "{}", refused.stderr);
    assert!(refused.stderr.contains("find out first what the last apply has done"));
}

#[tokio::test(flavor = "multi_thread")]
async fn apply_whose_record_is_not_sent_is_shown_with_the_command_that_sends_it() {
    let datastore = TestDatastore::memory().await;
    let sandbox = Sandbox::new(RUNNER).hello().fake_terraform("");
    assert_eq!(sandbox.run_with(&datastore.url, PLAN).code, 0);
    let lossy = lost_everything(&datastore).await;
    let applied = sandbox.run_with(&lossy.url, &["apply", "--layer", "layer.yaml", "--run", "a"]);
    assert_eq!(applied.code, 10, "{}", applied.stderr);
    lossy.set_faults(Vec::new());
    let show = |more: &[&str]| {
        let shown = sandbox.run_with(&lossy.url, &[&["show", "default/hello/p"], more].concat());
        assert_eq!(shown.code, 0, "{}", shown.stderr);
        shown.stdout
    };
    let text = show(&[]);
    let fact = fact(&text, "Applied:");
    let dir = sandbox.path("home/.local/state/plancha/unsent/default/hello/a/0");
    assert!(fact.starts_with("by a/0, "), "{fact}");
    assert!(fact.contains("; its record is not sent yet: `runner upload "), "{fact}");
    assert!(fact.ends_with(&format!("{}`", dir.display())), "{fact}");
    assert_eq!(json(show(&["--json"]).as_bytes())["applied"]["run"], "a");
    // In another datastore the plan is another one.
    let other = sandbox.run_with(&datastore.url, &["show", "default/hello/p"]);
    assert!(other.stdout.contains("\nApplied:       no\n"), "{}", other.stdout);
}

#[tokio::test(flavor = "multi_thread")]
async fn run_without_files_is_not_the_default() {
    let datastore = TestDatastore::temporary().await;
    let sandbox = Sandbox::new(RUNNER);
    for run in ["a", "ghost"] {
        let run = StoredRun::new(&datastore, "default", "l", run);
        run.put_plan("short", 0, b"Plan: 2 to create, 1 to update, 0 to delete".to_vec()).await;
    }
    // As after a kill between the entry of the index and the first file.
    std::fs::remove_dir_all(datastore.root().join("layers/default/l/ghost")).unwrap();
    for (is_claimed, row) in [(false, "ghost "), (true, "ghost/0 ")] {
        if is_claimed {
            claim(&datastore, "l", "ghost").await;
        }
        let shown = sandbox.run_with(&datastore.url, &["show", "--name", "l"]);
        assert_eq!(shown.code, 0, "{is_claimed}: {}", shown.stderr);
        assert!(shown.stdout.starts_with("run a/0 (plan)\n"), "{is_claimed}: {}", shown.stdout);
        let listed = sandbox.run_with(&datastore.url, &["runs", "--name", "l"]);
        let ghost = listed.stdout.lines().find(|line| line.starts_with(row));
        assert!(ghost.unwrap().contains(" not finished "), "{is_claimed}: {}", listed.stdout);
    }
}

/// A page of the list has 50 runs.
#[tokio::test(flavor = "multi_thread")]
async fn default_run_is_found_behind_a_page_of_runs_without_files() {
    let datastore = TestDatastore::temporary().await;
    let sandbox = Sandbox::new(RUNNER);
    let put = async |run: &str| {
        let run = StoredRun::new(&datastore, "default", "l", run);
        run.put_plan("short", 0, b"Plan: 2 to create, 1 to update, 0 to delete".to_vec()).await;
    };
    put("a").await;
    let runs = datastore.root().join("layers/default/l");
    for number in 0..51 {
        let run = format!("ghost-{number}");
        put(&run).await;
        std::fs::remove_dir_all(runs.join(&run)).unwrap();
    }
    claim(&datastore, "l", "ghost-50").await;

    let shown = sandbox.run_with(&datastore.url, &["show", "--name", "l"]);
    assert_eq!(shown.code, 0, "{}", shown.stderr);
    assert!(shown.stdout.starts_with("run a/0 (plan)\n"), "{}", shown.stdout);

    std::fs::remove_dir_all(runs.join("a")).unwrap();
    let shown = sandbox.run_with(&datastore.url, &["show", "--name", "l"]);
    assert_eq!(shown.code, 8, "{}", shown.stderr);
    let expected = "attempt 0 of run ghost-50 has stored nothing";
    assert!(shown.stderr.contains(expected), "{}", shown.stderr);
}

#[tokio::test(flavor = "multi_thread")]
async fn last_line_of_a_download_that_breaks_off_is_shown() {
    let datastore = TestDatastore::memory().await;
    let sandbox = Sandbox::new(RUNNER);
    let run = StoredRun::new(&datastore, "default", "l", "r");
    run.put_plan("pretty", 0, b"first\nlast".to_vec()).await;
    // The digest does not match at the end.
    let faulty = FaultyDatastore::replacing(&datastore.url, "last", "final").await;
    let shown = sandbox.run_with(&faulty.url, &["show", "default/l/r"]);
    assert_ne!(shown.code, 0, "{}", shown.stderr);
    assert!(shown.stdout.ends_with("first\nfinal\n"), "{}", shown.stdout);
}

#[tokio::test(flavor = "multi_thread")]
async fn failed_run_is_shown_with_its_errors() {
    let datastore = TestDatastore::memory().await;
    let script = r"[ $STEP != plan ] || { printf 'Error: first\n\nError: second\n' >&2; exit 1; }";
    let sandbox = Sandbox::new(RUNNER).hello().fake_terraform(script);
    assert_eq!(sandbox.run_with(&datastore.url, PLAN).code, 1);

    let shown = sandbox.run_with(&datastore.url, &["show", "default/hello/p"]);

    assert_eq!(shown.code, 0, "{}", shown.stderr);
    assert_eq!(fact(&shown.stdout, "Outcome:"), "failed");
    assert!(fact(&shown.stdout, "Error:").contains("first"), "{}", shown.stdout);
    assert!(fact(&shown.stdout, "  also:").contains("second"), "{}", shown.stdout);
    assert!(fact(&shown.stdout, "Next:").contains("output"), "{}", shown.stdout);
    assert!(fact(&shown.stdout, "Took:").contains("exit code 1"), "{}", shown.stdout);
}

#[tokio::test(flavor = "multi_thread")]
async fn error_names_the_runs_and_attempts_that_exist() {
    let datastore = TestDatastore::memory().await;
    let sandbox = Sandbox::new(RUNNER).hello().fake_terraform("");
    let show = |run: &str| {
        let ended = sandbox.run_with(&datastore.url, &["show", run, "--layer", "layer.yaml"]);
        (ended.code, ended.stderr)
    };
    let (code, stderr) = show("p");
    assert_eq!(code, 8, "{stderr}");
    assert!(stderr.contains("layer default/hello has no run p; it has no runs"), "{stderr}");
    let ended = sandbox.run_with(&datastore.url, &["show", "--name", "hello"]);
    assert_eq!(ended.code, 8, "{}", ended.stderr);
    assert!(ended.stderr.contains("layer default/hello has no runs"), "{}", ended.stderr);
    assert_eq!(sandbox.run_with(&datastore.url, PLAN).code, 0);
    assert_eq!(sandbox.run_with(&datastore.url, PLAN).code, 0);

    let (code, stderr) = show("x");
    assert_eq!(code, 8, "{stderr}");
    assert!(stderr.contains("has no run x; its newest are p"), "{stderr}");
    assert!(stderr.contains("next: `runner runs` lists them"), "{stderr}");
    let (code, stderr) = show("p/7");
    assert_eq!(code, 8, "{stderr}");
    assert!(stderr.contains("run p has no attempt 7; it has 0, 1"), "{stderr}");
    assert_eq!(show("p/1").0, 0);
    let (code, stderr) = show("live/x");
    assert_eq!(code, 64, "{stderr}");
    let expected = "for the newest run of a directory or git URL use --source live/x";
    assert!(stderr.contains(expected), "{stderr}");
    let (code, stderr) = show("https://user:hush@h/x.git");
    assert_eq!(code, 64, "{stderr}");
    assert!(stderr.contains("use --source URL") && !stderr.contains("hush"), "{stderr}");
    for (arguments, named) in
        [(&["live"][..], "DIR"), (&["--name", "x"], "--name"), (&["--layer", "f"], "--layer")]
    {
        for command in ["show", "logs"] {
            let args = [&[command, "default/hello/p"], arguments].concat();
            let ended = sandbox.run_with(&datastore.url, &args);
            assert_eq!(ended.code, 64, "{}", ended.stderr);
            let expected = format!("leave out {named}, or name only the run");
            assert!(ended.stderr.contains(&expected), "{}", ended.stderr);
        }
    }

    claim(&datastore, "hello", "c").await;
    let (code, stderr) = show("c");
    assert_eq!(code, 8, "{stderr}");
    assert!(stderr.contains("attempt 0 of run c has stored nothing"), "{stderr}");
}

/// Its runner neither works nor was killed: the files are on this machine.
#[tokio::test(flavor = "multi_thread")]
async fn run_whose_files_are_unsent_is_shown_with_the_command_that_sends_them() {
    let datastore = TestDatastore::memory().await;
    let sandbox = Sandbox::new(RUNNER).hello().fake_terraform("");
    let lost = |part| vec![Fault { method: "PUT", part, status: 403, times: usize::MAX }];
    let faulty = FaultyDatastore::before(&datastore.url, lost("")).await;
    let apply = |layer: &str, run: &str| {
        let args = ["apply", "--no-plan", "--name", layer, "--run", run];
        let applied = sandbox.run_with(&faulty.url, &args);
        assert_eq!(applied.code, 10, "{}", applied.stderr);
    };
    apply("x", "a");
    faulty.set_faults(lost("/api/logs"));
    apply("y", "b");
    faulty.set_faults(Vec::new());
    let unsent = sandbox.path("home/.local/state/plancha/unsent/default");

    for command in ["show", "logs"] {
        let shown = sandbox.run_with(&faulty.url, &[command, "a", "--name", "x"]);
        assert_eq!(shown.code, 8, "{}", shown.stderr);
        let dir = unsent.join("x/a/0").display().to_string();
        let waits = format!("attempt 0 of run a has stored nothing: its files wait in {dir}");
        let next = format!("next: send them with `runner upload --datastore {} {dir}`", faulty.url);
        for text in [waits, next] {
            assert!(shown.stderr.contains(&text), "{text}: {}", shown.stderr);
        }
    }
    let shown = sandbox.run_with(&faulty.url, &["show", "b", "--name", "y"]);
    assert_eq!(shown.code, 0, "{}", shown.stderr);
    let dir = unsent.join("y/b/0").display().to_string();
    let waits = fact(&shown.stdout, "Unsent:");
    assert!(waits.ends_with(&format!(" {dir}`")), "{waits}");
    // Another datastore does not lack them.
    let shown = sandbox.run_with(&datastore.url, &["show", "a", "--name", "x"]);
    assert!(!shown.stderr.contains("wait in"), "{}", shown.stderr);
}

#[test]
fn datastore_is_required_and_must_answer() {
    let sandbox = Sandbox::new(RUNNER).hello();
    for command in ["show", "runs", "logs"] {
        let ended = sandbox.run(&[command, "--name", "hello"]);
        assert_eq!(ended.code, 64, "{}", ended.stderr);
        assert!(ended.stderr.contains("PLANCHA_DATASTORE_URL"), "{}", ended.stderr);
        let away = "http://127.0.0.1:2";
        let args = [command, "--name", "hello", "--datastore", away, "--datastore-timeout", "1s"];
        let ended = sandbox.run(&args);
        assert_eq!(ended.code, 10, "{}", ended.stderr);
        let ended = sandbox.run(&[command, "--datastore", away, "--path", "missing"]);
        assert_eq!(ended.code, 8, "{}", ended.stderr);
        assert!(ended.stderr.contains("there is no directory"), "{}", ended.stderr);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn hostile_plan_and_report_reach_the_terminal_without_control_sequences() {
    let datastore = TestDatastore::memory().await;
    let sandbox = Sandbox::new(RUNNER).hello().fake_terraform("");
    assert_eq!(sandbox.run_with(&datastore.url, PLAN).code, 0);
    let stored = StoredRun::new(&datastore, "default", "hello", "p");
    let attack = "\u{1b}]0;x\u{7}\u{1b}[2J\u{9b}H\u{202e}\u{8}";
    let mut report = json(&stored.artifact("run.json", 0).await);
    for field in ["outcome", "revision", "message", "next", "directory"] {
        report[field] = attack.into();
    }
    report["tool"]["version"] = attack.into();
    report["steps"][0]["name"] = attack.into();
    report["backend"] = serde_json::json!({"type": attack, "path": attack});
    stored.put_artifact("run.json", 0, report.to_string().into_bytes()).await;
    let pretty = format!("+ a{attack}\r\n\tb").into_bytes();
    let mut document = json(&stored.artifact("binding.json", 0).await);
    document["binding"]["renderings"]["files"]["pretty.plan"] =
        Sha256::of(&pretty).to_string().into();
    stored.put_artifact("binding.json", 0, document.to_string().into_bytes()).await;
    stored.put_plan("pretty", 0, pretty).await;
    stored.put_log(0, format!("log {attack}\nend").into_bytes()).await;

    for args in [
        &["show", "default/hello/p"][..],
        &["show", "default/hello/p", "--json"],
        &["logs", "default/hello/p"],
        &["runs", "--name", "hello"],
        &["runs", "--name", "hello", "--json"],
    ] {
        let shown = sandbox.run_with(&datastore.url, args);
        assert_eq!(shown.code, 0, "{}", shown.stderr);
        let is_safe = |c: char| matches!(c, '\n' | '\t') || !c.is_control() && c != '\u{202e}';
        assert!(shown.stdout.chars().all(is_safe), "{args:?}: {:?}", shown.stdout);
    }
    let shown = sandbox.run_with(&datastore.url, &["show", "default/hello/p"]);
    assert!(shown.stdout.ends_with("+ a^[]0;x^G^[[2J<U+009B>H<U+202E>^H\n\tb\n"), "{shown:?}");

    document["binding"]["layer"] = attack.into();
    stored.put_artifact("binding.json", 0, document.to_string().into_bytes()).await;
    let refused = sandbox.run_with(&datastore.url, &["show", "default/hello/p"]);
    assert_eq!((refused.code, &*refused.stdout), (9, ""), "{}", refused.stderr);
    assert!(refused.stderr.chars().all(|c| c == '\n' || !c.is_control()), "{:?}", refused.stderr);
}
