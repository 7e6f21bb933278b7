//! Modules with a source that is not literal, as OpenTofu accepts variables in it: the tool's own list of modules has their
//! directories. Terraform accepts no variables there, but escaped letters in JSON.

use support::{Sandbox, TestDatastore};

use crate::source::checkout::{commit_all, git};
use crate::source::submodules::Repositories;
use crate::{RUNNER, json};

#[test]
fn empty_submodule_of_a_module_with_a_source_that_only_the_tool_resolves_is_refused() {
    let repositories = Repositories::new();
    let live = repositories.infra.join("live/main.tf.json");
    std::fs::write(live, r#"{"module": {"net": {"source": "\u002e\u002e/modules/net"}}}"#).unwrap();
    repositories.live("");
    let url = repositories.url();
    let planned = repositories.run(&["plan", &url, "--path", "live"]);
    assert_eq!(planned.code, 0, "{}", planned.stderr);
    repositories.clone_without_submodules();
    let net = repositories.sandbox.path("repositories/net");
    std::fs::rename(net, repositories.sandbox.path("moved")).unwrap();
    for source in [&["clone/live"][..], &[&url, "--path", "live"]] {
        let ended = repositories.run(&[&["plan"], source].concat());
        assert_eq!(ended.code, 8, "{source:?}: {}", ended.stderr);
        let needs =
            "the module `net` needs `modules/net`, but the submodule `modules/net` is empty";
        assert!(ended.stderr.contains(needs), "{source:?}: {}", ended.stderr);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn files_of_a_module_with_a_source_that_only_the_tool_resolves_are_compared() {
    let datastore = TestDatastore::memory().await;
    let sandbox = Sandbox::new(RUNNER);
    let outside = sandbox.path("outside.txt");
    std::fs::write(&outside, "").unwrap();
    let module = format!(
        "locals {{\n  y = file(\"${{path.module}}/y.txt\")\n  o = file(\"{}\")\n}}\n",
        outside.display()
    );
    let main = r#"{"module": {"m": {"source": "\u002e\u002e/m"}}}"#;
    for (file, text) in [
        ("live/main.tf.json", main),
        ("m/main.tf", &module),
        ("m/y.txt", "good"),
        (".gitignore", ".terraform*\nr.json\nm/y.txt\n*.tfstate*\n"),
    ] {
        sandbox.write(file, text);
    }
    let run = |args: &[&str]| {
        let place = ["live", "--name", "x", "--snapshot=never", "--result", "r.json"];
        sandbox.run_with(&datastore.url, &[&args[..1], &place, &args[1..]].concat())
    };
    let y = ("m/y.txt", "../m/y.txt, sha256 ");
    let code = ("m/main.tf", "../m/main.tf, sha256 ");
    let with_new = [y, code, ("m/new.tf", "../m/new.tf, none; here it is sha256 ")];
    for (kind, files) in [("no git", &with_new[..]), ("dirty", &with_new), ("clean", &[y])] {
        match kind {
            "no git" => {}
            "dirty" => {
                git(&sandbox.work(), &["init", "--quiet"]);
                commit_all(&sandbox.work());
                sandbox.write("live/more.tf", "# changed\n");
            }
            _ => commit_all(&sandbox.work()),
        }
        let planned = run(&["plan"]);
        assert_eq!(planned.code, 0, "{}", planned.stderr);
        let report = json(sandbox.read("r.json").as_bytes());
        assert_eq!(report["called_modules"], serde_json::json!({"../m": "m"}));
        assert_eq!(report["named_files"]["generated"], serde_json::Value::Null);
        let outside_file =
            (outside.to_str().unwrap(), "a file; here it is one with other contents");
        for (file, difference) in files.iter().copied().chain([outside_file]) {
            let path = sandbox.work().join(file);
            let before = std::fs::read(&path).ok();
            std::fs::write(&path, "# another").unwrap();
            // Also in a directory without the data of the tool.
            drop(std::fs::remove_dir_all(sandbox.work().join("live/.terraform")));
            let refused = run(&["apply"]);
            assert_eq!(refused.code, 9, "{kind} {file}: {}", refused.stderr);
            assert!(refused.stderr.contains(difference), "{kind} {file}: {}", refused.stderr);
            match before {
                Some(before) => std::fs::write(&path, before).unwrap(),
                None => std::fs::remove_file(&path).unwrap(),
            }
        }
        let applied = run(&["apply"]);
        assert_eq!(applied.code, 0, "{kind}: {}", applied.stderr);
        // A plan of the same second may have the same bytes, and so be the same plan.
        tokio::time::sleep(std::time::Duration::from_millis(1100)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn order_without_a_plan_is_not_the_same_with_another_file_of_such_a_module() {
    let datastore = TestDatastore::memory().await;
    let sandbox = Sandbox::new(RUNNER);
    sandbox.write("main.tf.json", r#"{"module": {"m": {"source": "\u002e/m"}}}"#);
    sandbox.write("m/main.tf", "locals {\n  y = file(\"${path.module}/y.txt\")\n}\n");
    sandbox.write("m/y.txt", "good");
    let order = ["apply", "--no-plan", "--name", "x", "--run", "order"];
    for _ in 0..2 {
        let ended = sandbox.run_with(&datastore.url, &order);
        assert_eq!(ended.code, 0, "{}", ended.stderr);
    }
    sandbox.write("m/y.txt", "another");
    let refused = sandbox.run_with(&datastore.url, &order);
    assert_eq!(refused.code, 9, "{}", refused.stderr);
    assert!(refused.stderr.contains("another source: sha256 "), "{}", refused.stderr);
}
