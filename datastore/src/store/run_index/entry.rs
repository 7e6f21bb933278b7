//! The runs of a layer, newest first, without a database.
//!
//! The first PUT of an attempt leaves an empty object whose name sorts by time, newest first:
//! `<u64::MAX - unix milliseconds, 16 hex digits>-<run>`. A run whose name does not fit there is
//! `...~<sha256 of its name>`, with the name as content. It is written once the body has been received and
//! before the object becomes visible, so no run can be missed. If the object cannot be stored, the entry is
//! removed again unless the attempt has another object. Only a process that is killed in between leaves an
//! entry without a run, which `gc` removes.

use std::collections::HashMap;
use std::sync::PoisonError;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use datastore_api::{Attempt, RunKey, Sha256};
use futures::TryStreamExt as _;
use futures::future::join;
use object_store::ObjectStoreExt as _;
use object_store::path::Path;
use tokio::time::timeout;

use crate::store::backend::metered::patience;
use crate::store::{BoxError, Store, StoreError, backend, index_prefix, parse, run_prefix};

/// So many attempts are remembered before all are forgotten; forgetting one costs a listing.
const REMEMBERED: usize = 4096;
/// How long an attempt that was found with objects is taken to be in the index without a second look; `gc`
/// deletes no entry of a run that has changed within its `--min-age`.
const TRUSTED: Duration = Duration::from_mins(1);
/// After a commit of so long it is checked once more that the entry is still there.
const LOOK_AGAIN: Duration = Duration::from_secs(1);
const HEX_DIGITS: usize = 16;

/// Attempts that are in the index of runs, as far as this process knows.
pub(in crate::store) type Indexed = HashMap<Path, Entry>;

/// What is known of the index entry of an attempt.
#[derive(Clone, Debug)]
pub(in crate::store) enum Entry {
    /// This process has written it there.
    Written(Path),
    /// The attempt had objects at this time: the entry was written before the first of them.
    Found(Instant),
}

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
        let indexed = timeout(patience(0), self.index(run, attempt)).await;
        indexed.map_err(backend)?.map(Some)
    }

    async fn index(&self, run: RunKey, attempt: Attempt) -> Result<IndexedUpload, StoreError> {
        let attempt = parse(&format!("{}/{attempt}", run_prefix(&run)))?;
        if let Some(entry) = self.indexed_entry(&attempt) {
            return Ok(IndexedUpload { run, attempt, entry, is_new: false });
        }
        let _turn = self.turn(&attempt).await;
        if let Some(entry) = self.indexed_entry(&attempt) {
            return Ok(IndexedUpload { run, attempt, entry, is_new: false });
        }
        let entry = if self.has_objects(&attempt).await? {
            Entry::Found(Instant::now())
        } else {
            Entry::Written(self.index_now(&run).await?)
        };
        let mut indexed = self.indexed.lock().unwrap_or_else(PoisonError::into_inner);
        if indexed.len() >= REMEMBERED {
            indexed.clear();
        }
        indexed.insert(attempt.clone(), entry.clone());
        Ok(IndexedUpload { run, attempt, entry, is_new: true })
    }

    /// Makes an object visible, and keeps the index of runs in step with what becomes of it.
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
            timeout(patience(0), self.restore_entry(&entry, &run)).await.map_err(backend)?
        };
        let began = Instant::now();
        let (committed, restored) = join(commit, restore).await;
        match committed {
            Ok(sha256) => {
                restored?;
                if began.elapsed() >= LOOK_AGAIN || self.indexed_entry(&attempt).is_none() {
                    // An upload beside this one has failed and removed it, or `gc` has come in between.
                    let _turn = self.turn(&attempt).await;
                    self.restore_entry(&entry, &run).await?;
                }
                Ok(sha256)
            }
            // There is an object.
            Err(StoreError::Exists) => Err(StoreError::Exists),
            Err(error) => {
                let removed = timeout(patience(0), self.remove_unused_entry(&attempt)).await;
                if let Err(error) = removed.map_err(backend).flatten() {
                    let error: BoxError = error.into();
                    tracing::warn!(%attempt, error, "cannot remove the index entry of a failed upload, `gc` will");
                }
                Err(error)
            }
        }
    }

    /// Removes the index entry of an attempt that this process has written, if the attempt has no object.
    async fn remove_unused_entry(&self, attempt: &Path) -> Result<(), StoreError> {
        let _turn = self.turn(attempt).await;
        // Uploads that end from now on find it missing and wait for this turn.
        let known = self.indexed.lock().unwrap_or_else(PoisonError::into_inner).remove(attempt);
        match known {
            Some(Entry::Written(entry)) if !self.has_objects(attempt).await? => {
                self.remove(&entry).await
            }
            _ => Ok(()),
        }
    }

    async fn has_objects(&self, attempt: &Path) -> Result<bool, StoreError> {
        let first = self.objects.list(Some(attempt)).try_next().await;
        Ok(first.map_err(backend)?.is_some())
    }

    /// Writes an index entry anew if it is gone: `gc` may have deleted the run, in another process.
    async fn restore_entry(&self, entry: &Path, run: &RunKey) -> Result<(), StoreError> {
        match self.objects.head(entry).await {
            Err(object_store::Error::NotFound { .. }) => {
                let content = if is_plain(run.run.as_ref()) { "" } else { run.run.as_ref() };
                self.put_own(entry, content.to_owned().into_bytes().into()).await
            }
            found => found.map(drop).map_err(backend),
        }
    }

    /// What is known of an attempt that is in the index.
    fn indexed_entry(&self, path: &Path) -> Option<Entry> {
        let indexed = self.indexed.lock().unwrap_or_else(PoisonError::into_inner);
        let known = indexed.get(path)?;
        let is_past = matches!(known, Entry::Found(at) if at.elapsed() >= TRUSTED);
        (!is_past).then(|| known.clone())
    }

    async fn index_now(&self, run: &RunKey) -> Result<Path, StoreError> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let now = u64::try_from(now.as_millis()).unwrap_or_default();
        let (entry, content) = entry(now, run.run.as_ref());
        let prefix = index_prefix(run.namespace.as_ref(), run.layer.as_ref());
        let path = parse(&format!("{prefix}/{entry}"))?;
        // Its name says what is in it: to put it twice is to put it once.
        self.put_own(&path, content.into_bytes().into()).await?;
        Ok(path)
    }
}

/// The name of a run's entry, and what it holds.
pub(in crate::store) fn entry(now: u64, run: &str) -> (String, String) {
    let time = u64::MAX - now;
    if is_plain(run) {
        (format!("{time:016x}-{run}"), String::new())
    } else {
        (format!("{time:016x}~{}", Sha256::of(run.as_bytes())), run.to_owned())
    }
}

/// When a run started, and its name or digest with the sign before it.
pub(in crate::store) fn parse_entry(entry: &str) -> Option<(i64, &str)> {
    let (time, run) = entry.split_at_checked(HEX_DIGITS)?;
    let time = u64::MAX - u64::from_str_radix(time, 16).ok()?;
    run.starts_with(['-', '~']).then_some((i64::try_from(time).ok()?, run))
}

/// Whether a run's name can be part of a file name everywhere: a DNS name of at most 200 bytes.
fn is_plain(run: &str) -> bool {
    let inner = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit();
    let label = |label: &str| {
        label.bytes().all(|c| inner(c) || c == b'-')
            && label.bytes().next().is_some_and(inner)
            && label.bytes().last().is_some_and(inner)
    };
    run.len() <= 200 && run.split('.').all(label)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_sort_newest_first_and_read_back() {
        let (old, _) = entry(1_700_000_000_000, "zz-plan-1");
        let (new, content) = entry(1_700_000_000_001, "aa-plan-1");
        assert!(new < old);
        assert_eq!(content, "");
        insta::assert_snapshot!(new, @"fffffe74301a97fe-aa-plan-1");
        assert_eq!(parse_entry(&new), Some((1_700_000_000_001, "-aa-plan-1")));
    }

    #[test]
    fn a_name_that_does_not_fit_is_kept_as_content() {
        for run in ["Run 7", "a_b", "-a", "a.", "", &"a".repeat(201)] {
            let (name, content) = entry(1_700_000_000_000, run);
            assert_eq!(content, run);
            assert_eq!(name.len(), HEX_DIGITS + 1 + 64);
            assert!(parse_entry(&name).is_some_and(|(_, run)| run.starts_with('~')));
        }
    }

    #[test]
    fn what_is_no_entry_is_passed_over() {
        for name in ["", "x", "fffffe7431a597fe", "fffffe7431a597feé-a", "ffffé8f1e75fa9ffd-a"] {
            assert_eq!(parse_entry(name), None, "{name}");
        }
    }
}
