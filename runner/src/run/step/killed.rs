//! How a tool was killed, in words.

use std::os::unix::process::ExitStatusExt as _;
use std::time::Duration;

use crate::process::{ExitReport, Killed};

/// Whether terragrunt says that the tool below it was killed. It ends with the exit code -1 then.
pub(super) fn is_killed_below(tool: &str, exit: &ExitReport, output: &str) -> bool {
    tool == "terragrunt" && exit.code() == 255 && output.contains("signal: killed")
}

/// Whether terraform or tofu says that it ends at a second interrupt, without saving its state.
pub(super) fn has_given_up(output: &str) -> bool {
    output.contains("Two interrupts received. Exiting immediately.")
}

/// How a program was killed, if it was; `below`: the one that it has run.
pub(super) fn killed_by(exit: &ExitReport, below: bool, grace: Duration) -> Option<String> {
    let end = match (exit.stop, exit.status.signal()) {
        (Some(stop), _) if exit.killed => {
            format!("did not stop within {grace:?} after {stop}, and was killed")
        }
        (Some(stop), _) if below => {
            format!("failed after {stop}: the tool that it ran was killed by SIGKILL")
        }
        (None, _) if below => "failed: the tool that it ran was killed by SIGKILL".to_owned(),
        (Some(stop), Some(9)) => format!("was killed by SIGKILL after {stop}"),
        (None, Some(9)) if exit.used.killed == Killed::Unknown => {
            return Some("was killed by SIGKILL; perhaps memory ran out".to_owned());
        }
        (None, Some(9)) => "was killed by SIGKILL".to_owned(),
        (None, Some(signal)) => format!("was ended by signal {signal}"),
        _ => return None,
    };
    Some(match exit.used.killed {
        Killed::Yes(memory) => format!("{end}: {memory}"),
        Killed::No | Killed::Unknown => end,
    })
}
