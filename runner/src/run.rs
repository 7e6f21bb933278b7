//! One run from its job to its outcome.

pub(crate) mod action;
pub(crate) mod applied;
pub(crate) mod apply_record;
pub(crate) mod artifacts;
pub(crate) mod errored;
pub(crate) mod failed;
pub(crate) mod plan_summary;
mod run_lock;
pub(crate) mod stored_plan;
pub(crate) mod unsent;
