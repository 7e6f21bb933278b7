//! The changes of a plan, listed once and stored outside of `layers/`, so that the list neither is a file of the attempt nor
//! counts as one.
//!
//! The name of a list identifies the version of `plan.json` that it was made of: the list of a plan that was replaced is not
//! found any more.

use std::time::Duration;

use bytes::Bytes;
use datastore_api::{Attempt, File, PlanFormat, RunKey, Sha256, chain};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use object_store::path::Path;
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout_at};

use crate::changes::{self, UnreadablePlan};
use crate::store::admin::verify::Verdict;
use crate::store::error::{StoreError, backend_error};
use crate::store::handle::Store;
use crate::store::key::{Key, changes_prefix, parse};
use crate::store::object::{ByteStream, Meta};
use crate::store::read::pieces::Pieces;
use crate::store::write::conditions::PutConditions;

/// Pieces of a plan that wait until they are read.
const AHEAD: usize = 4;
/// How long a request waits until its plan is read: for others of its caller, for those of all callers, and for memory.
const WAIT: Duration = Duration::from_secs(15);

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
        if let Some(error) = self.unreadable_plans.find(key) {
            return Err(error.into());
        }
        let deadline = Instant::now() + WAIT;
        let wait = |_| ChangesError::Busy;
        // One plan of each caller at a time: a caller that asks for many leaves the other place free.
        let _turn = timeout_at(deadline, self.key_lock(&turn_of(tenant))).await.map_err(wait)?;
        // Another lock than that of the list itself, which its upload takes.
        let plan = Key::File(run.clone(), *attempt, File::Plan(PlanFormat::Json));
        let lock = format!("{}making", changes_prefix(run, *attempt));
        let lock = parse(&lock)?;
        let _making = timeout_at(deadline, self.key_lock(&lock)).await.map_err(wait)?;
        match self.stat(key).await {
            Ok(_) if !self.delete_damaged_list(key).await? => return Ok(None),
            Ok(_) | Err(StoreError::NotFound) => {}
            Err(error) => return Err(error.into()),
        }
        if let Some(error) = self.unreadable_plans.find(key) {
            return Err(error.into());
        }
        let permit = timeout_at(deadline, self.plan_reads.acquire()).await.map_err(wait)?;
        let _permit = permit.map_err(backend_error)?;
        let left = deadline.saturating_duration_since(Instant::now());
        let memory = self.memory.take(&tenant.into(), changes::MEMORY, left).await;
        let _memory = memory.ok_or(ChangesError::Busy)?;
        let (meta, bytes) = self.open_whole(&plan).await?;
        let key = Key::Changes(run.clone(), *attempt, version(&meta));
        let list = list(bytes).await.inspect_err(|error| {
            if let ChangesError::Plan(error) = error {
                self.unreadable_plans.add(key.clone(), error.clone());
            }
        });
        let list = Bytes::from(list?);
        if let Err(error) = self.store_list(&key, list.clone()).await {
            let error = chain(&error);
            tracing::warn!(%run, %attempt, error, "the list of the changes of a plan cannot be stored");
        }
        Ok(Some(list))
    }

    /// Deletes a stored list whose bytes are not those that were stored: it can be made again. Returns whether it was one.
    async fn delete_damaged_list(&self, key: &Key) -> Result<bool, StoreError> {
        let path = key.object_path()?;
        let is_damaged = self.verify(path.as_ref()).await? == Verdict::Changed;
        if is_damaged {
            tracing::warn!(%path, "the list of the changes of a plan is damaged, and is made again");
            self.delete(path.as_ref()).await?;
        }
        Ok(is_damaged)
    }

    /// Does so in the background, after a list could not be read to its end.
    pub(crate) fn check_list_later(&self, key: &Key) {
        let (store, key) = (self.clone(), key.clone());
        self.uploads.spawn(async move {
            if let Err(error) = store.delete_damaged_list(&key).await {
                let error = chain(&error);
                tracing::warn!(error, "a list of the changes of a plan cannot be verified");
            }
        });
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

/// What the requests of one caller lock: the path of no object.
fn turn_of(tenant: &str) -> Path {
    Path::from_iter([".plancha", "plan-readers", tenant])
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
                // A reader that has found an error reads no further, but the rest is verified: damage looks like an error.
                let _read = sender.send(piece).await;
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::Storage;

    async fn stored(store: &Store, run: &str, plan: &'static [u8]) -> Key {
        let name = |text: &str| text.parse().unwrap();
        let run = RunKey { namespace: name("a"), layer: name("b"), run: run.parse().unwrap() };
        let key = Key::File(run.clone(), Attempt(0), File::Plan(PlanFormat::Json));
        let body = stream::iter([Ok(Bytes::from_static(plan))]);
        store.put(&key, PutConditions::default(), body).await.unwrap();
        store.changes_key(&run, Attempt(0)).await.unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn a_caller_whose_plan_is_not_read_in_time_is_refused_and_delays_no_other() {
        let store = Store::open(&Storage::Memory).unwrap();
        let key = stored(&store, "r", br#"{"format_version": "1.2"}"#).await;
        let is_busy = |listed| matches!(listed, Err(ChangesError::Busy));
        let turn = store.key_lock(&turn_of("many/plans")).await;
        let (waits, passes) =
            tokio::join!(store.list_changes(&key, "many/plans"), store.list_changes(&key, "other"));
        assert!(is_busy(waits));
        assert!(passes.unwrap().is_some(), "the list was made");
        drop(turn);

        let key = stored(&store, "other", br#"{"format_version": "1.2"}"#).await;
        let all = store.plan_reads.acquire_many(2).await.unwrap();
        assert!(is_busy(store.list_changes(&key, "other").await));
        drop(all);
        assert!(store.list_changes(&key, "other").await.unwrap().is_some());
    }
}
