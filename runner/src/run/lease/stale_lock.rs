//! The lock of a run that is dead. Taking over its lease does not free it: its tool may still work, or have ended without
//! saving what it has done.

use datastore_api::client::StateOrigin;
use datastore_api::state::{StateHead, StateKey};
use datastore_api::{Client, HumanDuration, chain};
use jiff::Timestamp;
use serde_json::Value;

use crate::process::text::one_line;
use crate::run::Run;
use crate::run::error::RunError;
use crate::run::lease::{LeaseError, StaleLock};

impl Run<'_> {
    /// Refuses a state with the lock of a dead run, or removes the lock, if `--break-stale-lock` says so.
    pub(super) async fn check_stale_lock(
        &mut self,
        datastore: &Client,
        key: &StateKey,
    ) -> Result<(), RunError> {
        let Some(lease) = self.lease.held() else { return Ok(()) };
        let head = datastore.states(key, None, 1, None);
        let head = match self.signals.or(head).await.map_err(RunError::Stopped)? {
            Ok(states) => states.head,
            Err(error) => {
                tracing::debug!("it is not known whether the state is locked: {}", chain(&error));
                return Ok(());
            }
        };
        let Some((lock, info)) = stale_lock(&head, lease.number()) else { return Ok(()) };
        if !self.may_break(&lock, lease.now()) {
            let lock = Box::new(lock);
            return Err(LeaseError::StaleLock { key: key.clone(), lock }.into());
        }
        let origin = StateOrigin { fence: Some(lease.number()), ..StateOrigin::default() };
        let freed = datastore.free_lock(key, &origin, info);
        self.signals.or(freed).await.map_err(RunError::Stopped)?.map_err(LeaseError::from)?;
        let line = format!(
            "the lock of the state {key} is removed (--break-stale-lock): it was that of {lock}"
        );
        tracing::warn!("{line}");
        Ok(self.log.line(&line)?)
    }

    fn may_break(&self, lock: &StaleLock, now: Timestamp) -> bool {
        let (Some(after), Some(ended)) = (self.job.break_stale_lock, lock.ended) else {
            if self.job.break_stale_lock.is_some() {
                tracing::warn!("the lock is not removed: it is not known when its lease has ended");
            }
            return false;
        };
        let since = std::time::Duration::try_from(now.duration_since(ended));
        let is_over = since.as_ref().is_ok_and(|since| *since >= after);
        if !is_over {
            tracing::warn!(
                "the lock is not removed: its lease has not ended {} ago (--break-stale-lock)",
                HumanDuration(after)
            );
        }
        is_over
    }
}

/// The lock of the state, if it was taken under an earlier lease than this one.
fn stale_lock(head: &StateHead, ours: u64) -> Option<(StaleLock, &Value)> {
    let info = head.lock.as_ref()?;
    let number = info.get("fence")?.as_u64().filter(|number| *number < ours)?;
    let text = |name: &str| info.get(name).and_then(Value::as_str).filter(|text| !text.is_empty());
    let ended = text("ended");
    let part = |name, before: &str| text(name).map(|text| format!("{before}{text}"));
    let parts = [
        part("Who", ""),
        part("Operation", " for "),
        part("Created", ", since "),
        part("holder", "; its lease was that of "),
    ];
    let holder = parts.into_iter().flatten().collect::<String>();
    let stale = StaleLock {
        id: one_line(text("ID").unwrap_or_default()),
        holder: one_line(&holder),
        number,
        ended: ended.and_then(|ended| ended.parse().ok()),
    };
    Some((stale, info))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_the_lock_of_an_earlier_lease_is_stale() {
        let info = json!({"ID": "x-1", "Who": "me@host", "Operation": "OperationTypeApply", "Created": "2026-01-01T00:00:00Z",
            "fence": 3, "ended": "2026-01-01T00:05:00Z", "holder": "ci\non b"});
        let head = StateHead { lock: Some(info), ..StateHead::default() };
        let (lock, _) = stale_lock(&head, 4).unwrap();
        assert_eq!(
            lock.to_string(),
            "me@host for OperationTypeApply, since 2026-01-01T00:00:00Z; its lease was that of ci on b (lock ID x-1, lease 3, \
             which ended at 2026-01-01T00:05:00Z)"
        );
        assert!(stale_lock(&head, 3).is_none(), "it is that of this run");
        let head = StateHead { lock: Some(json!({"ID": "x"})), ..StateHead::default() };
        assert!(stale_lock(&head, 4).is_none(), "it was taken without a lease");
        assert!(stale_lock(&StateHead::default(), 4).is_none());
    }
}
