//! The changes of a plan, listed once and stored outside of `layers/`, so that the list neither is a file of the attempt nor
//! counts as one.
//!
//! The name of a list identifies the version of `plan.json` that it was made of: the list of a plan that was replaced is not
//! found any more.

use std::time::Duration;

use bytes::Bytes;
use datastore_api::{Attempt, File, PlanFormat, RunKey, Sha256, chain};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use tokio::sync::mpsc;

use crate::changes::{self, UnreadablePlan};
use crate::store::error::{StoreError, backend_error};
use crate::store::handle::Store;
use crate::store::key::{Key, changes_prefix, parse};
use crate::store::object::{ByteStream, Meta};
use crate::store::read::pieces::Pieces;
use crate::store::write::conditions::PutConditions;

/// Pieces of a plan that wait until they are read.
const AHEAD: usize = 4;
/// How long a request waits for memory.
const MEMORY_TIMEOUT: Duration = Duration::from_secs(10);

/// Why the changes of a plan cannot be listed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ChangesError {
    /// `plan.json` is not what a plan is.
    #[error(transparent)]
    Plan(#[from] UnreadablePlan),
    /// There is not enough memory now.
    #[error("too many plans are read at the same time")]
    Busy,
    /// The storage failed, or there is no plan.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl Store {
    /// The key of the list of the changes of a plan. The list may not be stored yet.
    pub(crate) async fn changes_key(
        &self,
        run: &RunKey,
        attempt: Attempt,
    ) -> Result<Key, StoreError> {
        let plan = Key::File(run.clone(), attempt, File::Plan(PlanFormat::Json));
        let version = version(&self.stat(&plan).await?.meta);
        Ok(Key::Changes(run.clone(), attempt, version))
    }

    /// Lists the changes of a plan, and stores the list at its key. Memory is accounted to `tenant`. Of several requests for the
    /// same list, one makes it; the others get `None`.
    pub(crate) async fn list_changes(
        &self,
        key: &Key,
        tenant: &str,
    ) -> Result<Option<Bytes>, ChangesError> {
        let Key::Changes(run, attempt, _) = key else { return Err(StoreError::NotFound.into()) };
        // Another lock than that of the list itself, which its upload takes.
        let plan = Key::File(run.clone(), *attempt, File::Plan(PlanFormat::Json));
        let lock = format!("{}making", changes_prefix(run, *attempt));
        let lock = parse(&lock)?;
        let _making = self.key_lock(&lock).await;
        match self.stat(key).await {
            Ok(_) => return Ok(None),
            Err(StoreError::NotFound) => {}
            Err(error) => return Err(error.into()),
        }
        let _permit = self.plan_reads.acquire().await.map_err(backend_error)?;
        let memory = self.memory.take(&tenant.into(), changes::MEMORY, MEMORY_TIMEOUT).await;
        let _memory = memory.ok_or(ChangesError::Busy)?;
        let (meta, bytes) = self.open_whole(&plan).await?;
        let list = Bytes::from(list(bytes).await?);
        let key = Key::Changes(run.clone(), *attempt, version(&meta));
        if let Err(error) = self.store_list(&key, list.clone()).await {
            let error = chain(&error);
            tracing::warn!(%run, %attempt, error, "the list of the changes of a plan cannot be stored");
        }
        Ok(Some(list))
    }

    /// Stores a list, and removes those of earlier versions of its plan.
    async fn store_list(&self, key: &Key, list: Bytes) -> Result<(), StoreError> {
        let Key::Changes(run, attempt, _) = key else { return Ok(()) };
        let path = key.object_path()?;
        self.put(key, PutConditions::default(), stream::iter([Ok(list)])).await?;
        let mut others = self.list(&changes_prefix(run, *attempt))?;
        while let Some(other) = others.try_next().await? {
            if other.key != path.as_ref() {
                self.delete(&other.key).await?;
            }
        }
        Ok(())
    }
}

/// A digest that identifies one version of a plan, and the version of the list.
fn version(plan: &Meta) -> Sha256 {
    let version = match plan.sha256.or(plan.recorded) {
        Some(sha256) => sha256.to_string(),
        None => format!("{} {}", plan.etag, plan.size),
    };
    Sha256::of(format!("{} {version}", changes::VERSION).as_bytes())
}

/// Reads a plan on another thread, while it streams in.
async fn list(mut plan: ByteStream) -> Result<Vec<u8>, ChangesError> {
    let (sender, receiver) = mpsc::channel(AHEAD);
    let listing = tokio::task::spawn_blocking(move || changes::list(Pieces::new(receiver)));
    let mut passed = Ok(());
    while let Some(piece) = plan.next().await {
        match piece {
            Ok(piece) => {
                // A reader that has found an error reads no further.
                if sender.send(piece).await.is_err() {
                    break;
                }
            }
            Err(error) => {
                passed = Err(error);
                break;
            }
        }
    }
    drop(sender);
    let listed = listing.await.map_err(backend_error)?;
    // After an error of the storage, the bytes before it must not be used.
    passed?;
    Ok(listed?)
}
