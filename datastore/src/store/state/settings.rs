//! How states are kept, and the lock of a directory that has some. It knows no store.

use std::fs::File;
use std::sync::Arc;
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
}

impl Default for StateSettings {
    fn default() -> Self {
        Self { single_replica: false, lease_ttl: Duration::from_mins(5) }
    }
}

/// The lock of a directory, once it is held. It is released when the process ends.
#[derive(Clone, Debug, Default)]
pub(in crate::store) struct DirectoryLock(pub(super) Arc<OnceCell<File>>);
