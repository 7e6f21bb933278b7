//! Whether the state is locked after the tool was killed.

use std::time::{Duration, Instant};

use support::{Ended, Sandbox, eventually, has_ended};

use crate::state_server::StateServer;
use crate::{RUNNER, json};

/// A module whose apply kills terraform, after it has copied the state.
fn deadly(backend: &str) -> String {
    format!(
        "{backend}\nresource \"terraform_data\" \"first\" {{}}\n\
         resource \"terraform_data\" \"deadly\" {{\n  count = fileexists(\"deadly\") ? 1 : 0\n  \
         depends_on = [terraform_data.first]\n  provisioner \"local-exec\" {{\n    \
         command = \"touch killed; test ! -e terraform.tfstate || cp terraform.tfstate before; kill -9 $PPID\"\n  }}\n}}\n"
    )
}

/// Applies twice. The second apply is killed.
fn killed(sandbox: &Sandbox, backend: &str) -> Ended {
    sandbox.write("main.tf", &deadly(backend));
    let apply = ["apply", "--no-plan", "--again", "--result", "result.json"];
    let first = sandbox.run(&apply);
    assert_eq!(first.code, 0, "{}{}", first.stdout, first.stderr);
    sandbox.write("deadly", "");
    let ended = sandbox.run(&apply);
    assert_eq!(ended.code, 1, "{}{}", ended.stdout, ended.stderr);
    assert!(ended.stderr.contains("terraform apply was killed by SIGKILL"), "{}", ended.stderr);
    ended
}

fn state_lock(sandbox: &Sandbox) -> String {
    let report = json(sandbox.read("result.json").as_bytes());
    report["state_lock"].as_str().unwrap().to_owned()
}

#[test]
fn lock_of_a_local_state_is_free_and_its_bytes_stay() {
    let sandbox = Sandbox::new(RUNNER);
    let ended = killed(&sandbox, "");
    assert!(
        ended.stderr.contains("; the lock of the state is free; it is not known how these ended: "),
        "{}",
        ended.stderr
    );
    assert_eq!(state_lock(&sandbox), "free");
    assert_eq!(sandbox.read("before"), sandbox.read("terraform.tfstate"));
    assert!(!sandbox.work().join(".terraform.tfstate.lock.info").exists());
}

#[test]
fn lock_that_a_killed_tool_has_left_is_named_by_the_id_of_the_server() {
    let (backend, configuration) = StateServer::start();
    let sandbox = Sandbox::new(RUNNER);
    let ended = killed(&sandbox, &configuration);
    let contents = backend.contents();
    let held = json(contents.lock.as_deref().unwrap());
    let id = held["ID"].as_str().unwrap();
    for words in [
        format!(
            "; the state is locked: held by another process (lock ID {id}); it is not known how"
        ),
        format!(
            "and the state is still locked: compare both, then unlock it with `terraform force-unlock {id}`"
        ),
    ] {
        assert!(ended.stderr.contains(&words), "{words}: {}", ended.stderr);
    }
    assert_eq!(state_lock(&sandbox), "held");
}

#[test]
fn free_lock_of_a_server_is_taken_and_freed_and_nothing_is_written() {
    let (backend, configuration) = StateServer::start();
    backend.contents().forgets_locks = true;
    let sandbox = Sandbox::new(RUNNER);
    let ended = killed(&sandbox, &configuration);
    assert!(
        ended.stderr.contains("; the lock of the state is free; it is not known how these ended: "),
        "{}",
        ended.stderr
    );
    assert_eq!(state_lock(&sandbox), "free");
    let methods = backend.contents().seen.join(" ");
    assert!(methods.ends_with("LOCK GET UNLOCK"), "{methods}");
}

/// The command gets one SIGINT after 10 s, and is left alone: it may hold the lock.
#[test]
fn hanging_probe_is_interrupted_once_and_not_killed() {
    let sandbox = Sandbox::new(RUNNER).hello();
    let (heard, go, pid) = (sandbox.path("heard"), sandbox.path("go"), sandbox.path("pid"));
    let sandbox = sandbox.fake_terraform(&format!(
        "[ $STEP = apply ] && kill -9 $$\n\
         if [ $STEP = untaint ]; then echo $$ > {pid}; trap 'echo INT >> {heard}' INT
           i=0; while [ ! -e {go} ] && [ $i -lt 600 ]; do i=$((i + 1)); sleep 0.1; done; fi",
        heard = heard.display(),
        go = go.display(),
        pid = pid.display()
    ));
    let started = Instant::now();
    let ended = sandbox.run(&["apply", "--no-plan", "--result", "result.json"]);
    assert_eq!(ended.code, 1, "{}", ended.stderr);
    assert!(started.elapsed() < Duration::from_secs(40), "{:?}", started.elapsed());
    assert_eq!(state_lock(&sandbox), "unknown");
    let pid = std::fs::read_to_string(pid).unwrap().trim().parse().unwrap();
    assert!(!has_ended(pid), "it was killed");
    assert_eq!(std::fs::read_to_string(heard).unwrap(), "INT\n");
    std::fs::write(go, "").unwrap();
    eventually("it has ended", || has_ended(pid));
}

#[test]
fn lock_is_probed_after_a_signal_only_if_time_is_left() {
    for (grace, lock) in [("10s", "unknown"), ("60s", "free")] {
        let sandbox = Sandbox::new(RUNNER).hello();
        let started = sandbox.path("started");
        let sandbox = sandbox.fake_terraform(&format!(
            "if [ $STEP = apply ]; then trap 'kill -9 $$' INT; touch {}; sleep 60 & wait; fi",
            started.display()
        ));
        let args = ["apply", "--no-plan", "--result", "result.json", "--grace", grace];
        let runner = sandbox.start(None, &args);
        eventually("apply runs", || started.exists());
        runner.signal("TERM");
        let ended = runner.wait();
        assert_eq!(state_lock(&sandbox), lock, "{grace}: {}", ended.stderr);
        let probes = sandbox.calls().iter().filter(|call| call.starts_with("untaint")).count();
        assert_eq!(probes, usize::from(lock == "free"), "{grace}");
    }
}
