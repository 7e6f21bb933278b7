//! When a delivery is tried again, and until when.

use std::time::Duration;

use tokio::time::Instant;

use crate::process::Signals;
use crate::run::step::budget::{Retries, random};

/// The pause before the first retry of an upload is at most this long, that before each further one at most twice as long.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const MAX_PAUSE: Duration = Duration::from_secs(10);
/// After a signal every pause is at most this long.
const MAX_PAUSE_AFTER_STOP: Duration = Duration::from_secs(2);
/// A try needs some time.
const NEEDED: Duration = Duration::from_secs(1);

/// The tries of a delivery.
#[derive(Debug)]
pub(super) struct Pace {
    /// How long uploads are tried, and everything after a signal.
    grace: Duration,
    since: Instant,
    /// How many pauses there were.
    pauses: u32,
    /// How many pushes have failed.
    pushes: u32,
    /// How long the backend asks to wait.
    wait: Option<Duration>,
}

impl Pace {
    pub(super) fn new(grace: Duration) -> Self {
        Self { grace, since: Instant::now(), pauses: 0, pushes: 0, wait: None }
    }

    /// Counts a push that has failed.
    pub(super) fn failed(&mut self, wait: Option<Duration>) {
        self.pushes += 1;
        self.wait = wait;
    }

    /// The pause before the next try; `None` if there is none. A push has its budget, and uploads the grace period. After a
    /// signal both have what is left of the grace period.
    pub(super) fn pause(
        &mut self,
        retries: &Retries,
        signals: &Signals,
        is_push: bool,
    ) -> Option<Duration> {
        let doubled = FIRST_PAUSE.saturating_mul(1 << self.pauses.min(8)).min(MAX_PAUSE);
        let pause = doubled.mul_f64(random().midpoint(1.0));
        self.pauses += 1;
        if let Some(since) = signals.since_stop() {
            let left = self.grace.saturating_sub(since);
            let pause = pause.min(MAX_PAUSE_AFTER_STOP);
            return (left > pause + NEEDED).then_some(pause);
        }
        if is_push {
            return retries.pause("state push", self.pushes, self.wait, random()).ok();
        }
        (self.since.elapsed() < self.grace).then_some(pause)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::RetryArgs;

    #[tokio::test]
    async fn pushes_end_with_their_budget_and_uploads_with_the_grace_period() {
        let retry_timeout = Duration::from_mins(15);
        let args = RetryArgs { retries: None, retry_timeout, rules: None, import_existing: false };
        let (retries, (_sender, signals)) = (Retries::new(&args), Signals::of_test());
        let mut pace = Pace::new(Duration::from_secs(20));
        for _ in 0..10 {
            pace.failed(None);
            assert!(pace.pause(&retries, &signals, true).is_some());
        }
        pace.failed(Some(Duration::from_secs(3)));
        assert_eq!(pace.pause(&retries, &signals, true), None);
        let pause = pace.pause(&retries, &signals, false).unwrap();
        assert!(pause <= MAX_PAUSE && pause >= MAX_PAUSE / 2, "{pause:?}");
        pace.grace = Duration::ZERO;
        assert_eq!(pace.pause(&retries, &signals, false), None);
    }
}
