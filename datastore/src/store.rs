//! Where artifacts lie, and how they get there whole.
//!
//! The only room that knows `object_store`, and the only one that knows the path of an artifact:
//! all of them are on this page. It knows nothing of HTTP.
//!
//! On `file://` the root directory is made with mode 0700, and that is what keeps others out: below
//! it `object_store` creates directories and files as the umask says.

#![expect(clippy::disallowed_types, reason = "this is the room for ObjectStore")]

pub(crate) mod admin;
pub(crate) mod backend;
pub mod encryption;
pub(crate) mod read;
pub(crate) mod run_index;
pub(crate) mod write;

mod claims;
mod digest_record;
mod error;
mod key;

use std::collections::BTreeMap;
use std::error::Error;
use std::fmt;
use std::hash::{BuildHasher as _, BuildHasherDefault, DefaultHasher, RandomState};
use std::ops::Deref;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use datastore_api::key::{AttemptFiles, Attempts, FileInfo};
use datastore_api::{AppliedKey, Attempt, BundleKey, File, RunKey};
use futures::StreamExt as _;
use object_store::list::PaginatedListStore;
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{ObjectMeta, ObjectStore};
use tokio::sync::{Mutex, MutexGuard};
use tokio_util::task::TaskTracker;

pub use crate::store::admin::objects::Object;
pub use crate::store::admin::verify::Verdict;
pub use crate::store::backend::cloud::{Cloud, Provider, Variables};
pub use crate::store::backend::metered::Calls;
pub use crate::store::backend::probe::{Ability, ProbeResults};
pub(crate) use crate::store::backend::reason::reason;
pub use crate::store::claims::{CLAIMS, Claim};
pub use crate::store::error::StoreError;
pub use crate::store::key::{INDEX, KnownRuns};
pub use crate::store::read::get::{ByteStream, Looked, Meta};
pub use crate::store::write::put::Terms;

use crate::transport::memory::Memory;

use crate::store::backend::abandoned::Abandoned;
use crate::store::backend::cloud::Credentials;
use crate::store::backend::disk::Disk;
use crate::store::backend::local::Local;
use crate::store::backend::metered::Metered;
use crate::store::backend::probe::Health;
use crate::store::encryption::object::Seal;
use crate::store::error::backend;
use crate::store::run_index::entry::Indexed;
use crate::store::write::parts::Pool;

/// What went wrong in something that was handed to us, or that we use.
pub type BoxError = Box<dyn Error + Send + Sync>;

/// Which backend, and what it needs to be found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Storage {
    /// A directory, made if it is missing.
    File(PathBuf),
    /// This process, until it ends.
    Memory,
    /// A bucket.
    Cloud(Cloud),
}

/// One stored object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Key {
    /// A file of an attempt.
    File(RunKey, Attempt, File),
    /// The git bundle of a commit.
    Bundle(BundleKey),
    /// The record that a plan has been applied.
    Applied(AppliedKey),
}

/// A place to keep artifacts. Clones share it: each request makes some.
#[derive(Clone)]
pub struct Store(Arc<Inner>);

/// What clones of a [`Store`] share.
#[derive(Clone)]
pub struct Inner {
    objects: Arc<dyn ObjectStore>,
    /// The files of a directory, where that is the backend.
    disk: Option<Disk>,
    /// Listings page by page, where the backend has them; without our prefix.
    pages: Option<Arc<dyn PaginatedListStore>>,
    credentials: Option<Credentials>,
    abandoned: Option<Abandoned>,
    calls: Calls,
    health: Arc<Health>,
    traits: Traits,
    turns: Arc<[Mutex<()>; TURNS]>,
    /// Attempts that are known to be in the index of runs.
    indexed: Arc<std::sync::Mutex<Indexed>>,
    uploads: TaskTracker,
    pool: Pool,
    seal: Seal,
    memory: Memory,
}

/// In what the backends differ.
#[derive(Clone, Debug)]
struct Traits {
    /// The directory, if it is one.
    root: Option<PathBuf>,
    /// Whose cloud it is, if it is one.
    provider: Option<Provider>,
    /// What our keys lie below in its bucket: nothing, or a path with its `/`.
    below: String,
    /// Whether an object can carry its digest as metadata.
    metadata: bool,
    /// Up to here a body is put in one piece.
    whole: usize,
    /// Bytes of each part above that.
    part: usize,
    /// Parts that may be on their way while another is gathered.
    flying: usize,
}

/// Longer keys leave no room for what is put before them, `<prefix>/.plancha/sha256/`: backends end at 1024.
const MAX_KEY: usize = 1024 - (MAX_PREFIX + 1) - 16;
/// Bytes of a prefix in a bucket.
const MAX_PREFIX: usize = 60;
/// Keys that share a turn only wait for each other's commits, so a fixed number of turns will do.
const TURNS: usize = 256;

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;
/// Bytes of a part of a large object in a bucket.
const PART: usize = 5 * MIB;
/// Parts that S3 and Google Cloud Storage take for one object.
const MAX_PARTS: usize = 10_000;

impl Key {
    /// Where it lies, as upstream writes it.
    ///
    /// [`Path::parse`] keeps a name as written; `Path::from` would percent-encode it.
    fn path(&self) -> Result<Path, StoreError> {
        let text = match self {
            Self::File(run, attempt, file) => {
                format!("{}/{attempt}/{}", run_prefix(run), file.name())
            }
            Self::Bundle(BundleKey { namespace, name, git_ref, revision }) => {
                format!("repositories/{namespace}/{name}/{git_ref}/{revision}.gitbundle")
            }
            Self::Applied(AppliedKey { namespace, layer, plan }) => {
                format!("{APPLIED}{namespace}/{layer}/{plan}")
            }
        };
        if text.len() > MAX_KEY {
            return Err(StoreError::KeyTooLong(text));
        }
        parse(&text)
    }
}

/// Prefix of the records of applied plans. It is outside of `layers/`, so that no record counts as an attempt.
pub const APPLIED: &str = ".plancha/applied/";

fn run_prefix(run: &RunKey) -> String {
    format!("layers/{run}")
}

/// Where the records of digests are.
const RECORDS: &str = ".plancha/sha256/";

/// Whether the datastore keeps what is at this key for itself, or for a claim or a record.
pub fn is_own(key: &str) -> bool {
    key.starts_with(".plancha/")
}

/// Where the digest of the object at `path` lies, if the object itself cannot carry it.
fn record_path(path: &Path) -> Result<Path, StoreError> {
    parse(&format!("{RECORDS}{path}"))
}

/// Where the runs of a layer are listed, newest first.
fn index_prefix(namespace: &str, layer: &str) -> String {
    format!(".plancha/runs/{namespace}/{layer}")
}

fn parse(text: &str) -> Result<Path, StoreError> {
    Path::parse(text).map_err(|error| StoreError::Backend(error.into()))
}

impl Store {
    /// Opens a backend, without a look at it: [`Store::start`] makes a missing directory.
    pub fn open(storage: &Storage) -> Result<Self, BoxError> {
        match storage {
            Storage::File(root) => {
                let calls = Calls::default();
                let disk = Disk::new(root, calls.clone());
                let objects = Arc::new(Local(disk.uncounted()));
                let inner = Inner::new(objects, Traits::file(root.clone()), calls);
                Ok(Self(Arc::new(Inner { disk: Some(disk), ..inner })))
            }
            Storage::Memory => {
                let objects = Arc::new(InMemory::new());
                Ok(Self(Arc::new(Inner::new(objects, Traits::memory(), Calls::default()))))
            }
            Storage::Cloud(cloud) => {
                let opened = cloud.open()?;
                let inner = Inner::new(opened.objects, Traits::cloud(cloud), Calls::default());
                let pages = Metered { behind: opened.pages, calls: inner.calls.clone() };
                let pages: Option<Arc<dyn PaginatedListStore>> = Some(Arc::new(pages));
                let (credentials, abandoned) = (opened.credentials, opened.abandoned);
                Ok(Self(Arc::new(Inner { pages, credentials, abandoned, ..inner })))
            }
        }
    }

    /// Running jobs in a directory's file system whose callers have given up.
    pub(crate) fn jobs_left(&self) -> usize {
        self.disk.as_ref().map_or(0, |disk| disk.jobs().left())
    }

    /// What our keys lie below in the bucket, for those who go there without our prefix.
    fn below(&self) -> &str {
        &self.traits.below
    }

    /// What the backend was asked so far.
    pub fn calls(&self) -> &Calls {
        &self.calls
    }

    /// One that fetches ahead only as much as there is memory for.
    pub(crate) fn within(&self, memory: &Memory) -> Self {
        Self(Arc::new(Inner { memory: memory.clone(), ..(*self.0).clone() }))
    }

    /// Bytes that one upload may hold in memory at most, without parts that are on their way while another is
    /// gathered.
    pub fn upload_memory(&self) -> usize {
        self.traits.whole.max(self.traits.part)
    }

    /// Bytes that one read may hold in memory at most, without what it fetches ahead.
    pub fn answer_memory(&self) -> usize {
        if self.traits.root.is_some() {
            crate::store::read::ranged::FILE_MEMORY
        } else {
            crate::store::read::ranged::MEMORY
        }
    }

    /// Every attempt of a run that has files or is claimed, oldest first.
    pub async fn attempts(&self, run: &RunKey) -> Result<Attempts, StoreError> {
        let mut attempts = BTreeMap::<Attempt, Vec<FileInfo>>::new();
        let (files, claimed) = tokio::try_join!(self.files(run), self.claimed(run))?;
        attempts.extend(claimed.into_iter().map(|attempt| (attempt, Vec::new())));
        for (attempt, name, meta) in files {
            let files = attempts.entry(attempt).or_default();
            files.push(FileInfo { name, size: meta.size, modified: timestamp(&meta).to_string() });
        }
        let attempts = attempts.into_iter().map(|(attempt, mut artifacts)| {
            artifacts.sort_by(|a, b| a.name.cmp(&b.name));
            AttemptFiles { attempt, artifacts }
        });
        Ok(Attempts { attempts: attempts.collect() })
    }

    /// The greatest attempt of a run that has files.
    pub async fn latest_attempt(&self, run: &RunKey) -> Result<Option<Attempt>, StoreError> {
        Ok(self.files(run).await?.into_iter().map(|(attempt, ..)| attempt).max())
    }

    /// Waits until no upload is under way.
    pub async fn settled(&self) {
        self.uploads.close();
        self.uploads.wait().await;
    }

    /// The files of every attempt of a run, in no order.
    ///
    /// A listing of directories would be shorter, but on `file://` an upload that broke off leaves
    /// an empty one behind, and no object store would show that.
    async fn files(&self, run: &RunKey) -> Result<Vec<(Attempt, String, ObjectMeta)>, StoreError> {
        let prefix = parse(&run_prefix(run))?;
        let mut found = self.objects.list(Some(&prefix));
        let mut files = Vec::new();
        while let Some(meta) = found.next().await.transpose().map_err(backend)? {
            let below = meta.location.as_ref().strip_prefix(prefix.as_ref());
            let below = below.and_then(|below| below.strip_prefix('/')?.split_once('/'));
            if let Some((attempt, name)) = below
                && let Ok(attempt) = attempt.parse()
            {
                files.push((attempt, name.to_owned(), meta));
            }
        }
        Ok(files)
    }

    /// The turn of one key: what must not mix with another commit to it waits here.
    async fn turn(&self, path: &Path) -> MutexGuard<'_, ()> {
        let hash = BuildHasherDefault::<DefaultHasher>::new().hash_one(path);
        let slot = usize::try_from(hash % TURNS as u64).unwrap_or_default();
        self.turns[slot].lock().await
    }
}

impl Inner {
    fn new(objects: Arc<dyn ObjectStore>, traits: Traits, calls: Calls) -> Self {
        Self {
            objects: Arc::new(Metered { behind: objects, calls: calls.clone() }),
            disk: None,
            pages: None,
            credentials: None,
            abandoned: None,
            calls,
            health: Arc::default(),
            traits,
            turns: Arc::new(std::array::from_fn(|_| Mutex::default())),
            indexed: Arc::default(),
            uploads: TaskTracker::new(),
            pool: Pool::default(),
            seal: Seal::default(),
            memory: Memory::unlimited(),
        }
    }
}

impl Deref for Store {
    type Target = Inner;

    fn deref(&self) -> &Inner {
        &self.0
    }
}

impl Traits {
    fn file(root: PathBuf) -> Self {
        let (whole, part, flying) = (256 * KIB, MIB, 2);
        Self { root: Some(root), metadata: false, whole, part, flying, ..Self::memory() }
    }

    fn memory() -> Self {
        let (root, provider, below) = (None, None, String::new());
        let (whole, part) = (8 * MIB, 8 * MIB);
        Self { root, provider, below, metadata: true, whole, part, flying: 0 }
    }

    /// Parts of the smallest size that is taken everywhere: more of them in the same memory.
    fn cloud(cloud: &Cloud) -> Self {
        let prefix = &cloud.prefix;
        let below = if prefix.is_empty() { String::new() } else { format!("{prefix}/") };
        let (provider, part, flying) = (Some(cloud.provider), PART, 3);
        Self { provider, below, part, flying, ..Self::memory() }
    }
}

impl Storage {
    /// The bytes of the largest object that can be stored there: a bucket takes a limited number of parts.
    pub fn max_object(&self) -> u64 {
        match self {
            // Azure takes five times as many: that alone is no reason for another limit.
            Self::Cloud(_) => (PART * MAX_PARTS - MIB) as u64,
            Self::File(_) | Self::Memory => u64::MAX,
        }
    }
}

impl fmt::Display for Storage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(root) => write!(f, "file://{}", root.display()),
            Self::Memory => f.write_str("memory://"),
            Self::Cloud(cloud) => cloud.fmt(f),
        }
    }
}

fn timestamp(meta: &ObjectMeta) -> jiff::Timestamp {
    let millisecond = meta.last_modified.timestamp_millis();
    jiff::Timestamp::from_millisecond(millisecond).unwrap_or_default()
}

/// A number that nobody else has thought of.
fn random() -> u64 {
    // Every `RandomState` has keys of its own, made of the system's random numbers.
    RandomState::new().hash_one(Instant::now())
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Store").field("traits", &self.traits).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run() -> RunKey {
        RunKey {
            namespace: "team-a".parse().unwrap(),
            layer: "network".parse().unwrap(),
            run: "plan 1#%2F~é".parse().unwrap(),
        }
    }

    #[test]
    fn every_key_lies_where_upstream_puts_it() {
        let file = |file| Key::File(run(), Attempt(10), file).path().unwrap().to_string();
        let plans = datastore_api::PlanFormat::ALL.map(|format| file(File::Plan(format)));
        insta::assert_snapshot!(plans.join("\n"), @r"
        layers/team-a/network/plan 1#%2F~é/10/pretty.plan
        layers/team-a/network/plan 1#%2F~é/10/plan.json
        layers/team-a/network/plan 1#%2F~é/10/short.diff
        layers/team-a/network/plan 1#%2F~é/10/plan.bin
        ");
        insta::assert_snapshot!(file(File::Log), @"layers/team-a/network/plan 1#%2F~é/10/run.log");
        let bundle = BundleKey {
            namespace: "team-a".parse().unwrap(),
            name: "infra".parse().unwrap(),
            git_ref: "feat/a b#1~2".parse().unwrap(),
            revision: "0123abc".parse().unwrap(),
        };
        let bundle = Key::Bundle(bundle).path().unwrap();
        insta::assert_snapshot!(bundle, @"repositories/team-a/infra/feat/a b#1~2/0123abc.gitbundle");
        insta::assert_snapshot!(
            record_path(&bundle).unwrap(),
            @".plancha/sha256/repositories/team-a/infra/feat/a b#1~2/0123abc.gitbundle"
        );
    }

    #[test]
    fn names_that_are_too_long_together_are_refused() {
        let bundle = BundleKey {
            namespace: "n".repeat(253).parse().unwrap(),
            name: "m".repeat(253).parse().unwrap(),
            git_ref: "r/".repeat(349).trim_end_matches('/').parse().unwrap(),
            revision: "0".parse().unwrap(),
        };
        let error = Key::Bundle(bundle).path().unwrap_err();
        assert!(matches!(error, StoreError::KeyTooLong(_)));
        assert!(error.to_string().len() < 200);
    }

    #[test]
    fn the_longest_key_leaves_room_for_its_record() {
        let path = Path::parse("k".repeat(MAX_KEY)).unwrap();
        let record = record_path(&path).unwrap();
        assert_eq!(MAX_PREFIX + "/".len() + record.as_ref().len(), 1024);
    }
}
