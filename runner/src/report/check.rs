//! What a check or converge reports of the layer: how it differs from its code, and what the policy says of that.

use std::collections::BTreeMap;

use datastore_api::Sha256;
use datastore_api::status::{Condition, ListedChange};
use serde::{Deserialize, Serialize};

use crate::process::redact::Redaction;

/// The result of a check.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct CheckReport {
    /// How the layer differs from its code.
    pub(crate) status: Condition,
    /// Whether the policy allows the plan, or it was approved.
    pub(crate) allowed: bool,
    /// The number of changes by action.
    pub(crate) counts: BTreeMap<String, u64>,
    /// The changes.
    pub(crate) changes: Vec<ListedChange>,
    /// What no approval lifts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) denials: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) warnings: Vec<String>,
    /// The digest of the set of destructive changes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) destructive_sha256: Option<Sha256>,
    /// The digest by which this set can be approved once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) approval: Option<Sha256>,
    /// Until when.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) approval_expires: Option<String>,
    /// The approval that the apply has used up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) used_approval: Option<UsedApproval>,
    /// The digest of the policy.
    pub(crate) policy_sha256: Sha256,
    /// The size in bytes of the state of which the plan was made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) state_bytes: Option<u64>,
}

impl CheckReport {
    /// Masks the secrets in what is for people: an address may have one as its key.
    pub(crate) fn mask(&mut self, redaction: &Redaction) {
        let changes = self.changes.iter_mut();
        let texts = changes.flat_map(|change| [Some(&mut change.address), change.refused.as_mut()]);
        let texts = texts.flatten().chain(&mut self.denials).chain(&mut self.warnings);
        texts.for_each(|text| redaction.mask(text));
    }
}

/// An approval that was used up.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct UsedApproval {
    pub(crate) digest: Sha256,
    /// Who has called the datastore; none with `--auto-approve`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) by: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) at: Option<String>,
}
