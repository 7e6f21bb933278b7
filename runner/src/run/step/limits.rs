//! What limits the steps of a run.

use std::fmt;
use std::time::Duration;

use datastore_api::HumanDuration;

use crate::cli::LimitArgs;
use crate::process::limits::{Limit, Limits, Reached};
use crate::tool::waiting::waiting;

/// How long init and plan may make no progress, and an apply without a warning.
const IDLE: Duration = Duration::from_mins(15);

/// How a step ended that had reached a limit.
#[derive(Debug)]
pub(crate) struct TimedOut {
    reached: Reached,
    /// The grace period, if the tool did not stop within it and was killed.
    killed_after: Option<Duration>,
}

impl TimedOut {
    pub(super) fn new(reached: Reached, killed_after: Option<Duration>) -> Self {
        Self { reached, killed_after }
    }

    /// Whether the tool had to be killed.
    pub(crate) fn is_killed(&self) -> bool {
        self.killed_after.is_some()
    }

    /// The flag that changes the limit.
    pub(crate) fn flag(&self) -> &'static str {
        match self.reached.limit {
            Limit::Step(_) => "--step-timeout",
            Limit::Idle(_) => "--idle-timeout",
        }
    }
}

impl fmt::Display for TimedOut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Reached { limit, last_line } = &self.reached;
        write!(f, "{limit}")?;
        match self.killed_after {
            None => write!(f, " and was stopped")?,
            Some(grace) => write!(
                f,
                ", did not stop within {} (--grace), and was killed",
                HumanDuration(grace)
            )?,
        }
        match last_line {
            Some(line) => write!(f, "; its last output is `{line}`"),
            None => write!(f, "; it had printed nothing"),
        }
    }
}

/// The limits of a step. `name` is the tool with the step, as messages name it.
pub(super) fn of_step<'n>(given: LimitArgs, step: &str, name: &'n str) -> Limits<'n> {
    let by_default = matches!(step, "init" | "plan" | "apply").then_some(IDLE);
    Limits {
        name,
        step: given.step_timeout,
        idle: given.idle_timeout.or(by_default),
        only_warns: given.idle_timeout.is_none() && step == "apply",
        waiting,
    }
}
