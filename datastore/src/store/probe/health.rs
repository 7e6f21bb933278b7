//! The results of probes, and whether the storage is up. It knows no store.
//!
//! A step that fails for a reason that may pass shows nothing: what an earlier probe has seen stays known.

use std::sync::{Arc, Mutex, PoisonError};

use datastore_api::chain;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::store::backend::reason::{concise, reason};
use crate::store::backend::response::blames_clock;
use crate::store::error::BoxError;
use crate::store::probe::ability::Ability;
use crate::store::probe::failure::shows_inability;

/// What is known of the storage after the last probe.
#[derive(Clone, Debug, Default)]
pub struct ProbeResults {
    /// What is known of abilities, in their order: each as the last try has shown it that has shown something.
    pub abilities: Vec<(Ability, bool)>,
    /// The abilities of which the last complete probe has seen nothing, and its errors; a later probe tries them again.
    pub unseen: Vec<(Ability, String)>,
    /// The step at which the last probe ended, if it failed.
    pub ended_at: Option<Ability>,
    /// Whether the storage refuses every upload in parts.
    pub refuses_uploads: bool,
    /// The error, if one step failed.
    pub error: Option<String>,
    /// The error in words that any caller may read.
    pub reason: Option<String>,
    /// Failures since the last success.
    pub failures: u32,
    /// How many seconds this machine's clock is ahead of the backend's, within the duration of a probe.
    pub skew: Option<i64>,
}

/// The state of the storage. Before the first probe it is not ready.
#[derive(Debug, Default)]
pub(in crate::store) struct Health {
    pub(in crate::store) state: Mutex<State>,
    /// Cancelled after the first complete probe.
    pub(in crate::store) probed: CancellationToken,
    /// Held while the root directory is checked, so that a hung file system blocks one thread.
    pub(in crate::store) root_check: Arc<tokio::sync::Mutex<()>>,
    /// Before the first success, the age of the last one counts from here.
    pub(in crate::store) opened: Opened,
}

/// When a storage was opened.
#[derive(Debug)]
pub(in crate::store) struct Opened(pub(in crate::store) Instant);

impl Default for Opened {
    fn default() -> Self {
        Self(Instant::now())
    }
}

#[derive(Debug, Default)]
pub(in crate::store) struct State {
    pub(in crate::store) last: ProbeResults,
    pub(in crate::store) is_down: bool,
    /// The skew that a probe saw last; the last probe may have failed before it saw one.
    pub(in crate::store) skew: Option<i64>,
    pub(in crate::store) succeeded: Option<Instant>,
    /// What complete probes have seen of conditions. A step that fails changes nothing.
    pub(in crate::store) support: Support,
    /// The name of the probe's object.
    pub(in crate::store) name: Option<u64>,
}

/// Consecutive failures until the storage is down; one success makes it ready again. After the first failure it is
/// probed again at once, so that a hung storage is down within two rounds and twice the timeout of a step.
pub(in crate::store) const MAX_FAILURES: u32 = 2;

/// Which step has shown nothing is logged as this.
pub(in crate::store) const UNSEEN: &str = "cannot see whether the storage can do this: what was known of it stays, and a later check tries it again";

/// Seconds of clock skew that are logged. S3 refuses more than 15 minutes.
const SKEW_WARNING: u64 = 300;

impl ProbeResults {
    /// Logs the result of the first probe.
    pub(in crate::store) fn log(&self) {
        let can = |ability| self.can(ability);
        match (&self.error, self.is_unfit()) {
            (Some(error), true) => {
                tracing::error!(error, "the storage does not do what is needed");
            }
            (Some(error), false) => tracing::error!(error, "the check of the storage failed"),
            (None, _) => tracing::info!(
                list = can(Ability::List),
                write = can(Ability::Write),
                conditional_create = can(Ability::Create),
                conditional_update = can(Ability::Update),
                conditional_multipart = can(Ability::CreateLarge),
                multipart_etag = can(Ability::MultipartEtag),
                read = can(Ability::Read),
                delete = can(Ability::Delete),
                "storage probe succeeded"
            ),
        }
        if let Some(skew) = self.skew.filter(|skew| skew.unsigned_abs() > SKEW_WARNING) {
            tracing::warn!(
                skew,
                "the clocks of this machine and of the storage differ by so many seconds"
            );
        }
        self.log_conditions();
    }

    /// Logs what a lack of abilities means for creations, and which abilities are not known.
    pub(in crate::store) fn log_conditions(&self) {
        let can = |ability| self.can(ability);
        let unknown = self.unknown().map(Ability::name).collect::<Vec<_>>().join(", ");
        if !unknown.is_empty() {
            tracing::warn!(
                unknown,
                until_then = self.until_known(),
                "it is not known whether the storage can do this, because no check of it has succeeded; it is tried again"
            );
        }
        if self.refuses_uploads {
            tracing::warn!(
                "this storage refuses uploads in parts: artifacts above 8 MiB cannot be stored"
            );
        }
        if can(Ability::Create) == Some(false) {
            tracing::warn!(
                "this storage ignores or refuses the condition that no object exists: parallel creations of an object \
                 exclude each other within this process, but not between replicas"
            );
        } else if self.refuses_uploads {
            // No condition matters.
        } else if can(Ability::CreateLarge) == Some(false) {
            tracing::info!(
                "this storage honours no condition on the completion of a multipart upload: a small object beside it \
                 decides which of several replicas creates an artifact"
            );
            if can(Ability::Update) == Some(false) {
                tracing::warn!(
                    "this storage cannot replace one version of an object: if a replica is killed while it creates an \
                     artifact, other creations of that artifact get 503 until the small object is removed after a day"
                );
            }
        }
    }

    /// What holds until it is known which conditions the storage honours, if that matters.
    fn until_known(&self) -> Option<String> {
        let is_unknown = |ability| self.can(ability).is_none();
        let creations = is_unknown(Ability::Create) || is_unknown(Ability::CreateLarge);
        let creations =
            creations.then_some("creations are sent on the condition that no object exists");
        let leases = is_unknown(Ability::Update)
            .then_some("leases that killed replicas have left are not taken over");
        let texts = creations.into_iter().chain(leases).collect::<Vec<_>>();
        (!texts.is_empty()).then(|| texts.join("; "))
    }

    /// Whether the backend has this ability; `None` while no try has shown it.
    pub fn can(&self, ability: Ability) -> Option<bool> {
        self.abilities.iter().find(|(probed, _)| *probed == ability).map(|(_, can)| *can)
    }

    /// Why a step after the last probe, or one of it that has shown nothing, was not tried; `None` if the probe has reached
    /// its end.
    pub fn why_not_tried(&self) -> Option<String> {
        match (self.ended_at, self.can(Ability::Delete)) {
            (Some(step), _) => Some(format!("the check ended at `{step}`")),
            (None, None) => Some("the storage cannot be used".to_owned()),
            (None, Some(_)) => None,
        }
    }

    /// Whether the last probe ended at a step that the storage does not do.
    pub fn is_unfit(&self) -> bool {
        self.ended_at.is_some_and(|step| self.can(step) == Some(false))
    }

    /// The abilities of which nothing is known.
    fn unknown(&self) -> impl Iterator<Item = Ability> {
        Ability::ALL.into_iter().filter(|ability| self.can(*ability).is_none())
    }

    /// What [`Self::log_conditions`] logs: a change of it is logged.
    pub(in crate::store) fn conditions(&self) -> impl PartialEq + use<> {
        let of = [Ability::Create, Ability::Update, Ability::CreateLarge];
        let unknown = self.unknown().collect::<Vec<_>>();
        (of.map(|ability| self.can(ability)), self.refuses_uploads, unknown)
    }

    /// Records what a try has shown.
    pub(in crate::store) fn set(&mut self, ability: Ability, can: bool) {
        self.abilities.retain(|(before, _)| *before != ability);
        self.abilities.push((ability, can));
        self.abilities.sort_unstable();
    }
}

impl Health {
    pub(in crate::store) fn state<T>(&self, with: impl FnOnce(&mut State) -> T) -> T {
        with(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Records a probe, and the step at which it failed with the error of it.
    pub(in crate::store) fn record(
        &self,
        mut results: ProbeResults,
        failure: Option<(Ability, BoxError)>,
    ) {
        self.state(|state| {
            results.ended_at = failure.as_ref().map(|(step, _)| *step);
            results.error = None;
            results.reason = None;
            if let Some((step, error)) = failure {
                let full = one_line(&*error);
                let text = in_words(&full);
                results.reason = Some(reason(&*error));
                if blames_clock(&full) {
                    results.skew = server_time(&full).map(seconds_since);
                    results.reason = Some(text.clone());
                }
                results.error = Some(text.clone());
                if shows_inability(step, &*error) {
                    results.set(step, false);
                } else {
                    if results.can(step).is_none() && state.last.ended_at != Some(step) {
                        let not_tried = results.unknown().filter(|later| *later > step);
                        let not_tried = not_tried.map(Ability::name).collect::<Vec<_>>().join(", ");
                        tracing::warn!(ability = %step, error = text, not_tried, "{UNSEEN}");
                    }
                    results.unseen.push((step, text));
                }
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
            if results.failures >= MAX_FAILURES && !state.is_down {
                tracing::error!(error = results.error, "the storage does not answer");
                state.is_down = true;
            }
            state.skew = results.skew.or(state.skew);
            state.last = results;
        });
    }
}

/// An error of the storage, on one line, as it is shown. A wrong clock is named as such, whichever step fails.
pub(in crate::store) fn in_words(one_line: &str) -> String {
    if !blames_clock(one_line) {
        return concise(one_line);
    }
    let skew = server_time(one_line).map(seconds_since);
    let by = skew.map_or_else(|| "too much".to_owned(), |skew| format!("{skew} s"));
    format!(
        "this machine's clock and the storage's differ by {by}, which the storage refuses: set the clock, by NTP for \
         example"
    )
}

/// The server's time, if the error contains it.
pub(in crate::store) fn server_time(one_line: &str) -> Option<jiff::Timestamp> {
    let (_, after) = one_line.split_once("<ServerTime>")?;
    after.split_once('<')?.0.parse().ok()
}

pub(in crate::store) fn seconds_since(time: jiff::Timestamp) -> i64 {
    jiff::Timestamp::now().as_second() - time.as_second()
}

/// An error and its causes, on one line.
pub(in crate::store) fn one_line(error: &(dyn std::error::Error + 'static)) -> String {
    chain(error).split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Which conditions a storage honours, as a probe saw last; `None` until one has seen it.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::store) struct Support {
    /// Whether a put that creates is refused if an object exists. Each complete probe tries it.
    pub(in crate::store) creates: Option<bool>,
    /// Whether a put that creates is refused in any case, because the server does not support the condition.
    pub(in crate::store) refuses_creations: bool,
    /// Whether a put can replace one version of an object and no other. Each complete probe tries it until it is seen.
    pub(in crate::store) updates: Option<bool>,
    /// Each complete probe tries it until the refusal is seen.
    pub(in crate::store) multipart: Option<MultipartSupport>,
}

/// How a storage handles multipart uploads.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::store) struct MultipartSupport {
    /// Whether one can be started, given a part, and completed.
    pub(in crate::store) works: bool,
    /// Whether a completion is refused if an object exists and the request demands a creation.
    pub(in crate::store) refuses_existing: bool,
    /// Whether a completion returns the object's final `ETag`.
    pub(in crate::store) etags: bool,
}
