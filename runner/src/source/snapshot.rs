//! The snapshot of a plan's working directory: `workspace.tar.zst`.
//!
//! `select` decides which files belong to it, `pack` writes the archive, [`crate::source::archive`] unpacks it. Where it is
//! stored, and which plan it belongs to, is not known here.

mod pack;
mod select;

use std::io;
use std::path::PathBuf;

pub(crate) use pack::pack;
pub(crate) use select::{Before, SourceFiles, before, select};

/// Its name beside the plan.
pub(crate) const FILE: &str = "workspace.tar.zst";

/// Why a snapshot could not be made.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SnapshotError {
    #[error("{} changed while it was packed", .0.display())]
    Changed(PathBuf),
    #[error("{}", .0.display())]
    File(PathBuf, #[source] io::Error),
    #[error("the archive cannot be written")]
    Archive(#[from] io::Error),
    #[error("{file}: {error}")]
    Ignore { file: String, error: String },
    #[error("git cannot list the files: {0}")]
    Git(String),
}

#[cfg(test)]
mod tests;
