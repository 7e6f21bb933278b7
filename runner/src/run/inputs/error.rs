//! Why a run cannot have what it takes from other layers, or must not start because of them.

use std::path::PathBuf;

use datastore_api::ClientError;

use crate::order::inputs::LayerRef;

/// What is missing, or in the way.
#[derive(Debug, thiserror::Error)]
pub(crate) enum InputsError {
    /// What is taken does not exist.
    #[error("it waits for {}", .0.join(" and for "))]
    Waiting(Vec<String>),
    /// A layer that is needed is not as declared.
    #[error("blocked by {}", .0.join(" and by "))]
    Blocked(Vec<String>),
    /// Layers that need this one would lose what they need.
    #[error("blocked by {}, which {} this layer: nothing was destroyed", .0.join(", "), if .0.len() == 1 { "needs" } else { "need" })]
    Needed(Vec<String>),
    #[error("{} no value: {}", if .0.len() == 1 { "a required output has" } else { "required outputs have" }, .0.join(", "))]
    Broken(Vec<String>),
    #[error("the plan was made with another value of {0}, which has changed since")]
    Changed(String),
    #[error("the plan contains the directory {} for outputs of other layers, and here it is {}", .theirs.display(), .ours.display())]
    OtherDirectory { theirs: PathBuf, ours: PathBuf },
    #[error("the outputs that the plan has taken are recorded wrongly: {0}")]
    Record(String),
    #[error("the outputs of {layer} cannot be read: {reason}")]
    Unreadable { layer: String, reason: String },
    #[error("the private directory for outputs of other layers, {}: {reason}", .dir.display())]
    Directory { dir: PathBuf, reason: String },
    /// `what` is one of a layer: how it is, its outputs, the record of what it needs.
    #[error("{what} of {layer}")]
    Datastore {
        what: &'static str,
        layer: String,
        #[source]
        cause: Box<ClientError>,
    },
}

/// What to do about a required output without a value.
pub(crate) const BROKEN: &str =
    "correct the code that should give it a value; layers that take it wait until it has one";

impl InputsError {
    /// A call of the datastore that has failed.
    pub(crate) fn of_datastore(
        what: &'static str,
        layer: &LayerRef,
    ) -> impl FnOnce(ClientError) -> Self {
        let layer = layer.to_string();
        move |cause| Self::Datastore { what, layer, cause: Box::new(cause) }
    }

    /// What to do about it.
    pub(crate) fn hint(&self) -> &'static str {
        match self {
            Self::Waiting(_) => {
                "no tool was started; converge that layer first, which stores its outputs, and run again"
            }
            Self::Blocked(_) => {
                "no tool was started; converge that layer first, or name its manifest in the same command"
            }
            Self::Needed(_) => {
                "destroy them first, or name all manifests in one command; --force-with-dependants destroys it all the same"
            }
            Self::Broken(_) => BROKEN,
            Self::Changed(_) => "nothing was applied; plan again",
            Self::OtherDirectory { .. } => {
                "nothing was applied; name the directory of the plan, without the namespace and the layer, with --inputs-dir"
            }
            Self::Record(_) => {
                "nothing was applied; plan again, and find out who may write to the datastore"
            }
            Self::Unreadable { .. } => "converge that layer again, which stores its outputs",
            Self::Directory { .. } => "name another directory with --inputs-dir, or remove it",
            Self::Datastore { .. } => "",
        }
    }
}
