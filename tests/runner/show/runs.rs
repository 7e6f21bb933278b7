//! `runner runs`.

use support::{Sandbox, TestDatastore};

use crate::stored_run::StoredRun;
use crate::{RUNNER, json};

#[tokio::test(flavor = "multi_thread")]
async fn runs_are_listed_newest_first_with_outcome_counts_and_age() {
    let datastore = TestDatastore::memory().await;
    let script = r#"[ -e fail ] && [ $STEP = plan ] && { echo "Error: no" >&2; exit 1; }"#;
    let sandbox = Sandbox::new(RUNNER).hello().fake_terraform(script);
    let run = |args: &[&str]| sandbox.run_with(&datastore.url, args);
    assert_eq!(run(&["plan", "--layer", "layer.yaml", "--run", "p"]).code, 0);
    assert_eq!(run(&["apply", "--layer", "layer.yaml", "--run", "a"]).code, 0);
    sandbox.write("fail", "");
    assert_eq!(run(&["plan", "--layer", "layer.yaml", "--run", "broken"]).code, 1);
    let stored = |run| StoredRun::new(&datastore, "default", "hello", run);
    stored("odd").put_artifact("run.json", 3, b"not json".to_vec()).await;
    stored("theirs")
        .put_plan("short", 0, b"Plan: 2 to create, 1 to update, 0 to delete".to_vec())
        .await;

    let listed = run(&["runs", "--layer", "layer.yaml"]);

    assert_eq!(listed.code, 0, "{}", listed.stderr);
    let rows = listed.stdout.lines().map(|line| line.split("  ").filter(|cell| !cell.is_empty()));
    let rows = rows.map(|cells| cells.map(str::trim).collect::<Vec<_>>().join("|"));
    let rows = rows.map(|row| match row.rsplit_once('|') {
        Some((row, age)) if age == "just now" || age.ends_with(" ago") => format!("{row}|AGE"),
        _ => row,
    });
    let mut rows = rows.collect::<Vec<_>>();
    // These two were stored at nearly the same time.
    rows[1..3].sort();
    assert_eq!(
        rows,
        [
            "RUN|ACTION|OUTCOME|CHANGES|STARTED",
            "odd/3|unreadable report|AGE",
            "theirs/0|plan|changes|+2 ~1 -0|AGE",
            "broken/0|plan|failed|AGE",
            "a/0|apply|applied|+1 ~0 -0|AGE",
            "p/0|plan|changes|+1 ~0 -0|AGE",
        ],
        "{}",
        listed.stdout
    );

    let listed = run(&["runs", "--layer", "layer.yaml", "--json"]);
    let list = json(listed.stdout.as_bytes());
    let p = list.as_array().unwrap().iter().find(|run| run["run"] == "p").unwrap();
    assert_eq!(p["counts"], serde_json::json!({"create": 1, "update": 0, "delete": 0}));
    assert_eq!(
        (&p["outcome"], &p["exit"], &p["action"]),
        (&"changes".into(), &0.into(), &"plan".into())
    );
    assert_eq!(
        (&p["namespace"], &p["layer"], &p["tool"]["name"]),
        (&"default".into(), &"hello".into(), &"terraform".into())
    );
    let odd = list.as_array().unwrap().iter().find(|run| run["run"] == "odd").unwrap();
    assert_eq!((&odd["attempt"], &odd["outcome"]), (&3.into(), &serde_json::Value::Null));
}

#[tokio::test(flavor = "multi_thread")]
async fn run_that_applied_nothing_names_the_run_that_applied_before() {
    let datastore = TestDatastore::memory().await;
    let sandbox = Sandbox::new(RUNNER).hello().fake_terraform("");
    let run = |args: &[&str]| {
        let ended = sandbox.run_with(&datastore.url, args);
        assert_eq!(ended.code, 0, "{args:?}: {}", ended.stderr);
        ended.stdout
    };
    run(&["plan", "--name", "l", "--run", "p"]);
    run(&["apply", "--name", "l", "--plan", "p", "--run", "b1"]);
    let again = ["apply", "--name", "l", "--plan", "p", "--run", "b2", "--result", "result.json"];
    run(&[&again[..], &["--summary", "summary.md"]].concat());

    let listed = run(&["runs", "--name", "l"]);
    let row = listed.lines().find(|line| line.starts_with("b2/0")).unwrap();
    assert!(row.contains("applied before, by b1/0") && !row.contains('+'), "{listed}");
    assert!(listed.contains("+1 ~0 -0"), "that of b1: {listed}");
    let shown = run(&["show", "b2", "--name", "l"]);
    assert!(shown.contains("Outcome:       applied before, by b1/0\n"), "{shown}");
    let earlier = serde_json::json!({"run": "b1", "attempt": 0});
    let list = json(run(&["runs", "--name", "l", "--json"]).as_bytes());
    let list = list.as_array().unwrap();
    let b2 = list.iter().find(|run| run["run"] == "b2").unwrap();
    assert_eq!((&b2["outcome"], &b2["applied_before"]), (&"applied".into(), &earlier));
    assert!(b2["counts"].is_null(), "{b2}");
    let report = &json(run(&["show", "b2", "--name", "l", "--json"]).as_bytes())["report"];
    assert_eq!(report, &json(sandbox.read("result.json").as_bytes()));
    assert_eq!(report["applied_before"], earlier);
    assert!(report["plan"]["counts"].is_null() && report["plan"]["sha256"].is_string(), "{report}");
    let summary = sandbox.read("summary.md");
    assert!(summary.contains("applied before by b1/0"), "{summary}");
    assert!(!summary.contains("created") && !summary.contains("| create"), "{summary}");
}

#[tokio::test(flavor = "multi_thread")]
async fn limit_goes_past_one_page() {
    let datastore = TestDatastore::memory().await;
    let sandbox = Sandbox::new(RUNNER);
    for index in 0..60 {
        let run = StoredRun::new(&datastore, "default", "many", &format!("r{index:03}"));
        run.put_plan("short", 0, b"Apply Successful".to_vec()).await;
    }
    let listed = |args: &[&str]| {
        let mut all = vec!["runs", "--name", "many"];
        all.extend(args);
        let ended = sandbox.run_with(&datastore.url, &all);
        assert_eq!(ended.code, 0, "{}", ended.stderr);
        (ended.stdout.lines().count() - 1, ended.stderr)
    };
    let (count, stderr) = listed(&[]);
    assert!(count == 20 && stderr.contains("there are older runs: --limit"), "{count}: {stderr}");
    assert_eq!(listed(&["--limit", "55"]).0, 55);
    assert_eq!(listed(&["--limit", "60"]), (60, String::new()));
    assert_eq!(listed(&["--limit", "1000"]), (60, String::new()));
    assert_eq!(sandbox.run_with(&datastore.url, &["runs", "--limit", "0"]).code, 64);
}

#[tokio::test(flavor = "multi_thread")]
async fn reports_of_other_programs_are_named_as_such() {
    let datastore = TestDatastore::memory().await;
    let sandbox = Sandbox::new(RUNNER);
    let stored = |run| StoredRun::new(&datastore, "default", "l", run);
    stored("list").put_artifact("run.json", 0, b"[]".to_vec()).await;
    let later =
        r#"{"version":9,"outcome":"changes","steps":[{"name":"init","seconds":1e308,"exit":0}]}"#;
    stored("later").put_artifact("run.json", 0, later.as_bytes().to_vec()).await;
    let run = |args: &[&str]| sandbox.run_with(&datastore.url, args);

    let listed = run(&["runs", "--name", "l"]);
    let row = listed.stdout.lines().find(|line| line.starts_with("list/0")).unwrap();
    assert!(row.contains("unreadable report"), "{row}");
    assert!(listed.stderr.contains("version 9"), "{}", listed.stderr);
    let shown = run(&["show", "later", "--name", "l"]).stdout;
    assert!(shown.contains("Report:        version 9, of which"), "{shown}");
    assert!(shown.contains("Took:          an unknown time"), "{shown}");
    let ended = run(&["runs", "--name", "l", "--limit", "0"]);
    assert!(ended.stderr.contains("expected a number of runs, 1 or more"), "{}", ended.stderr);
    for args in
        [&["runs", "missing", "--name", "l"][..], &["show", "later", "missing", "--name", "l"]]
    {
        let ended = run(args);
        assert_eq!(ended.code, 8, "{}", ended.stderr);
        assert!(ended.stderr.contains("there is no directory missing"), "{}", ended.stderr);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn full_disk_below_stdout_is_named() {
    let datastore = TestDatastore::memory().await;
    let sandbox = Sandbox::new(RUNNER);
    let run = StoredRun::new(&datastore, "default", "l", "r");
    run.put_plan("short", 0, b"Apply Successful".to_vec()).await;
    let mut command = sandbox.command(&["runs", "--name", "l"]);
    command.env("PLANCHA_DATASTORE_URL", datastore.url.as_str());
    let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
    let ended = tokio::task::block_in_place(|| command.stdout(full).output().unwrap());
    let stderr = String::from_utf8(ended.stderr).unwrap();
    assert_eq!(ended.status.code(), Some(1), "{stderr}");
    assert!(stderr.contains("the output cannot be written: No space left"), "{stderr}");
    assert!(stderr.contains("where stdout goes") && !stderr.contains("TMPDIR"), "{stderr}");
}

#[tokio::test(flavor = "multi_thread")]
async fn layer_without_runs_is_no_error() {
    let datastore = TestDatastore::memory().await;
    let sandbox = Sandbox::new(RUNNER);
    let ended = sandbox.run_with(&datastore.url, &["runs", "--name", "none", "--namespace", "n"]);
    assert_eq!((ended.code, &*ended.stdout), (0, ""), "{}", ended.stderr);
    assert!(ended.stderr.contains("layer n/none has no runs"), "{}", ended.stderr);
    let ended = sandbox.run_with(&datastore.url, &["runs", "--name", "none", "--json"]);
    assert_eq!((ended.code, &*ended.stdout), (0, "[]\n"), "{}", ended.stderr);
}
