//! Errors of leases, and of states in the datastore.

use crate::failure::{Failure, Kind};
use crate::run::lease::LeaseError;

const HELD: &str = "nothing was applied; wait until it has ended, and run again. The lease of a run that was killed ends 5 min \
    after it was renewed last";
const LOCKED: &str = "nothing was applied; wait until the holder of the lock has ended, and run again. The lock of a dead one stays: \
    remove it with `datastore state unlock KEY --id ID --url URL`";
const UNSUPPORTED: &str = "nothing was applied; update the datastore";
const OWN_SETTING: &str = "nothing was applied; remove this setting from the backend block, and from -backend-config: the \
    runner sets the variables TF_HTTP_* itself. Then plan again, because a plan contains the settings of its backend";
const OWN_LOCK: &str = "this seems to be the lease of this run itself, under which the tool did not work: write the address of the state in the \
    backend block, without a user and a password, and set no TF_HTTP_* by other means (extra_arguments of terragrunt)";

impl Failure {
    /// Adds who has the lease of the layer instead of this run.
    pub(crate) fn with_lost_lease(mut self, holder: Option<&str>) -> Self {
        if let Some(holder) = holder {
            self.message = format!("{}; {holder}", self.message);
            if self.kind == Kind::Unclassified {
                self.kind = Kind::Locked;
            }
        }
        self
    }

    /// Explains a lock that is the lease of this very run (`own`, as an error names it): the tool did not work under it.
    pub(crate) fn with_own_lock(mut self, own: Option<String>) -> Self {
        if own.is_some_and(|own| self.message.contains(&own)) {
            self.kind = Kind::Config;
            self.hint = Some(OWN_LOCK.to_owned());
        }
        self
    }
}

impl From<&LeaseError> for Failure {
    fn from(error: &LeaseError) -> Self {
        match error {
            LeaseError::Held { holder, .. } => {
                let is_lock = holder.contains("the state is locked");
                Self::new(Kind::Locked, error).with_hint(if is_lock { LOCKED } else { HELD })
            }
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
