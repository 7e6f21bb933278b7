//! The index of a work tree, read once for several questions: each process of git takes milliseconds.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use crate::source::git::command::question;

/// The mode of a submodule.
const GITLINK: &[u8] = b"160000";

/// What the index has of a directory, without the files of submodules.
pub(super) struct Index {
    listed: Vec<u8>,
}

/// An entry of the index. In a merge a path has several.
pub(super) struct Entry<'a> {
    /// A letter for its state and flags.
    pub(super) tag: u8,
    /// Its path below the directory.
    pub(super) path: &'a Path,
    mode: &'a [u8],
}

impl Index {
    /// Reads the entries of a directory. The error is git's reason.
    pub(super) async fn read(dir: &Path) -> Result<Self, String> {
        Ok(Self { listed: question(dir, &["ls-files", "-v", "--stage", "-z"]).await? })
    }

    /// The entries: `TAG MODE ID STAGE`, a tab, and the path.
    pub(super) fn entries(&self) -> impl Iterator<Item = Entry<'_>> {
        let entries = self.listed.split(|byte| *byte == 0);
        entries.filter_map(|entry| {
            let at = entry.iter().position(|byte| *byte == b'\t')?;
            let (tag, mode) = (*entry.first()?, entry[..at].split(|byte| *byte == b' ').nth(1)?);
            Some(Entry { tag, path: Path::new(OsStr::from_bytes(&entry[at + 1..])), mode })
        })
    }

    /// The paths of the submodules, whether they are checked out or not.
    pub(super) fn submodules(&self) -> impl Iterator<Item = &Path> {
        self.entries().filter(|entry| entry.mode == GITLINK).map(|entry| entry.path)
    }

    /// Whether there are any: they have files and an index of their own.
    pub(super) fn has_submodules(&self) -> bool {
        self.submodules().next().is_some()
    }

    /// The paths of all entries.
    pub(super) fn files(&self) -> BTreeSet<PathBuf> {
        self.entries().map(|entry| entry.path.to_owned()).collect()
    }
}
