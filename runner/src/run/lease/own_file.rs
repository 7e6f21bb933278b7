//! The lease that a run holds, in a file of this machine. The runner holds the file's kernel lock: a later runner that gets
//! it knows that the holder is dead, and need not wait until the lease expires. But the holder's tool may still work, and needs the
//! lease to save its state: the file also names the private directory of the run.

use std::fs::{File, TryLockError};
use std::io::{self, Read as _, Seek as _, Write as _};
use std::path::{Path, PathBuf};

use datastore_api::{ClaimId, Name, Sha256};
use fs_err as fs;
use url::Url;

use crate::run::apply::lock::file as lock;
use crate::source::scratch::has_orphan;

/// The directory below the state home.
const DIRECTORY: &str = "plancha/leases";
/// How often the file is opened again because another runner has just removed it.
const TRIES: usize = 10;
/// A larger file is not read.
const MAX_FILE: u64 = 8 << 10;

/// The file, locked by this process.
#[derive(Debug)]
pub(super) struct OwnFile {
    file: File,
    path: PathBuf,
}

impl OwnFile {
    /// The file for the lease of a layer. `None`: a runner of this machine that lives has it.
    pub(super) fn lock(
        home: &Path,
        datastore: &Url,
        (namespace, layer): (&Name, &Name),
    ) -> io::Result<Option<Self>> {
        let key = Sha256::of(format!("{datastore}\n{namespace}\n{layer}").as_bytes());
        let path = home.join(DIRECTORY).join(key.to_string());
        for _ in 0..TRIES {
            let file = lock::open(&path)?;
            match file.try_lock() {
                Ok(()) if lock::is_current(&file, &path) => return Ok(Some(Self { file, path })),
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => return Ok(None),
                Err(TryLockError::Error(error)) => return Err(error),
            }
        }
        Ok(None)
    }

    /// The lease of a runner that was killed.
    pub(super) fn left(&self) -> Option<ClaimId> {
        self.read()?.lines().next()?.trim().parse().ok()
    }

    /// Whether the tool of a runner that was killed still works.
    pub(super) fn has_orphan(&self) -> bool {
        let text = self.read().unwrap_or_default();
        text.split_once('\n').is_some_and(|(_, dir)| has_orphan(Path::new(dir)))
    }

    fn read(&self) -> Option<String> {
        let (mut file, mut text) = (&self.file, String::new());
        file.rewind().ok()?;
        file.take(MAX_FILE).read_to_string(&mut text).ok()?;
        Some(text)
    }

    /// Writes the lease of this runner, and its private directory.
    pub(super) fn record(&self, id: &ClaimId, scratch: &Path) -> io::Result<()> {
        let mut file = &self.file;
        file.set_len(0)?;
        file.rewind()?;
        let scratch = std::path::absolute(scratch)?;
        file.write_all(format!("{id}\n{}", scratch.to_string_lossy()).as_bytes())?;
        file.sync_all()
    }

    /// Removes the file, when its lease is released.
    pub(super) fn remove(self) {
        if let Err(error) = fs::remove_file(&self.path) {
            tracing::debug!("the file of the lease stays: {error}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_file_of_a_dead_runner_is_taken() {
        let home = tempfile::tempdir().unwrap();
        let datastore = "http://127.0.0.1:1".parse().unwrap();
        let names = ("n".parse().unwrap(), "l".parse().unwrap());
        let lock = || OwnFile::lock(home.path(), &datastore, (&names.0, &names.1)).unwrap();
        let ours = lock().unwrap();
        assert_eq!(ours.left(), None);
        let id: ClaimId = "0123456789abcdef".parse().unwrap();
        ours.record(&id, home.path()).unwrap();
        assert!(lock().is_none(), "its runner lives");
        drop(ours);
        let next = lock().unwrap();
        assert_eq!(next.left(), Some(id));
        next.remove();
        assert_eq!(lock().unwrap().left(), None);
    }
}
