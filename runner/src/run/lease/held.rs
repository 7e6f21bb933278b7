//! What a run knows of its lease.

use std::time::Instant;

use datastore_api::state::StateKey;
use datastore_api::{ClaimId, ClientError, Name};
use jiff::Timestamp;
use secrecy::SecretString;

use crate::run::lease::own_file::OwnFile;
use crate::run::lease::renewal::Renewal;

/// The lease of a run.
#[derive(Debug, Default)]
pub(crate) enum RunLease {
    /// It needs none, or has not taken it yet.
    #[default]
    None,
    Held(Box<HeldLease>),
    /// The datastore has no leases. The run goes on unless it keeps the state.
    Unsupported,
    /// The caller may not take it. The run goes on likewise.
    Refused(Box<ClientError>),
}

/// A lease that this run holds.
#[derive(Debug)]
pub(crate) struct HeldLease {
    pub(super) namespace: Name,
    pub(super) layer: Name,
    pub(super) id: ClaimId,
    pub(super) number: u64,
    /// The workspace whose state the credential is for.
    pub(super) workspace: Name,
    pub(super) credential: Option<SecretString>,
    pub(super) file: Option<OwnFile>,
    /// The datastore's time when it granted the lease, and the moment at which that was known here.
    pub(super) clock: Option<(Timestamp, Instant)>,
    pub(super) renewal: Renewal,
}

impl RunLease {
    /// The lease, if it was granted.
    pub(crate) fn held(&self) -> Option<&HeldLease> {
        match self {
            Self::Held(lease) => Some(lease),
            _ => None,
        }
    }
}

impl HeldLease {
    /// Its fencing number.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// The time of the datastore, whose times say when a lease has ended. That of this machine may differ.
    pub(super) fn now(&self) -> Timestamp {
        let since = self.clock.and_then(|(time, moment)| time.checked_add(moment.elapsed()).ok());
        since.unwrap_or_else(Timestamp::now)
    }

    /// The password for this state, if the caller may use it: it outlives the caller's token.
    pub(crate) fn credential(&self, key: &StateKey) -> Option<&SecretString> {
        let is_ours = self.is_of(key) && key.workspace == self.workspace;
        self.credential.as_ref().filter(|_| is_ours)
    }

    /// Who has the layer instead, if the lease is lost.
    pub(crate) fn lost(&self) -> Option<&str> {
        self.renewal.lost()
    }

    /// Whether it is the lease of the layer of this state.
    pub(super) fn is_of(&self, key: &StateKey) -> bool {
        (&self.namespace, &self.layer) == (&key.namespace, &key.layer)
    }
}
