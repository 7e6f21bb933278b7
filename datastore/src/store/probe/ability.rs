//! What a storage may be able to do. It knows no probe.

use std::fmt;

/// An ability of a storage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Ability {
    /// List keys. Only a listing distinguishes a missing bucket from a missing object.
    List,
    /// Write an object.
    Write,
    /// Refuse to create an object that exists.
    Create,
    /// Replace one version of an object, and refuse to replace any other.
    Update,
    /// Refuse to create a large object that exists: one that is uploaded in parts.
    CreateLarge,
    /// Return the object's final `ETag` when a multipart upload is completed.
    MultipartEtag,
    /// Read an object.
    Read,
    /// Delete an object.
    Delete,
}

impl Ability {
    /// All abilities, in the order in which they are tried.
    pub const ALL: [Self; 8] = [
        Self::List,
        Self::Write,
        Self::Create,
        Self::Update,
        Self::CreateLarge,
        Self::MultipartEtag,
        Self::Read,
        Self::Delete,
    ];

    /// The label in metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::List => "list",
            Self::Write => "write",
            Self::Create => "conditional_create",
            Self::Update => "conditional_update",
            Self::CreateLarge => "conditional_multipart",
            Self::MultipartEtag => "multipart_etag",
            Self::Read => "read",
            Self::Delete => "delete",
        }
    }
}

impl fmt::Display for Ability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
