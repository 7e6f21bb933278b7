//! The kinds of storage, and what all of them need: timeouts, counters, reasons of failures. Nothing here knows a `Store`.

pub(crate) mod cloud;
pub(crate) mod directory;
pub(crate) mod metered;
pub(crate) mod panicked;
pub(crate) mod reason;
pub(crate) mod response;
pub(crate) mod storage;
