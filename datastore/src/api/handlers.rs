//! The handlers of the routes below `/api`, with their parameters.

pub(crate) mod applied;
pub(crate) mod approvals;
pub(crate) mod artifacts;
pub(crate) mod bundles;
pub(crate) mod changes;
pub(crate) mod documents;
pub(crate) mod encrypt;
pub(crate) mod layer_metrics;
pub(crate) mod layers;
pub(crate) mod leases;
pub(crate) mod logs;
pub(crate) mod plans;
pub(crate) mod runs;
pub(crate) mod state;
pub(crate) mod states;
