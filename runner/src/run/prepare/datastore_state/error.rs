//! Why a state in the datastore cannot be used.

use std::fmt;
use std::path::PathBuf;

use datastore_api::Name;
use datastore_api::state::StateKey;

use crate::tool::declared_backend::DeclaredBackend;

/// Where a module has a state that is not in the datastore.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Local {
    /// In a file.
    File(PathBuf),
    /// In another backend, which a data directory records.
    Backend { kind: String, data_dir: PathBuf },
}

impl fmt::Display for Local {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(file) => write!(f, "the state {}", file.display()),
            Self::Backend { kind, data_dir } => write!(
                f,
                "the state in the backend {}, which {} records,",
                kind.escape_debug(),
                data_dir.display()
            ),
        }
    }
}

/// A state in the datastore cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StateError {
    #[error("the module has {0}, so its state is not in the datastore (--state datastore)")]
    Declared(DeclaredBackend),
    #[error(
        "the datastore keeps no states: it is an older one, or Burrito's, or its storage cannot replace an object on a \
         condition"
    )]
    Unsupported,
    #[error("the state of {key} was written for {theirs}; this code is {ours}")]
    OtherPlace { key: StateKey, theirs: String, ours: String },
    #[error("{local} exists, and the datastore has no state of {key}")]
    Local { local: Local, key: StateKey },
    #[error("the state {} is beside the code, in a directory that stays: init would want to move it", .0.display())]
    InTheWay(PathBuf),
    #[error("{} is locked, or was left so by a killed process ({})", .state.display(), .lock.display())]
    LocalLock { state: PathBuf, lock: PathBuf },
    #[error("the state {} has changed while it was moved", .0.display())]
    Changing(PathBuf),
    #[error(
        "{} uses the name of the workspace, which is `default` for every state in the datastore; this one is of the \
         workspace {workspace}", .file.display()
    )]
    Workspace { workspace: Name, file: PathBuf },
    #[error(
        "{} reads another state over HTTP without a password for it, so the tool would send the token of this run there",
        .0.display()
    )]
    RemoteState(PathBuf),
    #[error("{option} in {variable} configures another backend than the datastore")]
    OtherBackend { option: &'static str, variable: &'static str },
    #[error(
        "the datastore has the state of {key} (serial {serial}), and this run would begin a new local state"
    )]
    Forgotten { key: StateKey, serial: u64 },
    #[error(
        "the tool has read another state of {key} than the datastore has: lineage `{read}` instead of `{known}`"
    )]
    OtherRead { key: StateKey, known: String, read: String },
    #[error("{} is not a whole state: {reason}", .file.display())]
    Torn { file: PathBuf, reason: String },
    #[error("the module has a file {}, which the runner would write", .0.display())]
    OwnFile(PathBuf),
    #[error("init has not configured the state in the datastore, but another backend")]
    NotUsed,
    #[error("{missing} yet, and {who} holds its lock")]
    Held { missing: String, who: String },
    #[error("{missing}, but run {run} has applied this layer, and it was not destroyed since")]
    Lost { missing: String, run: String, place: MissingIn },
}

/// Where a state is missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MissingIn {
    Datastore,
    /// The file of `--state-in`.
    File,
    /// Any other backend.
    Backend,
}
