//! One kind of storage each, and what all of them need: timeouts, probes, leftovers.

pub(crate) mod abandoned;
pub(crate) mod attribute;
pub(crate) mod cloud;
pub(crate) mod connector;
pub(crate) mod dirs;
pub(crate) mod disk;
pub(crate) mod io_threads;
pub(crate) mod jobs;
pub(crate) mod local;
pub(crate) mod metered;
pub(crate) mod probe;
pub(crate) mod publish;
pub(crate) mod reason;
pub(crate) mod staged;
pub(crate) mod staging;
pub(crate) mod try_uploads;
pub(crate) mod walk;
