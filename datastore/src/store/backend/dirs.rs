//! Directories of a `file://` storage: made, locked and synced.

use std::fs::{self, File, FileType, Metadata, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path as FsPath, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, mpsc};

use crate::store::backend::io_threads;
use nix::errno::Errno;
use nix::fcntl::OFlag;

/// What is in the place of a file is none.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("in its place is {0}, and no file")]
pub(in crate::store) struct Irregular(&'static str);

/// Opens a file, and nothing else: a FIFO or a device could be waited for in vain. A directory counts as nothing.
pub(in crate::store) fn open_file(
    place: &FsPath,
    options: &mut OpenOptions,
) -> io::Result<(File, Metadata)> {
    let file = match options.custom_flags(OFlag::O_NONBLOCK.bits()).open(place) {
        // A FIFO without a reader.
        Err(error) if error.raw_os_error() == Some(Errno::ENXIO as i32) => {
            return Err(irregular(fs::metadata(place)?.file_type()));
        }
        file => file?,
    };
    let meta = file.metadata()?;
    if meta.is_file() { Ok((file, meta)) } else { Err(irregular(meta.file_type())) }
}

fn irregular(kind: FileType) -> io::Error {
    if kind.is_dir() {
        return ErrorKind::NotFound.into();
    }
    let kind = if kind.is_fifo() { "a FIFO" } else { "a socket or a device" };
    io::Error::other(Irregular(kind))
}

/// Opens a directory, and nothing else.
fn open_directory(place: &FsPath) -> io::Result<File> {
    File::options().read(true).custom_flags(OFlag::O_DIRECTORY.bits()).open(place)
}

/// The lock of the directory that holds an object, until it is dropped; none where there are no locks.
pub(in crate::store) fn lock(place: &FsPath) -> io::Result<Option<File>> {
    let parent = parent(place)?;
    loop {
        let directory = open_directory(parent)?;
        match directory.lock() {
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(_) => return Ok(None),
            Ok(()) => {}
        }
        // It may have been removed, and made anew, while we waited for it.
        match fs::metadata(parent) {
            Ok(now) if now.ino() == directory.metadata()?.ino() => return Ok(Some(directory)),
            Ok(_) => {}
            Err(error) => return Err(error),
        }
    }
}

/// Makes the directories above a place. Those that are new are still to be synced in their parents.
pub(in crate::store) fn make_parents(root: &FsPath, place: &FsPath) -> io::Result<Vec<PathBuf>> {
    let missing =
        place.ancestors().skip(1).take_while(|parent| *parent != root && !parent.exists());
    let missing = missing.map(FsPath::to_owned).collect();
    match fs::create_dir_all(parent(place)?) {
        // A file is where a directory should be.
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            Err(ErrorKind::NotADirectory.into())
        }
        made => made.map(|()| missing),
    }
}

/// Syncs the directory that holds this place.
pub(in crate::store) fn sync_parent(place: &FsPath) -> io::Result<()> {
    open_directory(parent(place)?)?.sync_all()
}

fn parent(place: &FsPath) -> io::Result<&FsPath> {
    place.parent().ok_or_else(|| ErrorKind::InvalidInput.into())
}

/// Does both at once, where a thread is free: of two syncs at once, a journal is written and a disk flushed only once.
pub(in crate::store) fn both(
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
