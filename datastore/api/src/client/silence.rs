//! How long a datastore is silent: counted over all tries of a call, and over the calls after it.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::ClientError;

/// How often a call that waits is said to wait; more often where the limit is short.
const NOTICE: Duration = Duration::from_secs(5);
/// How long a further call waits for a datastore that was given up, in parts of the limit.
const AFTER_GIVING_UP: u32 = 12;

/// A function that tells a person of a [`Notice`].
pub type Notify = fn(&Notice<'_>);

/// Why a call takes long.
#[derive(Clone, Copy, Debug)]
pub enum Notice<'a> {
    /// It failed, and is tried again after a pause.
    Retry {
        /// Why it failed.
        error: &'a ClientError,
        /// The pause.
        pause: Duration,
    },
    /// Nothing moves. Given every 5 s.
    Waiting {
        /// Method and URL.
        call: &'a str,
        /// For how long nothing has moved, over all tries.
        silent: Duration,
        /// When the datastore is given up.
        limit: Duration,
    },
}

impl fmt::Display for Notice<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Retry { error, pause } => {
                write!(f, "{error}; trying again in {}", seconds(*pause))
            }
            Self::Waiting { call, silent, limit } => {
                let (silent, limit) = (seconds(*silent), seconds(*limit));
                write!(f, "waiting for {call}: no answer for {silent}, giving up after {limit}")
            }
        }
    }
}

/// A duration as a person reads it, to a tenth of a second.
pub(super) fn seconds(duration: Duration) -> String {
    format!("{} s", (duration.as_secs_f64() * 10.0).round() / 10.0)
}

/// For how long nothing has moved. The calls of one client share it: one that moves says that the datastore lives.
#[derive(Debug)]
pub(super) struct Silence {
    notify: Option<Notify>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// How long nothing may move.
    limit: Duration,
    /// How many calls wait now.
    waiting: usize,
    /// Since when nothing moved while some waited.
    since: Instant,
    /// The silence before that.
    before: Duration,
    /// Whether the datastore was given up once. What it still does makes no later call wait longer: a part of it
    /// may be well.
    given_up: bool,
}

impl State {
    fn before_the_end(&self) -> Duration {
        self.limit.saturating_sub(self.limit / AFTER_GIVING_UP)
    }
}

/// What one call has moved so far.
#[derive(Clone, Debug, Default)]
pub(super) struct Progress {
    /// Bytes of this try.
    bytes: Arc<AtomicU64>,
    /// The most bytes of any try of the call.
    furthest: Arc<AtomicU64>,
}

impl Progress {
    /// The same call, tried again.
    pub(super) fn another_try(&self) -> Self {
        Self { bytes: Arc::default(), furthest: Arc::clone(&self.furthest) }
    }

    pub(super) fn moved(&self, bytes: usize) {
        self.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Whether this try has come further than all before it.
    fn is_new(&self) -> bool {
        let bytes = self.bytes();
        self.furthest.fetch_max(bytes, Ordering::Relaxed) < bytes
    }
}

impl Silence {
    pub(super) fn new(limit: Duration, notify: Option<Notify>) -> Self {
        let (since, before) = (Instant::now(), Duration::ZERO);
        let state = State { limit, waiting: 0, since, before, given_up: false };
        Self { notify, state: Mutex::new(state) }
    }

    /// From now on the limit is at most this, for calls under way as well.
    pub(super) fn hurry(&self, limit: Duration) {
        let mut state = self.state();
        state.limit = state.limit.min(limit);
    }

    /// The output of one try of a call, or an error: this try has been silent for half of the limit, or the
    /// datastore for all of it.
    ///
    /// reqwest's own read timeout also runs while an upload is on its way, so it would end every long one.
    pub(super) async fn limit<T>(
        &self,
        call: &str,
        progress: &Progress,
        work: impl Future<Output = T>,
    ) -> Result<T, ClientError> {
        let mut work = std::pin::pin!(work);
        let _waiting = self.wait();
        let limit = self.state().limit;
        let pause = NOTICE.min(limit / 8);
        let tick = (limit / 40).clamp(Duration::from_millis(5), Duration::from_millis(500));
        let (mut bytes, mut moved, mut notices) = (progress.bytes(), Instant::now(), 1);
        loop {
            let round = Instant::now();
            if let Ok(output) = tokio::time::timeout(tick, &mut work).await {
                return Ok(output);
            }
            if progress.bytes() != bytes {
                (bytes, moved, notices) = (progress.bytes(), Instant::now(), 1);
                self.moved(progress, round);
                continue;
            }
            let (silent, limit) = self.silent();
            if silent >= limit {
                self.give_up();
                return Err(ClientError::Silent { call: call.to_owned(), limit });
            }
            if moved.elapsed() >= limit / 2 {
                return Err(ClientError::TimedOut { call: call.to_owned(), idle: moved.elapsed() });
            }
            if moved.elapsed() >= pause * notices {
                notices += 1;
                self.notify(&Notice::Waiting { call, silent, limit });
            }
        }
    }

    pub(super) fn notify(&self, notice: &Notice<'_>) {
        if let Some(notify) = self.notify {
            notify(notice);
        }
    }

    /// Bytes have moved since `round`. Those of an earlier try that move again do not end the silence; this time
    /// is no part of it.
    pub(super) fn moved(&self, progress: &Progress, round: Instant) {
        if progress.is_new() {
            self.broken();
        } else {
            let mut state = self.state();
            state.since = (state.since + round.elapsed()).min(Instant::now());
        }
    }

    /// The datastore has done what was asked.
    pub(super) fn broken(&self) {
        let mut state = self.state();
        state.before = if state.given_up { state.before_the_end() } else { Duration::ZERO };
        state.since = Instant::now();
    }

    /// For how long nothing has moved, and for how long it may.
    fn silent(&self) -> (Duration, Duration) {
        let state = self.state();
        (state.before + state.since.elapsed(), state.limit)
    }

    /// What waits now gives up as well; whatever comes next waits for a moment only.
    fn give_up(&self) {
        self.state().given_up = true;
    }

    fn wait(&self) -> Waiting<'_> {
        let mut state = self.state();
        if state.waiting == 0 {
            state.since = Instant::now();
            if state.given_up {
                state.before = state.before.min(state.before_the_end());
            }
        }
        state.waiting += 1;
        Waiting(self)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A call that waits, as long as this lives. Pauses between tries are no silence.
struct Waiting<'a>(&'a Silence);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let mut state = self.0.state();
        state.waiting -= 1;
        if state.waiting == 0 {
            let silent = state.since.elapsed();
            state.before += silent;
        }
    }
}
