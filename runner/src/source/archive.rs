//! Unpacks an archive that may be hostile: `tar`, compressed with `zstd` or `gzip` or not at all.
//!
//! `unpack` makes a directory of it, `link` decides which links it may hold, `headers` reads names that are too long for an
//! entry, and `compression` recognises how the archive is compressed. This module does not depend on where it comes from.

mod compression;
mod headers;
pub(crate) mod link;
mod stoppable;
mod unpack;

use std::path::PathBuf;
use std::{fmt, io};

pub(crate) use stoppable::Stoppable;
#[cfg(any(test, fuzzing))]
pub(crate) use unpack::unpack;
pub(crate) use unpack::{Limits, unpack_until};
pub(super) use unpack::{MAX_DEPTH, MAX_PATHS};

/// What an archive holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Packed {
    /// Files, links and directories.
    pub(crate) entries: u64,
    /// The size of the files.
    pub(crate) bytes: u64,
    /// The commit that `git archive` has recorded in it.
    pub(crate) commit: Option<String>,
}

impl fmt::Display for Packed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} entries, {} bytes", self.entries, self.bytes)?;
        self.commit.as_ref().map_or(Ok(()), |commit| write!(f, ", commit {commit}"))
    }
}

/// A limit in messages.
pub(in crate::source) fn shown_size(bytes: u64) -> String {
    const UNITS: [(&str, u32); 2] = [("GiB", 30), ("MiB", 20)];
    let unit = UNITS.into_iter().find(|(_, bits)| bytes > 0 && bytes.is_multiple_of(1 << bits));
    unit.map_or_else(
        || format!("{bytes} bytes"),
        |(unit, bits)| format!("{} {unit}", bytes >> bits),
    )
}

/// Why an archive could not be unpacked.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ArchiveError {
    #[error("it is empty")]
    Empty,
    #[error("it is {0}")]
    Unknown(&'static str),
    #[error("its compression needs more memory than is allowed: a window of more than 128 MiB")]
    Window,
    #[error("a header in it is not valid, or too long")]
    BadHeader,
    #[error("its entry {} is refused: {reason}", shortened(.name))]
    Refused { name: String, reason: Refusal },
    #[error("it is larger than {0}")]
    TooLarge(String),
    #[error("it is not complete, or is followed by other data")]
    BadEnd,
    #[error("other data follows its end, such as a second archive")]
    Trailing,
    #[error("{}", .0.display())]
    File(PathBuf, #[source] io::Error),
    #[error("it cannot be read")]
    Read(#[source] io::Error),
}

/// Why an entry is refused.
#[derive(Clone, Copy, Debug, thiserror::Error)]
pub(crate) enum Refusal {
    #[error("its path occurs twice")]
    Twice,
    #[error("it is a sparse file")]
    Sparse,
    #[error("{0}")]
    TooLong(&'static str),
    #[error("{0}")]
    Other(&'static str),
}

/// A name in messages. Of a long one, its beginning and its end.
fn shortened(name: &str) -> String {
    const ENDS: [usize; 2] = [120, 40];
    let count = name.chars().count();
    if count <= ENDS.iter().sum() {
        return format!("`{}`", name.escape_debug());
    }
    let first = name.chars().take(ENDS[0]).collect::<String>();
    let last = name.chars().skip(count - ENDS[1]).collect::<String>();
    format!("`{}...{}` ({} bytes)", first.escape_debug(), last.escape_debug(), name.len())
}

impl From<&'static str> for Refusal {
    fn from(reason: &'static str) -> Self {
        Self::Other(reason)
    }
}

impl From<io::Error> for ArchiveError {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::UnexpectedEof => Self::BadEnd,
            io::ErrorKind::FileTooLarge => {
                let Limits { entries, bytes, .. } = Limits::default();
                Self::TooLarge(format!("{} of files and {entries} entries", shown_size(bytes)))
            }
            // The library has no kind of error for it.
            _ if error.to_string().contains("too much memory") => Self::Window,
            _ => Self::Read(error),
        }
    }
}

/// What the fuzz target calls.
#[cfg(any(fuzzing, test))]
pub(crate) mod fuzz;

#[cfg(test)]
mod tests;
