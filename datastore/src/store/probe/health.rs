//! The results of probes, and whether the storage is up. It knows no store.

use std::sync::{Arc, Mutex, PoisonError};

use datastore_api::chain;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::store::backend::reason::{concise, reason};
use crate::store::error::BoxError;

/// An ability of a storage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Ability {
    /// List keys. Only a listing distinguishes a missing bucket from a missing object.
    List,
    /// Write an object.
    Write,
    /// Refuse to create an object that exists.
    Create,
    /// Replace one version of an object, and refuse to replace any other.
    Update,
    /// Refuse to create a large object that exists: one that is uploaded in parts.
    CreateLarge,
    /// Return the object's final `ETag` when a multipart upload is completed.
    MultipartEtag,
    /// Read an object.
    Read,
    /// Delete an object.
    Delete,
}

/// The results of the last probe.
#[derive(Clone, Debug, Default)]
pub struct ProbeResults {
    /// The abilities that were tried.
    pub abilities: Vec<(Ability, bool)>,
    /// The abilities that a try has not shown, and its error; a later probe tries them again.
    pub unknown: Vec<(Ability, String)>,
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
/// probed again at once, so that a hung storage is down within 5 s and twice the timeout of a step.
pub(in crate::store) const MAX_FAILURES: u32 = 2;

/// Seconds of clock skew that are logged. S3 refuses more than 15 minutes.
const SKEW_WARNING: u64 = 300;

impl Ability {
    /// All abilities, in the order in which they are tried.
    pub const ALL: [Self; 8] = [
        Self::List,
        Self::Write,
        Self::Create,
        Self::Update,
        Self::CreateLarge,
        Self::MultipartEtag,
        Self::Read,
        Self::Delete,
    ];

    /// The label in metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::List => "list",
            Self::Write => "write",
            Self::Create => "conditional_create",
            Self::Update => "conditional_update",
            Self::CreateLarge => "conditional_multipart",
            Self::MultipartEtag => "multipart_etag",
            Self::Read => "read",
            Self::Delete => "delete",
        }
    }
}

impl ProbeResults {
    pub(in crate::store) fn log(&self) {
        let can = |ability| self.can(ability);
        if let Some(error) = &self.error {
            tracing::error!(error, "the storage does not do what is needed");
        } else {
            tracing::info!(
                list = can(Ability::List),
                write = can(Ability::Write),
                conditional_create = can(Ability::Create),
                conditional_update = can(Ability::Update),
                conditional_multipart = can(Ability::CreateLarge),
                multipart_etag = can(Ability::MultipartEtag),
                read = can(Ability::Read),
                delete = can(Ability::Delete),
                "storage probe succeeded"
            );
        }
        if let Some(skew) = self.skew.filter(|skew| skew.unsigned_abs() > SKEW_WARNING) {
            tracing::warn!(
                skew,
                "the clocks of this machine and of the storage differ by so many seconds"
            );
        }
        if can(Ability::Create) == Some(false) {
            tracing::warn!(
                "this storage overwrites although the request demands a creation: parallel creations of an object exclude \
                 each other within this process, but not between replicas"
            );
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

    /// Whether the backend has this ability, if it was tried.
    pub fn can(&self, ability: Ability) -> Option<bool> {
        self.abilities.iter().find(|(probed, _)| *probed == ability).map(|(_, can)| *can)
    }
}

impl Health {
    pub(in crate::store) fn state<T>(&self, with: impl FnOnce(&mut State) -> T) -> T {
        with(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Records a probe.
    pub(in crate::store) fn record(&self, mut results: ProbeResults, error: Option<BoxError>) {
        self.state(|state| {
            results.reason = error.as_deref().map(|error| reason(error));
            results.error = error.map(|error| one_line(&*error));
            if let Some(one_line) = results.error.as_deref().filter(|one_line| is_skewed(one_line)) {
                results.skew = server_time(one_line).map(seconds_since);
                let by = results.skew.map_or_else(|| "too much".to_owned(), |skew| format!("{skew} s"));
                results.error = Some(format!(
                    "this machine's clock and the storage's differ by {by}, which the storage refuses: set \
                     the clock, by NTP for example"
                ));
                results.reason.clone_from(&results.error);
            }
            results.error = results.error.as_deref().map(concise);
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

/// Whether S3 refuses the request because of the clock.
pub(in crate::store) fn is_skewed(one_line: &str) -> bool {
    one_line.contains("RequestTimeTooSkewed")
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
    /// Whether a put can replace one version of an object and no other. Each complete probe tries it until it is seen.
    pub(in crate::store) updates: Option<bool>,
    /// Each complete probe tries it until the refusal is seen.
    pub(in crate::store) multipart: Option<MultipartSupport>,
}

/// How a storage handles multipart uploads.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::store) struct MultipartSupport {
    /// Whether a completion is refused if an object exists and the request demands a creation.
    pub(in crate::store) refuses_existing: bool,
    /// Whether a completion returns the object's final `ETag`.
    pub(in crate::store) etags: bool,
}
