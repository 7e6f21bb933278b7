//! Bytes over a network: asked for again where they break off, and several parts of them at once.
//!
//! Everything after the first request names the version that it is about, so what comes is of one
//! version, or does not come.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::stream::{self, BoxStream};
use futures::{StreamExt as _, TryStreamExt as _};
use object_store::path::Path;
use object_store::{ObjectStore, PutPayload};
use tokio::time::sleep;
use tokio_util::task::AbortOnDropHandle;

use super::get::ByteStream;
use super::parts::{Blocks, Pool};
use super::record::get_version;
use super::{KIB, MIB, StoreError, backend};

/// Bytes of each part of a large object.
const PART: u64 = 4 * MIB as u64;
/// Parts that are fetched while another is sent.
const LANES: usize = 4;
/// Objects up to here come in one piece.
const LARGE: u64 = 16 * MIB as u64;
/// What a large read holds at most.
pub(super) const MEMORY: usize = (LANES + 1) * 4 * MIB;
/// Before each further try of a request that brought nothing.
const PAUSES: [Duration; 4] = [
    Duration::from_millis(100),
    Duration::from_millis(300),
    Duration::from_secs(1),
    Duration::from_secs(3),
];
/// That much of it is progress: as many tries are left as at first.
const PROGRESS: u64 = 64 * KIB as u64;

/// One version of an object.
#[derive(Clone)]
pub(super) struct Source {
    pub(super) objects: Arc<dyn ObjectStore>,
    pub(super) path: Path,
    /// Its tag; empty where the backend has none.
    pub(super) etag: String,
    /// What parts that wait to be sent are kept in.
    pub(super) pool: Pool,
}

type Raw = BoxStream<'static, object_store::Result<Bytes>>;

impl Source {
    /// The bytes of `range`, of which `begun` brings the first.
    pub(super) fn bytes(self, range: Range<u64>, begun: Raw) -> ByteStream {
        if range.end - range.start > LARGE {
            self.in_parts(range, begun)
        } else {
            self.in_one(range, begun)
        }
    }

    pub(super) async fn request(&self, range: Range<u64>) -> object_store::Result<Raw> {
        let found = get_version(&*self.objects, &self.path, &self.etag, range).await?;
        Ok(found.into_stream())
    }

    /// One part while the next few are fetched. Nothing is before the first is asked for: whoever waits
    /// in line for memory has none yet.
    fn in_parts(self, range: Range<u64>, begun: Raw) -> ByteStream {
        stream::once(async move { self.parts(range, begun) }).flatten().boxed()
    }

    fn parts(self, range: Range<u64>, begun: Raw) -> ByteStream {
        let first = range.start..range.end.min(range.start + PART);
        let mut parts = (first.end..range.end)
            .step_by(usize::try_from(PART).unwrap_or(4 * MIB))
            .map(move |start| start..range.end.min(start + PART));
        let source = self.clone();
        let mut lanes = parts.by_ref().take(LANES).map(|part| source.fetch(part)).collect();
        let rest = stream::try_unfold((), move |()| {
            let lane: Option<Lane> = VecDeque::pop_front(&mut lanes);
            // Fetched whatever the caller does: one who pauses would break the connection.
            lanes.extend(parts.next().map(|part| source.fetch(part)));
            async move {
                let Some(lane) = lane else { return Ok(None) };
                let pieces = lane.await.map_err(backend)??;
                Ok::<_, StoreError>(Some((stream::iter(pieces.into_iter().map(Ok)), ())))
            }
        });
        self.in_one(first, begun).chain(rest.try_flatten()).boxed()
    }

    fn fetch(&self, part: Range<u64>) -> Lane {
        let source = self.clone();
        AbortOnDropHandle::new(tokio::spawn(async move {
            // As they come, pieces keep buffers alive that are twice as large.
            let mut blocks = Blocks::new(source.pool.clone());
            let mut pieces = source.in_one(part, stream::empty().boxed());
            while let Some(piece) = pieces.try_next().await? {
                blocks.extend(&piece);
            }
            Ok(blocks.into_payload())
        }))
    }

    /// The bytes of `range` in order, asked for again from where they broke off.
    fn in_one(self, range: Range<u64>, begun: Raw) -> ByteStream {
        let state = Reading { source: self, range, begun, failures: 0, progress: 0 };
        stream::try_unfold(state, async |mut reading| {
            Ok(reading.next().await?.map(|piece| (piece, reading)))
        })
        .boxed()
    }
}

type Lane = AbortOnDropHandle<Result<PutPayload, StoreError>>;

/// A range that is being read.
struct Reading {
    source: Source,
    /// What is still to come.
    range: Range<u64>,
    begun: Raw,
    failures: usize,
    /// Bytes since the last failure.
    progress: u64,
}

impl Reading {
    async fn next(&mut self) -> Result<Option<Bytes>, StoreError> {
        while !self.range.is_empty() {
            let failure = match self.begun.next().await {
                Some(Ok(piece)) => return Ok(Some(self.took(piece))),
                Some(Err(error)) => Some(error),
                // Where nothing was asked for yet, nothing has failed.
                None if self.failures == 0 && self.progress == 0 => None,
                None => Some(ended_early()),
            };
            if self.progress >= PROGRESS {
                self.failures = 0;
            }
            self.progress = 0;
            self.again(failure).await?;
        }
        Ok(None)
    }

    fn took(&mut self, mut piece: Bytes) -> Bytes {
        let left = self.range.end - self.range.start;
        piece.truncate(usize::try_from(left).unwrap_or(usize::MAX).min(piece.len()));
        self.range.start += piece.len() as u64;
        self.progress += piece.len() as u64;
        piece
    }

    /// Asks for the rest, after a pause if something has failed.
    async fn again(&mut self, mut failure: Option<object_store::Error>) -> Result<(), StoreError> {
        loop {
            if let Some(error) = failure {
                let pause = PAUSES.get(self.failures).copied();
                let Some(pause) = pause.filter(|_| is_passing(&error)) else {
                    return Err(error.into());
                };
                tracing::warn!(%error, path = %self.source.path, "a read broke off, going on");
                sleep(pause).await;
            }
            self.failures += 1;
            match self.source.request(self.range.clone()).await {
                Ok(begun) => {
                    self.begun = begun;
                    return Ok(());
                }
                Err(error) => failure = Some(error),
            }
        }
    }
}

fn ended_early() -> object_store::Error {
    object_store::Error::Generic { store: "storage", source: "the answer ended early".into() }
}

/// Whether it may go better the next time.
fn is_passing(error: &object_store::Error) -> bool {
    matches!(error, object_store::Error::Generic { .. })
}
