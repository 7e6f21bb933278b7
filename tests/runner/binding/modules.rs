//! Modules that init downloads: an apply is refused if their contents are not those of the plan.

use support::{Ended, Sandbox, TestDatastore};

use crate::source::checkout::git;
use crate::stored_run::StoredRun;
use crate::{RUNNER, json};

/// Writes a file of the module to the log, during the apply.
const MODULE: &str = r#"
resource "terraform_data" "x" {
  provisioner "local-exec" {
    command = "cat ${path.module}/text >> $LOG"
  }
}
"#;

/// A module in a git repository, and a configuration that calls its branch.
fn sandbox() -> Sandbox {
    let sandbox = Sandbox::new(RUNNER);
    let module = sandbox.path("module");
    std::fs::create_dir(&module).unwrap();
    std::fs::write(module.join("main.tf"), MODULE).unwrap();
    git(&module, &["init", "--quiet"]);
    commit(&sandbox, "first");
    let source = format!("git::file://{}?ref=main", module.display());
    sandbox.write("main.tf", &format!("module \"script\" {{\n  source = \"{source}\"\n}}\n"));
    sandbox
}

fn commit(sandbox: &Sandbox, text: &str) {
    let module = sandbox.path("module");
    std::fs::write(module.join("text"), text).unwrap();
    git(&module, &["add", "."]);
    git(&module, &["commit", "--quiet", "-m", text]);
}

fn run(sandbox: &Sandbox, args: &[&str]) -> Ended {
    // As in another checkout: init downloads the modules again.
    drop(std::fs::remove_dir_all(sandbox.work().join(".terraform")));
    let mut command = sandbox.command(args);
    Ended::from(command.env("LOG", sandbox.path("log")).output().unwrap())
}

#[track_caller]
fn refused(sandbox: &Sandbox, args: &[&str]) {
    let refused = run(sandbox, args);
    assert_eq!(refused.code, 9, "{args:?}: {}", refused.stderr);
    for text in ["was made with another module `script`: sha256 ", "next: nothing was applied; "] {
        assert!(refused.stderr.contains(text), "{text}: {}", refused.stderr);
    }
    assert!(!sandbox.path("log").exists(), "{args:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn moved_branch_of_a_module_is_refused_by_the_modules_name() {
    let datastore = TestDatastore::memory().await;
    let sandbox = sandbox();
    let url = datastore.url.as_str();
    let stored = ["--name", "x", "--datastore", url];
    let file = ["--plan-file", "p.tfplan"];
    for args in [&[&["plan", "--run", "p"][..], &stored].concat(), &[&["plan"][..], &file].concat()]
    {
        let planned = run(&sandbox, args);
        assert_eq!(planned.code, 0, "{}", planned.stderr);
    }
    commit(&sandbox, "second");

    let apply = [&["apply", "--plan", "p"][..], &stored].concat();
    refused(&sandbox, &apply);
    refused(&sandbox, &[&["apply"][..], &stored].concat());
    refused(&sandbox, &[&["apply"][..], &file].concat());
    git(&sandbox.path("module"), &["reset", "--quiet", "--hard", "HEAD~"]);
    let applied = run(&sandbox, &apply);
    assert_eq!(applied.code, 0, "{}", applied.stderr);
    assert_eq!(std::fs::read_to_string(sandbox.path("log")).unwrap(), "first");

    // A plan of an earlier release does not record the modules.
    commit(&sandbox, "third");
    std::fs::remove_file(sandbox.work().join("terraform.tfstate")).unwrap();
    let planned = run(&sandbox, &[&["plan", "--run", "q"][..], &stored].concat());
    assert_eq!(planned.code, 0, "{}", planned.stderr);
    let of_plan = StoredRun::new(&datastore, "default", "x", "q");
    let mut earlier = json(&of_plan.artifact("binding.json", 0).await);
    earlier["binding"].as_object_mut().unwrap().remove("modules").unwrap();
    of_plan.put_artifact("binding.json", 0, earlier.to_string().into_bytes()).await;
    commit(&sandbox, "fourth");
    let applied = run(&sandbox, &[&["apply", "--plan", "q"][..], &stored].concat());
    assert_eq!(applied.code, 0, "{}", applied.stderr);
    assert_eq!(std::fs::read_to_string(sandbox.path("log")).unwrap(), "firstfourth");
}

/// A terraform whose init downloads a module, and whose plan writes a file into it.
const GENERATES: &str = r#"
m=.terraform/modules
if [ $STEP = init ]; then
  mkdir -p $m/a
  echo '{"backend": {"type": "s3", "config": {"bucket": "b", "key": "k"}}}' > .terraform/terraform.tfstate
  echo '{"Modules":[{"Key":"a","Source":"x","Dir":".terraform/modules/a"}]}' > $m/modules.json
  echo code > $m/a/main.tf
fi
if [ $STEP = plan ]; then echo $$ > $m/a/built.zip; fi
"#;

#[tokio::test(flavor = "multi_thread")]
async fn file_that_the_plan_writes_into_a_module_is_no_difference() {
    let datastore = TestDatastore::memory().await;
    let sandbox = Sandbox::new(RUNNER).hello().fake_terraform(GENERATES);
    for (name, in_place) in [("p", true), ("q", true), ("r", false)] {
        let stored = ["--name", "x", "--datastore", datastore.url.as_str()];
        let planned = sandbox.run(&[&["plan", "--run", name][..], &stored].concat());
        assert_eq!(planned.code, 0, "{}", planned.stderr);
        if !in_place {
            std::fs::remove_dir_all(sandbox.work().join(".terraform")).unwrap();
        }
        let applied = sandbox.run(&[&["apply", "--plan", name][..], &stored].concat());
        assert_eq!(applied.code, 0, "{name}: {}", applied.stderr);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn modules_that_cannot_be_listed_are_a_warning_of_a_plan_and_refused_by_an_apply() {
    let datastore = TestDatastore::memory().await;
    let breaks = "[ $STEP = init ] && [ -n \"$BREAK\" ] && echo { > $m/modules.json";
    let sandbox = Sandbox::new(RUNNER).hello().fake_terraform(&format!("{GENERATES}{breaks}\n"));
    let run = |args: &[&str], is_broken: &str| {
        let stored = ["--name", "x", "--datastore", datastore.url.as_str()];
        let mut command = sandbox.command(&[args, &stored].concat());
        Ended::from(command.env("BREAK", is_broken).output().unwrap())
    };
    assert_eq!(run(&["plan", "--run", "p"], "").code, 0);
    let refused = run(&["apply", "--plan", "p"], "1");
    assert_eq!(refused.code, 9, "{}", refused.stderr);
    for text in ["cannot be compared with those of the plan p/0: ", "modules.json cannot be read"] {
        assert!(refused.stderr.contains(text), "{text}: {}", refused.stderr);
    }
    assert!(!sandbox.calls().iter().any(|call| call.starts_with("apply")));
    let planned = run(&["plan", "--run", "q"], "1");
    assert_eq!(planned.code, 0, "{}", planned.stderr);
    let warning = "an apply does not compare the modules that init has downloaded: ";
    assert!(planned.stderr.contains(warning), "{}", planned.stderr);
    let applied = run(&["apply", "--plan", "q"], "1");
    assert_eq!(applied.code, 0, "{}", applied.stderr);
}

/// The snapshot has the modules of the plan, and init downloads them again only with `-upgrade`.
#[tokio::test(flavor = "multi_thread")]
async fn apply_in_a_snapshot_uses_the_modules_of_the_plan() {
    let datastore = TestDatastore::memory().await;
    let sandbox = sandbox();
    let state = sandbox.path("state").join("terraform.tfstate");
    let backend = format!("terraform {{\n  backend \"local\" {{\n    path = {state:?}\n  }}\n}}\n");
    sandbox.write("backend.tf", &backend);
    git(&sandbox.work(), &["init", "--quiet"]);
    git(&sandbox.work(), &["add", "."]);
    git(&sandbox.work(), &["commit", "--quiet", "-m", "x"]);
    let url = format!("file://{}", sandbox.work().display());
    let stored = ["--name", "x", "--datastore", datastore.url.as_str()];
    let planned = run(&sandbox, &[&["plan", &url, "--run", "p"][..], &stored].concat());
    assert_eq!(planned.code, 0, "{}", planned.stderr);
    commit(&sandbox, "second");
    let empty = sandbox.path("empty");
    std::fs::create_dir(&empty).unwrap();
    let apply = |variables: &[(&str, &str)]| {
        let mut command = sandbox.command(&[&["apply", "--plan", "p"][..], &stored].concat());
        command.current_dir(&empty).env("LOG", sandbox.path("log"));
        Ended::from(command.envs(variables.iter().copied()).output().unwrap())
    };

    let refused = apply(&[("TF_CLI_ARGS_init", "-upgrade")]);
    assert_eq!(refused.code, 9, "{}", refused.stderr);
    assert!(refused.stderr.contains("another module `script`"), "{}", refused.stderr);
    assert!(!sandbox.path("log").exists());
    let applied = apply(&[]);
    assert_eq!(applied.code, 0, "{}", applied.stderr);
    assert_eq!(std::fs::read_to_string(sandbox.path("log")).unwrap(), "first");
}
