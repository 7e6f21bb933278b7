//! Conditions on a put, and what a put found at its path.

use datastore_api::Sha256;
use jiff::Timestamp;

/// The conditions of a put.
#[derive(Clone, Copy, Debug, Default)]
pub struct PutConditions {
    /// The digest that the caller announced; other bytes are rejected.
    pub sha256: Option<Sha256>,
    /// Create only. It is not an error if the same content exists.
    pub create: bool,
    /// Replace only the version whose `ETag` has this SHA-256 digest.
    pub replaces: Option<Sha256>,
    /// When the content of that version was stored, which the new version has as well. It keeps that time: in a directory as
    /// the file's, in a bucket in its metadata.
    pub written: Option<Timestamp>,
}

/// What a put finds at its path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::store) enum Existing {
    Absent,
    Identical,
    Different,
}
