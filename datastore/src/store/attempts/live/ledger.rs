//! The ledger of an apply: beside the live log until its attempt has one of Burrito's plan files, so that an attempt that still
//! works is not the latest one for Burrito. Then it is a file of the attempt.

use datastore_api::{Attempt, File, PlanFormat, RunKey};
use futures::TryStreamExt as _;

use crate::store::error::{StoreError, backend_error};
use crate::store::handle::Store;
use crate::store::key::{Key, LivePart, run_prefix};
use crate::store::write::conditions::PutConditions;

/// The name of a ledger among the files of an attempt.
pub(in crate::store) const LEDGER: &str = "ledger.json";

impl Store {
    /// Where a file of an attempt is to be stored. A ledger beside the live log becomes a file of its attempt first, once that is its
    /// place: a condition is about what is stored already.
    pub(crate) async fn key_to_store(&self, key: Key) -> Result<Key, StoreError> {
        match &key {
            Key::File(run, attempt, file) if file.name() == LEDGER => {
                let beside = Key::Live(run.clone(), *attempt, LivePart::Ledger);
                if !self.has_plan_file_or_ledger(run, *attempt).await? {
                    return Ok(beside);
                }
                self.move_ledger(&beside, &key).await?;
                Ok(key)
            }
            _ => Ok(key),
        }
    }

    async fn move_ledger(&self, from: &Key, to: &Key) -> Result<(), StoreError> {
        let bytes = match self.open_whole(from).await {
            Err(StoreError::NotFound) => return Ok(()),
            opened => opened?.1,
        };
        let conditions = PutConditions { create: true, ..PutConditions::default() };
        match self.put(to, conditions, bytes.map_err(Into::into)).await {
            Ok(_) | Err(StoreError::Exists) => self.delete(from.object_path()?.as_ref()).await,
            // The body is not a caller's, but read from the storage.
            Err(StoreError::Upload(error)) => Err(backend_error(error)),
            Err(error) => Err(error),
        }
    }

    /// Where a file of an attempt is read.
    pub(crate) async fn key_to_read(&self, key: Key) -> Result<Key, StoreError> {
        match &key {
            Key::File(run, attempt, file) if file.name() == LEDGER => match self.stat(&key).await {
                Err(StoreError::NotFound) => Ok(Key::Live(run.clone(), *attempt, LivePart::Ledger)),
                _ => Ok(key),
            },
            _ => Ok(key),
        }
    }

    async fn has_plan_file_or_ledger(
        &self,
        run: &RunKey,
        attempt: Attempt,
    ) -> Result<bool, StoreError> {
        let prefix = format!("{}/{attempt}/", run_prefix(run));
        let mut files = self.list(&prefix)?;
        while let Some(object) = files.try_next().await? {
            let name = object.key.strip_prefix(&prefix).unwrap_or_default();
            let is_plan = PlanFormat::ALL.map(File::Plan).iter().any(|file| file.name() == name);
            // An earlier version stored ledgers there in any case.
            if is_plan || name == LEDGER {
                return Ok(true);
            }
        }
        Ok(false)
    }
}
