//! `--summary`: the Markdown that a run appends to a file.

use support::{Sandbox, TestDatastore};

use crate::RUNNER;

const PLAN: &[&str] = &["plan", "--layer", "layer.yaml", "--run", "p"];

#[tokio::test(flavor = "multi_thread")]
async fn plan_and_apply_append_counts_changes_and_the_plan() {
    let datastore = TestDatastore::memory().await;
    let sandbox = Sandbox::new(RUNNER).hello();
    let run = |args: &[&str]| {
        let mut all = args.to_vec();
        all.extend(["--summary", "summary.md"]);
        let ended = sandbox.run_with(&datastore.url, &all);
        assert_eq!(ended.code, 0, "{args:?}: {}", ended.stderr);
        assert!(!ended.stderr.contains("WARN"), "{}", ended.stderr);
        sandbox.read("summary.md")
    };

    let planned = run(PLAN);

    let start = "### Plan of default/hello: 1 to create, 0 to update, 0 to delete\n\n| Address | Action |\n|---|---|\n\
        | <code>terraform_data.greeting</code> | create |\n";
    assert!(planned.starts_with(start), "{planned}");
    let fold = "<details><summary>Plan</summary>\n\n```text\nTerraform used";
    assert!(
        planned.contains(fold) && planned.contains("# terraform_data.greeting will be created\n")
    );
    assert!(
        planned.contains("Plan: 1 to add") && planned.contains("\n```\n\n</details>\n"),
        "{planned}"
    );
    assert!(planned.contains("Run <code>default/hello/p/0</code>, terraform 1."), "{planned}");
    assert!(
        planned.contains("Apply it with:\n\n```text\nrunner apply --layer layer.yaml"),
        "{planned}"
    );

    let both = run(&["apply", "--layer", "layer.yaml", "--run", "a"]);
    let applied = both.strip_prefix(&*planned).unwrap();
    assert!(
        applied.starts_with(
            "\n### Apply of default/hello: applied: 1 created, 0 updated, 0 deleted\n\n"
        ),
        "{applied}"
    );
    assert!(applied.contains("| <code>terraform_data.greeting</code> | create |\n"), "{applied}");
    assert!(applied.contains(fold), "{applied}");
    assert!(applied.contains("plan <code>p/0</code> <code>sha256:"), "{applied}");

    let all = run(&["apply", "--layer", "layer.yaml", "--run", "b"]);
    let again = all.strip_prefix(&*both).unwrap();
    assert!(again.contains("was applied before by a/0, nothing is applied again"), "{again}");
    let all_again = run(&["plan", "--layer", "layer.yaml", "--run", "q"]);
    let unchanged = all_again.strip_prefix(&*all).unwrap();
    assert!(unchanged.starts_with("\n### Plan of default/hello: no changes\n\n"), "{unchanged}");
    assert!(
        !unchanged.contains("| Address") && !unchanged.contains("Apply it with"),
        "{unchanged}"
    );
    assert!(sandbox.is_clean());
}

#[test]
fn variables_name_the_file_and_an_empty_one_counts_as_unset() {
    let sandbox = Sandbox::new(RUNNER).hello().fake_terraform("");
    for (variables, file) in [
        (&[("PLANCHA_SUMMARY", "a.md"), ("GITHUB_STEP_SUMMARY", "no.md")][..], Some("a.md")),
        (&[("PLANCHA_SUMMARY", ""), ("GITHUB_STEP_SUMMARY", "b.md")], Some("b.md")),
        (&[("PLANCHA_SUMMARY", ""), ("GITHUB_STEP_SUMMARY", "")], None),
    ] {
        let ended = sandbox.command(&["plan"]).envs(variables.iter().copied()).output().unwrap();
        assert!(ended.status.success());
        if let Some(file) = file {
            assert!(sandbox.read(file).starts_with("### Plan of default/work: 1 to create"));
        }
    }
    assert!(!sandbox.work().join("no.md").exists());
}

#[test]
fn variable_of_github_appends_to_no_configuration_state_or_other_file_of_the_run() {
    for (file, reason) in [
        ("main.tf", "has the name of a configuration file"),
        ("terraform.tfstate", "has the name of a state"),
        ("link", "has the name of a configuration file"),
        ("r.json", "is the file of --result too"),
    ] {
        let sandbox = Sandbox::new(RUNNER).hello().fake_terraform("");
        std::os::unix::fs::symlink("main.tf", sandbox.work().join("link")).unwrap();
        let before = sandbox.read("main.tf");
        let mut plan = sandbox.command(&["plan", "--result", "r.json"]);
        let ended = support::Ended::from(plan.env("GITHUB_STEP_SUMMARY", file).output().unwrap());
        assert_eq!(ended.code, 0, "{}", ended.stderr);
        let stderr = &ended.stderr;
        assert!(stderr.contains("the summary is not written: GITHUB_STEP_SUMMARY"), "{stderr}");
        assert!(stderr.contains(reason), "{stderr}");
        assert_eq!(sandbox.read("main.tf"), before);
        assert!(!sandbox.work().join("terraform.tfstate").exists());
        assert!(sandbox.read("r.json").ends_with("}\n"), "{}", sandbox.read("r.json"));
    }
}

#[test]
fn apply_without_a_stored_plan_has_its_log() {
    let sandbox = Sandbox::new(RUNNER).hello().fake_terraform("");
    let ended = sandbox.run(&["apply", "--no-plan", "--summary", "s.md"]);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    let summary = sandbox.read("s.md");
    assert!(summary.starts_with("### Apply of default/work: applied\n"), "{summary}");
    assert!(
        summary.contains("\n\n<details><summary>Log</summary>\n\n```text\nterraform 1.9.8 "),
        "{summary}"
    );
    assert!(summary.contains("init is done\napply is done\nApply complete! "), "{summary}");
}

#[test]
fn failure_has_its_reason_and_no_text_leaves_its_place() {
    let script = r"[ $STEP != plan ] || { printf 'Error: ```\n</details> <b>\033[2J\n\nError: second | `x`\n' >&2; exit 1; }";
    let sandbox = Sandbox::new(RUNNER).hello().fake_terraform(script);
    let ended = sandbox.run(&["plan", "--summary", "s.md"]);
    assert_eq!(ended.code, 1, "{}", ended.stderr);
    let summary = sandbox.read("s.md");
    assert!(
        summary.starts_with("### Plan of default/work: failed (exit code 1)\n\n````text\n"),
        "{summary}"
    );
    assert!(summary.contains("also: second | `x`\n````\n\nNext: "), "{summary}");
    assert!(!summary.contains('\x1b'), "{summary}");

    let ended = sandbox.run(&["apply", "--summary", "rejected.md"]);
    assert_eq!(ended.code, 8, "{}", ended.stderr);
    let summary = sandbox.read("rejected.md");
    assert!(
        summary.starts_with("### Apply: failed (exit code 8)\n\n```text\nthere is no plan"),
        "{summary}"
    );
}

#[test]
fn hostile_addresses_and_plans_stay_in_the_table_and_the_block() {
    let script = r#"case "$*" in
  *-json*) cat plan.in.json; exit 0;;
  show*) cat plan.in.txt; exit 0;;
esac"#;
    let sandbox = Sandbox::new(RUNNER).fake_terraform(script);
    let address = "a.b[\"|\n\n# x `y` <img src=x> [l](http://x) \u{1b}[2J\\|\"]";
    let plan = serde_json::json!({"format_version": "1.2", "resource_changes": [
        {"address": address, "change": {"actions": ["create"], "after": {"p": "hunter2"}}},
    ]});
    sandbox.write("plan.in.json", &plan.to_string());
    sandbox.write("plan.in.txt", "~~~\n```\n</details>\n````text\n\x1b]0;x\x07<script>\n");
    let ended = sandbox.run(&["plan", "--summary", "s.md"]);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    let summary = sandbox.read("s.md");
    let row = summary.lines().find(|line| line.contains("<code>a.b")).unwrap();
    assert!(row.ends_with("</code> | create |") && row.matches('|').count() == 3, "{row}");
    assert_eq!(row.matches('<').count(), 2, "{row}");
    assert!(!row.contains('`') && !row.contains('[') && !summary.contains("hunter2"), "{row}");
    let block =
        "\n`````text\n~~~\n```\n</details>\n````text\n^[]0;x^G<script>\n`````\n\n</details>\n";
    assert!(summary.contains(block), "{summary}");
}

#[test]
fn summaries_together_have_at_most_1_mib() {
    let script = r#"case "$*" in
  show*plan.bin) case "$*" in *-json*) ;; *) yes 'a line of a long plan' | head -c 3000000; exit 0;; esac;;
esac"#;
    let sandbox = Sandbox::new(RUNNER).hello().fake_terraform(script);
    let summary = || {
        let ended = sandbox.run(&["plan", "--summary", "s.md"]);
        assert_eq!(ended.code, 0, "{}", ended.stderr);
        (sandbox.read("s.md"), ended.stderr)
    };
    let (first, _) = summary();
    assert!((1_000_000..=1 << 20).contains(&first.len()), "{}", first.len());
    assert!(first.contains(
        "a line of a long plan\n… (cut: the summary has no more room)\n```\n\n</details>\n"
    ));
    assert!(first.contains("### Plan of default/work: 1 to create"), "the counts come first");
    std::fs::write(sandbox.work().join("s.md"), "x".repeat((1 << 20) - 10)).unwrap();
    let (full, stderr) = summary();
    assert_eq!(full.len(), (1 << 20) - 10);
    assert!(stderr.contains("the summary s.md is not written: it has no more room"), "{stderr}");
}

#[test]
fn summary_that_cannot_be_written_is_a_warning() {
    let sandbox = Sandbox::new(RUNNER).hello().fake_terraform("");
    for path in ["missing/s.md", ".", "/dev/null"] {
        let ended = sandbox.run(&["plan", "--summary", path]);
        assert_eq!(ended.code, 0, "{}", ended.stderr);
        assert!(
            ended.stderr.contains(&format!("the summary {path} is not written: ")),
            "{}",
            ended.stderr
        );
    }
}
