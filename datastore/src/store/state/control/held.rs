//! A lock and a lease that are held, how they are shown, and with what callers claim them.

use datastore_api::state::LeaseRequest;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::store::state::credential::Credential;
use crate::store::state::error::StateError;

/// The lock of a state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::store) struct Lock {
    pub(in crate::store::state) id: String,
    /// What its holder sent.
    pub(in crate::store::state) info: Value,
    /// The number of the lease under which it was taken.
    pub(in crate::store::state) fence: Option<u64>,
    /// When that lease ended, and whose it was, if it ended before the lock was removed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(in crate::store::state) ended: Option<(Timestamp, String)>,
}

/// The lease of a layer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::store) struct HeldLease {
    /// The random id that its holder chose.
    pub(in crate::store::state) id: String,
    pub(in crate::store::state) number: u64,
    pub(in crate::store::state) request: LeaseRequest,
    pub(in crate::store::state) caller: Option<String>,
    pub(in crate::store::state) acquired: Timestamp,
    pub(in crate::store::state) renewed: Timestamp,
    pub(in crate::store::state) expires: Timestamp,
    pub(in crate::store::state) took_over: Option<String>,
    pub(in crate::store::state) credential: Option<Credential>,
}

/// With what a caller locks or writes.
#[derive(Clone, Debug, Default)]
pub struct Claims {
    /// The ID of its lock.
    pub lock: Option<String>,
    /// The number of its lease.
    pub fence: Option<u64>,
    /// Where its code is.
    pub place: Option<String>,
    /// Whether that place may replace another one.
    pub rebind: bool,
    /// Its name; `None` where callers are not authenticated.
    pub caller: Option<String>,
    /// Whether it is known by the credential of the lease with this number.
    pub by_credential: bool,
}

impl Lock {
    /// What its holder sent, with the number of its lease. If that has ended: when, and whose it was.
    pub(in crate::store::state) fn shown(&self) -> Value {
        let mut info = self.info.clone();
        if let (Some(fence), Some(info)) = (self.fence, info.as_object_mut()) {
            info.insert("fence".to_owned(), fence.into());
            if let Some((ended, holder)) = &self.ended {
                info.insert("ended".to_owned(), ended.to_string().into());
                info.insert("holder".to_owned(), holder.clone().into());
            }
        }
        info
    }
}

impl HeldLease {
    /// Whether a caller that names its number is its holder. Where callers are not authenticated, everybody is. A lease without a
    /// credential was taken by a caller that may not use the state, or did not ask for it: a tool with a password of its own
    /// works under it.
    pub(in crate::store::state) fn is_of(&self, claims: &Claims) -> bool {
        let is_caller = claims.caller.is_none() || claims.caller == self.caller;
        is_caller || claims.by_credential || self.credential.is_none()
    }

    pub(in crate::store::state) fn is_valid(&self, now: Timestamp) -> bool {
        now < self.expires
    }

    pub(in crate::store::state) fn extend(&mut self, expires: Timestamp, now: Timestamp) {
        self.renewed = now;
        // The clock of another replica may be behind.
        self.expires = self.expires.max(expires);
    }

    /// Holder, machine, run and time, for people.
    pub(in crate::store::state) fn described(&self) -> String {
        let LeaseRequest { holder, host, run } = &self.request;
        let run = run.as_ref().map(|run| format!(" for the run {run}")).unwrap_or_default();
        let text = format!("{holder} on {host}{run}, renewed at {}", shown_time(self.renewed));
        text.replace(char::is_control, " ")
    }

    /// Why a lock that was taken under it stays.
    pub(in crate::store::state) fn is_alive(&self) -> StateError {
        StateError::HolderAlive { number: self.number, holder: self.described() }
    }

    /// In the form of a lock, as terraform shows the holder of one.
    pub(in crate::store::state) fn as_lock(&self) -> Value {
        let LeaseRequest { holder, host, run } = &self.request;
        json!({
            "ID": format!("lease-{}", self.number),
            "Operation": "the lease of the layer",
            "Info": run.as_ref().map(|run| format!("run {run}")).unwrap_or_default(),
            "Who": format!("{holder}@{host}"),
            "Version": "",
            "Created": shown_time(self.acquired),
            "Path": "",
        })
    }
}

/// To the second.
fn shown_time(time: Timestamp) -> String {
    let second = Timestamp::from_second(time.as_second()).unwrap_or(time);
    second.to_string()
}
