//! Who may keep states in a storage: any number of replicas where it can replace one version of an object, and one process
//! elsewhere. Over a directory that process holds a lock, so that a second one is noticed.

use std::fs::{DirBuilder, File, Metadata, TryLockError};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use object_store::path::Path;

use crate::store::backend::directory::disk::Disk;
use crate::store::backend::metered::STAT_TIMEOUT;
use crate::store::error::{BoxError, backend_error};
use crate::store::handle::{Inner, Store};
use crate::store::state::error::StateError;
use crate::store::state::settings::{DirectoryLock, StateSettings};

/// The file whose lock the process holds that serves the states of a directory.
const LOCK_FILE: &str = ".plancha/states.lock";

/// The result of a try.
enum Tried {
    Locked(File),
    Elsewhere,
    NoLocks(io::Error),
}

impl Store {
    /// The same store, which keeps states in this way.
    #[must_use]
    pub fn with_states(&self, settings: StateSettings) -> Self {
        Self(Arc::new(Inner { states: settings, ..(*self.0).clone() }))
    }

    /// The same store, which locks the directory by itself to change states: the lock is released with the last clone.
    #[must_use]
    pub fn with_own_lock(&self) -> Self {
        let directory_lock = DirectoryLock::default();
        Self(Arc::new(Inner { directory_lock, ..(*self.0).clone() }))
    }

    /// Finds out whether states may be changed. Only a service probes its storage from the start.
    pub async fn probe_for_states(&self) -> Result<(), BoxError> {
        if self.backend.provider.is_some() && self.updates().is_none() {
            self.start().await?;
        }
        Ok(())
    }

    /// Whether states can be kept here.
    pub async fn can_keep_states(&self) -> Result<(), StateError> {
        self.check_states_allowed().await
    }

    /// How long a lease is valid.
    pub(super) fn lease_ttl(&self) -> jiff::SignedDuration {
        jiff::SignedDuration::try_from(self.states.lease_ttl)
            .unwrap_or(jiff::SignedDuration::from_mins(5))
    }

    /// Whether the locks of this process suffice.
    pub(super) fn is_only_replica(&self) -> bool {
        self.states.single_replica && self.updates() != Some(true)
    }

    /// Checks that no other process can overwrite what this one writes.
    pub(super) async fn check_states_allowed(&self) -> Result<(), StateError> {
        match &self.disk {
            _ if self.states.read_only => Ok(()),
            Some(disk) => self.lock_directory(disk).await,
            None if self.backend.provider.is_none() || self.is_only_replica() => Ok(()),
            None => match self.updates() {
                Some(true) => Ok(()),
                Some(false) => Err(StateError::NotConditional),
                None => {
                    let why = self.probe_results().error;
                    let why = why.map(|error| format!(": {error}")).unwrap_or_default();
                    let unknown = "it is not known yet whether the storage can replace one version of an object";
                    Err(backend_error(format!("{unknown}{why}")).into())
                }
            },
        }
    }

    /// Checks before a change that the file whose lock this process holds is still that of the directory. Otherwise a second
    /// process may have locked another file there, and this one changes nothing any more.
    pub(super) async fn check_lock_file(&self) -> Result<(), StateError> {
        let (Some(disk), Some(_)) = (&self.disk, self.directory_lock.file.get()) else {
            return Ok(());
        };
        let held = Arc::clone(&self.directory_lock.file);
        let check = move |root: &std::path::Path| {
            let Some(held) = held.get() else { return Ok(true) };
            match std::fs::symlink_metadata(root.join(LOCK_FILE)) {
                Ok(found) => Ok(is_same(&held.metadata()?, &found)),
                Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
                Err(error) => Err(error),
            }
        };
        let checked = disk.run_job("stat", STAT_TIMEOUT, &Path::from(LOCK_FILE), check).await;
        if checked.map_err(backend_error)? {
            return Ok(());
        }
        self.directory_lock.is_lost.store(true, Ordering::Relaxed);
        tracing::error!("{}", StateError::LockFileLost);
        Err(StateError::LockFileLost)
    }

    async fn lock_directory(&self, disk: &Disk) -> Result<(), StateError> {
        let lock = async || match try_lock(disk).await? {
            Tried::Locked(file) => Ok(file),
            Tried::Elsewhere => Err(StateError::Elsewhere(
                ": ask it (`--url`), or stop it first; a directory has one server of states",
            )),
            Tried::NoLocks(error) => Err(backend_error(error).into()),
        };
        if self.directory_lock.is_lost.load(Ordering::Relaxed) {
            return Err(StateError::LockFileLost);
        }
        match self.directory_lock.file.get_or_try_init(lock).await {
            Ok(_) => Ok(()),
            // The operator answers for it.
            Err(StateError::Store(_)) if self.states.single_replica => Ok(()),
            Err(StateError::Store(error)) => {
                tracing::error!(
                    error = datastore_api::chain(&error),
                    "the directory cannot be locked, so it cannot be seen whether another process serves its states. Start \
                     the only one with --single-replica"
                );
                Err(StateError::NotConditional)
            }
            Err(error) => Err(error),
        }
    }
}

/// Whether two files are one.
fn is_same(held: &Metadata, found: &Metadata) -> bool {
    (held.dev(), held.ino()) == (found.dev(), found.ino())
}

async fn try_lock(disk: &Disk) -> Result<Tried, StateError> {
    let path = Path::from(LOCK_FILE);
    let lock = |root: &std::path::Path| {
        let file_path = root.join(LOCK_FILE);
        if let Some(parent) = file_path.parent() {
            DirBuilder::new().recursive(true).mode(0o700).create(parent)?;
        }
        // Another user may have made it: the owner of the datastore still can lock it.
        let file = match File::options().create(true).truncate(false).write(true).open(&file_path) {
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                File::open(&file_path)?
            }
            file => file?,
        };
        Ok(match file.try_lock() {
            Ok(()) => Tried::Locked(file),
            Err(TryLockError::WouldBlock) => Tried::Elsewhere,
            Err(TryLockError::Error(error)) => Tried::NoLocks(error),
        })
    };
    disk.run_job("lock", STAT_TIMEOUT, &path, lock)
        .await
        .map_err(|error| backend_error(error).into())
}
