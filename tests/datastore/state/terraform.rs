//! A real terraform or tofu with its backend `http`.

#![expect(clippy::disallowed_types, reason = "a test of the protocol runs the tool itself")]

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use support::TestDatastore;
use tempfile::TempDir;

use super::documents::{STATE, lock, of, versions};

/// A root module, and the tool in it.
struct Module {
    directory: TempDir,
    address: String,
}

const RESOURCE: &str = "resource \"terraform_data\" \"a\" {\n  input = \"hello\"\n}\n";

impl Module {
    fn new(datastore: &TestDatastore) -> Self {
        let directory = TempDir::new().unwrap();
        std::fs::write(directory.path().join("rc"), "disable_checkpoint = true\n").unwrap();
        let module = Self { directory, address: format!("{}api/{STATE}", datastore.url) };
        module.backend("http");
        module.write("a.tf", RESOURCE);
        module
    }

    fn path(&self) -> &Path {
        self.directory.path()
    }

    fn write(&self, name: &str, text: &str) {
        std::fs::write(self.path().join(name), text).unwrap();
    }

    fn backend(&self, name: &str) {
        self.write("backend.tf", &format!("terraform {{\n  backend \"{name}\" {{}}\n}}\n"));
    }

    fn tool(&self, arguments: &[&str]) -> Command {
        let tool = if support::on_path("terraform").is_some() { "terraform" } else { "tofu" };
        let mut command = Command::new(tool);
        command.args(arguments).current_dir(self.path()).stdin(Stdio::null());
        command.env("TF_CLI_CONFIG_FILE", self.path().join("rc")).env("TF_IN_AUTOMATION", "1");
        for name in ["ADDRESS", "LOCK_ADDRESS", "UNLOCK_ADDRESS"] {
            command.env(format!("TF_HTTP_{name}"), &self.address);
        }
        command.env("TF_HTTP_LOCK_METHOD", "LOCK").env("TF_HTTP_UNLOCK_METHOD", "UNLOCK");
        command
    }

    /// Runs the tool; its exit code and what it printed.
    async fn run(&self, arguments: &[&str]) -> (i32, String) {
        let mut command = self.tool(arguments);
        let output = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
        let text = [output.stdout, output.stderr].concat();
        (output.status.code().unwrap(), String::from_utf8(text).unwrap())
    }

    async fn succeeds(&self, arguments: &[&str]) -> String {
        let (code, text) = self.run(arguments).await;
        assert_eq!(code, 0, "{arguments:?}: {text}");
        text
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn each_command_that_changes_the_state_makes_a_version() {
    let datastore = TestDatastore::temporary().await;
    let module = Module::new(&datastore);
    module.succeeds(&["init", "-no-color"]).await;
    module.succeeds(&["apply", "-auto-approve", "-no-color"]).await;
    module.succeeds(&["state", "mv", "terraform_data.a", "terraform_data.b"]).await;
    let pulled = module.succeeds(&["state", "pull"]).await;
    module.write("pulled.json", &pulled);
    module.succeeds(&["state", "rm", "terraform_data.b"]).await;
    assert_eq!(module.succeeds(&["state", "list"]).await, "");
    let (code, text) = module.run(&["state", "push", "pulled.json"]).await;
    assert!(code == 1 && (text.contains("serial") || text.contains("409")), "{text}");
    // The tool alone would overwrite the newer state.
    let (code, text) = module.run(&["state", "push", "-force", "pulled.json"]).await;
    assert!(code == 1 && text.contains("409"), "{text}");
    let rejected = versions(&datastore, "&kind=rejected").await;
    let reason = rejected["versions"][0]["reason"].as_str().unwrap();
    assert!(reason.contains("must be higher"), "{rejected}");
    let listed = versions(&datastore, "").await;
    let serials = listed["versions"].as_array().unwrap().iter();
    let serials = serials.map(|version| version["serial"].as_u64().unwrap()).collect::<Vec<_>>();
    assert!(serials.is_sorted_by(|newer, older| newer > older) && serials.len() == 3, "{listed}");
    assert_eq!(listed["head"]["lock"], serde_json::Value::Null, "every lock is removed");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_of_another_stops_the_tool_until_it_is_forced_open() {
    let datastore = TestDatastore::temporary().await;
    let module = Module::new(&datastore);
    module.succeeds(&["init", "-no-color"]).await;
    let id = "3d5d9d6e-8c0c-4f3a-9d0e-0123456789ab";
    assert_eq!(lock(&datastore, STATE, id).await.status, 200);
    let (code, text) = module.run(&["plan", "-no-color"]).await;
    assert!(code == 1 && text.contains(id), "{text}");
    module.succeeds(&["force-unlock", "-force", id]).await;
    module.succeeds(&["plan", "-no-color"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_state_is_migrated_to_a_file_and_back() {
    let datastore = TestDatastore::temporary().await;
    let module = Module::new(&datastore);
    module.succeeds(&["init", "-no-color"]).await;
    module.succeeds(&["apply", "-auto-approve", "-no-color"]).await;
    module.backend("local");
    module.succeeds(&["init", "-no-color", "-migrate-state", "-force-copy"]).await;
    module.write("a.tf", &RESOURCE.replace("hello", "bye"));
    module.succeeds(&["apply", "-auto-approve", "-no-color"]).await;
    module.backend("http");
    module.succeeds(&["init", "-no-color", "-migrate-state", "-force-copy"]).await;
    let state = of(&datastore, "GET", STATE, "").await;
    assert!(state.text().contains("bye"), "{}", state.text());
    let plan = module.succeeds(&["plan", "-no-color", "-detailed-exitcode"]).await;
    assert!(plan.contains("No changes"), "{plan}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_interrupted_apply_saves_what_it_has_made() {
    let datastore = TestDatastore::temporary().await;
    let module = Module::new(&datastore);
    let slow = "resource \"terraform_data\" \"slow\" {\n  count = 5\n  provisioner \"local-exec\" {\n    \
                command = \"touch made-${count.index}; sleep 1\"\n  }\n}\n";
    module.write("slow.tf", slow);
    module.succeeds(&["init", "-no-color"]).await;
    let mut command = module.tool(&["apply", "-auto-approve", "-no-color", "-parallelism=1"]);
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    while !(0..5).any(|made| module.path().join(format!("made-{made}")).exists()) {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let pid = nix::unistd::Pid::from_raw(child.id().try_into().unwrap());
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGINT).unwrap();
    let status = tokio::task::spawn_blocking(move || child.wait().unwrap()).await.unwrap();
    assert!(!status.success());
    let made = (0..5).filter(|made| module.path().join(format!("made-{made}")).exists()).count();
    let listed = module.succeeds(&["state", "list"]).await;
    assert_eq!(listed.matches("terraform_data.slow").count(), made, "{listed}");
    assert_eq!(versions(&datastore, "").await["head"]["lock"], serde_json::Value::Null);
}
