//! The layers that need this one: they keep it from being destroyed, and must run again when what they take of it changes.

use std::collections::{BTreeMap, BTreeSet};

use datastore_api::client::Upload;
use datastore_api::document::{GRAPH, OUTPUTS};
use datastore_api::status::STATUS;
use datastore_api::{Client, ClientError, Name, Sha256, chain};
use futures::future::join_all;
use futures::{StreamExt as _, TryStreamExt as _, join, stream};
use reqwest::StatusCode;
use serde_json::value::RawValue;

use crate::order::inputs::LayerRef;
use crate::report::Outcome;
use crate::report::inputs::Taken;
use crate::run::Run;
use crate::run::error::RunError;
use crate::run::inputs::directory::sweep;
use crate::run::inputs::error::InputsError;
use crate::run::inputs::graph::{self, Graph, StoredOutputs, document};
use crate::run::inputs::needs::{put_status, status_of};
use crate::run::inputs::outputs::FORMS;
use crate::run::inputs::values::Outputs;
use crate::run::inputs::{outputs_of, parse};

/// How many layers a page of statuses has, and how many records are read at the same time.
const PAGE: u16 = 100;
const PARALLEL: usize = 8;

impl Run<'_> {
    /// Refuses to destroy what other layers still need.
    pub(in crate::run) async fn check_dependants(&self) -> Result<(), RunError> {
        let (true, Some(client)) = (self.job.action.destroys(), &self.job.datastore) else {
            return Ok(());
        };
        let own = self.layer_ref();
        let found = self.signals.or(dependants_anywhere(client, &own)).await;
        let names = found.map_err(RunError::Stopped)??;
        if names.is_empty() {
            return Ok(());
        }
        let error = InputsError::Needed(names);
        if self.job.inputs.force_with_dependants {
            tracing::warn!("--force-with-dependants: {error}");
            return Ok(());
        }
        Err(error.into())
    }

    /// Before an apply that changes outputs: they are not handed on any more, and the layers that have taken them are stale.
    pub(in crate::run) async fn withdraw_outputs(&self) -> Result<(), RunError> {
        let names = &self.report.changed_outputs;
        let (false, Some(client)) = (names.is_empty(), &self.job.datastore) else {
            return Ok(());
        };
        let own = self.layer_ref();
        sweep(&self.job.inputs);
        let withdrawn = async {
            let json = outputs_of(client, &own).await?;
            // First: whatever happens next, a later run finds that the outputs are not all there. A new one may be in the
            // state after an apply that failed, and no later plan changes it then.
            self.change_graph(|graph| graph.outputs = None).await?;
            let Some(json) = json else { return Ok(()) };
            let Some(rest) = without(&own, &json, names)? else { return Ok(()) };
            let is_changed = |taken: &Taken| names.contains(&taken.output);
            let run = self.run_name();
            let why = |output: &str| format!("{run} changes the output {output} of {own}");
            // An error of one does not cancel the others.
            let (put, deleted, marked) = join!(
                put_outputs(client, &own, rest),
                join_all(FORMS.map(|name| delete(client, &own, [name]))),
                mark(client, &own, is_changed, why),
            );
            put?;
            deleted.into_iter().collect::<Result<(), _>>()?;
            marked
        };
        let withdrawn = self.signals.or(Box::pin(withdrawn));
        match withdrawn.await.map_err(RunError::Stopped)? {
            Err(InputsError::Datastore { cause, .. }) if keeps_none(&cause) => Ok(()),
            ended => Ok(ended?),
        }
    }

    /// After an apply: the layers are stale that have taken other values than these.
    pub(in crate::run) async fn hand_on(&self, json: &[u8]) -> Result<(), InputsError> {
        let Some(client) = &self.job.datastore else { return Ok(()) };
        let (own, run) = (self.layer_ref(), self.run_name());
        let sha256 = Sha256::of(json);
        let stored = StoredOutputs { run: run.clone(), sha256 };
        let before = self.change_graph(|graph| graph.outputs = Some(stored)).await?;
        if before.and_then(|graph| graph.outputs).is_some_and(|before| before.sha256 == sha256) {
            return Ok(());
        }
        let outputs: Outputs<'_> = parse(&own, json)?;
        let digests = outputs.iter().filter_map(|(name, output)| Some((name, output.digests()?)));
        let digests = digests.collect::<BTreeMap<_, _>>();
        let is_changed = |taken: &Taken| {
            digests
                .get(&taken.output)
                .is_none_or(|(json, file)| taken.sha256 != if taken.file { *file } else { *json })
        };
        let why = |output: &str| format!("the output {output} of {own} has changed ({run})");
        mark(client, &own, is_changed, why).await
    }

    /// Records after a run with which outputs of others the layer was made. What fails here is a warning.
    pub(crate) async fn conclude_graph(&self) {
        let has_any = !self.job.inputs.needs.is_empty() || self.report.inputs.is_some();
        let is_made = match self.report.outcome {
            // An earlier run has recorded what it was made with.
            Outcome::Applied => self.report.applied_before.is_none(),
            Outcome::NoChanges => self.job.action.is_judged() && !self.job.action.is_check(),
            _ => false,
        };
        if self.job.datastore.is_none() || self.job.action.migrates() {
            return;
        }
        let recorded = async {
            if self.is_gone() {
                self.delete_documents().await?;
            } else if has_any && is_made && !self.job.action.destroys() {
                self.record_graph(true).await?;
            }
            Ok::<_, RunError>(())
        };
        let recorded = self.signals.within(self.upload_grace(), recorded).await;
        if let Err(error) = recorded.map_err(RunError::Stopped).flatten() {
            tracing::warn!("the record of what the layer needs: {}", chain(&error));
        }
    }

    /// Whether a destroy has left nothing.
    fn is_gone(&self) -> bool {
        let is_done = matches!(self.report.outcome, Outcome::Applied | Outcome::NoChanges);
        let is_empty = self.report.state.as_ref().is_some_and(|state| state.empty);
        self.job.action.destroys() && is_done && is_empty
    }

    /// A layer that does not exist any more has no status and no outputs, and needs nothing.
    async fn delete_documents(&self) -> Result<(), InputsError> {
        let Some(client) = &self.job.datastore else { return Ok(()) };
        let own = self.layer_ref();
        delete(client, &own, [STATUS, OUTPUTS].into_iter().chain(FORMS).chain([GRAPH])).await
    }
}

async fn delete(
    client: &Client,
    layer: &LayerRef,
    names: impl IntoIterator<Item = &'static str>,
) -> Result<(), InputsError> {
    for name in names {
        match client.delete_document(&document(layer, name)).await {
            Err(cause) if !keeps_none(&cause) => {
                return Err(InputsError::of_datastore("a document", layer)(cause));
            }
            _ => {}
        }
    }
    Ok(())
}

/// Whether a datastore keeps no documents, or none for this caller.
fn keeps_none(cause: &ClientError) -> bool {
    matches!(cause, ClientError::Unsupported { .. })
        || matches!(cause.status(), Some(StatusCode::FORBIDDEN | StatusCode::NOT_FOUND))
}

/// The layers that need this one, in all namespaces that the caller may read.
async fn dependants_anywhere(client: &Client, own: &LayerRef) -> Result<Vec<String>, InputsError> {
    let mut names = Vec::new();
    for namespace in namespaces(client, own).await? {
        match dependants(client, own, &namespace).await {
            Ok(found) => names.extend(found.keys().map(LayerRef::to_string)),
            Err(InputsError::Datastore { cause, .. }) if keeps_none(&cause) => {
                let why = chain(&cause);
                tracing::debug!("whether layers of {namespace} need {own} is not known: {why}");
            }
            Err(error) => return Err(error),
        }
    }
    Ok(names)
}

/// The namespace of this layer, and the others in which the caller may list runs, if the datastore says.
async fn namespaces(client: &Client, own: &LayerRef) -> Result<BTreeSet<Name>, InputsError> {
    let (mut found, mut after) = (BTreeSet::from([own.namespace.clone()]), None::<String>);
    loop {
        let page = match client.namespaces(after.as_deref()).await {
            Ok(page) => page,
            Err(cause) if keeps_none(&cause) => return Ok(found),
            Err(cause) => {
                return Err(InputsError::of_datastore("the namespaces beside that", own)(cause));
            }
        };
        found.extend(page.namespaces.iter().filter_map(|name| name.parse().ok()));
        after = page.next;
        if after.is_none() {
            return Ok(found);
        }
    }
}

/// The layers of a namespace that need this one, with their records. A layer is known by its status.
async fn dependants(
    client: &Client,
    own: &LayerRef,
    namespace: &Name,
) -> Result<BTreeMap<LayerRef, Graph>, InputsError> {
    let (mut found, mut cursor) = (BTreeMap::new(), None::<String>);
    let name = own.to_string();
    loop {
        let page = client.statuses(namespace, PAGE, cursor.as_deref()).await;
        let page = page
            .map_err(InputsError::of_datastore("the statuses of the layers beside those", own))?;
        let layers = page.statuses.into_iter().filter_map(|status| status.layer.parse().ok());
        let layers = layers.map(|layer| LayerRef { namespace: namespace.clone(), name: layer });
        let reads = stream::iter(layers.filter(|layer| layer != own).collect::<Vec<_>>());
        let reads = reads.map(async |layer| {
            let graph = graph::read(client, &layer).await?;
            Ok::<_, InputsError>((layer, graph))
        });
        let graphs = reads.buffered(PARALLEL).try_collect::<Vec<_>>().await?;
        let needing = graphs.into_iter().filter_map(|(layer, graph)| Some((layer, graph?)));
        found.extend(needing.filter(|(_, graph)| graph.needs(&name)));
        cursor = page.next;
        if cursor.is_none() {
            return Ok(found);
        }
    }
}

/// Marks the layers as stale that have taken an output which has changed.
async fn mark(
    client: &Client,
    own: &LayerRef,
    is_changed: impl Fn(&Taken) -> bool,
    why: impl Fn(&str) -> String,
) -> Result<(), InputsError> {
    let name = own.to_string();
    for (layer, graph) in dependants(client, own, &own.namespace).await? {
        let taken = graph.inputs.iter().flat_map(|inputs| &inputs.taken);
        let mut taken = taken.filter(|taken| taken.layer == name);
        let Some(changed) = taken.find(|taken| is_changed(taken)) else { continue };
        let Some(mut status) = status_of(client, &layer).await? else { continue };
        let why = why(&changed.output);
        tracing::info!("{layer} must run again: {why}");
        status.stale = Some(why);
        let put = put_status(client, &layer, &status).await;
        put.map_err(InputsError::of_datastore("the status", &layer))?;
    }
    Ok(())
}

/// The outputs without those of these names. `None`: it has none of them.
fn without(
    layer: &LayerRef,
    json: &[u8],
    names: &BTreeSet<String>,
) -> Result<Option<Vec<u8>>, InputsError> {
    let unreadable = |error: serde_json::Error| InputsError::Unreadable {
        layer: layer.to_string(),
        reason: format!("line {} of its {OUTPUTS} is not valid", error.line()),
    };
    let mut outputs: BTreeMap<String, &RawValue> =
        serde_json::from_slice(json).map_err(unreadable)?;
    let before = outputs.len();
    outputs.retain(|name, _| !names.contains(name));
    if outputs.len() == before {
        return Ok(None);
    }
    serde_json::to_vec(&outputs).map(Some).map_err(unreadable)
}

async fn put_outputs(client: &Client, layer: &LayerRef, json: Vec<u8>) -> Result<(), InputsError> {
    let stored = client.put_document(&document(layer, OUTPUTS), &Upload::bytes(json)).await;
    stored.map_err(InputsError::of_datastore("the outputs", layer))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outputs_are_withdrawn_by_their_names() {
        let layer = LayerRef::parse("a", &"d".parse().unwrap()).unwrap();
        let names = BTreeSet::from(["x".to_owned(), "z".to_owned()]);
        let json = br#"{"x": {"value": 1}, "y": {"value": 12345678901234567890123}}"#;
        let rest = without(&layer, json, &names).unwrap().unwrap();
        assert_eq!(rest, br#"{"y":{"value": 12345678901234567890123}}"#);
        assert_eq!(without(&layer, &rest, &names).unwrap(), None);
        without(&layer, b"[", &names).unwrap_err();
    }
}
