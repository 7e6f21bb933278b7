//! Appends to a live log, confirms that its writer works, and completes it.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use datastore_api::{Attempt, File, RunKey, Sha256};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use tokio::time::timeout;

use crate::store::attempts::live::logs::{LiveLog, Tip};
use crate::store::attempts::live::merge::{MANY, TOO_MANY};
use crate::store::backend::metered::{in_time, put_timeout};
use crate::store::error::{StoreError, backend_error};
use crate::store::handle::Store;
use crate::store::key::{Key, LivePart, parse};
use crate::store::write::conditions::PutConditions;

/// The most bytes of one append.
pub const MAX_APPEND: usize = 4 << 20;
/// How long this process relies on what it knows of a log. The mark of its end stays longer.
const FRESH: Duration = Duration::from_secs(30);
/// How often an append is tried again after another replica has changed the log.
const TRIES: usize = 4;
/// How long an append waits for those before it.
const LOCK_TIMEOUT: Duration = Duration::from_secs(15);

/// Bytes that are added to a log.
#[derive(Clone, Debug)]
pub struct Append {
    /// Where they begin.
    pub offset: u64,
    /// None at all confirms that the writer works.
    pub bytes: Bytes,
    /// Whether the log ends with them.
    pub complete: bool,
}

/// An append whose bytes are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Appended {
    /// How many bytes of the log are stored. For a repeated append it may be only those up to its end, if another replica has
    /// appended more.
    pub end: u64,
    /// The digest of a log that is complete, if it is known.
    pub sha256: Option<Sha256>,
}

/// Why bytes were not appended.
#[derive(Debug, thiserror::Error)]
pub enum AppendError {
    /// The log has other bytes there, or ends before or elsewhere.
    #[error("{}", conflict(*end, *is_complete))]
    Offset {
        /// How many bytes of the log are stored.
        end: u64,
        /// Whether nothing can be appended.
        is_complete: bool,
    },
    /// The log would be too large.
    #[error("the log would have more bytes than `--max-size log` allows ({0})")]
    TooLarge(u64),
    /// The storage failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

fn conflict(end: u64, is_complete: bool) -> String {
    if is_complete {
        return format!("the log is complete with {end} bytes: nothing can be appended");
    }
    format!(
        "the log has {end} bytes, and these do not continue it: append at `Upload-Offset`, or find out which other runner \
         writes it"
    )
}

/// The result of one try.
enum Tried {
    Done(Tip, Appended),
    Refused(Tip),
    /// Another replica was faster.
    Raced,
}

impl Store {
    /// Appends to the log of an attempt. What is appended is stored when this returns. The same bytes can be appended again.
    pub async fn append_log(
        &self,
        run: &RunKey,
        attempt: Attempt,
        append: &Append,
        max: u64,
    ) -> Result<Appended, AppendError> {
        let end = append.offset.checked_add(append.bytes.len() as u64);
        if end.is_none_or(|end| end > max) {
            return Err(AppendError::TooLarge(max));
        }
        let log = self.live.log(run, attempt);
        let known = timeout(LOCK_TIMEOUT, log.tip.lock()).await;
        let mut known = known.map_err(|_| StoreError::Undecided)?;
        for _ in 0..TRIES {
            // It is put back after a success only: a try that is given up may have changed the log.
            let (tip, is_fresh) = match known.take().filter(|tip| tip.seen.elapsed() < FRESH) {
                Some(tip) => (tip, false),
                None => (self.load_tip(run, attempt).await?.0, true),
            };
            if !is_fresh && (tip.is_closed || append.offset != tip.end) {
                // Another replica may have changed it.
                continue;
            }
            match self.try_append(&log, tip, append).await? {
                Tried::Done(tip, appended) => {
                    *known = Some(tip);
                    return Ok(appended);
                }
                Tried::Refused(tip) => {
                    let refused = AppendError::Offset { end: tip.end, is_complete: tip.is_closed };
                    // A PUT by another replica leaves no mark where there is nothing.
                    *known = Some(tip).filter(|tip| tip.objects > 0);
                    return Err(refused);
                }
                Tried::Raced => {}
            }
        }
        Err(StoreError::Undecided.into())
    }

    async fn try_append(
        &self,
        log: &Arc<LiveLog>,
        mut tip: Tip,
        append: &Append,
    ) -> Result<Tried, StoreError> {
        let Append { offset, bytes, complete } = append;
        let end = offset + bytes.len() as u64;
        let mut sha256 = None;
        if tip.is_closed || *offset != tip.end {
            if tip.is_closed && !tip.is_stored {
                // A completion was interrupted.
                match self.finish_log(log, &mut tip).await {
                    Ok(_) => {}
                    Err(StoreError::Exists | StoreError::Replaced) => return Ok(Tried::Raced),
                    Err(error) => return Err(error),
                }
            }
            let is_repeated = end <= tip.end
                && (!bytes.is_empty() || *complete && tip.is_closed)
                && (!complete || end == tip.end);
            if !is_repeated || !self.has_bytes(log, append).await? {
                return Ok(Tried::Refused(tip));
            }
            if *complete && tip.is_closed {
                let stored = self.stat(&Key::File(log.run.clone(), log.attempt, File::Log)).await?;
                sha256 = stored.meta.sha256;
            }
        } else if bytes.is_empty() {
            if !complete {
                // Another replica may have ended the log, or appended to it.
                match self.piece_size(&log.run, log.attempt, tip.end).await {
                    Err(StoreError::NotFound) => {}
                    found => return found.map(|_| Tried::Raced),
                }
                self.confirm(log, tip.objects == 0).await?;
                if !self.is_unchanged(log, &tip).await? {
                    return Ok(Tried::Raced);
                }
                tip.objects = tip.objects.max(1);
                tip.seen = tokio::time::Instant::now();
            }
        } else if !self.put_piece(log, &mut tip, bytes).await? {
            return Ok(Tried::Raced);
        }
        if *complete && !tip.is_closed {
            if !self.close_log(log, &tip).await? {
                return Ok(Tried::Raced);
            }
            tip.is_closed = true;
            log.complete(tip.end);
            match self.finish_log(log, &mut tip).await {
                Ok(digest) => sha256 = Some(digest),
                Err(StoreError::Exists | StoreError::Replaced) => return Ok(Tried::Raced),
                Err(error) => return Err(error),
            }
        }
        let end = tip.end;
        Ok(Tried::Done(tip, Appended { end, sha256 }))
    }

    /// Stores the next piece of a log. Returns whether it did: `false` if another one has its offset.
    async fn put_piece(
        &self,
        log: &Arc<LiveLog>,
        tip: &mut Tip,
        bytes: &Bytes,
    ) -> Result<bool, StoreError> {
        if tip.objects >= TOO_MANY {
            self.merge_pieces(log).await?;
            // It is to be listed again.
            return Ok(false);
        }
        if !self.create_piece(log, tip, bytes.clone()).await? {
            return Ok(false);
        }
        log.publish(tip.end, bytes, Some(&self.memory));
        tip.end += bytes.len() as u64;
        tip.objects += 1;
        tip.seen = tokio::time::Instant::now();
        if tip.objects >= MANY {
            self.merge_later(log);
        }
        Ok(true)
    }

    /// Creates a piece at the end of a log. Returns whether it did: `false` also if the log may have become longer, and what had
    /// this offset was deleted since.
    async fn create_piece(
        &self,
        log: &LiveLog,
        tip: &Tip,
        bytes: Bytes,
    ) -> Result<bool, StoreError> {
        let key = Key::Live(log.run.clone(), log.attempt, LivePart::Piece(tip.end));
        let sha256 = Some(Sha256::of(&bytes));
        let conditions = PutConditions { sha256, create: true, ..PutConditions::default() };
        // The upload may go on without its caller, and then keeps the memory of these bytes.
        let kept = bytes.clone();
        let body = stream::iter([Ok(bytes)]).map(move |piece| {
            let _kept = &kept;
            piece
        });
        match self.put(&key, conditions, body).await {
            Ok(_) => self.is_unchanged(log, tip).await,
            Err(StoreError::Exists) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Whether an object that was just stored belongs to the log that was seen before: nothing of it was deleted since, and a log
    /// without objects was not put as a whole.
    async fn is_unchanged(&self, log: &LiveLog, tip: &Tip) -> Result<bool, StoreError> {
        if tip.objects == 0 {
            match self.stat(&Key::File(log.run.clone(), log.attempt, File::Log)).await {
                Err(StoreError::NotFound) => {}
                found => return found.map(|_| false),
            }
        }
        Ok(self.deleted(&log.run, log.attempt).await? == tip.deleted)
    }

    /// Marks the end of a log. Returns whether it did: `false` if bytes were appended there.
    async fn close_log(&self, log: &LiveLog, tip: &Tip) -> Result<bool, StoreError> {
        self.create_piece(log, tip, Bytes::new()).await
    }

    /// Records that the writer of a log works. With the first object of an attempt, its run comes into the index.
    async fn confirm(&self, log: &LiveLog, is_first: bool) -> Result<(), StoreError> {
        let alive = parse(&Self::alive_path(log))?;
        let of_attempt = is_first.then(|| (log.run.clone(), log.attempt));
        let indexed = self.index_upload(of_attempt).await?;
        let put = async {
            let put = self.put_internal(&alive, Bytes::new());
            in_time(put_timeout(0), "confirm a log", put).await.map_err(backend_error)??;
            Ok(Sha256::of(b""))
        };
        self.commit_indexed(indexed, put).await.map(drop)
    }

    /// Whether the log has these bytes.
    async fn has_bytes(&self, log: &LiveLog, append: &Append) -> Result<bool, StoreError> {
        let end = append.offset + append.bytes.len() as u64;
        let mut stored = self.read_log(&log.run, log.attempt, append.offset..end);
        let mut left = &append.bytes[..];
        loop {
            match stored.try_next().await {
                Ok(None) => return Ok(left.is_empty()),
                Ok(Some(piece)) => match left.strip_prefix(&piece[..]) {
                    Some(rest) => left = rest,
                    None => return Ok(false),
                },
                Err(StoreError::Replaced | StoreError::NotFound) => return Ok(false),
                Err(error) => return Err(error),
            }
        }
    }

    /// Ends the live log of an attempt after a PUT of the whole log: its pieces are deleted, and nothing can be appended.
    pub(crate) async fn replace_log(
        &self,
        run: &RunKey,
        attempt: Attempt,
    ) -> Result<(), StoreError> {
        let log = self.live.log(run, attempt);
        let mut known = log.tip.lock().await;
        *known = None;
        for _ in 0..TRIES {
            let deleted = self.deleted(run, attempt).await?;
            let view = self.live_view(run, attempt).await?;
            if view.is_empty() {
                return Ok(());
            }
            let tip = match self.tip_of(run, attempt, &view).await {
                // A completion has deleted it meanwhile.
                Err(StoreError::NotFound) => continue,
                tip => Tip { deleted, ..tip? },
            };
            if tip.is_closed || self.close_log(&log, &tip).await? {
                self.sweep_pieces(&log, &view.objects, tip.end).await?;
                return self.settle_feed(&log).await;
            }
            // Another replica appends, and compares this after each piece: then it finds the whole log, and refuses the rest.
            self.mark_deleted(&log).await?;
        }
        Err(StoreError::Undecided)
    }
}
