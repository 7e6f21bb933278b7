//! Errors of leases, and of states in the datastore.

use crate::failure::{Failure, Kind};
use crate::run::lease::LeaseError;

const HELD: &str = "nothing was applied; wait until it has ended, and run again. The lease of a run that was killed ends 5 min \
    after it was renewed last";
const UNSUPPORTED: &str = "nothing was applied; update the datastore";
const OWN_SETTING: &str = "nothing was applied; remove this setting from the backend block, and from -backend-config: the \
    runner sets the variables TF_HTTP_* itself. Then plan again, because a plan contains the settings of its backend";

impl From<&LeaseError> for Failure {
    fn from(error: &LeaseError) -> Self {
        match error {
            LeaseError::Held { .. } => Self::new(Kind::Locked, error).with_hint(HELD),
            LeaseError::Refused { cause, .. } => Self::of_datastore(cause, error),
            LeaseError::Unsupported(_) => Self::new(Kind::Config, error).with_hint(UNSUPPORTED),
            LeaseError::StaleLock { key, lock } => {
                Self::new(Kind::Locked, error).with_hint(&format!(
                    "nothing was applied; find out whether what that run did is in the state, and that its tool has ended. \
                     Then remove the lock with --break-stale-lock AFTER (such as 10m), or `datastore state unlock {key} --id {} --url URL`",
                    lock.id
                ))
            }
            LeaseError::OwnSetting { .. } => Self::new(Kind::Config, error).with_hint(OWN_SETTING),
            LeaseError::Datastore(cause) => Self::of_datastore(cause, error),
        }
    }
}
