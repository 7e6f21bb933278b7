//! What a policy or a missing approval refuses, and a policy that cannot be used.

use super::{Failure, Kind};
use crate::run::check::error::CheckError;

/// What to do about a policy that cannot be used.
pub(super) const HINT: &str = "nothing was applied; correct the policy";
/// What to do about a check beside applies.
const STATE_MOVED: &str = "check again when no other run works with this layer";

impl From<&CheckError> for Failure {
    fn from(error: &CheckError) -> Self {
        match error {
            CheckError::Policy(_) => Self::of_config(error, HINT),
            CheckError::StateMoved => Self::new(Kind::Locked, error).with_hint(STATE_MOVED),
            CheckError::NotApproved { hint, .. } => Self::new(Kind::Refused, error).with_hint(hint),
        }
    }
}
