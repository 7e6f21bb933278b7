//! Directories of a `file://` storage: made, locked and synced.

use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path as FsPath, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::time::Duration;

use nix::fcntl::OFlag;
use object_store::Error;
use object_store::path::Path;

use crate::store::backend::directory::files::MAX_TRIES;
use crate::store::backend::directory::io_threads;
use crate::store::backend::metered::{NoAnswer, in_time};

/// How long a check of a directory may take.
const CHECK_TIMEOUT: Duration = Duration::from_secs(15);

/// A file system has not answered.
#[derive(Debug, thiserror::Error)]
#[error("{} does not answer ({late})\nhint: check the mount of its file system", .directory.display())]
pub(in crate::store) struct SilentDirectory {
    directory: PathBuf,
    late: NoAnswer,
}

impl SilentDirectory {
    pub(in crate::store) fn new(directory: &FsPath, late: NoAnswer) -> Self {
        Self { directory: directory.to_owned(), late }
    }
}

/// The same error of a job; that of a file system that does not answer names the directory of `path`.
pub(in crate::store) fn name_directory(error: Error, root: &FsPath, path: &Path) -> Error {
    match error {
        Error::Generic { store, source } => match source.downcast::<NoAnswer>() {
            Ok(late) => {
                let file_path = root.join(path.as_ref());
                let is_root = path.as_ref().is_empty();
                let directory = file_path.parent().filter(|_| !is_root).unwrap_or(root);
                let source = SilentDirectory::new(directory, *late).into();
                Error::Generic { store, source }
            }
            Err(source) => Error::Generic { store, source },
        },
        error => error,
    }
}

/// As [`check_directory`], on a thread of its own: a file system that hangs is an error.
pub async fn check_directory_in_time(path: &FsPath) -> io::Result<()> {
    let checked = path.to_owned();
    let check = io_threads::run(move || check_directory(&checked));
    let checked = in_time(CHECK_TIMEOUT, "look at it", check).await;
    checked.unwrap_or_else(|late| Err(io::Error::other(SilentDirectory::new(path, late))))
}

/// Checks that a path is a directory. Fails with [`ErrorKind::NotFound`] only if nothing has this path, so that a
/// directory can be created.
pub(in crate::store) fn check_directory(path: &FsPath) -> io::Result<()> {
    match fs::metadata(path) {
        Ok(found) if found.is_dir() => Ok(()),
        Ok(_) => Err(io::Error::other("it is not a directory")),
        Err(error) if error.kind() == ErrorKind::NotFound => match fs::read_link(path) {
            Ok(target) => Err(io::Error::other(format!(
                "it is a symbolic link to {}, which does not exist: create that directory, or correct the link",
                target.display()
            ))),
            Err(_) => Err(error),
        },
        Err(error) => Err(error),
    }
}

/// Opens a directory only.
fn open_directory(file_path: &FsPath) -> io::Result<File> {
    File::options().read(true).custom_flags(OFlag::O_DIRECTORY.bits()).open(file_path)
}

/// Locks the directory of an object until the result is dropped; `None` where the file system has no locks.
pub(in crate::store) fn lock(file_path: &FsPath) -> io::Result<Option<File>> {
    let parent = parent(file_path)?;
    loop {
        let directory = open_directory(parent)?;
        match directory.lock() {
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(_) => return Ok(None),
            Ok(()) => {}
        }
        // It may have been replaced while this waited for the lock.
        match fs::metadata(parent) {
            Ok(now) if now.ino() == directory.metadata()?.ino() => return Ok(Some(directory)),
            Ok(_) => {}
            Err(error) => return Err(error),
        }
    }
}

/// Makes the directories above a place, but not the root. Those that are new are still to be synced in their parents.
pub(in crate::store) fn make_parents(
    root: &FsPath,
    file_path: &FsPath,
) -> io::Result<Vec<PathBuf>> {
    let mut all = Vec::new();
    for _ in 0..MAX_TRIES {
        let missing =
            file_path.ancestors().skip(1).take_while(|parent| *parent != root && !parent.exists());
        let missing: Vec<_> = missing.map(FsPath::to_owned).collect();
        let made = missing.iter().rev().try_for_each(|directory| make_directory(directory));
        all.extend(missing);
        match made {
            // Another job has removed a directory that was empty.
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            made => return made.map(|()| all),
        }
    }
    Err(ErrorKind::NotFound.into())
}

fn make_directory(directory: &FsPath) -> io::Result<()> {
    match fs::create_dir(directory) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => match fs::metadata(directory) {
            Ok(meta) if !meta.is_dir() => Err(ErrorKind::NotADirectory.into()),
            Ok(_) => Ok(()),
            // Its target is missing, or it was removed meanwhile.
            Err(_) if directory.is_symlink() => Err(ErrorKind::NotADirectory.into()),
            Err(error) => Err(error),
        },
        made => made,
    }
}

/// Syncs the directory that holds this place.
pub(in crate::store) fn sync_parent(file_path: &FsPath) -> io::Result<()> {
    open_directory(parent(file_path)?)?.sync_all()
}

fn parent(file_path: &FsPath) -> io::Result<&FsPath> {
    file_path.parent().ok_or_else(|| ErrorKind::InvalidInput.into())
}

/// Does both at once, where a thread is free: of two syncs at once, a journal is written and a disk flushed only once.
pub(in crate::store) fn run_both(
    second: impl FnOnce() -> io::Result<()> + Send + 'static,
    first: impl FnOnce() -> io::Result<()>,
) -> io::Result<()> {
    let take =
        |second: &Mutex<Option<_>>| second.lock().unwrap_or_else(PoisonError::into_inner).take();
    let (second, (done, waits)) = (Arc::new(Mutex::new(Some(second))), mpsc::channel());
    let other = Arc::clone(&second);
    io_threads::start(move || {
        if let Some(second) = take(&other) {
            // The receiver waits for it.
            let _sent = done.send(second());
        }
    });
    let first = first();
    let second = match take(&second) {
        Some(second) => second(),
        None => waits.recv().unwrap_or_else(|_| Err(io::Error::other("a thread panicked"))),
    };
    first.and(second)
}
