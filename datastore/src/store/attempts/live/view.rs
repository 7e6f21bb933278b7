//! What a listing shows of the live log of an attempt, and where the log ends.

use std::collections::BTreeMap;

use bytes::Bytes;
use datastore_api::key::Live;
use datastore_api::{Attempt, File, RunKey};
use futures::TryStreamExt as _;
use jiff::{SignedDuration, Timestamp};
use object_store::ObjectStoreExt as _;
use tokio::time::Instant;

use crate::store::attempts::live::logs::Tip;
use crate::store::backend::metered::{STAT_TIMEOUT, in_time};
use crate::store::error::{StoreError, backend_error};
use crate::store::handle::Store;
use crate::store::key::{Key, LIVE, LivePart, live_prefix, parse};
use crate::store::object::Object;

/// The name of the object whose time shows that the writer of a log works, although it has nothing to append.
pub(super) const ALIVE: &str = "alive";
/// The name of the object that changes before pieces of a log are deleted, and when another log was put while it grows. The name
/// of a deleted piece can be taken again, by a writer that does not know of it: it compares this object before and after.
pub(super) const DELETED: &str = "deleted";
/// After this time without an append or a confirmation, the writer of a log is lost.
const LOST_AFTER: SignedDuration = SignedDuration::from_secs(60);

/// How often a log is listed again that changes meanwhile.
const TRIES: usize = 4;

/// The objects of the live log of one attempt.
#[derive(Clone, Debug, Default)]
pub(in crate::store) struct View {
    /// Stored sizes of pieces, by their first byte.
    pub(super) pieces: BTreeMap<u64, u64>,
    /// Pieces that are made of several: their ends, by their first byte. Of several with one start, the longest.
    pub(super) merged: BTreeMap<u64, u64>,
    /// The ledger of an apply that is stored beside the log.
    pub(in crate::store) ledger: Option<Object>,
    /// When an object of the log was stored last.
    pub(super) newest: Option<Timestamp>,
    /// The objects of the log.
    pub(super) objects: Vec<Object>,
}

impl View {
    fn add(&mut self, name: &str, object: Object) {
        match Key::from_path(&object.key) {
            Some(Key::Live(_, _, LivePart::Piece(start))) => {
                self.pieces.insert(start, object.size);
            }
            Some(Key::Live(_, _, LivePart::Merged(start, end))) => {
                let longest = self.merged.entry(start).or_insert(end);
                *longest = end.max(*longest);
            }
            Some(Key::Live(_, _, LivePart::Ledger)) => {
                self.ledger = Some(object);
                return;
            }
            _ if name == ALIVE => {}
            _ if name == DELETED => {
                self.objects.push(object);
                return;
            }
            _ => return,
        }
        self.newest = self.newest.max(Some(object.modified));
        self.objects.push(object);
    }

    /// Whether there is no log.
    pub(super) fn is_empty(&self) -> bool {
        self.newest.is_none()
    }

    /// Where the last merged piece ends.
    pub(super) fn merged_end(&self) -> u64 {
        self.merged.values().copied().max().unwrap_or_default()
    }

    /// The object that has this byte, and its first byte.
    pub(super) fn part_with(&self, at: u64) -> Option<(LivePart, u64)> {
        let merged = self.merged.range(..=at).rev().find(|(_, end)| **end > at);
        if let Some((start, end)) = merged {
            return Some((LivePart::Merged(*start, *end), *start));
        }
        let (start, _) = self.pieces.range(..=at).next_back()?;
        Some((LivePart::Piece(*start), *start))
    }

    /// When an object of the log was stored last; `None` if there is no log.
    pub(in crate::store) fn newest(&self) -> Option<Timestamp> {
        self.newest
    }

    /// The size of the log, if pieces are not encrypted: then it is a few bytes too large.
    pub(in crate::store) fn size(&self) -> u64 {
        let last = self.pieces.last_key_value().map_or(0, |(start, size)| start + size);
        last.max(self.merged_end())
    }

    /// Whether its writer works. None if the log has ended.
    pub(in crate::store) fn state(&self, now: Timestamp) -> Option<Live> {
        let newest = self.newest?;
        let is_closed = self.pieces.last_key_value().is_some_and(|(_, size)| *size == 0);
        let is_lost = now.duration_since(newest) > LOST_AFTER;
        (!is_closed).then_some(if is_lost { Live::Lost } else { Live::Running })
    }
}

impl Store {
    /// The objects of the live log of an attempt.
    pub(in crate::store) async fn live_view(
        &self,
        run: &RunKey,
        attempt: Attempt,
    ) -> Result<View, StoreError> {
        let prefix = live_prefix(run, attempt);
        let mut objects = self.list(&prefix)?;
        let mut view = View::default();
        while let Some(object) = objects.try_next().await? {
            if let Some(name) = object.key.strip_prefix(&prefix).map(str::to_owned) {
                view.add(&name, object);
            }
        }
        Ok(view)
    }

    /// The live logs of every attempt of a run.
    pub(in crate::store) async fn live_views(
        &self,
        run: &RunKey,
    ) -> Result<BTreeMap<Attempt, View>, StoreError> {
        let prefix = format!("{LIVE}{run}/");
        let mut objects = self.list(&prefix)?;
        let mut views = BTreeMap::<Attempt, View>::new();
        while let Some(object) = objects.try_next().await? {
            let below = object.key.strip_prefix(&prefix).and_then(|below| below.split_once('/'));
            let Some((attempt, name)) = below.map(|(attempt, name)| (attempt, name.to_owned()))
            else {
                continue;
            };
            if let Ok(attempt) = attempt.parse() {
                views.entry(attempt).or_default().add(&name, object);
            }
        }
        Ok(views)
    }

    /// The time by which a writer is lost: that of the storage, which all replicas share.
    pub(in crate::store) fn live_clock(&self) -> Timestamp {
        self.storage_clock().unwrap_or_else(Timestamp::now)
    }

    /// Where a log ends, and its objects.
    pub(super) async fn load_tip(
        &self,
        run: &RunKey,
        attempt: Attempt,
    ) -> Result<(Tip, View), StoreError> {
        for _ in 0..TRIES {
            match self.try_load_tip(run, attempt).await {
                // The pieces were merged, or the log was completed in between.
                Err(StoreError::NotFound) => {}
                loaded => return loaded,
            }
        }
        Err(StoreError::Undecided)
    }

    async fn try_load_tip(
        &self,
        run: &RunKey,
        attempt: Attempt,
    ) -> Result<(Tip, View), StoreError> {
        // What was deleted until now is missing in what is read from now on.
        let deleted = self.deleted(run, attempt).await?;
        // First the pieces: they are deleted only after `run.log` is stored.
        let view = self.live_view(run, attempt).await?;
        let log = Key::File(run.clone(), attempt, File::Log);
        let tip = match self.stat(&log).await {
            Ok(stored) => Tip {
                end: stored.meta.size,
                objects: view.objects.len(),
                is_closed: true,
                is_stored: true,
                deleted,
                seen: Instant::now(),
            },
            Err(StoreError::NotFound) => Tip { deleted, ..self.tip_of(run, attempt, &view).await? },
            Err(error) => return Err(error),
        };
        Ok((tip, view))
    }

    /// Where the pieces of a log end.
    pub(super) async fn tip_of(
        &self,
        run: &RunKey,
        attempt: Attempt,
        view: &View,
    ) -> Result<Tip, StoreError> {
        let mut tip = Tip {
            end: view.merged_end(),
            objects: view.objects.len(),
            is_closed: false,
            is_stored: false,
            deleted: Bytes::new(),
            seen: Instant::now(),
        };
        // The name of a piece does not have its end, and its stored size may be that of encrypted bytes.
        if let Some((start, _)) = view.pieces.last_key_value()
            && *start >= tip.end
        {
            let size = self.piece_size(run, attempt, *start).await?;
            tip.end = start + size;
            tip.is_closed = size == 0;
        }
        Ok(tip)
    }

    /// What changes whenever pieces of a log are deleted.
    pub(super) async fn deleted(
        &self,
        run: &RunKey,
        attempt: Attempt,
    ) -> Result<Bytes, StoreError> {
        let path = parse(&format!("{}{DELETED}", live_prefix(run, attempt)))?;
        let read = async {
            match self.objects.get(&path).await {
                Err(object_store::Error::NotFound { .. }) => Ok(Bytes::new()),
                found => found?.bytes().await,
            }
        };
        let read = in_time(STAT_TIMEOUT, "read which pieces of a log are deleted", read).await;
        read.map_err(backend_error)?.map_err(backend_error)
    }

    /// The number of bytes of a piece; 0 marks the end of a log.
    pub(super) async fn piece_size(
        &self,
        run: &RunKey,
        attempt: Attempt,
        start: u64,
    ) -> Result<u64, StoreError> {
        let key = Key::Live(run.clone(), attempt, LivePart::Piece(start));
        Ok(self.stat(&key).await?.meta.size)
    }
}
