//! Storing an object: all of it becomes visible in one step, or nothing.

pub(crate) mod conditions;
pub(crate) mod deadline;
pub(crate) mod directory;
#[cfg(test)]
pub(in crate::store) mod double;
pub(crate) mod lease;
pub(crate) mod multipart;
pub(crate) mod parts;
pub(crate) mod put;
pub(crate) mod upload;
