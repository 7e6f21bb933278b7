//! Why a run has no lease, or cannot work with the state in the datastore.

use datastore_api::ClientError;
use datastore_api::state::StateKey;
use jiff::Timestamp;

/// Why a run has no lease, or cannot work with the state in the datastore.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LeaseError {
    /// Another run works on the layer, or another holds the lock of one of its states. The text is the datastore's.
    #[error("the lease of the layer {layer} is not granted: {holder}")]
    Held { layer: String, holder: String },
    /// The state is kept in the datastore, which does not let this caller take the lease.
    #[error("the state {key} is kept in the datastore, and the lease of its layer was refused")]
    Refused {
        key: StateKey,
        #[source]
        cause: Box<ClientError>,
    },
    /// The state is kept in a datastore that has no leases.
    #[error("the state {0} is kept in the datastore, which has no leases")]
    Unsupported(StateKey),
    /// A run that is dead has left its lock on the state.
    #[error("the state {key} is locked by a run that does not hold the layer any more: {lock}")]
    StaleLock { key: StateKey, lock: Box<StaleLock> },
    /// The backend block has a password, so the tool would not use that of the lease.
    #[error(
        "the state {key} is kept in the datastore, and the configuration of the backend sets `{setting}`: the tool would not \
         work under the lease of this run"
    )]
    OwnSetting { key: StateKey, setting: &'static str },
    #[error("the lease")]
    Datastore(#[from] ClientError),
}

/// A lock of a run that is dead, as the datastore describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StaleLock {
    /// Its ID.
    pub(crate) id: String,
    /// Who has taken it, for what and when, as far as that is known.
    pub(crate) holder: String,
    /// The number of the lease under which it was taken.
    pub(crate) number: u64,
    /// When that lease has ended, if it is known.
    pub(crate) ended: Option<Timestamp>,
}

impl std::fmt::Display for StaleLock {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { id, holder, number, ended } = self;
        write!(f, "{holder} (lock ID {id}, lease {number}")?;
        match ended {
            Some(ended) => write!(f, ", which ended at {ended:.0})"),
            None => write!(f, ", which has ended)"),
        }
    }
}
