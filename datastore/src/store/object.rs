//! What is known of a stored object: from a listing, or before it is read. It knows no storage.

use bytes::Bytes;
use datastore_api::Sha256;
use futures::stream::BoxStream;
use object_store::ObjectMeta;

use crate::store::encryption::StoredFormat;
use crate::store::error::StoreError;

/// An object as a listing shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Object {
    /// Its path below the root of the storage.
    pub key: String,
    /// Its length in bytes.
    pub size: u64,
    /// When it was stored, by the backend's clock.
    pub modified: jiff::Timestamp,
}

/// The metadata of a stored object.
#[derive(Clone, Debug)]
pub struct Meta {
    /// Its length in bytes.
    pub size: u64,
    /// The stored length, which differs from `size` if it is encrypted.
    pub(in crate::store) stored: u64,
    pub(in crate::store) format: StoredFormat,
    /// The backend's `ETag` of this version.
    pub etag: String,
    /// Its digest; `None` if another program stored it, or while only `recorded` is known.
    pub sha256: Option<Sha256>,
    /// The digest of a record that does not describe this version. The bytes must match it, and until they are
    /// compared the digest is unknown.
    pub(in crate::store) recorded: Option<Sha256>,
}

/// The bytes of an artifact. After an error, the bytes before it must not be used.
pub type ByteStream = BoxStream<'static, Result<Bytes, StoreError>>;

impl Meta {
    /// The digest that its bytes have. If only a record of another version is known, they have that of the record, or are not
    /// read.
    pub fn digest(&self) -> Option<Sha256> {
        self.sha256.or(self.recorded)
    }

    /// Whether the bytes are compared with a digest when they are read to the end.
    pub fn is_verified(&self) -> bool {
        self.digest().is_some()
    }
}

pub(in crate::store) fn object(meta: &ObjectMeta) -> Object {
    Object { key: meta.location.to_string(), size: meta.size, modified: timestamp(meta) }
}

pub(in crate::store) fn timestamp(meta: &ObjectMeta) -> jiff::Timestamp {
    let millisecond = meta.last_modified.timestamp_millis();
    jiff::Timestamp::from_millisecond(millisecond).unwrap_or_default()
}
