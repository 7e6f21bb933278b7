//! The command line: its arguments, and the commands that look after a storage.

pub(crate) mod args;
pub mod commands;
pub mod error;
pub mod gc;
