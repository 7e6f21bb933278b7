//! A state in the datastore, with which the tool works under the lease.

use support::{Sandbox, TestDatastore, eventually, wait_for};

use super::layers::{
    BACKEND, LONG, SHORT, SLOW, address, apply, finish, lease, machine, start, states,
};

const KINDS: [&str; 5] = ["state", "lease", "plan", "log", "artifact"];

#[tokio::test(flavor = "multi_thread")]
async fn tool_gets_the_credential_and_no_token() {
    let (datastore, [token]) = TestDatastore::hasty_with_tokens(LONG, [&KINDS]).await;
    let sandbox = machine(BACKEND);
    std::fs::write(sandbox.path("token"), &token).unwrap();
    let mut command = apply(&sandbox, &datastore.url, &["--run", "first"]);
    command.env("PLANCHA_TOKEN_FILE", sandbox.path("token"));
    // As the user of that backend has set them.
    command.env("TF_HTTP_PASSWORD", &token);
    let ended = command.output().unwrap();
    assert_eq!(ended.status.code(), Some(0), "{ended:?}");
    let variables = sandbox.read("env.txt");
    assert!(variables.contains("TF_HTTP_PASSWORD=plancha-lease-"), "{variables}");
    assert!(variables.contains("TF_HTTP_RETRY_MAX="), "{variables}");
    assert!(!variables.contains(&token) && !variables.contains("PLANCHA_TOKEN"), "{variables}");
    let credential = variables.lines().find_map(|line| line.strip_prefix("TF_HTTP_PASSWORD="));
    let (output, errors) = (&ended.stdout, &ended.stderr);
    for shown in [output, errors] {
        assert!(!String::from_utf8_lossy(shown).contains(credential.unwrap()));
    }
    let states = states(&datastore, &token, "").await;
    let version = &states["head"]["version"];
    assert_eq!((&version["run"], &version["fence"]), (&"first/0".into(), &1.into()), "{states}");
    assert_eq!(version["tool"]["name"], "terraform");
    assert_eq!(states["head"]["lock"], serde_json::Value::Null);
}

/// An apply of hours, whose token is valid for minutes.
#[tokio::test(flavor = "multi_thread")]
async fn state_is_saved_although_the_token_of_the_runner_has_expired() {
    let (datastore, [token]) = TestDatastore::hasty_with_tokens(SHORT, [&KINDS]).await;
    let sandbox = machine(BACKEND);
    std::fs::write(sandbox.path("token"), &token).unwrap();
    let mut command = apply(&sandbox, &datastore.url, &[]);
    command.env("PLANCHA_TOKEN_FILE", sandbox.path("token")).env("TF_HTTP_PASSWORD", &token);
    let running = start(&sandbox, command);
    std::fs::write(sandbox.path("token"), "expired").unwrap();
    let renewed = lease(&datastore, &token).await["renewed"].clone();
    tokio::time::sleep(2 * SHORT).await;
    let now = lease(&datastore, &token).await;
    assert!(now["valid"] == true && now["renewed"] != renewed, "the credential renews it: {now}");
    finish(&sandbox);
    let ended = running.wait();
    // The record of the apply could not be stored.
    assert_eq!(ended.code, 10, "{}", ended.stderr);
    assert!(ended.stdout.contains("Apply complete!"), "{}", ended.stdout);
    let states = states(&datastore, &token, "").await;
    assert_eq!(states["head"]["version"]["serial"], 1, "{states}");
}

#[tokio::test(flavor = "multi_thread")]
async fn stored_plan_is_applied_under_the_lease_whatever_the_block_names() {
    for block in ["", "address", "address lock_address unlock_address"] {
        let (datastore, [token]) = TestDatastore::hasty_with_tokens(LONG, [&KINDS]).await;
        let sandbox = Sandbox::new(crate::RUNNER);
        let address = address(&datastore.url);
        let settings = block.split_whitespace();
        let settings = settings.map(|name| format!("    {name} = \"{address}\"\n"));
        let settings = settings.collect::<String>();
        sandbox.write(
            "main.tf",
            &format!("terraform {{\n  backend \"http\" {{\n{settings}  }}\n}}\n{SLOW}"),
        );
        let run = |args: &[&str]| {
            let mut command = sandbox.command(args);
            command.env("PLANCHA_DATASTORE_URL", datastore.url.as_str());
            command.env("PLANCHA_TOKEN", &token);
            command.env("TF_HTTP_USERNAME", "me").env("TF_HTTP_PASSWORD", &token);
            if block.is_empty() {
                command.env("TF_HTTP_ADDRESS", &address);
            }
            command.output().unwrap()
        };
        let planned = run(&["plan", "--name", "x"]);
        assert_eq!(planned.status.code(), Some(0), "{block}: {planned:?}");
        let applied = run(&["apply", "--name", "x"]);
        assert_eq!(applied.status.code(), Some(0), "{block}: {applied:?}");
        let states = states(&datastore, &token, "").await;
        assert_eq!(states["head"]["version"]["fence"], 1, "{block}: {states}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn state_of_a_backend_block_is_destroyed_under_the_lease() {
    let datastore = TestDatastore::hasty(LONG).await;
    let sandbox = machine(BACKEND);
    let run = |args: &[&str]| {
        let mut command = sandbox.command(&[args, &["--name", "x"]].concat());
        command.env("PLANCHA_DATASTORE_URL", datastore.url.as_str());
        command.env("TF_HTTP_ADDRESS", address(&datastore.url));
        support::Ended::from(command.output().unwrap())
    };
    for approved in [false, true] {
        assert_eq!(run(&["apply", "--no-plan"]).code, 0);
        let ended = if approved {
            let planned = run(&["destroy"]);
            assert_eq!(planned.code, 3, "{}", planned.stderr);
            let digest = planned.stderr.split("--approve ").nth(1).unwrap();
            run(&["destroy", "--approve", digest.split_whitespace().next().unwrap()])
        } else {
            run(&["destroy", "--auto-approve"])
        };
        assert_eq!(ended.code, 0, "{}", ended.stderr);
        let states = states(&datastore, "-", "").await;
        assert_eq!(states["head"]["version"]["resources"], 0, "{states}");
        assert_eq!(lease(&datastore, "-").await, serde_json::Value::Null);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn lease_of_this_run_that_locks_its_tool_is_explained() {
    let datastore = TestDatastore::hasty(LONG).await;
    let sandbox = machine(BACKEND);
    // The same datastore by another name.
    let mut url = datastore.url.clone();
    url.set_host(Some("localhost")).unwrap();
    let mut command = apply(&sandbox, &datastore.url, &[]);
    for name in ["TF_HTTP_ADDRESS", "TF_HTTP_LOCK_ADDRESS", "TF_HTTP_UNLOCK_ADDRESS"] {
        command.env(name, address(&url));
    }
    let ended = support::Ended::from(command.output().unwrap());
    assert_eq!(ended.code, 8, "{}", ended.stderr);
    assert!(ended.stderr.contains("the lease of this run itself"), "{}", ended.stderr);
}

#[tokio::test(flavor = "multi_thread")]
async fn lease_is_that_of_the_layer_whose_state_it_is() {
    let datastore = TestDatastore::hasty(LONG).await;
    let sandbox = machine(BACKEND);
    let mut command = apply(&sandbox, &datastore.url, &[]);
    command.env("TF_HTTP_ADDRESS", datastore.url.join("api/state/other/y/blue").unwrap().as_str());
    let running = start(&sandbox, command);
    assert_eq!(lease(&datastore, "-").await, serde_json::Value::Null);
    let of_state = async || {
        let url = datastore.url.join("api/leases/other/y").unwrap();
        reqwest::get(url).await.unwrap().status().as_u16()
    };
    assert_eq!(of_state().await, 200);
    finish(&sandbox);
    let ended = running.wait();
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    assert_eq!(of_state().await, 404);
}

/// The workspace of the tool is another one: the backend has none.
#[tokio::test(flavor = "multi_thread")]
async fn credential_is_for_the_workspace_of_the_address() {
    let (datastore, [token]) = TestDatastore::hasty_with_tokens(LONG, [&KINDS]).await;
    let sandbox = machine(BACKEND);
    let mut command = apply(&sandbox, &datastore.url, &[]);
    let blue = datastore.url.join("api/state/default/x/blue").unwrap();
    command.env("TF_HTTP_ADDRESS", blue.as_str());
    command.env("PLANCHA_TOKEN", &token).env("TF_HTTP_PASSWORD", &token);
    let ended = command.output().unwrap();
    assert_eq!(ended.status.code(), Some(0), "{ended:?}");
    assert!(sandbox.read("env.txt").contains("TF_HTTP_PASSWORD=plancha-lease-"));
    let states = states(&datastore, &token, "&workspace=blue").await;
    assert_eq!(states["head"]["version"]["fence"], 1, "{states}");
    assert_eq!(lease(&datastore, &token).await, serde_json::Value::Null);
}

#[tokio::test(flavor = "multi_thread")]
async fn backend_with_a_password_of_its_own_is_refused() {
    let (datastore, [token]) = TestDatastore::hasty_with_tokens(LONG, [&KINDS]).await;
    let sandbox = Sandbox::new(crate::RUNNER);
    let address = address(&datastore.url);
    sandbox.write(
        "main.tf",
        &format!(
            "terraform {{\n  backend \"http\" {{\n    address = \"{address}\"\n    password = \"{token}\"\n  }}\n}}\n{SLOW}"
        ),
    );
    let mut command = apply(&sandbox, &datastore.url, &[]);
    let ended = command.env("PLANCHA_TOKEN", &token).output().unwrap();
    assert_eq!(ended.status.code(), Some(8), "{ended:?}");
    let errors = String::from_utf8_lossy(&ended.stderr).into_owned();
    assert!(errors.contains("sets `password`"), "{errors}");
    assert!(!sandbox.work().join("started").exists());
}

/// Only a lock of the same number is that of this run.
#[tokio::test(flavor = "multi_thread")]
async fn lease_waits_for_no_lock_of_a_plan() {
    let datastore = TestDatastore::hasty(LONG).await;
    let sandbox = machine(BACKEND);
    let lock = serde_json::json!({"ID": "of-a-person", "Who": "alice@her-machine"});
    let url = address(&datastore.url);
    let send = async |method: &[u8]| {
        let method = reqwest::Method::from_bytes(method).unwrap();
        let request = reqwest::Client::new().request(method, &url).body(lock.to_string());
        assert!(request.send().await.unwrap().status().is_success());
    };
    send(b"LOCK").await;
    let ended = apply(&sandbox, &datastore.url, &[]).output().unwrap();
    assert_eq!(ended.status.code(), Some(4), "{ended:?}");
    assert!(String::from_utf8_lossy(&ended.stderr).contains("alice@her-machine"), "{ended:?}");
    send(b"UNLOCK").await;
    let running = start(&sandbox, apply(&sandbox, &datastore.url, &[]));
    wait_for("the state is locked", async || {
        let states = states(&datastore, "-", "").await;
        (states["head"]["lock"]["fence"] == 1).then_some(())
    })
    .await;
    finish(&sandbox);
    assert_eq!(running.wait().code, 0);
    eventually("nothing is left", || sandbox.is_clean());
}
