//! The runner's own directories: private ones, and work directories that stay from run to run, with mark and lock.

pub(super) mod foreign;

use std::fs::{File, TryLockError};
use std::io::Write as _;
use std::path::{Path, PathBuf};

use fs_err as fs;

use crate::source::checkout::source_id::SourceId;
use crate::source::error::CheckoutError;
use crate::source::regular::unless_missing;

/// The file that marks a work directory of the runner and is locked by the run that uses it.
pub(super) const MARK: &str = ".plancha-work";
/// Its place in a checkout of git, where no configuration reads it.
const MARK_OF_CHECKOUT: &str = ".git/plancha-work";

/// The mark of a work directory, or where it is created.
pub(crate) fn mark(dir: &Path) -> PathBuf {
    let of_checkout = dir.join(MARK_OF_CHECKOUT);
    if of_checkout.exists() { of_checkout } else { dir.join(MARK) }
}

/// Moves the mark of a directory that has become a checkout of git. It stays locked.
pub(super) fn move_mark(dir: &Path) -> std::io::Result<()> {
    let of_checkout = dir.join(MARK_OF_CHECKOUT);
    // A commit may have a file of the mark's name.
    if of_checkout.exists() {
        return Ok(());
    }
    unless_missing(fs::rename(dir.join(MARK), of_checkout)).map(drop)
}

/// Locks a work directory that stays from run to run. It must be empty or marked, of the same source, and not in use.
pub(super) fn claim(dir: &Path, source: Option<&SourceId>) -> Result<File, CheckoutError> {
    make(dir)?;
    let mark = mark(dir);
    if !fs::exists(&mark)? && fs::read_dir(dir)?.next().is_some() {
        return Err(CheckoutError::ForeignFiles(dir.to_owned()));
    }
    let mut lock = fs::OpenOptions::new().create(true).append(true).open(&mark)?;
    match lock.file().try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => return Err(CheckoutError::Busy(dir.to_owned())),
        Err(TryLockError::Error(error)) => return Err(error.into()),
    }
    if self::mark(dir) != mark {
        // Another run has moved its mark since: this one is new.
        unless_missing(fs::remove_file(&mark))?;
        return Err(CheckoutError::Busy(dir.to_owned()));
    }
    let Some(ours) = source else { return Ok(lock.into()) };
    let recorded = ours.recorded(&fs::read_to_string(&mark)?);
    if let Some((theirs, _)) = recorded.as_ref().filter(|(theirs, _)| theirs != ours) {
        let (theirs, ours) = (theirs.to_string(), ours.to_string());
        return Err(CheckoutError::OtherSource { dir: dir.to_owned(), theirs, ours });
    }
    match recorded {
        Some((_, is_complete)) if is_complete => {}
        // Older versions recorded no directory, or nothing.
        Some(_) => lock.write_all(ours.directory_record().as_bytes())?,
        None => lock.write_all(ours.to_record().as_bytes())?,
    }
    Ok(lock.into())
}

pub(super) fn make(dir: &Path) -> std::io::Result<()> {
    use std::os::unix::fs::DirBuilderExt as _;
    let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(dir);
    made.map_err(|error| std::io::Error::new(error.kind(), format!("{}: {error}", dir.display())))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A copy of one directory removes the files of the other, and leaves its state.
    #[test]
    fn work_directory_belongs_to_one_directory_of_a_repository() {
        let dir = tempfile::tempdir().unwrap();
        let id = |directory: &str| SourceId::of_repository("h/a").directory(Path::new(directory));
        // Recorded by an earlier version.
        fs::write(dir.path().join(MARK), "h/a\n").unwrap();
        for _ in 0..2 {
            claim(dir.path(), Some(&id("live/a"))).unwrap();
            let error = claim(dir.path(), Some(&id("live/b"))).unwrap_err().to_string();
            let says = "the code of the directory live/a of h/a, and perhaps its state, not that of the directory live/b";
            assert!(error.contains(says), "{error}");
            claim(dir.path(), Some(&id(""))).unwrap_err();
        }
        assert_eq!(fs::read_to_string(dir.path().join(MARK)).unwrap(), "h/a\nlive/a\n");
    }

    #[test]
    fn mark_of_a_checkout_is_not_replaced_by_a_file_of_its_name() {
        let dir = tempfile::tempdir().unwrap();
        let source = SourceId::of_repository("h/a");
        let claimed = claim(dir.path(), Some(&source)).unwrap();
        fs::create_dir(dir.path().join(".git")).unwrap();
        move_mark(dir.path()).unwrap();
        assert!(!dir.path().join(MARK).exists());
        fs::write(dir.path().join(MARK), "of the commit").unwrap();
        move_mark(dir.path()).unwrap();
        assert_eq!(fs::read_to_string(mark(dir.path())).unwrap(), source.to_record());
        let busy = claim(dir.path(), Some(&source));
        assert!(matches!(busy, Err(CheckoutError::Busy(_))), "{busy:?}");
        drop(claimed);
        claim(dir.path(), Some(&source)).unwrap();
    }
}
