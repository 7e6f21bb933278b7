//! Files that the configuration names outside of its source are compared, whatever the source is.

#![expect(clippy::disallowed_types, reason = "a test makes archives with tar itself")]

use std::process::Command;

use support::{Ended, Sandbox, TestDatastore};

use crate::source::checkout::{commit_all, git};
use crate::{RUNNER, json};

/// A module that prints a file at each apply, and reads it by this expression.
fn module(sandbox: &Sandbox, dir: &str, expression: &str) {
    let (state, log) = (sandbox.path("state"), sandbox.path("log"));
    let main = format!(
        "terraform {{\n  backend \"local\" {{\n    path = \"{}\"\n  }}\n}}\n\
         resource \"terraform_data\" \"r\" {{\n  triggers_replace = [timestamp()]\n  \
         provisioner \"local-exec\" {{\n    command = \"echo ${{{expression}}} >> {}\"\n  }}\n}}\n",
        state.display(),
        log.display()
    );
    sandbox.write(&format!("{dir}/main.tf"), &main);
}

fn run(sandbox: &Sandbox, datastore: &TestDatastore, args: &[&str]) -> Ended {
    sandbox.run_with(&datastore.url, &[args, &["--name", "x"]].concat())
}

fn refused(applied: &Ended, text: &str) {
    assert_eq!(applied.code, 9, "{text}: {}", applied.stderr);
    for expected in [
        "the file outside of the source has changed since the plan p/",
        &format!(" was made: {text}"),
        "next: nothing was applied; plan again\n",
    ] {
        assert!(applied.stderr.contains(expected), "{expected}: {}", applied.stderr);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn changed_or_missing_file_of_the_machine_is_refused_for_each_kind_of_source() {
    let datastore = TestDatastore::memory().await;
    let sandbox = Sandbox::new(RUNNER);
    let file = sandbox.path("machine.txt");
    let named = file.display().to_string();
    for dir in ["plain", "clean"] {
        module(&sandbox, dir, &format!("trimspace(file(\"{named}\"))"));
    }
    let clean = sandbox.work().join("clean");
    git(&clean, &["init", "--quiet", "--initial-branch=main"]);
    commit_all(&clean);
    let mut tar = Command::new("tar");
    tar.arg("-C").arg(sandbox.work().join("plain")).arg("-cf");
    let made = tar.arg(sandbox.work().join("code.tar")).arg("main.tf").status();
    assert!(made.unwrap().success());
    let url = format!("file://{}", clean.display());
    let warning = "the snapshot lacks files outside of the source that the configuration names";
    for (source, option, has_snapshot) in [
        ("plain", "--snapshot=auto", false),
        ("plain", "--snapshot=always", true),
        ("clean", "--snapshot=auto", false),
        ("code.tar", "--snapshot=auto", true),
        (&url, "--snapshot=auto", true),
        (&url, "--snapshot=never", false),
    ] {
        std::fs::write(&file, "reviewed").unwrap();
        let plan = run(&sandbox, &datastore, &["plan", source, option, "--run", "p"]);
        assert_eq!(plan.code, 0, "{source}: {}", plan.stderr);
        let warnings = plan.stderr.matches(&format!("{warning} ({named})")).count();
        assert_eq!(warnings, usize::from(has_snapshot), "{source} {option}: {}", plan.stderr);
        let apply = || run(&sandbox, &datastore, &["apply", source, option]);
        std::fs::write(&file, "changed").unwrap();
        refused(&apply(), &format!("{named}, a file; here it is one with other contents"));
        std::fs::remove_file(&file).unwrap();
        refused(&apply(), &format!("{named}, a file; here it is none"));
        // Reading this one fails, also for root.
        std::os::unix::fs::symlink("/proc/self/mem", &file).unwrap();
        let unreadable = apply();
        let text = format!("{named} cannot be read: Input/output error (os error 5)");
        assert_eq!(unreadable.code, 9, "{}", unreadable.stderr);
        assert!(unreadable.stderr.contains(&text), "{text}: {}", unreadable.stderr);
        let next = "next: nothing was applied; make these files and directories readable, and apply again\n";
        assert!(unreadable.stderr.contains(next), "{}", unreadable.stderr);
        std::fs::remove_file(&file).unwrap();
        assert!(!sandbox.path("log").exists(), "{source}");
        std::fs::write(&file, "reviewed").unwrap();
        let done = apply();
        assert_eq!(done.code, 0, "{source}: {}", done.stderr);
        std::fs::remove_file(sandbox.path("log")).unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn file_in_the_home_or_by_a_computed_literal_path_is_compared() {
    let datastore = TestDatastore::memory().await;
    let sandbox = Sandbox::new(RUNNER);
    let machine = sandbox.path("machine.txt").display().to_string();
    let dir = sandbox.path("set").display().to_string();
    std::fs::create_dir(sandbox.path("set")).unwrap();
    for (expression, file, name) in [
        ("file(\"~/f.txt\")", "home/f.txt", "~/f.txt"),
        ("file(pathexpand(\"~/f.txt\"))", "home/f.txt", "~/f.txt"),
        ("file(\"${pathexpand(\"~\")}/f.txt\")", "home/f.txt", "~/f.txt"),
        (&*format!("filesha256(\"{machine}\")"), "machine.txt", &*machine),
        (&*format!("templatefile(\"{machine}\", {{}})"), "machine.txt", &*machine),
        (&*format!("length(fileset(\"{dir}\", \"*\"))"), "set/a", &*format!("{dir}/a")),
        ("file(abspath(\"x.txt\"))", "work/live/x.txt", "x.txt"),
        ("file(abspath(\"${path.module}/x.txt\"))", "work/live/x.txt", "x.txt"),
        ("file(\"${abspath(path.module)}/x.txt\")", "work/live/x.txt", "x.txt"),
        ("file(join(\"/\", [path.module, \"x.txt\"]))", "work/live/x.txt", "x.txt"),
    ] {
        module(&sandbox, "live", expression);
        std::fs::write(sandbox.path(file), "reviewed").unwrap();
        let plan = run(&sandbox, &datastore, &["plan", "live", "--run", "p"]);
        assert_eq!(plan.code, 0, "{expression}: {}", plan.stderr);
        std::fs::write(sandbox.path(file), "changed").unwrap();
        let applied = run(&sandbox, &datastore, &["apply", "live"]);
        assert_eq!(applied.code, 9, "{expression}: {}", applied.stderr);
        let expected = format!(" was made: {name}, ");
        assert!(applied.stderr.contains(&expected), "{expression}: {}", applied.stderr);
        assert!(!sandbox.path("log").exists(), "{expression}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn file_outside_of_the_source_that_the_plan_writes_may_be_missing() {
    let datastore = TestDatastore::memory().await;
    let sandbox = Sandbox::new(RUNNER);
    let file = sandbox.path("made.zip");
    let tool = format!("case $STEP in plan) echo made > {};; esac", file.display());
    let sandbox = sandbox.fake_terraform(&tool);
    sandbox.write("main.tf", &format!("locals {{\n  a = filebase64(\"{}\")\n}}\n", file.display()));
    for is_there in [false, true] {
        if is_there {
            std::fs::write(&file, "older").unwrap();
        }
        let plan = run(&sandbox, &datastore, &["plan", "--run", "p"]);
        assert_eq!(plan.code, 0, "{}", plan.stderr);
        let is_warned =
            plan.stderr.contains("while the plan was made, files outside of the source");
        assert_eq!(is_warned, is_there, "{}", plan.stderr);
        std::fs::write(&file, "edited").unwrap();
        refused(&run(&sandbox, &datastore, &["apply"]), &format!("{}, a file", file.display()));
        std::fs::remove_file(&file).unwrap();
        let applied = run(&sandbox, &datastore, &["apply"]);
        assert_eq!(applied.code, 0, "{}", applied.stderr);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn digest_of_a_secret_file_cannot_be_guessed_and_credentials_of_connections_may_differ() {
    let datastore = TestDatastore::memory().await;
    let sandbox = Sandbox::new(RUNNER).fake_terraform("");
    let (secret, key, pipe) = (sandbox.path("secret"), sandbox.path("key"), sandbox.path("pipe"));
    let main = format!(
        "locals {{\n  a = file(\"{}\")\n  b = fileexists(\"{}\")\n}}\n\
         provider \"x\" {{\n  token = file(\"{}\")\n}}\n\
         resource \"terraform_data\" \"r\" {{\n  connection {{\n    private_key = file(\"{}\")\n  }}\n}}\n",
        secret.display(),
        pipe.display(),
        key.display(),
        key.display()
    );
    sandbox.write("main.tf", &main);
    std::fs::write(&secret, "1234").unwrap();
    std::fs::write(&key, "of the plan").unwrap();
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let plan = run(&sandbox, &datastore, &["plan", "--run", "p", "--result", "r.json"]);
    assert_eq!(plan.code, 0, "{}", plan.stderr);
    let report = json(sandbox.read("r.json").as_bytes());
    let files = report["outside_files"]["files"].as_object().unwrap();
    assert_eq!(files.keys().collect::<Vec<_>>(), [&secret.display().to_string()]);
    let digest = datastore_api::Sha256::of(b"1234").to_string();
    assert!(!sandbox.read("r.json").contains(&digest));
    std::fs::write(&key, "of the apply").unwrap();
    let applied = run(&sandbox, &datastore, &["apply"]);
    assert_eq!(applied.code, 0, "{}", applied.stderr);
}
