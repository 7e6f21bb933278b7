//! The snapshot of a plan's working directory: `workspace.tar.zst`.
//!
//! `select` decides which files belong to it, `pack` writes the archive, [`crate::source::archive`] unpacks it. This
//! module does not depend on where it is stored, and which plan it belongs to.

mod pack;
mod select;

use std::collections::BTreeSet;
use std::io;
use std::path::PathBuf;

use crate::source::archive::MAX_DEPTH;

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
    #[error("the path {} has more than {MAX_DEPTH} parts, and no apply could unpack it", .0.display())]
    TooDeep(PathBuf),
    #[error("it would have more than {0}, and no apply could unpack it")]
    TooLarge(String),
    #[error("the archive cannot be written")]
    Archive(#[from] io::Error),
    #[error("{file}: {error}")]
    Ignore { file: String, error: String },
    #[error("git cannot list the files: {0}")]
    Git(String),
    #[error("the plan cannot be searched for values that contain its directory: {0}")]
    Unsearchable(String),
    #[error("TF_DATA_DIR is set, and a snapshot has the tool's data only in .terraform")]
    DataDir,
    #[error("the path {} is not UTF-8", .0.display())]
    NotUtf8(PathBuf),
    #[error("it would lack files of the source, which git ignores, or which are links out of it or may hold a secret: {}", listed(.0))]
    LeftOut(BTreeSet<PathBuf>),
}

/// The first files, and the number of the others.
fn listed(files: &BTreeSet<PathBuf>) -> String {
    const SHOWN: usize = 3;
    let shown = files.iter().take(SHOWN).map(|file| file.display().to_string());
    let shown = shown.collect::<Vec<_>>().join(", ");
    match files.len().saturating_sub(SHOWN) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

#[cfg(test)]
mod tests;
