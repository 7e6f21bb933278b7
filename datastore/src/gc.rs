//! Which stored objects are past their time.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::kind::Kind;

/// What may go. Each rule deletes by itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rules {
    /// Of each layer, so many runs stay.
    pub keep_runs: Option<usize>,
    /// How old an artifact may become, by kind.
    pub max_age: BTreeMap<Kind, Duration>,
    /// What has changed within this time stays, whatever else is said.
    pub min_age: Duration,
    /// Nothing is deleted, only said.
    pub dry_run: bool,
}
