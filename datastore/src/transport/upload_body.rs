//! The body of an upload on its way in: how large, how idle and how slow it may be.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use futures::stream::{self, BoxStream};
use futures::{Stream, StreamExt as _, TryStreamExt as _};
use tokio::time::{Instant, timeout};

use crate::kind::Kind;
use crate::store::BoxError;
use crate::transport::admission::Admitted;
use crate::transport::limits::{Limits, PACE, PACE_OVER, Size};

/// The upload has more bytes than its kind may have.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("it is larger than the {} that `--max-size` allows for `{kind}`", Size(*limit))]
pub(crate) struct TooLarge {
    kind: Kind,
    limit: u64,
}

/// The upload does not move, or hardly.
#[derive(Clone, Copy, Debug, thiserror::Error)]
pub(crate) enum TooSlow {
    #[error("nothing came for {0:?}")]
    Stalls(Duration),
    #[error("less than {} came in a second", Size(PACE))]
    Crawls,
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

/// The pieces of a body; an error once there are too many, or none has come for too long.
pub(crate) fn watched(
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
    let watch = Watch { left: too_large.limit, pace: Pace::default() };
    let state = (body.into_data_stream(), watch);
    let pieces = stream::try_unfold(state, move |(mut body, mut watch)| async move {
        let since = Instant::now();
        let Ok(piece) = timeout(idle, body.try_next()).await else {
            return Err(TooSlow::Stalls(idle).into());
        };
        let Some(piece) = piece? else { return Ok(None) };
        watch.left = watch.left.checked_sub(piece.len() as u64).ok_or(too_large)?;
        if watch.pace.is_too_slow(since.elapsed(), piece.len()) {
            return Err(TooSlow::Crawls.into());
        }
        Ok(Some((piece, (body, watch))))
    });
    Ok(Pieces { pieces: pieces.boxed(), _admitted: admitted })
}

struct Watch {
    left: u64,
    pace: Pace,
}

/// How fast the other side is, in the time in which we waited for it and not it for us.
#[derive(Debug, Default)]
pub(crate) struct Pace {
    waited: Duration,
    moved: u64,
}

impl Pace {
    /// Takes note of bytes that were waited for; whether that was too long for so few.
    pub(crate) fn is_too_slow(&mut self, waited: Duration, moved: usize) -> bool {
        self.waited += waited;
        self.moved += moved as u64;
        if self.waited < PACE_OVER {
            return false;
        }
        let Self { waited, moved } = std::mem::take(self);
        moved < PACE * waited.as_secs()
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
        let mut pieces = watched(body, None, kind, &Limits::default(), None).unwrap();
        let mut bytes = 0;
        while let Some(piece) = pieces.try_next().await.map_err(|error| error.to_string())? {
            bytes += piece.len();
        }
        Ok(bytes)
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_stops_moving_is_given_up() {
        let first = stream::once(async { Ok::<_, BoxError>(Bytes::from_static(b"a")) });
        let body = Body::from_stream(first.chain(stream::pending()));
        let mut body = watched(body, None, Kind::Bin, &Limits::default(), None).unwrap();
        assert_eq!(body.try_next().await.unwrap().unwrap(), "a");
        assert_eq!(body.try_next().await.unwrap_err().to_string(), "nothing came for 30s");
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_crawls_is_given_up_and_a_slow_one_is_not() {
        static PIECE: [u8; 16 << 10] = [0; 16 << 10];
        let second = Duration::from_secs(1);
        assert_eq!(read(body(600, &PIECE, second), Kind::Bin).await, Ok(600 << 14));
        let crawling = read(body(600, &PIECE[1..], second), Kind::Bin).await;
        assert_eq!(crawling.unwrap_err(), "less than 16KiB came in a second");
        let crawling = read(body(600, b"a", Duration::from_secs(20)), Kind::Bin).await;
        assert_eq!(crawling.unwrap_err(), "less than 16KiB came in a second");
    }

    #[tokio::test(start_paused = true)]
    async fn the_callers_pace_is_not_ours() {
        static PIECE: [u8; 1 << 10] = [0; 1 << 10];
        let body = body(100, &PIECE, Duration::ZERO);
        let mut pieces = watched(body, None, Kind::Bin, &Limits::default(), None).unwrap();
        while pieces.try_next().await.unwrap().is_some() {
            tokio::time::sleep(Duration::from_secs(10)).await;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_is_counted_while_it_comes() {
        static PIECE: [u8; 256 << 10] = [0; 256 << 10];
        assert_eq!(read(body(4, &PIECE, Duration::ZERO), Kind::Short).await, Ok(1 << 20));
        let long = Body::from_stream(
            stream::iter([&PIECE[..], &PIECE, &PIECE, &PIECE, b"a"]).map(Ok::<_, BoxError>),
        );
        insta::assert_snapshot!(read(long, Kind::Short).await.unwrap_err(), @"it is larger than the 1MiB that `--max-size` allows for `short`");
        assert!(
            watched(Body::empty(), Some(1 << 20), Kind::Short, &Limits::default(), None).is_ok()
        );
        assert!(
            watched(Body::empty(), Some(1 + (1 << 20)), Kind::Short, &Limits::default(), None)
                .is_err()
        );
    }
}
