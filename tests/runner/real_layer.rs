//! A layer with a real tool: its module has two objects without a provider.

use serde_json::Value;
use support::{Ended, Sandbox, TestDatastore};

use crate::stored_run::StoredRun;
use crate::{RUNNER, json};

pub(crate) const CODE: &str =
    "resource \"terraform_data\" \"a\" { input = 1 }\nresource \"terraform_data\" \"b\" {}\n";

/// A layer `x` in `module`, with a real tool.
pub(crate) struct Layer {
    pub(crate) datastore: TestDatastore,
    pub(crate) sandbox: Sandbox,
}

impl Layer {
    pub(crate) async fn new() -> Self {
        let sandbox = Sandbox::new(RUNNER);
        sandbox.write("module/main.tf", CODE);
        Self { datastore: TestDatastore::memory().await, sandbox }
    }

    /// One with two objects.
    pub(crate) async fn applied() -> Self {
        let layer = Self::new().await;
        let ended = layer.run(&["apply", "--no-plan"]);
        assert_eq!(ended.code, 0, "{}", ended.stderr);
        layer
    }

    /// Replaces the code of the module.
    pub(crate) fn write(&self, code: &str) {
        self.sandbox.write("module/main.tf", code);
    }

    pub(crate) fn run(&self, args: &[&str]) -> Ended {
        let layer = ["--path", "module", "--name", "x", "--result", "result.json"];
        let args = [&args[..1], &layer, &args[1..]].concat();
        self.sandbox.run_with(&self.datastore.url, &args)
    }

    pub(crate) fn result(&self) -> Value {
        json(self.sandbox.read("result.json").as_bytes())
    }

    pub(crate) fn stored(&self, run: &str) -> StoredRun {
        StoredRun::new(&self.datastore, "default", "x", run)
    }

    /// The names of the objects in the state.
    pub(crate) fn objects(&self) -> Vec<String> {
        let state = json(self.sandbox.read("module/terraform.tfstate").as_bytes());
        let resources = state["resources"].as_array().unwrap().iter();
        resources.map(|resource| resource["name"].as_str().unwrap().to_owned()).collect()
    }

    /// How many resources the state has.
    pub(crate) fn resources(&self) -> usize {
        self.objects().len()
    }

    /// A document of the layer in the datastore.
    pub(crate) async fn document(&self, name: &str) -> String {
        let query = format!("api/documents?namespace=default&layer=x&name={name}");
        let url = self.datastore.url.join(&query).unwrap();
        let response = reqwest::get(url).await.unwrap().error_for_status().unwrap();
        response.text().await.unwrap()
    }

    /// The stored status.
    pub(crate) async fn status(&self) -> Value {
        json(self.document("status.json").await.as_bytes())
    }
}

/// Layers, each a module below `code`. The third field of a layer is its annotation `plancha/metrics`.
pub(crate) fn layers(layers: &[(&str, &str, &str)]) -> Sandbox {
    let sandbox = Sandbox::new(RUNNER);
    for (name, needs, metrics) in layers {
        let manifest = format!(
            "apiVersion: config.terraform.padok.cloud/v1alpha1\nkind: TerraformLayer\nmetadata:\n  name: {name}\n  annotations:\n    \
             plancha/needs: \"{needs}\"\n    plancha/metrics: \"{metrics}\"\nspec:\n  path: {name}\n"
        );
        sandbox.write(&format!("layers/{name}.yaml"), &manifest);
        sandbox.write(&format!("code/{name}/main.tf"), "resource \"terraform_data\" \"a\" {}\n");
    }
    sandbox
}
