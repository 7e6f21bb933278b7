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
    let stored = ["--name", "vpc", "--snapshot", "never", "--datastore", datastore.url.as_str()];
    let file = ["--plan-file", "the.plan"];
    for (source, moved, args) in [
        (&url, &url, &stored[..]),
        (&archive, &archive, &stored),
        (&in_place, &url, &stored),
        (&url, &url, &file),
    ] {
        let planned = run("plan", source, args, "");
        assert_eq!(planned.code, 0, "{source}: {}", planned.stderr);
        let refused = run("apply", moved, args, "other");
        assert_eq!(refused.code, 9, "{source}: {}", refused.stderr);
        let expected = "and is applied in another one: output.x\n";
        assert!(refused.stderr.contains(expected), "{source}: {}", refused.stderr);
        assert!(!refused.stdout.contains("Initializing"), "{}", refused.stdout);
        let applied = run("apply", source, args, "");
        assert_eq!(applied.code, 0, "{source}: {}", applied.stderr);
        std::fs::remove_file(sandbox.path("state")).unwrap();
    }
}
