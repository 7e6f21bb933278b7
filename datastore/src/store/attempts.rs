//! The attempts of a run, found by listing its files and its claims.

pub(crate) mod claims;

use std::collections::BTreeMap;

use datastore_api::key::{AttemptFiles, Attempts, FileInfo};
use datastore_api::{Attempt, File, RunKey};
use futures::StreamExt as _;
use object_store::ObjectMeta;

use crate::store::error::{StoreError, backend_error};
use crate::store::handle::Store;
use crate::store::key::{Key, parse, run_prefix};
use crate::store::object::timestamp;

impl Store {
    /// Every attempt of a run that has files or is claimed, oldest first.
    pub async fn attempts(&self, run: &RunKey) -> Result<Attempts, StoreError> {
        let mut attempts = BTreeMap::<Attempt, Vec<FileInfo>>::new();
        let (files, claimed) = tokio::try_join!(self.files(run), self.claimed(run))?;
        attempts.extend(claimed.into_iter().map(|attempt| (attempt, Vec::new())));
        for (attempt, name, meta) in files {
            let files = attempts.entry(attempt).or_default();
            files.push(FileInfo { name, size: meta.size, modified: timestamp(&meta).to_string() });
        }
        let attempts = attempts.into_iter().map(|(attempt, mut artifacts)| {
            artifacts.sort_by(|a, b| a.name.cmp(&b.name));
            AttemptFiles { attempt, artifacts }
        });
        Ok(Attempts { attempts: attempts.collect() })
    }

    /// The greatest attempt of a run that has files.
    pub async fn latest_attempt(&self, run: &RunKey) -> Result<Option<Attempt>, StoreError> {
        Ok(self.files(run).await?.into_iter().map(|(attempt, ..)| attempt).max())
    }

    /// The key of a file to read. Without an attempt it is a file of the latest attempt, and of no other.
    pub(crate) async fn resolve_attempt(
        &self,
        run: RunKey,
        attempt: Option<Attempt>,
        file: File,
    ) -> Result<Key, StoreError> {
        let attempt = match attempt {
            Some(attempt) => attempt,
            None => self.latest_attempt(&run).await?.ok_or(StoreError::NotFound)?,
        };
        Ok(Key::File(run, attempt, file))
    }

    /// The files of every attempt of a run, in no order.
    ///
    /// Listing directories would be cheaper, but on `file://` an interrupted upload leaves an empty directory, which
    /// no object store would show.
    async fn files(&self, run: &RunKey) -> Result<Vec<(Attempt, String, ObjectMeta)>, StoreError> {
        let prefix = parse(&run_prefix(run))?;
        let mut found = self.objects.list(Some(&prefix));
        let mut files = Vec::new();
        while let Some(meta) = found.next().await.transpose().map_err(backend_error)? {
            let below = meta.location.as_ref().strip_prefix(prefix.as_ref());
            let below = below.and_then(|below| below.strip_prefix('/')?.split_once('/'));
            if let Some((attempt, name)) = below
                && let Ok(attempt) = attempt.parse()
            {
                files.push((attempt, name.to_owned(), meta));
            }
        }
        Ok(files)
    }
}
