//! The index of runs, newest first.

pub(crate) mod entry;
pub(crate) mod known;
pub(crate) mod layers;
pub(crate) mod page;
pub(crate) mod rebuild;
pub(crate) mod register;
pub(crate) mod run_set;
