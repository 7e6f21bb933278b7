//! The control object of a layer: what changes about its states, and the rules for each change. It knows no storage.
//!
//! Two things exclude writers from each other. A *lock* of a state is terraform's own: its ID names it, and it stays until it
//! is removed. A *lease* of the whole layer is a runner's: it expires, and has a fencing number that only rises. They are
//! granted in one order: no lease while another's lock is held, and no lock or write from outside while a lease is valid. A
//! writer whose number is lower than the layer's has lost its lease, and is refused for ever.

pub(crate) mod held;

use std::collections::BTreeMap;

use datastore_api::Sha256;
use datastore_api::state::{StateHead, StateVersion, ToolRecord};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::store::state::control::held::{Claims, HeldLease, Lock};
use crate::store::state::credential::FormerLease;
use crate::store::state::document::StateDocument;
use crate::store::state::error::StateError;

/// The most workspaces of one layer.
const MAX_WORKSPACES: usize = 500;

/// The most lineages of deleted and replaced states that are remembered.
const MAX_FORMER_LINEAGES: usize = 20;

/// So many IDs of removed locks are remembered for each state.
const MAX_FREED_LOCKS: usize = 8;

/// The content of a control object.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::store) struct Control {
    /// The version of this format.
    pub(super) format: u32,
    /// The random id of the last replacement, by which a writer without an answer recognizes its own.
    pub(super) write: String,
    /// The highest fencing number of any lease.
    pub(super) fence: u64,
    pub(super) lease: Option<HeldLease>,
    /// The last leases that were not released by their holders, oldest first.
    pub(super) former: Vec<FormerLease>,
    pub(super) tool: Option<ToolRecord>,
    /// By workspace.
    pub(super) states: BTreeMap<String, State>,
}

/// The present state of one workspace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::store) struct State {
    /// The last version that was written, also after a deletion.
    pub(super) version: Option<StateVersion>,
    /// The highest serial of any version. A restored one gets a higher one, so that no writer of any earlier version can
    /// follow it.
    pub(super) highest_serial: u64,
    pub(super) deleted: Option<Timestamp>,
    /// Lineages of deleted and replaced states, the last at the end: their writers may still work.
    pub(super) former_lineages: Vec<String>,
    pub(super) lock: Option<Lock>,
    /// The IDs of the locks that were removed last, the last at the end. Its holder removes a lock again if the answer was lost,
    /// and another may have locked the state since.
    pub(super) freed_locks: Vec<String>,
    pub(super) place: Option<String>,
}

/// What a write does to the order of versions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::store) enum Order {
    /// The state has these bytes already.
    Unchanged,
    /// It is the next version of this generation.
    Next(u64),
}

impl Control {
    /// The version of the format that this program writes.
    pub(super) const FORMAT: u32 = 2;

    fn valid_lease(&self, now: Timestamp) -> Option<&HeldLease> {
        self.lease.as_ref().filter(|lease| lease.is_valid(now))
    }

    /// Takes the lease, or renews it for the same `id`.
    pub(super) fn take_lease(
        &mut self,
        new: HeldLease,
        now: Timestamp,
    ) -> Result<HeldLease, StateError> {
        match &mut self.lease {
            Some(lease) if lease.id == new.id && lease.number == self.fence => {
                lease.extend(new.expires, now);
                lease.credential = new.credential;
                return Ok(lease.clone());
            }
            Some(lease) if lease.is_valid(now) => return Err(StateError::Leased(lease.as_lock())),
            _ => {}
        }
        // A lock with a number belongs to a lease that has ended: it does not keep the lease from its successor, but it stays.
        let mut locks = self.states.values().filter_map(|state| state.lock.as_ref());
        if let Some(lock) = locks.find(|lock| lock.fence.is_none()) {
            return Err(StateError::Locked(lock.shown()));
        }
        let took_over = self.end_expired().map(|dead| dead.described());
        self.fence += 1;
        let lease = HeldLease { number: self.fence, took_over, ..new };
        self.lease = Some(lease.clone());
        Ok(lease)
    }

    /// Renews a lease, also one that has expired and that nobody has taken over.
    pub(super) fn renew_lease(
        &mut self,
        id: &str,
        expires: Timestamp,
        now: Timestamp,
    ) -> Result<HeldLease, StateError> {
        match &mut self.lease {
            Some(lease) if lease.id == id && lease.number == self.fence => {
                lease.extend(expires, now);
                Ok(lease.clone())
            }
            _ => Err(StateError::LeaseLost(self.why_lost(now))),
        }
    }

    /// Releases a lease, if its holder still has it.
    pub(super) fn release_lease(&mut self, id: &str) {
        if let Some(lease) = self.lease.take_if(|lease| lease.id == id) {
            self.mark_locks(&lease, lease.renewed);
        }
    }

    /// Who has the layer instead of a caller that has lost its lease.
    fn why_lost(&self, now: Timestamp) -> String {
        match self.valid_lease(now) {
            Some(lease) => format!(
                "the lease of the layer is lost: {} has taken it, with the number {}",
                lease.described(),
                lease.number
            ),
            None => "the lease of the layer has ended, and another writer has worked on it since, or it was released"
                .to_owned(),
        }
    }

    /// Checks the number of a caller's lease, which is that of its lock if it sends none. Anybody may read the number, so it
    /// counts only for the caller that has taken the lease.
    fn check_fence(
        &self,
        fence: Option<u64>,
        claims: &Claims,
        now: Timestamp,
    ) -> Result<(), StateError> {
        let present = self.lease.as_ref().filter(|lease| lease.number == self.fence);
        match (fence, present) {
            // Nobody has taken over, so an expired lease still counts.
            (Some(number), Some(lease)) if number == lease.number => {
                if lease.is_of(claims) {
                    Ok(())
                } else {
                    Err(StateError::Leased(lease.as_lock()))
                }
            }
            (Some(number), _) => Err(StateError::LeaseLost(format!(
                "the fencing number {number} is no longer valid, the layer's is {}: {}",
                self.fence,
                self.why_lost(now)
            ))),
            (None, _) => match self.valid_lease(now) {
                Some(lease) => Err(StateError::Leased(lease.as_lock())),
                None => Ok(()),
            },
        }
    }

    /// Locks a state, or confirms the lock for the same ID.
    pub(super) fn lock(
        &mut self,
        workspace: &str,
        lock: Lock,
        claims: &Claims,
        now: Timestamp,
    ) -> Result<(), StateError> {
        let held = self.states.get(workspace).and_then(|state| state.lock.as_ref());
        match held {
            Some(held) if held.id == lock.id && held.fence == lock.fence => {
                let lease = self.lease.as_ref().filter(|lease| held.fence == Some(lease.number));
                return match lease.filter(|lease| !lease.is_of(claims)) {
                    Some(lease) => Err(StateError::Leased(lease.as_lock())),
                    None => Ok(()),
                };
            }
            Some(held) => return Err(StateError::Locked(held.shown())),
            None => {}
        }
        self.check_fence(lock.fence, claims, now)?;
        let is_outside = lock.fence.is_none();
        let state = self.state_mut(workspace)?;
        state.check_place(claims)?;
        state.lock = Some(lock);
        // The holder of an expired lease must not write beside this lock.
        if is_outside && self.end_expired().is_some() {
            self.fence += 1;
        }
        Ok(())
    }

    /// Removes the lock with this ID. A lock that is not held any more is no error. One that was taken under a lease that is
    /// valid is removed only by the holder of the lease, or by an operator, who has no claims.
    pub(super) fn unlock(
        &mut self,
        workspace: &str,
        id: &str,
        claims: Option<&Claims>,
        now: Timestamp,
    ) -> Result<(), StateError> {
        let valid = self.valid_lease(now).cloned();
        let Some(state) = self.states.get_mut(workspace) else { return Ok(()) };
        match &state.lock {
            Some(lock) if lock.id != id => {
                let was_freed =
                    claims.is_some() && state.freed_locks.iter().any(|freed| freed == id);
                if was_freed {
                    return Ok(());
                }
                Err(StateError::OtherLock {
                    held: lock.id.clone(),
                    given: id.to_owned(),
                    info: lock.shown(),
                })
            }
            Some(lock) => {
                let lease = valid.filter(|lease| lock.fence == Some(lease.number));
                if let (Some(claims), Some(lease)) = (claims, lease)
                    && (claims.fence != lock.fence || !lease.is_of(claims))
                {
                    return Err(lease.is_alive());
                }
                state.free_lock();
                Ok(())
            }
            None => Ok(()),
        }
    }

    /// Removes the lock that was taken under the lease of the claims, whatever its ID is. Returns false if another one is held.
    pub(super) fn unlock_own(
        &mut self,
        workspace: &str,
        claims: &Claims,
        now: Timestamp,
    ) -> Result<bool, StateError> {
        let lock = self.states.get(workspace).and_then(|state| state.lock.as_ref());
        let Some(lock) = lock else { return Ok(true) };
        if lock.fence.is_none() || lock.fence != claims.fence {
            return Ok(false);
        }
        let id = lock.id.clone();
        self.unlock(workspace, &id, Some(claims), now).map(|()| true)
    }

    /// Removes any lock, as `force-unlock` asks for, unless its holder's lease is valid.
    pub(super) fn force_unlock(
        &mut self,
        workspace: &str,
        now: Timestamp,
    ) -> Result<(), StateError> {
        let valid = self.valid_lease(now).cloned();
        let Some(state) = self.states.get_mut(workspace) else { return Ok(()) };
        let fence = state.lock.as_ref().and_then(|lock| lock.fence);
        if let Some(lease) = valid.filter(|lease| fence == Some(lease.number)) {
            return Err(lease.is_alive());
        }
        state.free_lock();
        Ok(())
    }

    /// The number of the lease under which a caller writes: the one that it names, or that of its lock.
    fn fence_of(&self, workspace: &str, claims: &Claims) -> Option<u64> {
        let lock = self.states.get(workspace).and_then(|state| state.lock.as_ref());
        let own_lock = lock.filter(|lock| claims.lock.as_ref() == Some(&lock.id));
        claims.fence.or(own_lock.and_then(|lock| lock.fence))
    }

    /// The run of the lease under which a caller writes.
    pub(super) fn run_of(&self, workspace: &str, claims: &Claims) -> Option<String> {
        let fence = self.fence_of(workspace, claims)?;
        let present = self.lease.as_ref().filter(|lease| lease.number == fence);
        if let Some(lease) = present {
            return lease.request.run.clone().filter(|_| lease.is_of(claims));
        }
        let former = self.former.iter().find(|lease| lease.number == fence)?;
        former.run.clone().filter(|_| claims.by_credential)
    }

    /// Whether a caller may write a state now.
    pub(super) fn check_writer(
        &self,
        workspace: &str,
        claims: &Claims,
        now: Timestamp,
    ) -> Result<(), StateError> {
        let lock = self.states.get(workspace).and_then(|state| state.lock.as_ref());
        let own_lock = lock.filter(|lock| claims.lock.as_ref() == Some(&lock.id));
        let fence = self.fence_of(workspace, claims);
        // The reason that does not pass comes first: a writer that has lost its lease must not wait for the lock.
        match (self.check_fence(fence, claims, now), lock, &claims.lock) {
            (Err(lost @ StateError::LeaseLost(_)), ..) => Err(lost),
            (_, Some(lock), _) if own_lock.is_none() => Err(StateError::Locked(lock.shown())),
            (checked, Some(_), _) | (checked, None, None) => checked,
            (checked, None, Some(id)) => checked.and(Err(StateError::LockLost(id.clone()))),
        }
    }

    /// Decides how a document follows the present version. With `force` lineage and serial may be any.
    pub(super) fn order(
        &self,
        workspace: &str,
        document: &StateDocument,
        sha256: Sha256,
        claims: &Claims,
        force: bool,
    ) -> Result<Order, StateError> {
        let Some(state) = self.states.get(workspace) else { return Ok(Order::Next(1)) };
        let Some(version) = &state.version else {
            return state.check_place(claims).map(|()| Order::Next(1));
        };
        let next = version.generation + 1;
        if state.deleted.is_some() {
            state.check_place(claims)?;
            let is_former = state.former_lineages.contains(&document.lineage);
            return if is_former && !force {
                Err(StateError::Deleted)
            } else {
                Ok(Order::Next(next))
            };
        }
        if version.sha256 == sha256 {
            return Ok(Order::Unchanged);
        }
        state.check_place(claims)?;
        let is_same = version.lineage == document.lineage;
        match (is_same, document.serial > version.serial) {
            (true, true) => Ok(Order::Next(version.generation)),
            _ if force => Ok(Order::Next(next)),
            (false, _) => Err(StateError::Lineage {
                stored: version.lineage.clone(),
                written: document.lineage.clone(),
            }),
            (true, false) => {
                Err(StateError::Serial { stored: version.serial, written: document.serial })
            }
        }
    }

    /// Makes a version the state.
    pub(super) fn set_version(
        &mut self,
        workspace: &str,
        version: StateVersion,
        claims: &Claims,
    ) -> Result<(), StateError> {
        let state = self.state_mut(workspace)?;
        state.highest_serial = state.highest_serial.max(version.serial);
        state.former_lineages.retain(|lineage| *lineage != version.lineage);
        let lineage = version.lineage.clone();
        let replaced =
            state.version.replace(version).filter(|replaced| replaced.lineage != lineage);
        if let Some(replaced) = replaced {
            state.remember_lineage(replaced.lineage);
        }
        state.deleted = None;
        if let Some(place) = &claims.place
            && (state.place.is_none() || claims.rebind)
        {
            state.place = Some(place.clone());
        }
        Ok(())
    }

    /// Deletes a state; its last version stays known.
    pub(super) fn delete(&mut self, workspace: &str, now: Timestamp) {
        if let Some(state) = self.states.get_mut(workspace)
            && let Some(version) = &state.version
            && state.deleted.is_none()
        {
            let lineage = version.lineage.clone();
            state.deleted = Some(now);
            state.remember_lineage(lineage);
        }
    }

    /// Undoes a deletion.
    pub(super) fn undelete(&mut self, workspace: &str) -> Result<(), StateError> {
        match self.states.get_mut(workspace) {
            Some(state) if state.deleted.is_some() => {
                state.deleted = None;
                Ok(())
            }
            Some(state) if state.version.is_some() => Err(StateError::NotDeleted),
            _ => Err(StateError::NoState("state whose deletion could be undone")),
        }
    }

    fn state_mut(&mut self, workspace: &str) -> Result<&mut State, StateError> {
        if !self.states.contains_key(workspace) && self.states.len() >= MAX_WORKSPACES {
            // Each plan of a workspace without a state has locked it.
            self.states.retain(|_, state| !state.is_empty());
        }
        if !self.states.contains_key(workspace) && self.states.len() >= MAX_WORKSPACES {
            return Err(StateError::TooManyWorkspaces(MAX_WORKSPACES));
        }
        Ok(self.states.entry(workspace.to_owned()).or_default())
    }
}

impl State {
    /// The version that readers get.
    pub(super) fn present(&self) -> Option<&StateVersion> {
        self.version.as_ref().filter(|_| self.deleted.is_none())
    }

    /// Whether only locks were ever recorded, and none is held. Such an entry is kept for the IDs of these locks as long as there
    /// is room.
    fn is_empty(&self) -> bool {
        let Self {
            version,
            highest_serial: _,
            deleted,
            former_lineages,
            lock,
            freed_locks: _,
            place,
        } = self;
        version.is_none()
            && deleted.is_none()
            && former_lineages.is_empty()
            && lock.is_none()
            && place.is_none()
    }

    /// As callers see it.
    pub(super) fn head(&self) -> StateHead {
        StateHead {
            version: self.present().cloned(),
            deleted: self.deleted.map(|time| time.to_string()),
            lock: self.lock.as_ref().map(Lock::shown),
            place: self.place.clone(),
        }
    }

    /// Removes the lock, and remembers its ID.
    fn free_lock(&mut self) {
        let Some(lock) = self.lock.take() else { return };
        self.freed_locks.retain(|freed| *freed != lock.id);
        self.freed_locks.push(lock.id);
        let surplus = self.freed_locks.len().saturating_sub(MAX_FREED_LOCKS);
        self.freed_locks.drain(..surplus);
    }

    fn remember_lineage(&mut self, lineage: String) {
        self.former_lineages.retain(|former| *former != lineage);
        self.former_lineages.push(lineage);
        let surplus = self.former_lineages.len().saturating_sub(MAX_FORMER_LINEAGES);
        self.former_lineages.drain(..surplus);
    }

    fn check_place(&self, claims: &Claims) -> Result<(), StateError> {
        match (&self.place, &claims.place) {
            (Some(stored), Some(given)) if stored != given && !claims.rebind => {
                Err(StateError::Place { stored: stored.clone(), given: given.clone() })
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests;
