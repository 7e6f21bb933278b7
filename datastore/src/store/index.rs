//! The runs of a layer, newest first, without a database.
//!
//! The first PUT of an attempt leaves an empty object whose name sorts by time, newest first:
//! `<u64::MAX - unix milliseconds, 16 hex digits>-<run>`. A run whose name does not fit there is
//! `...~<sha256 of its name>`, with the name as content. It comes before the object, so that no run
//! can be missed; one whose first upload broke off is listed, too, without attempts.

use std::collections::HashMap;
use std::sync::PoisonError;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use datastore_api::{Attempt, RunKey, Sha256};
use futures::TryStreamExt as _;
use object_store::ObjectStoreExt as _;
use object_store::path::Path;

use super::{Store, StoreError, backend, index_prefix, parse, run_prefix};

/// So many attempts are remembered before all are forgotten; forgetting one costs a listing.
const REMEMBERED: usize = 4096;
/// How long an attempt that was found with objects is taken to be in the index without a second look; `gc`
/// deletes no entry of a run that has changed within its `--min-age`.
const TRUSTED: Duration = Duration::from_mins(1);
const HEX_DIGITS: usize = 16;

/// Attempts that are in the index of runs, as far as this process knows.
pub(super) type Indexed = HashMap<Path, Entry>;

/// What is known of the index entry of an attempt.
#[derive(Clone, Debug)]
pub(super) enum Entry {
    /// This process has written it there.
    Written(Path),
    /// The attempt had objects at this time: the entry was written before the first of them.
    Found(Instant),
}

impl Entry {
    /// The entry that this process has written.
    fn written(self) -> Option<Path> {
        match self {
            Self::Written(entry) => Some(entry),
            Self::Found(_) => None,
        }
    }
}

impl Store {
    /// Ensures that a run is in the index, before the first object of an attempt is stored. An entry that is
    /// returned was written before: [`Store::restore_entry`] finds out whether it is still there, which need
    /// not be awaited before the object is stored.
    pub(super) async fn index(
        &self,
        run: &RunKey,
        attempt: Attempt,
    ) -> Result<Option<Path>, StoreError> {
        let path = parse(&format!("{}/{attempt}", run_prefix(run)))?;
        if let Some(known) = self.indexed_entry(&path) {
            return Ok(known.written());
        }
        let _turn = self.turn(&path).await;
        if let Some(known) = self.indexed_entry(&path) {
            return Ok(known.written());
        }
        let is_new = self.objects.list(Some(&path)).try_next().await.map_err(backend)?.is_none();
        let entry = if is_new {
            Entry::Written(self.index_now(run).await?)
        } else {
            Entry::Found(Instant::now())
        };
        let mut indexed = self.indexed.lock().unwrap_or_else(PoisonError::into_inner);
        if indexed.len() >= REMEMBERED {
            indexed.clear();
        }
        indexed.insert(path, entry);
        Ok(None)
    }

    /// Writes an index entry anew if it is gone: `gc` may have deleted the run, in another process.
    pub(super) async fn restore_entry(&self, entry: &Path, run: &RunKey) -> Result<(), StoreError> {
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
pub(super) fn entry(now: u64, run: &str) -> (String, String) {
    let time = u64::MAX - now;
    if is_plain(run) {
        (format!("{time:016x}-{run}"), String::new())
    } else {
        (format!("{time:016x}~{}", Sha256::of(run.as_bytes())), run.to_owned())
    }
}

/// When a run started, and its name or digest with the sign before it.
pub(super) fn parse_entry(entry: &str) -> Option<(i64, &str)> {
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
