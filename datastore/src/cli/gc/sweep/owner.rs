//! One layer or repository while it is swept, and the summary of what was deleted.

use std::collections::HashSet;

use datastore_api::chain;
use jiff::Timestamp;

use crate::cli::error::CommandError;
use crate::cli::gc::select::{Item, Rules};
use crate::store::{Store, StoreError};

/// How much is done at once.
#[derive(Clone, Copy)]
pub(super) struct Concurrency {
    /// Layers and repositories.
    pub(super) owners: usize,
    /// Batches of one of them.
    pub(super) batches: usize,
    /// Objects in a batch, unless one directory has more.
    pub(super) batch: usize,
}

impl Concurrency {
    /// A bucket answers slowly, and deletes many objects by one request.
    pub(super) const BUCKET: Self = Self { owners: 8, batches: 4, batch: 1000 };
    /// A directory is listed again at no cost right before its files are deleted. Each deletion waits for the disk and for
    /// another thread, so many are under way.
    pub(super) const DIRECTORY: Self = Self { owners: 1, batches: 8, batch: 1 };
}

/// What the command has done so far.
#[derive(Default)]
pub(super) struct Summary {
    /// What is printed.
    pub(super) text: String,
    pub(super) seen: usize,
    pub(super) deleted: usize,
    pub(super) bytes: u64,
    pub(super) failed: usize,
    /// Directories of which nothing is left.
    pub(super) removed_runs: HashSet<String>,
    /// The layers that had artifacts: `<namespace>/<layer>`.
    pub(super) layers: HashSet<String>,
}

/// One layer or repository, and how it is swept.
pub(super) struct Owner<'a> {
    pub(super) store: &'a Store,
    pub(super) rules: &'a Rules,
    pub(super) now: Timestamp,
    pub(super) concurrency: Concurrency,
    /// The first three parts of the keys of its items.
    pub(super) path: &'a str,
    pub(super) items: &'a [Item],
}

impl Summary {
    pub(super) fn line(&mut self, line: &str) {
        self.text.push_str(line);
        self.text.push('\n');
    }

    pub(super) fn failure(&mut self, path: &str, error: &StoreError) {
        self.failed += 1;
        self.line(&format!("could not delete {path}: {}", chain(error)));
    }

    pub(super) fn add(&mut self, other: Self) {
        self.text.push_str(&other.text);
        self.seen += other.seen;
        self.deleted += other.deleted;
        self.bytes += other.bytes;
        self.failed += other.failed;
        self.removed_runs.extend(other.removed_runs);
        self.layers.extend(other.layers);
    }
}

pub(super) fn failed(what: &'static str) -> impl Fn(StoreError) -> CommandError {
    move |error| CommandError::Storage(what, error)
}
