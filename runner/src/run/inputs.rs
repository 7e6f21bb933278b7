//! Outputs that layers hand on: what this one takes of others before its tool starts, and what others take of this one.
//!
//! [`values`] reads them, [`directory`] has them while the tool may need them, [`graph`] records who needs what, [`needs`] decides
//! whether the layer may start, and [`dependants`] marks those that need it.

mod dependants;
pub(crate) mod directory;
pub(crate) mod error;
pub(crate) mod graph;
mod needs;
mod outputs;
pub(crate) mod values;

use std::collections::BTreeMap;

use datastore_api::document::OUTPUTS;
use datastore_api::{Client, Sha256};

use crate::order::inputs::{Input, Inputs, LayerRef, is_identifier};
use crate::report::inputs::{InputsReport, Producer, Taken, digest};
use crate::run::Run;
use crate::run::error::RunError;
use crate::run::inputs::directory::HeldDirectory;
use crate::run::inputs::error::InputsError;
use crate::run::inputs::graph::document;
use crate::run::inputs::values::{Outputs, Value};
use crate::run::stored_plan::Choice;

/// What was taken, and what is missing.
struct Found {
    values: Vec<Value>,
    producers: Vec<Producer>,
    missing: Vec<String>,
}

impl Run<'_> {
    /// Takes the outputs of other layers, before anything else is done. What a destroy lacks matters only if there is something to
    /// destroy.
    pub(super) async fn take_inputs(&mut self) -> Result<(), RunError> {
        let inputs = &self.job.inputs;
        if inputs.list.is_empty() {
            return Ok(());
        }
        let found = self.find_inputs(&inputs.list).await?;
        if found.missing.is_empty() {
            return self.hold_inputs(inputs, found).await;
        }
        let error = InputsError::Waiting(found.missing);
        if self.job.action.destroys() {
            self.missing_inputs = Some(error);
            return Ok(());
        }
        Err(error.into())
    }

    /// Removes the values from where the tool reads them.
    pub(crate) fn drop_inputs(&mut self) {
        self.held_inputs = None;
    }

    /// Records before an apply what the layer needs, so that this is not destroyed before it, and what it has taken.
    pub(super) async fn record_needs(&self) -> Result<(), RunError> {
        if self.job.inputs.needs.is_empty() && self.report.inputs.is_none() {
            return Ok(());
        }
        Ok(self.signals.or(self.record_graph(false)).await.map_err(RunError::Stopped)??)
    }

    /// Refuses to plan a destroy without the outputs that it needs.
    pub(super) fn check_inputs(&mut self) -> Result<(), RunError> {
        self.missing_inputs.take().map_or(Ok(()), |error| Err(error.into()))
    }

    /// Takes the outputs with which the plan was made. They must be the same.
    pub(super) async fn restore_inputs(&mut self, choice: &Choice) -> Result<(), RunError> {
        let Some(recorded) = choice.basis.inputs() else { return Ok(()) };
        let list = recorded_list(recorded)?;
        let ours = &self.job.inputs;
        if recorded.directory != ours.dir {
            let (theirs, ours) = (recorded.directory.clone(), ours.dir.clone());
            return Err(InputsError::OtherDirectory { theirs, ours }.into());
        }
        let found = self.find_inputs(&list).await?;
        if !found.missing.is_empty() {
            return Err(InputsError::Waiting(found.missing).into());
        }
        let pairs = recorded.taken.iter().zip(&found.values);
        for (theirs, Value { taken, .. }) in pairs {
            if theirs.sha256 != taken.sha256 {
                let changed = format!("the output {} of {}", taken.output, taken.layer);
                return Err(InputsError::Changed(changed).into());
            }
        }
        let inputs = Inputs { list, ..ours.clone() };
        self.hold_inputs(&inputs, found).await
    }

    /// Reads the outputs of other layers.
    async fn find_inputs(&self, list: &[Input]) -> Result<Found, RunError> {
        let Some(client) = &self.job.datastore else {
            let reason = "without a datastore there are none".to_owned();
            let layer = list.first().map(|input| input.layer.to_string()).unwrap_or_default();
            return Err(InputsError::Unreadable { layer, reason }.into());
        };
        Ok(self.signals.or(find(client, list)).await.map_err(RunError::Stopped)??)
    }

    /// Puts the values in place for the tool, and masks the secret ones from now on.
    async fn hold_inputs(&mut self, inputs: &Inputs, found: Found) -> Result<(), RunError> {
        let Found { values, producers, .. } = found;
        self.environment.redaction.add(values::secrets(&values));
        let files = values::files(inputs, &values);
        let taken = values.into_iter().map(|value| value.taken).collect::<Vec<_>>();
        for Producer { layer, run, .. } in &producers {
            let names = taken.iter().filter(|taken| taken.layer == *layer);
            let names = names.map(|taken| &*taken.output).collect::<Vec<_>>().join(", ");
            let of = run.as_ref().map(|run| format!(" (of {run})")).unwrap_or_default();
            let line = format!("takes {names} from {layer}{of}");
            tracing::info!("{line}");
            self.log.line(&line)?;
        }
        let (sha256, directory) = (digest(&taken), inputs.dir.clone());
        self.report.inputs = Some(InputsReport { sha256, directory, taken, producers });
        let created = HeldDirectory::create(inputs, &files);
        let held = self.signals.or(created).await.map_err(RunError::Stopped)??;
        self.held_inputs = Some(held);
        Ok(())
    }
}

/// What the record of a plan says was taken. It need not be signed.
fn recorded_list(recorded: &InputsReport) -> Result<Vec<Input>, InputsError> {
    let input = |taken: &Taken| {
        let Taken { layer, output, variable, file, .. } = taken;
        let (namespace, name) = layer.split_once('/')?;
        let layer = LayerRef { namespace: namespace.parse().ok()?, name: name.parse().ok()? };
        let (output, variable) = (output.clone(), variable.clone());
        is_identifier(&variable).then_some(Input { layer, output, variable, is_file: *file })
    };
    let wrong = |taken: &Taken| InputsError::Record(format!("{}:{}", taken.layer, taken.output));
    recorded.taken.iter().map(|taken| input(taken).ok_or_else(|| wrong(taken))).collect()
}

/// Reads the outputs of other layers, each document once.
async fn find(client: &Client, list: &[Input]) -> Result<Found, InputsError> {
    let mut by_layer = BTreeMap::<&LayerRef, Vec<usize>>::new();
    for (at, input) in list.iter().enumerate() {
        by_layer.entry(&input.layer).or_default().push(at);
    }
    let mut values = BTreeMap::new();
    let (mut producers, mut missing) = (Vec::new(), Vec::new());
    for (layer, places) in by_layer {
        let json = outputs_of(client, layer).await?;
        let bytes = json.as_deref().unwrap_or(b"{}");
        let outputs = parse(layer, bytes)?;
        for at in places {
            match values::take(&list[at], &outputs) {
                Some(value) => {
                    values.insert(at, value);
                }
                None => missing.push(missing_output(&list[at], &outputs, json.is_some())),
            }
        }
        if json.is_some() {
            let sha256 = Sha256::of(bytes);
            let graph = graph::read(client, layer).await?;
            let stored = graph.and_then(|graph| graph.outputs);
            let run = stored.filter(|stored| stored.sha256 == sha256).map(|stored| stored.run);
            producers.push(Producer { layer: layer.to_string(), run, outputs_sha256: sha256 });
        }
    }
    Ok(Found { values: values.into_values().collect(), producers, missing })
}

/// The document with the outputs of a layer.
async fn outputs_of(client: &Client, layer: &LayerRef) -> Result<Option<Vec<u8>>, InputsError> {
    let read = client.get_document(&document(layer, OUTPUTS)).await;
    read.map_err(InputsError::of_datastore("the outputs", layer))
}

fn parse<'a>(layer: &LayerRef, json: &'a [u8]) -> Result<Outputs<'a>, InputsError> {
    serde_json::from_slice(json).map_err(|error| {
        // The parser's message may contain a part of a value.
        let reason = format!("line {} of its {OUTPUTS} is not valid", error.line());
        InputsError::Unreadable { layer: layer.to_string(), reason }
    })
}

/// Which output is missing, and how.
fn missing_output(input: &Input, outputs: &Outputs<'_>, has_any: bool) -> String {
    let Input { layer, output, is_file, .. } = input;
    let how = match outputs.get(output) {
        _ if !has_any => "which has no outputs yet",
        None => "which has none of this name, or replaces it now",
        Some(found) if *is_file && found.is_set() => "which is empty",
        Some(_) => "which is null",
    };
    format!("the output {output} of {layer}, {how}")
}
