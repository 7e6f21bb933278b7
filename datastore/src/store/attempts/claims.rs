//! Claims of attempt numbers: small objects outside of `layers/`, created conditionally.
//!
//! No listing of a run's files contains a claim, so an attempt that is only claimed is never the latest, neither on
//! Burrito's routes nor for Burrito's datastore over the same bucket. Its content is the random id of the claim: a retry of
//! the same claim succeeds.

use bytes::Bytes;
use datastore_api::{Attempt, ClaimId, RunKey};
use futures::TryStreamExt as _;
use object_store::path::Path;
use object_store::{ObjectStoreExt as _, PutOptions};

use crate::store::backend::metered::{STAT_TIMEOUT, in_time, put_timeout};
use crate::store::error::{StoreError, backend_error};
use crate::store::handle::Store;
use crate::store::key::parse;
use crate::store::object::Object;

/// Prefix of all claims.
pub const CLAIMS: &str = ".plancha/claims/";

/// A claimed attempt.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Claim {
    /// The run as in the paths of its files: `<namespace>/<layer>/<run>`.
    pub run: String,
    /// Its attempt.
    pub attempt: Attempt,
}

impl Claim {
    /// Parses the path of a claim; `None` if the object is not a claim.
    pub fn of(object: &Object) -> Option<Self> {
        let (run, attempt) = object.key.strip_prefix(CLAIMS)?.rsplit_once('/')?;
        Some(Self { run: run.to_owned(), attempt: attempt.parse().ok()? })
    }
}

impl Store {
    /// Claims an attempt; [`StoreError::Claimed`] if another claim has it.
    ///
    /// Where the backend cannot create conditionally, only claims of this process exclude each other.
    pub async fn claim(
        &self,
        run: &RunKey,
        attempt: Attempt,
        claim: &ClaimId,
    ) -> Result<(), StoreError> {
        let path = parse(&format!("{CLAIMS}{run}/{attempt}"))?;
        let _key_lock = self.key_lock(&path).await;
        if self.creates() != Some(true)
            && let Some(holder) = self.holder(&path).await?
        {
            return check_holder(&holder, claim);
        }
        // Conditional even before a probe has seen that the backend honours it: a claim of another process must not be
        // overwritten.
        let mode = self.creation_mode();
        let bytes = Bytes::copy_from_slice(claim.as_ref().as_bytes());
        let options = PutOptions { mode, ..PutOptions::default() };
        let put = self.objects.put_opts(&path, bytes.into(), options);
        let error = match in_time(put_timeout(0), "claim the attempt", put).await {
            Ok(Ok(_)) => return Ok(()),
            Ok(Err(error)) => backend_error(error),
            Err(late) => backend_error(late),
        };
        // A failed put may have succeeded on the server: the stored claim decides.
        match self.holder(&path).await? {
            Some(holder) => check_holder(&holder, claim),
            None => Err(error),
        }
    }

    async fn holder(&self, path: &Path) -> Result<Option<Bytes>, StoreError> {
        let read = async {
            match self.objects.get(path).await {
                Err(object_store::Error::NotFound { .. }) => Ok(None),
                found => Ok(Some(found?.bytes().await?)),
            }
        };
        in_time(STAT_TIMEOUT, "read the claim", read).await.map_err(backend_error)?
    }

    /// The attempts of a run that are claimed, in no order.
    pub(in crate::store) async fn claimed(&self, run: &RunKey) -> Result<Vec<Attempt>, StoreError> {
        let claims = self.list(&format!("{CLAIMS}{run}/"))?;
        let run = run.to_string();
        let attempts = claims.try_filter_map(|object| {
            let claim = Claim::of(&object).filter(|claim| claim.run == run);
            std::future::ready(Ok(claim.map(|claim| claim.attempt)))
        });
        attempts.try_collect().await
    }
}

fn check_holder(holder: &[u8], claim: &ClaimId) -> Result<(), StoreError> {
    if holder == claim.as_ref().as_bytes() { Ok(()) } else { Err(StoreError::Claimed) }
}
