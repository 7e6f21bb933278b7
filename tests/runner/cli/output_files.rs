//! The files of `--result` and `--summary` beside files of others.

use support::Sandbox;

use crate::RUNNER;

#[test]
fn report_and_summary_replace_no_other_file() {
    let sandbox = Sandbox::new(RUNNER).hello().fake_terraform("");
    let code = sandbox.read("main.tf");
    for (name, contents) in [("terraform.tfstate", "{}"), ("notes.json", "{\"a\": 1}"), ("x", "x")]
    {
        sandbox.write(name, contents);
    }
    for (args, expected) in [
        (&["--result", "main.tf"][..], "--result main.tf has the name of a configuration file"),
        (&["--result", ".terraform.lock.hcl"], "has the name of a configuration file"),
        (&["--result", "terraform.tfstate"], "--result terraform.tfstate has the name of a state"),
        (&["--result", "notes.json"], "--result notes.json exists and is not a report"),
        (&["--result", "x"], "--result x exists and is not a report"),
        (&["--summary", "main.tf"], "--summary main.tf has the name of a configuration file"),
        (&["--plan-file", "p", "--result", "./p"], "is the file of --plan-file too"),
        (&["--plan-file", "p", "--summary", "p.run.json"], "of the record of --plan-file too"),
        (&["--layer", "layer.yaml", "--result", "layer.yaml"], "is the file of --layer too"),
    ] {
        let ended = sandbox.run(&[&["plan"], args].concat());
        assert_eq!(ended.code, 8, "{args:?}: {}", ended.stderr);
        assert!(ended.stderr.contains(expected), "{args:?}: {}", ended.stderr);
    }
    assert_eq!([sandbox.read("main.tf"), sandbox.read("x")], [code, "x".to_owned()]);
    assert!(sandbox.calls().is_empty());
    // Its own report is replaced, and an empty file.
    sandbox.write("r.json", "");
    for _ in 0..2 {
        assert_eq!(sandbox.run(&["plan", "--result", "r.json", "--summary", "s.md"]).code, 0);
        assert!(sandbox.read("r.json").contains("\"outcome\""));
    }
}

#[test]
fn report_is_written_through_links_and_keeps_the_mode_of_its_file() {
    use std::os::unix::fs::{PermissionsExt as _, symlink};
    let sandbox = Sandbox::new(RUNNER).hello().fake_terraform("");
    let work = sandbox.work();
    let mode = |name: &str| work.join(name).metadata().unwrap().permissions().mode() & 0o777;
    std::fs::create_dir(work.join("out")).unwrap();
    symlink("out/r.json", work.join("r")).unwrap();
    symlink("out/s.md", work.join("s")).unwrap();
    symlink("out/p", work.join("p")).unwrap();
    for link in ["r", "s", "p"] {
        assert!(!work.join(link).exists(), "it leads to no file yet");
    }
    let plan = |result: &str, summary: &str| {
        let files = format!("--result {result} --summary {summary} --plan-file p");
        let line = format!("umask 027; exec {RUNNER} plan {files}");
        let ended = sandbox.program(std::path::Path::new("/bin/sh"), &["-c", &line]).output();
        support::Ended::from(ended.unwrap())
    };
    let ended = plan("r", "s");
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    assert!(["r", "s", "p"].iter().all(|link| work.join(link).is_symlink()));
    assert_eq!(mode("out/p"), 0o600, "a plan may hold secrets");
    assert!(sandbox.read("out/r.json").contains("\"outcome\""));
    assert!(sandbox.read("out/s.md").starts_with("### "));
    assert_eq!((mode("out/r.json"), mode("out/s.md")), (0o600, 0o600));
    for kept in [0o644, 0o600, 0o664] {
        let mode_of = std::fs::Permissions::from_mode(kept);
        std::fs::set_permissions(work.join("out/r.json"), mode_of).unwrap();
        assert_eq!(plan("r", "s").code, 0);
        assert_eq!(mode("out/r.json"), kept);
    }
    symlink("missing/r.json", work.join("nowhere")).unwrap();
    symlink("round", work.join("round")).unwrap();
    symlink("main.tf.new.tf", work.join("code")).unwrap();
    for (link, expected) in [
        ("nowhere", "missing/r.json, whose directory does not exist: create it first"),
        ("round", "--result round is a link to itself"),
        ("code", "--result code has the name of a configuration file"),
    ] {
        let ended = plan(link, "s");
        assert_eq!(ended.code, 8, "{}", ended.stderr);
        assert!(ended.stderr.contains(expected), "{}", ended.stderr);
        assert!(work.join(link).is_symlink());
    }
}
