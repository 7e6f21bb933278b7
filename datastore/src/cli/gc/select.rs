//! Which artifacts of one layer or repository expire.
//!
//! It knows keys and times, and no storage: [`crate::cli::gc::sweep`] lists and deletes.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::Duration;

use datastore_api::{File, PlanFormat};
use jiff::Timestamp;

use crate::kind::Kind;
use crate::store::Key;

/// The rules of expiry. Each rule deletes independently.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rules {
    /// How many runs of each layer are kept.
    pub keep_runs: Option<usize>,
    /// How many versions of each state are kept, of each kind of version.
    pub keep_states: Option<usize>,
    /// The maximum age of an artifact, by kind.
    pub max_age: BTreeMap<Kind, Duration>,
    /// A run or bundle that has changed within this time is kept, whatever the other rules say.
    pub min_age: Duration,
    /// Print what would be deleted, and delete nothing.
    pub dry_run: bool,
}

/// A stored artifact.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Item {
    /// Its path in the storage.
    pub path: String,
    /// Its parsed path.
    pub key: Key,
    /// When it was stored, by the clock of the storage. Its age counts from then.
    pub modified: Timestamp,
    /// When its content was stored. In a bucket that is earlier if it was encrypted later. It decides which is the newest.
    pub written: Timestamp,
    /// Its length in bytes.
    pub size: u64,
}

/// Why an artifact expires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// Its run is not one of the last ones.
    Run,
    /// It is older than the maximum age of its kind.
    Age,
}

impl Rules {
    /// The artifacts that expire. `items` are all artifacts of one layer or repository.
    pub fn select<'a>(&self, items: &'a [Item], now: Timestamp) -> Vec<(&'a Item, Reason)> {
        let groups = groups(items);
        let kept = kept(items);
        let mut selected = Vec::new();
        for group in &groups {
            // Groups of one time have one position: storages that record whole seconds do not order them.
            let position = groups.partition_point(|other| other.newest() > group.newest());
            if group.items.iter().any(|item| age(item, now) < self.min_age) {
                continue;
            }
            let is_beyond_last =
                group.is_run && self.keep_runs.is_some_and(|keep| position >= keep);
            for item in &group.items {
                let max_age = self.max_age.get(&item.key.kind());
                let is_old = max_age.is_some_and(|max_age| age(item, now) > *max_age);
                let reason =
                    if is_beyond_last { Some(Reason::Run) } else { is_old.then_some(Reason::Age) };
                if let Some(reason) = reason
                    && !kept.contains(&*item.path)
                {
                    selected.push((*item, reason));
                }
            }
        }
        selected
    }
}

/// Artifacts that are kept or expire together: those of a run, or one bundle.
struct Group<'a> {
    is_run: bool,
    items: Vec<&'a Item>,
}

impl Group<'_> {
    fn newest(&self) -> Option<Timestamp> {
        self.items.iter().map(|item| item.written).max()
    }
}

/// The groups, newest first.
fn groups(items: &[Item]) -> Vec<Group<'_>> {
    let mut runs = HashMap::<_, Vec<&Item>>::new();
    let mut groups = Vec::new();
    for item in items {
        match &item.key {
            Key::File(run, ..) => runs.entry(run).or_default().push(item),
            Key::Bundle(_) => groups.push(Group { is_run: false, items: vec![item] }),
            Key::Applied(_)
            | Key::State(..)
            | Key::Document(_)
            | Key::Approval(..)
            | Key::Live(..)
            | Key::Changes(..)
            | Key::Summary(..) => {}
        }
    }
    groups.extend(runs.into_values().map(|items| Group { is_run: true, items }));
    groups.sort_by_key(|group| Reverse(group.newest()));
    groups
}

/// The files beside a plan that an apply reads.
const BESIDE_PLAN: [&str; 3] = ["run.json", "binding.json", "workspace.tar.zst"];

/// In the name of a state that its backend refused, and of what is kept with it: it may be the only copy.
const STATE: &str = ".tfstate";

/// The paths of the artifacts that no rule deletes: states, the newest plan and the files beside it that an apply reads, and the
/// newest bundle of each ref. Where several have the newest time, each may be the newest.
fn kept(items: &[Item]) -> HashSet<&str> {
    let mut plan = None;
    let mut bundles = HashMap::new();
    for item in items {
        match &item.key {
            Key::File(_, _, File::Plan(PlanFormat::Bin)) => plan = plan.max(Some(item.written)),
            Key::Bundle(key) => {
                let newest = bundles.entry(&key.git_ref).or_insert(item.written);
                *newest = item.written.max(*newest);
            }
            _ => {}
        }
    }
    let newest_attempts = items.iter().filter_map(|item| match &item.key {
        Key::File(run, attempt, File::Plan(PlanFormat::Bin)) if Some(item.written) == plan => {
            Some((run, *attempt))
        }
        _ => None,
    });
    let newest_attempts = newest_attempts.collect::<HashSet<_>>();
    let is_kept = |item: &&Item| match &item.key {
        Key::File(run, attempt, file) => {
            let is_needed =
                matches!(file, File::Plan(PlanFormat::Bin)) || BESIDE_PLAN.contains(&file.name());
            file.name().contains(STATE) || is_needed && newest_attempts.contains(&(run, *attempt))
        }
        Key::Bundle(key) => bundles.get(&key.git_ref) == Some(&item.written),
        Key::Applied(_)
        | Key::State(..)
        | Key::Document(_)
        | Key::Approval(..)
        | Key::Live(..)
        | Key::Changes(..)
        | Key::Summary(..) => false,
    };
    items.iter().filter(is_kept).map(|item| &*item.path).collect()
}

/// The age of an artifact; zero if its time is in the future.
fn age(item: &Item, now: Timestamp) -> Duration {
    now.duration_since(item.modified).try_into().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: i64 = 3600;

    fn now() -> Timestamp {
        Timestamp::from_second(1_800_000_000).unwrap()
    }

    fn items(stored: &[(&str, i64)]) -> Vec<Item> {
        let item = |(path, hours): &(&str, i64)| {
            let path = path.replace("R/", "repositories/a/b/").replace("L/", "layers/a/b/");
            let modified = Timestamp::from_second(1_800_000_000 - hours * HOUR).unwrap();
            let key = Key::from_path(&path).unwrap();
            Item { key, path, modified, written: modified, size: 1 }
        };
        stored.iter().map(item).collect()
    }

    fn rules(keep_runs: Option<usize>, max_age: &[(Kind, u64)]) -> Rules {
        let hours = |hours: u64| Duration::from_hours(hours);
        Rules {
            keep_runs,
            keep_states: None,
            max_age: max_age.iter().map(|(kind, age)| (*kind, hours(*age))).collect(),
            min_age: hours(1),
            dry_run: false,
        }
    }

    /// The positions of the artifacts that expire, with the reason.
    fn selected(rules: &Rules, stored: &[(&str, i64)]) -> String {
        let items = items(stored);
        let selected = rules.select(&items, now());
        let mut expired = selected
            .iter()
            .map(|(item, reason)| (items.iter().position(|other| other == *item).unwrap(), reason))
            .collect::<Vec<_>>();
        expired.sort_by_key(|(position, _)| *position);
        expired
            .iter()
            .map(|(position, reason)| format!("{position}{reason:?}"))
            .collect::<Vec<_>>()
            .join(" ")
    }

    #[test]
    fn the_last_runs_of_a_layer_are_kept() {
        let stored = [
            ("L/r1/0/run.log", 40),
            ("L/r1/0/plan.json", 40),
            ("L/r2/0/run.log", 30),
            ("L/r3/0/run.log", 50),
            ("L/r3/1/run.log", 20),
        ];
        assert_eq!(selected(&rules(Some(3), &[]), &stored), "");
        assert_eq!(selected(&rules(Some(2), &[]), &stored), "0Run 1Run");
        assert_eq!(
            selected(&rules(Some(1), &[]), &stored),
            "0Run 1Run 2Run",
            "r3 has the newest attempt"
        );
        assert_eq!(selected(&rules(Some(0), &[]), &stored), "0Run 1Run 2Run 3Run 4Run");
    }

    #[test]
    fn states_are_kept() {
        let stored = [
            ("L/r1/0/errored.tfstate", 40),
            ("L/r1/0/errored.tfstate.output", 40),
            ("L/r1/0/run.log", 40),
        ];
        let all = [Kind::Bin, Kind::Artifact, Kind::Log].map(|kind| (kind, 1));
        assert_eq!(selected(&rules(Some(0), &all), &stored), "2Run");
        assert_eq!(selected(&rules(None, &all), &stored), "2Age");
    }

    #[test]
    fn every_kind_has_its_own_maximum_age() {
        let stored = [
            ("L/r1/0/run.log", 40),
            ("L/r1/0/plan.json", 40),
            ("L/r2/0/run.log", 24),
            ("L/r2/0/plan.json", 10),
        ];
        assert_eq!(selected(&rules(None, &[(Kind::Log, 24)]), &stored), "0Age");
        assert_eq!(
            selected(&rules(None, &[(Kind::Log, 23), (Kind::Json, 39)]), &stored),
            "0Age 1Age 2Age"
        );
        assert_eq!(selected(&rules(Some(1), &[(Kind::Log, 23)]), &stored), "0Run 1Run 2Age");
    }

    #[test]
    fn the_newest_plan_and_the_files_that_an_apply_needs_are_kept() {
        let stored = [
            ("L/r1/0/plan.bin", 50),
            ("L/r1/1/plan.bin", 40),
            ("L/r1/1/run.json", 39),
            ("L/r1/1/run.log", 39),
            ("L/r1/0/run.json", 50),
            ("L/r2/0/run.log", 20),
            ("L/r2/0/run.json", 20),
            ("L/r1/1/binding.json", 39),
            ("L/r1/1/workspace.tar.zst", 39),
            ("L/r1/0/workspace.tar.zst", 50),
        ];
        let all = rules(Some(0), &[(Kind::Bin, 1), (Kind::Artifact, 1)]);
        assert_eq!(selected(&all, &stored), "0Run 3Run 4Run 5Run 6Run 9Run");
        assert_eq!(selected(&rules(None, &[(Kind::Workspace, 1)]), &stored), "9Age");
        assert_eq!(selected(&rules(None, &[(Kind::Bin, 1)]), &stored), "0Age");
    }

    #[test]
    fn a_run_that_has_just_changed_is_kept_as_a_whole() {
        let stored = [("L/r1/0/run.log", 40), ("L/r1/1/run.log", 0), ("L/r2/0/run.log", 2)];
        assert_eq!(selected(&rules(Some(0), &[(Kind::Log, 1)]), &stored), "2Run");
        let at_once = Rules { min_age: Duration::ZERO, ..rules(Some(0), &[]) };
        assert_eq!(selected(&at_once, &stored), "0Run 1Run 2Run");
        let from_the_future = [("L/r1/0/run.log", -40)];
        assert_eq!(selected(&rules(Some(0), &[]), &from_the_future), "");
    }

    /// AWS and others record whole seconds.
    #[test]
    fn what_may_be_the_newest_at_one_time_is_kept() {
        let plans = [
            ("L/r1/0/plan.bin", 30),
            ("L/r2/0/plan.bin", 20),
            ("L/r3/0/plan.bin", 20),
            ("L/r3/0/run.json", 20),
        ];
        assert_eq!(selected(&rules(Some(1), &[]), &plans), "0Run");
        assert_eq!(selected(&rules(Some(2), &[]), &plans), "0Run");
        assert_eq!(selected(&rules(Some(3), &[]), &plans), "");
        assert_eq!(selected(&rules(None, &[(Kind::Bin, 1), (Kind::Artifact, 1)]), &plans), "0Age");
        let bundles =
            [("R/main/0a.gitbundle", 20), ("R/main/0b.gitbundle", 20), ("R/main/0c.gitbundle", 30)];
        assert_eq!(selected(&rules(None, &[(Kind::Bundle, 1)]), &bundles), "2Age");
    }

    #[test]
    fn the_newest_bundle_of_each_ref_is_kept() {
        let stored = [
            ("R/main/0a.gitbundle", 40),
            ("R/main/0b.gitbundle", 30),
            ("R/feat/x/0a.gitbundle", 50),
            ("R/main/0c.gitbundle", 10),
        ];
        assert_eq!(selected(&rules(Some(0), &[]), &stored), "", "a bundle belongs to no run");
        assert_eq!(selected(&rules(None, &[(Kind::Bundle, 20)]), &stored), "0Age 1Age");
        assert_eq!(selected(&rules(None, &[(Kind::Bundle, 1)]), &stored), "0Age 1Age");
    }
}
