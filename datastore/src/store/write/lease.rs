//! Which of several replicas creates an object, where the storage refuses to create small objects twice but cannot do
//! so when a multipart upload is completed: on Azure, and on servers that ignore or refuse the condition. Until a probe
//! has seen whether it can, the completion under a lease has the condition too: another replica may rely on the condition
//! alone. A server that refuses the condition as such is then asked without it.
//!
//! A caller creates a small object, the lease. Then it checks whether the object exists, creates it if not, and deletes the
//! lease. A lease that a killed process has left is taken over once it is older than any completion; of several callers
//! that try, the storage lets one replace that version of the lease. Where the probe has seen that the storage cannot do
//! this, the lease stays until it is swept, and creations of its object are refused until then.

use std::time::Duration;

use bytes::Bytes;
use datastore_api::chain;
use jiff::SignedDuration;
use object_store::path::Path;
use object_store::{Error, ObjectStoreExt as _, PutMode, PutOptions, UpdateVersion};
use tokio::time::{Instant, sleep};

use crate::store::error::{StoreError, backend_error};
use crate::store::handle::Store;
use crate::store::key::{LEASES, parse, random};
use crate::store::object::timestamp;
use crate::store::write::conditions::{Existing, PutConditions};
use crate::store::write::upload::Received;

/// A lease of this age is abandoned: a completion has 10 minutes.
const ABANDONED_AFTER: SignedDuration = SignedDuration::from_mins(12);
/// A caller that has held a lease for longer before its completion must not complete.
const COMPLETE_WITHIN: Duration = Duration::from_mins(1);
/// A lease that was held for longer may have been taken over, and is not deleted.
const RELEASE_WITHIN: Duration = Duration::from_mins(11);
/// How long to wait for the lease of another caller.
const MAX_WAIT: Duration = Duration::from_secs(15);
/// The interval of the checks.
const POLL_INTERVAL: Duration = Duration::from_millis(250);

/// The right to create one object.
#[derive(Debug)]
pub(in crate::store) struct Lease {
    lease_path: Path,
    since: Instant,
}

/// Whether this caller may create an object.
#[derive(Debug)]
pub(in crate::store) enum CreateRight {
    /// It may: with a lease, where one is needed.
    Granted(Option<Lease>),
    /// It need not, because an object exists.
    AlreadyExists(Existing),
}

/// The result of an attempt to acquire a lease.
#[derive(Debug, PartialEq)]
enum LeaseState {
    Ours,
    HeldByOther,
    /// Left by a process that has ended, in a storage that cannot replace it.
    Stuck,
}

impl Lease {
    /// Whether there is enough time left for a completion.
    pub(in crate::store) fn is_fresh(&self) -> bool {
        self.since.elapsed() < COMPLETE_WITHIN
    }
}

impl Store {
    /// Whether leases decide who creates, also until a probe has seen whether the storage can.
    fn needs_lease(&self) -> bool {
        self.backend.provider.is_some()
            && self.creates() != Some(false)
            && !self.creates_multiparts()
    }

    /// Acquires the right to create an object, if `conditions` require a creation.
    pub(in crate::store) async fn acquire_create_right(
        &self,
        path: &Path,
        conditions: PutConditions,
        received: &Received,
    ) -> Result<CreateRight, StoreError> {
        if !conditions.create || !self.needs_lease() {
            return Ok(CreateRight::Granted(None));
        }
        let lease_path = parse(&format!("{LEASES}{path}"))?;
        let id = Bytes::from(format!("{:016x}{:016x}", random(), random()));
        let until = Instant::now() + MAX_WAIT;
        loop {
            let since = Instant::now();
            let state = self.acquire(&lease_path, &id).await?;
            if let LeaseState::Ours = state {
                return Ok(CreateRight::Granted(Some(Lease { lease_path, since })));
            }
            match self.existing(path, received).await? {
                Existing::Absent => {}
                there => return Ok(CreateRight::AlreadyExists(there)),
            }
            if let LeaseState::Stuck = state {
                tracing::warn!(
                    %lease_path,
                    "a process that has ended left this object, and the storage cannot replace it: creations beside it \
                     get 503 until it is removed, a day after it was written. To allow them now, delete it"
                );
            }
            if matches!(state, LeaseState::Stuck) || Instant::now() >= until {
                return Err(StoreError::Undecided);
            }
            sleep(POLL_INTERVAL).await;
        }
    }

    /// Releases a lease.
    pub(in crate::store) async fn release(&self, lease: Option<Lease>) {
        let Some(Lease { lease_path, since }) = lease else { return };
        if since.elapsed() >= RELEASE_WITHIN {
            return;
        }
        if let Err(error) = self.remove(&lease_path).await {
            let error = chain(&error);
            tracing::warn!(%lease_path, error, "creations of this object wait until this is old");
        }
    }

    async fn acquire(&self, lease_path: &Path, id: &Bytes) -> Result<LeaseState, StoreError> {
        let put = self.put_lease(lease_path, id, PutMode::Create).await;
        if put.is_ok() {
            return Ok(LeaseState::Ours);
        }
        let (version, is_old) = match self.objects.get(lease_path).await {
            // It was released meanwhile, unless the put failed for another reason.
            Err(Error::NotFound { .. }) => {
                return match put {
                    Err(error) if !is_held(&error) => Err(backend_error(error)),
                    _ => Ok(LeaseState::HeldByOther),
                };
            }
            found => {
                let found = found?;
                let (e_tag, version) = (found.meta.e_tag.clone(), found.meta.version.clone());
                let age =
                    self.storage_clock().map(|now| now.duration_since(timestamp(&found.meta)));
                let is_old = age.is_some_and(|age| age > ABANDONED_AFTER);
                // A failed put may have succeeded on the server.
                if found.bytes().await? == *id {
                    return Ok(LeaseState::Ours);
                }
                (UpdateVersion { e_tag, version }, is_old)
            }
        };
        match self.updates() {
            Some(true) if is_old => {}
            Some(false) if is_old => return Ok(LeaseState::Stuck),
            _ => return Ok(LeaseState::HeldByOther),
        }
        match self.put_lease(lease_path, id, PutMode::Update(version)).await {
            Ok(()) => {
                tracing::info!(%lease_path, "took over from a process that has ended");
                Ok(LeaseState::Ours)
            }
            Err(error) if is_held(&error) => Ok(LeaseState::HeldByOther),
            Err(Error::NotFound { .. }) => Ok(LeaseState::HeldByOther),
            Err(error) => Err(backend_error(error)),
        }
    }

    async fn put_lease(
        &self,
        lease_path: &Path,
        id: &Bytes,
        mode: PutMode,
    ) -> object_store::Result<()> {
        let options = PutOptions { mode, ..PutOptions::default() };
        self.objects.put_opts(lease_path, id.clone().into(), options).await.map(drop)
    }
}

/// Whether a put failed because another was there first.
fn is_held(error: &Error) -> bool {
    matches!(error, Error::AlreadyExists { .. } | Error::Precondition { .. })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use object_store::memory::InMemory;

    use super::*;
    use crate::store::backend::metered::Calls;
    use crate::store::backend::storage::Backend;
    use crate::store::handle::Inner;

    #[tokio::test]
    async fn an_old_lease_is_stuck_only_where_the_storage_is_known_not_to_replace_it() {
        let lease_path = Path::from("lease");
        for (updates, expected) in [
            (None, LeaseState::HeldByOther),
            (Some(false), LeaseState::Stuck),
            (Some(true), LeaseState::Ours),
        ] {
            let objects = Arc::new(InMemory::new());
            objects.put(&lease_path, "a process that has ended".into()).await.unwrap();
            let store = Store(Arc::new(Inner::new(objects, Backend::memory(), Calls::default())));
            store.health.state(|state| {
                state.support.updates = updates;
                // By the storage's clock, the lease is 13 minutes old.
                state.skew = Some(-13 * 60);
            });
            let state = store.acquire(&lease_path, &Bytes::from_static(b"ours")).await.unwrap();
            assert_eq!(state, expected);
        }
    }
}
