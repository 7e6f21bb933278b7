//! The command line: its arguments, and the commands on the objects of a storage.

pub(crate) mod args;
pub mod commands;
pub mod error;
pub mod gc;
pub mod health;
pub mod state;
