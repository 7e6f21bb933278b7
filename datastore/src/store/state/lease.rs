//! Leases of layers: taken, renewed and released, with their credentials.

use aws_lc_rs::rand;
use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use datastore_api::state::{GrantedLease, Lease, LeaseRequest};
use datastore_api::{ClaimId, Name, Sha256, StateKey};
use jiff::Timestamp;

use crate::store::error::backend_error;
use crate::store::handle::Store;
use crate::store::state::LayerKey;
use crate::store::state::control::{Credential, HeldLease};
use crate::store::state::error::StateError;

/// The beginning of every credential, by which it is told from the tokens of callers.
pub(crate) const CREDENTIAL: &str = "plancha-lease-";

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
        let now = self.state_clock()?;
        Ok(self.control(layer).await?.lease.map(|lease| shown(&lease, now)))
    }

    /// Whether this is the credential of the present lease for a state: then the name of the caller that took it.
    pub(crate) async fn credential_holder(
        &self,
        key: &StateKey,
        sha256: Sha256,
    ) -> Result<Option<String>, StateError> {
        let control = self.control(&key.into()).await?;
        Ok(control.accepts(key.workspace.as_ref(), sha256, self.state_clock()?))
    }
}

fn new_credential() -> Result<String, StateError> {
    let mut bytes = [0; 32];
    rand::fill(&mut bytes).map_err(|_| backend_error("no random number"))?;
    Ok(format!("{CREDENTIAL}{}", BASE64_URL_SAFE_NO_PAD.encode(bytes)))
}

fn shown(lease: &HeldLease, now: Timestamp) -> Lease {
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
