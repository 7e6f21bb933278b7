//! The ledger of an apply: beside the live log until its attempt has one of Burrito's plan files, so that an attempt that still
//! works is not the latest one for Burrito. Then it is a file of the attempt.

use datastore_api::{Attempt, File, PlanFormat, RunKey};
use futures::TryStreamExt as _;

use crate::store::error::StoreError;
use crate::store::handle::Store;
use crate::store::key::{Key, LivePart, run_prefix};

/// The name of a ledger among the files of an attempt.
pub(in crate::store) const LEDGER: &str = "ledger.json";

impl Store {
    /// Where a file of an attempt is to be stored.
    pub(crate) async fn key_to_store(&self, key: Key) -> Result<Key, StoreError> {
        match &key {
            Key::File(run, attempt, file)
                if file.name() == LEDGER && !self.has_plan_file(run, *attempt).await? =>
            {
                Ok(Key::Live(run.clone(), *attempt, LivePart::Ledger))
            }
            _ => Ok(key),
        }
    }

    /// Deletes the ledger beside the live log after one was stored with the files of the attempt.
    pub(crate) async fn stored_at(&self, key: &Key) -> Result<(), StoreError> {
        match key {
            Key::File(run, attempt, file) if file.name() == LEDGER => {
                let beside = Key::Live(run.clone(), *attempt, LivePart::Ledger);
                self.delete(beside.object_path()?.as_ref()).await
            }
            _ => Ok(()),
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

    async fn has_plan_file(&self, run: &RunKey, attempt: Attempt) -> Result<bool, StoreError> {
        let prefix = format!("{}/{attempt}/", run_prefix(run));
        let mut files = self.list(&prefix)?;
        while let Some(object) = files.try_next().await? {
            let name = object.key.strip_prefix(&prefix).unwrap_or_default();
            if PlanFormat::ALL.map(File::Plan).iter().any(|file| file.name() == name) {
                return Ok(true);
            }
        }
        Ok(false)
    }
}
