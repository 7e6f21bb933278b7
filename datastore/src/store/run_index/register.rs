//! Writes the index entry of a run before the first object of an attempt becomes visible.
//!
//! If the object cannot be stored, the entry is removed again unless the attempt has another object. Only a process that
//! is killed in between leaves an entry without a run, which `gc` removes.

use std::sync::PoisonError;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use datastore_api::{Attempt, RunKey, Sha256};
use futures::TryStreamExt as _;
use futures::future::join;
use object_store::ObjectStoreExt as _;
use object_store::path::Path;

use crate::store::backend::metered::{in_time, put_timeout};
use crate::store::error::{BoxError, StoreError, backend_error};
use crate::store::handle::Store;
use crate::store::key::{LIVE, index_prefix, parse, run_prefix};
use crate::store::run_index::entry::entry;
use crate::store::run_index::entry::is_plain;
use crate::store::run_index::known::Entry;

/// The most cached attempts. When the cache is full it is cleared; a missing entry costs a listing.
const MAX_ENTRIES: usize = 4096;

/// How long an attempt that had objects is trusted to be in the index. `gc` deletes no entry of a run that has changed
/// within its `--min-age`.
const FOUND_TTL: Duration = Duration::from_mins(1);

/// After a commit that took this long, the entry is checked again.
const RECHECK_AFTER: Duration = Duration::from_secs(1);

/// An upload whose attempt is in the index.
#[derive(Debug)]
pub(in crate::store) struct IndexedUpload {
    run: RunKey,
    /// The directory of the attempt.
    attempt: Path,
    entry: Entry,
    /// Whether this upload has written the entry.
    is_new: bool,
}

impl Store {
    /// Ensures that the run of an upload is in the index, before the first object of an attempt is stored.
    pub(in crate::store) async fn index_upload(
        &self,
        of_attempt: Option<(RunKey, Attempt)>,
    ) -> Result<Option<IndexedUpload>, StoreError> {
        let Some((run, attempt)) = of_attempt else { return Ok(None) };
        let indexed =
            in_time(put_timeout(0), "write the index entry", self.index(run, attempt)).await;
        indexed.map_err(backend_error)?.map(Some)
    }

    async fn index(&self, run: RunKey, attempt: Attempt) -> Result<IndexedUpload, StoreError> {
        let attempt = parse(&format!("{}/{attempt}", run_prefix(&run)))?;
        if let Some(entry) = self.indexed_entry(&attempt) {
            return Ok(IndexedUpload { run, attempt, entry, is_new: false });
        }
        let _key_lock = self.key_lock(&attempt).await;
        if let Some(entry) = self.indexed_entry(&attempt) {
            return Ok(IndexedUpload { run, attempt, entry, is_new: false });
        }
        let entry = if self.has_objects(&attempt).await? {
            Entry::Found(Instant::now())
        } else {
            Entry::Written(self.index_now(&run).await?)
        };
        let mut indexed = self.indexed.lock().unwrap_or_else(PoisonError::into_inner);
        if indexed.len() >= MAX_ENTRIES {
            indexed.clear();
        }
        indexed.insert(attempt.clone(), entry.clone());
        Ok(IndexedUpload { run, attempt, entry, is_new: true })
    }

    /// Makes an object visible, and removes or restores the index entry as needed.
    pub(in crate::store) async fn commit_indexed(
        &self,
        indexed: Option<IndexedUpload>,
        commit: impl Future<Output = Result<Sha256, StoreError>>,
    ) -> Result<Sha256, StoreError> {
        let Some(IndexedUpload { run, attempt, entry, is_new }) = indexed else {
            return commit.await;
        };
        let Entry::Written(entry) = entry else { return commit.await };
        // `gc` may have deleted the run, in another process.
        let restore = async {
            if is_new {
                return Ok(());
            }
            in_time(put_timeout(0), "write the index entry", self.restore_entry(&entry, &run))
                .await
                .map_err(backend_error)?
        };
        let started = Instant::now();
        let (committed, restored) = join(commit, restore).await;
        match committed {
            Ok(sha256) => {
                restored?;
                if started.elapsed() >= RECHECK_AFTER || self.indexed_entry(&attempt).is_none() {
                    // A parallel upload has failed and removed it, or `gc` has deleted it.
                    let _key_lock = self.key_lock(&attempt).await;
                    self.restore_entry(&entry, &run).await?;
                }
                if is_new {
                    self.note_run(&run).await?;
                }
                Ok(sha256)
            }
            // An object exists.
            Err(StoreError::Exists) => Err(StoreError::Exists),
            Err(error) => {
                let removed = async {
                    self.remove_unused_entry(&attempt).await?;
                    // A page may have shown it.
                    self.note_run(&run).await
                };
                let removed = in_time(put_timeout(0), "remove the index entry", removed).await;
                if let Err(error) = removed.map_err(backend_error).flatten() {
                    let error: BoxError = error.into();
                    tracing::warn!(%attempt, error, "cannot remove the index entry of a failed upload, `gc` will");
                }
                Err(error)
            }
        }
    }

    /// Removes the index entry of an attempt that this process has written, if the attempt has no object.
    async fn remove_unused_entry(&self, attempt: &Path) -> Result<(), StoreError> {
        let _key_lock = self.key_lock(attempt).await;
        // Uploads that end from now on find it missing, and wait for this lock.
        let known = self.indexed.lock().unwrap_or_else(PoisonError::into_inner).remove(attempt);
        match known {
            Some(Entry::Written(entry))
                if !self.has_objects(attempt).await? && !self.has_live_log(attempt).await? =>
            {
                self.remove(&entry).await
            }
            _ => Ok(()),
        }
    }

    pub(in crate::store) async fn has_objects(&self, attempt: &Path) -> Result<bool, StoreError> {
        let first = self.objects.list(Some(attempt)).try_next().await;
        Ok(first.map_err(backend_error)?.is_some())
    }

    /// Whether an attempt, by the path of its files, has a live log or a ledger.
    async fn has_live_log(&self, attempt: &Path) -> Result<bool, StoreError> {
        let attempt = attempt.as_ref().strip_prefix("layers/").unwrap_or_default();
        self.has_objects(&parse(&format!("{LIVE}{attempt}"))?).await
    }

    /// Writes an index entry again if it is missing: `gc` in another process may have deleted the run.
    async fn restore_entry(&self, entry: &Path, run: &RunKey) -> Result<(), StoreError> {
        match self.objects.head(entry).await {
            Err(object_store::Error::NotFound { .. }) => {
                let content = if is_plain(run.run.as_ref()) { "" } else { run.run.as_ref() };
                self.put_internal(entry, content.to_owned().into_bytes().into()).await
            }
            found => found.map(drop).map_err(backend_error),
        }
    }

    /// The cached entry of an attempt.
    fn indexed_entry(&self, path: &Path) -> Option<Entry> {
        let indexed = self.indexed.lock().unwrap_or_else(PoisonError::into_inner);
        let known = indexed.get(path)?;
        let is_past = matches!(known, Entry::Found(at) if at.elapsed() >= FOUND_TTL);
        (!is_past).then(|| known.clone())
    }

    async fn index_now(&self, run: &RunKey) -> Result<Path, StoreError> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let now = u64::try_from(now.as_millis()).unwrap_or_default();
        let (entry, content) = entry(now, run.run.as_ref());
        let prefix = index_prefix(run.namespace.as_ref(), run.layer.as_ref());
        let path = parse(&format!("{prefix}/{entry}"))?;
        // The name determines the content, so a second put changes nothing.
        self.put_internal(&path, content.into_bytes().into()).await?;
        Ok(path)
    }
}
