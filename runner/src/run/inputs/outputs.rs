//! The outputs of a layer after an apply: documents of the layer in the datastore. They may be secret, so they are never logged,
//! and they are no files of the attempt, which more callers may read.

use std::collections::BTreeSet;
use std::path::Path;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use datastore_api::chain;
use datastore_api::client::Upload;
use datastore_api::document::OUTPUTS;
use fs_err as fs;
use futures::future::try_join_all;
use serde_json::{Map, Value};

use crate::order::job::{Action, Apply};
use crate::process::quoted;
use crate::report::Outcome;
use crate::run::Run;
use crate::run::error::RunError;
use crate::run::inputs::error::InputsError;
use crate::run::inputs::graph::{self, Graph, document};
use crate::run::inputs::values::{Output, Outputs};
use crate::run::prepare::Prepared;
use crate::run::step::Ahead;
use crate::source::regular::unless_missing;

/// The outputs as lines of a shell, as flat lines `PATH=JSON`, and these in base64, for what takes one text.
const ENV: &str = "outputs.env";
const FLAT: &str = "outputs.txt";
const FLAT_BASE64: &str = "outputs.b64";
/// The names of these documents.
pub(crate) const FORMS: [&str; 3] = [ENV, FLAT, FLAT_BASE64];
/// The largest outputs that are stored, in bytes.
const MAX: u64 = 16 << 20;

impl Run<'_> {
    /// Stores the outputs after an apply, and records which required ones have no value. Everything is applied, so what else fails
    /// here is a warning.
    pub(in crate::run) async fn store_outputs(&mut self, prepared: &Prepared, ahead: Ahead) {
        if self.job.action.destroys() || !self.has_use_of_outputs().await {
            return;
        }
        let broken = Box::pin(self.read_and_store(prepared, ahead)).await;
        self.broken_outputs = broken.unwrap_or_else(|error| {
            tracing::warn!(
                "applied, but the outputs are not stored, and layers that take them wait: the next apply stores them, or \
                 `runner converge`: {}",
                chain(&error)
            );
            self.job.inputs.required.iter().cloned().collect()
        });
    }

    /// Stores the outputs of a layer that is as declared and whose outputs are not, or not all, in the datastore.
    pub(in crate::run) async fn complete_outputs(
        &mut self,
        prepared: &Prepared,
    ) -> Result<(), RunError> {
        let is_converge = self.job.action.is_judged() && !self.job.action.is_check();
        if !is_converge || self.report.outcome != Outcome::NoChanges {
            return Ok(());
        }
        if self.job.inputs.required.is_empty() && self.has_stored_outputs().await {
            return Ok(());
        }
        let broken = match Box::pin(self.read_and_store(prepared, None)).await {
            Ok(broken) => broken,
            Err(error @ (RunError::Stopped(_) | RunError::StoppedStep { .. })) => {
                return Err(error);
            }
            Err(error) => {
                tracing::warn!("the outputs are not stored: {}", chain(&error));
                self.job.inputs.required.iter().cloned().collect()
            }
        };
        if broken.is_empty() { Ok(()) } else { Err(InputsError::Broken(broken).into()) }
    }

    /// Reads the outputs after an apply, if it is known that they are stored.
    pub(in crate::run) fn outputs_ahead(
        &self,
        prepared: &Prepared,
    ) -> impl Future<Output = Ahead> + use<> {
        let has_use = self.artifacts.is_some() && !self.report.changed_outputs.is_empty();
        let is_read = has_use && !self.job.action.destroys() && prepared.terragrunt.is_none();
        let program = prepared.tool().outputs();
        let output = self.ahead("output", program, &self.scratch.join(OUTPUTS));
        async move { if is_read { output.await } else { None } }
    }

    /// Whether somebody may read the outputs that this apply has changed.
    async fn has_use_of_outputs(&self) -> bool {
        if !self.job.inputs.required.is_empty() {
            return true;
        }
        if self.artifacts.is_none() {
            return false;
        }
        if self.job.action.is_judged() || !self.report.changed_outputs.is_empty() {
            return true;
        }
        // Of an apply without a stored plan it is not known what it has changed. An earlier apply may have withdrawn the
        // outputs, and not stored them again.
        let is_unplanned = matches!(self.job.action, Action::Apply(Apply::Unplanned(_)));
        self.record().await.is_some_and(|record| is_unplanned || record.outputs.is_none())
    }

    /// The record of this layer, if its outputs have been stored before, or it has taken those of others.
    async fn record(&self) -> Option<Graph> {
        let client = self.job.datastore.as_ref()?;
        let layer = self.layer_ref();
        let read = self.signals.within(self.upload_grace(), graph::read(client, &layer)).await;
        read.ok()?.ok()?
    }

    /// Whether the datastore has all outputs of the layer, or takes none.
    async fn has_stored_outputs(&self) -> bool {
        let Some(client) = &self.job.datastore else { return true };
        let layer = self.layer_ref();
        match self.signals.within(self.upload_grace(), graph::read(client, &layer)).await {
            Ok(Ok(graph)) => graph.is_some_and(|graph| graph.outputs.is_some()),
            Ok(Err(error)) => {
                tracing::warn!("whether the outputs are stored is not known: {}", chain(&error));
                true
            }
            Err(_) => true,
        }
    }

    /// Stores the outputs, if there is a datastore. Returns the required ones that have no value.
    async fn read_and_store(
        &mut self,
        prepared: &Prepared,
        ahead: Ahead,
    ) -> Result<Vec<String>, RunError> {
        let file = self.scratch.join(OUTPUTS);
        let json = self.read_outputs(prepared, ahead, &file).await;
        let removed = unless_missing(fs::remove_file(&file));
        let json = json?;
        removed?;
        let broken = without_value(&json, &self.job.inputs.required)?;
        if self.artifacts.is_some() {
            let stored = self.store_documents(json);
            let stored = self.signals.within(self.upload_grace(), stored).await;
            if let Err(error) = stored.map_err(RunError::Stopped).flatten() {
                tracing::warn!("the outputs are not stored: {}", chain(&error));
            }
        }
        Ok(broken)
    }

    async fn read_outputs(
        &mut self,
        prepared: &Prepared,
        ahead: Ahead,
        file: &Path,
    ) -> Result<Vec<u8>, RunError> {
        let program = prepared.tool().outputs();
        self.step_into_unless(ahead, "output", &program, file).await?;
        let size = fs::metadata(file)?.len();
        if size > MAX {
            let reason = format!("they have {size} bytes, and at most {MAX} are stored");
            return Err(RunError::Io(std::io::Error::other(reason)));
        }
        Ok(fs::read(file)?)
    }

    /// The document that others take outputs of is the last but for the record of it.
    async fn store_documents(&self, json: Vec<u8>) -> Result<(), RunError> {
        let Some(client) = &self.job.datastore else { return Ok(()) };
        let outputs: Map<String, Value> =
            serde_json::from_slice(&json).map_err(std::io::Error::other)?;
        let flat = flat_lines(&outputs);
        let base64 = BASE64_STANDARD.encode(&flat);
        let (layer, forms) = (self.layer_ref(), [lines(&outputs), flat, base64]);
        let puts = FORMS.into_iter().zip(forms).map(async |(name, text)| {
            client.put_document(&document(&layer, name), &Upload::bytes(text)).await
        });
        try_join_all(puts).await?;
        client.put_document(&document(&layer, OUTPUTS), &Upload::bytes(json.clone())).await?;
        Ok(self.hand_on(&json).await?)
    }
}

/// The required outputs that have no value.
fn without_value(json: &[u8], required: &BTreeSet<String>) -> Result<Vec<String>, RunError> {
    // The parser's message may contain a part of a value.
    let outputs = serde_json::from_slice::<Outputs<'_>>(json)
        .map_err(|error| std::io::Error::other(format!("line {} is not valid", error.line())))?;
    let has = |name: &&String| outputs.get(*name).is_some_and(Output::is_set);
    Ok(required.iter().filter(|name| !has(name)).cloned().collect())
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

/// Each text, number and truth value as a line `PATH=JSON`.
fn flat_lines(outputs: &Map<String, Value>) -> String {
    let mut text = String::new();
    for (name, output) in outputs {
        add_flat(name, &output["value"], &mut text);
    }
    text
}

fn add_flat(path: &str, value: &Value, text: &mut String) {
    match value {
        Value::Array(items) if !items.is_empty() => {
            for (at, item) in items.iter().enumerate() {
                add_flat(&format!("{path}[{at}]"), item, text);
            }
        }
        Value::Object(fields) if !fields.is_empty() => {
            for (name, field) in fields {
                let is_plain = name.chars().all(|c| c.is_alphanumeric() || "_-".contains(c));
                let path = if is_plain && !name.is_empty() {
                    format!("{path}.{name}")
                } else {
                    format!("{path}[{}]", Value::from(name.as_str()))
                };
                add_flat(&path, field, text);
            }
        }
        value => {
            text.push_str(path);
            text.push('=');
            text.push_str(&value.to_string());
            text.push('\n');
        }
    }
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

    #[test]
    fn s4_the_flat_form_has_a_line_for_each_value() {
        let outputs = serde_json::json!({
            "greetings": {"value": "Hello World"},
            "nodes": {"value": [{"name": "a\nb", "a.b": [1, true]}, {}]},
            "none": {"value": null},
        });
        insta::assert_snapshot!(flat_lines(outputs.as_object().unwrap()), @r#"
        greetings="Hello World"
        nodes[0].name="a\nb"
        nodes[0]["a.b"][0]=1
        nodes[0]["a.b"][1]=true
        nodes[1]={}
        none=null
        "#);
    }

    #[test]
    fn d17_a_required_output_has_a_value() {
        let json = br#"{"a": {"value": 1}, "b": {"value": null}, "c": {"value": ""}}"#;
        let required = ["a", "b", "c", "d"].map(str::to_owned).into_iter().collect();
        assert_eq!(without_value(json, &required).unwrap(), ["b", "d"]);
        without_value(b"{\"a\": 1", &required).unwrap_err();
    }
}
