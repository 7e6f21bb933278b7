//! What every part of `gc` needs: the storage, the rules, the time; and the results so far.

use std::collections::{HashMap, HashSet};

use datastore_api::{Attempt, RunKey, chain};
use jiff::Timestamp;

use crate::cli::error::CommandError;
use crate::cli::gc::select::Rules;
use crate::store::{Object, Store, StoreError, concise};

/// The storage, the rules, and the time by the storage's clock.
#[derive(Clone, Copy)]
pub(super) struct Context<'a> {
    pub(super) store: &'a Store,
    pub(super) rules: &'a Rules,
    pub(super) now: Timestamp,
    /// Paths of records of applies that show which version of a state is good: no rule deletes them.
    pub(super) kept_records: &'a HashSet<String>,
    /// The layers whose states cannot be read: any of their runs may have applied a version that is kept.
    pub(super) damaged_states: &'a HashSet<String>,
    /// What is live: no file of an attempt yet.
    pub(super) live: &'a LiveObjects,
    /// What the datastore has made of plans and layers.
    pub(super) lists: &'a Lists,
}

/// What the datastore has made of plans and layers, by layer: `<namespace>/<layer>`.
#[derive(Debug, Default)]
pub(super) struct Lists {
    /// Lists of the changes of plans.
    pub(super) changes: HashMap<String, Vec<Object>>,
    /// Summaries of layers, and what changes with them.
    pub(super) summaries: HashMap<String, Vec<Object>>,
}

/// An object, and the attempt that it belongs to.
pub(super) type LiveObject = ((RunKey, Attempt), Object);

/// The objects of all live logs, and of ledgers beside them.
#[derive(Debug, Default)]
pub(super) struct LiveObjects {
    /// By layer: `<namespace>/<layer>`.
    pub(super) of_layers: HashMap<String, Vec<LiveObject>>,
    /// When the newest object of each attempt was stored.
    pub(super) newest: HashMap<(RunKey, Attempt), Timestamp>,
}

impl LiveObjects {
    /// The runs of a layer.
    pub(super) fn runs(&self, layer: &str) -> impl Iterator<Item = &RunKey> {
        self.of_layers.get(layer).into_iter().flatten().map(|((run, _), _)| run)
    }
}

/// `<namespace>/<layer>`, with which a path begins.
pub(super) fn layer(path: &str) -> &str {
    path.match_indices('/').nth(1).map_or(path, |(end, _)| &path[..end])
}

/// The results so far.
#[derive(Default)]
pub(super) struct Swept {
    /// The lines to print.
    pub(super) text: String,
    /// Artifacts that were listed.
    pub(super) listed: usize,
    /// Artifacts that were deleted, or would be.
    pub(super) deleted: usize,
    /// The size of these.
    pub(super) bytes: u64,
    /// Objects that could not be deleted.
    pub(super) failed: usize,
    /// Directories that have no object any more.
    pub(super) removed_directories: HashSet<String>,
    /// The attempts whose `plan.json` was deleted.
    pub(super) removed_plans: HashSet<(RunKey, Attempt)>,
    /// The layers that had artifacts: `<namespace>/<layer>`.
    pub(super) layers: HashSet<String>,
    /// Paths of the records of applies that are kept with a version of a state.
    pub(super) kept_records: HashSet<String>,
    /// The layers whose states cannot be read: `<namespace>/<layer>`.
    pub(super) damaged_states: HashSet<String>,
}

impl Swept {
    pub(super) fn line(&mut self, line: &str) {
        self.text.push_str(line);
        self.text.push('\n');
    }

    pub(super) fn failure(&mut self, path: &str, error: &StoreError) {
        self.failed += 1;
        let what = match error {
            StoreError::RecordLeft(_) => "could not delete the digest record of",
            _ => "could not delete",
        };
        self.line(&format!("{what} {path}: {}", concise(&chain(error))));
    }

    pub(super) fn add(&mut self, other: Self) {
        self.text.push_str(&other.text);
        self.listed += other.listed;
        self.deleted += other.deleted;
        self.bytes += other.bytes;
        self.failed += other.failed;
        self.removed_directories.extend(other.removed_directories);
        self.removed_plans.extend(other.removed_plans);
        self.layers.extend(other.layers);
        self.kept_records.extend(other.kept_records);
        self.damaged_states.extend(other.damaged_states);
    }
}

/// Converts an error of the storage; `action` is what failed.
pub(super) fn failed(action: &'static str) -> impl Fn(StoreError) -> CommandError {
    move |error| CommandError::Storage(action, error)
}
