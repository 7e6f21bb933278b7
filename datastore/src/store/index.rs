//! The runs of a layer, newest first, without a database.
//!
//! The first PUT of an attempt leaves an empty object whose name sorts by time, newest first:
//! `<u64::MAX - unix milliseconds, 16 hex digits>-<run>`. A run whose name does not fit there is
//! `...~<sha256 of its name>`, with the name as content. It comes before the object, so that no run
//! can be missed; one whose first upload broke off is listed, too, without attempts.

use std::sync::PoisonError;
use std::time::{SystemTime, UNIX_EPOCH};

use datastore_api::{Attempt, RunKey, Sha256};
use futures::TryStreamExt as _;
use object_store::path::Path;

use super::{Store, StoreError, backend, index_prefix, parse, run_prefix};

/// So many attempts are remembered before all are forgotten; forgetting one costs a listing.
const REMEMBERED: usize = 4096;
const HEX_DIGITS: usize = 16;

impl Store {
    /// Sees to it that a run is found, before the first object of an attempt is put.
    pub(super) async fn index(&self, run: &RunKey, attempt: Attempt) -> Result<(), StoreError> {
        let path = parse(&format!("{}/{attempt}", run_prefix(run)))?;
        if self.is_indexed(&path) {
            return Ok(());
        }
        let _turn = self.turn(&path).await;
        if self.is_indexed(&path) {
            return Ok(());
        }
        if self.objects.list(Some(&path)).try_next().await.map_err(backend)?.is_none() {
            self.index_now(run).await?;
        }
        let mut indexed = self.indexed.lock().unwrap_or_else(PoisonError::into_inner);
        if indexed.len() >= REMEMBERED {
            indexed.clear();
        }
        indexed.insert(path);
        Ok(())
    }

    fn is_indexed(&self, path: &Path) -> bool {
        self.indexed.lock().unwrap_or_else(PoisonError::into_inner).contains(path)
    }

    async fn index_now(&self, run: &RunKey) -> Result<(), StoreError> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let now = u64::try_from(now.as_millis()).unwrap_or_default();
        let (entry, content) = entry(now, run.run.as_ref());
        let prefix = index_prefix(run.namespace.as_ref(), run.layer.as_ref());
        let path = parse(&format!("{prefix}/{entry}"))?;
        // Its name says what is in it: to put it twice is to put it once.
        self.put_own(&path, content.into_bytes().into()).await
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
