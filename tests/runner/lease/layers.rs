//! What the tests of leases share: modules, two machines, and requests of another holder.

#![expect(clippy::disallowed_types, reason = "tests start the runner itself")]

use std::process::Command;
use std::time::Duration;

use serde_json::{Value, json};
use support::{Sandbox, Started, TestDatastore, eventually};
use url::Url;

use crate::RUNNER;

/// A lease that outlasts a test.
pub(super) const LONG: Duration = Duration::from_mins(5);
/// One that expires in it. It is renewed ten times before that.
pub(super) const SHORT: Duration = Duration::from_secs(2);

/// A resource whose creation writes its environment to `env.txt`, and waits as long as the file `wait` exists.
pub(super) const SLOW: &str = r#"
resource "terraform_data" "slow" {
  provisioner "local-exec" {
    # The signal goes to the whole group: without the trap, the apply may end before terraform says a word.
    command = "trap '' INT; env > env.txt; touch started; while [ -e wait ]; do sleep 0.1; done"
  }
}
"#;

/// A backend whose address and password come from the environment.
pub(super) const BACKEND: &str = "terraform {\n  backend \"http\" {}\n}\n";

/// A machine with the slow module, and with the backend in the datastore or a local state.
pub(super) fn machine(backend: &str) -> Sandbox {
    let sandbox = Sandbox::new(RUNNER);
    sandbox.write("main.tf", &format!("{backend}{SLOW}"));
    sandbox
}

/// The address of a state of the layer `default/x`.
pub(super) fn address(datastore: &Url) -> String {
    datastore.join("api/state/default/x").unwrap().to_string()
}

/// The runner's apply of the layer `default/x`, whose state is at the address if the module has that backend.
pub(super) fn apply(sandbox: &Sandbox, datastore: &Url, more: &[&str]) -> Command {
    let args = [&["apply", "--no-plan", "--name", "x"][..], more].concat();
    let mut command = sandbox.command(&args);
    command.env("PLANCHA_DATASTORE_URL", datastore.as_str());
    command.env("TF_HTTP_ADDRESS", address(datastore)).env("TF_HTTP_USERNAME", "me");
    command
}

/// Starts an apply, and waits until its resource is created. It goes on when `wait` is removed.
pub(super) fn start(sandbox: &Sandbox, command: Command) -> Started {
    sandbox.write("wait", "");
    let runner = Started::spawn(command);
    eventually("the resource is being created", || sandbox.work().join("started").exists());
    runner
}

/// Lets the resource of a started apply be created.
pub(super) fn finish(sandbox: &Sandbox) {
    std::fs::remove_file(sandbox.work().join("wait")).unwrap();
}

/// An answer of the datastore to a holder that is no runner: its status and JSON.
pub(super) async fn asked(
    datastore: &TestDatastore,
    method: reqwest::Method,
    rest: &str,
    token: &str,
    body: Value,
) -> (u16, Value) {
    let url = datastore.url.join(rest).unwrap();
    let request =
        reqwest::Client::new().request(method, url).bearer_auth(token).body(body.to_string());
    let answer = request.send().await.unwrap();
    let status = answer.status().as_u16();
    let text = answer.text().await.unwrap();
    (status, serde_json::from_str(&text).unwrap_or_default())
}

/// Takes the lease of the layer `default/x` for another holder, `bob`. Returns the status.
pub(super) async fn taken_by_bob(datastore: &TestDatastore) -> u16 {
    let request = json!({"holder": "bob", "host": "his-machine", "run": "his-run/0"});
    let take = asked(datastore, reqwest::Method::POST, "api/leases/default/x?id=bob", "-", request);
    take.await.0
}

/// The lease of the layer `default/x`; `null` if there is none.
pub(super) async fn lease(datastore: &TestDatastore, token: &str) -> Value {
    let get = asked(datastore, reqwest::Method::GET, "api/leases/default/x", token, Value::Null);
    let (status, lease) = get.await;
    if status == 404 { Value::Null } else { lease }
}

/// The versions of the state of the layer `default/x`, and what is known of it.
pub(super) async fn states(datastore: &TestDatastore, token: &str, more: &str) -> Value {
    let rest = format!("api/states?namespace=default&layer=x{more}");
    let answer = asked(datastore, reqwest::Method::GET, &rest, token, Value::Null).await;
    assert_eq!(answer.0, 200, "{}", answer.1);
    answer.1
}
