//! A state that its backend refused is stored, and pushed again, with a real tool and a backend that recovers or does not.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use support::{Ended, Fault, FaultyDatastore, Sandbox, TestDatastore, eventually};

use super::s3_server::S3Server;
use crate::run::apply_once::lost_everything;
use crate::state_server::{Contents, StateServer};
use crate::stored_run::StoredRun;
use crate::{RUNNER, json};

const ALWAYS: usize = usize::MAX;
const APPLY: [&str; 6] = ["apply", "--no-plan", "--name", "x", "--result", "result.json"];

/// A module in place whose one resource adds a line to the file `created`.
fn module() -> (Sandbox, StateServer) {
    let sandbox = Sandbox::new(RUNNER);
    let (server, backend) = StateServer::start();
    let resource = "resource \"terraform_data\" \"a\" {\n  provisioner \"local-exec\" {\n    \
         command = \"echo created >> created\"\n  }\n}\n";
    sandbox.write("main.tf", &format!("{backend}{resource}"));
    (sandbox, server)
}

fn created(sandbox: &Sandbox) -> usize {
    std::fs::read_to_string(sandbox.work().join("created")).unwrap_or_default().lines().count()
}

fn has_resource(server: &StateServer) -> bool {
    server.state()["resources"][0]["name"] == "a"
}

fn pushes(sandbox: &Sandbox) -> u64 {
    let report = json(sandbox.read("result.json").as_bytes());
    let steps = report["steps"].as_array().unwrap().iter();
    let mut pushes = steps.filter(|step| step["name"] == "state push");
    pushes.next().map_or(0, |step| step["attempts"].as_u64().unwrap())
}

fn copy(sandbox: &Sandbox, run: &str) -> PathBuf {
    let dir = format!("home/.local/state/plancha/unsent/default/x/{run}/0/errored.tfstate");
    sandbox.path(&dir)
}

/// The state is in the backend, nothing refuses the next apply, and that one creates nothing.
fn assert_pushed(sandbox: &Sandbox, server: &StateServer, ended: &Ended) {
    assert_eq!(ended.code, 1, "{}", ended.stderr);
    let last = ended.stderr.lines().last().unwrap();
    for text in
        ["the runner has pushed it, and the backend has it now", "next: everything that was"]
    {
        assert!(last.contains(text), "{text}: {last}");
    }
    assert!(has_resource(server));
    assert!(server.contents().lock.is_none(), "{}", ended.stderr);
    assert!(!sandbox.work().join("errored.tfstate").exists());
    let report = json(sandbox.read("result.json").as_bytes());
    assert_eq!(report["state_lock"], "free", "{report}");
    let next = sandbox.run(&APPLY);
    assert_eq!((next.code, created(sandbox)), (0, 1), "{}", next.stderr);
    assert!(sandbox.is_clean());
}

#[tokio::test(flavor = "multi_thread")]
async fn state_that_was_refused_once_is_stored_and_pushed() {
    let (sandbox, server) = module();
    let datastore = TestDatastore::memory().await;
    server.refuse("POST", 503, 1);
    let ended = sandbox.run_with(&datastore.url, &[&APPLY[..], &["--run", "r"]].concat());
    assert_pushed(&sandbox, &server, &ended);
    assert_eq!(pushes(&sandbox), 0, "of the second apply");
    assert!(!copy(&sandbox, "r").exists());
    let stored = StoredRun::new(&datastore, "default", "x", "r");
    let state = json(&stored.artifact("errored.tfstate", 0).await);
    assert_eq!(state["resources"][0]["name"], "a");
    let log = stored.log(0).await;
    assert!(log.contains("the runner has pushed the state"), "{log}");
    assert_eq!(json(&stored.artifact("run.json", 0).await)["outcome"], "failed");
}

#[test]
fn transient_errors_of_a_push_are_retried_and_others_are_not() {
    let (sandbox, server) = module();
    server.refuse("POST", 503, 3);
    let ended = sandbox.run(&APPLY);
    assert_eq!(pushes(&sandbox), 3, "{}", ended.stderr);
    assert!(ended.stderr.contains("state push failed: transient: "), "{}", ended.stderr);
    assert_pushed(&sandbox, &server, &ended);

    let (sandbox, server) = module();
    server.refuse("POST", 403, ALWAYS);
    let ended = sandbox.run(&[&APPLY[..], &["--run", "r"]].concat());
    assert_eq!((ended.code, pushes(&sandbox)), (1, 1), "{}", ended.stderr);
    let last = ended.stderr.lines().last().unwrap();
    let kept = copy(&sandbox, "r");
    for text in ["the runner did not push it: state push failed: auth: ", kept.to_str().unwrap()] {
        assert!(last.contains(text), "{text}: {last}");
    }
    assert!(kept.exists() && sandbox.work().join("errored.tfstate").exists());
    assert!(server.contents().lock.is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn state_is_stored_though_no_push_is_left() {
    let (sandbox, server) = module();
    let datastore = TestDatastore::memory().await;
    let name = "name=errored.tfstate";
    let fault = Fault { method: "PUT", part: name, status: 503, times: ALWAYS };
    let proxy = FaultyDatastore::before(&datastore.url, vec![fault]).await;
    server.refuse("POST", 503, ALWAYS);
    let args =
        [&APPLY[..], &["--run", "r", "--retries", "0", "--datastore-timeout", "10s"]].concat();
    let runner = sandbox.start(Some(&proxy.url), &args);
    tokio::task::block_in_place(|| {
        eventually("it has tried three uploads", || {
            proxy.seen().iter().filter(|of| of.contains(name)).count() > 2
        });
    });
    proxy.set_faults(Vec::new());
    let ended = tokio::task::block_in_place(|| runner.wait());
    assert_eq!(ended.code, 1, "{}", ended.stderr);
    let stored = StoredRun::new(&datastore, "default", "x", "r");
    let state = json(&stored.artifact("errored.tfstate", 0).await);
    assert_eq!(state["resources"][0]["name"], "a", "{}", ended.stderr);
}

/// The push that nothing follows may take minutes.
#[tokio::test(flavor = "multi_thread")]
async fn state_is_stored_after_the_last_push_if_the_datastore_is_back_by_then() {
    let (sandbox, server) = module();
    let datastore = TestDatastore::memory().await;
    let fault = Fault { method: "PUT", part: "name=errored.tfstate", status: 403, times: ALWAYS };
    let proxy = Arc::new(FaultyDatastore::before(&datastore.url, vec![fault]).await);
    let (url, seen) = (proxy.url.clone(), "POST");
    server.refuse(seen, 403, ALWAYS);
    // The tool's own request is the first one.
    server.contents().on_fault = Some(Box::new(move |contents: &mut Contents| {
        if contents.seen.iter().filter(|method| *method == seen).count() == 2 {
            proxy.set_faults(Vec::new());
        }
    }));
    let ended = sandbox.run_with(&url, &[&APPLY[..], &["--run", "r", "--grace", "1ms"]].concat());
    assert_eq!((ended.code, pushes(&sandbox)), (1, 1), "{}", ended.stderr);
    let stored = StoredRun::new(&datastore, "default", "x", "r");
    let state = json(&stored.artifact("errored.tfstate", 0).await);
    assert_eq!(state["resources"][0]["name"], "a", "{}", ended.stderr);
}

/// Credentials that have expired may be renewed.
#[tokio::test(flavor = "multi_thread")]
async fn state_that_nobody_takes_is_pushed_again_whatever_the_reason_is() {
    let (sandbox, server) = module();
    let datastore = TestDatastore::memory().await;
    let fault = Fault { method: "PUT", part: "name=errored.tfstate", status: 403, times: ALWAYS };
    let proxy = FaultyDatastore::before(&datastore.url, vec![fault]).await;
    // The tool's own request is the first one.
    server.refuse("POST", 403, 3);
    let ended = sandbox.run_with(&proxy.url, &[&APPLY[..], &["--run", "r"]].concat());
    assert_eq!(pushes(&sandbox), 3, "{}", ended.stderr);
    assert!(ended.stderr.contains("state push failed: auth: "), "{}", ended.stderr);
    assert_pushed(&sandbox, &server, &ended);
}

#[test]
fn lock_that_the_dead_tool_could_not_release_is_freed() {
    let (sandbox, server) = module();
    server.refuse("POST", 503, 1);
    server.refuse("UNLOCK", 503, 1);
    let ended = sandbox.run(&APPLY);
    assert!(ended.stderr.contains("whose tool has ended: it is freed"), "{}", ended.stderr);
    assert_pushed(&sandbox, &server, &ended);
}

#[test]
fn lock_of_another_process_is_not_freed() {
    let (sandbox, server) = module();
    server.refuse("UNLOCK", 503, 1);
    server.refuse("POST", 503, 1);
    let other =
        br#"{"ID":"11111111-2222-3333-4444-555555555555","Operation":"OperationTypeApply"}"#;
    // After the tool's last request.
    server.contents().on_fault = Some(Box::new(move |contents: &mut Contents| {
        if contents.seen.last().is_some_and(|method| method == "UNLOCK") {
            contents.lock = Some(other.to_vec());
        }
    }));
    let ended = sandbox.run(&APPLY);
    assert_eq!(ended.code, 1, "{}", ended.stderr);
    assert!(ended.stderr.contains("the lock is not freed, because "), "{}", ended.stderr);
    assert_eq!(server.contents().lock.as_deref(), Some(&other[..]));
    assert!(server.contents().state.is_none());
    assert!(sandbox.work().join("errored.tfstate").exists());
}

#[test]
fn state_replaces_neither_a_later_nor_another_one() {
    for (lineage, serial) in [(None, 9), (Some("another"), 1)] {
        let (sandbox, server) = module();
        let first = sandbox.run(&APPLY);
        assert_eq!(first.code, 0, "{}", first.stderr);
        std::fs::write(sandbox.work().join("b.tf"), "resource \"terraform_data\" \"b\" {}\n")
            .unwrap();
        server.refuse("POST", 503, 1);
        server.contents().on_fault = Some(Box::new(move |contents: &mut Contents| {
            let mut state = json(contents.state.as_deref().unwrap());
            state["serial"] = serial.into();
            if let Some(lineage) = lineage {
                state["lineage"] = lineage.into();
            }
            contents.state = Some(state.to_string().into_bytes());
        }));
        let ended = sandbox.run(&[&APPLY[..], &["--again"]].concat());
        assert_eq!((ended.code, pushes(&sandbox)), (1, 0), "{}", ended.stderr);
        assert!(
            ended.stderr.contains("the state is not pushed to its backend: the backend has "),
            "{}",
            ended.stderr
        );
        assert_eq!(server.state()["serial"], serial);
        assert!(sandbox.work().join("errored.tfstate").exists());
    }
}

#[test]
fn state_of_a_checkout_that_is_removed_is_pushed() {
    let (sandbox, server) = module();
    let code = sandbox.path("code");
    std::fs::create_dir(&code).unwrap();
    std::fs::rename(sandbox.work().join("main.tf"), code.join("main.tf")).unwrap();
    crate::source::checkout::git(&code, &["init", "--quiet"]);
    crate::source::checkout::git(&code, &["add", "."]);
    crate::source::checkout::git(&code, &["commit", "--quiet", "-m", "all"]);
    server.refuse("POST", 503, 1);
    let url = format!("file://{}", code.display());
    let ended = sandbox.run(&["apply", "--no-plan", &url, "--name", "x", "--run", "r"]);
    assert_eq!(ended.code, 1, "{}", ended.stderr);
    assert!(ended.stderr.contains("the backend has it now"), "{}", ended.stderr);
    assert!(has_resource(&server) && !copy(&sandbox, "r").exists() && sandbox.is_clean());
}

/// Waits until the runner has tried to push, and sends it a signal.
fn stopped_during_delivery(grace: &str, recovers: bool) -> (Sandbox, StateServer, Ended, Duration) {
    let (sandbox, server) = module();
    server.refuse("POST", 503, ALWAYS);
    let runner = sandbox.start(None, &[&APPLY[..], &["--run", "r", "--grace", grace]].concat());
    let tried = || server.contents().seen.iter().filter(|method| *method == "POST").count() >= 3;
    eventually("it pushes again", tried);
    runner.signal("TERM");
    let began = Instant::now();
    if recovers {
        std::thread::sleep(Duration::from_millis(500));
        server.contents().faults.clear();
    }
    let ended = runner.wait();
    (sandbox, server, ended, began.elapsed())
}

#[test]
fn delivery_goes_on_after_a_signal_until_the_grace_period_ends() {
    let (sandbox, _, ended, took) = stopped_during_delivery("6s", false);
    assert_ne!(ended.code, 0, "{}", ended.stderr);
    assert!(took > Duration::from_secs(2) && took < Duration::from_secs(25), "{took:?}");
    let last = ended.stderr.lines().last().unwrap();
    let kept = copy(&sandbox, "r");
    assert!(kept.exists() && last.contains(kept.to_str().unwrap()), "{last}");

    let (sandbox, server, ended, _) = stopped_during_delivery("60s", true);
    assert_pushed(&sandbox, &server, &ended);
}

/// Neither the backend nor the datastore takes the state.
#[tokio::test(flavor = "multi_thread")]
async fn state_that_is_delivered_nowhere_is_kept_and_named_in_the_last_line() {
    let (sandbox, server) = module();
    let datastore = TestDatastore::memory().await;
    let lossy: FaultyDatastore = lost_everything(&datastore).await;
    server.refuse("POST", 403, ALWAYS);
    let ended =
        sandbox.run_with(&lossy.url, &[&APPLY[..], &["--run", "r", "--grace", "3s"]].concat());
    assert_eq!(ended.code, 1, "{}", ended.stderr);
    let last = ended.stderr.lines().last().unwrap();
    assert!(last.contains(sandbox.work().join("errored.tfstate").to_str().unwrap()), "{last}");
    let state = json(&std::fs::read(copy(&sandbox, "r")).unwrap());
    assert_eq!(state["resources"][0]["name"], "a");
}

/// The tool has read the file with the old key once; each push reads it again.
#[test]
fn push_uses_credentials_that_were_renewed_during_the_apply() {
    let sandbox = Sandbox::new(RUNNER);
    let (server, backend) = S3Server::start("AKIANEW");
    let resource = "resource \"terraform_data\" \"a\" {\n  provisioner \"local-exec\" {\n    \
         command = \"cp ../new ../credentials\"\n  }\n}\n";
    sandbox.write("main.tf", &format!("{backend}{resource}"));
    for (file, key) in [("credentials", "AKIAOLD"), ("new", "AKIANEW")] {
        let text = format!("[default]\naws_access_key_id = {key}\naws_secret_access_key = s\n");
        std::fs::write(sandbox.path(file), text).unwrap();
    }
    let mut command = sandbox.command(&APPLY);
    command.env("AWS_SHARED_CREDENTIALS_FILE", sandbox.path("credentials"));
    let ended = Ended::from(command.output().unwrap());
    assert_eq!(ended.code, 1, "{}\n{}", ended.stdout, ended.stderr);
    assert!(ended.stdout.contains("ExpiredToken"), "{}", ended.stdout);
    assert!(ended.stderr.contains("the backend has it now"), "{}", ended.stderr);
    let state = json(&server.state().unwrap());
    assert_eq!(state["resources"][0]["name"], "a");
}
