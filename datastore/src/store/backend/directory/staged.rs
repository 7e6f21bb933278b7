//! A new version of a file of a `file://` storage, until it is published.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::FileExt as _;
use std::path::{Path as FsPath, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use object_store::PutPayload;

use crate::store::backend::directory::dirs::{make_parents, sync_parent};
use crate::store::backend::directory::files::{MAX_TRIES, remove};
use crate::store::backend::directory::io_threads;
use crate::store::backend::directory::jobs::fail_if_abandoned;

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
    pub(in crate::store) fn create(root: &FsPath, file_path: &FsPath) -> io::Result<Self> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create_new(true);
        let (mut number, mut tries, mut made) = (1_u32, 0, Vec::<PathBuf>::new());
        loop {
            let mut path = file_path.as_os_str().to_owned();
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
                Err(error) if error.kind() == ErrorKind::NotFound && tries < MAX_TRIES => {
                    tries += 1;
                    match make_parents(root, file_path) {
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
    pub(in crate::store) fn rename(
        &mut self,
        file_path: &FsPath,
        create_only: bool,
    ) -> io::Result<()> {
        fail_if_abandoned()?;
        if create_only {
            fs::hard_link(&self.path, file_path)?;
            fs::remove_file(&self.path)?;
        } else {
            fs::rename(&self.path, file_path)?;
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

/// Whether `object_store` has named a file so while it was not complete.
pub(in crate::store) fn is_staged(name: &str) -> bool {
    let number = name.rsplit_once('#').map(|(_, number)| number);
    number.is_some_and(|number| !number.is_empty() && number.bytes().all(|c| c.is_ascii_digit()))
}
