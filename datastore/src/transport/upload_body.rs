//! The body of an upload, with limits on its size, idle time and rate.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::BoxError;
use axum::body::Body;
use bytes::Bytes;
use futures::stream::{self, BoxStream};
use futures::{Stream, StreamExt as _, TryStreamExt as _};
use tokio::time::{Instant, timeout};

use crate::kind::Kind;
use crate::transport::admission::Admitted;
use crate::transport::limits::{Limits, MIN_RATE, RATE_WINDOW, Size};

/// The upload exceeds the maximum size of its kind.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("it is larger than the {} that `--max-size` allows for `{kind}`", Size(*limit))]
pub(crate) struct TooLarge {
    kind: Kind,
    limit: u64,
}

/// The upload is idle, or slower than the minimum rate.
#[derive(Clone, Copy, Debug, thiserror::Error)]
pub(crate) enum TooSlow {
    #[error("no byte received for {0:?}")]
    IdleTimeout(Duration),
    #[error("received less than {} a second", Size(MIN_RATE))]
    BelowMinRate,
}

/// The pieces of a body, and the memory that its upload holds until they are dropped.
pub(crate) struct Pieces {
    pieces: BoxStream<'static, Result<Bytes, BoxError>>,
    _admitted: Option<Admitted>,
}

impl Stream for Pieces {
    type Item = Result<Bytes, BoxError>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.pieces.poll_next_unpin(cx)
    }
}

/// The pieces of a body. They end with an error if the body exceeds its size, is idle for too long, or too slow.
pub(crate) fn limited(
    body: Body,
    length: Option<u64>,
    kind: Kind,
    limits: &Limits,
    admitted: Option<Admitted>,
) -> Result<Pieces, TooLarge> {
    let too_large = TooLarge { kind, limit: limits.sizes.of(kind) };
    if length.is_some_and(|length| length > too_large.limit) {
        return Err(too_large);
    }
    let idle = limits.idle;
    let progress = Progress { left: too_large.limit, rate: RateMeter::default() };
    let state = (body.into_data_stream(), progress);
    let pieces = stream::try_unfold(state, move |(mut body, mut progress)| async move {
        let since = Instant::now();
        let Ok(piece) = timeout(idle, body.try_next()).await else {
            return Err(TooSlow::IdleTimeout(idle).into());
        };
        let Some(piece) = piece? else { return Ok(None) };
        progress.left = progress.left.checked_sub(piece.len() as u64).ok_or(too_large)?;
        if progress.rate.is_too_slow(since.elapsed(), piece.len()) {
            return Err(TooSlow::BelowMinRate.into());
        }
        Ok(Some((piece, (body, progress))))
    });
    Ok(Pieces { pieces: pieces.boxed(), _admitted: admitted })
}

struct Progress {
    left: u64,
    rate: RateMeter,
}

/// Measures the rate of the other side, only while we wait for it.
#[derive(Debug, Default)]
pub(crate) struct RateMeter {
    waited: Duration,
    moved: u64,
}

impl RateMeter {
    /// Records how long we waited for these bytes. Returns whether the rate is below the minimum.
    pub(crate) fn is_too_slow(&mut self, waited: Duration, moved: usize) -> bool {
        self.waited += waited;
        self.moved += moved as u64;
        if self.waited < RATE_WINDOW {
            return false;
        }
        let Self { waited, moved } = std::mem::take(self);
        moved < MIN_RATE * waited.as_secs()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body(pieces: usize, piece: &'static [u8], every: Duration) -> Body {
        Body::from_stream(stream::iter(0..pieces).then(move |_| async move {
            tokio::time::sleep(every).await;
            Ok::<_, BoxError>(Bytes::from_static(piece))
        }))
    }

    async fn read(body: Body, kind: Kind) -> Result<usize, String> {
        let mut pieces = limited(body, None, kind, &Limits::default(), None).unwrap();
        let mut bytes = 0;
        while let Some(piece) = pieces.try_next().await.map_err(|error| error.to_string())? {
            bytes += piece.len();
        }
        Ok(bytes)
    }

    #[tokio::test(start_paused = true)]
    async fn an_idle_body_is_an_error() {
        let first = stream::once(async { Ok::<_, BoxError>(Bytes::from_static(b"a")) });
        let body = Body::from_stream(first.chain(stream::pending()));
        let mut body = limited(body, None, Kind::Bin, &Limits::default(), None).unwrap();
        assert_eq!(body.try_next().await.unwrap().unwrap(), "a");
        assert_eq!(body.try_next().await.unwrap_err().to_string(), "no byte received for 30s");
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_below_the_minimum_rate_is_an_error() {
        static PIECE: [u8; 16 << 10] = [0; 16 << 10];
        let second = Duration::from_secs(1);
        assert_eq!(read(body(600, &PIECE, second), Kind::Bin).await, Ok(600 << 14));
        let too_slow = read(body(600, &PIECE[1..], second), Kind::Bin).await;
        assert_eq!(too_slow.unwrap_err(), "received less than 16KiB a second");
        let too_slow = read(body(600, b"a", Duration::from_secs(20)), Kind::Bin).await;
        assert_eq!(too_slow.unwrap_err(), "received less than 16KiB a second");
    }

    #[tokio::test(start_paused = true)]
    async fn the_time_of_our_own_reader_does_not_count() {
        static PIECE: [u8; 1 << 10] = [0; 1 << 10];
        let body = body(100, &PIECE, Duration::ZERO);
        let mut pieces = limited(body, None, Kind::Bin, &Limits::default(), None).unwrap();
        while pieces.try_next().await.unwrap().is_some() {
            tokio::time::sleep(Duration::from_secs(10)).await;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_is_counted_while_it_is_received() {
        static PIECE: [u8; 256 << 10] = [0; 256 << 10];
        assert_eq!(read(body(4, &PIECE, Duration::ZERO), Kind::Short).await, Ok(1 << 20));
        let long = Body::from_stream(
            stream::iter([&PIECE[..], &PIECE, &PIECE, &PIECE, b"a"]).map(Ok::<_, BoxError>),
        );
        insta::assert_snapshot!(read(long, Kind::Short).await.unwrap_err(), @"it is larger than the 1MiB that `--max-size` allows for `short`");
        assert!(
            limited(Body::empty(), Some(1 << 20), Kind::Short, &Limits::default(), None).is_ok()
        );
        assert!(
            limited(Body::empty(), Some(1 + (1 << 20)), Kind::Short, &Limits::default(), None)
                .is_err()
        );
    }
}
