//! How states are kept, and the lock of a directory that has some. It knows no store.

use std::fs::File;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use tokio::sync::OnceCell;

/// How states are kept.
#[derive(Clone, Copy, Debug)]
pub struct StateSettings {
    /// Whether this is the only process over the storage, so that its own locks suffice where the storage cannot replace one
    /// version of an object.
    pub single_replica: bool,
    /// How long a lease is valid after it was taken or renewed.
    pub lease_ttl: Duration,
    /// Whether this process only reads states. It then may do so beside a process that serves them, and every change fails.
    pub read_only: bool,
}

impl StateSettings {
    /// For a process that only reads states.
    #[must_use]
    pub fn read_only() -> Self {
        Self { read_only: true, ..Self::default() }
    }
}

impl Default for StateSettings {
    fn default() -> Self {
        Self { single_replica: false, lease_ttl: Duration::from_mins(5), read_only: false }
    }
}

/// The lock of a directory, once it is held. It is released with the last clone.
#[derive(Clone, Debug, Default)]
pub(in crate::store) struct DirectoryLock {
    /// The locked file.
    pub(super) file: Arc<OnceCell<File>>,
    /// Whether that was not the file of the directory any more, once.
    pub(super) is_lost: Arc<AtomicBool>,
}
