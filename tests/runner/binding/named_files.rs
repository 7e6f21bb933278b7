//! Files that the configuration of a directory in place names are compared where no commit tells what was planned.

use support::{Sandbox, TestDatastore};

use crate::source::checkout::{commit_all, git};
use crate::{RUNNER, json};

const MAIN: &str = r#"
module "m" {
  source = "../m"
}
locals {
  a = file("${path.module}/a.txt")
  b = templatefile("b.tpl", {})
  c = fileset(path.module, "set/*")
  z = filebase64("out.zip")
  w = fileexists("written.txt")
}
"#;

#[tokio::test(flavor = "multi_thread")]
async fn changed_module_or_file_outside_of_git_or_in_a_dirty_tree_is_refused_by_name() {
    let datastore = TestDatastore::memory().await;
    // The plan makes an archive, as a data source does, and the apply a file.
    let tool = "case $STEP in plan) date +%N > out.zip;; apply) date +%N > written.txt;; esac";
    let sandbox = Sandbox::new(RUNNER).fake_terraform(tool);
    for (file, text) in [
        ("live/main.tf", MAIN),
        ("m/main.tf", ""),
        ("live/a.txt", ""),
        ("live/b.tpl", ""),
        ("live/set/x", ""),
    ] {
        sandbox.write(file, text);
    }
    let run = |args: &[&str]| {
        let place = ["live", "--name", "x", "--snapshot=never", "--result", "r.json"];
        sandbox.run_with(&datastore.url, &[&args[..1], &place, &args[1..]].concat())
    };
    for is_dirty_tree in [false, true] {
        if is_dirty_tree {
            git(&sandbox.work(), &["init", "--quiet"]);
            commit_all(&sandbox.work());
            sandbox.write("live/main.tf", &format!("{MAIN}# changed\n"));
        }
        let planned = run(&["plan", "--run", "p"]);
        assert_eq!(planned.code, 0, "{}", planned.stderr);
        let report = json(sandbox.read("r.json").as_bytes());
        assert_eq!(report["named_files"]["generated"], serde_json::json!(["out.zip"]));
        for (file, way) in [
            ("m/main.tf", "../m/main.tf, sha256 "),
            ("m/new.tf", "../m/new.tf, none; here it is sha256 "),
            ("live/a.txt", "a.txt, sha256 "),
            ("live/b.tpl", "b.tpl, sha256 "),
            ("live/set/x", "set/x, sha256 "),
            ("live/set/new", "set/new, none"),
        ] {
            let path = sandbox.work().join(file);
            let before = std::fs::read(&path).ok();
            sandbox.write(file, "# another");
            let refused = run(&["apply"]);
            assert_eq!(refused.code, 9, "{file}: {}", refused.stderr);
            for expected in ["the file has changed since the plan p/", &format!(" was made: {way}")]
            {
                assert!(refused.stderr.contains(expected), "{file}: {}", refused.stderr);
            }
            match before {
                Some(before) => std::fs::write(&path, before).unwrap(),
                None => std::fs::remove_file(&path).unwrap(),
            }
        }
        sandbox.write("live/out.zip", "made again");
        let applied = run(&["apply"]);
        assert_eq!(applied.code, 0, "{}", applied.stderr);
    }
    let planned = run(&["plan", "--run", "q"]);
    assert_eq!(planned.code, 0, "{}", planned.stderr);
    sandbox.write("m/main.tf", "# another");
    // A plan that is named is applied with a warning, as for another configuration.
    let applied = run(&["apply", "--plan", "q"]);
    assert_eq!(applied.code, 0, "{}", applied.stderr);
    assert!(applied.stderr.contains("../m/main.tf"), "{}", applied.stderr);
}

#[tokio::test(flavor = "multi_thread")]
async fn plan_of_a_commit_records_no_named_files() {
    let datastore = TestDatastore::memory().await;
    let sandbox = Sandbox::new(RUNNER).fake_terraform("");
    sandbox.write("live/main.tf", MAIN);
    sandbox.write("m/main.tf", "");
    git(&sandbox.work(), &["init", "--quiet"]);
    commit_all(&sandbox.work());
    let planned = sandbox.run_with(&datastore.url, &["plan", "live", "--result", "r.json"]);
    assert_eq!(planned.code, 0, "{}", planned.stderr);
    assert!(json(sandbox.read("r.json").as_bytes()).get("named_files").is_none());
}
