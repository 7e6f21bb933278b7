//! One probe of the storage: lists, writes, creates, reads and deletes an object.

use std::sync::Arc;
use std::time::Duration;

use futures::TryStreamExt as _;
use object_store::path::Path;
use object_store::{Error, ObjectStoreExt as _, PutMode, PutOptions, PutResult};

use crate::store::backend::directory::dirs::SilentDirectory;
use crate::store::backend::directory::io_threads;
use crate::store::backend::metered::{NoAnswer, in_time};
use crate::store::error::BoxError;
use crate::store::handle::Store;
use crate::store::key::{PROBES, parse, random};
use crate::store::object::timestamp;
use crate::store::probe::ability::Ability;
use crate::store::probe::failure::Differs;
use crate::store::probe::health::{
    MultipartSupport, ProbeResults, Support, UNSEEN, in_words, one_line, seconds_since,
};
use crate::store::probe::update::is_permanent;

/// Every so many rounds an object is written too. More often would cost money on a cloud.
const WRITE_EVERY: u32 = 2;
const TRY_EVERY: u32 = 20;
/// Timeout of each step.
pub(in crate::store) const STEP_TIMEOUT: Duration = Duration::from_secs(4);
/// Timeout of what the first probe needs once.
pub(in crate::store) const FIRST_TIMEOUT: Duration = Duration::from_secs(20);
/// What the try of a multipart upload waits for.
const UPLOAD: &str = "complete an upload in parts";

/// What a probe has tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Probe {
    /// To list, and perhaps to write.
    Some,
    /// Everything.
    All,
}

impl Store {
    /// Tries to list.
    pub async fn try_list(&self) {
        self.try_some(false).await;
    }

    /// Tries to list and, if `writes`, to write.
    async fn try_some(&self, writes: bool) {
        let mut results = self.probe_results();
        let mut step = Ability::List;
        let tried = async {
            self.list_one().await?;
            results.set(Ability::List, true);
            if writes {
                step = Ability::Write;
                self.write_one().await?;
                results.set(Ability::Write, true);
            }
            Ok(())
        };
        let error = tried.await.err().map(|error| self.name_root(error));
        self.health.record(results, error.map(|error| (step, error)));
    }

    /// The same error; that of a directory that does not answer names it.
    fn name_root(&self, error: BoxError) -> BoxError {
        match (error.downcast::<NoAnswer>(), &self.backend.root) {
            (Ok(late), Some(root)) => SilentDirectory::new(root, *late).into(),
            (Ok(late), None) => late,
            (Err(error), _) => error,
        }
    }

    /// Tries everything, and returns what is known now.
    pub async fn try_all(&self) -> ProbeResults {
        let mut results = self.probe_results();
        results.unseen.clear();
        let mut step = Ability::List;
        let error = self.try_each(&mut results, &mut step).await.err();
        let error = error.map(|error| self.name_root(error));
        self.health.record(results, error.map(|error| (step, error)));
        self.probe_results()
    }

    /// The next regular probe: usually a listing; everything from time to time, and while something fails, because a
    /// full storage still lists.
    pub async fn try_next(&self, round: u32) -> Probe {
        if round.is_multiple_of(TRY_EVERY) || self.probe_results().error.is_some() {
            self.try_all().await;
            Probe::All
        } else {
            self.try_some(round.is_multiple_of(WRITE_EVERY)).await;
            Probe::Some
        }
    }

    /// Repeats a failed probe. All steps take longer than what has failed, so they are tried only if they were before.
    pub(super) async fn repeat(&self, failed: Probe) {
        match failed {
            Probe::Some => self.try_some(true).await,
            Probe::All => drop(self.try_all().await),
        }
    }

    /// `step` is the ability that is being tried.
    async fn try_each(
        &self,
        results: &mut ProbeResults,
        step: &mut Ability,
    ) -> Result<(), BoxError> {
        self.list_one().await?;
        results.set(Ability::List, true);
        let path = self.path()?;
        let content = self.try_writes(&path, results, step).await?;
        *step = Ability::Read;
        let found = in_time(STEP_TIMEOUT, "read", self.objects.get(&path)).await??;
        results.skew = Some(seconds_since(timestamp(&found.meta)));
        if in_time(STEP_TIMEOUT, "read", found.bytes()).await?? != content {
            return Err(Differs.into());
        }
        results.set(Ability::Read, true);
        *step = Ability::Delete;
        in_time(STEP_TIMEOUT, "delete", self.objects.delete(&path)).await??;
        results.set(Ability::Delete, true);
        Ok(())
    }

    /// Writes the probe's object, and tries which conditions are honoured. Returns the content that it leaves.
    async fn try_writes(
        &self,
        path: &Path,
        results: &mut ProbeResults,
        step: &mut Ability,
    ) -> Result<&'static str, BoxError> {
        let learn = |of: &dyn Fn(&mut Support)| self.health.state(|state| of(&mut state.support));
        let seen = self.health.state(|state| state.support);
        *step = Ability::CreateLarge;
        let first = if seen.multipart.is_some_and(|seen| seen.refuses_existing) {
            None
        } else {
            let first = in_time(FIRST_TIMEOUT, UPLOAD, self.try_first_upload(path)).await?;
            seen_by(first, &[Ability::CreateLarge, Ability::MultipartEtag], results)
        };
        *step = Ability::Write;
        let written = self.write_one().await?;
        results.set(Ability::Write, true);
        *step = Ability::Create;
        let again = PutOptions::from(PutMode::Create);
        let again = self.objects.put_opts(path, "second".into(), again);
        let again = in_time(STEP_TIMEOUT, "create an object that exists", again).await?;
        // A server that has honoured the condition does not begin to refuse it: then something else answers.
        let refuses = seen.creates != Some(true) && again.as_ref().is_err_and(is_permanent);
        let (creates, version, content) = match again {
            Err(Error::AlreadyExists { .. }) => (true, written, "first"),
            // The condition is refused: without it, the same put was accepted.
            Err(_) if refuses => (false, written, "first"),
            overwritten => (false, overwritten?, "second"),
        };
        learn(&|support| {
            support.creates = Some(creates);
            support.refuses_creations = refuses;
        });
        results.set(Ability::Create, creates);
        *step = Ability::Update;
        let updates = if seen.updates == Some(true) {
            Some(true)
        } else {
            let update = self.try_update(path, version);
            let update = in_time(STEP_TIMEOUT, "replace one version", update).await?;
            seen_by(update, &[Ability::Update], results)
        };
        learn(&|support| support.updates = updates.or(support.updates));
        if let Some(updates) = updates {
            results.set(Ability::Update, updates);
        }
        *step = Ability::CreateLarge;
        let multipart = match first {
            None => seen.multipart.filter(|seen| seen.refuses_existing),
            Some(first) => {
                let second = self.try_second_upload(path, first);
                let second = in_time(FIRST_TIMEOUT, UPLOAD, second).await?;
                seen_by(second, &[Ability::CreateLarge, Ability::MultipartEtag], results)
            }
        };
        learn(&|support| support.multipart = multipart.or(support.multipart));
        if let Some(MultipartSupport { works, refuses_existing, etags }) = multipart {
            results.refuses_uploads = !works;
            results.set(Ability::CreateLarge, creates && refuses_existing);
            results.set(Ability::MultipartEtag, etags);
        }
        let has_tried_second = first.is_some_and(|first| first.refuses_existing);
        if self.backend.provider.is_some() && (seen.updates != Some(true) || has_tried_second) {
            // These attempts may have replaced the content.
            in_time(STEP_TIMEOUT, "write", self.objects.put(path, content.into())).await??;
        }
        Ok(content)
    }

    /// Writes the probe's object. The name is always the same, so that a storage that refuses deletions keeps only
    /// one.
    async fn write_one(&self) -> Result<PutResult, BoxError> {
        let path = self.path()?;
        Ok(in_time(STEP_TIMEOUT, "write", self.objects.put(&path, "first".into())).await??)
    }

    /// The path of the probe's object.
    pub(super) fn path(&self) -> Result<Path, BoxError> {
        let name = self.health.state(|state| *state.name.get_or_insert_with(random));
        Ok(parse(&format!("{PROBES}{name:016x}"))?)
    }

    async fn list_one(&self) -> Result<(), BoxError> {
        self.check_root().await?;
        in_time(STEP_TIMEOUT, "list", self.list_any()).await??;
        Ok(())
    }

    pub(in crate::store) async fn list_any(&self) -> object_store::Result<()> {
        self.objects.list(Some(&".plancha/probe".into())).try_next().await.map(drop)
    }

    /// Checks that the root directory is still the same and can be used, if the storage is a directory.
    pub(in crate::store) async fn check_root(&self) -> Result<(), BoxError> {
        let Some(disk) = &self.disk else { return Ok(()) };
        let root = Arc::clone(disk.root());
        disk.jobs().check()?;
        let root_check = Arc::clone(&self.health.root_check);
        let jobs = Arc::clone(disk.jobs());
        let check = async {
            let round = root_check.lock_owned().await;
            let counted = jobs.count_unawaited();
            let opened = io_threads::run(move || {
                let _guards = (round, counted);
                root.check()
            });
            opened.await
        };
        in_time(STEP_TIMEOUT, "look at the directory of the storage", check).await??;
        Ok(())
    }
}

/// What a try has shown; `None` after an error that may pass, so that the next complete probe tries it again.
fn seen_by<T>(
    work: object_store::Result<T>,
    abilities: &[Ability],
    results: &mut ProbeResults,
) -> Option<T> {
    let error = match work {
        Ok(seen) => return Some(seen),
        Err(error) => in_words(&one_line(&error)),
    };
    for ability in abilities {
        tracing::warn!(%ability, error, "{UNSEEN}");
        results.unseen.push((*ability, error.clone()));
    }
    None
}
