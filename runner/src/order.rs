//! Makes one job of flags, environment, manifest and the pod's objects, and writes annotations to the layer. What a run
//! does with the job is not known here.

pub(crate) mod action;
pub(crate) mod apply_command;
mod command_line;
pub(crate) mod datastore;
pub(crate) mod doctor;
pub(crate) mod hooks;
mod identity;
pub(crate) mod inputs;
pub(crate) mod job;
pub(crate) mod layer;
pub(crate) mod lookup;
pub(crate) mod outputs;
pub(crate) mod pipes;
mod pod;
mod requested_tool;
mod state;
