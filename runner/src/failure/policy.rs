//! Policies that cannot be used, and what a policy or a missing approval refuses.

use crate::failure::{Failure, Kind};
use crate::policy::PolicyError;
use crate::run::check::error::CheckError;

/// What to do about a policy that does not work.
const REGO: &str =
    "correct the policy; `runner policy test` tries it, and docs/policy.md says what Rego may use";

/// What to do about a program that refuses an apply.
const VETOED: &str = "its output says why; apply again when its reason is gone";
/// What to do about a check beside applies.
const STATE_MOVED: &str = "check again when no other run works with this layer";

impl From<&CheckError> for Failure {
    fn from(error: &CheckError) -> Self {
        match error {
            CheckError::Policy(cause) => cause.into(),
            CheckError::StateMoved => Self::new(Kind::Locked, error).with_hint(STATE_MOVED),
            CheckError::Vetoed { .. } => Self::new(Kind::Refused, error).with_hint(VETOED),
            CheckError::NotApproved { hint, .. } => Self::new(Kind::Refused, error).with_hint(hint),
        }
    }
}

impl From<&PolicyError> for Failure {
    fn from(error: &PolicyError) -> Self {
        match error {
            PolicyError::Read(..) => Self::new(Kind::Config, error)
                .with_hint("name a file or directory that the user of the run can read"),
            PolicyError::InSource { .. } => Self::new(Kind::Config, error).with_hint(
                "keep the policy in another place, or accept it with --policy-from-source",
            ),
            PolicyError::File { .. } => Self::new(Kind::Config, error).with_hint(
                "name a file of rules (.yaml, .yml, .json), a file of Rego (.rego), or a directory of Rego",
            ),
            PolicyError::Rules { .. } => Self::new(Kind::Config, error)
                .with_hint("correct this line; docs/policy.md has all keys of a file of rules"),
            PolicyError::Output(..) => Self::new(Kind::Config, error)
                .with_hint("name an output, or a part of its value: `cluster` or `cluster.zones`"),
            PolicyError::UnusedData => Self::new(Kind::Config, error)
                .with_hint("name the policy with --policy, or leave --policy-data out"),
            PolicyError::Rego(_) => Self::new(Kind::Config, error).with_hint(REGO),
            PolicyError::Worker(_) => Self::new(Kind::Config, error).with_hint(
                "simplify the policy: it has 10 s and 256 MiB for a plan, with its data and the plan",
            ),
            PolicyError::Plan(_) | PolicyError::PlanFile(_) => {
                Self::new(Kind::Unclassified, error).with_hint(
                    "name the output of `show -json` of a saved plan, and update the runner if its format is newer",
                )
            }
        }
    }
}
