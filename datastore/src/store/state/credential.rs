//! Credentials of leases, and what is known of a lease that has ended.

use datastore_api::Sha256;
use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

/// So many leases are known after they were taken over.
pub(super) const MAX_FORMER: usize = 4;

/// How long the credential of a lease is valid after the lease was renewed last.
pub(super) const CREDENTIAL_TTL: SignedDuration = SignedDuration::from_hours(24);

/// A password for one state that belongs to a lease.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::store) struct Credential {
    pub(super) sha256: Sha256,
    pub(super) workspace: String,
}

/// A lease that another took over. Its credential still says who a late writer is: what it writes is refused, and kept.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::store) struct FormerLease {
    pub(super) number: u64,
    pub(super) caller: Option<String>,
    pub(super) run: Option<String>,
    pub(super) renewed: Timestamp,
    pub(super) credential: Credential,
}

/// Whose credential a caller has shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CredentialHolder {
    /// The caller that took the lease; empty if callers are not authenticated.
    pub(crate) caller: String,
    /// The number of the lease, under which the caller writes whatever number it sends.
    pub(crate) number: u64,
    /// Whether the lease was not taken over.
    pub(crate) is_present: bool,
}
