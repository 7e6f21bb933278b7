//! A state that the backend did not accept is kept after the run.

mod http_backend;
mod in_place;
mod killed_run;
mod replaced;
mod rescue;
mod s3_server;

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use support::{Ended, Sandbox, TestDatastore, eventually};

use crate::RUNNER;
use crate::source::checkout::{Repository, git, repository};

/// A tool whose apply ends with the script `end`, after it has left a state in `dir`.
fn refusing(dir: &str, end: &str) -> (Sandbox, String) {
    let sandbox = Sandbox::new(RUNNER);
    let started = sandbox.path("started");
    let sandbox = sandbox.fake_terraform(&format!(
        "if [ $STEP = init ]; then mkdir -p .terraform; \
         echo '{{\"backend\": {{\"type\": \"http\"}}}}' > .terraform/terraform.tfstate; fi; \
         if [ $STEP = apply ]; then mkdir -p {dir}; echo '\"secret\"' > {dir}/errored.tfstate; \
         : > {}; {end}; fi",
        started.display()
    ));
    let Repository { dir, .. } = repository(&sandbox);
    (sandbox, format!("file://{}", dir.display()))
}

fn apply<'a>(url: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    let args = ["apply", "--no-plan", url, "--path", "live/vpc", "--name", "x", "--run", "r"];
    [&args, more].concat()
}

fn unsent(sandbox: &Sandbox) -> PathBuf {
    sandbox.path("home/.local/state/plancha/unsent/default/x/r/0")
}

/// Replaces the copy of a state by a link to its original, as earlier versions kept it.
fn link_as_before(sandbox: &Sandbox, original: &Path) -> PathBuf {
    let link = unsent(sandbox).join("errored.tfstate");
    std::fs::remove_file(&link).unwrap();
    std::os::unix::fs::symlink(original, &link).unwrap();
    link
}

fn kept(ended: &Ended, file: &Path) {
    assert_eq!(std::fs::read_to_string(file).unwrap(), "\"secret\"\n", "{}", ended.stderr);
    let mode = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(file), mode(file.parent().unwrap())), (0o600, 0o700));
    let push = format!("`TF_WORKSPACE=default terraform state push {}`", file.display());
    for text in
        ["the backend did not accept the state", "`TF_WORKSPACE=default terraform init`", &push]
    {
        assert!(ended.stderr.contains(text), "{text}: {}", ended.stderr);
    }
}

/// Terragrunt can work in a directory that is neither the run's nor below the module.
#[test]
fn state_in_another_download_directory_is_found() {
    for (variable, absolute) in [("TG_DOWNLOAD_DIR", true), ("TERRAGRUNT_DOWNLOAD", false)] {
        let end = "mkdir -p \"$DOWNLOADS/a/b\"; mv errored.tfstate \"$DOWNLOADS/a/b\"; exit 1";
        let (sandbox, url) = refusing(".", end);
        let downloads = sandbox.path("downloads");
        let value = if absolute { downloads.clone() } else { "../../../downloads".into() };
        let run = |source: &str, more: &[&str]| {
            let mut command = sandbox.command(&apply(source, more));
            command.env(variable, &value).env("DOWNLOADS", &downloads);
            Ended::from(command.output().unwrap())
        };
        let ended = run(&url, &["--work-dir", "../kept"]);
        assert_eq!(ended.code, 1, "{}", ended.stderr);
        let text = ["the backend did not accept the state", "state push"];
        assert!(text.iter().all(|text| ended.stderr.contains(text)), "{}", ended.stderr);
        assert_eq!(
            std::fs::read(unsent(&sandbox).join("errored.tfstate")).unwrap(),
            b"\"secret\"\n"
        );
    }
}

#[test]
fn state_refused_by_the_backend_is_kept() {
    for dir in [".", ".terragrunt-cache/a/b"] {
        let (sandbox, url) = refusing(dir, "echo 'Error: x' >&2; exit 1");
        let ended = sandbox.run(&apply(&url, &[]));
        assert_eq!(ended.code, 1, "{}", ended.stderr);
        kept(&ended, &unsent(&sandbox).join("errored.tfstate"));
        assert!(sandbox.is_clean());
        // A plan warns, and the next apply, of whichever run, is refused until the state is pushed.
        let plan = sandbox.run(&["plan", &url, "--path", "live/vpc", "--name", "x"]);
        assert_eq!(plan.code, 0, "{}", plan.stderr);
        assert!(plan.stderr.contains("an apply is refused"), "{}", plan.stderr);
        let other = ["apply", "--no-plan", &url, "--path", "live/vpc", "--name", "x", "--run", "s"];
        let file = unsent(&sandbox).join("errored.tfstate");
        for args in [&apply(&url, &[])[..], &other] {
            let refused = sandbox.run(args);
            assert_eq!(refused.code, 8, "{}", refused.stderr);
            let push = format!("`TF_WORKSPACE=default terraform state push {}`", file.display());
            assert!(refused.stderr.contains(&push), "{}", refused.stderr);
        }
        let applies = sandbox.calls().iter().filter(|call| call.starts_with("apply")).count();
        assert_eq!(applies, 1);
        // Another layer is applied, and this one once the file is removed.
        let layer = ["apply", "--no-plan", &url, "--path", "live/vpc", "--name", "y"];
        assert_eq!(sandbox.run(&layer).code, 1);
        std::fs::remove_file(file).unwrap();
        let ended = sandbox.run(&apply(&url, &[]));
        kept(&ended, &unsent(&sandbox).join("errored.tfstate"));
    }
}

#[test]
fn without_a_home_the_unsaved_state_stays_in_the_scratch_directory() {
    let (sandbox, url) = refusing(".", "exit 1");
    std::fs::write(sandbox.path("file"), "").unwrap();
    let mut command = sandbox.command(&apply(&url, &[]));
    let ended = command.env("XDG_STATE_HOME", sandbox.path("file")).output().unwrap().into();
    let scratch = std::fs::read_dir(sandbox.path("tmp")).unwrap().next().unwrap().unwrap().path();
    kept(&ended, &scratch.join("unsent/errored.tfstate"));
    assert_eq!(
        std::fs::read_dir(&scratch).unwrap().count(),
        2,
        "only it and the layer's name stay"
    );
    let refused = sandbox.run(&apply(&url, &[]));
    assert_eq!(refused.code, 8, "{}", refused.stderr);
    let file = scratch.join("unsent/errored.tfstate");
    assert!(refused.stderr.contains(&*file.to_string_lossy()), "{}", refused.stderr);
}

#[test]
fn directory_of_kept_states_that_cannot_be_read_refuses_an_apply() {
    let (sandbox, url) = refusing(".", "exit 1");
    assert_eq!(sandbox.run(&apply(&url, &[])).code, 1);
    // Of the attempt, the run, and the layer. To root, only a link to itself cannot be read.
    for dir in unsent(&sandbox).ancestors().take(3) {
        std::fs::remove_dir_all(dir).unwrap();
        std::os::unix::fs::symlink(dir, dir).unwrap();
        let refused = sandbox.run(&apply(&url, &[]));
        assert_eq!(refused.code, 8, "{}", refused.stderr);
        assert!(refused.stderr.contains(&*dir.to_string_lossy()), "{}", refused.stderr);
        std::fs::remove_file(dir).unwrap();
        std::fs::create_dir(dir).unwrap();
    }
    let layer = unsent(&sandbox).ancestors().nth(2).unwrap().to_owned();
    std::fs::remove_dir(&layer).unwrap();
    std::os::unix::fs::symlink(&layer, &layer).unwrap();
    let ended = sandbox.run(&["plan", &url, "--path", "live/vpc", "--name", "x"]);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    let expected =
        "cannot find out whether an earlier apply of this layer has left a state or a record: ";
    assert!(ended.stderr.contains(expected), "{}", ended.stderr);
    assert!(ended.stderr.contains(&*layer.to_string_lossy()), "{}", ended.stderr);
}

#[test]
fn unsaved_state_after_a_signal_is_kept() {
    let (sandbox, url) = refusing(".", "trap 'exit 1' INT; while :; do sleep 0.05; done");
    let runner = sandbox.start(None, &apply(&url, &[]));
    eventually("the apply has started", || sandbox.path("started").exists());
    runner.signal("TERM");
    let ended = runner.wait();
    assert_eq!(ended.code, 143, "{}", ended.stderr);
    kept(&ended, &unsent(&sandbox).join("errored.tfstate"));
}

#[tokio::test(flavor = "multi_thread")]
async fn unsaved_state_is_uploaded_with_unsent_files_and_stays() {
    let (sandbox, url) = refusing(".", "exit 1");
    let datastore = TestDatastore::memory().await;
    let lost = support::Fault { method: "PUT", part: "", status: 403, times: usize::MAX };
    let sick = support::FaultyDatastore::before(&datastore.url, vec![lost]).await;
    let ended = sandbox.run_with(&sick.url, &apply(&url, &["--grace", "3s"]));
    kept(&ended, &unsent(&sandbox).join("errored.tfstate"));
    assert!(unsent(&sandbox).join("attempt.json").exists(), "{}", ended.stderr);
    let dir = unsent(&sandbox);
    sick.set_faults(Vec::new());
    let sent = sandbox.run_with(&sick.url, &["upload", dir.to_str().unwrap()]);
    assert_eq!(sent.code, 0, "{}", sent.stderr);
    assert!(sent.stderr.contains("it also holds errored.tfstate"), "{}", sent.stderr);
    let stored = crate::stored_run::StoredRun::new(&datastore, "default", "x", "r");
    assert_eq!(stored.artifact("errored.tfstate", 0).await, b"\"secret\"\n");
    assert!(dir.join("errored.tfstate").exists());
}

#[test]
fn kept_work_directory_with_an_unsaved_state_is_refused() {
    let (sandbox, url) = refusing(".", "exit 1");
    let ended = sandbox.run(&apply(&url, &["--work-dir", "kept"]));
    let file = sandbox.work().join("kept/live/vpc/errored.tfstate");
    // The paths are absolute: the commands run in the directory of the module.
    let push = format!("`TF_WORKSPACE=default terraform state push {}` in /", file.display());
    assert!(file.exists() && ended.stderr.contains(&push), "{push}: {}", ended.stderr);
    let calls = sandbox.calls().len();
    let plan = ["plan", &url, "--path", "live/vpc", "--work-dir", "kept"];
    for args in [&plan[..], &apply(&url, &["--work-dir", "kept"])] {
        let ended = sandbox.run(args);
        assert_eq!(ended.code, 8, "{}", ended.stderr);
        let push = format!("terraform state push {}", file.display());
        assert!(ended.stderr.contains(&push), "{}", ended.stderr);
    }
    assert_eq!(sandbox.calls().len(), calls, "the tool is not started");
    // Without the directory, or with another one, an apply is refused as well.
    let copy = unsent(&sandbox).join("errored.tfstate");
    for is_link in [false, true] {
        if is_link {
            link_as_before(&sandbox, &file);
        }
        for more in [&[][..], &["--work-dir", "other"]] {
            let ended = sandbox.run(&apply(&url, more));
            assert_eq!(ended.code, 8, "{}", ended.stderr);
            let pushed = if is_link { &file } else { &copy };
            let push = format!("terraform state push {}`", pushed.display());
            assert!(ended.stderr.contains(&push), "{}", ended.stderr);
        }
    }
    std::fs::remove_file(file).unwrap();
    assert_eq!(sandbox.run(&plan).code, 0);
    let ended = sandbox.run(&apply(&url, &["--work-dir", "other"]));
    assert_eq!(ended.code, 1, "it is applied: {}", ended.stderr);
}

#[test]
fn apply_is_refused_while_the_directory_that_a_link_leads_to_is_missing() {
    let (sandbox, url) = refusing(".", "exit 1");
    assert_eq!(sandbox.run(&apply(&url, &["--work-dir", "kept"])).code, 1);
    let [kept, moved] = ["kept", "moved"].map(|name| sandbox.work().join(name));
    let file = kept.join("live/vpc/errored.tfstate");
    let link = link_as_before(&sandbox, &file);
    std::fs::rename(&kept, &moved).unwrap();
    // An empty directory is a place where nothing is mounted.
    for is_empty in [false, true] {
        if is_empty {
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        }
        let refused = sandbox.run(&apply(&url, &[]));
        assert_eq!(refused.code, 8, "{}", refused.stderr);
        let remove = format!("if it was pushed, remove {}", link.display());
        for text in [&*file.to_string_lossy(), "move it back", &remove] {
            assert!(refused.stderr.contains(text), "{text}: {}", refused.stderr);
        }
    }
    let plan = sandbox.run(&["plan", &url, "--path", "live/vpc", "--name", "x"]);
    assert_eq!(plan.code, 0, "{}", plan.stderr);
    assert!(plan.stderr.contains("an apply is refused"), "{}", plan.stderr);
    std::fs::remove_file(link).unwrap();
    assert_eq!(sandbox.run(&apply(&url, &[])).code, 1, "it is applied");
}

#[test]
fn in_place_no_apply_replaces_an_unsaved_state() {
    for dir in [".", ".terragrunt-cache/a/b"] {
        let (sandbox, _) = refusing(dir, "exit 1");
        sandbox.write("main.tf", "");
        let ended = sandbox.run(&["apply", "--no-plan"]);
        assert_eq!(ended.code, 1, "{}", ended.stderr);
        let file = sandbox.work().join(dir).join("errored.tfstate");
        assert!(file.exists());
        let planned = sandbox.run(&["plan", "--plan-file", "p"]);
        assert_eq!(planned.code, 0, "{}", planned.stderr);
        assert!(planned.stderr.contains("an apply is refused"), "{}", planned.stderr);
        for args in [&["apply", "--no-plan"][..], &["apply", "--plan-file", "p"]] {
            let ended = sandbox.run(args);
            assert_eq!(ended.code, 8, "{}", ended.stderr);
            let push = "`TF_WORKSPACE=default terraform state push ";
            assert!(ended.stderr.contains(push), "{}", ended.stderr);
        }
        let applies = sandbox.calls().iter().filter(|call| call.starts_with("apply")).count();
        assert_eq!(applies, 1);
    }
}

#[test]
fn unsaved_state_in_the_commit_is_refused_and_must_be_removed_there() {
    let sandbox = Sandbox::new(RUNNER).fake_terraform("");
    let Repository { dir, .. } = repository(&sandbox);
    std::fs::write(dir.join("live/vpc/errored.tfstate"), "{}").unwrap();
    git(&dir, &["add", "--force", "."]);
    git(&dir, &["commit", "--quiet", "-m", "state"]);
    let url = format!("file://{}", dir.display());
    for more in [&[][..], &["--work-dir", "kept"]] {
        let plan = [&["plan", &url, "--path", "live/vpc", "--name", "x"], more].concat();
        for args in [plan, apply(&url, more)] {
            let ended = sandbox.run(&args);
            assert_eq!(ended.code, 8, "{}", ended.stderr);
            assert!(ended.stderr.contains("part of the commit"), "{}", ended.stderr);
            assert!(ended.stderr.contains("`git rm`"), "{}", ended.stderr);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_empty_unsaved_state_is_not_named_as_the_record() {
    let (sandbox, url) = refusing(".", ": > errored.tfstate; exit 1");
    let datastore = TestDatastore::memory().await;
    let ended = sandbox.run_with(&datastore.url, &apply(&url, &[]));
    assert_eq!(ended.code, 1, "{}", ended.stderr);
    for text in ["is empty or incomplete", "/errored.tfstate.output into a file STATE"] {
        assert!(ended.stderr.contains(text), "{text}: {}", ended.stderr);
    }
    let file = unsent(&sandbox).join("errored.tfstate");
    assert!(!ended.stderr.contains(&format!("state push {}", file.display())), "{}", ended.stderr);
    let refused = sandbox.run_with(&datastore.url, &apply(&url, &[]));
    assert_eq!(refused.code, 8, "{}", refused.stderr);
    assert!(refused.stderr.contains("/errored.tfstate.output into a"), "{}", refused.stderr);
}

#[tokio::test(flavor = "multi_thread")]
async fn upload_follows_the_link_to_a_kept_state() {
    let (sandbox, url) = refusing(".", "exit 1");
    let datastore = TestDatastore::memory().await;
    assert_eq!(sandbox.run(&apply(&url, &["--work-dir", "kept"])).code, 1);
    let file = sandbox.work().join("kept/live/vpc/errored.tfstate");
    let dir = unsent(&sandbox);
    let upload = || sandbox.run_with(&datastore.url, &["upload", dir.to_str().unwrap()]);
    let copy = dir.join("errored.tfstate");
    for is_link in [false, true] {
        if is_link {
            link_as_before(&sandbox, &file);
        }
        let ended = upload();
        assert_eq!(ended.code, 8, "{}", ended.stderr);
        let pushed = if is_link { &file } else { &copy };
        let push = format!("`TF_WORKSPACE=default terraform state push {}`", pushed.display());
        assert!(ended.stderr.contains(&push), "{push}: {}", ended.stderr);
        assert!(!ended.stderr.contains("empty or incomplete"), "{}", ended.stderr);
    }
    std::fs::rename(sandbox.work().join("kept"), sandbox.work().join("moved")).unwrap();
    let ended = upload();
    assert_eq!(ended.code, 8, "{}", ended.stderr);
    assert!(ended.stderr.contains("its directory is missing or empty"), "{}", ended.stderr);
}

#[test]
fn suggested_push_names_workspace_and_directory() {
    let (sandbox, url) = refusing(".", "exit 1");
    for run in ["r", "s"] {
        let args = ["apply", "--no-plan", &url, "--path", "live/vpc", "--run", run];
        let mut command = sandbox.command(&args);
        let ended = Ended::from(command.env("TF_WORKSPACE", "prod").output().unwrap());
        assert_eq!(ended.code, if run == "r" { 1 } else { 8 }, "{}", ended.stderr);
        for text in [
            "`TF_WORKSPACE=prod terraform init`",
            "`TF_WORKSPACE=prod terraform state push /",
            "in the directory live/vpc of a checkout of the same commit",
        ] {
            assert!(ended.stderr.contains(text), "{text}: {}", ended.stderr);
        }
    }
}

/// The variables may say which backend it is, and their values may be secret.
#[test]
fn suggested_push_names_the_variables_of_the_backend() {
    let (sandbox, url) = refusing(".", "exit 1");
    for code in [1, 8] {
        let mut command = sandbox.command(&apply(&url, &[]));
        command.env("TF_HTTP_ADDRESS", "http://127.0.0.1:1/hunter2");
        command.env("TF_CLI_ARGS_init", "-backend-config=password=hunter2");
        let ended = Ended::from(command.output().unwrap());
        assert_eq!(ended.code, code, "{}", ended.stderr);
        let says = "(with TF_CLI_ARGS_init, TF_HTTP_ADDRESS set as in that apply)";
        assert!(ended.stderr.contains(says), "{}", ended.stderr);
    }
    let record = unsent(&sandbox).join("errored.tfstate.json");
    assert!(!std::fs::read_to_string(record).unwrap().contains("hunter2"));
}

/// Runs the runner in a workspace; `None`: without `TF_WORKSPACE`.
fn run_in(sandbox: &Sandbox, workspace: Option<&str>, args: &[&str]) -> Ended {
    let mut command = sandbox.command(args);
    if let Some(name) = workspace {
        command.env("TF_WORKSPACE", name);
    }
    command.output().unwrap().into()
}

#[test]
fn push_of_a_kept_state_names_the_workspace_of_its_apply() {
    // The name of the layer is that of several workspaces.
    for (applied, other, push) in [
        (Some("prod"), Some("dev"), "`TF_WORKSPACE=prod terraform state push "),
        (Some("prod"), None, "`TF_WORKSPACE=prod terraform state push "),
        (None, Some("dev"), "`TF_WORKSPACE=default terraform state push "),
        (None, None, "`TF_WORKSPACE=default terraform state push "),
    ] {
        for more in [&[][..], &["--work-dir", "kept"]] {
            let (sandbox, url) = refusing(".", "exit 1");
            assert_eq!(run_in(&sandbox, applied, &apply(&url, more)).code, 1);
            let ended = run_in(&sandbox, other, &apply(&url, &[]));
            assert_eq!(ended.code, 8, "{}", ended.stderr);
            assert!(ended.stderr.contains(push), "{push}: {}", ended.stderr);
            assert!(!ended.stderr.contains("with TF_WORKSPACE set"), "{}", ended.stderr);
            let ended = run_in(&sandbox, other, &apply(&url, more));
            assert!(ended.stderr.contains(push), "{push}: {}", ended.stderr);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn upload_names_workspace_and_directory_of_a_kept_state() {
    let (sandbox, url) = refusing(".", "exit 1");
    let datastore = TestDatastore::memory().await;
    for (workspace, push) in [
        (Some("prod"), "`TF_WORKSPACE=prod terraform state push "),
        (None, "`TF_WORKSPACE=default terraform state push "),
    ] {
        let dir = unsent(&sandbox);
        std::fs::remove_dir_all(&dir).unwrap_or_default();
        assert_eq!(run_in(&sandbox, workspace, &apply(&url, &[])).code, 1);
        let ended = sandbox.run_with(&datastore.url, &["upload", dir.to_str().unwrap()]);
        assert_eq!(ended.code, 8, "{}", ended.stderr);
        for text in [push, "in the directory live/vpc of a checkout of the same commit"] {
            assert!(ended.stderr.contains(text), "{text}: {}", ended.stderr);
        }
    }
}

#[test]
fn without_a_record_the_workspace_of_a_kept_state_is_unknown() {
    let (sandbox, url) = refusing(".", "exit 1");
    assert_eq!(sandbox.run(&apply(&url, &[])).code, 1);
    let record = unsent(&sandbox).join("errored.tfstate.json");
    let mode = record.metadata().unwrap().permissions().mode() & 0o777;
    assert_eq!(mode, 0o600);
    let text = std::fs::read_to_string(&record).unwrap();
    let (head, digest) = text.split_once("\"sha256\": \"").unwrap();
    let of_another_state = format!("{head}\"sha256\": \"{}{}", "0".repeat(64), &digest[64..]);
    for text in [of_another_state, text.replace("\"version\": 1", "\"version\": 2"), "{".into()] {
        std::fs::write(&record, text).unwrap();
        let ended = sandbox.run(&apply(&url, &[]));
        assert_eq!(ended.code, 8, "{}", ended.stderr);
        let expected = "with TF_WORKSPACE set to the workspace of that apply";
        assert!(ended.stderr.contains(expected), "{}", ended.stderr);
    }
    // In place, a user of the tool may have left another state since, of any workspace.
    let (sandbox, _) = refusing(".", "exit 1");
    sandbox.write("main.tf", "");
    assert_eq!(run_in(&sandbox, Some("prod"), &["apply", "--no-plan"]).code, 1);
    sandbox.write("errored.tfstate", "{}");
    let ended = sandbox.run(&["apply", "--no-plan"]);
    assert_eq!(ended.code, 8, "{}", ended.stderr);
    let expected = "with TF_WORKSPACE set to the workspace of that apply";
    assert!(ended.stderr.contains(expected), "{}", ended.stderr);
}

#[test]
fn whole_states_beside_a_broken_one_are_pushed_as_well() {
    let (sandbox, url) = refusing(".terragrunt-cache/a/b", ": > errored.tfstate; exit 1");
    let ended = sandbox.run(&apply(&url, &[]));
    assert_eq!(ended.code, 1, "{}", ended.stderr);
    let refused = sandbox.run(&apply(&url, &[]));
    assert_eq!(refused.code, 8, "{}", refused.stderr);
    let dir = unsent(&sandbox);
    let [whole, broken] = ["errored.tfstate", "errored-2.tfstate"].map(|name| dir.join(name));
    let is_whole = |file: &Path| file.metadata().unwrap().len() > 0;
    let (whole, broken) = if is_whole(&whole) { (whole, broken) } else { (broken, whole) };
    for said in [ended.stderr, refused.stderr] {
        let push = format!("`TF_WORKSPACE=default terraform state push {}`", whole.display());
        assert!(said.contains(&push), "{push}: {said}");
        assert!(said.contains("`TF_WORKSPACE=default terraform state push STATE`"), "{said}");
        assert!(said.contains(&format!("{} is empty or incomplete", broken.display())), "{said}");
        assert!(!said.contains(&format!("state push {}", broken.display())), "{said}");
    }
}

/// The log and the screen have the state with masked URLs, which is another state.
#[tokio::test(flavor = "multi_thread")]
async fn printed_state_is_copied_from_the_output_that_is_not_masked() {
    let state = r#"{"url": "https://user:pass@host/"}"#;
    let (sandbox, url) = refusing(".", &format!(": > errored.tfstate; echo '{state}'; exit 1"));
    let datastore = TestDatastore::memory().await;
    let ended = sandbox.run_with(&datastore.url, &apply(&url, &[]));
    assert!(ended.stdout.contains("https://***@host/"), "{}", ended.stdout);
    let stored = crate::stored_run::StoredRun::new(&datastore, "default", "x", "r");
    assert!(stored.log(0).await.contains("https://***@host/"));
    let output = unsent(&sandbox).join("errored.tfstate.output");
    assert!(std::fs::read_to_string(&output).unwrap().contains(state));
    let expected = format!("copy that JSON document from {} into a file STATE.", output.display());
    assert!(ended.stderr.contains(&expected), "{}", ended.stderr);
    let refused = sandbox.run_with(&datastore.url, &apply(&url, &[]));
    assert!(refused.stderr.contains(&expected), "{}", refused.stderr);
    std::fs::remove_file(output).unwrap();
    let refused = sandbox.run_with(&datastore.url, &apply(&url, &[]));
    let expected = "copy that JSON document from the stdout of that run or run.log of that attempt into a file \
                    STATE, but only if it contains no `***`. Then in ";
    assert!(refused.stderr.contains(expected), "{}", refused.stderr);
}
