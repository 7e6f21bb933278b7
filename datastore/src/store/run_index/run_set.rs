//! A set of runs that entries of the index are looked up in.

use std::collections::HashSet;

use datastore_api::{RunKey, Sha256};

use crate::store::key::INDEX;
use crate::store::object::Object;
use crate::store::run_index::entry::parse_entry;

/// A set of runs, in the form in which entries name them.
#[derive(Debug, Default)]
pub struct RunSet(HashSet<String>);

impl RunSet {
    /// Adds a run.
    pub fn insert(&mut self, run: &RunKey) {
        let RunKey { namespace, layer, run } = run;
        self.0.insert(format!("{namespace}/{layer}/-{run}"));
        self.0.insert(format!("{namespace}/{layer}/~{}", Sha256::of(run.as_ref().as_bytes())));
    }

    /// Whether an index entry belongs to one of the runs.
    pub fn contains(&self, entry: &Object) -> bool {
        run_of(entry).is_some_and(|run| self.0.contains(&run))
    }
}

impl Object {
    /// Whether the object is the index entry of a run.
    pub fn is_run_entry(&self) -> bool {
        run_of(self).is_some()
    }

    /// When the run of an index entry started, according to the entry's name.
    pub fn run_started(&self) -> Option<jiff::Timestamp> {
        let (_, name) = self.key.strip_prefix(INDEX)?.rsplit_once('/')?;
        let (millisecond, _) = parse_entry(name)?;
        jiff::Timestamp::from_millisecond(millisecond).ok()
    }
}

fn run_of(entry: &Object) -> Option<String> {
    let (layer, name) = entry.key.strip_prefix(INDEX)?.rsplit_once('/')?;
    let (_, run) = parse_entry(name)?;
    Some(format!("{layer}/{run}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::run_index::entry::entry;

    #[test]
    fn a_run_set_contains_the_entries_of_its_runs() {
        let run = |name: &str| RunKey {
            namespace: "a".parse().unwrap(),
            layer: "b".parse().unwrap(),
            run: name.parse().unwrap(),
        };
        let mut known = RunSet::default();
        known.insert(&run("r1"));
        known.insert(&run("Run 7"));
        let object = |key| Object { key, size: 0, modified: jiff::Timestamp::UNIX_EPOCH };
        for (name, known_run) in [("r1", true), ("Run 7", true), ("r2", false), ("Run 8", false)] {
            let (entry, _) = entry(1_700_000_000_000, name);
            let of_layer = object(format!("{INDEX}a/b/{entry}"));
            assert_eq!(
                (of_layer.is_run_entry(), known.contains(&of_layer)),
                (true, known_run),
                "{name}"
            );
            assert!(!known.contains(&object(format!("{INDEX}a/c/{entry}"))), "of another layer");
            assert_eq!(of_layer.run_started().unwrap().as_millisecond(), 1_700_000_000_000);
        }
        for other in [format!("{INDEX}a/b/something"), "layers/a/b/r1/0/plan.bin".to_owned()] {
            assert!(!object(other).is_run_entry());
        }
    }
}
