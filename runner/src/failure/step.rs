//! A step of the tool that failed, was killed, or reached a limit.

use std::path::Path;

use crate::failure::advice::{self, Command};
use crate::failure::{Failure, Kind};
use crate::process::Stop;
use crate::run::error::RunError;
use crate::run::step::found_lock::FoundLock;
use crate::tool::diagnosis::{Cause, Class};
use crate::tool::diagnostics::Diagnostics;

/// What to do where terragrunt ended well without what it was to do.
const LEFT_OUT: &str = "a unit that terragrunt leaves out (`exclude`, `skip`) cannot be planned or applied: change its \
    configuration, or leave out this run";

impl Failure {
    /// The failure of a step.
    pub(super) fn of_step(error: &RunError) -> Self {
        match error {
            RunError::Tool { step, errors, why, dir, .. } => {
                Self { hint: Self::after(error, step), ..Self::of_tool(error, (errors, dir), why) }
            }
            RunError::LeftOut { .. } => Self::of_config(error, LEFT_OUT),
            RunError::Killed { tool, state, step, stop, memory, lock, .. } => {
                let kind = stop.map_or(Kind::Unclassified, Kind::Stopped);
                let tool = Command::new(tool, state);
                let hint = advice::after_kill(&tool, step, lock);
                Self::of_killed(kind, error, lock, &advice::after_kills(**memory, hint))
            }
            RunError::TimedOut { tool, state, step, end, lock } if end.is_killed() => {
                let tool = Command::new(tool, state);
                let hint = advice::after_kill(&tool, step, lock);
                Self::of_killed(
                    Kind::Timeout,
                    error,
                    lock,
                    &advice::after_kills(end.memory(), hint),
                )
            }
            RunError::TimedOut { step, end, .. } => {
                let hint = advice::after_kills(end.memory(), advice::after_limit(step, end));
                Self::new(Kind::Timeout, error).with_hint(&hint)
            }
            _ => Self::new(Kind::Unclassified, error),
        }
    }

    /// What to do after the tool has failed in this step.
    pub(super) fn after(error: &RunError, step: &str) -> Option<String> {
        let RunError::Tool { tool, state, errors, why, dir, stored, .. } = error else {
            return None;
        };
        let tool = Command::new(tool, state);
        let hint = advice::after(&tool, errors, (step, why.class), (dir, *stored));
        Some(advice::after_kills(why.killed, hint))
    }

    /// An apply whose state its backend does not have. Only a push helps, whatever the reason was.
    pub(super) fn of_unsaved_state(cause: &RunError) -> Self {
        let failure = Self::from(cause);
        match cause {
            RunError::Tool { errors, .. } if advice::held_lock(errors).is_none() => {
                Self { kind: Kind::Unclassified, ..failure }
            }
            _ => failure,
        }
    }

    /// The tool was killed. The message says whether the state is locked.
    pub(super) fn of_killed(kind: Kind, error: &RunError, lock: &FoundLock, hint: &str) -> Self {
        let failure = Self::new(kind, error).with_hint(hint);
        let holder = match lock {
            FoundLock::Unknown => return failure,
            FoundLock::Free => "; the lock of the state is free".to_owned(),
            FoundLock::Held(errors) => match advice::held_lock(errors) {
                Some(holder) if !holder.is_empty() => format!("; the state is locked: {holder}"),
                _ => "; the state is locked".to_owned(),
            },
        };
        Self { message: failure.message + &holder, ..failure }
    }

    /// A signal, or the limit of the run.
    pub(super) fn of_stop(stop: Stop, error: &RunError) -> Self {
        let failure = Self::new(Kind::Stopped(stop), error);
        if matches!(error, RunError::StoppedApply { .. }) {
            return failure.with_hint(&advice::after_stopped_apply(stop));
        }
        failure.with_hint(after_stop(stop))
    }

    /// The tool failed. If another process holds the state's lock, the message names it.
    fn of_tool(error: &RunError, (errors, dir): (&Diagnostics, &Path), why: &Cause) -> Self {
        let lock = advice::held_lock(errors);
        let kind = if lock.is_some() { Kind::Locked } else { why.into() };
        let failure = Self::new(kind, error);
        let message = match lock {
            Some(lock) if !lock.is_empty() => format!("{}: {lock}", failure.message),
            _ => failure.message,
        };
        let errors = errors.iter().cloned().collect();
        Self { message, errors, dir: Some(dir.to_owned()), ..failure }
    }
}

/// What to do after a signal, or the limit of the run, before an apply.
pub(super) fn after_stop(stop: Stop) -> &'static str {
    match stop {
        Stop::Timeout(_) => {
            "`steps` in run.json says how long each step took: give the run more time with --timeout, and run again"
        }
        Stop::LeaseLost => "run again when that run has ended",
        Stop::Interrupt | Stop::Terminate | Stop::Hangup => "run again",
    }
}

impl From<&Cause> for Kind {
    /// The kind of failure of a step whose state was not locked by another process.
    fn from(why: &Cause) -> Self {
        if why.is_integrity {
            return Self::Integrity;
        }
        match why.lock_reason.unwrap_or(why.class) {
            Class::Lock => Self::Locked,
            Class::Auth => Self::Credentials,
            Class::Transient => Self::Network,
            Class::Quota => Self::Quota,
            Class::Config => Self::Config,
            Class::AlreadyExists => Self::AlreadyExists,
            Class::Interrupted => Self::ToolInterrupted,
            Class::Unknown => Self::Unclassified,
        }
    }
}
