//! States that are not where the runner looks first: the directory was moved, the file is missing, or terragrunt works
//! elsewhere.

use std::path::{Path, PathBuf};

use support::{Ended, Sandbox};

use super::{link_as_before, run_in, unsent};
use crate::RUNNER;

/// What the tool prints when it has saved a state that its backend did not accept.
const WRITTEN: &str = "echo; echo 'Error: Failed to persist state to backend'; echo; \
    echo 'The error shown above has prevented Terraform from writing the updated state'; \
    echo 'to the configured backend. To allow for recovery, the state has been written'; \
    echo 'to the file \"errored.tfstate\" in the current working directory.'";
/// What it prints when it cannot save it either.
const PRINTED: &str = "echo; echo 'Error: Failed to create local state file'; echo; \
    echo 'As a fallback, the raw state data is printed above as a JSON object.'; echo; \
    echo 'To retry writing this state, copy the state data and save it into a local file'; \
    echo 'called errored.tfstate, then run the following command:'";

/// A module in `work/code`, and a tool whose apply is this script.
fn module(script: &str) -> Sandbox {
    let sandbox = Sandbox::new(RUNNER);
    let sandbox =
        sandbox.fake_terraform(&format!("if [ $STEP = apply ]; then {script}; exit 1; fi"));
    sandbox.write("code/main.tf", "");
    sandbox
}

const APPLY: [&str; 6] = ["apply", "--no-plan", "code", "--name=x", "--run=r", "--tool=terraform"];

fn applies(sandbox: &Sandbox) -> usize {
    sandbox.calls().iter().filter(|call| call.starts_with("apply")).count()
}

#[track_caller]
fn assert_says(ended: &Ended, code: i32, says: &[&str]) {
    assert_eq!(ended.code, code, "{}\n{}", ended.stdout, ended.stderr);
    for says in says {
        assert!(ended.stderr.contains(says), "{says}: {}", ended.stderr);
    }
}

/// The working directory of a process stays the same directory when that is moved.
#[test]
fn state_is_found_in_a_directory_that_was_moved_while_the_tool_ran() {
    for state in [".", "./.terragrunt-cache/a/b"] {
        let script = format!(
            "mv ../code ../old; mkdir ../code; cp main.tf ../code; mkdir -p {state}; \
             echo '\"secret\"' > {state}/errored.tfstate; {WRITTEN}"
        );
        let sandbox = module(&script);
        let file = sandbox
            .work()
            .join("old")
            .join(state.trim_start_matches("./").trim_end_matches('.'))
            .join("errored.tfstate");
        let copy = unsent(&sandbox).join("errored.tfstate");
        let (file, said) = (file.display().to_string(), copy.display().to_string());
        let ended = sandbox.run(&APPLY);
        assert_says(&ended, 1, &[&format!("which is in {file}"), &format!("the copy {said}")]);
        assert_eq!(std::fs::read(&copy).unwrap(), b"\"secret\"\n");
        assert_says(&sandbox.run(&APPLY), 8, &[&format!("state push {said}"), &file]);
        assert_eq!(applies(&sandbox), 1);
    }
}

#[test]
fn missing_state_refuses_applies_until_its_record_is_removed() {
    let printed = "/errored.tfstate.output into a file STATE";
    for (text, says) in [(WRITTEN, "Find that file, and"), (PRINTED, printed)] {
        let sandbox = module(text);
        let record = unsent(&sandbox).join("errored.tfstate");
        let ended = sandbox.run(&APPLY);
        assert_says(&ended, 1, &["the backend did not accept the state", "state push"]);
        assert!(ended.stderr.contains(&record.display().to_string()), "{}", ended.stderr);
        let module = sandbox.work().join("code");
        for run in ["r", "s"] {
            let run = format!("--run={run}");
            let refused =
                sandbox.run(&["apply", "--no-plan", "code", "--name=x", &run, "--tool=terraform"]);
            let remove = format!("remove {}", record.display());
            let dir = format!("in {} run `TF_WORKSPACE=default", module.display());
            assert_says(&refused, 8, &[says, &remove, &dir, "state push"]);
        }
        let plan = sandbox.run(&["plan", "code", "--name=x", "--tool=terraform"]);
        assert_says(&plan, 0, &["an apply is refused"]);
        assert_eq!(applies(&sandbox), 1);
        std::fs::remove_file(&record).unwrap();
        assert_says(&sandbox.run(&APPLY), 1, &[]);
        assert_eq!(applies(&sandbox), 2);
    }
}

#[test]
fn text_about_a_state_in_an_apply_that_succeeds_records_nothing() {
    let sandbox = module(&format!("{WRITTEN}; exit 0"));
    assert_says(&sandbox.run(&APPLY), 0, &[]);
    assert!(!unsent(&sandbox).exists());
}

#[test]
fn killed_apply_in_a_directory_that_was_replaced_refuses_the_next_one() {
    for (end, code) in [("exit 1", 8), ("echo 'Apply complete! Resources: 1 added.'; exit 0", -1)] {
        // As terraform does, it ends what it does in spite of the guard's SIGINT.
        let script = format!(
            "trap '' INT; mv ../code ../old; mkdir ../code; cp main.tf ../code; kill -9 $PPID; {end}"
        );
        let sandbox = module(&script);
        assert_eq!(sandbox.run(&APPLY).code, -1);
        // It waits for the tool.
        std::fs::remove_dir_all(sandbox.work().join("old")).unwrap();
        let next = sandbox.run(&APPLY);
        assert_eq!(next.code, code, "{}", next.stderr);
        if code == 8 {
            assert_says(&next, 8, &["may have left a state in", "missing, empty or replaced"]);
            std::fs::remove_dir_all(sandbox.path("tmp/plancha-000000")).unwrap();
            std::fs::remove_dir_all(sandbox.work().join("old")).unwrap_or_default();
            assert_eq!(sandbox.run(&APPLY).code, -1);
        }
    }
}

#[test]
fn directory_that_cannot_be_read_refuses_an_apply() {
    let sandbox = module("true");
    // To root, only a link to itself cannot be read.
    let cache = sandbox.work().join("code/.terragrunt-cache");
    std::os::unix::fs::symlink(&cache, &cache).unwrap();
    let says = ["cannot find out whether an earlier apply", ".terragrunt-cache"];
    assert_says(&sandbox.run(&APPLY), 8, &says);
    assert_says(&sandbox.run(&["plan", "code", "--name=x", "--tool=terraform"]), 0, &says);
    assert_eq!(applies(&sandbox), 0);
    std::fs::remove_file(cache).unwrap();
    assert_says(&sandbox.run(&APPLY), 1, &[]);
}

/// The name of an apply, and its workspace, which is part of the default name, are those of its state.
#[test]
fn state_in_place_is_named_with_the_copy_and_workspace_of_another_layer() {
    let sandbox = module("echo '\"secret\"' > errored.tfstate");
    let apply = ["apply", "--no-plan", "code"];
    assert_eq!(run_in(&sandbox, Some("prod"), &apply).code, 1);
    let unsent = sandbox.path("home/.local/state/plancha/unsent/default/code.prod");
    let run = std::fs::read_dir(unsent).unwrap().next().unwrap().unwrap().path();
    let copy = run.join("0/errored.tfstate");
    let original = sandbox.work().join("code/errored.tfstate");
    let remove = format!("remove {}, {}", original.display(), copy.display());
    let push = "`TF_WORKSPACE=prod terraform state push ";
    for more in [&[][..], &["--name", "other"]] {
        let refused = run_in(&sandbox, Some("dev"), &[&apply[..], more].concat());
        assert_says(&refused, 8, &[push, &remove]);
    }
}

fn scratch(sandbox: &Sandbox) -> PathBuf {
    sandbox.path("tmp/plancha-000000")
}

fn run_without_home(sandbox: &Sandbox) -> Ended {
    std::fs::write(sandbox.path("file"), "").unwrap();
    let mut command = sandbox.command(&APPLY);
    command.env("XDG_STATE_HOME", sandbox.path("file")).output().unwrap().into()
}

#[test]
fn state_in_place_is_copied_to_the_scratch_directory_if_the_state_home_cannot_be_written() {
    let sandbox = module("echo '\"secret\"' > errored.tfstate");
    let ended = run_without_home(&sandbox);
    let copy = scratch(&sandbox).join("unsent/errored.tfstate");
    assert_says(&ended, 1, &[&format!("and the copy {}", copy.display())]);
    assert_eq!(std::fs::read(&copy).unwrap(), b"\"secret\"\n");
    let original = sandbox.work().join("code/errored.tfstate");
    let remove = format!("remove {}, {}", original.display(), copy.display());
    assert_says(&run_without_home(&sandbox), 8, &[&remove]);
    std::fs::remove_file(original).unwrap();
    let refused = run_without_home(&sandbox);
    assert_says(&refused, 8, &[&format!("state push {}", copy.display())]);
    assert_eq!(applies(&sandbox), 1);
}

#[test]
fn state_without_any_copy_is_named_as_the_only_one() {
    let end = "echo '\"secret\"' > errored.tfstate; : > $TMPDIR/plancha-000000/unsent";
    let sandbox = module(end);
    let ended = run_without_home(&sandbox);
    let original = sandbox.work().join("code/errored.tfstate");
    let only =
        format!("no copy could be made, so do not move or remove {} before", original.display());
    assert_says(&ended, 1, &["is not copied", &only]);
    assert!(scratch(&sandbox).join("push.json").exists());
    assert_says(&run_without_home(&sandbox), 8, &["state push"]);
}

/// A terragrunt whose configuration lets it work in another directory.
fn terragrunt(end: &str) -> (Sandbox, PathBuf) {
    let sandbox = module("true");
    let dir = sandbox.path("downloads/a/b");
    let script = format!(
        "#!/bin/sh\ncase $1 in -version|--version|-v|version) echo 'terragrunt version v1.0.0'; exit 0;; \
         info) echo '{{\"working_dir\": \"{dir}\"}}'; exit 0;; esac\n\
         mkdir -p {dir}; cd {dir}; echo '\"secret\"' > errored.tfstate; {end}; exit 1\n",
        dir = dir.display()
    );
    sandbox.script("terragrunt", &script);
    sandbox.write("code/terragrunt.hcl", "download_dir = \"${get_env(\"X\")}\"\n");
    (sandbox, dir)
}

fn apply_with_terragrunt(sandbox: &Sandbox) -> Ended {
    sandbox.run(&[&APPLY[..], &["--terragrunt=1.0.0"]].concat())
}

#[test]
fn state_is_found_where_the_configuration_of_terragrunt_puts_it() {
    let (sandbox, dir) = terragrunt("true");
    let ended = apply_with_terragrunt(&sandbox);
    let file = dir.join("errored.tfstate");
    assert_says(&ended, 1, &[&format!("which is in {}", file.display()), "terragrunt state push"]);
    let copy = unsent(&sandbox).join("errored.tfstate");
    assert_says(&apply_with_terragrunt(&sandbox), 8, &[&copy.display().to_string()]);
}

#[test]
fn state_of_a_killed_apply_is_found_where_terragrunt_works() {
    let (sandbox, _) = terragrunt("kill -9 $PPID");
    assert_eq!(apply_with_terragrunt(&sandbox).code, -1);
    let refused = apply_with_terragrunt(&sandbox);
    assert_says(&refused, 8, &["terragrunt state push", "plancha-000000/0/errored.tfstate"]);
}

#[test]
fn state_in_an_archive_must_be_removed_from_it() {
    let sandbox = module("true");
    sandbox.write("code/errored.tfstate", "{}");
    let mut tar = sandbox.program(Path::new("tar"), &["-cf", "code.tar", "code"]);
    assert!(tar.status().unwrap().success());
    for more in [&[][..], &["--work-dir", "kept"]] {
        for action in [&["apply", "--no-plan"][..], &["plan"]] {
            let args = ["code.tar", "--path=code", "--name=x", "--tool=terraform"];
            let ended = sandbox.run(&[action, &args, more].concat());
            let again = "make code.tar again without code/errored.tfstate";
            assert_says(&ended, 8, &["part of the archive", "unpack the archive", again]);
        }
    }
    assert_eq!(applies(&sandbox), 0);
}

/// Earlier versions kept only a link, which leads to the file.
#[test]
fn link_of_an_earlier_version_is_found_from_another_layer() {
    let sandbox = module("echo '\"secret\"' > errored.tfstate");
    assert_eq!(run_in(&sandbox, Some("prod"), &APPLY).code, 1);
    link_as_before(&sandbox, &sandbox.work().join("code/errored.tfstate"));
    let refused = run_in(&sandbox, Some("dev"), &["apply", "--no-plan", "code", "--name=y"]);
    assert_says(&refused, 8, &["`TF_WORKSPACE=prod terraform state push "]);
}
