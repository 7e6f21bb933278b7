//! The attempts of a run, found by listing its files and its claims.

pub(crate) mod changes;
pub(crate) mod claims;
pub(crate) mod live;
pub(crate) mod unreadable;

use std::collections::BTreeMap;

use datastore_api::key::{AttemptFiles, Attempts, FileInfo};
use datastore_api::{Attempt, File, RunKey};
use futures::stream::BoxStream;
use futures::{StreamExt as _, TryStreamExt as _};
use object_store::ObjectMeta;

use crate::store::attempts::live::ledger::LEDGER;
use crate::store::attempts::live::view::View;
use crate::store::error::{StoreError, backend_error};
use crate::store::handle::Store;
use crate::store::key::{Key, parse, run_prefix};
use crate::store::object::timestamp;

/// The files of a run: their attempts and names.
type Files = BoxStream<'static, Result<(Attempt, String, ObjectMeta), StoreError>>;

/// The most files, live logs and claims of a run that are listed.
const MAX_FILES: usize = 20_000;

impl Store {
    /// Every attempt of a run that has files or a live log, or is claimed, oldest first. Fails if they are too
    /// many for an answer.
    pub async fn attempts(&self, run: &RunKey) -> Result<Attempts, StoreError> {
        // What is live first: it becomes a file, and must not be missed in between.
        let (live, claimed) = tokio::try_join!(self.live_views(run), self.claimed(run))?;
        let mut count = live.len() + claimed.len();
        if count > MAX_FILES {
            return Err(StoreError::TooManyFiles(MAX_FILES));
        }
        let empty = |attempt| AttemptFiles { attempt, artifacts: Vec::new(), live: None };
        let claimed = claimed.into_iter().map(|attempt| (attempt, empty(attempt)));
        let mut attempts = claimed.collect::<BTreeMap<Attempt, AttemptFiles>>();
        let mut found = self.files(run)?;
        while let Some((attempt, name, meta)) = found.try_next().await? {
            count += 1;
            if count > MAX_FILES {
                return Err(StoreError::TooManyFiles(MAX_FILES));
            }
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
        match self.latest_with_files(run).await? {
            None => Ok(self.live_views(run).await?.into_keys().max()),
            latest => Ok(latest),
        }
    }

    /// The greatest attempt of a run that has files or a live log.
    pub(crate) async fn newest_attempt(&self, run: &RunKey) -> Result<Option<Attempt>, StoreError> {
        let latest = self.latest_with_files(run);
        let (latest, live) = tokio::try_join!(latest, self.live_views(run))?;
        Ok(latest.max(live.into_keys().max()))
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

    /// The greatest attempt of a run that has files.
    async fn latest_with_files(&self, run: &RunKey) -> Result<Option<Attempt>, StoreError> {
        let files = self.files(run)?;
        files.try_fold(None, async |latest, (attempt, ..)| Ok(latest.max(Some(attempt)))).await
    }

    /// The files of every attempt of a run, in no order.
    ///
    /// Listing directories would be cheaper, but on `file://` an interrupted upload leaves an empty directory, which
    /// no object store would show.
    pub(in crate::store) fn files(&self, run: &RunKey) -> Result<Files, StoreError> {
        let prefix = parse(&run_prefix(run))?;
        let found = self.objects.list(Some(&prefix)).map_err(backend_error);
        let files = found.try_filter_map(move |meta| {
            let below = meta.location.as_ref().strip_prefix(prefix.as_ref());
            let below = below.and_then(|below| below.strip_prefix('/')?.split_once('/'));
            let below = below.map(|(attempt, name)| (attempt.parse(), name.to_owned()));
            let file = match below {
                Some((Ok(attempt), name)) => Some((attempt, name, meta)),
                _ => None,
            };
            std::future::ready(Ok(file))
        });
        Ok(files.boxed())
    }
}

#[cfg(test)]
mod tests {
    use object_store::ObjectStoreExt as _;

    use super::*;
    use crate::store::Storage;

    #[tokio::test]
    async fn a_run_with_too_many_files_is_not_listed_but_has_a_latest_attempt() {
        let store = Store::open(&Storage::Memory).unwrap();
        let name = |text: &str| text.parse().unwrap();
        let run = RunKey { namespace: name("a"), layer: name("b"), run: "c".parse().unwrap() };
        for number in 0..=MAX_FILES {
            let path = format!("layers/a/b/c/{}/{number}.json", number % 3);
            store.objects.put(&path.into(), "".into()).await.unwrap();
        }
        let listed = store.attempts(&run).await;
        assert!(matches!(listed, Err(StoreError::TooManyFiles(MAX_FILES))), "{listed:?}");
        assert_eq!(store.latest_attempt(&run).await.unwrap(), Some(Attempt(2)));
        store.objects.delete(&"layers/a/b/c/0/0.json".into()).await.unwrap();
        assert_eq!(store.attempts(&run).await.unwrap().attempts.len(), 3);
    }
}
