//! Follows a log that grows.
//!
//! Followers of a log share what this process knows of it. An append here tells them at once. For appends by other replicas,
//! one task for each followed log asks the storage once a second for the piece that would come next, whose name is known. While
//! a follower waits, it holds no bytes.

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

/// Between two requests to the storage for a followed log: for its next piece, and whether pieces were deleted. Then the next one
/// may have been merged, or the log is complete.
const POLL: Duration = Duration::from_millis(950);

/// A reader of a log that grows.
pub(crate) struct Follower {
    store: Store,
    log: Arc<LiveLog>,
    feed: watch::Receiver<Feed>,
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
        let state = log.feed.borrow().state;
        if !*is_polled || state != FeedState::Open {
            let (tip, view) = self.load_tip(run, attempt).await?;
            if tip.is_stored {
                return Ok(None);
            }
            if view.is_empty() {
                return Err(StoreError::NotFound);
            }
            let state = if tip.is_closed { FeedState::Complete } else { FeedState::Open };
            if tip.is_closed {
                self.finish_later(run, attempt);
            }
            if !*is_polled {
                log.begin(tip.end, state);
                *is_polled = true;
                tokio::spawn(self.clone().poll(Arc::clone(&log), tip.deleted));
            }
        }
        drop(is_polled);
        let store = self.clone();
        Ok(Some(Follower { store, log, feed, at, behind: None, rest: Bytes::new() }))
    }

    /// Asks the storage for more of a log while anybody follows it.
    async fn poll(self, log: Arc<LiveLog>, mut deleted: Bytes) {
        let mut asks_for_piece = true;
        loop {
            sleep(POLL).await;
            {
                let mut is_polled = log.is_polled.lock().await;
                if !log.is_followed() {
                    *is_polled = false;
                    log.recent(|recent| recent.window.clear());
                    return;
                }
            }
            if log.feed.borrow().state != FeedState::Open {
                // Its followers are about to end.
                continue;
            }
            let polled = if asks_for_piece {
                self.poll_pieces(&log).await
            } else {
                self.poll_deleted(&log, &mut deleted).await
            };
            asks_for_piece = !asks_for_piece;
            if let Err(error) = polled {
                let (run, error) = (&log.run, chain(&error));
                tracing::warn!(%run, attempt = log.attempt.0, error, "a followed log cannot be read");
            }
        }
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
                    log.publish(at, &bytes, &self.memory);
                }
                Err(StoreError::NotFound) => return Ok(()),
                Err(error) => return Err(error),
            }
        }
    }

    /// Lists the log again if pieces were deleted.
    async fn poll_deleted(&self, log: &LiveLog, known: &mut Bytes) -> Result<(), StoreError> {
        if self.deleted(&log.run, log.attempt).await? == *known {
            return Ok(());
        }
        let (tip, _) = self.load_tip(&log.run, log.attempt).await?;
        if tip.is_closed {
            return self.settle_feed(log).await;
        }
        self.extend_feed(log, tip.end).await?;
        *known = tip.deleted;
        Ok(())
    }

    /// Tells followers of bytes up to `end`. A few are read once for all of them.
    async fn extend_feed(&self, log: &LiveLog, end: u64) -> Result<(), StoreError> {
        let at = log.feed.borrow().end;
        if at < end && end - at <= MAX_APPEND as u64 {
            let bytes = self.read_log(&log.run, log.attempt, at..end);
            let bytes = bytes.try_collect::<Vec<_>>().await?.concat();
            log.publish(at, &bytes.into(), &self.memory);
        }
        log.publish_end(end);
        Ok(())
    }

    /// Ends a feed: with its log, or because another one was stored in its place. If that one begins with the same bytes,
    /// followers get the rest of it.
    pub(super) async fn settle_feed(&self, log: &LiveLog) -> Result<(), StoreError> {
        if !log.is_followed() {
            return Ok(());
        }
        let Feed { end, .. } = *log.feed.borrow();
        let key = Key::File(log.run.clone(), log.attempt, File::Log);
        let size = match self.stat(&key).await {
            Ok(found) => found.meta.size,
            // The pieces are being merged.
            Err(StoreError::NotFound) => {
                let (tip, _) = self.load_tip(&log.run, log.attempt).await?;
                self.extend_feed(log, tip.end).await?;
                if tip.is_closed {
                    log.finish(FeedState::Complete);
                }
                return Ok(());
            }
            Err(error) => return Err(error),
        };
        let (since, digest) = log.recent(|recent| (recent.since, recent.digest.clone()));
        let stored = match self.digest_of_stored(&log.run, log.attempt, since..end).await {
            Err(StoreError::Replaced) => None,
            stored => Some(stored?),
        };
        if stored != Some(digest.finish()) || size < end {
            log.finish(FeedState::Replaced);
            return Ok(());
        }
        self.extend_feed(log, size).await?;
        log.finish(FeedState::Complete);
        Ok(())
    }
}

impl Follower {
    /// How many bytes can be read now.
    pub(crate) fn end(&self) -> u64 {
        self.feed.borrow().end
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
            if self.at < end {
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
            let end = self.end();
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
