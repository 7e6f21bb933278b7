//! `datastore gc`: which runs expire, and their deletion.

pub mod select;
pub(crate) mod sweep;
