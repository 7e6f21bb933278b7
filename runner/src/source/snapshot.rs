//! The snapshot of a plan's working directory: `workspace.tar.zst`.
//!
//! `select` decides which files belong to it, `tree` makes one digest of files, `needed` names those that the configuration reads and the snapshot lacks,
//! `pack` writes the archive, [`crate::source::archive`] unpacks it. This
//! module does not depend on where it is stored, and which plan it belongs to.

mod needed;
mod pack;
mod select;
pub(crate) mod tree;

use std::collections::BTreeSet;
use std::io;
use std::path::PathBuf;

pub(crate) use needed::check;
pub(crate) use pack::pack;
pub(crate) use select::{Before, SourceFiles, Stamp, before, is_code, of_module, select};

use crate::source::archive::MAX_DEPTH;

/// Its name beside the plan.
pub(crate) const FILE: &str = "workspace.tar.zst";

/// Why a snapshot could not be made.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SnapshotError {
    #[error("{} changed while it was packed", .0.display())]
    Changed(PathBuf),
    #[error("{} cannot be read: {}", .0.display(), reason(.1))]
    File(PathBuf, io::Error),
    #[error("the path {} has more than {MAX_DEPTH} parts, and no apply could unpack it", .0.display())]
    TooDeep(PathBuf),
    #[error("it would have more than {0}, and no apply could unpack it")]
    TooLarge(String),
    #[error("the archive cannot be written")]
    Archive(#[from] io::Error),
    #[error(".terraformignore cannot be read: {error}")]
    Ignore { error: String },
    #[error("git cannot list the files: {0}")]
    Git(String),
    #[error("the plan cannot be searched for values that contain its directory: {0}")]
    Unsearchable(String),
    #[error("TF_DATA_DIR is set, and a snapshot has the tool's data only in .terraform")]
    DataDir,
    #[error("the path {} is not UTF-8", .0.display())]
    NotUtf8(PathBuf),
    #[error("it would lack files of the source, which git or .terraformignore excludes, or which are links out of it or may hold a secret: {}", listed(.0))]
    LeftOut(BTreeSet<PathBuf>),
    #[error("it would lack configuration files, which git or .terraformignore excludes, or which are out of the source or are named like states: {}", listed(.0))]
    NoConfiguration(BTreeSet<PathBuf>),
}

/// The system's reason, without the path that its error repeats.
fn reason(error: &io::Error) -> String {
    let cause = error.get_ref().and_then(|cause| cause.source());
    cause.map_or_else(|| error.to_string(), ToString::to_string)
}

/// The first files, and the number of the others.
pub(crate) fn listed(files: &BTreeSet<PathBuf>) -> String {
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
