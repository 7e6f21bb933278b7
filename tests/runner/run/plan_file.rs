//! A plan in a file is bound to its module, as a stored one is.

use support::{Ended, Sandbox, eventually};

use crate::source::checkout::git;
use crate::{RUNNER, json};

const PLAN: &[&str] = &["plan", "--plan-file", "../the.plan"];
const APPLY: &[&str] = &["apply", "--plan-file", "../the.plan", "--result", "result.json"];

fn run_in(sandbox: &Sandbox, dir: &str, variables: &[(&str, &str)], args: &[&str]) -> Ended {
    let mut command = sandbox.command(args);
    command.current_dir(sandbox.work().join(dir)).envs(variables.iter().copied());
    command.output().unwrap().into()
}

/// Modules that are no repository, whose states are alike: only the code distinguishes them.
fn modules(names: &[&str]) -> Sandbox {
    let sandbox = Sandbox::new(RUNNER);
    for name in names {
        sandbox
            .write(&format!("{name}/main.tf"), &format!("output \"x\" {{ value = \"{name}\" }}\n"));
    }
    sandbox
}

fn in_git(sandbox: &Sandbox) {
    let work = sandbox.work();
    git(&work, &["init", "--quiet"]);
    git(&work, &["remote", "add", "origin", "git@git.example.com:team/infra.git"]);
    git(&work, &["add", "."]);
    git(&work, &["commit", "--quiet", "-m", "x"]);
}

fn refused(ended: &Ended, texts: &[&str]) {
    assert_eq!(ended.code, 9, "{}", ended.stderr);
    assert!(!ended.stdout.contains("Apply complete"), "{}", ended.stdout);
    for text in texts {
        assert!(ended.stderr.contains(text), "{text}: {}", ended.stderr);
    }
}

#[test]
fn plan_file_is_applied_only_in_its_own_module() {
    let sandbox = modules(&["dev", "prod"]);
    in_git(&sandbox);
    let ended = run_in(&sandbox, "prod", &[], PLAN);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    let record = json(sandbox.read("the.plan.run.json").as_bytes());
    assert_eq!(record["place"]["path"], "prod");
    assert_eq!(record["outcome"], "changes");

    refused(&run_in(&sandbox, "dev", &[], APPLY), &["path prod", "path dev", "plan here"]);
    let dev = [("TF_WORKSPACE", "dev")];
    refused(&run_in(&sandbox, "prod", &dev, APPLY), &["workspace default", "workspace dev"]);
    let ended = run_in(&sandbox, "prod", &[], APPLY);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    assert!(ended.stdout.contains("x = \"prod\""), "{}", ended.stdout);
    assert!(!ended.stderr.contains("compared"), "{}", ended.stderr);
    assert_eq!(json(sandbox.read("prod/result.json").as_bytes())["plan"]["counts"]["create"], 0);
}

#[test]
fn changed_configuration_is_a_warning_for_a_named_plan_file() {
    let sandbox = modules(&["dev"]);
    in_git(&sandbox);
    assert_eq!(run_in(&sandbox, "dev", &[], PLAN).code, 0);
    sandbox.write("dev/main.tf", "output \"x\" { value = \"later\" }\n");
    let ended = run_in(&sandbox, "dev", &[], APPLY);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    assert!(ended.stderr.contains("the configuration has changed since"), "{}", ended.stderr);
}

#[test]
fn outside_git_the_configuration_identifies_the_module() {
    let sandbox = modules(&["dev", "prod"]);
    assert_eq!(run_in(&sandbox, "prod", &[], PLAN).code, 0);
    refused(&run_in(&sandbox, "dev", &[], APPLY), &["made for another configuration"]);
    let ended = run_in(&sandbox, "prod", &[], APPLY);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
}

#[test]
fn plan_file_without_a_record_is_identified_by_its_content() {
    let sandbox = modules(&["dev", "prod"]);
    let backend = "terraform {\n  backend \"local\" {}\n}\n";
    let config = |path: &str| format!("-backend-config=path={path}");
    for name in ["dev", "prod"] {
        sandbox.write(&format!("{name}/versions.tf"), backend);
    }
    let variable = "TF_CLI_ARGS_init";
    let (a, b) = (config("a.tfstate"), config("b.tfstate"));
    let ended = run_in(&sandbox, "prod", &[(variable, &a)], PLAN);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    std::fs::remove_file(sandbox.work().join("the.plan.run.json")).unwrap();

    let ended = run_in(&sandbox, "dev", &[(variable, &a)], APPLY);
    refused(&ended, &["another configuration: main.tf of sha256", "here it is main.tf of sha256"]);
    let blue = [(variable, &*a), ("TF_WORKSPACE", "blue")];
    let ended = run_in(&sandbox, "prod", &blue, APPLY);
    refused(&ended, &["another workspace: default; here it is blue"]);
    let again = format!("{b} -reconfigure");
    let ended = run_in(&sandbox, "prod", &[(variable, &again)], APPLY);
    refused(&ended, &[r#"path "a.tfstate""#, r#"path "b.tfstate""#]);
    sandbox.write("prod/more.tf", "locals {}\n");
    let again = format!("{a} -reconfigure");
    let ended = run_in(&sandbox, "prod", &[(variable, &again)], APPLY);
    refused(&ended, &["no more.tf; here it is more.tf"]);
    std::fs::remove_file(sandbox.work().join("prod/more.tf")).unwrap();

    let ended = run_in(&sandbox, "prod", &[(variable, &again)], APPLY);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    assert!(ended.stderr.contains("there is no record ../the.plan.run.json"), "{}", ended.stderr);
    assert!(ended.stdout.contains("x = \"prod\""), "{}", ended.stdout);
}

#[test]
fn plan_file_with_another_digest_than_recorded_is_refused() {
    let sandbox = modules(&["dev"]).fake_terraform("");
    assert_eq!(run_in(&sandbox, "dev", &[], PLAN).code, 0);
    let recorded = json(sandbox.read("the.plan.run.json").as_bytes());
    sandbox.write("the.plan", "another plan");
    let expected = ["../the.plan.run.json has", "its SHA-256 is"];
    refused(&run_in(&sandbox, "dev", &[], APPLY), &expected);
    assert!(!sandbox.calls().iter().any(|call| call.starts_with("apply")));

    for record in ["{", "", "xx", "{}"] {
        sandbox.write("the.plan.run.json", record);
        refused(&run_in(&sandbox, "dev", &[], APPLY), &["the record ../the.plan.run.json"]);
    }
    // Only a complete record has the place of the plan.
    let mut record = recorded;
    record.as_object_mut().unwrap().remove("place");
    sandbox.write("the.plan.run.json", &record.to_string());
    let expected = ["the record ../the.plan.run.json", "does not record the place"];
    let ended = run_in(&sandbox, "dev", &[], APPLY);
    refused(&ended, &expected);
    assert!(!ended.stderr.contains("there is no record"), "{}", ended.stderr);
    // Without a record, and of no form that can be read: nothing is known, and the plan is named.
    std::fs::remove_file(sandbox.work().join("the.plan.run.json")).unwrap();
    let ended = run_in(&sandbox, "dev", &[], APPLY);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    assert!(ended.stderr.contains("are not compared"), "{}", ended.stderr);
}

/// To open a pipe that nothing writes to would block forever.
#[test]
fn record_that_is_a_pipe_or_a_link_to_one_is_refused() {
    let sandbox = modules(&["dev"]).fake_terraform("");
    assert_eq!(run_in(&sandbox, "dev", &[], PLAN).code, 0);
    let at = |name: &str| sandbox.work().join(name);
    let (record, mode) = (at("the.plan.run.json"), nix::sys::stat::Mode::S_IRWXU);
    std::fs::rename(&record, at("kept.json")).unwrap();
    let apply = || {
        let mut command = sandbox.command(APPLY);
        let mut runner = command.current_dir(at("dev")).spawn().unwrap();
        eventually("the apply ends", || runner.try_wait().unwrap().is_some());
        Ended::from(runner.wait_with_output().unwrap())
    };
    let expected = ["the record ../the.plan.run.json", "is not a regular file", "plan again"];

    nix::unistd::mkfifo(&record, mode).unwrap();
    refused(&apply(), &expected);
    std::fs::rename(&record, at("pipe")).unwrap();
    std::os::unix::fs::symlink("pipe", &record).unwrap();
    refused(&apply(), &expected);
    assert!(!sandbox.calls().iter().any(|call| call.starts_with("apply")));
    // A record on a volume of Kubernetes is a link.
    std::fs::remove_file(&record).unwrap();
    std::os::unix::fs::symlink("kept.json", &record).unwrap();
    let applied = apply();
    assert_eq!(applied.code, 0, "{}", applied.stderr);
    assert!(!applied.stderr.contains("there is no record"), "{}", applied.stderr);
}

#[test]
fn file_that_is_no_plan_is_named_with_the_next_step() {
    let sandbox = modules(&["dev"]);
    sandbox.write("dev/notes", "of mine");
    sandbox.write("dev/plan.json", r#"{"format_version": "1.2"}"#);
    for file in ["notes", "plan.json"] {
        let ended = run_in(&sandbox, "dev", &[], &["apply", "--plan-file", file]);
        assert_eq!(ended.code, 8, "{file}: {}", ended.stderr);
        let expected =
            format!("ERROR {file} is not a plan of terraform. next: nothing was applied; ");
        assert!(ended.stderr.contains(&expected), "{file}: {}", ended.stderr);
    }
}

#[test]
fn plan_file_never_replaces_another_file() {
    let sandbox = modules(&["dev"]);
    sandbox.write("dev/notes", "of mine");
    sandbox.write("dev/empty", "");
    let plan = |file: &str| run_in(&sandbox, "dev", &[], &["plan", "--plan-file", file]);
    for file in
        ["main.tf", "notes", "new.tf", "a.auto.tfvars", "new.tf.json", "x.hcl.json", "x.tofu"]
    {
        let ended = plan(file);
        assert_eq!(ended.code, 8, "{file}: {}", ended.stderr);
        assert!(ended.stderr.contains(&format!("--plan-file {file}")), "{}", ended.stderr);
    }
    assert_eq!(sandbox.read("dev/notes"), "of mine");
    assert!(sandbox.read("dev/main.tf").contains("output"));
    for file in ["empty", "new.plan", "new.plan"] {
        let ended = plan(file);
        assert_eq!(ended.code, 0, "{file}: {}", ended.stderr);
    }
}

#[test]
fn outside_git_an_apply_in_another_directory_names_the_plans_directory() {
    let sandbox = modules(&["a/vpc"]);
    sandbox.write("b/vpc/main.tf", &sandbox.read("a/vpc/main.tf"));
    let plan = &["plan", "--plan-file", "../../the.plan"];
    let apply = &["apply", "--plan-file", "../../the.plan"];
    assert_eq!(run_in(&sandbox, "a/vpc", &[], plan).code, 0);
    for (dir, warns) in [("a/vpc", false), ("b/vpc", true)] {
        let ended = run_in(&sandbox, dir, &[], apply);
        let expected = format!("the plan was made in {}", sandbox.work().join("a/vpc").display());
        assert_eq!(ended.stderr.contains(&expected), warns, "{dir}: {}", ended.stderr);
    }
}

/// The plan contains the absolute path, so its apply would write into a directory that is gone.
#[test]
fn plan_whose_state_was_in_the_removed_checkout_is_refused_everywhere() {
    let sandbox = Sandbox::new(RUNNER).fake_terraform(
        "if [ $STEP = init ]; then mkdir -p .terraform; \
         echo '{\"backend\": {\"type\": \"local\", \"config\": {\"path\": \"'$PWD'/x.tfstate\"}}}' \
         > .terraform/terraform.tfstate; fi",
    );
    let repository = crate::source::checkout::repository(&sandbox);
    let url = format!("file://{}", repository.dir.display());
    let run = |action, more: &[&str]| {
        let args = [action, url.as_str(), "--path", "live/vpc", "--plan-file", "p"];
        sandbox.run(&[&args[..], more].concat())
    };
    let planned = run("plan", &[]);
    assert_eq!(planned.code, 0, "{}", planned.stderr);
    assert!(planned.stderr.contains("an apply of this plan will be refused"), "{}", planned.stderr);
    for more in [&[][..], &["--work-dir", "kept"]] {
        let ended = run("apply", more);
        assert_eq!(ended.code, 8, "{}", ended.stderr);
        assert!(ended.stderr.contains("the state would be lost"), "{}", ended.stderr);
    }
    assert!(!sandbox.calls().iter().any(|call| call.starts_with("apply")));
    // In a directory that stays, the same code is planned and applied.
    assert_eq!(run("plan", &["--work-dir", "kept"]).code, 0);
    let ended = run("apply", &["--work-dir", "kept"]);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
}
