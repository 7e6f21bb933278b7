//! Which stored objects are past their time: pure choice, over one layer or one repository at once.
//!
//! It knows keys and times, and no storage; [`crate::cli::commands`] lists, asks, and deletes.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use datastore_api::{File, PlanFormat};
use jiff::Timestamp;

use crate::kind::Kind;
use crate::store::Key;

/// What may go. Each rule deletes by itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rules {
    /// Of each layer, so many runs stay.
    pub keep_runs: Option<usize>,
    /// How old an artifact may become, by kind.
    pub max_age: BTreeMap<Kind, Duration>,
    /// What has changed within this time stays, whatever else is said, and with it its whole run.
    pub min_age: Duration,
    /// Nothing is deleted, only said.
    pub dry_run: bool,
}

/// A stored artifact.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Item {
    /// Where it lies.
    pub path: String,
    /// What it is.
    pub key: Key,
    /// When it was put, by the storage's clock.
    pub modified: Timestamp,
    /// Its length in bytes.
    pub size: u64,
}

/// Why an artifact goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// Its run is past the last ones.
    Run,
    /// It is older than its kind may become.
    Age,
}

impl Rules {
    /// Which of these go: all that is stored of one layer, or of one repository.
    pub fn select<'a>(&self, items: &'a [Item], now: Timestamp) -> Vec<(&'a Item, Reason)> {
        let groups = groups(items);
        let protected = protected(items);
        let mut selected = Vec::new();
        for (place, group) in groups.iter().enumerate() {
            if group.items.iter().any(|item| age(item, now) < self.min_age) {
                continue;
            }
            let is_past = group.is_run && self.keep_runs.is_some_and(|keep| place >= keep);
            for item in &group.items {
                let max_age = self.max_age.get(&item.key.kind());
                let is_old = max_age.is_some_and(|max_age| age(item, now) > *max_age);
                let reason =
                    if is_past { Some(Reason::Run) } else { is_old.then_some(Reason::Age) };
                if let Some(reason) = reason
                    && !protected.contains(&&item.key)
                {
                    selected.push((*item, reason));
                }
            }
        }
        selected
    }
}

/// What stays or goes together: a run, or a bundle by itself.
struct Group<'a> {
    is_run: bool,
    items: Vec<&'a Item>,
}

/// Newest first.
fn groups(items: &[Item]) -> Vec<Group<'_>> {
    let mut runs = HashMap::<_, Vec<&Item>>::new();
    let mut groups = Vec::new();
    for item in items {
        match &item.key {
            Key::File(run, ..) => runs.entry(run).or_default().push(item),
            Key::Bundle(_) => groups.push(Group { is_run: false, items: vec![item] }),
            Key::Applied(_) => {}
        }
    }
    groups.extend(runs.into_values().map(|items| Group { is_run: true, items }));
    groups.sort_by_key(|group| Reverse(group.items.iter().map(|item| item.modified).max()));
    groups
}

/// What stays whatever the rules say: the newest plan and what an apply reads beside it, and the
/// newest bundle of each ref.
fn protected(items: &[Item]) -> Vec<&Key> {
    let mut plan: Option<&Item> = None;
    let mut bundles = HashMap::<_, &Item>::new();
    for item in items {
        let newer = |than: &Item| item.modified > than.modified;
        match &item.key {
            Key::File(_, _, File::Plan(PlanFormat::Bin)) => {
                plan = plan.filter(|plan| !newer(plan)).or(Some(item));
            }
            Key::File(..) | Key::Applied(_) => {}
            Key::Bundle(key) => {
                let newest = bundles.entry(&key.git_ref).or_insert(item);
                if newer(newest) {
                    *newest = item;
                }
            }
        }
    }
    let beside_plan = |key: &&Key| match (plan.map(|plan| &plan.key), key) {
        (Some(Key::File(run, attempt, _)), Key::File(its_run, its_attempt, file)) => {
            let needed = matches!(file, File::Plan(PlanFormat::Bin)) || file.name() == "run.json";
            run == its_run && attempt == its_attempt && needed
        }
        _ => false,
    };
    let needed = items.iter().map(|item| &item.key).filter(beside_plan);
    needed.chain(bundles.values().map(|item| &item.key)).collect()
}

/// What is from the future is new.
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
            Item { key: Key::from_path(&path).unwrap(), path, modified, size: 1 }
        };
        stored.iter().map(item).collect()
    }

    fn rules(keep_runs: Option<usize>, max_age: &[(Kind, u64)]) -> Rules {
        let hours = |hours: u64| Duration::from_hours(hours);
        Rules {
            keep_runs,
            max_age: max_age.iter().map(|(kind, age)| (*kind, hours(*age))).collect(),
            min_age: hours(1),
            dry_run: false,
        }
    }

    /// The places of those that go, with the reason's first letter.
    fn selected(rules: &Rules, stored: &[(&str, i64)]) -> String {
        let items = items(stored);
        let selected = rules.select(&items, now());
        let mut gone = selected
            .iter()
            .map(|(item, reason)| (items.iter().position(|other| other == *item).unwrap(), reason))
            .collect::<Vec<_>>();
        gone.sort_by_key(|(place, _)| *place);
        gone.iter()
            .map(|(place, reason)| format!("{place}{reason:?}"))
            .collect::<Vec<_>>()
            .join(" ")
    }

    #[test]
    fn of_a_layer_the_last_runs_stay() {
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
            "r3 was tried again last"
        );
        assert_eq!(selected(&rules(Some(0), &[]), &stored), "0Run 1Run 2Run 3Run 4Run");
    }

    #[test]
    fn every_kind_has_its_own_age() {
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
    fn the_newest_plan_stays_with_what_an_apply_needs() {
        let stored = [
            ("L/r1/0/plan.bin", 50),
            ("L/r1/1/plan.bin", 40),
            ("L/r1/1/run.json", 39),
            ("L/r1/1/run.log", 39),
            ("L/r1/0/run.json", 50),
            ("L/r2/0/run.log", 20),
            ("L/r2/0/run.json", 20),
        ];
        let all = rules(Some(0), &[(Kind::Bin, 1), (Kind::Artifact, 1)]);
        assert_eq!(selected(&all, &stored), "0Run 3Run 4Run 5Run 6Run");
        assert_eq!(selected(&rules(None, &[(Kind::Bin, 1)]), &stored), "0Age");
    }

    #[test]
    fn a_run_that_has_just_changed_stays_whole() {
        let stored = [("L/r1/0/run.log", 40), ("L/r1/1/run.log", 0), ("L/r2/0/run.log", 2)];
        assert_eq!(selected(&rules(Some(0), &[(Kind::Log, 1)]), &stored), "2Run");
        let at_once = Rules { min_age: Duration::ZERO, ..rules(Some(0), &[]) };
        assert_eq!(selected(&at_once, &stored), "0Run 1Run 2Run");
        let from_the_future = [("L/r1/0/run.log", -40)];
        assert_eq!(selected(&rules(Some(0), &[]), &from_the_future), "");
    }

    #[test]
    fn the_newest_bundle_of_each_ref_stays() {
        let stored = [
            ("R/main/0a.gitbundle", 40),
            ("R/main/0b.gitbundle", 30),
            ("R/feat/x/0a.gitbundle", 50),
            ("R/main/0c.gitbundle", 10),
        ];
        assert_eq!(selected(&rules(Some(0), &[]), &stored), "", "bundles are of no run");
        assert_eq!(selected(&rules(None, &[(Kind::Bundle, 20)]), &stored), "0Age 1Age");
        assert_eq!(selected(&rules(None, &[(Kind::Bundle, 1)]), &stored), "0Age 1Age");
    }
}
