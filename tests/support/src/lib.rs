//! What integration tests share.

pub mod datastore;

pub use crate::datastore::TestDatastore;
