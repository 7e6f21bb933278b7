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
