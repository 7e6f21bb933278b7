//! Sends the log of a run to the datastore while it grows.
//!
//! A task reads the log from the disk and appends what is new. The tool never waits for it, and neither does the end of a run
//! for a datastore that does not answer: the log is then stored as a whole, as it is where the datastore cannot append.

use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use datastore_api::client::Appended;
use datastore_api::digest::Hasher;
use datastore_api::{Attempt, Client, ClientError, RunKey, Sha256, chain};
use reqwest::StatusCode;
use tokio::sync::oneshot;
use tokio::task::{AbortHandle, spawn_blocking};
use tokio::time::{Instant, sleep, timeout};

/// Between two appends in the first minute, and later.
const EARLY_PAUSE: Duration = Duration::from_secs(1);
const PAUSE: Duration = Duration::from_secs(5);
const EARLY: Duration = Duration::from_mins(1);
/// After this time without new text, an append without bytes confirms that the run works.
const CONFIRM: Duration = Duration::from_secs(15);
/// The most bytes of an append; it grows while the log grows faster.
const FIRST_PIECE: usize = 256 << 10;
const LARGEST_PIECE: usize = 4 << 20;
/// How long the datastore may take for an append.
const TIMEOUT: Duration = Duration::from_secs(10);
/// How long the rest of the log is sent at the end. After that it is stored as a whole.
const FINISH: Duration = Duration::from_secs(5);
/// If more than this is not sent at the end, the log is stored as a whole.
const MAX_REST: u64 = 32 << 20;

/// A log that is sent while it grows. Clones share it. It ends when the last one is dropped.
#[derive(Clone, Debug)]
pub(crate) struct LiveLog(Arc<Task>);

#[derive(Debug)]
struct Task {
    client: Client,
    run: RunKey,
    attempt: Attempt,
    log: PathBuf,
    abort: AbortHandle,
    /// Ends the task, which then returns what it has sent.
    end: Mutex<Option<oneshot::Sender<oneshot::Sender<Sender>>>>,
}

impl Drop for Task {
    fn drop(&mut self) {
        self.abort.abort();
    }
}

/// What was sent so far.
#[derive(Debug)]
struct Sender {
    client: Client,
    run: RunKey,
    attempt: Attempt,
    log: PathBuf,
    offset: u64,
    digest: Hasher,
    /// Bytes that were sent, and perhaps not stored. The same ones are sent again.
    pending: Bytes,
    largest: usize,
    /// When the datastore has answered last.
    answered: Instant,
    /// Whether the last append was not answered.
    is_failing: bool,
}

/// Why nothing more can be sent.
enum Stop {
    /// Another program writes the log, or the datastore takes no appends from this one.
    Refused(String),
    /// The log cannot be read.
    Log(io::Error),
}

impl LiveLog {
    /// Sends what a log gets.
    pub(crate) fn start(client: &Client, run: &RunKey, attempt: Attempt, log: &Path) -> Self {
        let client = client.once(TIMEOUT);
        let sender = Sender {
            client: client.clone(),
            run: run.clone(),
            attempt,
            log: log.to_owned(),
            offset: 0,
            digest: Hasher::default(),
            pending: Bytes::new(),
            largest: FIRST_PIECE,
            answered: Instant::now(),
            is_failing: false,
        };
        let (end, ended) = oneshot::channel();
        let abort = tokio::spawn(sender.run(ended)).abort_handle();
        let (run, log) = (run.clone(), log.to_owned());
        let end = Mutex::new(Some(end));
        Self(Arc::new(Task { client, run, attempt, log, abort, end }))
    }

    /// Whether it is the log of this attempt.
    pub(crate) fn is_of(&self, attempt: Attempt) -> bool {
        self.0.attempt == attempt
    }

    /// The same log, for another attempt of the run.
    pub(crate) fn of_attempt(&self, attempt: Attempt) -> Self {
        let Task { client, run, log, .. } = &*self.0;
        Self::start(client, run, attempt, log)
    }

    /// Sends the rest of the log and completes it. Returns whether the datastore has exactly this log now; otherwise it must be
    /// stored as a whole.
    pub(crate) async fn finish(&self) -> bool {
        let end = self.0.end.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(end) = end else { return false };
        let (to_return, returned) = oneshot::channel();
        let finished = async {
            end.send(to_return).ok()?;
            returned.await.ok()?.finish().await
        };
        timeout(FINISH, finished).await.ok().flatten().unwrap_or(false)
    }
}

impl Sender {
    async fn run(mut self, mut end: oneshot::Receiver<oneshot::Sender<Self>>) {
        let started = Instant::now();
        loop {
            let pause = if started.elapsed() < EARLY { EARLY_PAUSE } else { PAUSE };
            let sent = tokio::select! {
                biased;
                // An append that is not answered yet is sent again.
                to_return = &mut end => Err(to_return),
                sent = self.send_after(pause) => Ok(sent),
            };
            match sent {
                Err(to_return) => return self.hand_over(to_return),
                Ok(sent) => match sent {
                    Ok(()) => {}
                    Err(Stop::Refused(reason)) => {
                        tracing::debug!("the log is not sent while it grows: {reason}");
                        return;
                    }
                    Err(Stop::Log(error)) => {
                        tracing::warn!("the log is not sent while it grows: {error}");
                        return;
                    }
                },
            }
        }
    }

    async fn send_after(&mut self, pause: Duration) -> Result<(), Stop> {
        sleep(pause).await;
        self.send_next().await
    }

    fn hand_over(self, to_return: Result<oneshot::Sender<Self>, oneshot::error::RecvError>) {
        // Without a receiver, or if it has given up, nothing more is sent.
        if let Ok(to_return) = to_return {
            let _given_up = to_return.send(self);
        }
    }

    /// Appends what the log has got, or confirms that the run works.
    async fn send_next(&mut self) -> Result<(), Stop> {
        if self.pending.is_empty() {
            let (bytes, has_more) = self.read().await.map_err(Stop::Log)?;
            if bytes.is_empty() && self.answered.elapsed() < CONFIRM {
                return Ok(());
            }
            if has_more {
                self.largest = (self.largest * 2).min(LARGEST_PIECE);
            }
            self.pending = bytes;
        }
        self.append(false).await.map(drop)
    }

    /// Appends the pending bytes. Returns the digest of a complete log; an error that may pass is none.
    async fn append(&mut self, complete: bool) -> Result<Option<Sha256>, Stop> {
        let Self { client, run, attempt, offset, pending, .. } = &*self;
        let appended = client.append_log(run, *attempt, *offset, pending.clone(), complete).await;
        match appended {
            Ok(Appended::Stored(sha256)) => {
                self.digest.update(&self.pending);
                self.offset += self.pending.len() as u64;
                self.pending = Bytes::new();
                self.answered = Instant::now();
                self.is_failing = false;
                Ok(sha256)
            }
            Ok(Appended::Refused(end)) => {
                let end = end.map(|end| format!(" with {end} bytes")).unwrap_or_default();
                Err(Stop::Refused(format!("the datastore has another log{end}")))
            }
            Err(error) if is_final(&error) => Err(Stop::Refused(chain(&error))),
            Err(error) => {
                tracing::debug!("an append to the log is tried again: {}", chain(&error));
                self.is_failing = true;
                Ok(None)
            }
        }
    }

    /// The next bytes of the log, and whether it has more than these.
    async fn read(&self) -> io::Result<(Bytes, bool)> {
        let (log, offset, largest) = (self.log.clone(), self.offset, self.largest);
        let read = spawn_blocking(move || {
            let file = fs_err::File::open(log)?;
            let left = file.metadata()?.len().saturating_sub(offset);
            let count = usize::try_from(left).unwrap_or(usize::MAX).min(largest);
            let mut bytes = vec![0; count];
            file.file().read_exact_at(&mut bytes, offset)?;
            Ok((Bytes::from(bytes), left > count as u64))
        });
        read.await.map_err(io::Error::other)?
    }

    /// Sends the rest and completes the log. `None`: it was not.
    async fn finish(mut self) -> Option<bool> {
        if self.is_failing || self.offset == 0 && self.pending.is_empty() {
            return None;
        }
        let expected = self.digest_of_log().await?;
        self.largest = LARGEST_PIECE;
        loop {
            // Nobody writes the log any more.
            let has_more = if self.pending.is_empty() {
                let (bytes, has_more) = self.read().await.ok()?;
                self.pending = bytes;
                has_more
            } else {
                true
            };
            let digest = self.append(!has_more).await.ok()?;
            if self.is_failing {
                return None;
            }
            if !has_more {
                return Some(digest == Some(expected));
            }
        }
    }

    /// The digest of the whole log. None if it does not begin with what was sent: secrets were masked since. Or if too much of
    /// it is not sent.
    async fn digest_of_log(&self) -> Option<Sha256> {
        let (log, offset, sent) = (self.log.clone(), self.offset, self.digest.clone().finish());
        let pending = self.pending.clone();
        let digest = spawn_blocking(move || {
            let file = fs_err::File::open(log)?;
            let (mut at, mut hasher) = (0, Hasher::default());
            let mut piece = vec![0; FIRST_PIECE];
            let mut is_same = offset == 0;
            loop {
                // The digest of what was sent is compared at its end.
                let left = if at < offset { offset - at } else { u64::MAX };
                let count = usize::try_from(left).unwrap_or(usize::MAX).min(piece.len());
                let count = file.file().read_at(&mut piece[..count], at)?;
                hasher.update(&piece[..count]);
                at += count as u64;
                is_same |= at == offset && hasher.clone().finish() == sent;
                if count == 0 {
                    break;
                }
            }
            let mut next = vec![0; pending.len()];
            file.file().read_exact_at(&mut next, offset)?;
            let is_whole = is_same && next == pending[..] && at - offset.min(at) <= MAX_REST;
            Ok::<_, io::Error>(is_whole.then(|| hasher.finish()))
        });
        digest.await.ok()?.ok()?
    }
}

/// Whether the datastore will never take the append.
fn is_final(error: &ClientError) -> bool {
    let refuses = error.status().is_some_and(|status| {
        status.is_client_error()
            && ![StatusCode::REQUEST_TIMEOUT, StatusCode::TOO_MANY_REQUESTS].contains(&status)
    });
    // A proxy that has lost its datastore for a moment answers 404 as well, but a log is only a convenience until the end.
    refuses || error.status() == Some(StatusCode::NOT_IMPLEMENTED)
}
