//! `GET /api/logs?follow=true`: the text of a log as it comes.
//!
//! A follower that waits holds no memory of the transfers. It takes one piece for each 64 KiB that it sends, and gives it back
//! once they are written. Plain text that ends early is broken off, unless its reader accepts trailers (`TE: trailers`), which
//! then have the offset; so a clean end is the end of the log. A reader continues with `offset`, or `Last-Event-ID`.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::BoxError;
use axum::body::Body;
use axum::http::header::{ACCEPT, CONTENT_LENGTH, CONTENT_TYPE, TE, TRAILER};
use axum::http::{HeaderMap, HeaderName, HeaderValue};
use axum::response::Response;
use bytes::Bytes;
use datastore_api::{Attempt, File, RunKey, chain};
use futures::stream::{self, Stream, StreamExt as _};
use http_body::Frame;
use http_body_util::StreamBody;
use tokio::sync::Semaphore;
use tokio::time::sleep;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::events::{Events, HEARTBEAT, START};
use crate::api::error::{Cause, UPLOAD_OFFSET};
use crate::api::transfer::record_read;
use crate::auth::{Access, Authenticator, Verb};
use crate::observe::context::RequestContext;
use crate::store::{Follower, Key, Store, StoreError, Waited};
use crate::transport::admission::{Admission, TakesMemory};
use crate::transport::body_guard::guarded;
use crate::transport::memory::Lease;

const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");
const ACCEL_BUFFERING: HeaderName = HeaderName::from_static("x-accel-buffering");
/// Why a followed log ends.
const LOG_END: HeaderName = HeaderName::from_static("log-end");

/// How long a stream of events may be silent.
const IDLE: Duration = Duration::from_secs(15);
/// After so many of these, plain text is ended: whether its reader is still there shows only when something is sent.
const MAX_IDLE: u32 = 20;

/// How often it is checked that a follower may still read the log.
const CHECK: Duration = Duration::from_secs(5);

/// What following needs.
pub(super) struct Follow {
    pub(super) authenticator: Authenticator,
    pub(super) store: Store,
    pub(super) admission: Admission,
    pub(super) shutdown: CancellationToken,
    pub(super) context: RequestContext,
}

/// The text of one follower.
struct Text {
    follow: Follow,
    follower: Follower,
    /// Memory for reading from the storage.
    reading: Option<Lease>,
    /// One permit: for the piece that is not written yet.
    turn: Arc<Semaphore>,
    /// Cancelled when the process shuts down, or when the caller may no longer read the log.
    stop: CancellationToken,
    /// Ends the checks with the follower.
    _stops: DropGuard,
}

/// What a follower gets.
enum Part {
    Text(Bytes),
    /// Nothing came for a while.
    Idle,
    End(End),
}

/// Why a followed log ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Complete,
    Replaced,
    /// Also where the caller may no longer read the log: the next request says so.
    Shutdown,
}

impl End {
    fn as_str(self) -> &'static str {
        match self {
            Self::Complete => "complete",
            Self::Replaced => "replaced",
            Self::Shutdown => "shutdown",
        }
    }
}

impl Follow {
    /// Answers with the text of a log from an offset.
    pub(super) async fn answer(
        self,
        run: RunKey,
        attempt: Option<Attempt>,
        offset: u64,
        headers: &HeaderMap,
    ) -> Result<Response, Cause> {
        if self.shutdown.is_cancelled() {
            return Err(Cause::Draining);
        }
        let text = |name| headers.get(name).and_then(|value: &HeaderValue| value.to_str().ok());
        let events = text(ACCEPT).is_some_and(|accept| accept.contains("text/event-stream"));
        let resumed = text(LAST_EVENT_ID).filter(|_| events).and_then(|id| id.parse().ok());
        let offset = resumed.unwrap_or(offset);
        let attempt = match attempt {
            Some(attempt) => attempt,
            None => self.store.newest_attempt(&run).await?.ok_or(StoreError::NotFound)?,
        };
        let Some(follower) = self.store.follow(&run, attempt, offset).await? else {
            let key = Key::File(run, attempt, File::Log);
            return self.stored(&key, offset, events).await;
        };
        if offset > follower.size() {
            return Err(Cause::Range { size: follower.size() });
        }
        self.context.set_resumed();
        let stop = self.stopping(run, headers.clone());
        let has_trailers = text(TE).is_some_and(|te| te.contains("trailers"));
        let parts = Text::of(self, follower, stop).parts();
        let body = if events {
            Body::from_stream(in_events(parts, offset))
        } else {
            Body::new(StreamBody::new(in_frames(parts, offset, has_trailers)))
        };
        let mut response = head(body, events);
        response.extensions_mut().insert(TakesMemory);
        if !events && has_trailers {
            let trailers = HeaderValue::from_static("upload-offset, log-end");
            response.headers_mut().insert(TRAILER, trailers);
        }
        Ok(response)
    }

    /// What ends a follower early: the shutdown, or the end of its caller's permission.
    fn stopping(&self, run: RunKey, headers: HeaderMap) -> CancellationToken {
        let stop = self.shutdown.child_token();
        let Self { authenticator, store, context, .. } = self;
        let (authenticator, store, context) =
            (authenticator.clone(), store.clone(), context.clone());
        let stopped = stop.clone();
        tokio::spawn(async move {
            let access = Access::file(&run, &File::Log, Verb::Read);
            while stopped.run_until_cancelled(sleep(CHECK)).await.is_some() {
                if !authenticator.still_allows(&headers, &context, &store, access).await {
                    tracing::info!(%run, "a follower may no longer read the log: its answer is broken off");
                    stopped.cancel();
                }
            }
        });
        stop
    }

    /// Answers with the rest of a log that is complete.
    async fn stored(self, key: &Key, offset: u64, events: bool) -> Result<Response, Cause> {
        let found = self.store.stat(key).await?;
        let size = found.meta.size;
        if offset > size {
            return Err(Cause::Range { size });
        }
        record_read(&self.context, &found.meta);
        // An empty range cannot be read.
        let bytes = if offset == size {
            stream::empty().boxed()
        } else {
            self.store.open_version(key, found, offset..size).await?
        };
        if events {
            let text = bytes.map(|bytes| bytes.map(Part::Text).map_err(BoxError::from));
            let end = stream::once(async { Ok(Part::End(End::Complete)) });
            return Ok(head(Body::from_stream(in_events(text.chain(end), offset)), events));
        }
        let mut response = head(crate::api::transfer::logged(bytes), events);
        response.headers_mut().insert(CONTENT_LENGTH, (size - offset).into());
        Ok(response)
    }
}

fn head(body: Body, events: bool) -> Response {
    let mut response = Response::new(body);
    let content =
        if events { "text/event-stream; charset=utf-8" } else { "text/plain; charset=utf-8" };
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(content));
    headers.insert(ACCEL_BUFFERING, HeaderValue::from_static("no"));
    response
}

impl Text {
    fn of(follow: Follow, follower: Follower, stop: CancellationToken) -> Self {
        let (turn, stops) = (Arc::new(Semaphore::new(1)), stop.clone().drop_guard());
        Self { follow, follower, reading: None, turn, stop, _stops: stops }
    }

    /// Everything until the end.
    fn parts(self) -> impl Stream<Item = Result<Part, BoxError>> + Send {
        stream::try_unfold(Some(self), |text| async {
            let Some(mut text) = text else { return Ok(None) };
            let part = text.next().await?;
            let is_end = matches!(part, Part::End(_));
            Ok(Some((part, (!is_end).then_some(text))))
        })
    }

    async fn next(&mut self) -> Result<Part, BoxError> {
        let stop = self.stop.clone();
        tokio::select! {
            biased;
            () = stop.cancelled() => Ok(Part::End(End::Shutdown)),
            part = self.text_or_end() => part,
        }
    }

    async fn text_or_end(&mut self) -> Result<Part, BoxError> {
        // The piece before is written first.
        let turn = Arc::clone(&self.turn).acquire_owned().await?;
        loop {
            let waited = tokio::select! {
                waited = self.follower.wait() => waited,
                () = sleep(IDLE) => return Ok(Part::Idle),
            };
            match waited {
                Waited::Complete => return Ok(Part::End(End::Complete)),
                Waited::Replaced => return Ok(Part::End(End::Replaced)),
                Waited::Recent => {}
                Waited::Behind if self.reading.is_some() => {}
                Waited::Behind => {
                    let Follow { admission, context, .. } = &self.follow;
                    self.reading = Some(admission.reading(context).await?);
                }
            }
            let Follow { admission, context, .. } = &self.follow;
            let memory = admission.piece(context).await?;
            let bytes = match self.follower.read().await {
                Err(StoreError::Replaced) => return Ok(Part::End(End::Replaced)),
                bytes => bytes?,
            };
            if !self.follower.is_behind() {
                self.reading = None;
            }
            if !bytes.is_empty() {
                return Ok(Part::Text(guarded(bytes, (turn, memory))));
            }
        }
    }
}

/// A log as plain text. An error breaks the connection off.
fn in_frames(
    parts: impl Stream<Item = Result<Part, BoxError>> + Send,
    offset: u64,
    has_trailers: bool,
) -> impl Stream<Item = Result<Frame<Bytes>, BoxError>> + Send {
    let (mut at, mut idle) = (offset, 0);
    parts.filter_map(move |part| {
        let part = match part {
            Ok(Part::Idle) if idle >= MAX_IDLE => Ok(Part::End(End::Shutdown)),
            part => part,
        };
        let frame = match part {
            Ok(Part::Text(bytes)) => {
                (at, idle) = (at + bytes.len() as u64, 0);
                Some(Ok(Frame::data(bytes)))
            }
            Ok(Part::Idle) => {
                idle += 1;
                None
            }
            Ok(Part::End(end)) if has_trailers => {
                let mut trailers = HeaderMap::new();
                trailers.insert(UPLOAD_OFFSET, at.into());
                trailers.insert(LOG_END, HeaderValue::from_static(end.as_str()));
                Some(Ok(Frame::trailers(trailers)))
            }
            Ok(Part::End(End::Complete)) => None,
            Ok(Part::End(end)) => Some(Err(format!("the log is not complete: {end:?}").into())),
            Err(error) => Some(Err(broken_off(error))),
        };
        std::future::ready(frame)
    })
}

/// A log as events.
fn in_events(
    parts: impl Stream<Item = Result<Part, BoxError>> + Send,
    offset: u64,
) -> impl Stream<Item = Result<Bytes, Infallible>> + Send {
    let mut events = Events::new(offset);
    let start = stream::once(async { Ok(Bytes::from_static(START.as_bytes())) });
    let sent = parts.filter_map(move |part| {
        let text = match part {
            Ok(Part::Text(bytes)) => {
                let event = events.push(&bytes);
                // The event holds the memory of its text.
                let event = guarded(event.into(), bytes);
                return std::future::ready((!event.is_empty()).then_some(Ok(event)));
            }
            Ok(Part::Idle) => HEARTBEAT.to_owned(),
            Ok(Part::End(End::Complete)) => events.rest() + &events.end(End::Complete.as_str()),
            Ok(Part::End(end)) => events.end(end.as_str()),
            // The reader continues at the last event.
            Err(error) => {
                broken_off(error);
                String::new()
            }
        };
        std::future::ready((!text.is_empty()).then(|| Ok(Bytes::from(text))))
    });
    start.chain(sent)
}

fn broken_off(error: BoxError) -> BoxError {
    tracing::error!(error = chain(&*error), "answer broken off");
    error
}
