//! States that killed runs leave, and their tools that still work.

use support::{Started, eventually};

use super::{apply, refusing, run_in};

#[test]
fn unsaved_state_of_a_killed_run_refuses_the_next_apply_of_its_layer() {
    let (sandbox, url) = refusing(".", "kill -9 $PPID; exit 1");
    assert_eq!(sandbox.run(&apply(&url, &[])).code, -1);
    // The tool may hold the lock of its output a moment longer.
    let mut refused = None;
    eventually("the apply is refused", || {
        let ended = sandbox.run(&apply(&url, &[]));
        let is_refused = ended.code == 8;
        refused = Some(ended);
        is_refused
    });
    // The directory for temporary files may be emptied at any time.
    let said = refused.unwrap().stderr;
    let copy = sandbox.path("home/.local/state/plancha/unsent/default/x/plancha-000000/0");
    let copy = copy.join("errored.tfstate");
    assert!(said.contains(&format!("state push {}`", copy.display())), "{said}");
    assert_eq!(std::fs::read_to_string(&copy).unwrap(), "\"secret\"\n");
    let left = std::fs::read_dir(sandbox.path("tmp")).unwrap();
    let left = left.map(|entry| entry.unwrap().path().join("source/live/vpc/errored.tfstate"));
    assert!(!left.into_iter().any(|file| file.exists()), "it is moved");
    std::fs::remove_file(copy).unwrap();
    assert_eq!(sandbox.run(&apply(&url, &[])).code, -1, "it is applied");
}

/// A state that the tool of a killed run has yet to write.
#[test]
fn apply_waits_for_the_tool_of_a_killed_run() {
    for tmp in ["tmp", "another-tmp"] {
        waits_for_the_tool(tmp);
    }
}

/// `tmp` is the directory for temporary files of the second run.
fn waits_for_the_tool(tmp: &str) {
    let end = "trap '' INT; kill -9 $PPID; while [ -e $WAIT ]; do sleep 0.05; done; exit 1";
    let (sandbox, url) = refusing(".", end);
    let wait = sandbox.path("wait");
    std::fs::write(&wait, "").unwrap();
    let start = |run: &str, tmp: &str| {
        let args = ["apply", "--no-plan", &url, "--path", "live/vpc", "--name", "x", "--run", run];
        let mut command = sandbox.command(&args);
        std::fs::create_dir_all(sandbox.path(tmp)).unwrap();
        command.env("WAIT", &wait).env("TMPDIR", sandbox.path(tmp));
        Started::spawn(command)
    };
    assert_eq!(start("r", "tmp").wait().code, -1);
    let second = start("s", tmp);
    let says = "the tool of a killed run still works";
    eventually("the second run waits", || second.logged(says));
    std::thread::sleep(std::time::Duration::from_millis(500));
    std::fs::remove_file(&wait).unwrap();
    let second = second.wait();
    assert_eq!(second.code, 8, "{}", second.stderr);
    assert_eq!(sandbox.calls().iter().filter(|call| call.starts_with("apply")).count(), 1);
}

#[test]
fn push_of_a_state_of_a_killed_run_names_its_workspace() {
    let (sandbox, url) = refusing(".", "kill -9 $PPID; exit 1");
    assert_eq!(run_in(&sandbox, Some("prod"), &apply(&url, &[])).code, -1);
    let mut refused = None;
    eventually("the apply is refused", || {
        let ended = run_in(&sandbox, Some("dev"), &apply(&url, &[]));
        let is_refused = ended.code == 8;
        refused = Some(ended);
        is_refused
    });
    let said = refused.unwrap().stderr;
    assert!(said.contains("`TF_WORKSPACE=prod terraform state push "), "{said}");
}

/// The code may be on a disk that is not mounted, and a later run fills its directory.
#[test]
fn code_of_a_killed_apply_that_is_out_of_reach_refuses_the_next_apply() {
    let (sandbox, url) = refusing(".", "kill -9 $PPID; exit 1");
    let in_kept = ["--work-dir", "kept"];
    assert_eq!(sandbox.run(&apply(&url, &in_kept)).code, -1);
    let [kept, moved] = ["kept", "moved"].map(|name| sandbox.work().join(name));
    let scratch = sandbox.path("tmp/plancha-000000");
    let age = || {
        let old = std::time::SystemTime::now() - std::time::Duration::from_hours(2);
        std::fs::File::open(&scratch).unwrap().set_modified(old).unwrap();
    };
    // The tool may hold the lock of its output a moment longer.
    let applies = || sandbox.run(&apply(&url, &[])).code;
    eventually("the tool has ended", || applies() == 8);
    let home = sandbox.path("home/.local/state/plancha/unsent/default/x");
    std::fs::remove_dir_all(&home).unwrap();
    std::fs::rename(&kept, &moved).unwrap();
    age();
    let other = sandbox.run(&["plan", &url, "--path", "live/vpc", "--name", "y"]);
    let says = format!("may have left a state in {}", kept.join("live/vpc").display());
    assert!(other.stderr.contains(&says), "{}", other.stderr);
    assert!(scratch.exists(), "{}", other.stderr);
    let plan = ["plan", &url, "--path", "live/vpc", "--name", "x", "--work-dir", "kept"];
    assert_eq!(sandbox.run(&plan).code, 0);
    assert!(kept.join("live/vpc/main.tf").exists());
    age();
    let refused = sandbox.run(&apply(&url, &[]));
    assert_eq!(refused.code, 8, "{}", refused.stderr);
    for says in [&says, &format!("remove {}", scratch.display())] {
        assert!(refused.stderr.contains(says), "{says}: {}", refused.stderr);
    }
    // The directory is back.
    std::fs::remove_dir_all(&kept).unwrap();
    std::fs::rename(&moved, &kept).unwrap();
    let refused = sandbox.run(&apply(&url, &[]));
    assert_eq!(refused.code, 8, "{}", refused.stderr);
    assert!(refused.stderr.contains("terraform state push "), "{}", refused.stderr);
}

/// A provisioner may print any line.
#[test]
fn line_of_a_provisioner_does_not_show_that_a_killed_apply_is_complete() {
    let complete = "Apply complete! Resources: 1 added, 0 changed, 0 destroyed.";
    for (printed, code) in [
        (format!("terraform_data.a (local-exec): {complete}"), 8),
        (format!("\\033[0m\\033[1mterraform_data.a (local-exec):\\033[0m \\033[0m{complete}"), 8),
        (format!("{complete} Or is it"), 8),
        (format!("{complete}\\nError: Failed to save state"), 8),
        (format!("\\033[0m\\033[1m\\033[32m\\n{complete}\\033[0m\\n\\nOutputs:"), -1),
    ] {
        let end = format!("printf '{printed}\\n'; kill -9 $PPID; exit 1");
        let (sandbox, url) = refusing(".", &end);
        assert_eq!(sandbox.run(&apply(&url, &["--work-dir", "kept"])).code, -1);
        let [kept, moved] = ["kept", "moved"].map(|name| sandbox.work().join(name));
        std::fs::rename(&kept, &moved).unwrap();
        // The tool may hold the lock of its output a moment longer.
        std::thread::sleep(std::time::Duration::from_millis(300));
        let next = sandbox.run(&apply(&url, &[]));
        assert_eq!(next.code, code, "{printed}: {}", next.stderr);
        let refuses = next.stderr.contains("an apply was killed, and may have left a state in");
        assert_eq!(refuses, code == 8, "{printed}: {}", next.stderr);
    }
}

/// The tool says that the backend has refused the state, and its file is gone when a later run looks for it.
#[test]
fn state_of_a_killed_run_that_is_not_found_refuses_the_next_apply() {
    let says = "echo 'Error: Failed to save state'; echo; echo 'the state has been written to the file \
                \"errored.tfstate\"'";
    let (sandbox, url) =
        refusing(".", &format!("rm errored.tfstate; {says}; kill -9 $PPID; exit 1"));
    assert_eq!(sandbox.run(&apply(&url, &[])).code, -1);
    std::thread::sleep(std::time::Duration::from_millis(300));
    let applies = || sandbox.calls().iter().filter(|call| call.starts_with("apply")).count();
    for _ in 0..2 {
        let refused = sandbox.run(&apply(&url, &[]));
        assert_eq!((refused.code, applies()), (8, 1), "{}", refused.stderr);
        assert!(refused.stderr.contains("and whose file was not found"), "{}", refused.stderr);
    }
    let kept = sandbox.path("home/.local/state/plancha/unsent/default/x/plancha-000000/0");
    let output = std::fs::read_to_string(kept.join("errored.tfstate.output")).unwrap();
    assert!(output.contains("Failed to save state"), "{output}");
    // Once the record is removed, the left directory of the killed run does not bring it back.
    std::fs::remove_file(kept.join("errored.tfstate")).unwrap();
    assert_eq!(sandbox.run(&apply(&url, &[])).code, -1, "it is applied");
    assert_eq!(applies(), 2);
}

/// A run of another layer removes directories of killed runs.
#[test]
fn state_of_a_killed_run_that_is_not_found_is_recorded_before_its_directory_is_removed() {
    let says = "echo 'Error: Failed to save state'";
    let (sandbox, url) =
        refusing(".", &format!("rm errored.tfstate; {says}; kill -9 $PPID; exit 1"));
    assert_eq!(sandbox.run(&apply(&url, &[])).code, -1);
    std::thread::sleep(std::time::Duration::from_millis(300));
    let old = std::time::SystemTime::now() - std::time::Duration::from_hours(2);
    let scratch = sandbox.path("tmp/plancha-000000");
    std::fs::File::open(&scratch).unwrap().set_modified(old).unwrap();
    let other = sandbox.run(&["plan", &url, "--path", "live/vpc", "--name", "y"]);
    assert_eq!(other.code, 0, "{}", other.stderr);
    let refused = sandbox.run(&apply(&url, &[]));
    assert_eq!(refused.code, 8, "{}", refused.stderr);
}

/// The tool prints a state that it cannot write.
#[test]
fn output_of_a_killed_run_is_kept_beside_an_empty_state() {
    let end = ": > errored.tfstate; echo '{\"version\": 4}'; kill -9 $PPID; exit 1";
    let (sandbox, url) = refusing(".", end);
    assert_eq!(sandbox.run(&apply(&url, &[])).code, -1);
    std::thread::sleep(std::time::Duration::from_millis(300));
    let refused = sandbox.run(&apply(&url, &[]));
    assert_eq!(refused.code, 8, "{}", refused.stderr);
    let kept = sandbox.path("home/.local/state/plancha/unsent/default/x/plancha-000000/0");
    let output = kept.join("errored.tfstate.output");
    assert_eq!(std::fs::read_to_string(&output).unwrap(), "{\"version\": 4}\n");
    assert!(refused.stderr.contains(&*output.to_string_lossy()), "{}", refused.stderr);
    std::fs::remove_file(kept.join("errored.tfstate")).unwrap();
    assert_eq!(sandbox.run(&apply(&url, &[])).code, -1, "it is applied");
    assert!(!output.exists(), "it is removed with its state");
}
