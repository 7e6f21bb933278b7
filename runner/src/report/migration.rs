//! What a migration to another tool reports.

use datastore_api::Sha256;
use datastore_api::state::{LayerTool, VersionId};
use serde::{Deserialize, Serialize};

/// A migration.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct MigrationReport {
    pub(crate) result: MigrationResult,
    /// Why it was refused, or has failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) reason: Option<String>,
    /// The tool before.
    pub(crate) from: Option<LayerTool>,
    /// The tool after.
    pub(crate) to: Option<LayerTool>,
    /// The lineage of the state; none if there is none.
    pub(crate) lineage: Option<String>,
    /// Its serial before.
    pub(crate) serial_before: Option<u64>,
    /// The serial that was written.
    pub(crate) serial_after: Option<u64>,
    /// The version that is the copy of the state in the datastore.
    pub(crate) backup: Option<VersionId>,
    /// The digest of that copy.
    pub(crate) sha256: Option<Sha256>,
}

/// How a migration has ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum MigrationResult {
    /// The tool after works with the state from now on.
    Migrated,
    /// It did so before.
    Already,
    /// Both tools plan no changes, and nothing was changed (`--dry-run`).
    Ready,
    /// The tool before works with the state again (`--rollback`).
    RolledBack,
    /// Something must be changed first; the state is as it was.
    Refused,
    #[default]
    Failed,
}
