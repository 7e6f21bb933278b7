//! One run from its job to its outcome.

pub(crate) mod action;
pub(crate) mod applied;
pub(crate) mod apply_record;
pub(crate) mod artifacts;
pub(crate) mod errored;
pub(crate) mod failed;
pub(crate) mod plan_summary;
pub(crate) mod stored_plan;
mod turn;
pub(crate) mod unsent;
