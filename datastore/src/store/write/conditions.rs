//! Conditions on a put, and what a put found at its path.

use datastore_api::Sha256;

/// On what terms an object is put.
#[derive(Clone, Copy, Debug, Default)]
pub struct PutConditions {
    /// The digest that the caller announced.
    pub sha256: Option<Sha256>,
    /// Only if nothing else is there. The same content again is no error.
    pub create: bool,
    /// Only over the version whose `ETag` has this SHA-256 digest.
    pub replaces: Option<Sha256>,
}

/// What a put finds at its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::store) enum Existing {
    Absent,
    Identical,
    Different,
}
