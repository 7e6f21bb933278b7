//! `--state-in` and `--state-out`, with the real tool.

use std::io::{Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::Duration;

use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use serde_json::Value;
use support::{Ended, Sandbox, TestDatastore, eventually};

use crate::{RUNNER, json};

const ONE: &str = "resource \"terraform_data\" \"a\" {\n  input = \"one\"\n}\n";
/// It fails until the file `works` exists, and creates another object before.
const FAILING: &str = "resource \"terraform_data\" \"b\" {
  input = terraform_data.a.id
  provisioner \"local-exec\" {
    command = \"[ -e works ]\"
  }
}
";
/// It waits until the file `go` exists, when another object has been created.
const WAITING: &str = "resource \"terraform_data\" \"b\" {
  input = terraform_data.a.id
  provisioner \"local-exec\" {
    command = \"touch waits; while [ ! -e go ]; do sleep 0.1; done\"
  }
}
";

/// How long the lease of a killed run is valid.
const LEASE: Duration = Duration::from_secs(1);

const APPLY: [&str; 8] =
    ["apply", "--no-plan", "--name", "x", "--state-in", "../state", "--state-out", "../state"];

fn module(main: &str) -> Sandbox {
    let sandbox = Sandbox::new(RUNNER);
    sandbox.write("main.tf", main);
    sandbox
}

fn read(file: &Path) -> Value {
    json(&std::fs::read(file).unwrap())
}

fn unzipped(file: &Path) -> Value {
    let mut text = Vec::new();
    GzDecoder::new(std::fs::File::open(file).unwrap()).read_to_end(&mut text).unwrap();
    json(&text)
}

fn names(state: &Value) -> Vec<&str> {
    let resources = state["resources"].as_array().unwrap();
    resources.iter().map(|resource| resource["name"].as_str().unwrap()).collect()
}

#[track_caller]
fn ok(ended: &Ended) {
    assert_eq!(ended.code, 0, "{}\n{}", ended.stdout, ended.stderr);
}

#[test]
fn first_run_writes_the_state_and_the_next_one_reads_it() {
    let sandbox = module(ONE);
    let state = sandbox.path("state");
    ok(&sandbox.run(&APPLY));
    assert_eq!(names(&read(&state)), ["a"]);
    assert_eq!(std::fs::metadata(&state).unwrap().permissions().mode() & 0o777, 0o600);
    let before = std::fs::read(&state).unwrap();
    let plan = ["plan", "--detailed-exitcode", "--state-in", "../state", "--name", "x"];
    ok(&sandbox.run(&plan));
    assert_eq!(std::fs::read(&state).unwrap(), before, "a plan only reads");
    sandbox.write("main.tf", &ONE.replace("one", "two"));
    assert_eq!(sandbox.run(&plan).code, 2);
    ok(&sandbox.run(&APPLY));
    assert_eq!(read(&state)["serial"], 3);
    assert!(!sandbox.work().join("terraform.tfstate").exists());
    assert!(sandbox.is_clean());
}

#[test]
fn plan_in_a_file_is_applied_to_the_state() {
    let sandbox = module(ONE);
    let files =
        ["--state-in", "../in", "--state-out", "../out", "--plan-file", "../plan", "--name", "x"];
    let with = |action: &'static str| [&[action][..], &files].concat();
    let planned = sandbox.run(&with("plan"));
    ok(&planned);
    assert!(planned.stderr.contains("--state-in ../in --state-out ../out"), "{}", planned.stderr);
    assert!(!sandbox.path("out").exists());
    ok(&sandbox.run(&with("apply")));
    assert_eq!(names(&read(&sandbox.path("out"))), ["a"]);
    // The plan is of no state, and there is one by now.
    std::fs::rename(sandbox.path("out"), sandbox.path("in")).unwrap();
    let stale = sandbox.run(&with("apply"));
    assert_eq!(stale.code, 9, "{}", stale.stderr);
    assert_eq!(read(&sandbox.path("out")), read(&sandbox.path("in")));
}

#[test]
fn compressed_states_are_read_and_written() {
    let sandbox = module(ONE);
    let to = |input: &'static str, output: &'static str| {
        sandbox.run(&[
            "apply",
            "--no-plan",
            "--name",
            "x",
            "--state-in",
            input,
            "--state-out",
            output,
        ])
    };
    ok(&to("../plain", "../named.gz"));
    let first = unzipped(&sandbox.path("named.gz"));
    assert_eq!(names(&first), ["a"]);
    ok(&to("../named.gz", "../plain"));
    assert_eq!(read(&sandbox.path("plain"))["lineage"], first["lineage"]);
    // As the backend `kubernetes` stores it, under a name that does not say so.
    let mut encoder = GzEncoder::new(
        std::fs::File::create(sandbox.path("tfstate")).unwrap(),
        Compression::default(),
    );
    encoder.write_all(first.to_string().as_bytes()).unwrap();
    encoder.finish().unwrap();
    ok(&to("../tfstate", "../tfstate"));
    assert_eq!(unzipped(&sandbox.path("tfstate"))["lineage"], first["lineage"]);
}

#[test]
fn large_state_is_read_and_written() {
    let main =
        format!("{ONE}resource \"terraform_data\" \"large\" {{\n  input = file(\"large\")\n}}\n");
    let sandbox = module(&main);
    sandbox.write("large", &"0123456789abcde\n".repeat(320 << 10));
    ok(&sandbox.run(&APPLY));
    assert!(std::fs::metadata(sandbox.path("state")).unwrap().len() > 5 << 20);
    let unchanged = sandbox.run(&["plan", "--detailed-exitcode", "--state-in", "../state"]);
    ok(&unchanged);
}

#[test]
fn failed_apply_writes_the_state() {
    let sandbox = module(&format!("{ONE}{FAILING}"));
    let ended = sandbox.run(&APPLY);
    assert_eq!(ended.code, 1, "{}", ended.stderr);
    let state = sandbox.path("state");
    assert_eq!(names(&read(&state)), ["a", "b"]);
    sandbox.write("works", "");
    ok(&sandbox.run(&APPLY));
    assert!(sandbox.is_clean());
}

#[test]
fn stopped_apply_writes_the_state() {
    let sandbox = module(&format!("{ONE}{WAITING}"));
    let runner = sandbox.start(None, &APPLY);
    eventually("the second object is created", || sandbox.work().join("waits").exists());
    runner.signal("TERM");
    let ended = runner.wait();
    assert_eq!(ended.code, 143, "{}", ended.stderr);
    assert!(names(&read(&sandbox.path("state"))).contains(&"a"));
    assert!(sandbox.is_clean());
}

/// The next apply is refused until the state is in its file. The killed one has not touched that.
#[test]
fn state_of_a_killed_apply_is_found() {
    let sandbox = module(ONE);
    ok(&sandbox.run(&APPLY));
    let (state, before) = (sandbox.path("state"), std::fs::read(sandbox.path("state")).unwrap());
    sandbox.write("main.tf", &format!("{}{WAITING}", ONE.replace("one", "two")));
    let runner = sandbox.start(None, &APPLY);
    eventually("the second object is created", || sandbox.work().join("waits").exists());
    runner.kill_all();
    assert_eq!(runner.wait().code, -1);
    assert_eq!(std::fs::read(&state).unwrap(), before);
    sandbox.write("go", "");
    let refused = sandbox.run(&APPLY);
    assert_eq!(refused.code, 8, "{}", refused.stderr);
    let kept = sandbox.path("home/.local/state/plancha/unsent/default/x");
    let kept = kept_states(&kept);
    let [kept] = &*kept else { panic!("one state is kept: {kept:?}") };
    let copy = format!("`cp {} {}`", kept.display(), state.display());
    assert!(refused.stderr.contains(&copy), "{}", refused.stderr);
    assert_eq!(std::fs::read(&state).unwrap(), before);
    std::fs::copy(kept, &state).unwrap();
    let ended = sandbox.run(&APPLY);
    ok(&ended);
    assert!(ended.stdout.contains("1 added, 0 changed, 0 destroyed"), "{}", ended.stdout);
    assert!(!kept.exists(), "the state has it");
}

/// The state has what the ledger would miss, so the advice is to use it, and not to import or delete anything.
#[tokio::test(flavor = "multi_thread")]
async fn state_of_a_killed_apply_of_a_stored_plan_is_named_before_what_it_has_created() {
    let datastore = TestDatastore::hasty(LEASE).await;
    let sandbox = module(&format!("{ONE}{WAITING}"));
    let state = ["--name", "x", "--state-in", "../state", "--state-out", "../state"];
    ok(&sandbox.run_with(
        &datastore.url,
        &["plan", "--run", "p", "--name", "x", "--state-in", "../state"],
    ));
    let apply = [&["apply", "--run", "a"], &state[..]].concat();
    let runner = sandbox.start(Some(&datastore.url), &apply);
    eventually("the second object is created", || sandbox.work().join("waits").exists());
    runner.kill_all();
    runner.wait();
    sandbox.write("go", "");
    let mut refused = None;
    eventually("no other run has the lease", || {
        let tried = refused.insert(sandbox.run_with(&datastore.url, &apply));
        !tried.stderr.contains("the lease of the layer default/x is not granted")
    });
    let refused = refused.unwrap();
    assert_eq!(refused.code, 8, "{}", refused.stderr);
    assert!(refused.stderr.contains("`cp "), "{}", refused.stderr);
}

/// Before the tool has written anything there is nothing to be found.
#[test]
fn apply_that_was_killed_before_it_changed_anything_refuses_nothing() {
    let main = WAITING.replace("terraform_data.a.id", "1");
    let sandbox = module(&main);
    let runner = sandbox.start(None, &APPLY);
    eventually("the object is created", || sandbox.work().join("waits").exists());
    runner.kill_all();
    runner.wait();
    assert!(!sandbox.path("state").exists());
    sandbox.write("go", "");
    ok(&sandbox.run(&APPLY));
}

fn kept_states(dir: &Path) -> Vec<std::path::PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir).into_iter().flatten() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(kept_states(&path));
        } else if path.extension().is_some_and(|extension| extension == "tfstate") {
            found.push(path);
        }
    }
    found
}

/// The directory is removed while the tool works.
#[test]
fn state_that_cannot_be_written_is_kept() {
    for (failing, code, message) in
        [("", 1, "applied, but the state could not be written"), (FAILING, 1, "apply failed")]
    {
        let sandbox = module(&format!(
            "{ONE}{failing}resource \"terraform_data\" \"c\" {{
  provisioner \"local-exec\" {{
    command = \"rm -r ../out\"
  }}
}}
"
        ));
        std::fs::create_dir(sandbox.path("out")).unwrap();
        let args = ["apply", "--no-plan", "--name", "x", "--run", "r", "--state-in", "../in"];
        let args = [&args[..], &["--state-out", "../out/state"]].concat();
        let ended = sandbox.run(&args);
        assert_eq!(ended.code, code, "{}", ended.stderr);
        assert!(ended.stderr.contains(message), "{}", ended.stderr);
        let kept = sandbox.path("home/.local/state/plancha/unsent/default/x/r/0/errored.tfstate");
        assert!(names(&read(&kept)).contains(&"a"));
        let copy = format!("`cp {} {}`", kept.display(), sandbox.path("out/state").display());
        assert!(ended.stderr.contains(&copy), "{}", ended.stderr);
        assert!(sandbox.is_clean());
        std::fs::create_dir(sandbox.path("out")).unwrap();
        let refused = sandbox.run(&args);
        assert_eq!(refused.code, 8, "{}", refused.stderr);
        assert!(refused.stderr.contains(&copy), "{}", refused.stderr);
    }
}

#[test]
fn state_that_another_process_has_written_since_is_not_replaced() {
    let sandbox = module(&format!(
        "{ONE}resource \"terraform_data\" \"c\" {{
  provisioner \"local-exec\" {{
    command = \"cp other.json ../state\"
  }}
}}
"
    ));
    let other = r#"{"version": 4, "serial": 9, "lineage": "other", "resources": []}"#;
    sandbox.write("other.json", other);
    let ended = sandbox.run(&APPLY);
    assert_eq!(ended.code, 1, "{}", ended.stderr);
    assert!(ended.stderr.contains("another process has changed the file"), "{}", ended.stderr);
    let again = sandbox.run(&APPLY);
    for said in [&ended, &again] {
        assert!(said.stderr.contains("do not copy over it"), "{}", said.stderr);
        assert!(!said.stderr.contains("`cp "), "{}", said.stderr);
    }
    assert_eq!(std::fs::read_to_string(sandbox.path("state")).unwrap(), other);
}

/// A plan, and an apply without one, that wait for another apply of the same file work with what that has written.
#[test]
fn apply_that_has_waited_uses_the_state_that_it_finds_then() {
    let sandbox = module(ONE);
    ok(&sandbox.run(&APPLY));
    sandbox.write("main.tf", &format!("{ONE}{WAITING}"));
    let files = ["--state-in", "../state"];
    let plan = ["plan", "--name", "y", "--plan-file", "../plan.bin"];
    ok(&sandbox.run(&[&plan[..], &files].concat()));
    let first = sandbox.start(None, &APPLY);
    eventually("the first apply works", || sandbox.work().join("waits").exists());
    let stored = ["apply", "--plan-file", "../plan.bin", "--name", "y", "--state-out", "../state"];
    let stored = sandbox.start(None, &[&stored[..], &files].concat());
    let other =
        [&["apply", "--no-plan", "--name", "z", "--state-out", "../state"], &files[..]].concat();
    let other = sandbox.start(None, &other);
    for waiting in [&stored, &other] {
        eventually("the next ones wait", || waiting.logged("waiting for it"));
    }
    sandbox.write("go", "");
    ok(&first.wait());
    let stored = stored.wait();
    assert_eq!(stored.code, 9, "{}", stored.stderr);
    let other = other.wait();
    ok(&other);
    assert!(other.stdout.contains("0 added"), "{}", other.stdout);
    assert_eq!(names(&read(&sandbox.path("state"))), ["a", "b"]);
}

/// The tool was killed while it wrote.
#[test]
fn last_whole_version_is_written_if_the_tool_leaves_a_torn_one() {
    let sandbox = Sandbox::new(RUNNER).fake_terraform(
        r#"
for arg in "$@"; do case $arg in -state=*) STATE=${arg#-state=};; esac; done
case "$*" in
  apply*)
    printf '{"version": 4, "serial": 4, "lineage": "l", "resources": []}' > "$STATE"
    sleep 2
    printf '{"version": 4, "serial": 5, "line' > "$STATE"
    kill -9 $$;;
esac
"#,
    );
    sandbox.write("main.tf", "");
    let before = r#"{"version": 4, "serial": 3, "lineage": "l", "resources": []}"#;
    std::fs::write(sandbox.path("state"), before).unwrap();
    let ended = sandbox.run(&APPLY);
    assert_eq!(ended.code, 1, "{}", ended.stderr);
    assert!(
        ended.stderr.contains("the last whole version was written instead"),
        "{}",
        ended.stderr
    );
    assert_eq!(read(&sandbox.path("state"))["serial"], 4);
    let kept = kept_states(&sandbox.path("home/.local/state/plancha/unsent/default/x"));
    assert!(std::fs::read_to_string(&kept[0]).unwrap().ends_with("\"line"), "{kept:?}");
    let refused = sandbox.run(&APPLY);
    assert_eq!(refused.code, 8, "{}", refused.stderr);
}

#[test]
fn what_cannot_be_used_is_refused_before_anything_happens() {
    let sandbox = module(ONE);
    let state = r#"{"version": 4, "serial": 3, "lineage": "l", "resources": []}"#;
    std::fs::write(sandbox.path("torn"), &state[..30]).unwrap();
    std::fs::write(sandbox.path("older"), state).unwrap();
    std::fs::write(sandbox.path("newer"), state.replace('3', "4")).unwrap();
    for (input, output, code, message) in [
        ("../torn", "../torn", 8, "is not a state"),
        ("../no/state", "../out", 8, "does not exist"),
        ("../missing", "../older", 8, "has no state"),
        ("../older", "../newer", 8, "has an older one (serial 3)"),
        ("../older", "../no/state", 8, "its directory does not exist"),
        ("../older", "/proc/state", 8, "no file can be created"),
        ("../older", "", 64, "--state-in needs --state-out"),
        ("", "../older", 64, "--state-out needs --state-in"),
    ] {
        let mut args = vec!["apply", "--no-plan", "--name", "x"];
        for (flag, file) in [("--state-in", input), ("--state-out", output)] {
            if !file.is_empty() {
                args.extend([flag, file]);
            }
        }
        let ended = sandbox.run(&args);
        assert_eq!(ended.code, code, "{input} {output}: {}", ended.stderr);
        assert!(ended.stderr.contains(message), "{input} {output}: {}", ended.stderr);
        assert!(!ended.stdout.contains("terraform_data.a"), "{}", ended.stdout);
    }
    assert!(sandbox.is_clean());
}

#[test]
fn module_with_another_backend_or_a_state_of_its_own_is_refused() {
    let sandbox = module(&format!("terraform {{\n  backend \"inmem\" {{}}\n}}\n{ONE}"));
    let ended = sandbox.run(&APPLY);
    assert_eq!(ended.code, 8, "{}", ended.stderr);
    assert!(ended.stderr.contains("the backend inmem"), "{}", ended.stderr);

    let sandbox = module(ONE);
    ok(&sandbox.run(&["apply", "--no-plan", "--name", "x"]));
    let ended = sandbox.run(&APPLY);
    assert_eq!(ended.code, 8, "{}", ended.stderr);
    assert!(ended.stderr.contains("a state of its own"), "{}", ended.stderr);
    let own = ["--state-in", "terraform.tfstate", "--state-out", "terraform.tfstate"];
    let ended = sandbox.run(&[&["apply", "--no-plan", "--name", "x"][..], &own].concat());
    ok(&ended);
    assert!(ended.stdout.contains("0 added, 0 changed, 0 destroyed"), "{}", ended.stdout);
}

#[test]
fn backend_local_and_other_workspaces_use_the_file() {
    let sandbox = module(&format!(
        "terraform {{\n  backend \"local\" {{\n    path = \"own.tfstate\"\n  }}\n}}\n{ONE}"
    ));
    let mut command = sandbox.command(&APPLY);
    ok(&Ended::from(command.env("TF_WORKSPACE", "dev").output().unwrap()));
    assert_eq!(names(&read(&sandbox.path("state"))), ["a"]);
    let mut command = sandbox.command(&["plan", "--detailed-exitcode", "--state-in", "../state"]);
    ok(&Ended::from(command.env("TF_WORKSPACE", "dev").output().unwrap()));
    assert!(!sandbox.work().join("own.tfstate").exists());
}

/// A mounted Secret has links, and a source that is only read is copied to a directory that is removed.
#[test]
fn mounted_secret_and_code_in_an_archive_are_used() {
    let sandbox = module(ONE);
    let mount = sandbox.path("secret");
    std::fs::create_dir_all(mount.join("..2024")).unwrap();
    std::os::unix::fs::symlink("..2024", mount.join("..data")).unwrap();
    std::os::unix::fs::symlink("..data/tfstate", mount.join("tfstate")).unwrap();
    let state = r#"{"version": 4, "serial": 3, "lineage": "l", "resources": []}"#;
    std::fs::write(mount.join("..2024/tfstate"), state).unwrap();
    let tar = std::fs::File::create(sandbox.path("code.tar")).unwrap();
    tar::Builder::new(tar).append_dir_all("", sandbox.work()).unwrap();
    let files = ["--state-in", "../secret/tfstate", "--state-out", "../out"];
    let ended = sandbox.run(&[&["apply", "../code.tar", "--no-plan"][..], &files].concat());
    ok(&ended);
    let written = read(&sandbox.path("out"));
    assert_eq!(written["lineage"], "l");
    assert!(written["serial"].as_u64() > Some(3), "{written}");
    assert_eq!(std::fs::read_to_string(mount.join("tfstate")).unwrap(), state);
}
