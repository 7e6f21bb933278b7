//! What an earlier apply has created is compared with the state only where that may lack it.

use support::{Ended, Fault, FaultyDatastore, TestDatastore, eventually};

use super::earlier_creates::{FAILING, LEASE, Layer, UNPLANNED};

/// The tainted object is in the state: it is replaced.
#[tokio::test(flavor = "multi_thread")]
async fn failed_creation_whose_state_was_saved_is_made_again() {
    let datastore = TestDatastore::hasty(LEASE).await;
    let (url, layer) = (&datastore.url, Layer::with(FAILING));
    assert_eq!(layer.run(url, &UNPLANNED).code, 1);
    layer.sandbox.write("works", "");
    let ended = layer.run_elsewhere(url, &UNPLANNED);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
}

/// The state has another object of the resource, whose key has characters that some versions of the tool escape.
#[tokio::test(flavor = "multi_thread")]
async fn killed_creation_is_found_beside_an_object_with_an_unusual_key() {
    let keys = "  for_each = toset(split(\",\", file(\"${path.module}/keys\")))";
    for unusual in ["*.example.com", "$${x}"] {
        let datastore = TestDatastore::hasty(LEASE).await;
        let (url, layer) = (&datastore.url, Layer::with(keys));
        layer.sandbox.write("keys", unusual);
        assert_eq!(layer.run(url, &["apply", "--no-plan", "--run", "first"]).code, 0);
        layer.sandbox.write("keys", &format!("{unusual},new"));
        layer.killed(&datastore, &UNPLANNED).await;
        let ended = layer.run_elsewhere(url, &UNPLANNED);
        assert_eq!((ended.code, layer.created()), (9, 2), "{}", ended.stderr);
        assert!(ended.stderr.contains("terraform_data.a[\"new\"] may exist"), "{}", ended.stderr);
    }
}

/// By then the object has another address, or belongs to nobody. The runner has pushed a state that was refused once.
#[tokio::test(flavor = "multi_thread")]
async fn saved_object_that_was_moved_or_forgotten_is_no_reason_to_refuse() {
    let main = "resource \"terraform_data\" \"x\" {}\n";
    let failing = "resource \"terraform_data\" \"z\" {\n  provisioner \"local-exec\" {\n    command = \"[ -e works ]\"\n  }\n}\n";
    let changes = [
        "resource \"terraform_data\" \"y\" {}\nmoved {\n  from = terraform_data.x\n  to = terraform_data.y\n}\n",
        "removed {\n  from = terraform_data.x\n  lifecycle {\n    destroy = false\n  }\n}\n",
    ];
    for (change, refusals) in [(changes[0], 0), (changes[1], 0), (changes[0], 1)] {
        let datastore = TestDatastore::hasty(LEASE).await;
        let (url, layer) = (&datastore.url, Layer::new());
        layer.sandbox.write("more.tf", &format!("{main}{failing}"));
        layer.states.refuse("POST", 503, refusals);
        assert_eq!(layer.run(url, &UNPLANNED).code, 1);
        layer.sandbox.write("more.tf", &format!("{change}{failing}"));
        assert_eq!(layer.run(url, &UNPLANNED).code, 1);
        layer.sandbox.write("works", "");
        let ended = layer.run_elsewhere(url, &UNPLANNED);
        assert_eq!((ended.code, layer.created()), (0, 1), "{}", ended.stderr);
    }
}

/// The object is in no state that can be read.
#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_presumed_to_be_in_a_state_that_cannot_be_read() {
    let datastore = TestDatastore::hasty(LEASE).await;
    let (url, layer) = (&datastore.url, Layer::new());
    layer.states.refuse("POST", 403, usize::MAX);
    assert_eq!(layer.run(url, &UNPLANNED).code, 1);
    layer.states.contents().faults.clear();
    std::fs::remove_file(layer.sandbox.work().join("errored.tfstate")).unwrap();
    let mut command = layer.sandbox.command(&[&UNPLANNED[..], &["--name", "x"]].concat());
    command.env("PLANCHA_DATASTORE_URL", url.as_str()).env("TF_CLI_ARGS_state_pull", "-bogus");
    let home = layer.sandbox.path("home2");
    let ended = Ended::from(command.env("HOME", &home).env("TMPDIR", &home).output().unwrap());
    assert_eq!((ended.code, layer.created()), (9, 1), "{}", ended.stderr);
    let words = "what the state has is not known: terraform state pull failed";
    assert!(ended.stderr.contains(words), "{}", ended.stderr);
}

/// These arguments are valid for plan and apply, and not for the other commands that a run needs.
#[tokio::test(flavor = "multi_thread")]
async fn arguments_of_every_command_reach_only_the_commands_of_the_user() {
    let datastore = TestDatastore::hasty(LEASE).await;
    let (url, layer) = (&datastore.url, Layer::new());
    let run = |args: &[&str]| {
        let mut command = layer.sandbox.command(&[args, &["--name", "x"]].concat());
        command.env("PLANCHA_DATASTORE_URL", url.as_str()).env("TF_CLI_ARGS", "-input=false");
        Ended::from(command.output().unwrap())
    };
    let planned = run(&["plan", "--run", "p"]);
    assert_eq!(planned.code, 0, "{}", planned.stderr);
    // The state is pushed at the end.
    layer.states.refuse("POST", 503, 1);
    let applied = run(&["apply", "--run", "a", "--plan", "p"]);
    assert!(applied.stderr.contains("pushed"), "{}", applied.stderr);
    assert_eq!(run(&["plan", "--detailed-exitcode"]).code, 0);
}

/// A wrapper hides that its tool is killed at the signal, which only the wrapper gets.
#[tokio::test(flavor = "multi_thread")]
async fn tool_that_crashes_after_a_signal_has_not_saved_its_state() {
    for code in ["0", "1", "11"] {
        let datastore = TestDatastore::hasty(LEASE).await;
        let (url, layer) = (&datastore.url, Layer::new());
        layer.sandbox.write(
        "more.tf",
        r#"resource "terraform_data" "z" {
             depends_on = [terraform_data.a]
             provisioner "local-exec" { command = "touch begun; while [ -e hold2 ]; do sleep 0.05; done" }
           }"#,
    );
        let terraform = support::on_path("terraform").unwrap().display().to_string();
        let wrapper = r#"#!/bin/sh
case "$1" in apply) ;; *) exec TOOL "$@";; esac
setsid TOOL "$@" & pid=$!
trap 'kill -9 $pid; exit CODE' INT
wait $pid
"#;
        layer
            .sandbox
            .script("terraform", &wrapper.replace("TOOL", &terraform).replace("CODE", code));
        let order = [&UNPLANNED[..], &["--name", "x"]].concat();
        layer.sandbox.write("hold2", "");
        let runner = layer.sandbox.start(Some(url), &order);
        let begun = layer.sandbox.work().join("begun");
        eventually("the first object is complete", || begun.exists());
        runner.signal("TERM");
        let ended = runner.wait();
        assert_eq!(ended.code, 143, "{}", ended.stderr);
        std::fs::remove_file(layer.sandbox.work().join("hold2")).unwrap();
        layer.states.contents().lock = None;
        let ended = layer.run_elsewhere(url, &UNPLANNED);
        assert_eq!((ended.code, layer.created()), (9, 1), "{}", ended.stderr);
        assert!(
            ended.stderr.contains("terraform_data.a, terraform_data.z may"),
            "{}",
            ended.stderr
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn message_names_each_run_that_may_have_created_something() {
    let keys = "  for_each = toset(split(\",\", file(\"${path.module}/keys\")))";
    let datastore = TestDatastore::hasty(LEASE).await;
    let (url, layer) = (&datastore.url, Layer::with(keys));
    layer.sandbox.write("keys", "b");
    layer.killed(&datastore, &UNPLANNED).await;
    layer.sandbox.write("keys", "a");
    layer.killed(&datastore, &[&UNPLANNED[..], &["--again"]].concat()).await;
    let ended = layer.run_elsewhere(url, &UNPLANNED);
    assert_eq!(ended.code, 9, "{}", ended.stderr);
    let words = "an apply of this run (u/0, u/1) has started";
    assert!(ended.stderr.contains(words), "{}", ended.stderr);
}

/// The ledger was written, and could not be stored: it waits for `runner upload`.
#[tokio::test(flavor = "multi_thread")]
async fn ledger_that_was_kept_counts_like_a_stored_one() {
    for more in [&[][..], &["--spool-dir", "spool"]] {
        let (datastore, layer) = (TestDatastore::hasty(LEASE).await, Layer::new());
        let order = [&UNPLANNED[..], &["--datastore-timeout", "10s"], more].concat();
        let failing = FaultyDatastore::before(&datastore.url, Vec::new()).await;
        let runner = layer.creating(&failing.url, &order);
        let fault = |method| Fault { method, part: "", status: 503, times: usize::MAX };
        failing.set_faults(["GET", "HEAD", "PUT", "POST"].map(fault).to_vec());
        let ended = layer.kill_tool(runner);
        assert_eq!(ended.code, 1, "{}", ended.stderr);
        failing.set_faults(Vec::new());
        let ended = layer.run(&failing.url, &[&UNPLANNED[..], more].concat());
        assert_eq!((ended.code, layer.created()), (9, 1), "{}", ended.stderr);
        assert!(ended.stderr.contains("terraform_data.a may exist"), "{}", ended.stderr);
    }
}
