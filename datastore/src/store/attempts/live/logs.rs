//! What this process knows of the logs that are written or followed here.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use datastore_api::digest::Hasher;
use datastore_api::{Attempt, RunKey};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::store::attempts::live::window::Window;
use crate::transport::memory::Memory;

/// How many logs are remembered before unused ones are forgotten.
const MAX_LOGS: usize = 1024;

/// The logs that are written or followed in this process. Clones share them.
#[derive(Clone, Default)]
pub(in crate::store) struct LiveLogs(Arc<Mutex<Logs>>);

type Logs = HashMap<(RunKey, Attempt), Arc<LiveLog>>;

/// One log.
pub(super) struct LiveLog {
    pub(super) run: RunKey,
    pub(super) attempt: Attempt,
    /// Where it ends. Writers of this process lock it, and take it out while they change the log.
    pub(super) tip: tokio::sync::Mutex<Option<Tip>>,
    /// What followers watch.
    pub(super) feed: watch::Sender<Feed>,
    /// Whether a task polls the storage for followers.
    pub(super) is_polled: tokio::sync::Mutex<bool>,
    /// Whether a task merges its pieces.
    pub(super) is_merging: AtomicBool,
    /// The newest bytes, and the digest of all.
    pub(super) recent: Mutex<Recent>,
}

/// Where a log ends.
#[derive(Clone, Debug)]
pub(super) struct Tip {
    /// The number of bytes that are stored.
    pub(super) end: u64,
    /// How many objects it has, as far as this process knows.
    pub(super) objects: usize,
    /// Whether nothing can be appended any more.
    pub(super) is_closed: bool,
    /// Whether it is one object.
    pub(super) is_stored: bool,
    /// What says whether pieces were deleted since.
    pub(super) deleted: Bytes,
    /// When this was true.
    pub(super) seen: Instant,
}

/// What followers of a log watch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Feed {
    /// How many bytes can be read.
    pub(super) end: u64,
    pub(super) state: FeedState,
}

/// Whether a log grows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum FeedState {
    #[default]
    Open,
    /// It has all its bytes.
    Complete,
    /// Another log was stored in its place.
    Replaced,
}

/// The newest bytes of a log that is followed.
#[derive(Default)]
pub(super) struct Recent {
    pub(super) window: Window,
    /// How many bytes followers were notified of.
    pub(super) end: u64,
    /// The digest of these.
    pub(super) digest: Hasher,
}

impl LiveLogs {
    /// The log of an attempt.
    pub(super) fn log(&self, run: &RunKey, attempt: Attempt) -> Arc<LiveLog> {
        let mut logs = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (run.clone(), attempt);
        if !logs.contains_key(&key) && logs.len() >= MAX_LOGS {
            // What is forgotten is read again.
            logs.retain(|_, log| Arc::strong_count(log) > 1);
        }
        Arc::clone(logs.entry(key).or_insert_with(|| Arc::new(LiveLog::new(run, attempt))))
    }
}

impl LiveLog {
    fn new(run: &RunKey, attempt: Attempt) -> Self {
        Self {
            run: run.clone(),
            attempt,
            tip: tokio::sync::Mutex::default(),
            feed: watch::Sender::new(Feed::default()),
            is_polled: tokio::sync::Mutex::default(),
            is_merging: AtomicBool::default(),
            recent: Mutex::default(),
        }
    }

    /// Whether anybody follows it here.
    pub(super) fn is_followed(&self) -> bool {
        self.feed.receiver_count() > 0
    }

    pub(super) fn recent<T>(&self, with: impl FnOnce(&mut Recent) -> T) -> T {
        with(&mut self.recent.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Begins to tell followers of a log, from its first byte on.
    pub(super) fn begin(&self) {
        self.recent(|recent| *recent = Recent::default());
        self.feed.send_replace(Feed::default());
    }

    /// Notifies followers of bytes that are stored. With `memory` they are kept for a while, if some is free.
    pub(super) fn publish(&self, start: u64, bytes: &Bytes, memory: Option<&Memory>) {
        if !self.is_followed() || bytes.is_empty() {
            return;
        }
        self.feed.send_if_modified(|feed| {
            if feed.end != start || feed.state != FeedState::Open {
                return false;
            }
            feed.end = start + bytes.len() as u64;
            self.recent(|recent| {
                recent.digest.update(bytes);
                recent.end = feed.end;
                if let Some(memory) = memory {
                    recent.window.add(start, bytes, memory);
                }
            });
            true
        });
    }

    /// Notifies followers that the log has ended with this many bytes, if they were notified of all of them.
    pub(super) fn complete(&self, end: u64) {
        if self.feed.borrow().end == end {
            self.finish(FeedState::Complete);
        }
    }

    /// Notifies followers that nothing will follow.
    pub(super) fn finish(&self, state: FeedState) {
        self.feed.send_if_modified(|feed| {
            feed.state == FeedState::Open && {
                feed.state = state;
                true
            }
        });
    }
}

impl fmt::Debug for LiveLogs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LiveLogs").finish_non_exhaustive()
    }
}
