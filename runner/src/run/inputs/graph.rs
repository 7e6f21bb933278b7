//! `graph.json`: what a layer needs, with which outputs of others its state was made, and which run has stored its own outputs.
//! It is a document of the layer in the datastore, beside `outputs.json`, and as secret.

use datastore_api::client::Upload;
use datastore_api::document::GRAPH;
use datastore_api::{Client, ClientError, DocumentKey, Sha256};
use serde::{Deserialize, Serialize};

use crate::order::inputs::LayerRef;
use crate::report::inputs::InputsReport;
use crate::run::Run;
use crate::run::inputs::error::InputsError;

/// What errors call it.
const RECORD: &str = "the record of what is needed";
/// The version of the format.
const VERSION: u32 = 1;

/// `graph.json`
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Graph {
    version: u32,
    /// The layers that it needs, `NAMESPACE/LAYER`.
    #[serde(default)]
    pub(crate) needs: Vec<String>,
    /// The outputs of others with which it was applied last, or is applied now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) inputs: Option<InputsReport>,
    /// The run and attempt of that apply.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) run: Option<String>,
    /// Whether that apply has ended well.
    #[serde(default)]
    pub(crate) applied: bool,
    /// Its own outputs, if `outputs.json` has all of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) outputs: Option<StoredOutputs>,
}

/// Which run has stored the outputs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct StoredOutputs {
    pub(crate) run: String,
    /// The digest of `outputs.json`.
    pub(crate) sha256: Sha256,
}

impl Graph {
    /// What this layer needs of another one: outputs, or that it is there at all.
    pub(crate) fn needs(&self, layer: &str) -> bool {
        let takes = |inputs: &InputsReport| inputs.taken.iter().any(|taken| taken.layer == layer);
        self.needs.iter().any(|need| need == layer) || self.inputs.as_ref().is_some_and(takes)
    }
}

/// The key of a document of a layer.
pub(crate) fn document(layer: &LayerRef, name: &str) -> DocumentKey {
    let name = name.parse().expect("a valid name");
    DocumentKey { namespace: layer.namespace.clone(), layer: layer.name.clone(), name }
}

/// Reads the record of a layer. `None`: it has none, or the datastore keeps none.
pub(crate) async fn read(client: &Client, layer: &LayerRef) -> Result<Option<Graph>, InputsError> {
    let json = match client.get_document(&document(layer, GRAPH)).await {
        Ok(Some(json)) => json,
        Ok(None) | Err(ClientError::Unsupported { .. }) => return Ok(None),
        Err(cause) => return Err(InputsError::of_datastore(RECORD, layer)(cause)),
    };
    let reason = match serde_json::from_slice::<Graph>(&json) {
        Ok(graph) if graph.version == VERSION => return Ok(Some(graph)),
        Ok(graph) => format!("its {GRAPH} has the version {}, not {VERSION}", graph.version),
        Err(error) => format!("its {GRAPH}: {error}"),
    };
    Err(InputsError::Unreadable { layer: layer.to_string(), reason })
}

impl Run<'_> {
    /// This layer.
    pub(crate) fn layer_ref(&self) -> LayerRef {
        let run = &self.job.run;
        LayerRef { namespace: run.namespace.clone(), name: run.layer.clone() }
    }

    /// Changes the record of this layer, and returns what it was before. Without a datastore there is none.
    pub(super) async fn change_graph(
        &self,
        change: impl FnOnce(&mut Graph),
    ) -> Result<Option<Graph>, InputsError> {
        let Some(client) = &self.job.datastore else { return Ok(None) };
        let layer = self.layer_ref();
        let before = read(client, &layer).await?;
        let mut graph = before.clone().unwrap_or_default();
        graph.version = VERSION;
        change(&mut graph);
        if before.as_ref() == Some(&graph) {
            return Ok(before);
        }
        let json = serde_json::to_vec_pretty(&graph).expect("texts and digests");
        match client.put_document(&document(&layer, GRAPH), &Upload::bytes(json)).await {
            Ok(()) | Err(ClientError::Unsupported { .. }) => Ok(before),
            Err(cause) => Err(InputsError::of_datastore(RECORD, &layer)(cause)),
        }
    }

    /// Records what the layer needs and has taken. `has_applied`: the apply with it has ended well.
    pub(super) async fn record_graph(&self, has_applied: bool) -> Result<(), InputsError> {
        let needs = self.job.inputs.needs.iter().map(ToString::to_string).collect::<Vec<_>>();
        let (inputs, run) = (self.report.inputs.clone(), self.run_name());
        let changed = self.change_graph(|graph| {
            let is_new = graph.needs != needs || graph.inputs != inputs || !graph.applied;
            (graph.needs, graph.inputs, graph.applied) = (needs, inputs, has_applied);
            if is_new {
                graph.run = Some(run);
            }
        });
        changed.await.map(drop)
    }
}
