//! Documents of a layer: small files that belong to no run. Each run replaces them.
//!
//! It knows their names and keys. [`crate::status`] knows what a status says.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::name::{ArtifactName, Name};
use crate::status::LayerStatus;

pub use crate::status::STATUS;

/// The name of the document that has the outputs of a layer.
pub const OUTPUTS: &str = "outputs.json";

/// The name of the document that has the layers that a layer needs.
pub const GRAPH: &str = "graph.json";

/// A document of a layer.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct DocumentKey {
    /// Namespace of the layer.
    pub namespace: Name,
    /// The layer.
    pub layer: Name,
    /// The name of the document.
    pub name: ArtifactName,
}

impl fmt::Display for DocumentKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { namespace, layer, name } = self;
        write!(f, "{namespace}/{layer}/{name}")
    }
}

/// The answer of `GET /api/statuses`: one page of the layers of a namespace that have a status, in the order of their names.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Statuses {
    /// The layers of this page.
    pub statuses: Vec<StatusOfLayer>,
    /// The `cursor` of the next page, `null` on the last.
    pub next: Option<String>,
}

/// The status of one layer, as a listing shows it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StatusOfLayer {
    /// Name of the layer.
    pub layer: String,
    /// Its status; `null` if the document cannot be read.
    pub status: Option<LayerStatus>,
    /// Why the document cannot be read.
    pub unreadable: Option<String>,
}
