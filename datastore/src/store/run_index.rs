//! The index of runs, newest first.

pub(crate) mod entry;
pub(crate) mod page;
pub(crate) mod rebuild;
