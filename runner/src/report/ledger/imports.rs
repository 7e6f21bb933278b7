//! What the ledger has of imports, and what decides whether an object is imported.

use datastore_api::{Attempt, Name, RunKey, Sha256};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::report::ledger::{Ledger, Resource, ReviewedPlan, now};

/// An import of an object whose creation found that it exists.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct ImportRecord {
    pub(crate) address: String,
    pub(crate) id: String,
    pub(crate) state: ImportState,
    pub(crate) since: Timestamp,
    /// The state before, if the tool's command `import` changes it before the plan.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) before: Option<StateBefore>,
}

/// Which version of the state it was.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct StateBefore {
    pub(crate) lineage: String,
    pub(crate) serial: u64,
}

/// How far an import is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ImportState {
    /// It is being planned. With `before` the state may have the object already.
    Planned,
    /// The plan with it is accepted, and is applied.
    Accepted,
    /// The plan with it is refused. With `before` the object was removed from the state.
    Refused,
}

impl ImportRecord {
    /// One that begins, or has gone on. `before`: lineage and serial of the state.
    pub(crate) fn new(
        address: String,
        id: String,
        state: ImportState,
        before: Option<(&str, u64)>,
    ) -> Self {
        let before =
            before.map(|(lineage, serial)| StateBefore { lineage: lineage.to_owned(), serial });
        Self { address, id, state, since: now(), before }
    }
}

impl Ledger {
    /// Adds these imports, or replaces what it has of them.
    pub(crate) fn set_imports(&mut self, imports: Vec<ImportRecord>) {
        self.imports.retain(|old| imports.iter().all(|new| new.address != old.address));
        self.imports.extend(imports);
    }

    /// The imports.
    pub(crate) fn imports(&self) -> impl Iterator<Item = &ImportRecord> {
        self.imports.iter()
    }

    /// Imports that have changed the state before their plan, and of which nothing says how they have ended.
    pub(crate) fn left_imports(&self) -> Vec<(String, String, StateBefore)> {
        let left = self.imports.iter().filter(|import| import.state == ImportState::Planned);
        let left = left.filter_map(|import| {
            Some((import.address.clone(), import.id.clone(), import.before.clone()?))
        });
        left.collect()
    }

    /// The import of this address is undone.
    pub(crate) fn refuse_import(&mut self, address: &str) {
        let of_address = self.imports.iter_mut().filter(|import| import.address == address);
        of_address.for_each(|import| import.state = ImportState::Refused);
    }

    /// All resources, in the order in which they were started.
    pub(crate) fn resources(&self) -> impl Iterator<Item = &Resource> {
        self.resources.iter()
    }

    /// Whether it has all resources.
    pub(crate) fn is_whole(&self) -> bool {
        self.unlisted == 0
    }

    /// Whether a resource of this ledger is of its last try.
    pub(crate) fn is_last_try(&self, resource: &Resource) -> bool {
        resource.number == self.tries
    }

    /// How often the tool was started.
    pub(crate) fn tries(&self) -> u32 {
        self.tries
    }

    /// When the tool was first started.
    pub(crate) fn started(&self) -> Timestamp {
        self.started
    }

    /// The reviewed plan of a try.
    pub(crate) fn reviewed(&self, number: u32) -> Option<&ReviewedPlan> {
        self.reviewed.iter().find(|plan| plan.number == number)
    }

    /// Whether a try of it has applied this stored plan, or what was left of it.
    pub(crate) fn has_reviewed(&self, plan: Sha256) -> bool {
        self.reviewed.iter().any(|reviewed| reviewed.sha256 == plan)
    }

    /// Whether it is of this run.
    pub(crate) fn is_of_run(&self, run: &RunKey) -> bool {
        self.is_of(run, self.attempt)
    }

    /// Whether it is of a run of this layer.
    pub(crate) fn is_of_layer(&self, run: &RunKey) -> bool {
        *run.namespace.as_ref() == *self.namespace && *run.layer.as_ref() == *self.layer
    }

    /// Its run and attempt, for people.
    pub(crate) fn name(&self) -> String {
        format!("{}/{}", self.run, self.attempt)
    }

    /// Whether both are the same state of the same ledger.
    pub(crate) fn is_same_state(&self, other: &Self) -> bool {
        self.is_same_attempt(other) && self.updated == other.updated
    }

    /// Its run.
    pub(crate) fn run_name(&self) -> Option<Name> {
        self.run.parse().ok()
    }

    /// The attempt.
    pub(crate) fn attempt(&self) -> Attempt {
        self.attempt
    }

    /// Whether both are of the same attempt.
    pub(crate) fn is_same_attempt(&self, other: &Self) -> bool {
        (&self.run, self.attempt) == (&other.run, other.attempt)
    }
}
