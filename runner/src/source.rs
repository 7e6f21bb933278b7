//! The code of a run: checkout, copies and the private directory.

pub(crate) mod checkout;
pub(crate) mod copy;
pub(crate) mod git;
pub(crate) mod references;
pub(crate) mod scratch;
pub(crate) mod states;
pub(crate) mod submodules;
