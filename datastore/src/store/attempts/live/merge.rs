//! Makes one object of many pieces: of some while a log grows, and of all once it has ended. Pieces are deleted only after the
//! object is stored, so an interruption loses nothing, and the next request for the log or `gc` completes it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use datastore_api::{Attempt, File, RunKey, Sha256, chain};
use futures::stream::{self, StreamExt as _, TryStreamExt as _};
use jiff::{SignedDuration, Timestamp};

use crate::store::attempts::live::ledger::LEDGER;
use crate::store::attempts::live::logs::{LiveLog, Tip};
use crate::store::attempts::live::view::{ALIVE, DELETED};
use crate::store::error::{StoreError, backend_error};
use crate::store::handle::Store;
use crate::store::key::{Key, LIVE, LivePart, live_prefix, parse, random};
use crate::store::object::Object;
use crate::store::write::conditions::PutConditions;

/// With so many objects, pieces of a log are merged while it grows.
pub(super) const MANY: usize = 1000;
/// With so many, appends wait for that.
pub(super) const TOO_MANY: usize = 1800;
/// With so many merged pieces, these are merged as well.
const MANY_MERGED: usize = 64;
/// How many pieces are deleted at the same time.
const DELETIONS: usize = 16;

/// What was done with leftovers of live logs.
#[derive(Debug, Default)]
pub(crate) struct Tidied {
    /// How many objects were deleted.
    pub(crate) removed: usize,
    /// Logs for which it failed.
    pub(crate) failures: Vec<(String, StoreError)>,
}

/// The attempt that an object of a live log belongs to.
pub fn live_attempt(path: &str) -> Option<(RunKey, Attempt)> {
    let (attempt, _) = path.rsplit_once('/')?;
    // Any name of a part has the same attempt.
    match Key::from_path(&format!("{attempt}/{LEDGER}"))? {
        Key::Live(run, attempt, _) => Some((run, attempt)),
        _ => None,
    }
}

impl Store {
    /// Stores a closed log as `run.log`, and deletes its pieces. Fails with [`StoreError::Exists`] if another log was stored in
    /// its place, or [`StoreError::Replaced`] if that happens now.
    pub(super) async fn finish_log(
        &self,
        log: &LiveLog,
        tip: &mut Tip,
    ) -> Result<Sha256, StoreError> {
        let key = Key::File(log.run.clone(), log.attempt, File::Log);
        let sha256 = self.put_merged(&key, log, 0..tip.end).await?;
        tip.is_stored = true;
        let view = self.live_view(&log.run, log.attempt).await;
        let swept = match view {
            Ok(view) => self.sweep_pieces(log, &view.objects, tip.end).await,
            Err(error) => Err(error),
        };
        if let Err(error) = swept {
            let error = chain(&error);
            tracing::warn!(run = %log.run, error, "pieces of a complete log are left, `gc` deletes them");
        }
        Ok(sha256)
    }

    /// Stores a closed log as `run.log` in the background.
    pub(super) fn finish_later(&self, run: &RunKey, attempt: Attempt) {
        let (store, log) = (self.clone(), self.live.log(run, attempt));
        self.uploads.spawn(async move {
            let Ok(mut known) = log.tip.try_lock() else { return };
            let finished = async {
                let (mut tip, _) = store.load_tip(&log.run, log.attempt).await?;
                if tip.is_closed && !tip.is_stored {
                    store.finish_log(&log, &mut tip).await?;
                }
                *known = Some(tip);
                Ok::<_, StoreError>(())
            };
            // A log that was put meanwhile is complete as well.
            if let Err(error) = finished.await
                && !matches!(error, StoreError::Exists)
            {
                let (run, error) = (&log.run, chain(&error));
                tracing::warn!(%run, attempt = log.attempt.0, error, "a log could not be completed");
            }
        });
    }

    /// Merges the pieces of a log that grows, in the background.
    pub(super) fn merge_later(&self, log: &Arc<LiveLog>) {
        if log.is_merging.swap(true, Ordering::Relaxed) {
            return;
        }
        let (store, log) = (self.clone(), Arc::clone(log));
        self.uploads.spawn(async move {
            if let Err(error) = store.merge_pieces(&log).await {
                let (run, error) = (&log.run, chain(&error));
                tracing::warn!(%run, attempt = log.attempt.0, error, "pieces of a log could not be merged");
            }
            // The next append lists it again.
            *log.tip.lock().await = None;
            log.is_merging.store(false, Ordering::Relaxed);
        });
    }

    /// Makes one piece of all but the last one.
    pub(super) async fn merge_pieces(&self, log: &LiveLog) -> Result<(), StoreError> {
        let view = self.live_view(&log.run, log.attempt).await?;
        let is_all = view.merged.len() >= MANY_MERGED;
        let start = if is_all { 0 } else { view.merged_end() };
        let end = view.pieces.last_key_value().map_or(0, |(start, _)| *start);
        if start < end {
            let key = Key::Live(log.run.clone(), log.attempt, LivePart::Merged(start, end));
            self.put_merged(&key, log, start..end).await?;
        }
        // Also what an interrupted merge has left.
        let covered = view.objects.iter().filter(|object| match Key::from_path(&object.key) {
            Some(Key::Live(_, _, LivePart::Piece(at))) => at < end,
            Some(Key::Live(_, _, LivePart::Merged(from, to))) => {
                is_all && (from, to) != (start, end) && to <= end
            }
            _ => false,
        });
        self.delete_pieces(log, covered).await
    }

    async fn put_merged(
        &self,
        key: &Key,
        log: &LiveLog,
        part: std::ops::Range<u64>,
    ) -> Result<Sha256, StoreError> {
        let bytes = self.read_log(&log.run, log.attempt, part);
        let conditions = PutConditions { create: true, ..PutConditions::default() };
        match self.put(key, conditions, bytes.map_err(Into::into)).await {
            // The body is not a caller's, but read from the storage.
            Err(StoreError::Upload(error)) => match error.downcast_ref() {
                Some(StoreError::Replaced) => Err(StoreError::Replaced),
                _ => Err(backend_error(error)),
            },
            put => put,
        }
    }

    /// Deletes the objects of a complete log, except for the mark of its end: writers and followers elsewhere find it there.
    pub(super) async fn sweep_pieces(
        &self,
        log: &LiveLog,
        objects: &[Object],
        end: u64,
    ) -> Result<(), StoreError> {
        let mark = LivePart::Piece(end);
        let left = objects.iter().filter(|object| {
            let is_mark =
                matches!(Key::from_path(&object.key), Some(Key::Live(_, _, part)) if part == mark);
            !is_mark && !object.key.ends_with(DELETED)
        });
        self.delete_pieces(log, left).await
    }

    /// Changes what writers compare after each append: this one reads the log again.
    pub(super) async fn mark_deleted(&self, log: &LiveLog) -> Result<(), StoreError> {
        let path = parse(&format!("{}{DELETED}", live_prefix(&log.run, log.attempt)))?;
        self.put_internal(&path, format!("{:016x}", random()).into()).await
    }

    async fn delete_pieces(
        &self,
        log: &LiveLog,
        objects: impl Iterator<Item = &Object>,
    ) -> Result<(), StoreError> {
        let objects = objects.collect::<Vec<_>>();
        if objects.is_empty() {
            return Ok(());
        }
        self.mark_deleted(log).await?;
        // The digest of a large object may be in a record, which is deleted with it.
        let is_small = |object: &&Object| {
            self.is_bucket() && object.size <= self.backend.single_put_max as u64
        };
        let (small, others): (Vec<_>, Vec<_>) = objects.into_iter().partition(is_small);
        let small = small.into_iter().map(|object| object.key.clone()).collect::<Vec<_>>();
        let deleted = self.delete_many(small.iter().map(String::as_str)).await;
        let others = others.into_iter().map(|object| object.key.clone()).collect::<Vec<_>>();
        let deletions = stream::iter(others).map(async |key| self.delete(&key).await);
        let mut deletions = std::pin::pin!(deletions.buffer_unordered(DELETIONS));
        let mut result = deleted.into_iter().collect::<Result<(), _>>();
        while let Some(deleted) = deletions.next().await {
            result = result.and(deleted);
        }
        result
    }

    /// Completes and removes what is left of live logs that have ended: an interrupted completion, pieces beside `run.log`, the
    /// mark of the end of an older one. Only those count in which nothing is younger than `age` at `now`.
    pub(crate) async fn tidy_logs(
        &self,
        now: Timestamp,
        age: Duration,
    ) -> Result<Tidied, StoreError> {
        let mut settled = BTreeMap::<String, (RunKey, Attempt, bool)>::new();
        let mut objects = self.list(LIVE)?;
        while let Some(object) = objects.try_next().await? {
            let Some((run, attempt)) = live_attempt(&object.key) else { continue };
            let old = now.duration_since(object.modified)
                > SignedDuration::try_from(age).unwrap_or_default();
            let name = format!("{run}/{attempt}");
            let is_ledger = object.key.ends_with(LEDGER);
            let (_, _, is_settled) = settled.entry(name).or_insert((run, attempt, true));
            *is_settled &= old || is_ledger;
        }
        let mut tidied = Tidied::default();
        for (name, (run, attempt, _)) in settled.into_iter().filter(|(_, (.., settled))| *settled) {
            match self.tidy_log(&run, attempt).await {
                Ok(removed) => tidied.removed += removed,
                Err(error) => tidied.failures.push((name, error)),
            }
        }
        Ok(tidied)
    }

    async fn tidy_log(&self, run: &RunKey, attempt: Attempt) -> Result<usize, StoreError> {
        let log = self.live.log(run, attempt);
        let Ok(mut known) = log.tip.try_lock() else { return Ok(0) };
        let (mut tip, view) = self.load_tip(run, attempt).await?;
        if !tip.is_closed || view.is_empty() {
            return Ok(0);
        }
        *known = None;
        // Of a complete log that was deleted since, the mark of its end may be left.
        let has_text = !view.merged.is_empty() || view.pieces.len() > 1;
        if !tip.is_stored && (has_text || tip.end == 0) {
            match self.finish_log(&log, &mut tip).await {
                Ok(_) | Err(StoreError::Exists) => {}
                Err(error) => return Err(error),
            }
        }
        self.delete_pieces(&log, view.objects.iter()).await?;
        // The name that it takes again may stay: nothing is left that a writer could take for the present log.
        let path = format!("{}{DELETED}", live_prefix(run, attempt));
        self.delete(&path).await?;
        Ok(view.objects.len())
    }

    /// Where the time of a log's writer is stored.
    pub(super) fn alive_path(log: &LiveLog) -> String {
        format!("{}{ALIVE}", live_prefix(&log.run, log.attempt))
    }
}
