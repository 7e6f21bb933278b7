//! Whether the backend does what is needed of it, seen by trying.
//!
//! A flag in a configuration would say what somebody believes. Some servers overwrite where they were
//! told to create, a missing bucket looks like a missing object, and credentials may allow to list
//! and not to write: so all of it is tried, at the start and from time to time.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use datastore_api::chain;
use futures::TryStreamExt as _;
use object_store::path::Path;
use object_store::{Error, ObjectStoreExt as _, PutMode, PutOptions};
use tokio::time::{Instant, MissedTickBehavior, interval, timeout};
use tokio_util::sync::CancellationToken;

use crate::store::backend::io_threads;
use crate::store::backend::jobs::Hung;
use crate::store::backend::try_uploads::Uploads;
use crate::store::{BoxError, Store, parse, random, reason, timestamp};

/// Something that a backend can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Ability {
    /// To list keys; only that tells a missing bucket from a missing object.
    List,
    /// To write an object.
    Write,
    /// To refuse to create an object that is there already.
    Create,
    /// To do so for a large object, which is uploaded in parts.
    CreateLarge,
    /// To name the same `ETag` when a multipart upload is completed as afterwards.
    Tag,
    /// To read back what was written.
    Read,
    /// To delete it.
    Delete,
}

/// What the backend was seen to do, when it was last tried.
#[derive(Clone, Debug, Default)]
pub struct ProbeResults {
    /// Each ability that was tried.
    pub abilities: Vec<(Ability, bool)>,
    /// What failed, if something did.
    pub error: Option<String>,
    /// The same in words that any caller may read.
    pub reason: Option<String>,
    /// Failures since the last success.
    pub failures: u32,
    /// Seconds that this machine's clock is ahead of the backend's, if that was seen; to within the time
    /// that a try takes.
    pub skew: Option<i64>,
}

/// What is known of the backend's state. As long as nothing was tried, it is not ready.
#[derive(Debug, Default)]
pub(in crate::store) struct Health {
    state: Mutex<State>,
    /// Cancelled once everything was tried for the first time.
    tried: CancellationToken,
    /// Held while the directory is looked at: if the file system hangs, that is one thread.
    looking: Arc<tokio::sync::Mutex<()>>,
}

#[derive(Debug, Default)]
struct State {
    last: ProbeResults,
    is_down: bool,
    creates: bool,
    succeeded: Option<Instant>,
    /// Whether it does so for large objects, and names their tags; tried once, since servers do not change.
    uploads: Option<Uploads>,
    /// Of the object that is tried with.
    name: Option<u64>,
}

const LIST_EVERY: Duration = Duration::from_secs(5);
/// Every so many turns it is written to as well: more often would cost something on a cloud.
const WRITE_EVERY: u32 = 2;
const TRY_EVERY: u32 = 12;
/// So many failures in a row make it down; one success makes it ready again. After the first it is tried again at
/// once, so that a storage that hangs is down within 5 s and twice the time of a step.
const FAILURES: u32 = 2;
/// So long each step of a try may take.
const STEP: Duration = Duration::from_secs(4);
/// The same for what must be known before anything is tried.
const PATIENCE: Duration = Duration::from_secs(20);
/// Seconds of skew that are worth a line. S3 refuses more than 15 minutes.
const SKEW: u64 = 300;

impl Ability {
    /// All of them, in the order in which they are tried.
    pub const ALL: [Self; 7] = [
        Self::List,
        Self::Write,
        Self::Create,
        Self::CreateLarge,
        Self::Tag,
        Self::Read,
        Self::Delete,
    ];

    /// As a label.
    pub fn name(self) -> &'static str {
        match self {
            Self::List => "list",
            Self::Write => "write",
            Self::Create => "conditional_create",
            Self::CreateLarge => "conditional_multipart",
            Self::Tag => "multipart_etag",
            Self::Read => "read",
            Self::Delete => "delete",
        }
    }
}

/// Whether a file system refuses by its rights, or since it is mounted read-only.
fn is_forbidden(error: &str) -> bool {
    ["(os error 13)", "(os error 1)", "(os error 30)"].iter().any(|code| error.contains(code))
}

impl ProbeResults {
    fn log(&self) {
        let can = |ability| self.can(ability);
        if let Some(error) = &self.error {
            tracing::error!(error, "the storage does not do what is needed");
        } else {
            tracing::info!(
                list = can(Ability::List),
                write = can(Ability::Write),
                conditional_create = can(Ability::Create),
                conditional_multipart = can(Ability::CreateLarge),
                multipart_etag = can(Ability::Tag),
                read = can(Ability::Read),
                delete = can(Ability::Delete),
                "storage tried"
            );
        }
        if let Some(skew) = self.skew.filter(|skew| skew.unsigned_abs() > SKEW) {
            tracing::warn!(
                skew,
                "the clocks of this machine and of the storage differ by so many seconds"
            );
        }
        if can(Ability::Create) == Some(false) {
            tracing::warn!(
                "this storage overwrites where it was told to create: what is created twice at once \
                 is kept apart within this process, but not between replicas"
            );
        } else if can(Ability::CreateLarge) == Some(false) {
            tracing::info!(
                "this storage honours no condition on the completion of a multipart upload: a small object beside it \
                 decides which of several replicas creates an artifact"
            );
        }
    }

    /// Whether the backend does this, if it was tried.
    pub fn can(&self, ability: Ability) -> Option<bool> {
        self.abilities.iter().find(|(tried, _)| *tried == ability).map(|(_, can)| *can)
    }
}

impl Store {
    /// Tries everything at the start. What will not get better by itself is refused: a bucket that
    /// is not there, credentials that are missing or do not suffice, a directory that cannot be written. A backend that only does not
    /// answer is waited for: the service is not ready meanwhile.
    pub async fn start(&self) -> Result<(), BoxError> {
        if let Some(refusal) = self.refusal().await {
            return Err(refusal);
        }
        let results = self.try_all().await;
        if let Some(error) = results.error {
            self.health.state(|state| state.is_down = true);
            if self.disk.is_some() && is_forbidden(&error) {
                return Err(format!("it cannot be written: {error}").into());
            }
        }
        self.health.tried.cancel();
        Ok(())
    }

    /// Waits until [`Self::start`] has tried everything.
    pub(crate) async fn tried(&self) {
        self.health.tried.cancelled().await;
    }

    /// How long ago it was last tried with success.
    pub(crate) fn since_success(&self) -> Option<Duration> {
        self.health.state(|state| state.succeeded).map(|succeeded| succeeded.elapsed())
    }

    /// Why it is of no use to start.
    async fn refusal(&self) -> Option<BoxError> {
        if let Some(disk) = &self.disk {
            // One that hangs is waited for.
            return timeout(STEP, disk.make_root()).await.ok()?.err().map(Into::into);
        }
        let provider = self.traits.provider?;
        if let Some(credentials) = &self.credentials {
            let had = timeout(PATIENCE, credentials()).await;
            let had = had.map_err(BoxError::from).and_then(|had| Ok(had?));
            if let Err(error) = had {
                let way_out = provider.way_out();
                return Some(format!("no credentials ({}): {way_out}", text(&*error)).into());
            }
        }
        let error = timeout(PATIENCE, self.list_any()).await.ok()?.err()?;
        let (cause, way_out) = (text(&error), provider.way_out());
        if is_skewed(&cause) {
            // Clocks are often set only after the start.
            return None;
        }
        Some(match status(&cause)? {
            404 => "there is no such bucket: make it, or name another with --storage".into(),
            401 | 403 => format!("it may not be listed ({cause}): allow it, or {way_out}").into(),
            301 | 307 => format!("it is kept elsewhere ({cause}): {way_out}").into(),
            _ => return None,
        })
    }

    /// Says what was seen at the start, and tries the backend from time to time, until `shutdown`.
    pub async fn watch(self, shutdown: CancellationToken) {
        self.probe_results().log();
        let mut ticks = interval(LIST_EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let watching = async {
            ticks.tick().await;
            for turn in 1.. {
                ticks.tick().await;
                if self.uploads.is_empty() {
                    self.pool.empty();
                }
                self.try_next(turn).await;
                if self.probe_results().failures == 1 {
                    self.try_next(turn).await;
                }
            }
        };
        tokio::select! {
            () = watching => {}
            () = shutdown.cancelled() => {}
        }
    }

    /// Whether the backend answered when it was last tried; else why not, in words that any caller may read.
    pub async fn ready(&self) -> Result<(), String> {
        if !self.health.tried.is_cancelled() {
            return Err("it is still being tried".to_owned());
        }
        // A directory is asked at once: that costs nothing, unless its file system hangs.
        self.look_at_root().await.map_err(|error| reason(&*error))?;
        let (is_down, reason) =
            self.health.state(|state| (state.is_down, state.last.reason.clone()));
        match reason {
            Some(reason) if is_down => Err(reason),
            _ => Ok(()),
        }
    }

    /// What the backend was seen to do.
    pub fn probe_results(&self) -> ProbeResults {
        self.health.state(|state| state.last.clone())
    }

    /// Whether it refuses to create what is there; no, as long as that was not seen.
    pub(in crate::store) fn creates(&self) -> bool {
        self.health.state(|state| state.creates)
    }

    /// Whether it does so when a multipart upload is completed.
    pub(in crate::store) fn creates_large(&self) -> bool {
        self.health.state(|state| state.creates && state.uploads.is_some_and(|seen| seen.creates))
    }

    /// Whether the tag that it names then is that of the object.
    pub(in crate::store) fn names_tags(&self) -> bool {
        self.health.state(|state| state.uploads.is_some_and(|seen| seen.tags))
    }

    /// Tries to list.
    pub async fn try_list(&self) {
        self.try_some(false).await;
    }

    /// Tries to list and, if that is wanted, to write.
    async fn try_some(&self, writes: bool) {
        let mut results = self.probe_results();
        let mut tried = |ability, tried: Result<(), BoxError>| {
            results.abilities.retain(|(before, _)| *before != ability);
            results.abilities.push((ability, tried.is_ok()));
            tried
        };
        let mut error = tried(Ability::List, self.list_one().await).err();
        if writes && error.is_none() {
            error = tried(Ability::Write, self.write_one().await.map(drop)).err();
        }
        results.abilities.sort_unstable();
        self.health.note(results, error);
    }

    /// Tries everything, and returns what was seen.
    pub async fn try_all(&self) -> ProbeResults {
        let mut results = ProbeResults::default();
        let error = self.try_each(&mut results).await.err();
        if let Some(failed) = Ability::ALL.get(results.abilities.len())
            && error.is_some()
        {
            results.abilities.push((*failed, false));
        }
        self.health.note(results, error);
        self.probe_results()
    }

    /// The next try of a watch: mostly only to list; everything from time to time, and as long as
    /// something fails, since a storage that lists may be full all the same.
    pub async fn try_next(&self, turn: u32) {
        if turn.is_multiple_of(TRY_EVERY) || self.probe_results().error.is_some() {
            self.try_all().await;
        } else {
            self.try_some(turn.is_multiple_of(WRITE_EVERY)).await;
        }
    }

    async fn try_each(&self, results: &mut ProbeResults) -> Result<(), BoxError> {
        let done = &mut results.abilities;
        self.list_one().await?;
        done.push((Ability::List, true));
        let seen = self.health.state(|state| state.uploads);
        let path = self.path()?;
        let first = if seen.is_none() {
            Some(timeout(PATIENCE, self.try_first_upload(&path)).await?)
        } else {
            None
        };
        self.write_one().await?;
        done.push((Ability::Write, true));
        let again = PutOptions::from(PutMode::Create);
        let again = timeout(STEP, self.objects.put_opts(&path, "second".into(), again)).await?;
        let creates = matches!(again, Err(Error::AlreadyExists { .. }));
        if !creates {
            again?;
        }
        done.push((Ability::Create, creates));
        let uploads = match (seen, first) {
            (Some(seen), _) => seen,
            (None, first) => {
                let second = self.try_second_upload(&path, first.unwrap_or_default());
                timeout(PATIENCE, second).await?
            }
        };
        self.health.state(|state| state.uploads = Some(uploads));
        done.push((Ability::CreateLarge, creates && uploads.creates));
        done.push((Ability::Tag, uploads.tags));
        let text = if creates { "first" } else { "second" };
        if seen.is_none() && !uploads.creates {
            // It may have been replaced.
            timeout(STEP, self.objects.put(&path, text.into())).await??;
        }
        let found = timeout(STEP, self.objects.get(&path)).await??;
        results.skew = Some(seconds_since(timestamp(&found.meta)));
        let read = timeout(STEP, found.bytes()).await??;
        if read != text {
            return Err("what was read is not what was written".into());
        }
        done.push((Ability::Read, true));
        timeout(STEP, self.objects.delete(&path)).await??;
        done.push((Ability::Delete, true));
        Ok(())
    }

    /// Writes the object that is tried with: always the same, so that a storage that takes objects and deletes none
    /// is left with one.
    async fn write_one(&self) -> Result<Path, BoxError> {
        let path = self.path()?;
        timeout(STEP, self.objects.put(&path, "first".into())).await??;
        Ok(path)
    }

    fn path(&self) -> Result<Path, BoxError> {
        let name = self.health.state(|state| *state.name.get_or_insert_with(random));
        Ok(parse(&format!(".plancha/probe/{name:016x}"))?)
    }

    async fn list_one(&self) -> Result<(), BoxError> {
        self.look_at_root().await?;
        timeout(STEP, self.list_any()).await??;
        Ok(())
    }

    async fn list_any(&self) -> object_store::Result<()> {
        self.objects.list(Some(&".plancha/probe".into())).try_next().await.map(drop)
    }

    /// Whether the directory is there, if it is one.
    async fn look_at_root(&self) -> Result<(), BoxError> {
        let (Some(root), Some(disk)) = (self.traits.root.clone(), &self.disk) else {
            return Ok(());
        };
        if disk.jobs().hang() {
            return Err(Hung.into());
        }
        let looking = Arc::clone(&self.health.looking);
        let looked = async {
            let turn = looking.lock_owned().await;
            let looked = io_threads::run(move || {
                let _turn = turn;
                std::fs::metadata(root)
            });
            looked.await
        };
        timeout(STEP, looked).await??;
        Ok(())
    }
}

impl Health {
    fn state<T>(&self, with: impl FnOnce(&mut State) -> T) -> T {
        with(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn note(&self, mut results: ProbeResults, error: Option<BoxError>) {
        self.state(|state| {
            results.reason = error.as_deref().map(|error| reason(error));
            results.error = error.map(|error| text(&*error));
            if let Some(text) = results.error.as_deref().filter(|text| is_skewed(text)) {
                results.skew = server_time(text).map(seconds_since);
                let by = results.skew.map_or_else(|| "too much".to_owned(), |skew| format!("{skew} s"));
                results.error = Some(format!(
                    "this machine's clock and the storage's differ by {by}, which the storage refuses: set \
                     the clock, by NTP for example"
                ));
                results.reason.clone_from(&results.error);
            }
            results.failures =
                if results.error.is_some() { state.last.failures.saturating_add(1) } else { 0 };
            if results.failures == 0 {
                state.succeeded = Some(Instant::now());
            }
            if results.failures == 0 && state.is_down {
                tracing::info!("the storage answers again");
                state.is_down = false;
            }
            if results.failures >= FAILURES && !state.is_down {
                tracing::error!(error = results.error, "the storage does not answer");
                state.is_down = true;
            }
            if let Some(creates) = results.can(Ability::Create) {
                state.creates = creates;
            }
            state.last = results;
        });
    }
}

/// Whether an S3 refuses our clock.
fn is_skewed(text: &str) -> bool {
    text.contains("RequestTimeTooSkewed")
}

/// The time on its clock, which not every server says.
fn server_time(text: &str) -> Option<jiff::Timestamp> {
    let (_, after) = text.split_once("<ServerTime>")?;
    after.split_once('<')?.0.parse().ok()
}

fn seconds_since(time: jiff::Timestamp) -> i64 {
    jiff::Timestamp::now().as_second() - time.as_second()
}

/// The status that a backend answered with, which `object_store` keeps to itself but for its text.
pub(in crate::store) fn status(text: &str) -> Option<u16> {
    if text.contains("redirect without LOCATION") {
        return Some(301);
    }
    let (_, status) = text.split_once("status code: ")?;
    status.get(..3)?.parse().ok()
}

/// An error and its causes, on one line.
fn text(error: &(dyn std::error::Error + 'static)) -> String {
    chain(error).split_whitespace().collect::<Vec<_>>().join(" ")
}
