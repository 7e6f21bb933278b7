//! `datastore gc`: which artifacts and versions of states expire, and their deletion.

mod approvals;
mod claims;
mod context;
mod lists;
mod live;
pub mod select;
mod states;
pub(crate) mod sweep;
