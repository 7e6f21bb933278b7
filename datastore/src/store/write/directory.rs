//! The last step of an upload to a directory, and what becomes of one that may only create where an object exists.
//!
//! A disk can change bytes without a trace in the file's size and times. So an upload is a repetition only if the stored
//! bytes were read and are the same. If the recorded digest is the upload's and the stored bytes are others, the upload
//! restores what was lost: it replaces that version, and no other.

use std::sync::Arc;

use datastore_api::Sha256;
use futures::TryStreamExt as _;
use object_store::path::Path;
use object_store::{Error, PutPayload};

use crate::store::backend::directory::disk::Disk;
use crate::store::backend::directory::staged::{Replaces, Staged};
use crate::store::digest_record::DigestLookup;
use crate::store::error::{StoreError, backend_error};
use crate::store::handle::Store;
use crate::store::write::conditions::{Existing, PutConditions};
use crate::store::write::upload::Received;

/// What is put to a directory.
pub(in crate::store) enum DirectoryPut {
    /// A small object.
    Bytes(PutPayload),
    /// A large one, which is written already.
    Staged(Arc<Staged>),
}

impl Store {
    /// Makes an object in a directory visible, for a caller that holds the lock of its key.
    pub(in crate::store) async fn put_to_directory(
        &self,
        disk: &Disk,
        path: &Path,
        conditions: PutConditions,
        received: &Received,
        content: DirectoryPut,
    ) -> Result<Sha256, StoreError> {
        let mut replaces = if conditions.create { Replaces::Nothing } else { Replaces::Any };
        loop {
            let version = received.version();
            let put = match &content {
                DirectoryPut::Bytes(bytes) => {
                    disk.put(path, bytes.clone(), version, replaces).await
                }
                DirectoryPut::Staged(staged) => {
                    disk.publish(path, Arc::clone(staged), version, replaces).await
                }
            };
            match put {
                Err(Error::AlreadyExists { .. }) if conditions.create => {}
                put => return put.map(|()| received.sha256).map_err(backend_error),
            }
            let damaged = self.damaged_version(path, received).await;
            if let Ok(Some(etag)) = damaged {
                tracing::warn!(%path, "the stored bytes have changed, and an upload of the right ones replaces them");
                replaces = Replaces::Version(etag);
                continue;
            }
            if let DirectoryPut::Staged(staged) = &content {
                disk.discard(staged).await.map_err(backend_error)?;
            }
            damaged?;
            return match self.existing(path, received).await? {
                Existing::Identical => Ok(received.sha256),
                Existing::Different => Err(StoreError::Exists),
                // It was deleted since.
                Existing::Absent => Err(StoreError::Replaced),
            };
        }
    }

    /// The `ETag` of the object if its recorded digest is that of the upload, and its bytes are others.
    async fn damaged_version(
        &self,
        path: &Path,
        received: &Received,
    ) -> Result<Option<String>, StoreError> {
        let (meta, found, known) = match self.stat_once(path, false).await {
            Err(StoreError::NotFound) => return Ok(None),
            stat => stat?,
        };
        let recorded = match known {
            DigestLookup::Found(sha256, _) => Some(sha256),
            DigestLookup::Stale(record) => record.sha256,
            DigestLookup::Missing(_) => None,
        };
        if recorded != Some(received.sha256) {
            return Ok(None);
        }
        let etag = found.meta.e_tag.clone().unwrap_or_default();
        let verify = async {
            let meta = meta?;
            let mut bytes = self.stream(&meta, found, 0..meta.size)?;
            while bytes.try_next().await?.is_some() {}
            Ok(())
        };
        match verify.await {
            Ok(()) => Ok(None),
            Err(StoreError::Corrupt(_)) => Ok(Some(etag)),
            // Without its key an object cannot be compared, so it is kept.
            Err(StoreError::NoKey(_) | StoreError::WrongKey(_)) => Err(StoreError::Exists),
            Err(error) => Err(error),
        }
    }
}
