//! Removes private directories.

use std::ffi::OsStr;
use std::fs::{File, TryLockError};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::mpsc;
use std::thread;

use fs_err as fs;

use crate::process::SHORTLY;
use crate::source::regular::unless_missing;
use crate::source::scratch::ended::UNSENT;
use crate::source::scratch::name::{is_first, rename_first};

/// The layer that a run applies.
pub(super) const LAYER: &str = "layer";
/// The lock of the run.
pub(super) const LOCK: &str = ".lock";
/// The name of a file of [`UNSENT`] that is not complete yet begins with this.
pub(crate) const PARTIAL: &str = ".partial-";

/// Waits a few seconds for a removal, which then goes on beside the run: a large directory must not keep the run from its
/// work, nor from a signal. What is left at the end of the run is removed by a later one.
pub(super) fn shortly(remove: impl FnOnce() -> io::Result<()> + Send + 'static) -> io::Result<()> {
    let (sender, receiver) = mpsc::channel();
    thread::Builder::new().spawn(move || drop(sender.send(remove())))?;
    receiver.recv_timeout(SHORTLY).unwrap_or(Ok(()))
}

/// Removes a directory, unless `lock` is no longer its lock file: another run may have removed the directory and created
/// it again. Of several runs one removes it.
pub(super) fn clear_if_current(dir: &Path, lock: &File) -> io::Result<()> {
    match lock.try_lock() {
        Ok(()) if is_at(lock, &dir.join(LOCK)) => {
            // The path of unsent files was shown.
            let renamed =
                if is_first(dir) && !has_unsent(dir) { rename_first(dir).ok() } else { None };
            clear(renamed.as_deref().unwrap_or(dir))
        }
        Ok(()) | Err(TryLockError::WouldBlock) => Ok(()),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

/// Removes a directory, its lock file last. Unsent files stay, with the name of their layer.
pub(super) fn clear(dir: &Path) -> io::Result<()> {
    let has_unsent = has_unsent(dir);
    empty(dir, |name| name == LOCK || has_unsent && (name == UNSENT || name == LAYER))?;
    unless_missing(fs::remove_file(dir.join(LOCK)))?;
    if has_unsent { Ok(()) } else { unless_missing(fs::remove_dir(dir)).map(drop) }
}

/// Removes what is in a directory, except for what stays.
pub(super) fn empty(dir: &Path, stays: impl Fn(&OsStr) -> bool) -> io::Result<()> {
    let is_dir = |entry: &fs::DirEntry| entry.file_type().is_ok_and(|kind| kind.is_dir());
    let entries = fs::read_dir(dir)?.flatten().filter(|entry| !stays(&entry.file_name()));
    let mut entries = entries.map(|entry| (is_dir(&entry), entry.path())).collect::<Vec<_>>();
    // Plans and logs first: a directory may take long.
    entries.sort();
    let mut failed = None;
    for (is_dir, path) in entries {
        let removed = if is_dir { fs::remove_dir_all(path) } else { fs::remove_file(path) };
        // Another run may remove the same directory.
        failed = failed.or(unless_missing(removed).err());
    }
    failed.map_or(Ok(()), Err)
}

fn has_unsent(dir: &Path) -> bool {
    let mut unsent = fs::read_dir(dir.join(UNSENT)).into_iter().flatten().flatten();
    unsent.any(|entry| !entry.file_name().to_string_lossy().starts_with(PARTIAL))
}

/// Whether an open file is still the one at this path.
pub(super) fn is_at(file: &File, path: &Path) -> bool {
    let id = |metadata: std::fs::Metadata| (metadata.dev(), metadata.ino());
    let (here, there) = (file.metadata().map(id), fs::symlink_metadata(path).map(id));
    matches!((here, there), (Ok(here), Ok(there)) if here == there)
}
