//! Probes at the start and then regularly, and readiness.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use object_store::PutMode;
use tokio::time::{MissedTickBehavior, interval, timeout};
use tokio_util::sync::CancellationToken;

use crate::store::backend::cloud::connector::Condition;
use crate::store::backend::metered::in_time;
use crate::store::backend::panicked::caught;
use crate::store::backend::reason::{concise, reason};
use crate::store::backend::response::{blames_clock, status};
use crate::store::error::BoxError;
use crate::store::handle::Store;
use crate::store::probe::ability::Ability;
use crate::store::probe::health::{MultipartSupport, ProbeResults, one_line};
use crate::store::probe::steps::{FIRST_TIMEOUT, STEP_TIMEOUT};

/// Two rounds and two failed steps take less than 15 s. A shorter step would fail on a slow bucket.
const LIST_EVERY: Duration = Duration::from_secs(3);

impl Store {
    /// The first probe. It fails on what will not recover by itself: a missing bucket, credentials that are missing or
    /// may not list, a directory that is not writable. Otherwise the service stays unready until a probe succeeds, such
    /// as of a backend that does not respond, or while a right to write is missing.
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
        self.health.probed.cancel();
        Ok(())
    }

    /// Whether the first probe has ended.
    pub(crate) fn is_tried(&self) -> bool {
        self.health.probed.is_cancelled()
    }

    /// Waits for the end of the first probe.
    pub(crate) async fn tried(&self) {
        self.health.probed.cancelled().await;
    }

    /// Why starting is pointless, if it is.
    async fn refusal(&self) -> Option<BoxError> {
        if let Some(disk) = &self.disk {
            // A hung file system may recover.
            return timeout(STEP_TIMEOUT, disk.make_root()).await.ok()?.err().map(Into::into);
        }
        let provider = self.backend.provider?;
        if let Some(credentials) = &self.credentials {
            let had = in_time(FIRST_TIMEOUT, "get credentials", caught(credentials())).await;
            let had = had.map_err(BoxError::from).and_then(|had| Ok(had?));
            if let Err(error) = had {
                let credentials_hint = provider.credentials_hint();
                return Some(
                    format!("no credentials ({}): {credentials_hint}", one_line(&*error)).into(),
                );
            }
        }
        let error = timeout(FIRST_TIMEOUT, self.list_any()).await.ok()?.err()?;
        let (cause, credentials_hint) = (concise(&one_line(&error)), provider.credentials_hint());
        if blames_clock(&cause) {
            // Clocks are often set only after the start.
            return None;
        }
        if cause.contains("URL scheme is not allowed") {
            let allow = provider.allow_http();
            return Some(
                format!("plain HTTP is not allowed ({cause}): set {allow}=true, or use https")
                    .into(),
            );
        }
        let refusal: BoxError = match status(&cause)? {
            404 => "there is no such bucket: make it, or name another with --storage".into(),
            401 | 403 => {
                format!("it may not be listed ({cause}): allow it, or {credentials_hint}").into()
            }
            301 | 307 => format!("the bucket is in another region or at another endpoint ({cause}): {credentials_hint}").into(),
            _ => return None,
        };
        self.health.record(self.probe_results(), Some((Ability::List, error.into())));
        Some(refusal)
    }

    /// Logs the results of the first probe, and probes regularly until `shutdown`.
    pub async fn watch(self, shutdown: CancellationToken) {
        let first = self.probe_results();
        first.log();
        let mut logged = first.conditions();
        let mut ticks = interval(LIST_EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let watching = async {
            ticks.tick().await;
            for round in 1.. {
                ticks.tick().await;
                if self.uploads.is_empty() {
                    self.pool.empty();
                }
                let probe = self.try_next(round).await;
                if self.probe_results().failures == 1 {
                    self.repeat(probe).await;
                }
                let now = self.probe_results();
                if now.conditions() != logged {
                    logged = now.conditions();
                    tracing::info!("what is known of the storage's abilities has changed");
                    now.log_conditions();
                }
            }
        };
        tokio::select! {
            () = watching => {}
            () = shutdown.cancelled() => {}
        }
    }

    /// Whether the last probe succeeded; else the reason, in words that any caller may read.
    pub async fn ready(&self) -> Result<(), String> {
        if !self.health.probed.is_cancelled() {
            return Err("it is still being tried".to_owned());
        }
        // A directory is checked now, which is cheap unless its file system hangs.
        self.check_root().await.map_err(|error| reason(&*error))?;
        let (is_down, reason) =
            self.health.state(|state| (state.is_down, state.last.reason.clone()));
        match reason {
            Some(reason) if is_down => Err(reason),
            _ => Ok(()),
        }
    }

    /// The time since the last successful probe, or since the storage was opened if none has succeeded.
    pub(crate) fn since_success(&self) -> Duration {
        let succeeded = self.health.state(|state| state.succeeded);
        succeeded.unwrap_or(self.health.opened.0).elapsed()
    }

    /// What is known of the storage after the last probe.
    pub fn probe_results(&self) -> ProbeResults {
        self.health.state(|state| state.last.clone())
    }

    /// The storage's time, within a few seconds; `None` until a probe has seen it.
    pub(in crate::store) fn storage_clock(&self) -> Option<Timestamp> {
        let ahead = SignedDuration::from_secs(self.health.state(|state| state.skew)?);
        Timestamp::now().checked_sub(ahead).ok()
    }

    /// Whether the backend refuses to create an existing object; `None` until a probe has seen it.
    pub(in crate::store) fn creates(&self) -> Option<bool> {
        self.health.state(|state| state.support.creates)
    }

    /// The mode of a put that creates: without the condition where a probe has seen that the server refuses the condition
    /// as such.
    pub(in crate::store) fn creation_mode(&self) -> PutMode {
        if self.health.state(|state| state.support.refuses_creations) {
            PutMode::Overwrite
        } else {
            PutMode::Create
        }
    }

    /// Whether it is known to refuse that also when a multipart upload is completed.
    pub(in crate::store) fn creates_multiparts(&self) -> bool {
        self.creates() == Some(true) && self.multipart().is_some_and(|seen| seen.refuses_existing)
    }

    /// The condition of a completion that creates: none where a probe has seen that the storage does not honour it. Until
    /// a probe has seen whether it does, another replica may rely on it.
    pub(in crate::store) fn completion_condition(&self) -> Option<Condition> {
        match self.multipart() {
            // On Azure the header cannot be added.
            _ if self.is_azure() => None,
            None => Some(Condition::IfSupported),
            Some(seen) => seen.refuses_existing.then_some(Condition::Required),
        }
    }

    /// Whether a completion is known to return the object's final `ETag`.
    pub(in crate::store) fn returns_multipart_etags(&self) -> bool {
        self.multipart().is_some_and(|seen| seen.etags)
    }

    fn multipart(&self) -> Option<MultipartSupport> {
        self.health.state(|state| state.support.multipart)
    }

    /// Whether the backend replaces one version of an object and no other; `None` until a probe has seen it.
    pub(in crate::store) fn updates(&self) -> Option<bool> {
        self.health.state(|state| state.support.updates)
    }
}

/// Whether a file system denies access or is mounted read-only.
fn is_forbidden(error: &str) -> bool {
    ["(os error 13)", "(os error 1)", "(os error 30)"].iter().any(|code| error.contains(code))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

    use futures::{FutureExt as _, future};
    use object_store::memory::InMemory;
    use tokio::time::{Instant, sleep};

    use super::*;
    use crate::store::backend::metered::Calls;
    use crate::store::backend::storage::Backend;
    use crate::store::handle::Inner;
    use crate::store::write::double::{Call, Hooked};

    #[tokio::test(start_paused = true)]
    async fn writes_that_hang_right_after_a_check_make_it_unready_within_15_s() {
        let (hangs, writes) = (Arc::<AtomicBool>::default(), Arc::<AtomicUsize>::default());
        let (hook_hangs, hook_writes) = (Arc::clone(&hangs), Arc::clone(&writes));
        let before = move |call: Call<'_>| {
            if !matches!(call, Call::Put(..)) {
                return future::ready(Ok(())).boxed();
            }
            hook_writes.fetch_add(1, Ordering::Relaxed);
            if hook_hangs.load(Ordering::Relaxed) {
                return future::pending().boxed();
            }
            future::ready(Ok(())).boxed()
        };
        let objects = Arc::new(Hooked { inner: InMemory::new(), before });
        let store = Store(Arc::new(Inner::new(objects, Backend::memory(), Calls::default())));
        store.start().await.unwrap();
        let shutdown = CancellationToken::new();
        let watching = tokio::spawn(store.clone().watch(shutdown.clone()));
        for _ in 0..3 {
            let before = writes.load(Ordering::Relaxed);
            while writes.load(Ordering::Relaxed) == before {
                sleep(Duration::from_millis(1)).await;
            }
            assert_eq!(store.ready().await, Ok(()));
        }
        hangs.store(true, Ordering::Relaxed);
        let since = Instant::now();
        while store.ready().await.is_ok() {
            assert!(since.elapsed() < Duration::from_secs(30), "it stays ready");
            sleep(Duration::from_millis(10)).await;
        }
        assert!(since.elapsed() < Duration::from_millis(14_500), "{:?}", since.elapsed());
        shutdown.cancel();
        watching.await.unwrap();
    }
}
