//! Helper: two layers with a real tool and a datastore. `helm` takes outputs of `cluster`.

use std::fmt::Write as _;

use serde_json::Value;
use support::{Ended, Sandbox, TestDatastore};

use crate::stored_run::StoredRun;
use crate::{RUNNER, json};

/// The cluster: its configuration is secret, and changes with it.
pub(super) const CLUSTER: &str = r#"
resource "terraform_data" "cluster" {
  input            = { nodes = 2 }
  triggers_replace = "v1"
}
output "kubeconfig" {
  value     = "server: https://v1-${terraform_data.cluster.output.nodes}.example\nuser-token: ${join("-", ["hunter2hunter2", "v1"])}\n"
  sensitive = true
}
output "nodes" { value = terraform_data.cluster.output.nodes }
output "note" { value = "one" }
"#;

/// The releases, which read the configuration when they are planned and when they are applied.
pub(super) const HELM: &str = r#"
variable "kubeconfig_path" { type = string }
variable "nodes" { type = number }
resource "terraform_data" "release" {
  input = { nodes = var.nodes, config = sha256(file(var.kubeconfig_path)) }
  provisioner "local-exec" { command = "stat -c %a '${var.kubeconfig_path}' > mode; head -c 6 '${var.kubeconfig_path}' > head" }
}
output "release" { value = terraform_data.release.output.nodes }
"#;

/// The layers `cluster` and `helm`, in manifests.
pub(super) struct Pair {
    pub(super) datastore: TestDatastore,
    pub(super) sandbox: Sandbox,
}

impl Pair {
    pub(super) async fn new() -> Self {
        let pair = Self { datastore: TestDatastore::memory().await, sandbox: Sandbox::new(RUNNER) };
        pair.manifest("cluster", &[]);
        pair.manifest(
            "helm",
            &[("var-from", "cluster:nodes"), ("file-from", "cluster:kubeconfig=kubeconfig_path")],
        );
        pair.write("cluster", CLUSTER);
        pair.write("helm", HELM);
        pair
    }

    /// Both are applied.
    pub(super) async fn applied() -> Self {
        let pair = Self::new().await;
        let ended = pair.run(&["converge", "layers"]);
        assert_eq!(ended.code, 0, "{}", ended.stderr);
        pair
    }

    /// Writes a manifest with annotations of ours.
    pub(super) fn manifest(&self, layer: &str, annotations: &[(&str, &str)]) {
        let mut text = format!(
            "apiVersion: config.terraform.padok.cloud/v1alpha1\nkind: TerraformLayer\nmetadata:\n  name: {layer}\n  annotations:\n    owner: test\n"
        );
        for (name, value) in annotations {
            writeln!(text, "    plancha/{name}: \"{value}\"").unwrap();
        }
        write!(text, "spec:\n  path: {layer}\n").unwrap();
        self.sandbox.write(&format!("layers/{layer}.yaml"), &text);
    }

    /// Replaces the code of a layer.
    pub(super) fn write(&self, layer: &str, code: &str) {
        self.sandbox.write(&format!("code/{layer}/main.tf"), code);
    }

    /// Runs a command for layers: `COMMAND LAYERS...`.
    pub(super) fn run(&self, args: &[&str]) -> Ended {
        let args = [&args[..1], &["--source", "code"], &args[1..]].concat();
        self.sandbox.run_with(&self.datastore.url, &args)
    }

    /// Runs a command for one layer, with its result: `COMMAND ARGS...`.
    pub(super) fn run_one(&self, layer: &str, args: &[&str]) -> (Ended, Value) {
        let manifest = format!("layers/{layer}.yaml");
        let given = ["--source", "code", "--layer", &manifest, "--result", "result.json"];
        let args = [&args[..1], &given, &args[1..]].concat();
        let ended = self.sandbox.run_with(&self.datastore.url, &args);
        let result = std::fs::read(self.sandbox.work().join("result.json")).unwrap_or_default();
        (ended, serde_json::from_slice(&result).unwrap_or_default())
    }

    /// A document of a layer, if there is one.
    pub(super) async fn document(&self, layer: &str, name: &str) -> Option<String> {
        let query = format!("api/documents?namespace=default&layer={layer}&name={name}");
        let response = reqwest::get(self.datastore.url.join(&query).unwrap()).await.unwrap();
        match response.status().as_u16() {
            404 => None,
            200 => Some(response.text().await.unwrap()),
            status => panic!("{layer}/{name}: {status}"),
        }
    }

    pub(super) async fn json(&self, layer: &str, name: &str) -> Value {
        json(self.document(layer, name).await.expect(name).as_bytes())
    }

    /// Replaces a document of a layer.
    pub(super) async fn put(&self, layer: &str, name: &str, text: String) {
        let query = format!("api/documents?namespace=default&layer={layer}&name={name}");
        let url = self.datastore.url.join(&query).unwrap();
        let put = reqwest::Client::new().put(url).body(text).send().await.unwrap();
        assert!(put.status().is_success(), "{}", put.status());
    }

    pub(super) fn stored(&self, layer: &str, run: &str) -> StoredRun {
        StoredRun::new(&self.datastore, "default", layer, run)
    }

    /// What is left of values that were handed on.
    pub(super) fn left(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.sandbox.path("tmp")).unwrap().flatten();
        let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
        names.filter(|name| name.starts_with("plancha-inputs")).collect()
    }

    /// Puts a terraform before the real one that writes its arguments and environment to the file `calls`.
    pub(super) fn record_calls(&self) {
        let real = support::on_path("terraform").unwrap();
        let calls = self.sandbox.path("calls");
        let script = format!(
            "#!/bin/sh\n{{ echo \"call: $*\"; env; }} >> {}\nexec {} \"$@\"\n",
            calls.display(),
            real.display()
        );
        self.sandbox.script("terraform", &script);
    }

    /// Every argument and variable that terraform has been given since [`Self::record_calls`].
    pub(super) fn calls(&self) -> String {
        std::fs::read_to_string(self.sandbox.path("calls")).unwrap_or_default()
    }

    /// The state of a layer.
    pub(super) fn state(&self, layer: &str) -> String {
        let path = self.sandbox.work().join(format!("code/{layer}/terraform.tfstate"));
        std::fs::read_to_string(path).unwrap_or_default()
    }
}

/// The line of a layer in the table.
pub(super) fn row<'a>(ended: &'a Ended, layer: &str) -> &'a str {
    let name = format!("default/{layer} ");
    let line = ended.stderr.lines().rfind(|line| line.contains(&name));
    line.unwrap_or_else(|| panic!("{}", ended.stderr))
}
