//! Why a plan is not applied.

use std::path::PathBuf;

use datastore_api::{ClientError, Sha256};

use crate::basis::BasisError;
use crate::basis::binding::BindingError;
use crate::run::artifacts::{Defect, SearchError};
use crate::source::archive::ArchiveError;
use crate::source::error::CheckoutError;
use crate::version::ToolName;

/// There is no plan that may be applied.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StoredPlanError {
    #[error("the datastore has no plan {}of {layer}", .plan.as_ref().map(|plan| format!("`{plan}` ")).unwrap_or_default())]
    Missing {
        /// The plan that was named.
        plan: Option<String>,
        layer: String,
        /// Whether Burrito's controllers named it.
        pod: bool,
    },
    #[error(
        "the datastore has plans of {layer}, but none of this place ({ours}): {plan} is of {theirs}"
    )]
    NoneHere { layer: String, plan: String, theirs: String, ours: String },
    #[error("the newest plan, {plan}, cannot be used: {defect}")]
    Defective {
        plan: String,
        defect: Defect,
        /// The newest plan that can be used.
        older: Option<String>,
    },
    #[error(
        "which plan is the newest is not certain: {plan} is listed first, but {later} was started after it had been made"
    )]
    Uncertain { plan: String, later: String },
    #[error(transparent)]
    Basis(#[from] BasisError),
    #[error(transparent)]
    Binding(#[from] BindingError),
    /// The repository cannot be asked for the ordered revision.
    #[error(transparent)]
    Repository(#[from] Box<CheckoutError>),
    #[error("the plan {0} has no snapshot, and --snapshot=always requires one")]
    NoSnapshot(String),
    #[error("the snapshot of the plan {0} has no configuration of the tool")]
    NoConfiguration(String),
    #[error("the snapshot of the plan {0} has been deleted")]
    SnapshotDeleted(String),
    #[error("the snapshot of the plan {plan} cannot be unpacked")]
    Snapshot {
        plan: String,
        #[source]
        cause: ArchiveError,
    },
    #[error("the record {} of the plan cannot be read", .path.display())]
    Record {
        path: PathBuf,
        #[source]
        cause: std::io::Error,
    },
    #[error("{} is not a plan of {tool}", .path.display())]
    NotAPlan { path: PathBuf, tool: ToolName },
    #[error("the plan cannot be read")]
    Unreadable(#[source] std::io::Error),
    #[error(
        "the plan {plan} is not the one that was made: its SHA-256 is {actual}, but {place} has {expected}"
    )]
    DigestMismatch { plan: String, place: String, expected: String, actual: String },
    #[error(
        "the plan {0} cannot be verified: neither an annotation plan-sum nor its run.json has its SHA-256"
    )]
    Unchecked(String),
    #[error("the run that made the plan {0} did not finish")]
    Unfinished(String),
    #[error("the datastore has no plan of {layer} and this place with the SHA-256 {sha256}")]
    NotStored { sha256: Sha256, layer: String },
    #[error("the plan {plan} destroys everything, and `runner apply` does not apply it")]
    Destroys { plan: String, approve: Option<String> },
    #[error("the plan {0} was made with -destroy, and is applied only where it is named")]
    DestroysByArgument(String),
    #[error("the plan {0} is not one that `runner destroy` has made")]
    NotDestroy(String),
    #[error("the stored plan {plan} is damaged{}", .expected.map(|sha256| format!(" (its run.json says sha256 {sha256})")).unwrap_or_default())]
    Damaged {
        plan: String,
        expected: Option<Sha256>,
        #[source]
        cause: Box<ClientError>,
    },
    #[error("the datastore")]
    Datastore(#[from] ClientError),
    #[error(transparent)]
    Io(#[from] std::io::Error),
}

impl From<SearchError> for StoredPlanError {
    fn from(error: SearchError) -> Self {
        match error {
            SearchError::Datastore(cause) => cause.into(),
            SearchError::Repository(cause) => cause.into(),
        }
    }
}
