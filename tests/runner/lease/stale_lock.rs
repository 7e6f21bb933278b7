//! The lock that a dead run has left on a state in the datastore.

use support::{Ended, Sandbox, TestDatastore, eventually};

use super::layers::{BACKEND, SHORT, SLOW, address, apply, machine, start, states};

fn applied(sandbox: &Sandbox, datastore: &TestDatastore, more: &[&str]) -> Ended {
    apply(sandbox, &datastore.url, more).output().unwrap().into()
}

#[tokio::test(flavor = "multi_thread")]
async fn lock_of_a_dead_run_is_named_and_removed_only_on_demand() {
    let datastore = TestDatastore::hasty(SHORT).await;
    let (dead, next) = (machine(BACKEND), machine(BACKEND));
    let running = start(&dead, apply(&dead, &datastore.url, &["--run", "dead"]));
    running.kill_all();
    running.wait();

    let mut ended = None;
    eventually("the lease is taken over", || {
        let tried = applied(&next, &datastore, &[]);
        assert_eq!(tried.code, 4, "{}", tried.stderr);
        let is_over = !tried.stderr.contains("is not granted");
        ended = Some(tried);
        is_over
    });
    let ended = ended.unwrap();
    assert!(ended.stderr.contains("is locked by a run that does not hold"), "{}", ended.stderr);
    assert!(ended.stderr.contains("for the run dead/0"), "{}", ended.stderr);
    assert!(ended.stderr.contains("--break-stale-lock"), "{}", ended.stderr);
    let held = states(&datastore, "-", "").await["head"]["lock"].clone();
    let id = held["ID"].as_str().unwrap();
    assert!(ended.stderr.contains(id), "{id}: {}", ended.stderr);
    let unlock = "`datastore state unlock ";
    assert!(
        ended.stderr.contains(unlock) && ended.stderr.contains(&format!(" --id {id} --url")),
        "{}",
        ended.stderr
    );

    let early = applied(&next, &datastore, &["--break-stale-lock", "1h"]);
    assert_eq!(early.code, 4, "{}", early.stderr);
    assert!(early.stderr.contains("has not ended 1h ago"), "{}", early.stderr);
    assert_eq!(states(&datastore, "-", "").await["head"]["lock"]["ID"], id);

    let broken = applied(&next, &datastore, &["--break-stale-lock", "0s"]);
    assert_eq!(broken.code, 0, "{}", broken.stderr);
    assert!(broken.stderr.contains("is removed (--break-stale-lock)"), "{}", broken.stderr);
    assert!(broken.stderr.contains("for the run dead/0"), "{}", broken.stderr);
    let states = states(&datastore, "-", "").await;
    assert_eq!(states["head"]["lock"], serde_json::Value::Null);
    assert_eq!(states["head"]["version"]["serial"], 1, "{states}");
}

/// Its state does not exist yet, and is in the datastore by an option.
#[tokio::test(flavor = "multi_thread")]
async fn lock_that_a_first_apply_has_left_is_named_although_there_is_no_state() {
    let datastore = TestDatastore::hasty(SHORT).await;
    let sandbox = Sandbox::new(crate::RUNNER);
    // The tool works in a copy.
    let work = sandbox.work().display().to_string();
    let slow = SLOW.replace("touch ", &format!("touch {work}/"));
    sandbox.write("main.tf", &slow.replace("-e wait", &format!("-e {work}/wait")));
    let command = |args: &[&str]| {
        let mut command =
            sandbox.command(&[args, &["--name", "x", "--state", "datastore"]].concat());
        command.env("PLANCHA_DATASTORE_URL", datastore.url.as_str());
        command
    };
    let planned = Ended::from(command(&["plan"]).output().unwrap());
    assert_eq!(planned.code, 0, "{}", planned.stderr);
    let running = start(&sandbox, command(&["apply"]));
    running.kill_all();
    running.wait();
    let ended = Ended::from(command(&["apply"]).output().unwrap());
    assert_eq!(ended.code, 4, "{}", ended.stderr);
    assert!(ended.stderr.contains("is locked by a run that does not hold"), "{}", ended.stderr);
}

/// A runner that was killed while it held the lease, before its tool had the lock.
#[tokio::test(flavor = "multi_thread")]
async fn plan_and_destroy_release_the_lease_of_a_killed_runner_of_this_machine() {
    let backend = "terraform {\n  backend \"http\" { address = \"ADDRESS\" }\n}\n";
    let in_datastore = ["--name", "x", "--state", "datastore"];
    for (args, backend, more) in [
        (&["plan"][..], "", &in_datastore[..]),
        (&["destroy"], "", &in_datastore),
        (&["plan"], backend, &["--name", "x"]),
        (&["destroy"], backend, &["--name", "x"]),
    ] {
        let datastore = TestDatastore::memory().await;
        let sandbox = Sandbox::new(crate::RUNNER);
        let backend = backend.replace("ADDRESS", &address(&datastore.url));
        sandbox.write("main.tf", &format!("{backend}resource \"terraform_data\" \"a\" {{}}\n"));
        let run = |args: &[&str]| sandbox.run_with(&datastore.url, &[args, more].concat());
        assert_eq!(run(&["apply", "--no-plan"]).code, 0);
        let real = support::on_path("terraform").unwrap();
        let kill = format!(
            "#!/bin/sh\n[ \"$1\" = init ] && kill -9 $PPID && exit 1\nexec {} \"$@\"\n",
            real.display()
        );
        sandbox.script("terraform", &kill);
        run(&["apply", "--no-plan"]);
        std::fs::remove_file(sandbox.path("bin/terraform")).unwrap();
        let ended = run(args);
        assert!([0, 3].contains(&ended.code), "{args:?}: {}", ended.stderr);
        assert!(ended.stderr.contains("was killed: its lease is released"), "{}", ended.stderr);
    }
}
