//! The outputs of a layer after a converge: documents of the layer in the datastore. They may be secret, so they are never logged,
//! and they are no files of the attempt, which more callers may read.

use std::path::Path;

use datastore_api::client::Upload;
use datastore_api::document::OUTPUTS;
use datastore_api::{ClientError, DocumentKey, chain};
use fs_err as fs;
use serde_json::{Map, Value};

use crate::process::quoted;
use crate::run::Run;
use crate::run::error::RunError;
use crate::run::prepare::Prepared;
use crate::source::regular::unless_missing;

/// The outputs as lines of a shell.
const ENV: &str = "outputs.env";
/// The largest outputs that are stored, in bytes.
const MAX: u64 = 16 << 20;

impl Run<'_> {
    /// Stores the outputs. Everything is applied, so what fails here is a warning.
    pub(in crate::run) async fn store_outputs(&mut self, prepared: &Prepared) {
        if self.artifacts.is_none() {
            return;
        }
        let file = self.scratch.join(OUTPUTS);
        let stored = self.read_and_store(prepared, &file).await;
        let removed = unless_missing(fs::remove_file(&file)).map_err(RunError::Io);
        if let Err(error) = stored.and(removed.map(drop)) {
            tracing::warn!("applied, but the outputs are not stored: {}", chain(&error));
        }
    }

    async fn read_and_store(&mut self, prepared: &Prepared, file: &Path) -> Result<(), RunError> {
        let program = prepared.tool().outputs();
        self.step_into("output", &program, file).await?;
        let Some(artifacts) = &self.artifacts else { return Ok(()) };
        let size = fs::metadata(file)?.len();
        if size > MAX {
            let reason = format!("they have {size} bytes, and at most {MAX} are stored");
            return Err(RunError::Io(std::io::Error::other(reason)));
        }
        let json = fs::read(file)?;
        let outputs: Map<String, Value> =
            serde_json::from_slice(&json).map_err(std::io::Error::other)?;
        let stored = async {
            for (name, contents) in
                [(ENV, Upload::bytes(lines(&outputs))), (OUTPUTS, Upload::bytes(json))]
            {
                let (namespace, layer) =
                    (self.job.run.namespace.clone(), self.job.run.layer.clone());
                let key =
                    DocumentKey { namespace, layer, name: name.parse().expect("a valid name") };
                artifacts.client().put_document(&key, &contents).await?;
            }
            Ok::<_, ClientError>(())
        };
        let stored = self.signals.within(self.upload_grace(), stored).await;
        Ok(stored.map_err(RunError::Stopped)??)
    }
}

/// Each output as `NAME=VALUE`, quoted for a shell. Texts, numbers and truth values are written as they are, others as JSON.
fn lines(outputs: &Map<String, Value>) -> String {
    let line = |(name, output): (&String, &Value)| {
        let value = match &output["value"] {
            Value::String(text) => text.clone(),
            value => value.to_string(),
        };
        // A variable of a shell has no dash.
        format!("{}={}\n", name.replace('-', "_"), quoted(&value))
    };
    outputs.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outputs_are_lines_that_a_shell_reads() {
        let outputs = serde_json::json!({
            "greetings": {"value": "Hello 'World'\nagain", "type": "string", "sensitive": false},
            "a-list": {"value": ["x", 1], "type": "dynamic"},
            "none": {"value": null},
        });
        let lines = lines(outputs.as_object().unwrap());
        insta::assert_snapshot!(lines);
    }
}
