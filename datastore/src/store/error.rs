//! The errors of a storage, as the rest of the service sees them.

use std::error::Error;
use std::io;

use datastore_api::Sha256;
use object_store::path::Path;

use crate::store::backend::directory::jobs::Hung;

/// Any error of a caller's body or of a library.
pub type BoxError = Box<dyn Error + Send + Sync>;

/// Why an artifact could not be read or stored.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// No such artifact.
    #[error("no such artifact")]
    NotFound,
    /// Each name is valid, but the key is too long.
    #[error("the key `{}...` is longer than {max} bytes", .key.chars().take(80).collect::<String>())]
    KeyTooLong {
        /// The key.
        key: String,
        /// The longest one that every backend can store.
        max: usize,
    },
    /// It was to be created, and exists with other content.
    #[error(
        "it is already stored with other content, which is kept: store it as another attempt, or without \
         `If-None-Match` to replace it"
    )]
    Exists,
    /// It was replaced during the operation.
    #[error("it was replaced during the operation; try again")]
    Replaced,
    /// Another upload of the same artifact is being completed.
    #[error("another upload of the same artifact is being completed; try again")]
    Undecided,
    /// Another run has claimed the attempt.
    #[error("another run has claimed this attempt")]
    Claimed,
    /// The caller's upload was interrupted.
    #[error("the upload broke off")]
    Upload(#[source] BoxError),
    /// The body does not have the announced digest.
    #[error("the body has the sha256 {received}, announced was {announced}")]
    Digest {
        /// The announced digest.
        announced: Sha256,
        /// The digest of the body.
        received: Sha256,
    },
    /// The stored bytes do not have the recorded digest.
    #[error("`{0}` no longer has the sha256 it was stored with")]
    Corrupt(Path),
    /// It is created once, and its file is gone.
    #[error(
        "`{0}` is missing: its digest is recorded, and its file is gone; restore it from a backup. If it is not needed, \
         remove its own record below `.plancha/sha256/`, but not that of an apply or an approval before you know what was applied \
         or approved: it could be done again"
    )]
    Lost(Path),
    /// A directory cannot hold a file and a directory of the same name.
    #[error(
        "it cannot be stored in a directory: its key and that of another object need a file and a directory of the same name"
    )]
    Clash(#[source] BoxError),
    /// It is encrypted, and no key is configured.
    #[error(
        "`{0}` is encrypted, and no encryption key is set: set the key that it was encrypted with \
         (BURRITO_DATASTORE_STORAGE_ENCRYPTION_KEY)"
    )]
    NoKey(Path),
    /// It is encrypted with another key than the configured one.
    #[error(
        "`{0}` is encrypted with another key than the one that is set: set the key that it was encrypted with \
         (BURRITO_DATASTORE_STORAGE_ENCRYPTION_KEY), or store it again"
    )]
    WrongKey(Path),
    /// It may be encrypted or plain.
    #[error(
        "`{0}` can be read in two ways: as it is stored, or decrypted with the key that is set; neither result is \
         recognisable. Store it again: the datastore then records how it is stored"
    )]
    Ambiguous(Path),
    /// It may be encrypted with another key.
    #[error(
        "`{0}` can be read in two ways: encrypted with a key that is not set here, or stored in plain by another \
         program with content that is not of its kind. Set the key that it was encrypted with, or store it again"
    )]
    Unreadable(Path),
    /// It is to be encrypted, and may be encrypted already.
    #[error(
        "`{0}` may be encrypted with another key: its content is not recognisable, so it is not encrypted again"
    )]
    Unrecognised(Path),
    /// The cursor is not from a page of these runs.
    #[error(
        "query parameter `cursor`: it is not from a page of this layer's runs; begin without one"
    )]
    Cursor,
    /// A run has too many files for one answer.
    #[error(
        "the run has more than {0} files, which are not listed: read them by their attempt and name, or delete those that are not \
         needed"
    )]
    TooManyFiles(usize),
    /// The storage is full.
    #[error("no space is left in the storage")]
    Full(#[source] BoxError),
    /// The file system hangs, so no job was started.
    #[error("the storage hangs")]
    Hung(#[source] BoxError),
    /// It is deleted, and its digest record could not be removed.
    #[error("it is deleted, but not its digest record")]
    RecordLeft(#[source] BoxError),
    /// The backend failed.
    #[error("the storage backend failed")]
    Backend(#[source] BoxError),
}

impl StoreError {
    /// Whether it is about this object, and others may be readable.
    pub(in crate::store) fn is_of_object(&self) -> bool {
        matches!(
            self,
            Self::Corrupt(_)
                | Self::NoKey(_)
                | Self::WrongKey(_)
                | Self::Ambiguous(_)
                | Self::Unreadable(_)
        )
    }
}

impl From<object_store::Error> for StoreError {
    fn from(error: object_store::Error) -> Self {
        match error {
            object_store::Error::NotFound { .. } => Self::NotFound,
            object_store::Error::Precondition { .. } => Self::Replaced,
            error => backend_error(error),
        }
    }
}

/// Wraps an error of the backend. A full storage, a conflict of paths and a hung file system are recognised anywhere
/// in its chain of causes.
pub(in crate::store) fn backend_error(error: impl Into<BoxError>) -> StoreError {
    let error = error.into();
    let mut cause: Option<&(dyn Error + 'static)> = Some(error.as_ref());
    while let Some(error_now) = cause {
        let kind = error_now.downcast_ref::<io::Error>().map(io::Error::kind);
        match kind {
            Some(io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded) => {
                return StoreError::Full(error);
            }
            Some(io::ErrorKind::IsADirectory) => return StoreError::Clash(error),
            _ => {}
        }
        if error_now.is::<Hung>() {
            return StoreError::Hung(error);
        }
        cause = error_now.source();
    }
    StoreError::Backend(error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_is_found_at_the_end_of_the_chain() {
        let generic = |kind: io::ErrorKind| object_store::Error::Generic {
            store: "LocalFileSystem",
            source: anyhow::Error::from(io::Error::from(kind)).context("writing").into(),
        };
        let full = StoreError::from(generic(io::ErrorKind::StorageFull));
        assert!(matches!(full, StoreError::Full(_)));
        let other = StoreError::from(generic(io::ErrorKind::PermissionDenied));
        assert!(matches!(other, StoreError::Backend(_)));
    }

    #[test]
    fn a_directory_in_the_place_of_a_file_is_a_path_conflict() {
        let of = |kind| backend_error(io::Error::from(kind));
        assert!(matches!(of(io::ErrorKind::IsADirectory), StoreError::Clash(_)));
        assert!(matches!(of(io::ErrorKind::NotADirectory), StoreError::Backend(_)));
    }
}
