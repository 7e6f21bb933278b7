//! Namespaces and their layers, each with its last run, page by page.
//!
//! What a page shows of a layer is spread over several objects. In a bucket it is kept together as a summary, one object of each
//! layer, so that a page of 50 layers takes little more than 50 requests. An object beside it changes with each write that
//! makes the summary outdated ([`summary`]). In a directory nothing is kept: files are read as fast.

pub(in crate::store) mod names;
pub(in crate::store) mod page;
pub(in crate::store) mod refresh;
pub(in crate::store) mod refreshing;
pub(in crate::store) mod summary;
