//! Leases of layers: taken, renewed and released, with their credentials.

use aws_lc_rs::rand;
use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use datastore_api::state::{GrantedLease, Lease, LeaseRequest};
use datastore_api::{ClaimId, Name, Sha256, chain};
use jiff::Timestamp;
use tokio::time::timeout;

use crate::store::backend::metered::STAT_TIMEOUT;
use crate::store::error::backend_error;
use crate::store::handle::Store;
use crate::store::state::LayerKey;
use crate::store::state::control::Control;
use crate::store::state::control::held::HeldLease;
use crate::store::state::credential::{
    CREDENTIAL_TTL, Credential, CredentialHolder, FormerLease, MAX_FORMER,
};
use crate::store::state::error::StateError;

/// The beginning of every credential, which the tokens of callers do not have.
pub(crate) const CREDENTIAL: &str = "plancha-lease-";

/// The random bytes of a credential.
const SECRET: usize = 32;

impl Store {
    /// Takes the lease of a layer. With a workspace, it has a credential for that state.
    pub async fn take_lease(
        &self,
        layer: &LayerKey,
        workspace: Option<&Name>,
        id: &ClaimId,
        request: &LeaseRequest,
        caller: Option<String>,
    ) -> Result<GrantedLease, StateError> {
        let secret = workspace.map(|_| new_credential()).transpose()?;
        let credential = workspace.zip(secret.as_ref()).map(|(workspace, secret)| Credential {
            sha256: Sha256::of(secret.as_bytes()),
            workspace: workspace.to_string(),
        });
        let ttl = self.lease_ttl();
        let lease = self
            .change_control(layer, |control, now| {
                let lease = HeldLease {
                    id: id.to_string(),
                    number: 0,
                    request: request.clone(),
                    caller: caller.clone(),
                    acquired: now,
                    renewed: now,
                    expires: now.saturating_add(ttl).unwrap_or(now),
                    took_over: None,
                    credential: credential.clone(),
                };
                Ok((control.take_lease(lease, now)?, now))
            })
            .await?;
        let (lease, now) = lease;
        if let Some(dead) = &lease.took_over {
            tracing::warn!(layer = %format_args!("{}/{}", layer.namespace, layer.layer), dead, number = lease.number, "an expired lease was taken over");
        }
        Ok(GrantedLease { lease: shown(&lease, now), credential: secret })
    }

    /// Renews a lease.
    pub async fn renew_lease(
        &self,
        layer: &LayerKey,
        id: &ClaimId,
    ) -> Result<GrantedLease, StateError> {
        let ttl = self.lease_ttl();
        let lease = self
            .change_control(layer, |control, now| {
                let expires = now.saturating_add(ttl).unwrap_or(now);
                Ok(shown(&control.renew_lease(id.as_ref(), expires, now)?, now))
            })
            .await?;
        Ok(GrantedLease { lease, credential: None })
    }

    /// Releases a lease. One that is not held any more is no error.
    pub async fn release_lease(&self, layer: &LayerKey, id: &ClaimId) -> Result<(), StateError> {
        self.change_control(layer, |control, _| {
            control.release_lease(id.as_ref());
            Ok(())
        })
        .await
    }

    /// The lease of a layer, also an expired one.
    pub async fn layer_lease(&self, layer: &LayerKey) -> Result<Option<Lease>, StateError> {
        let now = self.state_clock();
        Ok(self.control(layer).await?.lease.map(|lease| shown(&lease, now)))
    }

    /// Whose credential for the state of a workspace, or for any state of the layer, this is. Anybody may ask, so a layer without a
    /// readable control object has no holder, whatever else there is, and only some ask the storage at a time.
    pub(crate) async fn credential_holder(
        &self,
        layer: &LayerKey,
        workspace: Option<&Name>,
        sha256: Sha256,
    ) -> Result<Option<CredentialHolder>, StateError> {
        self.check_states_allowed().await?;
        let permit = timeout(STAT_TIMEOUT, self.credential_reads.acquire()).await;
        let _permit = permit.map_err(backend_error)?.map_err(backend_error)?;
        let control = match self.read_control(&layer.control_path()?).await {
            Ok((control, _)) => control,
            Err(damaged @ StateError::Damaged(_)) => {
                tracing::error!(error = chain(&damaged), "the credential of a lease is not known");
                return Ok(None);
            }
            Err(error) => return Err(error),
        };
        Ok(control.holder(workspace.map(Name::as_ref), sha256, self.state_clock()))
    }
}

impl Control {
    /// Whose password for the state of a workspace, or for any state, this is. That of a lease that was taken over is known
    /// as long as it would have been valid, so that a late write is refused and kept.
    pub(super) fn holder(
        &self,
        workspace: Option<&str>,
        sha256: Sha256,
        now: Timestamp,
    ) -> Option<CredentialHolder> {
        let is_theirs = |credential: &Credential, renewed: Timestamp| {
            let lasts = renewed.checked_add(CREDENTIAL_TTL).is_ok_and(|end| now < end);
            let is_of = workspace.is_none_or(|workspace| workspace == credential.workspace);
            lasts && is_of && credential.sha256 == sha256
        };
        let of = |number, caller: &Option<String>, is_present| {
            let caller = caller.clone().unwrap_or_default();
            CredentialHolder { caller, number, is_present }
        };
        let present = self.lease.as_ref().filter(|lease| lease.number == self.fence);
        let present = present.filter(|lease| {
            lease.credential.as_ref().is_some_and(|known| is_theirs(known, lease.renewed))
        });
        if let Some(HeldLease { number, caller, .. }) = present {
            return Some(of(*number, caller, true));
        }
        let mut former = self.former.iter().rev();
        let former = former.find(|lease| is_theirs(&lease.credential, lease.renewed))?;
        Some(of(former.number, &former.caller, false))
    }

    /// Ends a lease that has expired, because another takes over.
    pub(super) fn end_expired(&mut self) -> Option<HeldLease> {
        let lease = self.lease.take()?;
        self.mark_locks(&lease, lease.expires);
        if let Some(credential) = &lease.credential {
            let HeldLease { number, renewed, .. } = lease;
            let (caller, run) = (lease.caller.clone(), lease.request.run.clone());
            let credential = credential.clone();
            self.former.push(FormerLease { number, caller, run, renewed, credential });
            self.former.drain(..self.former.len().saturating_sub(MAX_FORMER));
        }
        Some(lease)
    }

    /// Records in the locks of a lease that it has ended, and whose it was: nothing else knows it later.
    pub(super) fn mark_locks(&mut self, lease: &HeldLease, ended: Timestamp) {
        let locks = self.states.values_mut().filter_map(|state| state.lock.as_mut());
        for lock in locks.filter(|lock| lock.fence == Some(lease.number)) {
            lock.ended = Some((ended, lease.described()));
        }
    }
}

/// Whether a text has the form of a credential.
pub(crate) fn is_credential(text: &str) -> bool {
    let secret = text.strip_prefix(CREDENTIAL).map(|text| BASE64_URL_SAFE_NO_PAD.decode(text));
    matches!(secret, Some(Ok(secret)) if secret.len() == SECRET)
}

fn new_credential() -> Result<String, StateError> {
    let mut bytes = [0; SECRET];
    rand::fill(&mut bytes).map_err(|_| backend_error("no random number"))?;
    Ok(format!("{CREDENTIAL}{}", BASE64_URL_SAFE_NO_PAD.encode(bytes)))
}

/// As callers see it.
pub(super) fn shown(lease: &HeldLease, now: Timestamp) -> Lease {
    Lease {
        number: lease.number,
        request: lease.request.clone(),
        caller: lease.caller.clone(),
        acquired: lease.acquired.to_string(),
        renewed: lease.renewed.to_string(),
        expires: lease.expires.to_string(),
        valid: lease.is_valid(now),
        took_over: lease.took_over.clone(),
    }
}
