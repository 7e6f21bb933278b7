//! An unpublished version of a file of a `file://` storage.

use std::fs::{self, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::FileExt as _;
use std::path::{Path as FsPath, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use object_store::PutPayload;

use crate::store::backend::directory::dirs::{make_parents, sync_parent};
use crate::store::backend::directory::files::{MAX_TRIES, remove};
use crate::store::backend::directory::jobs::{JobFile, fail_if_abandoned};

/// Which version of an object a put to a directory may replace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::store) enum Replaces {
    Any,
    Nothing,
    /// The version with this `ETag`.
    Version(String),
    /// The same, with the same content in another form: the new file keeps the time of the old one.
    SameContent(String),
}

/// An unpublished file, removed on drop.
#[derive(Debug)]
pub(in crate::store) struct Staged {
    pub(in crate::store) file: JobFile,
    path: PathBuf,
    /// It was published or removed, so the name may belong to another file.
    is_gone: AtomicBool,
}

impl Staged {
    /// Creates a staged file and its missing parents.
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
                    // Synced only now: another job may have removed a directory while it was empty.
                    let file = JobFile::new(file);
                    let staged = Self { file, path, is_gone: AtomicBool::new(false) };
                    made.iter().try_for_each(|made| sync_parent(made))?;
                    return Ok(staged);
                }
                Err(error) if error.kind() == ErrorKind::AlreadyExists => number += 1,
                Err(error) if error.kind() == ErrorKind::NotFound && tries < MAX_TRIES => {
                    tries += 1;
                    match make_parents(root, file_path) {
                        // Another job has removed a directory that was empty.
                        Err(error) if error.kind() == ErrorKind::NotFound => {}
                        new => made.extend(new?),
                    }
                }
                Err(error) => return Err(error),
            }
        }
    }

    pub(in crate::store) fn write(&self, mut at: u64, bytes: &PutPayload) -> io::Result<()> {
        let file = self.file.get()?;
        for piece in bytes {
            file.write_all_at(piece, at)?;
            at += piece.len() as u64;
        }
        Ok(())
    }

    /// Removes the file.
    pub(in crate::store) fn discard(&self) -> io::Result<()> {
        if self.is_gone.swap(true, Ordering::AcqRel) { Ok(()) } else { remove(&self.path) }
    }

    pub(in crate::store) fn is_published(&self) -> bool {
        self.is_gone.load(Ordering::Acquire)
    }

    /// Renames it to its final name. It replaces the file of that name, or fails if one exists and it may only create.
    /// Fails if the caller has given up.
    pub(in crate::store) fn rename(&self, file_path: &FsPath, create_only: bool) -> io::Result<()> {
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
        // A file that cannot be removed now is hidden, and removed by the regular cleanup.
        let path = std::mem::take(&mut self.path);
        self.file.in_job(move || drop(fs::remove_file(path)));
    }
}

/// Whether a file name is that of a staged file.
pub(in crate::store) fn is_staged(name: &str) -> bool {
    let number = name.rsplit_once('#').map(|(_, number)| number);
    number.is_some_and(|number| !number.is_empty() && number.bytes().all(|c| c.is_ascii_digit()))
}
