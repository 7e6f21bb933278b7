//! `datastore gc`: which artifacts expire, and their deletion.

mod claims;
mod context;
pub mod select;
pub(crate) mod sweep;
