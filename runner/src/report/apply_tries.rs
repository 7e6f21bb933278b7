//! The tries of an apply.

use datastore_api::{Attempt, Sha256};
use serde::{Deserialize, Serialize};

use crate::report::Counts;

/// The tries of an apply, as fields of the report.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Retried {
    /// All tries, if there was more than one.
    #[serde(default, skip_serializing_if = "is_single")]
    pub(crate) tries: Vec<ApplyTry>,
    /// The digest of the reviewed plan, of which this attempt has applied what an earlier try had left.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) parent: Option<Sha256>,
}

impl Retried {
    /// What all tries have applied, in words.
    pub(crate) fn applied(&self) -> String {
        let sum =
            |of: fn(&Counts) -> u64| self.tries.iter().map(|one| of(&one.applied)).sum::<u64>();
        let [create, update, delete] =
            [sum(|all| all.create), sum(|all| all.update), sum(|all| all.delete)];
        format!("it had created {create}, updated {update} and deleted {delete}")
    }
}

/// One try of an apply.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct ApplyTry {
    /// The attempt that has its files.
    pub(crate) attempt: Option<Attempt>,
    /// The digest of its plan: of the first try the reviewed one, of each further one a remainder of it. `None`: the tool
    /// planned and applied in one.
    pub(crate) plan: Option<Sha256>,
    /// What its plan changes.
    pub(crate) planned: Option<Counts>,
    /// What it has changed, by the tool's own lines.
    pub(crate) applied: Counts,
    pub(crate) succeeded: bool,
    /// The class of its failure.
    pub(crate) class: Option<String>,
}

/// Whether there is nothing to tell: the document describes a single try itself.
fn is_single(tries: &[ApplyTry]) -> bool {
    tries.len() < 2
}
