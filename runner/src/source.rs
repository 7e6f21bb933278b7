//! The code of a run: checkout, copies, archives and the private directory.

pub(crate) mod archive;
pub(crate) mod checkout;
mod copy;
pub(crate) mod error;
pub(crate) mod flat;
pub(crate) mod git;
pub(crate) mod modules;
pub(crate) mod path;
pub(crate) mod references;
pub(crate) mod regular;
pub(crate) mod scratch;
pub(crate) mod snapshot;
pub(crate) mod states;
mod submodules;
pub(crate) mod work_dir;
