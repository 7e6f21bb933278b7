//! A step of the tool that failed, was killed, or reached a limit.

use std::path::Path;

use crate::failure::advice::{self, Command};
use crate::failure::{Failure, Kind};
use crate::process::Stop;
use crate::run::error::RunError;
use crate::tool::diagnostics::Diagnostics;

impl Failure {
    /// The failure of a step.
    pub(super) fn of_step(error: &RunError) -> Self {
        match error {
            RunError::Tool { tool, workspace, errors, dir, stored, .. } => {
                let tool = Command::new(tool, workspace.as_deref());
                Self::of_tool(error, (errors, dir), &advice::after(&tool, errors, dir, *stored))
            }
            RunError::Killed { tool, workspace, step, stop, .. } => {
                let kind = stop.map_or(Kind::Unclassified, Kind::Stopped);
                let tool = Command::new(tool, workspace.as_deref());
                Self::new(kind, error).with_hint(&advice::after_kill(&tool, step))
            }
            RunError::TimedOut { tool, workspace, step, end } => {
                let tool = Command::new(tool, workspace.as_deref());
                Self::new(Kind::Timeout, error).with_hint(&advice::after_limit(&tool, step, end))
            }
            _ => Self::new(Kind::Unclassified, error),
        }
    }

    /// A signal, or the limit of the run.
    pub(super) fn of_stop(stop: Stop, error: &RunError) -> Self {
        let failure = Self::new(Kind::Stopped(stop), error);
        match stop {
            Stop::Timeout(_) => failure.with_hint(
                "`steps` in run.json says how long each step took: give the run more time with --timeout, and run again",
            ),
            Stop::Interrupt | Stop::Terminate | Stop::Hangup => failure,
        }
    }

    /// The tool failed. If another process holds the state's lock, the message names it.
    fn of_tool(error: &RunError, (errors, dir): (&Diagnostics, &Path), hint: &str) -> Self {
        let lock = advice::held_lock(errors);
        let kind = if lock.is_some() { Kind::Locked } else { Kind::Unclassified };
        let failure = Self::new(kind, error).with_hint(hint);
        let message = match lock {
            Some(lock) if !lock.is_empty() => format!("{}: {lock}", failure.message),
            _ => failure.message,
        };
        let errors = errors.iter().cloned().collect();
        Self { message, errors, dir: Some(dir.to_owned()), ..failure }
    }
}
