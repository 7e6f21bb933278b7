//! Runs, shown to people: `runner runs`, `runner show`, `runner logs` and `runner policy test`, and the summary of a run.
//!
//! What the datastore holds was written by others. Before it is shown, control characters are escaped, so that no plan or
//! log can change the terminal.

mod attempt;
mod error;
mod follow;
mod header;
mod ledger;
mod log_lines;
mod logs;
mod policy_test;
mod record;
mod runs;
mod signature;
pub(crate) mod summary;
mod target;
mod terminal;
mod time;

pub(crate) use attempt::show;
pub(crate) use error::ShowError;
pub(crate) use logs::logs;
pub(crate) use policy_test::policy_test;
pub(crate) use runs::runs;
