//! Unpacks an archive that may be hostile: `tar`, compressed with `zstd` or `gzip` or not at all.
//!
//! `unpack` makes a directory of it, `link` decides which links it may hold, `headers` reads names that are too long for an
//! entry, and `compression` recognises how the archive is compressed. This module does not depend on where it comes from.

mod compression;
mod headers;
pub(super) mod link;
mod stoppable;
mod unpack;

use std::path::PathBuf;
use std::{fmt, io};

pub(crate) use stoppable::Stoppable;
pub(crate) use unpack::{Limits, unpack};

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

/// Why an archive could not be unpacked.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ArchiveError {
    #[error("it is empty")]
    Empty,
    #[error("it is {0}")]
    Unknown(&'static str),
    #[error("a header in it is not valid, or too long")]
    BadHeader,
    #[error("its entry `{}` is refused: {reason}", .name.escape_debug())]
    Refused { name: String, reason: Refusal },
    #[error("it is larger than {0}")]
    TooLarge(String),
    #[error("it is not complete, or is followed by other data")]
    BadEnd,
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
    Other(&'static str),
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
            io::ErrorKind::FileTooLarge => Self::TooLarge("the limits allow".to_owned()),
            _ => Self::Read(error),
        }
    }
}

/// What the fuzz target calls.
#[cfg(any(fuzzing, test))]
pub(crate) mod fuzz {
    use tar::{Builder, EntryType, Header};

    use super::{Limits, unpack};

    /// Kind, name, target of a link, and content.
    type Entry<'a> = (u8, &'a [u8], &'a [u8], &'a [u8]);

    const KINDS: &[u8] = b"0125LKxgS7D\0";

    /// Unpacks entries of a kind, a name, the name of a target and content. Nothing may be written outside of the new
    /// directory, and after an error nothing may be left.
    #[cfg_attr(not(fuzzing), expect(unreachable_pub, reason = "fuzz targets call it, and tests"))]
    pub fn source_archive(entries: &[Entry<'_>], of_any_program: bool) {
        let mut tar = Builder::new(Vec::new());
        for (kind, name, target, content) in entries {
            let mut header = Header::new_gnu();
            let Some(fields) = header.as_gnu_mut() else { return };
            for (field, bytes) in [(&mut fields.name, name), (&mut fields.linkname, target)] {
                let length = bytes.len().min(field.len());
                field[..length].copy_from_slice(&bytes[..length]);
            }
            header.set_entry_type(EntryType::new(KINDS[usize::from(*kind) % KINDS.len()]));
            header.set_mode(u32::from(*kind));
            header.set_size(content.len() as u64);
            header.set_cksum();
            if tar.append(&header, *content).is_err() {
                return;
            }
        }
        let (Ok(tar), Ok(dir)) = (tar.into_inner(), tempfile::tempdir()) else { return };
        let tar =
            if of_any_program { tar } else { zstd::encode_all(&tar[..], 1).unwrap_or_default() };
        let limits = Limits { entries: 50, bytes: 1 << 16, of_any_program };
        let to = dir.path().join("to");
        let unpacked = unpack(&tar[..], &to, limits);
        assert_eq!(unpacked.is_ok(), to.exists(), "after an error nothing is left");
        let outside = std::fs::read_dir(dir.path()).into_iter().flatten().flatten();
        assert!(
            outside.map(|entry| entry.path()).all(|path| path == to),
            "nothing is written outside"
        );
        // Links lead nowhere else, so a file behind any path is inside.
        let mut to_do = vec![to.clone()];
        while let Some(path) = to_do.pop() {
            if let Ok(real) = std::fs::canonicalize(&path) {
                assert!(
                    real.starts_with(std::fs::canonicalize(&to).unwrap_or_default()),
                    "a link leads outside"
                );
            }
            if path.is_dir() && !path.is_symlink() {
                to_do.extend(
                    std::fs::read_dir(path).into_iter().flatten().flatten().map(|e| e.path()),
                );
            }
        }
    }
}

#[cfg(test)]
mod tests;
