//! How long a datastore has been silent: has not answered and not transferred a byte. The time is counted over all
//! tries of a call, and over later calls.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::error::{ClientError, seconds};

/// How often a waiting call notifies; more often with a short limit.
const NOTICE_INTERVAL: Duration = Duration::from_secs(5);
/// A call after the datastore was given up waits for the limit divided by this.
const AFTER_GIVING_UP: u32 = 12;

/// A function that shows a [`Notice`] to a person.
pub type Notify = fn(&Notice<'_>);

/// Why a call takes long.
#[derive(Clone, Copy, Debug)]
pub enum Notice<'a> {
    /// It failed, and is retried after a pause.
    Retry {
        /// The error of the failed try.
        error: &'a ClientError,
        /// The pause.
        pause: Duration,
    },
    /// No progress. Sent every 5 s.
    Waiting {
        /// Method and URL.
        call: &'a str,
        /// How long there has been no progress, over all tries.
        silent: Duration,
        /// How long that may be.
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
                write!(f, "waiting for {call}: no response for {silent}, giving up after {limit}")
            }
        }
    }
}

/// Measures the silence. The calls of one client share it: progress of one call shows that the datastore works.
#[derive(Debug)]
pub(super) struct Silence {
    notify: Option<Notify>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// How long the silence may be.
    limit: Duration,
    /// How many calls wait.
    waiting: usize,
    /// Since when the waiting calls have made no progress.
    since: Instant,
    /// The silence before that.
    before: Duration,
    /// Whether the datastore was given up once. Later calls then wait for a short time only, even if some succeed: a
    /// part of it may work.
    given_up: bool,
}

impl State {
    fn before_giving_up(&self) -> Duration {
        self.limit.saturating_sub(self.limit / AFTER_GIVING_UP)
    }
}

/// How far a call has come.
#[derive(Clone, Debug, Default)]
pub(super) struct Progress {
    /// Whether one of its tries was answered.
    answered: Arc<AtomicBool>,
    /// The bytes transferred by this try.
    bytes: Arc<AtomicU64>,
    /// By the try that transferred most.
    furthest: Arc<AtomicU64>,
}

impl Progress {
    /// The progress of the next try of the same call.
    pub(super) fn another_try(&self) -> Self {
        let (answered, furthest) = (Arc::clone(&self.answered), Arc::clone(&self.furthest));
        Self { answered, bytes: Arc::default(), furthest }
    }

    /// That of a further question of a call that was answered.
    pub(super) fn of_answered() -> Self {
        let progress = Self::default();
        progress.is_first_answer();
        progress
    }

    /// Whether this is the first answer to the call. Later ones are no progress: each try may get a head, and then nothing.
    pub(super) fn is_first_answer(&self) -> bool {
        !self.answered.swap(true, Ordering::Relaxed)
    }

    pub(super) fn moved(&self, bytes: usize) {
        self.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Whether this try has transferred more than every earlier one.
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

    /// Shortens the limit, also for calls in flight.
    pub(super) fn shorten_limit(&self, limit: Duration) {
        let mut state = self.state();
        state.limit = state.limit.min(limit);
    }

    /// The output of one try of a call; or an error, if this try was silent for half of the limit, or the datastore for
    /// all of it.
    ///
    /// Not reqwest's read timeout: that also runs during an upload, so it would end every long one.
    pub(super) async fn limit<T>(
        &self,
        call: &str,
        progress: &Progress,
        work: impl Future<Output = T>,
    ) -> Result<T, ClientError> {
        let mut work = std::pin::pin!(work);
        let _waiting = self.wait();
        let limit = self.state().limit;
        let pause = notice_interval(limit);
        let tick = (limit / 40).clamp(Duration::from_millis(5), Duration::from_millis(500));
        let (mut bytes, mut moved, mut notices) = (progress.bytes(), Instant::now(), 1);
        loop {
            let round = Instant::now();
            if let Ok(output) = tokio::time::timeout(tick, &mut work).await {
                return Ok(output);
            }
            // The process itself may have been stopped: an answer may have come since.
            let stopped = round.elapsed().saturating_sub(tick * 2);
            moved += stopped;
            self.exclude(stopped);
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

    /// Records progress since `round`. Bytes that an earlier try has already transferred do not end the silence, but the
    /// time they took is not part of it.
    pub(super) fn moved(&self, progress: &Progress, round: Instant) {
        if progress.is_new() {
            self.end();
        } else {
            self.exclude(round.elapsed());
        }
    }

    /// This time is no silence.
    fn exclude(&self, time: Duration) {
        let mut state = self.state();
        state.since = (state.since + time).min(Instant::now());
    }

    /// Ends the silence: the datastore answered.
    pub(super) fn end(&self) {
        let mut state = self.state();
        state.before = if state.given_up { state.before_giving_up() } else { Duration::ZERO };
        state.since = Instant::now();
    }

    /// How long the silence is, and how long it may be.
    fn silent(&self) -> (Duration, Duration) {
        let state = self.state();
        (state.before + state.since.elapsed(), state.limit)
    }

    /// Gives the datastore up: waiting calls fail as well, and later calls wait for a short time only.
    fn give_up(&self) {
        self.state().given_up = true;
    }

    fn wait(&self) -> Waiting<'_> {
        let mut state = self.state();
        if state.waiting == 0 {
            state.since = Instant::now();
            if state.given_up {
                state.before = state.before.min(state.before_giving_up());
            }
        }
        state.waiting += 1;
        Waiting(self)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A waiting call, until it is dropped. Pauses between tries do not count as silence.
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

/// The interval of the notices of a call that waits.
fn notice_interval(limit: Duration) -> Duration {
    NOTICE_INTERVAL.min(limit / 8)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The thread sleeps as if the process had got SIGSTOP.
    #[tokio::test]
    async fn time_in_which_the_process_is_stopped_is_no_silence() {
        let limit = Duration::from_millis(400);
        let silence = Silence::new(limit, None);
        let answer = async {
            std::thread::sleep(limit * 2);
            tokio::time::sleep(limit / 20).await;
        };
        silence.limit("GET x", &Progress::default(), answer).await.unwrap();
        let nothing = std::future::pending::<()>();
        silence.limit("GET x", &Progress::default(), nothing).await.unwrap_err();
    }

    #[test]
    fn a_waiting_call_notifies_every_5_s_and_more_often_with_a_short_limit() {
        let default = crate::client::Settings::new("http://h".parse().unwrap()).timeout;
        assert_eq!(default, Duration::from_mins(1));
        for (limit, interval) in
            [(default, 5000), (Duration::from_mins(10), 5000), (Duration::from_secs(1), 125)]
        {
            assert_eq!(notice_interval(limit), Duration::from_millis(interval), "{limit:?}");
        }
    }
}
