//! What limits the steps of a run.

use std::fmt;
use std::os::unix::process::ExitStatusExt as _;
use std::time::Duration;

use datastore_api::HumanDuration;

use crate::cli::LimitArgs;
use crate::process::limits::{Limit, Limits, Reached};
use crate::process::{ExitReport, Killed};
use crate::tool::waiting::waiting;

/// How long a step may make no progress, and an apply without a warning.
const IDLE: Duration = Duration::from_mins(15);

/// The signal by which the runner stops a tool.
const SIGINT: i32 = 2;

/// How a step ended that had reached a limit.
#[derive(Debug)]
pub(crate) struct TimedOut {
    reached: Reached,
    end: End,
    /// Whether memory ran out.
    memory: Killed,
}

#[derive(Debug)]
enum End {
    /// It stopped by itself.
    Stopped,
    /// It did not stop within the grace period, and the runner has killed it.
    Killed(Duration),
    /// Someone else has ended it within that period, with this signal.
    Signal(i32),
}

impl TimedOut {
    /// `below`: the program has run a tool that was killed.
    pub(super) fn new(reached: Reached, exit: &ExitReport, below: bool, grace: Duration) -> Self {
        let end = match exit.status.signal() {
            _ if exit.killed => End::Killed(grace),
            None if below => End::Signal(9),
            // The runner's own signal.
            None | Some(SIGINT) => End::Stopped,
            Some(signal) => End::Signal(signal),
        };
        Self { reached, end, memory: exit.used.killed }
    }

    /// Whether memory ran out.
    pub(crate) fn memory(&self) -> Killed {
        self.memory
    }

    /// Whether the tool was killed.
    pub(crate) fn is_killed(&self) -> bool {
        !matches!(self.end, End::Stopped)
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
        match self.end {
            End::Stopped => write!(f, " and was stopped")?,
            End::Killed(grace) => write!(
                f,
                ", did not stop within {} (--grace), and was killed",
                HumanDuration(grace)
            )?,
            End::Signal(9) => write!(f, ", and was killed by SIGKILL before it had stopped")?,
            End::Signal(signal) => {
                write!(f, ", and was ended by signal {signal} before it had stopped")?;
            }
        }
        if let Killed::Yes(memory) = &self.memory {
            write!(f, " ({memory})")?;
        }
        match last_line {
            Some(line) => write!(f, "; its last output is `{line}`"),
            None => write!(f, "; it had printed nothing"),
        }
    }
}

/// The limits of a step. `name` is the tool with the step, as messages name it.
pub(in crate::run) fn of_step<'n>(given: LimitArgs, step: &str, name: &'n str) -> Limits<'n> {
    let by_default = matches!(
        step,
        "init"
            | "plan"
            | "show"
            | "show json"
            | "apply"
            | "import"
            | "output"
            | "state pull"
            | "state push"
            | "state rm"
    );
    Limits {
        name,
        step: given.step_timeout,
        idle: given.idle_timeout.or(by_default.then_some(IDLE)),
        only_warns: given.idle_timeout.is_none() && step == "apply",
        waiting,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_is_stopped_if_it_hangs_and_an_apply_only_on_request() {
        let given = LimitArgs { timeout: None, step_timeout: None, idle_timeout: None };
        for step in [
            "init",
            "plan",
            "show json",
            "import",
            "output",
            "state pull",
            "state push",
            "state rm",
        ] {
            let limits = of_step(given, step, "");
            assert_eq!((limits.idle, limits.only_warns), (Some(IDLE), false), "{step}");
        }
        let apply = of_step(given, "apply", "");
        assert_eq!((apply.idle, apply.only_warns), (Some(IDLE), true));
        assert_eq!(of_step(given, "before-apply", "").idle, None);
    }
}
