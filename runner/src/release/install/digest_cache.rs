//! The version and digest of each binary that was used before, valid while its file is unchanged.
//!
//! One small file in the user's cache. With it a run neither hashes 90 MB nor starts the tool to learn its
//! version, and a binary that was changed after its installation is detected. If the file is missing, broken
//! or not writable, a run takes longer, but never fails.

use std::collections::BTreeMap;
use std::fs::TryLockError;
use std::io::Read as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use datastore_api::Sha256;
use fs_err as fs;
use serde::{Deserialize, Serialize};

use crate::release::cache_file::{private_dir, private_file, replace};
use crate::version::Version;

/// Enough for thousands of binaries.
const MAX_FILE: u64 = 4 << 20;

/// The cache; without a directory it stores nothing.
#[derive(Clone, Debug)]
pub(in crate::release) struct DigestCache {
    dir: Option<PathBuf>,
}

/// The recorded version and digest of one binary.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(in crate::release) struct Known {
    #[serde(flatten)]
    stamp: Stamp,
    pub(in crate::release) version: Version,
    pub(in crate::release) sha256: Sha256,
}

/// What identifies the content of a file without reading it. The change time cannot be set back; the modification
/// time can.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::release) struct Stamp {
    size: u64,
    inode: u64,
    modified: String,
    changed: String,
}

#[derive(Default, Serialize, Deserialize)]
struct Contents {
    #[serde(default)]
    binaries: BTreeMap<String, Known>,
}

impl Stamp {
    fn of(path: &Path) -> std::io::Result<Self> {
        let metadata = fs::metadata(path)?;
        Ok(Self {
            size: metadata.len(),
            inode: metadata.ino(),
            modified: format!("{}.{:09}", metadata.mtime(), metadata.mtime_nsec()),
            changed: format!("{}.{:09}", metadata.ctime(), metadata.ctime_nsec()),
        })
    }
}

/// What the cache knows of a binary.
pub(in crate::release) enum CacheEntry {
    /// The file has not changed since it was recorded.
    Unchanged(Known),
    /// The file has been written or replaced since it was recorded.
    Changed(Known),
    /// The file has never been recorded.
    Missing,
}

impl DigestCache {
    /// `dir` is Plancha's directory in the user's cache.
    pub(in crate::release) fn new(dir: Option<PathBuf>) -> Self {
        Self { dir }
    }

    fn contents(&self) -> Contents {
        let read = || {
            let mut text = Vec::new();
            let file = fs::File::open(self.dir.as_ref()?.join("binaries.json")).ok()?;
            file.take(MAX_FILE).read_to_end(&mut text).ok()?;
            serde_json::from_slice(&text).ok()
        };
        read().unwrap_or_default()
    }

    /// Looks a binary up by its path.
    pub(in crate::release) fn get(&self, path: &Path) -> std::io::Result<CacheEntry> {
        let stamp = Stamp::of(path)?;
        let known = path.to_str().and_then(|path| self.contents().binaries.remove(path));
        Ok(match known {
            Some(known) if known.stamp == stamp => CacheEntry::Unchanged(known),
            Some(known) => CacheEntry::Changed(known),
            None => CacheEntry::Missing,
        })
    }

    /// Records a binary as it is now, and drops the entries of binaries that no longer exist.
    pub(in crate::release) fn insert(&self, path: &Path, version: &Version, sha256: Sha256) {
        let Some(dir) = &self.dir else { return };
        let write = || {
            private_dir(dir)?;
            let lock = private_file().open(dir.join("binaries.lock"))?;
            lock_soon(lock.file())?;
            let mut contents = self.contents();
            contents.binaries.retain(|path, _| Path::new(path).exists());
            let known = Known { stamp: Stamp::of(path)?, version: version.clone(), sha256 };
            contents.binaries.extend(path.to_str().map(|path| (path.to_owned(), known)));
            replace(&dir.join("binaries.json"), &serde_json::to_vec_pretty(&contents)?)
        };
        if let Err(error) = write() {
            tracing::debug!("not recording {} in the digest cache: {error}", path.display());
        }
    }
}

/// Waits at most a second for a lock that other processes hold only briefly. A runner that waits here does not react to
/// signals.
fn lock_soon(file: &std::fs::File) -> std::io::Result<()> {
    for _ in 0..100 {
        match file.try_lock() {
            Err(TryLockError::WouldBlock) => std::thread::sleep(Duration::from_millis(10)),
            Err(TryLockError::Error(error)) => return Err(error),
            Ok(()) => return Ok(()),
        }
    }
    Err(std::io::ErrorKind::ResourceBusy.into())
}

/// The digest of a file. Blocks.
pub(in crate::release) fn digest(path: &Path) -> std::io::Result<Sha256> {
    Sha256::of_reader(fs::File::open(path)?)
}
