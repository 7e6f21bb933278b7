//! Why an operation on a state was refused or failed.

use serde_json::Value;

use crate::store::error::StoreError;
use crate::store::state::document::InvalidState;

/// Why an operation on a state was refused or failed.
#[derive(Debug, thiserror::Error)]
pub enum StateError {
    /// Another holds the lock of the state. The value is what its holder sent about it.
    #[error("the state is locked: {}", shown_lock(.0))]
    Locked(Value),
    /// Another holds the lease of the layer. The value describes it in the form of a lock.
    #[error("the layer is in use: {}", shown_lock(.0))]
    Leased(Value),
    /// The caller's lease is not valid any more. The text says why.
    #[error("{0}")]
    LeaseLost(String),
    /// The lock with which the caller writes is not held any more.
    #[error("the lock {0} is not held any more: it was removed while the writer still worked")]
    LockLost(String),
    /// The lock has another ID.
    #[error("the lock has the ID {held}, not {given}: {}", shown_lock(.info))]
    OtherLock {
        /// Its ID.
        held: String,
        /// The ID that was given.
        given: String,
        /// What its holder sent about it.
        info: Value,
    },
    /// Only the holder removes a lock while its lease is valid, or an operator by the ID.
    #[error(
        "the lock was taken under the lease {number}, which is still valid: {holder}. Wait until that run has ended; the lease \
         of a dead one ends within 5 minutes. Only if its tool has ended: `datastore state unlock KEY --id ID`"
    )]
    HolderAlive {
        /// The number of the lease.
        number: u64,
        /// Who holds it.
        holder: String,
    },
    /// The written document belongs to another history than the state.
    #[error(
        "the state has the lineage {stored}, and the written document {written}: they do not describe the same objects. To \
         replace the state all the same: `datastore state push --force`"
    )]
    Lineage {
        /// Lineage of the state.
        stored: String,
        /// Lineage of the document.
        written: String,
    },
    /// The written document is not newer than the state.
    #[error(
        "the state has the serial {stored}, and the written document {written}, which must be higher: the writer began with \
         an older state. Compare both first (`datastore state pull`, `datastore state ls`); only to replace the newer state all \
         the same: `datastore state push --force`"
    )]
    Serial {
        /// Serial of the state.
        stored: u64,
        /// Serial of the document.
        written: u64,
    },
    /// No serial is left for a restored version. The value is the highest one of the state.
    #[error(
        "the state has had the serial {0}, and no higher one is possible: to write the old version all the same, \
         `datastore state pull --version ID` and `datastore state push --force`"
    )]
    LastSerial(u64),
    /// There is no memory for a restore, which holds the document.
    #[error(
        "no memory is free to restore a state of {size} bytes: {}",
        room(*.fits)
    )]
    NoMemory {
        /// The size of the document.
        size: u64,
        /// Whether it fits into the memory that the datastore may use.
        fits: bool,
    },
    /// So many states are being written that no further one is read.
    #[error("too many states are written at once; try again")]
    Busy,
    /// The state with this lineage was deleted, so the writer began before that.
    #[error(
        "the state with this lineage was deleted while the writer worked, or before: undo that with `datastore state \
         undelete`, or write it all the same with `datastore state push --force`"
    )]
    Deleted,
    /// The state belongs to the code of another place.
    #[error(
        "this is the state of {stored}, and the caller works on {given}: name another layer (--name), or move the state to \
         this code with --rebind"
    )]
    Place {
        /// The place that the first writer named.
        stored: String,
        /// The place that the caller named.
        given: String,
    },
    /// There is no state to work on.
    #[error("there is no {0}")]
    NoState(&'static str),
    /// The state exists, so a deletion cannot be undone.
    #[error("the state is not deleted")]
    NotDeleted,
    /// The layer has too many workspaces.
    #[error(
        "the layer has {0} workspaces, the most that one layer can have: use another layer for further ones"
    )]
    TooManyWorkspaces(usize),
    /// The control object of the layer would have so many bytes, more than are read again.
    #[error(
        "the locks and states of the layer would need {0} bytes in its control object, which has at most 8 MiB: nothing was \
         changed. Use another layer for further workspaces"
    )]
    LargeControl(usize),
    /// The control object of the layer could not be read again. The text says why.
    #[error(
        "what this would record of the layer {0}, and could not be read again: nothing was changed"
    )]
    UnreadableControl(&'static str),
    /// The body is not a state.
    #[error(transparent)]
    Document(#[from] InvalidState),
    /// What the storage has about the layer's states is damaged or incomplete.
    #[error("{0}: restore it from a backup before you plan or apply anything of this layer")]
    Damaged(String),
    /// The description of a version does not have the digest that is in it.
    #[error(
        "the description `{0}` of a version is damaged: restore this file from a backup; without one remove it, and that version \
         is not listed any more"
    )]
    DamagedDescription(String),
    /// The storage cannot replace one version of an object.
    #[error(
        "states are not kept here: the storage cannot replace one version of an object, so two replicas could overwrite \
         each other's states. Start the only replica with --single-replica"
    )]
    NotConditional,
    /// Another process serves the states of this directory.
    #[error("another process serves the states of this directory{0}")]
    Elsewhere(&'static str),
    /// The file that this process has locked is not that of the directory any more.
    #[error(
        "another process may serve the states of this directory: the file .plancha/states.lock was removed or replaced while \
         this process had locked it. End the other process, and restart this one"
    )]
    LockFileLost,
    /// Others replaced the control object again and again.
    #[error("too many writers at once; try again")]
    Contention,
    /// The storage failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

fn room(fits: bool) -> &'static str {
    if fits {
        "try again"
    } else {
        "raise --max-memory, or restore it with `datastore state restore --storage`"
    }
}

/// A lock for people: operation, holder, ID and time, as far as they are known.
fn shown_lock(info: &Value) -> String {
    let text = |name: &str| info.get(name).and_then(Value::as_str).filter(|text| !text.is_empty());
    let part = |name, before: &str| {
        text(name).map(|text| format!("{before}{}", text.escape_debug())).unwrap_or_default()
    };
    let parts =
        [part("Who", "by "), part("Operation", " for "), part("Info", ", "), part("ID", ", ID ")];
    let shown = format!("{}{}", parts.concat(), part("Created", ", since "));
    shown.trim_start_matches([',', ' ']).to_owned()
}
