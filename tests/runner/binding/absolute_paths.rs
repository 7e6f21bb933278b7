//! A plan whose values contain its directory is applied only there.

use support::{Ended, Sandbox, TestDatastore};

use crate::RUNNER;
use crate::binding::snapshot::{MODULE, repository, run};
use crate::source::checkout::git;

#[tokio::test(flavor = "multi_thread")]
async fn values_with_the_directory_of_the_plan_are_refused_by_name() {
    let datastore = TestDatastore::memory().await;
    let sandbox = Sandbox::new(RUNNER);
    let url = repository(&sandbox, "abspath(\"x.txt\")");
    let planned = run(&sandbox, &datastore, &[&["plan", &url, "--run", "p"], &MODULE[..]].concat());
    assert_eq!(planned.code, 0, "{}", planned.stderr);

    let apply = ["apply", "--name", "vpc", "--plan", "p", "--datastore", datastore.url.as_str()];
    std::fs::create_dir(sandbox.path("other")).unwrap();
    let elsewhere = sandbox.command(&apply).env("TMPDIR", sandbox.path("other")).output().unwrap();

    let refused = Ended::from(elsewhere);
    assert_eq!(refused.code, 9, "{}", refused.stderr);
    assert!(
        refused.stderr.contains("and is applied in another one: output.x"),
        "{}",
        refused.stderr
    );
    assert!(!sandbox.path("state").exists());
    // With the same TMPDIR, one run at a time has the same directory, as in containers of one image.
    let applied = sandbox.run(&apply);
    assert_eq!(applied.code, 0, "{}", applied.stderr);
}

/// The apply of a converge works in the directory of its plan.
#[tokio::test(flavor = "multi_thread")]
async fn values_with_the_directory_of_the_plan_are_applied_by_the_command_that_made_them() {
    let datastore = TestDatastore::memory().await;
    for with_datastore in [true, false] {
        let sandbox = Sandbox::new(RUNNER);
        let url = repository(&sandbox, "abspath(\"x.txt\")");
        let converge = [&["converge", &url], &MODULE[..]].concat();
        let ended = if with_datastore {
            run(&sandbox, &datastore, &converge)
        } else {
            sandbox.run(&converge)
        };
        assert_eq!(ended.code, 0, "{}", ended.stderr);
        assert!(sandbox.path("state").exists());
    }
}

/// A copy of the source that is in no snapshot is in another directory, too.
#[tokio::test(flavor = "multi_thread")]
async fn values_with_the_directory_of_the_plan_are_refused_in_another_checkout_and_copy() {
    let datastore = TestDatastore::memory().await;
    let sandbox = Sandbox::new(RUNNER);
    let url = repository(&sandbox, "abspath(\"x.txt\")");
    let archive = sandbox.path("infra.tar").display().to_string();
    git(&sandbox.path("repository"), &["archive", "-o", &archive, "HEAD"]);
    let in_place = sandbox.path("repository").display().to_string();
    std::fs::create_dir(sandbox.path("other")).unwrap();
    let run = |action: &str, source: &str, args: &[&str], tmp: &str| {
        let place = [action, source, "--path", "live/vpc"];
        let mut command = sandbox.command(&[&place[..], args].concat());
        if !tmp.is_empty() {
            command.env("TMPDIR", sandbox.path(tmp));
        }
        Ended::from(command.output().unwrap())
    };
    // Plans of one layer that are made in one second may be equal.
    let stored =
        |name| ["--name", name, "--snapshot", "never", "--datastore", datastore.url.as_str()];
    let file = ["--plan-file", "the.plan"];
    for (source, moved, args) in [
        (&url, &url, &stored("a")[..]),
        (&archive, &archive, &stored("b")),
        (&in_place, &url, &stored("c")),
        (&url, &url, &file),
    ] {
        let planned = run("plan", source, args, "");
        assert_eq!(planned.code, 0, "{source}: {}", planned.stderr);
        let refused = run("apply", moved, args, "other");
        assert_eq!(refused.code, 9, "{source}: {}", refused.stderr);
        let expected = "and is applied in another one: output.x. next: ";
        assert!(refused.stderr.contains(expected), "{source}: {}", refused.stderr);
        assert!(!refused.stdout.contains("Initializing"), "{}", refused.stdout);
        let applied = run("apply", source, args, "");
        assert_eq!(applied.code, 0, "{source}: {}", applied.stderr);
        std::fs::remove_file(sandbox.path("state")).unwrap();
    }
}

/// A module in `dir` whose resource `b` depends on `a` and has this input.
fn module(sandbox: &Sandbox, dir: &str, input: &str) {
    let state = sandbox.path("state");
    let made = sandbox.path("made");
    let main = format!(
        "terraform {{\n  backend \"local\" {{\n    path = \"{}\"\n  }}\n}}\n\
         resource \"terraform_data\" \"a\" {{\n  provisioner \"local-exec\" {{\n    command = \"echo > {}\"\n  }}\n}}\n\
         resource \"terraform_data\" \"b\" {{\n  input = {input}\n}}\n",
        state.display(),
        made.display()
    );
    sandbox.write(&format!("{dir}/main.tf"), &main);
}

/// Of a value whose end is not known yet, the JSON of a plan contains nothing.
#[tokio::test(flavor = "multi_thread")]
async fn value_that_begins_with_the_directory_of_the_plan_is_refused_in_another_one() {
    let datastore = TestDatastore::memory().await;
    let sandbox = Sandbox::new(RUNNER);
    for dir in ["here", "there"] {
        module(&sandbox, dir, "[{ x = \"${path.cwd}/${terraform_data.a.id}.json\" }]");
    }
    let run = |args: &[&str]| sandbox.run_with(&datastore.url, &[args, &["--name", "x"]].concat());
    let planned = run(&["plan", "here", "--run", "p"]);
    assert_eq!(planned.code, 0, "{}", planned.stderr);
    assert!(planned.stderr.contains("can only be applied there: terraform_data.b.input"));

    let refused = run(&["apply", "there", "--plan", "p"]);

    assert_eq!(refused.code, 9, "{}", refused.stderr);
    assert!(refused.stderr.contains("another one: terraform_data.b.input"), "{}", refused.stderr);
    assert!(!sandbox.path("made").exists());
    let applied = run(&["apply", "here", "--plan", "p"]);
    assert_eq!(applied.code, 0, "{}", applied.stderr);
}

/// The tools take the directory from `PWD` if that leads there.
#[tokio::test(flavor = "multi_thread")]
async fn directory_that_is_reached_through_a_link_is_the_one_where_it_leads() {
    let datastore = TestDatastore::memory().await;
    let sandbox = Sandbox::new(RUNNER);
    module(&sandbox, "real", "path.cwd");
    let (real, link) = (sandbox.work().join("real"), sandbox.work().join("link"));
    std::os::unix::fs::symlink("real", &link).unwrap();
    let run = |action: &str, dir: &std::path::Path| {
        let args = [action, "--name", "x", "--datastore", datastore.url.as_str()];
        Ended::from(sandbox.command(&args).current_dir(dir).env("PWD", dir).output().unwrap())
    };
    let planned = run("plan", &link);
    assert_eq!(planned.code, 0, "{}", planned.stderr);
    let real_path = std::fs::canonicalize(&real).unwrap();
    let expected = format!("the plan contains the directory {}, and", real_path.display());
    assert!(planned.stderr.contains(&expected), "{}", planned.stderr);

    let applied = run("apply", &real);

    assert_eq!(applied.code, 0, "{}", applied.stderr);
}

/// Only one run at a time has the directory that is the same for all runs.
#[tokio::test(flavor = "multi_thread")]
async fn directory_that_another_run_holds_is_named_at_plan_and_at_apply() {
    let datastore = TestDatastore::memory().await;
    let sandbox = Sandbox::new(RUNNER);
    let url = repository(&sandbox, "abspath(\"x.txt\")");
    let other = sandbox.path("tmp/plancha-000000");
    let hold = || std::fs::create_dir(&other).unwrap();
    let plan =
        |name| run(&sandbox, &datastore, &[&["plan", &url, "--run", name], &MODULE[..]].concat());
    let apply = || run(&sandbox, &datastore, &["apply", "--name", "vpc"]);
    hold();
    let planned = plan("p");
    assert_eq!(planned.code, 0, "{}", planned.stderr);
    let warning = "and no apply can work there (output.x): it has this name because another run works here; plan again \
                   when no other run does";
    assert!(planned.stderr.contains(warning), "{}", planned.stderr);
    assert!(
        planned.stderr.contains("an apply refuses it because of the directory that it contains")
    );
    assert!(!planned.stderr.contains("apply it with"), "{}", planned.stderr);
    for is_held in [true, false] {
        if !is_held {
            std::fs::remove_dir(&other).unwrap();
        }
        let refused = apply();
        assert_eq!(refused.code, 9, "{}", refused.stderr);
        let cause =
            "output.x; another run held the directory for all runs when the plan was made. next: ";
        assert!(refused.stderr.contains(cause), "{}", refused.stderr);
        assert!(refused.stderr.contains("plan again when no other run works here"));
    }
    let planned = plan("q");
    assert_eq!(planned.code, 0, "{}", planned.stderr);
    hold();

    let refused = apply();

    assert_eq!(refused.code, 9, "{}", refused.stderr);
    let cause = "output.x; another run holds the plan's directory now. next: ";
    assert!(refused.stderr.contains(cause), "{}", refused.stderr);
    assert!(
        refused.stderr.contains("apply again when no other run works here"),
        "{}",
        refused.stderr
    );
    std::fs::remove_dir(&other).unwrap();
    let applied = apply();
    assert_eq!(applied.code, 0, "{}", applied.stderr);
}
