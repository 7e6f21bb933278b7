//! What the tests of migrations share: modules with a state that terraform has written, and a tofu.

use std::path::PathBuf;

use serde_json::Value;
use support::{Ended, Sandbox, TestDatastore};

use crate::{RUNNER, json};

pub(super) const MODULE: &str = r#"
variable "input" {
  default = "one"
}
resource "terraform_data" "a" {
  input = var.input
}
output "o" {
  value = terraform_data.a.output
}
"#;

/// A module, a terraform and a tofu, and a datastore.
pub(super) struct Layer {
    pub(super) sandbox: Sandbox,
    pub(super) datastore: TestDatastore,
    /// Arguments of every run.
    pub(super) args: Vec<&'static str>,
    pub(super) workspace: &'static str,
}

impl Layer {
    /// A layer whose state terraform has written, if the arguments of every run are `args`.
    pub(super) async fn applied(args: &[&'static str], more: &str) -> Self {
        let layer = Self::new(args, more).await;
        layer.ok(&["apply", "--no-plan", "--tool", "terraform"]);
        layer
    }

    pub(super) async fn new(args: &[&'static str], more: &str) -> Self {
        let sandbox = Sandbox::new(RUNNER);
        sandbox.write("main.tf", MODULE);
        sandbox.write("more.tf", more);
        let layer = Self {
            sandbox,
            datastore: TestDatastore::memory().await,
            args: args.to_vec(),
            workspace: "default",
        };
        layer.tofu("");
        layer
    }

    /// Puts a tofu on PATH: a real one where `PLANCHA_TEST_TOOLS` names tools, else terraform under its name. The commands in
    /// `before` run before each of its commands.
    #[expect(clippy::disallowed_methods, reason = "it says where real tools are")]
    pub(super) fn tofu(&self, before: &str) {
        let tools = std::env::var("PLANCHA_TEST_TOOLS").ok();
        let real = tools.map(|tools| format!("{tools}/OpenTofu/1.10.10/tofu"));
        let version = r#"echo '{"terraform_version": "1.10.5", "platform": "linux_amd64"}'"#;
        let asked = match &real {
            Some(_) => String::new(),
            None => format!("case \"$*\" in 'version -json') {version}; exit 0;; esac\n"),
        };
        let (calls, tool) =
            (self.sandbox.path("tofu-calls"), real.as_deref().unwrap_or("terraform"));
        let script = format!(
            "#!/bin/sh\ntool={tool}\n{asked}echo \"$*\" >> {}\n{before}\nexec $tool \"$@\"\n",
            calls.display()
        );
        self.sandbox.script("tofu", &script);
    }

    pub(super) fn run(&self, args: &[&str]) -> Ended {
        let args = [args, &["--name", "x", "--result", "result.json"], &self.args].concat();
        let mut command = self.sandbox.command(&args);
        command.env("PLANCHA_DATASTORE_URL", self.datastore.url.as_str());
        if self.workspace != "default" {
            command.env("TF_WORKSPACE", self.workspace);
        }
        command.output().unwrap().into()
    }

    /// Runs it to its good end.
    pub(super) fn ok(&self, args: &[&str]) -> Ended {
        let ended = self.run(args);
        assert_eq!(ended.code, 0, "{args:?}: {}\n{}", ended.stderr, ended.stdout);
        ended
    }

    /// Runs it, and expects this exit code and this text.
    pub(super) fn refused(&self, args: &[&str], code: i32, text: &str) {
        let ended = self.run(args);
        assert_eq!(ended.code, code, "{args:?}: {}\n{}", ended.stderr, ended.stdout);
        assert!(ended.stderr.contains(text), "{args:?}: {}", ended.stderr);
    }

    /// What the last run reports of the migration.
    pub(super) fn report(&self) -> Value {
        json(self.sandbox.read("result.json").as_bytes())["migration"].clone()
    }

    /// What the datastore records of the layer's tool; null if nothing.
    pub(super) async fn record(&self) -> Value {
        let url = self.datastore.url.join("/api/tools/default/x").unwrap();
        let answer = reqwest::get(url).await.unwrap();
        if answer.status() == 404 { Value::Null } else { json(&answer.bytes().await.unwrap()) }
    }

    /// The state: from the datastore if the runs keep it there, else from this file.
    pub(super) async fn state(&self, file: &str) -> Value {
        if self.args.contains(&"datastore") {
            let path = format!("/api/state/default/x/{}", self.workspace);
            let answer = reqwest::get(self.datastore.url.join(&path).unwrap()).await.unwrap();
            return json(&answer.bytes().await.unwrap());
        }
        json(&std::fs::read(self.file(file)).unwrap())
    }

    pub(super) fn file(&self, name: &str) -> PathBuf {
        self.sandbox.work().join(name)
    }

    /// The commands that tofu got, by their first words.
    pub(super) fn tofu_calls(&self) -> Vec<String> {
        let calls = std::fs::read_to_string(self.sandbox.path("tofu-calls")).unwrap_or_default();
        calls.lines().map(|line| line.split(' ').next().unwrap().to_owned()).collect()
    }
}

/// The state without what a new version changes by itself.
pub(super) fn contents(state: &Value) -> Value {
    serde_json::json!([state["lineage"], state["outputs"], state["resources"]])
}
