//! Probes: whether the storage does what is needed, found out by trying.
//!
//! A setting would only state what somebody believes. Some servers overwrite where they should refuse to create, a missing
//! bucket looks like a missing object, and credentials may allow to list but not to write. So all of it is tried at the
//! start and from time to time.

pub(crate) mod ability;
mod failure;
pub(crate) mod health;
pub(crate) mod multipart;
pub(crate) mod steps;
pub(crate) mod update;
pub(crate) mod uploads;
pub(crate) mod watch;
