//! The output of the tool while it runs, and standard output and standard error that take nothing more.

use std::fs::OpenOptions;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use support::{Ended, Sandbox, Started, TestDatastore, eventually};

use crate::stored_run::StoredRun;
use crate::{RUNNER, json};

#[tokio::test(flavor = "multi_thread")]
async fn full_stdout_fails_printing_commands_but_no_run() {
    let full = || OpenOptions::new().write(true).open("/dev/full").unwrap();
    let datastore = TestDatastore::memory().await;
    let sandbox = Sandbox::new(RUNNER).hello().fake_terraform("");
    let mut plan = sandbox.command(&["plan", "--run", "p", "--name", "x"]);
    plan.env("PLANCHA_DATASTORE_URL", datastore.url.as_str()).stdout(full());
    let ended = Ended::from(plan.output().unwrap());
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    let log = StoredRun::new(&datastore, "default", "x", "p").log(0).await;
    assert!(log.contains("plan is done"), "{log}");

    for args in [["version"].as_slice(), &["resolve", "terraform@1.9.8"]] {
        let ended = Ended::from(sandbox.command(args).stdout(full()).output().unwrap());
        assert_ne!(ended.code, 0, "{args:?}");
        for text in ["stdout cannot be written", "next: check where stdout goes: free some space"] {
            assert!(ended.stderr.contains(text), "{args:?}: {}", ended.stderr);
        }
    }
}

/// Only the output is lost: not the apply, its files or its exit code.
#[tokio::test(flavor = "multi_thread")]
async fn unwritable_stderr_does_not_change_a_run() {
    let full = || OpenOptions::new().write(true).open("/dev/full").unwrap();
    let datastore = TestDatastore::memory().await;
    for format in ["text", "json"] {
        let sandbox = Sandbox::new(RUNNER).hello();
        let run = |args: &[&str]| {
            let mut command = sandbox.command(args);
            command.env("PLANCHA_DATASTORE_URL", datastore.url.as_str());
            command.env("PLANCHA_LOG_FORMAT", format).stdout(full()).stderr(full());
            Ended::from(command.output().unwrap()).code
        };
        assert_eq!(run(&["plan", "--run", "p", "--name", format, "--detailed-exitcode"]), 2);
        let apply = ["apply", "--run", "a", "--name", format, "--plan", "p"];
        assert_eq!(run(&[apply.as_slice(), &["--result", "r.json"]].concat()), 0);
        let stored = StoredRun::new(&datastore, "default", format, "a");
        assert!(stored.log(0).await.contains("Apply complete!"));
        for report in [stored.artifact("run.json", 0).await, sandbox.read("r.json").into()] {
            assert_eq!(json(&report)["outcome"], "applied");
        }
        assert_eq!(run(&["plan", "--revision", "no"]), 64);
        assert!(sandbox.is_clean());
        for args in
            [["version"].as_slice(), &["resolve", "terraform@1.9.8"], &["tools", "list", "--json"]]
        {
            assert_eq!(run(args), 1, "{args:?}");
        }
        assert_eq!(run(&["--help"]), 1);
    }
}

/// Files of the private directory of a run, and the directory itself as `.`, with their modes.
fn modes(tmp: &Path) -> Vec<(String, u32)> {
    let mut dirs = std::fs::read_dir(tmp).unwrap().map(|entry| entry.unwrap().path());
    let (Some(dir), None) = (dirs.next(), dirs.next()) else { panic!("not one directory") };
    let mode = |path: &Path| path.symlink_metadata().unwrap().permissions().mode() & 0o777;
    let mut modes = vec![(".".to_owned(), mode(&dir))];
    for entry in std::fs::read_dir(&dir).unwrap() {
        let entry = entry.unwrap();
        if entry.file_type().unwrap().is_file() {
            modes.push((entry.file_name().into_string().unwrap(), mode(&entry.path())));
        }
    }
    modes
}

/// Output may contain secrets: only the user may read it, whatever the umask.
#[test]
fn output_is_shown_while_the_tool_runs_and_its_files_are_private() {
    for (step, command) in
        [("init", "plan"), ("plan", "plan"), ("apply", "apply --no-plan --name x")]
    {
        let sandbox = Sandbox::new(RUNNER).hello();
        let wait = sandbox.path("wait");
        let sandbox = sandbox.fake_terraform(&format!(
            "if [ $STEP = {step} ]; then echo \"$STEP works\"; echo \"$STEP warns\" >&2
               while [ -e {} ]; do sleep 0.05; done; fi",
            wait.display()
        ));
        std::fs::write(&wait, "").unwrap();
        let line = format!("umask 0; exec {RUNNER} {command}");
        let runner = Started::spawn(sandbox.program(Path::new("/bin/sh"), &["-c", &line]));
        // The tool ends only after `wait` is removed.
        for text in ["works", "warns"] {
            eventually("the output is shown", || runner.said(&format!("{step} {text}")));
        }
        let modes = modes(&sandbox.path("tmp"));
        for name in ["run.log", "run.output"] {
            assert!(modes.iter().any(|(found, _)| found == name), "{step}: {modes:?}");
        }
        for (name, mode) in &modes {
            let expected = if name == "." { 0o700 } else { 0o600 };
            assert_eq!(*mode, expected, "{step}: {name} in {modes:?}");
        }
        std::fs::remove_file(&wait).unwrap();
        let ended = runner.wait();
        assert_eq!(ended.code, 0, "{}", ended.stderr);
    }
}
