//! Why a check or converge failed, beside what the tool reports.

use std::path::PathBuf;

use crate::policy::PolicyError;

/// The plan cannot be judged, or is not allowed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CheckError {
    #[error(transparent)]
    Policy(#[from] PolicyError),
    #[error("another run has changed the state while it was planned without its lock, twice")]
    StateMoved,
    #[error("the program before the apply, {}, has refused it (exit code {code}): nothing is applied", .hook.display())]
    Vetoed { hook: PathBuf, code: i32 },
    #[error("the destructive changes are not approved: {reason}")]
    NotApproved {
        reason: String,
        /// The digest by which they can be approved.
        hint: String,
    },
}
