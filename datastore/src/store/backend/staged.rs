//! A new version of a file of a `file://` storage, until it is published.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::FileExt as _;
use std::path::{Path as FsPath, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use object_store::PutPayload;

use crate::store::backend::dirs::{make_parents, sync_parent};
use crate::store::backend::disk::{TRIES, remove};
use crate::store::backend::io_threads;
use crate::store::backend::jobs::wanted;

/// A file that is not published yet, and is removed unless it will be.
#[derive(Debug)]
pub(in crate::store) struct Staged {
    pub(in crate::store) file: File,
    path: PathBuf,
    /// Published or removed: the name is no longer its own.
    is_gone: AtomicBool,
}

impl Staged {
    /// Makes the directories that are missing on the way.
    pub(in crate::store) fn create(root: &FsPath, place: &FsPath) -> io::Result<Self> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create_new(true);
        let (mut number, mut tries, mut made) = (1_u32, 0, Vec::<PathBuf>::new());
        loop {
            let mut path = place.as_os_str().to_owned();
            path.push(format!("#{number}"));
            let path = PathBuf::from(path);
            match options.open(&path) {
                Ok(file) => {
                    // Only now: a directory that is empty meanwhile may be removed by others.
                    let staged = Self { file, path, is_gone: AtomicBool::new(false) };
                    made.iter().try_for_each(|made| sync_parent(made))?;
                    return Ok(staged);
                }
                Err(error) if error.kind() == ErrorKind::AlreadyExists => number += 1,
                Err(error) if error.kind() == ErrorKind::NotFound && tries < TRIES => {
                    tries += 1;
                    match make_parents(root, place) {
                        // Others have removed a directory that was empty.
                        Err(error) if error.kind() == ErrorKind::NotFound => {}
                        new => made.extend(new?),
                    }
                }
                Err(error) => return Err(error),
            }
        }
    }

    pub(in crate::store) fn write(&self, mut at: u64, bytes: &PutPayload) -> io::Result<()> {
        for piece in bytes {
            self.file.write_all_at(piece, at)?;
            at += piece.len() as u64;
        }
        Ok(())
    }

    /// Removes it.
    pub(in crate::store) fn discard(&self) -> io::Result<()> {
        if self.is_gone.swap(true, Ordering::AcqRel) { Ok(()) } else { remove(&self.path) }
    }

    pub(in crate::store) fn is_published(&self) -> bool {
        self.is_gone.load(Ordering::Acquire)
    }

    /// Gives it its name: it replaces the file of that name, or is created only if there is none. Fails if the caller has given up.
    pub(in crate::store) fn rename(&mut self, place: &FsPath, creates: bool) -> io::Result<()> {
        wanted()?;
        if creates {
            fs::hard_link(&self.path, place)?;
            fs::remove_file(&self.path)?;
        } else {
            fs::rename(&self.path, place)?;
        }
        self.is_gone.store(true, Ordering::Release);
        Ok(())
    }
}

impl Drop for Staged {
    fn drop(&mut self) {
        if self.is_gone.load(Ordering::Acquire) {
            return;
        }
        // What cannot be removed now is hidden, and removed by the janitor.
        let path = std::mem::take(&mut self.path);
        io_threads::start(move || drop(fs::remove_file(path)));
    }
}
