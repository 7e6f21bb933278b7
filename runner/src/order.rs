//! What to do: flags, environment, manifest and the pod's objects become one job; where annotations go.

pub(crate) mod apply_command;
pub(crate) mod asked_tool;
pub(crate) mod datastore;
pub(crate) mod identity;
pub(crate) mod job;
pub(crate) mod layer;
pub(crate) mod outputs;
pub(crate) mod pod;
