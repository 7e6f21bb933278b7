//! Which versions of one state expire.
//!
//! It knows ids and times, and no storage: [`crate::cli::gc::states`] lists and deletes.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::time::Duration;

use datastore_api::VersionId;
use datastore_api::state::StateKind;
use jiff::Timestamp;

use crate::cli::gc::select::Rules;
use crate::kind::Kind;
use crate::store::Object;

/// How long a deleted state can be undeleted at least.
pub(super) const DELETED_STATE_AGE: Duration = Duration::from_hours(30 * 24);
/// The age from which a document that no description names is deleted. A younger one may belong to a write in progress.
const UNUSED_DOCUMENT_AGE: Duration = Duration::from_hours(7 * 24);

/// The kinds of versions, in the order in which they are printed.
const KINDS: [StateKind; 3] = [StateKind::Head, StateKind::Snapshot, StateKind::Rejected];

/// What is stored of one state.
#[derive(Clone, Debug, Default)]
pub(super) struct Stored {
    /// The version that is the state, or was it when the state was deleted.
    pub(super) last: Option<VersionId>,
    /// When the state was deleted, if it was.
    pub(super) deleted: Option<Timestamp>,
    /// The versions with a description, by kind.
    pub(super) described: BTreeSet<(u8, VersionId)>,
    /// The documents.
    pub(super) documents: BTreeMap<VersionId, Object>,
}

/// A version that expires.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Expired {
    pub(super) id: VersionId,
    /// `None` for a document without a description.
    pub(super) kind: Option<StateKind>,
    pub(super) reason: Reason,
}

/// Why a version expires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reason {
    /// It is not one of the last ones of its kind.
    Count(usize),
    /// It has not been the state for longer than this, or is older.
    Age(Duration),
    /// An interrupted write has left it.
    Unused,
    /// Its state was deleted at this time, and cannot be undeleted any more.
    Deleted(Timestamp),
}

impl Stored {
    /// Records a description.
    pub(super) fn describe(&mut self, kind: StateKind, id: VersionId) {
        self.described.insert((position(kind), id));
    }

    /// The versions of a kind, newest first. The present one may have no description.
    pub(super) fn versions(&self, kind: StateKind) -> Vec<VersionId> {
        let described = self.described.iter().filter(|(of, _)| *of == position(kind));
        let mut ids = described.map(|(_, id)| id.clone()).collect::<BTreeSet<_>>();
        ids.extend(self.last.clone().filter(|_| kind == StateKind::Head));
        ids.into_iter().collect()
    }

    /// Since when a deleted state can be removed completely by the rules.
    pub(super) fn removable(&self, rules: &Rules, now: Timestamp) -> Option<Timestamp> {
        let max_age = *rules.max_age.get(&Kind::State)?;
        let deleted = self.deleted?;
        let age = age(deleted, now);
        (age > max_age.max(DELETED_STATE_AGE) && age >= rules.min_age).then_some(deleted)
    }

    /// The versions that expire. None of `kept` does.
    pub(super) fn select(
        &self,
        rules: &Rules,
        now: Timestamp,
        kept: &HashSet<VersionId>,
    ) -> Vec<Expired> {
        let mut expired = Vec::new();
        // An undeleted state needs its history as well.
        if self.deleted.is_none_or(|deleted| age(deleted, now) > DELETED_STATE_AGE) {
            for kind in KINDS {
                self.select_kind(kind, rules, now, kept, &mut expired);
            }
        }
        expired.extend(self.unused(rules, now));
        expired
    }

    fn select_kind(
        &self,
        kind: StateKind,
        rules: &Rules,
        now: Timestamp,
        kept: &HashSet<VersionId>,
        expired: &mut Vec<Expired>,
    ) {
        let max_age = rules.max_age.get(&Kind::State).copied();
        let mut newer: Option<VersionId> = None;
        for (position, id) in self.versions(kind).into_iter().enumerate() {
            // A version that was the state for a year and was replaced yesterday is what a restore needs.
            let since = newer.as_ref().filter(|_| kind == StateKind::Head).unwrap_or(&id);
            let age = age(time(since), now);
            let is_kept = self.last.as_ref() == Some(&id) || kept.contains(&id);
            let count = rules.keep_states.filter(|keep| position >= *keep).map(Reason::Count);
            let reason = count.or(max_age.filter(|max_age| age > *max_age).map(Reason::Age));
            if let Some(reason) = reason
                && !is_kept
                && age >= rules.min_age
            {
                expired.push(Expired { id: id.clone(), kind: Some(kind), reason });
            }
            newer = Some(id);
        }
    }

    /// Old documents that interrupted writes have left.
    fn unused(&self, rules: &Rules, now: Timestamp) -> impl Iterator<Item = Expired> {
        let min_age = rules.min_age.max(UNUSED_DOCUMENT_AGE);
        let described = self.described.iter().map(|(_, id)| id).chain(&self.last);
        let described = described.cloned().collect::<HashSet<_>>();
        let unused = self.documents.iter().filter(move |(id, document)| {
            !described.contains(*id) && age(document.modified, now) > min_age
        });
        unused.map(|(id, _)| Expired { id: id.clone(), kind: None, reason: Reason::Unused })
    }

    /// Everything of a state that was removed completely after its deletion at this time. What was stored later may belong to
    /// a new state.
    pub(super) fn remains(
        &self,
        rules: &Rules,
        now: Timestamp,
        deleted: Timestamp,
    ) -> Vec<Expired> {
        let of = |kind: StateKind| self.versions(kind).into_iter().map(move |id| (kind, id));
        let old = KINDS.into_iter().flat_map(of).filter(|(_, id)| time(id) <= deleted);
        let expired = old.map(|(kind, id)| {
            let reason = Reason::Deleted(deleted);
            Expired { id, kind: Some(kind), reason }
        });
        expired.chain(self.unused(rules, now)).collect()
    }
}

fn position(kind: StateKind) -> u8 {
    match kind {
        StateKind::Head => 0,
        StateKind::Snapshot => 1,
        StateKind::Rejected => 2,
    }
}

/// When a version was stored.
fn time(id: &VersionId) -> Timestamp {
    let micros = i64::try_from(id.micros()).unwrap_or(i64::MAX);
    Timestamp::from_microsecond(micros).unwrap_or(Timestamp::MAX)
}

/// The time since then; zero if it is in the future.
pub(super) fn age(time: Timestamp, now: Timestamp) -> Duration {
    now.duration_since(time).try_into().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: i64 = 1_800_000_000;

    fn now() -> Timestamp {
        Timestamp::from_second(NOW).unwrap()
    }

    fn hours_ago(hours: i64) -> Timestamp {
        Timestamp::from_second(NOW - hours * 3600).unwrap()
    }

    fn id(hours: i64) -> VersionId {
        VersionId::new(u64::try_from(hours_ago(hours).as_microsecond()).unwrap(), 7)
    }

    /// A state with versions that are so many hours old; the first one is the state.
    fn stored(heads: &[i64], snapshots: &[i64], rejected: &[i64]) -> Stored {
        let mut stored =
            Stored { last: heads.first().map(|hours| id(*hours)), ..Stored::default() };
        // The present version has no description.
        let described = heads.iter().skip(1).map(|hours| (StateKind::Head, hours));
        let described = described.chain(snapshots.iter().map(|hours| (StateKind::Snapshot, hours)));
        let described = described.chain(rejected.iter().map(|hours| (StateKind::Rejected, hours)));
        for (kind, hours) in described {
            stored.describe(kind, id(*hours));
        }
        stored
    }

    fn with_document(mut stored: Stored, hours: i64) -> Stored {
        let object = Object { key: String::new(), size: 1, modified: hours_ago(hours) };
        stored.documents.insert(id(hours), object);
        stored
    }

    fn rules(keep_states: Option<usize>, hours: Option<u64>) -> Rules {
        Rules {
            keep_runs: None,
            keep_states,
            max_age: hours
                .map(|hours| (Kind::State, Duration::from_hours(hours)))
                .into_iter()
                .collect(),
            min_age: Duration::from_hours(1),
            dry_run: false,
        }
    }

    fn shown(expired: &[Expired]) -> String {
        let shown = expired.iter().map(|Expired { id, kind, reason }| {
            let hours = age(time(id), now()).as_secs() / 3600;
            let kind = kind.map_or("none", StateKind::as_str);
            let reason = match reason {
                Reason::Count(_) => "count",
                Reason::Age(_) => "age",
                Reason::Unused => "unused",
                Reason::Deleted(_) => "deleted",
            };
            format!("{kind} {hours} {reason}")
        });
        shown.collect::<Vec<_>>().join(", ")
    }

    fn selected(rules: &Rules, stored: &Stored) -> String {
        shown(&stored.select(rules, now(), &HashSet::new()))
    }

    #[test]
    fn the_last_versions_of_each_kind_are_kept() {
        let stored = stored(&[10, 20, 30, 40], &[50, 60], &[70, 80]);
        assert_eq!(selected(&rules(Some(4), None), &stored), "");
        assert_eq!(selected(&rules(Some(3), None), &stored), "head 40 count");
        let expected =
            "head 20 count, head 30 count, head 40 count, snapshot 60 count, rejected 80 count";
        assert_eq!(selected(&rules(Some(1), None), &stored), expected);
        let none = selected(&rules(Some(0), None), &stored);
        assert!(none.starts_with("head 20 count") && none.contains("snapshot 50"), "{none}");
    }

    #[test]
    fn the_age_of_a_version_that_was_the_state_counts_from_its_replacement() {
        let stored = stored(&[10, 500, 800], &[20, 40], &[40]);
        let expected = "head 800 age, snapshot 40 age, rejected 40 age";
        assert_eq!(selected(&rules(None, Some(30)), &stored), expected);
        assert_eq!(
            selected(&rules(None, Some(5)), &stored),
            "head 500 age, head 800 age, snapshot 20 age, snapshot 40 age, rejected 40 age"
        );
    }

    #[test]
    fn what_is_younger_than_the_least_age_is_kept() {
        let stored = stored(&[0, 500, 800], &[0, 40], &[0]);
        // That of 500 hours was replaced just now.
        assert_eq!(
            selected(&rules(Some(0), Some(0)), &stored),
            "head 800 count, snapshot 40 count"
        );
        let at_once = Rules { min_age: Duration::ZERO, ..rules(Some(1), None) };
        assert_eq!(
            selected(&at_once, &stored),
            "head 500 count, head 800 count, snapshot 40 count"
        );
    }

    #[test]
    fn protected_versions_are_kept() {
        let stored = stored(&[10, 20, 30], &[], &[]);
        let kept = HashSet::from([id(30)]);
        let selected = shown(&stored.select(&rules(Some(1), Some(1)), now(), &kept));
        assert_eq!(selected, "head 20 count");
    }

    #[test]
    fn documents_without_a_description_expire_after_a_week() {
        let mut stored = stored(&[300, 310], &[], &[]);
        for hours in [300, 310, 160, 170] {
            stored = with_document(stored, hours);
        }
        assert_eq!(selected(&rules(None, None), &stored), "none 170 unused");
        let later = Rules { min_age: Duration::from_hours(180), ..rules(None, None) };
        assert_eq!(selected(&later, &stored), "");
    }

    #[test]
    fn a_deleted_state_is_kept_for_30_days_and_then_removed_by_age_only() {
        let deleted = |hours| Stored {
            deleted: Some(hours_ago(hours)),
            ..stored(&[800, 900], &[850, 100], &[])
        };
        let by_age = rules(None, Some(24));
        assert_eq!(
            (selected(&by_age, &deleted(700)), deleted(700).removable(&by_age, now())),
            (String::new(), None)
        );
        let removable = deleted(730).removable(&by_age, now());
        assert_eq!(removable, Some(hours_ago(730)));
        // The snapshot came after the deletion.
        let remains = shown(&deleted(730).remains(&by_age, now(), hours_ago(730)));
        assert_eq!(remains, "head 800 deleted, head 900 deleted, snapshot 850 deleted");
        assert_eq!(deleted(730).removable(&rules(None, Some(740)), now()), None);
        let by_count = rules(Some(1), None);
        assert_eq!(deleted(730).removable(&by_count, now()), None);
        assert_eq!(selected(&by_count, &deleted(730)), "head 900 count, snapshot 850 count");
    }
}
