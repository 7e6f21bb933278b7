//! The outputs of other layers with which a run has worked, without their values.

use std::path::PathBuf;

use datastore_api::Sha256;
use serde::{Deserialize, Serialize};

/// What a run has taken from other layers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct InputsReport {
    /// One digest of all that was taken. It changes only if one of the values does.
    pub(crate) sha256: Sha256,
    /// The private directory in which the values are while the tool may need them. A plan contains its path.
    pub(crate) directory: PathBuf,
    /// What was taken.
    pub(crate) taken: Vec<Taken>,
    /// Of which layers.
    pub(crate) producers: Vec<Producer>,
}

/// One output that was taken.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Taken {
    /// `NAMESPACE/LAYER`
    pub(crate) layer: String,
    pub(crate) output: String,
    /// The variable that got it.
    pub(crate) variable: String,
    /// Whether the variable got the path of a file with the value.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) file: bool,
    /// Whether the other layer declares it as sensitive.
    pub(crate) sensitive: bool,
    /// The digest of the value: of the file, or of the JSON without white space.
    pub(crate) sha256: Sha256,
}

/// A layer whose outputs were taken.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Producer {
    /// `NAMESPACE/LAYER`
    pub(crate) layer: String,
    /// The run and attempt that has stored these outputs, if it is recorded.
    pub(crate) run: Option<String>,
    /// The digest of its `outputs.json`.
    pub(crate) outputs_sha256: Sha256,
}

/// One digest of all that was taken.
pub(crate) fn digest(taken: &[Taken]) -> Sha256 {
    let parts = taken.iter().map(|taken| {
        (&taken.layer, &taken.output, &taken.variable, taken.file, taken.sha256.to_string())
    });
    let json = serde_json::to_vec(&parts.collect::<Vec<_>>());
    Sha256::of(&json.expect("texts and truth values"))
}
