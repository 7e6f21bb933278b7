//! The attempts of a run, found by listing its files and its claims.

pub(crate) mod changes;
pub(crate) mod claims;
pub(crate) mod live;
pub(crate) mod unreadable;

use std::collections::BTreeMap;

use datastore_api::key::{AttemptFiles, Attempts, FileInfo};
use datastore_api::{Attempt, File, RunKey};
use futures::StreamExt as _;
use object_store::ObjectMeta;

use crate::store::attempts::live::ledger::LEDGER;
use crate::store::attempts::live::view::View;
use crate::store::error::{StoreError, backend_error};
use crate::store::handle::Store;
use crate::store::key::{Key, parse, run_prefix};
use crate::store::object::timestamp;

impl Store {
    /// Every attempt of a run that has files or a live log, or is claimed, oldest first.
    pub async fn attempts(&self, run: &RunKey) -> Result<Attempts, StoreError> {
        // What is live first: it becomes a file, and must not be missed in between.
        let (live, claimed) = tokio::try_join!(self.live_views(run), self.claimed(run))?;
        let empty = |attempt| AttemptFiles { attempt, artifacts: Vec::new(), live: None };
        let claimed = claimed.into_iter().map(|attempt| (attempt, empty(attempt)));
        let mut attempts = claimed.collect::<BTreeMap<Attempt, AttemptFiles>>();
        for (attempt, name, meta) in self.files(run).await? {
            let info = FileInfo { name, size: meta.size, modified: timestamp(&meta).to_string() };
            let files = attempts.entry(attempt).or_insert_with(|| empty(attempt));
            files.artifacts.push(info);
        }
        for (attempt, view) in live {
            let files = attempts.entry(attempt).or_insert_with(|| empty(attempt));
            self.add_live(files, &view);
        }
        for files in attempts.values_mut() {
            files.artifacts.sort_by(|a, b| a.name.cmp(&b.name));
        }
        Ok(Attempts { attempts: attempts.into_values().collect() })
    }

    /// Adds a live log and a ledger beside it, unless they are files of the attempt already.
    fn add_live(&self, files: &mut AttemptFiles, view: &View) {
        let has = |files: &AttemptFiles, name| files.artifacts.iter().any(|file| file.name == name);
        if let Some(newest) = view.newest()
            && !has(files, File::Log.name())
        {
            let (name, modified) = (File::Log.name().to_owned(), newest.to_string());
            files.artifacts.push(FileInfo { name, size: view.size(), modified });
            files.live = view.state(self.live_clock());
        }
        if let Some(ledger) = &view.ledger
            && !has(files, LEDGER)
        {
            let (size, modified) = (ledger.size, ledger.modified.to_string());
            files.artifacts.push(FileInfo { name: LEDGER.to_owned(), size, modified });
        }
    }

    /// The greatest attempt of a run that has files. If none has, the greatest one that has a live log.
    pub async fn latest_attempt(&self, run: &RunKey) -> Result<Option<Attempt>, StoreError> {
        match self.files(run).await?.into_iter().map(|(attempt, ..)| attempt).max() {
            None => Ok(self.live_views(run).await?.into_keys().max()),
            latest => Ok(latest),
        }
    }

    /// The greatest attempt of a run that has files or a live log.
    pub(crate) async fn newest_attempt(&self, run: &RunKey) -> Result<Option<Attempt>, StoreError> {
        let (files, live) = tokio::try_join!(self.files(run), self.live_views(run))?;
        Ok(files.into_iter().map(|(attempt, ..)| attempt).chain(live.into_keys()).max())
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
    pub(in crate::store) async fn files(
        &self,
        run: &RunKey,
    ) -> Result<Vec<(Attempt, String, ObjectMeta)>, StoreError> {
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
