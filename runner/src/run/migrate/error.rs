//! Why a layer is not migrated to another tool.

use std::path::PathBuf;

use datastore_api::state::{Migration, StateKey};

/// A migration is refused, or has failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum MigrationError {
    #[error("the table {} (--version-paths) cannot be used: {reason}", .file.display())]
    Table { file: PathBuf, reason: String },
    #[error("terraform {from} is not migrated to tofu {to}: {reason}")]
    Path { from: String, to: String, reason: String },
    #[error("terragrunt runs the tool here, and chooses its backend and its directory by itself")]
    Terragrunt,
    #[error("the backend `{0}` runs the plans elsewhere, with a tool of its own")]
    RemoteRuns(String),
    #[error(
        "tofu would encrypt the state (a block `encryption` in the code, or TF_ENCRYPTION), and terraform could not read it for a rollback"
    )]
    Encryption,
    #[error("{0} in TF_CLI_ARGS or TF_CLI_ARGS_plan makes a plan that does not find all changes")]
    PartialPlan(&'static str),
    #[error("TF_DATA_DIR is an absolute path, and two tools cannot share one data directory")]
    DataDir,
    #[error("the backend is local, and its file {} is in a checkout of the code", .0.display())]
    Checkout(PathBuf),
    /// `changes`: one per line.
    #[error("{tool} plans changes: {}", .changes.join(", "))]
    Changes { tool: String, changes: Vec<String> },
    #[error("the states of {layer} belong to {recorded}, which is newer than {wanted}")]
    Older { layer: String, recorded: String, wanted: String },
    #[error("the copy of the state of {key} in the datastore is not the state: {reason}")]
    Backup { key: StateKey, reason: String },
    #[error("the state that {tool} has written is not the one that it was given: {reason}")]
    Written { tool: String, reason: String },
    #[error("no migration of {0} is recorded")]
    NothingToRollBack(StateKey),
    #[error("the state of {key} has changed since the migration: it has {now}{}", .written.map(|serial| format!(", and the migration wrote serial {serial}")).unwrap_or_default())]
    ChangedSince { key: StateKey, now: String, written: Option<u64> },
    #[error("the migration of {key} from {from} to {to}, which began at {started}, was interrupted", from = .migration.from, to = .migration.to, started = .migration.started)]
    Unfinished { key: StateKey, migration: Box<Migration> },
    #[error("the datastore has no record of tools and migrations")]
    Unsupported,
    #[error("the state that a restored copy would follow has changed: {0}")]
    Document(String),
}

impl MigrationError {
    /// Whether something was found that must be different before a migration. Otherwise it has failed.
    pub(crate) fn is_refusal(&self) -> bool {
        !matches!(self, Self::Backup { .. } | Self::Written { .. } | Self::Document(_))
    }
}
