//! Unpacks an archive that may be hostile: `tar`, compressed with `zstd`.
//!
//! `unpack` makes a directory of it, `link` decides which links it may hold. Where the archive comes from is not known
//! here.

mod link;
mod unpack;

use std::io;
use std::path::PathBuf;

pub(crate) use unpack::{Limits, unpack};

/// What an archive holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Packed {
    /// Files, links and directories.
    pub(crate) entries: u64,
    /// The size of the files.
    pub(crate) bytes: u64,
}

/// Why an archive could not be unpacked.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ArchiveError {
    #[error("its entry `{name}` is refused: {reason}")]
    Refused { name: String, reason: &'static str },
    #[error("it is larger than {0}")]
    TooLarge(String),
    #[error("it is not complete, or is followed by other data")]
    BadEnd,
    #[error("{}", .0.display())]
    File(PathBuf, #[source] io::Error),
    #[error("it cannot be read")]
    Read(#[from] io::Error),
}

#[cfg(test)]
mod tests;
