//! Why a check or converge failed, beside what the tool reports.

use crate::policy::PolicyError;

/// The plan cannot be judged, or is not allowed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CheckError {
    #[error(transparent)]
    Policy(#[from] PolicyError),
    #[error("another run has changed the state while it was planned without its lock, twice")]
    StateMoved,
    #[error("the destructive changes are not approved: {reason}")]
    NotApproved {
        reason: String,
        /// The digest by which they can be approved.
        hint: String,
    },
}
