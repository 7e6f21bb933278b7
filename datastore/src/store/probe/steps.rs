//! One probe of the storage: lists, writes, creates, reads and deletes an object.

use std::sync::Arc;
use std::time::Duration;

use futures::TryStreamExt as _;
use object_store::path::Path;
use object_store::{Error, ObjectStoreExt as _, PutMode, PutOptions, PutResult};
use tokio::time::timeout;

use crate::store::backend::directory::io_threads;
use crate::store::backend::directory::jobs::Hung;
use crate::store::error::BoxError;
use crate::store::handle::Store;
use crate::store::key::{PROBES, parse, random};
use crate::store::object::timestamp;
use crate::store::probe::health::{Ability, ProbeResults, Support, seconds_since};
use crate::store::probe::update::REPLACED;

/// Every so many rounds an object is written too. More often would cost money on a cloud.
const WRITE_EVERY: u32 = 2;
const TRY_EVERY: u32 = 12;
/// Timeout of each step.
pub(in crate::store) const STEP_TIMEOUT: Duration = Duration::from_secs(4);
/// Timeout of what the first probe needs once.
pub(in crate::store) const FIRST_TIMEOUT: Duration = Duration::from_secs(20);

impl Store {
    /// Tries to list.
    pub async fn try_list(&self) {
        self.try_some(false).await;
    }

    /// Tries to list and, if `writes`, to write.
    async fn try_some(&self, writes: bool) {
        let mut results = self.probe_results();
        let mut probed = |ability, probed: Result<(), BoxError>| {
            results.abilities.retain(|(before, _)| *before != ability);
            results.abilities.push((ability, probed.is_ok()));
            probed
        };
        let mut error = probed(Ability::List, self.list_one().await).err();
        let mut tried = Ability::List;
        if writes && error.is_none() {
            tried = Ability::Write;
            error = probed(Ability::Write, self.write_one().await.map(drop)).err();
        }
        results.abilities.sort_unstable();
        self.health.record(results, error, self.right(tried));
    }

    /// Tries everything, and returns what was seen.
    pub async fn try_all(&self) -> ProbeResults {
        let mut results = ProbeResults::default();
        let error = self.try_each(&mut results).await.err();
        let failed = Ability::ALL.get(results.abilities.len()).filter(|_| error.is_some());
        results.abilities.extend(failed.map(|failed| (*failed, false)));
        self.health.record(results, error, failed.and_then(|failed| self.right(*failed)));
        self.probe_results()
    }

    /// The right that an ability needs in a cloud.
    fn right(&self, ability: Ability) -> Option<&'static str> {
        self.backend.provider.map(|provider| ability.right(provider))
    }

    /// The next regular probe: usually a listing; everything from time to time, and while something fails, because a
    /// full storage still lists.
    pub async fn try_next(&self, round: u32) {
        if round.is_multiple_of(TRY_EVERY) || self.probe_results().error.is_some() {
            self.try_all().await;
        } else {
            self.try_some(round.is_multiple_of(WRITE_EVERY)).await;
        }
    }

    async fn try_each(&self, results: &mut ProbeResults) -> Result<(), BoxError> {
        let done = &mut results.abilities;
        self.list_one().await?;
        done.push((Ability::List, true));
        let seen = self.health.state(|state| state.support);
        let path = self.path()?;
        let first = if seen.is_none() {
            Some(timeout(FIRST_TIMEOUT, self.try_first_upload(&path)).await?)
        } else {
            None
        };
        let written = self.write_one().await?;
        done.push((Ability::Write, true));
        let again = PutOptions::from(PutMode::Create);
        let again =
            timeout(STEP_TIMEOUT, self.objects.put_opts(&path, "second".into(), again)).await?;
        let (creates, version, mut expected) = match again {
            Err(Error::AlreadyExists { .. }) => (true, written, "first"),
            overwritten => (false, overwritten?, "second"),
        };
        done.push((Ability::Create, creates));
        let updates = match seen {
            Some(seen) => seen.updates,
            None => timeout(STEP_TIMEOUT, self.try_update(&path, version)).await??,
        };
        done.push((Ability::Update, updates));
        let multipart = if let Some(seen) = seen {
            seen.multipart
        } else {
            let second = self.try_second_upload(&path, first.unwrap_or_default());
            timeout(FIRST_TIMEOUT, second).await?
        };
        if seen.is_none() && self.backend.provider.is_some() {
            if updates && multipart.refuses_existing {
                expected = REPLACED;
            } else {
                // It is not known which of the attempts has replaced it.
                timeout(STEP_TIMEOUT, self.objects.put(&path, expected.into())).await??;
            }
        }
        self.health.state(|state| state.support = Some(Support { updates, multipart }));
        done.push((Ability::CreateLarge, creates && multipart.refuses_existing));
        done.push((Ability::MultipartEtag, multipart.etags));
        let found = timeout(STEP_TIMEOUT, self.objects.get(&path)).await??;
        results.skew = Some(seconds_since(timestamp(&found.meta)));
        let read = timeout(STEP_TIMEOUT, found.bytes()).await??;
        if read != expected {
            return Err("what was read is not what was written".into());
        }
        done.push((Ability::Read, true));
        timeout(STEP_TIMEOUT, self.objects.delete(&path)).await??;
        done.push((Ability::Delete, true));
        Ok(())
    }

    /// Writes the probe's object. The name is always the same, so that a storage that refuses deletions keeps only
    /// one.
    async fn write_one(&self) -> Result<PutResult, BoxError> {
        let path = self.path()?;
        Ok(timeout(STEP_TIMEOUT, self.objects.put(&path, "first".into())).await??)
    }

    fn path(&self) -> Result<Path, BoxError> {
        let name = self.health.state(|state| *state.name.get_or_insert_with(random));
        Ok(parse(&format!("{PROBES}{name:016x}"))?)
    }

    async fn list_one(&self) -> Result<(), BoxError> {
        self.check_root().await?;
        timeout(STEP_TIMEOUT, self.list_any()).await??;
        Ok(())
    }

    pub(in crate::store) async fn list_any(&self) -> object_store::Result<()> {
        self.objects.list(Some(&".plancha/probe".into())).try_next().await.map(drop)
    }

    /// Checks that the root directory exists, if the storage is a directory.
    pub(in crate::store) async fn check_root(&self) -> Result<(), BoxError> {
        let (Some(root), Some(disk)) = (self.backend.root.clone(), &self.disk) else {
            return Ok(());
        };
        if disk.jobs().are_hung() {
            return Err(Hung.into());
        }
        let root_check = Arc::clone(&self.health.root_check);
        let check = async {
            let round = root_check.lock_owned().await;
            let metadata = io_threads::run(move || {
                let _guard = round;
                std::fs::metadata(root)
            });
            metadata.await
        };
        timeout(STEP_TIMEOUT, check).await??;
        Ok(())
    }
}
