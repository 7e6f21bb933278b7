//! `runner check`: it plans without the lock of the state, applies nothing, and records the status of the layer.

use support::Ended;

use crate::real_layer::{CODE, Layer};

impl Layer {
    fn check(&self, args: &[&str]) -> (u8, String, Ended) {
        let ended = self.run(&[&["check"], args].concat());
        let status = self.result()["check"]["status"].as_str().unwrap_or_default().to_owned();
        (u8::try_from(ended.code).unwrap(), status, ended)
    }

    /// Has another run change the state after each of the first plans.
    fn move_state(&self, plans: u32) {
        let real = support::on_path("terraform").unwrap();
        let script = format!(
            r#"#!/bin/sh
{real} "$@" || exit
[ "$1" = plan ] || exit 0
echo >> moves
[ $(wc -l < moves) -gt {plans} ] || sed -i "s/\"serial\": [0-9]*/\"serial\": 9$(wc -l < moves)/" terraform.tfstate
"#,
            real = real.display()
        );
        self.sandbox.script("terraform", &script);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn each_status_has_its_exit_code_and_nothing_is_applied() {
    let layer = Layer::new().await;
    let is = |args: &[&str], code: u8, status: &str| {
        let (found, found_status, ended) = layer.check(args);
        assert_eq!((found, &*found_status), (code, status), "{}", ended.stderr);
        assert!(ended.stderr.contains(&format!("status: {status}")), "{}", ended.stderr);
    };
    is(&[], 0, "absent");
    is(&["--detailed-exitcode"], 2, "absent");
    assert!(!layer.sandbox.work().join("module/terraform.tfstate").exists());
    assert_eq!(layer.run(&["apply", "--no-plan"]).code, 0);
    is(&["--detailed-exitcode"], 0, "ok");
    assert_eq!(layer.status().await["status"], "ok");
    layer.write(&CODE.replace("input = 1", "input = 2"));
    is(&[], 0, "changed");
    is(&["--detailed-exitcode"], 2, "changed");
    layer.write("resource \"terraform_data\" \"a\" { input = 1 }\n");
    is(&[], 3, "destructively_changed");
    let status = layer.status().await;
    assert_eq!(status["changes"][0]["address"], "terraform_data.b");
    assert_eq!(status["counts"]["delete"], 1);
    assert!(status["approval"].is_string(), "{status}");
    layer.write("");
    is(&[], 3, "abandoned");
    assert_eq!(layer.objects(), ["a", "b"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_check_does_not_take_the_lock_of_the_state() {
    let layer = Layer::new().await;
    let sandbox = &layer.sandbox;
    let ended = layer.run(&["check"]);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    let lock = "{\"ID\":\"11111111-1111-1111-1111-111111111111\",\"Operation\":\"apply\",\"Who\":\"someone\"}";
    assert_eq!(layer.run(&["apply", "--no-plan"]).code, 0);
    sandbox.write("module/.terraform.tfstate.lock.info", lock);
    let held = std::fs::File::open(sandbox.work().join("module/terraform.tfstate")).unwrap();
    held.lock().unwrap();
    let (code, status, ended) = layer.check(&[]);
    assert_eq!((code, &*status), (0, "ok"), "{}", ended.stderr);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_check_keeps_the_status_until_enough_have_failed() {
    let layer = Layer::applied().await;
    assert_eq!(layer.run(&["check"]).code, 0);
    // A server that never answers.
    let server = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = server.local_addr().unwrap();
    layer.write(&format!(
        "data \"terraform_remote_state\" \"x\" {{\n  backend = \"http\"\n  config  = {{ address = \"http://{address}/state\" }}\n}}\n"
    ));
    for (number, expected) in [(1, "ok"), (2, "ok"), (3, "error"), (4, "error")] {
        let ended = layer.run(&["check", "--step-timeout", "2s", "--grace", "1s"]);
        assert_eq!(ended.code, 11, "{}", ended.stderr);
        let status = layer.status().await;
        assert_eq!(status["status"], expected, "{number}");
        assert_eq!(
            (&status["failed_in_a_row"], &status["class"]),
            (&number.into(), &"timeout".into())
        );
        assert_eq!(status["runs_by_class"]["timeout"], number);
    }
    layer.write("resource \"terraform_data\" \"a\" {");
    let ended = layer.run(&["check"]);
    assert_eq!(ended.code, 8, "{}", ended.stderr);
    layer.write(CODE);
    assert_eq!(layer.run(&["check"]).code, 0);
    let status = layer.status().await;
    assert_eq!((&status["status"], &status["failed_in_a_row"]), (&"ok".into(), &0.into()));
    layer.write("resource \"terraform_data\" \"a\" {");
    assert_eq!(layer.run(&["check"]).code, 8);
    assert_eq!(layer.status().await["status"], "error", "a failure that stays is an error at once");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_check_of_a_part_keeps_the_status_of_the_layer() {
    let layer = Layer::applied().await;
    assert_eq!(layer.run(&["check"]).code, 0);
    layer.write("resource \"terraform_data\" \"a\" { input = 1 }\n");
    for part in [&["check", "--target", "terraform_data.a"][..], &["check", "--", "-refresh-only"]]
    {
        layer.run(part);
        assert_eq!(layer.status().await["status"], "ok", "{part:?}");
    }
    let (code, status, ended) = layer.check(&["--approval-lifetime", "1h"]);
    assert_eq!((code, &*status), (3, "destructively_changed"), "{}", ended.stderr);
    let expires = layer.result()["check"]["approval_expires"].as_str().unwrap().to_owned();
    let expires = expires.parse::<jiff::Timestamp>().unwrap();
    let left = expires.duration_since(jiff::Timestamp::now()).as_secs();
    assert!((3000..=3600).contains(&left), "{left}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_converge_of_a_part_does_not_say_that_the_layer_is_as_declared() {
    let layer = Layer::new().await;
    let converged = layer.run(&["converge", "--target", "terraform_data.a"]);
    assert_eq!(converged.code, 0, "{}", converged.stderr);
    assert_eq!(layer.objects(), ["a"]);
    let stored =
        layer.datastore.url.join("api/documents?namespace=default&layer=x&name=status.json");
    assert_eq!(reqwest::get(stored.unwrap()).await.unwrap().status().as_u16(), 404);
    // A word that only looks like an option.
    let mut check = layer.sandbox.command(&["check", "--path", "module", "--name", "x"]);
    check.env("PLANCHA_DATASTORE_URL", layer.datastore.url.as_str());
    let ended = check.env("TF_CLI_ARGS_plan", "-var=blue-target=1").output().unwrap();
    assert_ne!(ended.status.code(), Some(0), "there is no such variable");
    assert_eq!(layer.status().await["status"], "error");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_check_is_never_the_plan_that_an_apply_finds() {
    let layer = Layer::new().await;
    assert_eq!(layer.run(&["check", "--run", "looked"]).code, 0);
    let ended = layer.run(&["apply"]);
    assert_eq!(ended.code, 8, "{}", ended.stderr);
    let ended = layer.run(&["apply", "--plan", "looked"]);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_state_that_changes_during_the_plan_is_planned_once_more_and_then_an_error() {
    let layer = Layer::applied().await;
    layer.move_state(1);
    let (code, status, ended) = layer.check(&[]);
    assert_eq!((code, &*status), (0, "ok"), "{}", ended.stderr);
    assert!(ended.stderr.contains("planning again"), "{}", ended.stderr);

    let layer = Layer::applied().await;
    layer.move_state(9);
    let (code, _, ended) = layer.check(&[]);
    assert_eq!(code, 4, "{}", ended.stderr);
    assert_eq!(layer.result()["class"], "lock");
}
