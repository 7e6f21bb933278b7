//! The runner's own directories: private ones, and work directories that stay from run to run, with mark and lock.

use std::fs::{File, TryLockError};
use std::io::Write as _;
use std::path::Path;

use fs_err as fs;

use crate::source::error::CheckoutError;

/// The file that marks a work directory of the runner and is locked by the run that uses it.
pub(crate) const MARK: &str = ".plancha-work";

/// Locks a work directory that stays from run to run. It must be empty or marked, of the same repository, and not in use.
pub(super) fn claim(dir: &Path, repository: Option<&str>) -> Result<File, CheckoutError> {
    make(dir)?;
    let mark = dir.join(MARK);
    if !fs::exists(&mark)? && fs::read_dir(dir)?.next().is_some() {
        return Err(CheckoutError::ForeignFiles(dir.to_owned()));
    }
    let mut lock = fs::OpenOptions::new().create(true).append(true).open(&mark)?;
    match lock.file().try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => return Err(CheckoutError::Busy(dir.to_owned())),
        Err(TryLockError::Error(error)) => return Err(error.into()),
    }
    let Some(ours) = repository else { return Ok(lock.into()) };
    let recorded = fs::read_to_string(&mark)?;
    match recorded.lines().next() {
        // Older versions recorded nothing.
        None => writeln!(lock, "{ours}")?,
        Some(theirs) if theirs == ours => {}
        Some(theirs) => {
            let (theirs, ours) = (theirs.to_owned(), ours.to_owned());
            return Err(CheckoutError::OtherRepository { dir: dir.to_owned(), theirs, ours });
        }
    }
    Ok(lock.into())
}

pub(super) fn make(dir: &Path) -> std::io::Result<()> {
    use std::os::unix::fs::DirBuilderExt as _;
    let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(dir);
    made.map_err(|error| std::io::Error::new(error.kind(), format!("{}: {error}", dir.display())))
}
