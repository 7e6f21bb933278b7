//! [`Store`]: a cheap handle to one storage, which all modules above it extend with `impl Store` blocks.
//!
//! It opens a backend and owns what requests share: locks of keys, uploads in progress, buffers, results of probes. It
//! knows neither how an object is read nor how one is written.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use object_store::ObjectStore;
use object_store::list::PaginatedListStore;
use object_store::memory::InMemory;
use object_store::path::Path;
use tokio::sync::Semaphore;
use tokio_util::task::TaskTracker;

use crate::store::attempts::live::logs::LiveLogs;
use crate::store::attempts::unreadable::UnreadablePlans;
use crate::store::backend::cloud::abandoned::Abandoned;
use crate::store::backend::cloud::bucket::Credentials;
use crate::store::backend::directory::disk::Disk;
use crate::store::backend::directory::local::Local;
use crate::store::backend::metered::{Calls, Metered};
use crate::store::backend::storage::{Backend, Storage};
use crate::store::encryption::EncryptionSettings;
use crate::store::error::BoxError;
use crate::store::key::locks::{KeyLock, KeyLocks};
use crate::store::probe::health::Health;
use crate::store::run_index::known::Indexed;
use crate::store::run_index::layers::refreshing::Refreshing;
use crate::store::state::document::READERS;
use crate::store::state::settings::{DirectoryLock, StateSettings};
use crate::store::write::parts::BlockPool;
use crate::transport::memory::Memory;

/// Credentials of leases that are looked up at the same time.
const CREDENTIAL_READS: usize = 32;

/// Plans whose changes are listed at the same time.
const PLAN_READS: usize = 2;

/// A storage of artifacts. Clones are cheap and share everything.
#[derive(Clone)]
pub struct Store(pub(in crate::store) Arc<Inner>);

/// What clones of a [`Store`] share.
#[derive(Clone)]
pub struct Inner {
    pub(in crate::store) objects: Arc<dyn ObjectStore>,
    /// The files of a directory, where that is the backend.
    pub(in crate::store) disk: Option<Disk>,
    /// Listings page by page, where the backend has them. Their paths include the prefix.
    pub(in crate::store) pages: Option<Arc<dyn PaginatedListStore>>,
    pub(in crate::store) credentials: Option<Credentials>,
    pub(in crate::store) abandoned: Option<Abandoned>,
    pub(in crate::store) calls: Calls,
    pub(in crate::store) health: Arc<Health>,
    pub(in crate::store) backend: Backend,
    pub(in crate::store) key_locks: KeyLocks,
    /// Attempts that are known to be in the index of runs.
    pub(in crate::store) indexed: Arc<std::sync::Mutex<Indexed>>,
    pub(in crate::store) uploads: TaskTracker,
    pub(in crate::store) pool: BlockPool,
    pub(in crate::store) encryption: EncryptionSettings,
    pub(in crate::store) memory: Memory,
    pub(in crate::store) states: StateSettings,
    /// Held while this process serves the states of a directory.
    pub(in crate::store) directory_lock: DirectoryLock,
    /// The logs that are written or followed here.
    pub(in crate::store) live: LiveLogs,
    /// Summaries of layers that are made after writes.
    pub(in crate::store) refreshing: Refreshing,
    /// Places of the threads that read states while they stream in.
    pub(in crate::store) state_readers: Memory,
    /// Credentials of leases that are being looked up.
    pub(in crate::store) credential_reads: Arc<Semaphore>,
    /// Plans whose changes are being listed.
    pub(in crate::store) plan_reads: Arc<Semaphore>,
    /// Plans that were found to be unreadable.
    pub(in crate::store) unreadable_plans: UnreadablePlans,
}

impl Store {
    /// Opens a storage without accessing it; [`Store::start`] creates a missing directory.
    pub fn open(storage: &Storage) -> Result<Self, BoxError> {
        match storage {
            Storage::File(root) => {
                let calls = Calls::default();
                let disk = Disk::new(root, calls.clone());
                let objects = Arc::new(Local(disk.uncounted()));
                let inner = Inner::new(objects, Backend::file(root.clone()), calls);
                Ok(Self(Arc::new(Inner { disk: Some(disk), ..inner })))
            }
            Storage::Memory => {
                let objects = Arc::new(InMemory::new());
                Ok(Self(Arc::new(Inner::new(objects, Backend::memory(), Calls::default()))))
            }
            Storage::Cloud(cloud) => {
                let opened = cloud.open()?;
                let inner =
                    Inner::new(opened.objects, Backend::cloud(cloud), Calls::to(cloud.provider));
                let pages = Metered { inner: opened.pages, calls: inner.calls.clone() };
                let pages: Option<Arc<dyn PaginatedListStore>> = Some(Arc::new(pages));
                let (credentials, abandoned) = (opened.credentials, opened.abandoned);
                Ok(Self(Arc::new(Inner { pages, credentials, abandoned, ..inner })))
            }
        }
    }

    /// File jobs of a directory whose callers have given up, and closings, removals and checks of the root that have taken
    /// 10 s or more.
    pub(crate) fn hung_jobs(&self) -> usize {
        self.disk.as_ref().map_or(0, |disk| disk.jobs().hung())
    }

    /// The prefix of all keys in the bucket, with its `/`.
    pub(in crate::store) fn prefix(&self) -> &str {
        &self.backend.prefix
    }

    /// Counters of calls to the backend.
    pub fn calls(&self) -> &Calls {
        &self.calls
    }

    /// The same store, which fetches ahead only into this memory.
    pub(crate) fn with_memory(&self, memory: &Memory) -> Self {
        Self(Arc::new(Inner { memory: memory.clone(), ..(*self.0).clone() }))
    }

    /// The same store, which makes the summary of a layer so long after a write.
    pub(crate) fn with_refresh(&self, delay: std::time::Duration) -> Self {
        let refreshing = Refreshing::after(delay);
        Self(Arc::new(Inner { refreshing, ..(*self.0).clone() }))
    }

    /// The most memory that one upload holds, without parts in flight.
    pub fn upload_memory(&self) -> usize {
        self.backend.single_put_max.max(self.backend.part_size)
    }

    /// The most memory that one read holds, without what it fetches ahead.
    pub fn answer_memory(&self) -> usize {
        if self.backend.root.is_some() {
            crate::store::read::ranged::FILE_MEMORY
        } else {
            crate::store::read::ranged::MEMORY
        }
    }

    /// Waits until all uploads have ended.
    pub async fn wait_for_uploads(&self) {
        self.uploads.close();
        self.uploads.wait().await;
    }

    /// Locks a key: commits to it exclude each other.
    pub(in crate::store) async fn key_lock(&self, path: &Path) -> KeyLock<'_> {
        self.key_locks.lock(path).await
    }
}

impl Inner {
    pub(in crate::store) fn new(
        objects: Arc<dyn ObjectStore>,
        backend: Backend,
        calls: Calls,
    ) -> Self {
        Self {
            objects: Arc::new(Metered { inner: objects, calls: calls.clone() }),
            disk: None,
            pages: None,
            credentials: None,
            abandoned: None,
            calls,
            health: Arc::default(),
            backend,
            key_locks: KeyLocks::default(),
            indexed: Arc::default(),
            uploads: TaskTracker::new(),
            pool: BlockPool::default(),
            encryption: EncryptionSettings::default(),
            memory: Memory::unlimited(),
            states: StateSettings::default(),
            directory_lock: DirectoryLock::default(),
            live: LiveLogs::default(),
            refreshing: Refreshing::default(),
            state_readers: Memory::new(READERS),
            credential_reads: Arc::new(Semaphore::new(CREDENTIAL_READS)),
            plan_reads: Arc::new(Semaphore::new(PLAN_READS)),
            unreadable_plans: UnreadablePlans::default(),
        }
    }
}

impl Deref for Store {
    type Target = Inner;

    fn deref(&self) -> &Inner {
        &self.0
    }
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Store").field("backend", &self.backend).finish_non_exhaustive()
    }
}
