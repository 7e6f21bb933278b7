//! The body of an upload: hashed, and encrypted if configured, while it is read.

use bytes::Bytes;
use datastore_api::Sha256;
use datastore_api::digest::Hasher;
use futures::{Stream, TryStreamExt as _};

use crate::store::digest_record::Version;
use crate::store::encryption::StoredFormat;
use crate::store::encryption::cipher::Encryptor;
use crate::store::error::{BoxError, StoreError};
use crate::store::write::conditions::PutConditions;
use crate::store::write::parts::Parts;

/// A body that is hashed and encrypted while it is read.
pub(in crate::store) struct IncomingBody<S> {
    body: S,
    /// Of the plain bytes.
    hasher: Hasher,
    plain: u64,
    is_finished: bool,
    /// Stored bytes so far.
    size: u64,
    format: StoredFormat,
    encryptor: Option<Encryptor>,
}

/// A body that was received completely.
#[derive(Clone, Copy)]
pub(in crate::store) struct Received {
    /// The number of plain bytes.
    pub(in crate::store) plain: u64,
    /// The number of stored bytes.
    pub(in crate::store) size: u64,
    /// The digest of the plain bytes.
    pub(in crate::store) sha256: Sha256,
    pub(in crate::store) format: StoredFormat,
}

impl<S> IncomingBody<S> {
    pub(in crate::store) fn new(
        body: S,
        format: StoredFormat,
        encryptor: Option<Encryptor>,
    ) -> Self {
        let (hasher, plain, size) = (Hasher::default(), 0, 0);
        Self { body, hasher, plain, is_finished: false, size, format, encryptor }
    }

    /// The format in which the body is stored.
    pub(in crate::store) fn format(&self) -> StoredFormat {
        self.format
    }
}

impl Received {
    /// The version that it becomes, without its `ETag`.
    pub(in crate::store) fn version(&self) -> Version {
        Version::new(String::new(), self.size, Some(self.sha256), self.format)
    }
}

impl<S: Stream<Item = Result<Bytes, BoxError>> + Unpin> IncomingBody<S> {
    pub(in crate::store) async fn next(&mut self) -> Result<Option<Bytes>, StoreError> {
        if self.is_finished {
            return Ok(None);
        }
        let piece = self.body.try_next().await.map_err(StoreError::Upload)?;
        if let Some(piece) = &piece {
            self.hasher.update(piece);
            self.plain += piece.len() as u64;
        }
        self.is_finished = piece.is_none();
        let stored = match (&mut self.encryptor, piece) {
            (Some(encryptor), Some(piece)) => Some(encryptor.encrypt(&piece)),
            (Some(_), None) => self.encryptor.take().map(Encryptor::finish),
            (None, piece) => piece,
        };
        self.size += stored.as_ref().map_or(0, Bytes::len) as u64;
        Ok(stored)
    }

    /// Sends the rest of the body in parts.
    pub(in crate::store) async fn send_parts(
        mut self,
        parts: &mut Parts,
        conditions: PutConditions,
    ) -> Result<Received, StoreError> {
        while let Some(piece) = self.next().await? {
            parts.write(&piece).await?;
        }
        parts.flush().await?;
        self.finish(conditions)
    }

    /// Size and digest; an error if the digest is not the announced one.
    pub(in crate::store) fn finish(
        self,
        conditions: PutConditions,
    ) -> Result<Received, StoreError> {
        let format = self.format.with_size(self.plain);
        let received = self.hasher.finish();
        match conditions.sha256 {
            Some(announced) if announced != received => {
                Err(StoreError::Digest { announced, received })
            }
            _ => Ok(Received { plain: self.plain, size: self.size, sha256: received, format }),
        }
    }
}
