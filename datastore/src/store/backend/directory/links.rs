//! Symbolic links that listings of a directory meet: those that are left out, and those that are followed.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path as FsPath;
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::io::Errno;

use crate::store::backend::directory::beneath::leads_out;

/// What a listing does at a symbolic link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Link {
    /// It counts as its target, as in a read.
    Followed,
    /// It is left out: it leads out of the directory of the storage.
    Outside,
    /// It is left out: it leads to itself, or to a directory above it.
    Loop,
}

/// The links that were met, by their paths below the root.
#[derive(Debug, Default)]
pub(in crate::store) struct Links(Mutex<BTreeMap<String, Link>>);

impl Links {
    pub(in crate::store) fn record(&self, path: String, link: Link) {
        self.found().insert(path, link);
    }

    pub(in crate::store) fn all(&self) -> Vec<(String, Link)> {
        self.found().iter().map(|(path, link)| (path.clone(), *link)).collect()
    }

    /// Whether a key is a link, or below one.
    pub(in crate::store) fn lead_to(&self, key: &str) -> bool {
        let found = self.found();
        let mut parents = key.match_indices('/').map(|(end, _)| &key[..end]);
        !found.is_empty()
            && (found.contains_key(key) || parents.any(|path| found.contains_key(path)))
    }

    fn found(&self) -> MutexGuard<'_, BTreeMap<String, Link>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a listing does at this link.
pub(in crate::store) fn link_at(root: &FsPath, path: &str) -> Link {
    if leads_out(root, path) {
        return Link::Outside;
    }
    match fs::metadata(root.join(path)) {
        Err(error) if error.raw_os_error() == Some(Errno::LOOP.raw_os_error()) => Link::Loop,
        Ok(target) if target.is_dir() && is_above(root, path, &target) => Link::Loop,
        _ => Link::Followed,
    }
}

/// Whether a directory is one of those through which this path leads.
fn is_above(root: &FsPath, path: &str, directory: &fs::Metadata) -> bool {
    let mut parents = path.match_indices('/').map(|(end, _)| root.join(&path[..end]));
    let is_it = |above: &FsPath| {
        let above = fs::metadata(above);
        above.is_ok_and(|above| (above.dev(), above.ino()) == (directory.dev(), directory.ino()))
    };
    is_it(root) || parents.any(|parent| is_it(&parent))
}
