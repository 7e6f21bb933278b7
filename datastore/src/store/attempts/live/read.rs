//! Reads a log: from its pieces, or from `run.log` once it is complete. Bytes are the same before, while and after pieces are
//! merged. If another log was stored in its place meanwhile, reading fails with [`StoreError::Replaced`].

use std::ops::Range;

use bytes::Bytes;
use datastore_api::digest::Hasher;
use datastore_api::{Attempt, File, RunKey, Sha256};
use futures::future::BoxFuture;
use futures::stream::{self, FuturesOrdered};
use futures::{FutureExt as _, StreamExt as _, TryStreamExt as _};

use crate::store::attempts::live::view::View;
use crate::store::error::StoreError;
use crate::store::handle::Store;
use crate::store::key::{Key, LivePart};
use crate::store::object::{ByteStream, Meta};

/// How many pieces are opened ahead.
const AHEAD: usize = 8;
/// How often the next byte is searched again.
const SEARCHES: u32 = 4;

/// A piece that was opened ahead: its first byte, and what was found there.
type Opened = (u64, Result<(Meta, ByteStream), StoreError>);

/// Where the bytes of a log are.
enum Place {
    /// In `run.log`, which has this many.
    Stored(u64),
    Pieces(View),
}

/// Reads a part of a log.
struct LogReader {
    store: Store,
    run: RunKey,
    attempt: Attempt,
    began: u64,
    at: u64,
    until: u64,
    /// The digest of what was read since `began`.
    digest: Hasher,
    place: Option<Place>,
    current: Option<ByteStream>,
    ahead: FuturesOrdered<BoxFuture<'static, Opened>>,
    /// The first byte of the next piece to open ahead.
    next_ahead: u64,
    searches: u32,
}

impl Store {
    /// These bytes of a log, which all are stored.
    pub(super) fn read_log(&self, run: &RunKey, attempt: Attempt, part: Range<u64>) -> ByteStream {
        let reader = LogReader {
            store: self.clone(),
            run: run.clone(),
            attempt,
            began: part.start,
            at: part.start,
            until: part.end,
            digest: Hasher::default(),
            place: None,
            current: None,
            ahead: FuturesOrdered::new(),
            next_ahead: part.start,
            searches: 0,
        };
        let next = |mut reader: LogReader| async move {
            Ok::<_, StoreError>(reader.next().await?.map(|bytes| (bytes, reader)))
        };
        stream::try_unfold(reader, next).boxed()
    }

    /// A log that is not complete: its size so far, and its bytes. None if it does not exist, or is complete.
    pub(crate) async fn open_live_log(
        &self,
        run: &RunKey,
        attempt: Attempt,
    ) -> Result<Option<(u64, ByteStream)>, StoreError> {
        let (tip, view) = self.load_tip(run, attempt).await?;
        if tip.is_stored || view.is_empty() {
            return Ok(None);
        }
        if tip.is_closed {
            // A completion was interrupted, or works now.
            self.finish_later(run, attempt);
        }
        Ok(Some((tip.end, self.read_log(run, attempt, 0..tip.end))))
    }

    /// The digest of a part of `run.log`.
    pub(super) async fn digest_of_stored(
        &self,
        run: &RunKey,
        attempt: Attempt,
        part: Range<u64>,
    ) -> Result<Sha256, StoreError> {
        let mut hasher = Hasher::default();
        if !part.is_empty() {
            let key = Key::File(run.clone(), attempt, File::Log);
            let found = self.stat(&key).await?;
            if found.meta.size < part.end {
                return Err(StoreError::Replaced);
            }
            let mut bytes = self.open_version(&key, found, part).await?;
            while let Some(piece) = bytes.try_next().await? {
                hasher.update(&piece);
            }
        }
        Ok(hasher.finish())
    }
}

impl LogReader {
    async fn next(&mut self) -> Result<Option<Bytes>, StoreError> {
        loop {
            if self.at >= self.until {
                return Ok(None);
            }
            let Some(current) = &mut self.current else {
                self.open().await?;
                continue;
            };
            match current.try_next().await {
                Ok(Some(mut bytes)) => {
                    let left = usize::try_from(self.until - self.at).unwrap_or(usize::MAX);
                    bytes.truncate(left);
                    if bytes.is_empty() {
                        continue;
                    }
                    self.at += bytes.len() as u64;
                    self.digest.update(&bytes);
                    self.searches = 0;
                    return Ok(Some(bytes));
                }
                Ok(None) => self.current = None,
                Err(StoreError::NotFound | StoreError::Replaced) => self.search_again()?,
                Err(error) => return Err(error),
            }
        }
    }

    /// Opens the object with the next byte.
    async fn open(&mut self) -> Result<(), StoreError> {
        let place = match self.place.take() {
            Some(place) => place,
            None => self.search().await?,
        };
        let opened = match &place {
            Place::Stored(size) if *size >= self.until => self.open_stored().await,
            // It is not the log of which bytes were promised.
            Place::Stored(_) => return Err(StoreError::Replaced),
            Place::Pieces(view) => match view.part_with(self.at) {
                Some((LivePart::Piece(start), _)) if start == self.at => self.open_next(view).await,
                Some((part, start)) => self.open_within(part, start).await,
                None => Err(StoreError::NotFound),
            },
        };
        match opened {
            Ok(bytes) => {
                self.current = Some(bytes);
                self.place = Some(place);
                Ok(())
            }
            Err(StoreError::NotFound | StoreError::Replaced) => self.search_again(),
            Err(error) => Err(error),
        }
    }

    /// Lists the log again: an object is gone, because pieces were merged or the log is complete.
    fn search_again(&mut self) -> Result<(), StoreError> {
        (self.current, self.place) = (None, None);
        self.ahead.clear();
        self.searches += 1;
        if self.searches > SEARCHES { Err(StoreError::Replaced) } else { Ok(()) }
    }

    async fn search(&mut self) -> Result<Place, StoreError> {
        let Self { store, run, attempt, began, at, .. } = self;
        self.next_ahead = *at;
        let (tip, view) = store.load_tip(run, *attempt).await?;
        if !tip.is_stored {
            return Ok(Place::Pieces(view));
        }
        // It may be another log than the one that was read so far.
        let stored = store.digest_of_stored(run, *attempt, *began..*at).await?;
        if stored != self.digest.clone().finish() {
            return Err(StoreError::Replaced);
        }
        Ok(Place::Stored(tip.end))
    }

    async fn open_stored(&mut self) -> Result<ByteStream, StoreError> {
        let key = Key::File(self.run.clone(), self.attempt, File::Log);
        let found = self.store.stat(&key).await?;
        if found.meta.size < self.until {
            return Err(StoreError::Replaced);
        }
        // To its end, so that a whole log is compared with its digest.
        let end = found.meta.size;
        self.store.open_version(&key, found, self.at..end).await
    }

    /// Opens a part from the middle on.
    async fn open_within(&mut self, part: LivePart, start: u64) -> Result<ByteStream, StoreError> {
        let key = Key::Live(self.run.clone(), self.attempt, part);
        let (found, skip) = (self.store.stat(&key).await?, self.at - start);
        let size = found.meta.size;
        if size <= skip {
            return Err(StoreError::NotFound);
        }
        self.store.open_version(&key, found, skip..size).await
    }

    /// Opens the piece that begins with the next byte, and those after it ahead.
    async fn open_next(&mut self, view: &View) -> Result<ByteStream, StoreError> {
        self.next_ahead = self.next_ahead.max(self.at);
        let listed = view.pieces.range(self.next_ahead..self.until);
        let room = AHEAD.saturating_sub(self.ahead.len());
        for start in listed.map(|(start, _)| *start).take(room) {
            self.next_ahead = start + 1;
            let key = Key::Live(self.run.clone(), self.attempt, LivePart::Piece(start));
            let store = self.store.clone();
            let open = async move { (start, store.open_whole(&key).await) };
            self.ahead.push_back(open.boxed());
        }
        while let Some((start, opened)) = self.ahead.next().await {
            if start == self.at {
                return opened.map(|(_, bytes)| bytes);
            }
            // Others begin within a merged piece that was read.
        }
        Err(StoreError::NotFound)
    }
}
