//! How often, and after which pause, failed steps of a run are run again.

use std::io::{self, BufRead};
use std::path::Path;
use std::sync::OnceLock;
use std::time::Duration;

use tokio::time::Instant;

use crate::cli::RetryArgs;
use crate::tool::diagnosis::{Cause, ClassifyError, Rules, Verdict, load_rules};

/// The pause before the first retry is at most this long, that before each further one at most twice as long.
const FIRST_PAUSE: Duration = Duration::from_secs(2);
const MAX_PAUSE: Duration = Duration::from_mins(1);

/// A service that asks for a longer pause is not waited for.
pub(super) const MAX_WAIT: Duration = Duration::from_mins(5);

/// How often a step is run again, if no flag says otherwise.
fn budget(step: &str) -> u32 {
    match step {
        "init" | "plan" | "state pull" => 5,
        "apply" => 3,
        "state push" => 10,
        _ => 0,
    }
}

/// What is left for running failed steps of a run again.
#[derive(Debug)]
pub(in crate::run) struct Retries {
    /// How often a step is run again (`--retries`).
    limit: Option<u32>,
    /// How long all retries may take (`--retry-timeout`), and how much of that is left.
    pub(super) timeout: Duration,
    pub(in crate::run) left: Duration,
    rules: OnceLock<Rules>,
}

/// The tries of one step.
#[derive(Debug)]
pub(in crate::run) struct Tries {
    pub(super) step: &'static str,
    /// How many have ended.
    pub(super) count: u32,
    /// How many of them were followed at once by one that is no retry.
    pub(super) at_once: u32,
    /// The first entry of the step in the report.
    pub(super) first: usize,
    /// When the pause before this try began, and how much time for retries was left then; none before the first one.
    pub(super) since: Option<(Instant, Duration)>,
}

/// Why a step whose errors are transient is not run again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::run) enum Refusal {
    /// `--retries=0`
    Off,
    /// Its retries are used up: this many.
    UsedUp(u32),
    /// The time for retries is used up.
    Timeout,
    /// A service asks for a pause that is too long.
    TooLong(Duration),
}

impl Tries {
    /// The next try follows without a pause, and is no retry.
    pub(in crate::run) fn follow_at_once(&mut self) {
        self.at_once += 1;
        self.since = None;
    }

    /// How many of those that have ended count as tries of the budget.
    pub(in crate::run) fn counted(&self) -> u32 {
        self.count - self.at_once
    }
}

impl Retries {
    pub(in crate::run) fn new(args: &RetryArgs) -> Self {
        let RetryArgs { retries, retry_timeout, .. } = *args;
        let rules = OnceLock::new();
        Self { limit: retries, timeout: retry_timeout, left: retry_timeout, rules }
    }

    /// Whether a step may be run again after this many tries.
    pub(in crate::run) fn has_left(&self, step: &str, tries: u32) -> bool {
        tries <= self.limit.unwrap_or_else(|| budget(step))
    }

    /// Reads the rules of `--rules`.
    pub(in crate::run) fn load_rules(&mut self, file: Option<&Path>) -> Result<(), ClassifyError> {
        if file.is_some() {
            self.rules = load_rules(file)?.into();
        }
        Ok(())
    }

    /// The rules for errors of the tool.
    pub(in crate::run) fn rules(&self) -> &Rules {
        self.rules.get_or_init(|| Rules::load(None).expect("the rules are valid"))
    }

    /// What the errors in the output of a failed step mean.
    pub(in crate::run) fn cause(&self, output: impl BufRead) -> io::Result<Cause> {
        Ok(Cause::of(&Verdict::read(output, self.rules())?))
    }

    /// Counts the time that a retry has taken, with the pause before it. `left` is what was left before that. A retry of an
    /// apply contains those of its plan, which have counted a part of the time already.
    pub(in crate::run) fn spend(&mut self, left: Duration, time: Duration) {
        self.left = self.left.min(left.saturating_sub(time));
    }

    /// The pause before the next try of a step, of which `count` tries have failed. `random` is from 0 to 1.
    pub(in crate::run) fn pause(
        &self,
        step: &str,
        count: u32,
        wait: Option<Duration>,
        random: f64,
    ) -> Result<Duration, Refusal> {
        let limit = self.limit.unwrap_or_else(|| budget(step));
        if limit == 0 {
            return Err(Refusal::Off);
        }
        if count > limit {
            return Err(Refusal::UsedUp(limit));
        }
        let doubled = FIRST_PAUSE
            .saturating_mul(1_u32.checked_shl(count.saturating_sub(1)).unwrap_or(u32::MAX));
        let pause = match wait {
            Some(wait) if wait > MAX_WAIT => return Err(Refusal::TooLong(wait)),
            // Never earlier than the service asks for, and not all waiting runs at once.
            Some(wait) => wait + wait.min(FIRST_PAUSE).mul_f64(random / 2.0),
            None => doubled.min(MAX_PAUSE).mul_f64(random),
        };
        if pause >= self.left { Err(Refusal::Timeout) } else { Ok(pause) }
    }
}

/// A random number from 0 to 1.
pub(in crate::run) fn random() -> f64 {
    let mut bytes = [0; 4];
    // Without it the pauses are as long as they may be.
    match aws_lc_rs::rand::fill(&mut bytes) {
        Ok(()) => f64::from(u32::from_ne_bytes(bytes)) / f64::from(u32::MAX),
        Err(_) => 1.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_mins(15);

    fn retries(retries: Option<u32>, retry_timeout: Duration) -> Retries {
        Retries::new(&RetryArgs { retries, retry_timeout, rules: None, import_existing: false })
    }

    fn seconds(pause: Result<Duration, Refusal>) -> f64 {
        pause.unwrap().as_secs_f64()
    }

    #[test]
    fn pauses_double_up_to_a_minute_and_are_random() {
        let retries = retries(Some(40), LONG);
        for (count, longest) in
            [(1, 2.0), (2, 4.0), (3, 8.0), (4, 16.0), (5, 32.0), (6, 60.0), (7, 60.0), (40, 60.0)]
        {
            for random in [0.0, 0.25, 1.0] {
                let pause = seconds(retries.pause("plan", count, None, random));
                assert!((pause - longest * random).abs() < 0.001, "{count} {random}: {pause}");
            }
        }
        let drawn = (0..100).map(|_| random()).collect::<Vec<_>>();
        assert!(drawn.iter().all(|random| (0.0..=1.0).contains(random)), "{drawn:?}");
        assert!(drawn.iter().any(|random| *random < 0.5), "{drawn:?}");
        assert!(drawn.iter().any(|random| *random > 0.5), "{drawn:?}");
    }

    #[test]
    fn each_step_has_its_own_number_of_retries() {
        for (step, limit) in [("init", 5), ("plan", 5), ("apply", 3), ("state push", 10)] {
            let of = |count| retries(None, LONG).pause(step, count, None, 0.0);
            assert_eq!(of(limit), Ok(Duration::ZERO), "{step}");
            assert_eq!(of(limit + 1), Err(Refusal::UsedUp(limit)), "{step}");
            assert_eq!(retries(Some(0), LONG).pause(step, 1, None, 0.0), Err(Refusal::Off));
            let once = retries(Some(1), LONG);
            assert_eq!(once.pause(step, 1, None, 0.0), Ok(Duration::ZERO), "{step}");
            assert_eq!(once.pause(step, 2, None, 0.0), Err(Refusal::UsedUp(1)), "{step}");
        }
        assert_eq!(retries(None, LONG).pause("show", 1, None, 0.0), Err(Refusal::Off));
    }

    #[test]
    fn what_a_service_asks_for_wins_up_to_five_minutes() {
        let retries = retries(None, LONG);
        let pause =
            |wait, random| retries.pause("init", 5, Some(Duration::from_secs(wait)), random);
        assert!((seconds(pause(47, 0.0)) - 47.0).abs() < 0.001);
        assert!((seconds(pause(47, 1.0)) - 48.0).abs() < 0.001);
        assert!((seconds(pause(1, 1.0)) - 1.5).abs() < 0.001);
        assert!(pause(300, 0.0).is_ok());
        assert_eq!(pause(301, 0.0), Err(Refusal::TooLong(Duration::from_secs(301))));
    }

    #[test]
    fn a_pause_that_would_exceed_the_time_for_retries_is_not_begun() {
        let mut retries = retries(None, Duration::from_secs(10));
        let wait = Some(Duration::from_secs(8));
        assert!(retries.pause("plan", 1, wait, 0.0).is_ok());
        retries.spend(retries.left, Duration::from_secs(2));
        assert_eq!(retries.pause("plan", 1, wait, 0.0), Err(Refusal::Timeout));
        retries.spend(retries.left, Duration::from_secs(9));
        assert_eq!(retries.pause("plan", 1, None, 0.0), Err(Refusal::Timeout));
    }

    #[test]
    fn time_of_a_retry_within_another_one_counts_once() {
        let mut retries = retries(None, Duration::from_secs(100));
        let before = retries.left;
        retries.spend(retries.left, Duration::from_secs(20));
        retries.spend(retries.left, Duration::from_secs(10));
        assert_eq!(retries.left, Duration::from_secs(70));
        // With what was no retry, such as the first plan and the apply.
        retries.spend(before, Duration::from_secs(45));
        assert_eq!(retries.left, Duration::from_secs(55));
    }
}
