//! Follows a log that grows.
//!
//! Followers of a log share what this process knows of it. An append here notifies them at once. For appends by other replicas,
//! one task for each followed log lists its pieces about once a second. While a follower waits, it holds no bytes.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use datastore_api::{Attempt, File, RunKey, chain};
use futures::TryStreamExt as _;
use tokio::sync::watch;
use tokio::time::sleep;

use crate::store::attempts::live::append::MAX_APPEND;
use crate::store::attempts::live::logs::{Feed, FeedState, LiveLog};
use crate::store::attempts::live::window::CHUNK;
use crate::store::error::StoreError;
use crate::store::handle::Store;
use crate::store::key::{Key, LivePart};
use crate::store::object::ByteStream;

/// Between two listings of a followed log.
const POLL: Duration = Duration::from_millis(950);

/// A reader of a log that grows.
pub(crate) struct Follower {
    store: Store,
    log: Arc<LiveLog>,
    feed: watch::Receiver<Feed>,
    /// How many bytes the log had when it was asked for.
    size: u64,
    at: u64,
    /// Bytes that are not kept in memory any more.
    behind: Option<ByteStream>,
    /// What was read of them, and does not fit into a chunk.
    rest: Bytes,
}

/// What a follower has waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Waited {
    /// Bytes, which are in memory.
    Recent,
    /// Bytes, which are read from the storage.
    Behind,
    /// The end of the log.
    Complete,
    /// Another log was stored in its place.
    Replaced,
}

impl Store {
    /// Follows the log of an attempt from an offset. `None` if it is complete; an error if there is none.
    pub(crate) async fn follow(
        &self,
        run: &RunKey,
        attempt: Attempt,
        at: u64,
    ) -> Result<Option<Follower>, StoreError> {
        let log = self.live.log(run, attempt);
        let feed = log.feed.subscribe();
        let mut is_polled = log.is_polled.lock().await;
        let Feed { end: mut size, state } = *log.feed.borrow();
        if !*is_polled || state != FeedState::Open || at > size {
            let (tip, view) = self.load_tip(run, attempt).await?;
            if tip.is_stored {
                return Ok(None);
            }
            if view.is_empty() {
                return Err(StoreError::NotFound);
            }
            if tip.is_closed {
                self.finish_later(run, attempt);
            }
            size = tip.end;
            if !*is_polled {
                log.begin();
                *is_polled = true;
                tokio::spawn(self.clone().poll(Arc::clone(&log), tip.end));
            }
        }
        drop(is_polled);
        let store = self.clone();
        let (behind, rest) = (None, Bytes::new());
        Ok(Some(Follower { store, log, feed, size, at, behind, rest }))
    }

    /// Asks the storage for more of a log while anybody follows it. First all of it is read once: its digest says whether what is
    /// stored at the end is the log that followers have. `known` is where it ends.
    async fn poll(self, log: Arc<LiveLog>, mut known: u64) {
        loop {
            {
                let mut is_polled = log.is_polled.lock().await;
                if !log.is_followed() {
                    *is_polled = false;
                    log.recent(|recent| recent.window.clear());
                    return;
                }
            }
            // Else its followers are about to end.
            if log.feed.borrow().state == FeedState::Open
                && let Err(error) = self.poll_once(&log, &mut known).await
            {
                let (run, error) = (&log.run, chain(&error));
                tracing::warn!(%run, attempt = log.attempt.0, error, "a followed log cannot be read");
            }
            sleep(POLL).await;
        }
    }

    /// Notifies followers of what there is.
    async fn poll_once(&self, log: &LiveLog, known: &mut u64) -> Result<(), StoreError> {
        self.extend_feed(log, *known).await?;
        let at = log.feed.borrow().end;
        let view = self.live_view(&log.run, log.attempt).await?;
        if view.pieces.contains_key(&at) {
            return self.poll_pieces(log).await;
        }
        let newest = view.pieces.last_key_value().map_or(0, |(start, _)| *start);
        if !view.is_empty() && newest.max(view.merged_end()) <= at {
            return Ok(());
        }
        // The next piece was merged, or the log is complete.
        let (tip, _) = self.load_tip(&log.run, log.attempt).await?;
        if tip.is_closed {
            return self.settle_feed(log).await;
        }
        *known = tip.end;
        self.extend_feed(log, tip.end).await
    }

    /// Asks for the next pieces.
    async fn poll_pieces(&self, log: &LiveLog) -> Result<(), StoreError> {
        loop {
            let at = log.feed.borrow().end;
            let key = Key::Live(log.run.clone(), log.attempt, LivePart::Piece(at));
            match self.open_whole(&key).await {
                Ok((meta, _)) if meta.size == 0 => return self.settle_feed(log).await,
                Ok((_, bytes)) => {
                    let bytes = Bytes::from(bytes.try_collect::<Vec<_>>().await?.concat());
                    log.publish(at, &bytes, Some(&self.memory));
                }
                Err(StoreError::NotFound) => return Ok(()),
                Err(error) => return Err(error),
            }
        }
    }

    /// Notifies followers of the bytes up to `end`, which are read once for all of them.
    async fn extend_feed(&self, log: &LiveLog, end: u64) -> Result<(), StoreError> {
        let mut at = log.feed.borrow().end;
        if at >= end {
            return Ok(());
        }
        let mut bytes = self.read_log(&log.run, log.attempt, at..end);
        // Those that were there before anybody followed the log are read by each follower.
        let memory = (at > 0 && end - at <= MAX_APPEND as u64).then_some(&self.memory);
        while let Some(piece) = bytes.try_next().await? {
            log.publish(at, &piece, memory);
            at += piece.len() as u64;
        }
        Ok(())
    }

    /// Ends a feed: with its log, or because another one was stored in its place. If that one begins with the same bytes,
    /// followers get the rest of it.
    pub(super) async fn settle_feed(&self, log: &LiveLog) -> Result<(), StoreError> {
        if !log.is_followed() {
            return Ok(());
        }
        let key = Key::File(log.run.clone(), log.attempt, File::Log);
        let found = match self.stat(&key).await {
            // The pieces are being merged.
            Err(StoreError::NotFound) => {
                let (tip, _) = self.load_tip(&log.run, log.attempt).await?;
                self.extend_feed(log, tip.end).await?;
                if tip.is_closed {
                    log.complete(tip.end);
                }
                return Ok(());
            }
            found => found?.meta,
        };
        let (end, digest) = log.recent(|recent| (recent.end, recent.digest.clone().finish()));
        let stored = match found.sha256.filter(|_| found.size == end) {
            Some(sha256) => Ok(sha256),
            None => self.digest_of_stored(&log.run, log.attempt, 0..end).await,
        };
        match stored {
            Ok(stored) if stored == digest => {}
            Ok(_) | Err(StoreError::Replaced) => {
                log.finish(FeedState::Replaced);
                return Ok(());
            }
            Err(error) => return Err(error),
        }
        self.extend_feed(log, found.size).await?;
        log.complete(found.size);
        Ok(())
    }
}

impl Follower {
    /// How many bytes the log had when it was asked for.
    pub(crate) fn size(&self) -> u64 {
        self.size
    }

    /// Waits for more.
    pub(crate) async fn wait(&mut self) -> Waited {
        if self.behind.is_some() {
            return Waited::Behind;
        }
        loop {
            let Feed { end, state } = *self.feed.borrow_and_update();
            if state == FeedState::Replaced {
                return Waited::Replaced;
            }
            if self.at < end.max(self.size) {
                let is_kept = self.log.recent(|recent| recent.window.has(self.at));
                return if is_kept { Waited::Recent } else { Waited::Behind };
            }
            if state == FeedState::Complete {
                return Waited::Complete;
            }
            // The log is kept by this follower, so its feed is never closed.
            if self.feed.changed().await.is_err() {
                return Waited::Replaced;
            }
        }
    }

    /// The next bytes, at most 64 KiB; none if they must be waited for.
    pub(crate) async fn read(&mut self) -> Result<Bytes, StoreError> {
        loop {
            if !self.rest.is_empty() {
                let chunk = self.rest.split_to(self.rest.len().min(CHUNK));
                self.at += chunk.len() as u64;
                return Ok(chunk);
            }
            if let Some(behind) = &mut self.behind {
                match behind.try_next().await? {
                    Some(bytes) => self.rest = bytes,
                    None => self.behind = None,
                }
                continue;
            }
            let end = self.feed.borrow().end.max(self.size);
            if self.at >= end {
                return Ok(Bytes::new());
            }
            if let Some(chunk) = self.log.recent(|recent| recent.window.chunk(self.at)) {
                self.at += chunk.len() as u64;
                return Ok(chunk);
            }
            let LiveLog { run, attempt, .. } = &*self.log;
            self.behind = Some(self.store.read_log(run, *attempt, self.at..end));
        }
    }

    /// Whether it reads from the storage.
    pub(crate) fn is_behind(&self) -> bool {
        self.behind.is_some()
    }
}
