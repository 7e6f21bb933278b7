//! Live logs: logs that grow while they are read.
//!
//! A log is complete once it is one object, `run.log`. Until then it is a row of pieces, each named by the offset of its first
//! byte and created once, so that of two writers one fails. An empty piece marks the end of a log: nothing can be appended
//! there. Then the pieces become `run.log`, and are deleted. A PUT of the log does the same with its own bytes. Readers look for
//! `run.log` first; one whose piece is gone continues in whatever object has the next byte.
//!
//! [`view`] lists a log, [`read`] reads it, [`append`] adds to it, [`merge`] makes one object of many. [`logs`] has what this
//! process knows of logs, and [`follow`] waits for more text. None of it knows HTTP.

pub(in crate::store) mod append;
pub(in crate::store) mod follow;
pub(in crate::store) mod ledger;
pub(in crate::store) mod logs;
pub(in crate::store) mod merge;
pub(in crate::store) mod read;
pub(in crate::store) mod view;
pub(in crate::store) mod window;

#[cfg(test)]
mod tests;
