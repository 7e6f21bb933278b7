//! The last step of an upload to a directory, and what becomes of one that may only create where an object exists.
//!
//! A disk can change bytes without a trace in the file's size and times. So an upload is a repetition only if the stored
//! bytes were read and are the same. If the recorded digest is the upload's and the stored bytes are others, the upload
//! restores what was lost: it replaces that version, and no other.

use std::path::Path as FsPath;
use std::sync::Arc;

use datastore_api::Sha256;
use futures::TryStreamExt as _;
use object_store::path::Path;
use object_store::{Error, PutPayload, UpdateVersion};

use crate::store::backend::directory::disk::Disk;
use crate::store::backend::directory::publish::sync_published;
use crate::store::backend::directory::staged::{Replaces, Staged};
use crate::store::backend::metered::IDLE_TIMEOUT;
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
        version: Option<UpdateVersion>,
        received: &Received,
        content: DirectoryPut,
    ) -> Result<Sha256, StoreError> {
        let mut replaces = match version.and_then(|version| version.e_tag) {
            Some(etag) if conditions.written.is_some() => Replaces::SameContent(etag),
            Some(etag) => Replaces::Version(etag),
            None if conditions.create => Replaces::Nothing,
            None => Replaces::Any,
        };
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
                Err(Error::AlreadyExists { .. }) if conditions.replaces.is_some() => {
                    if let DirectoryPut::Staged(staged) = &content {
                        disk.discard(staged).await.map_err(backend_error)?;
                    }
                    return Err(StoreError::Replaced);
                }
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
                Existing::Identical => {
                    // The process that created it may have failed after that.
                    let location = path.clone();
                    let sync = move |root: &FsPath| sync_published(root, &location);
                    let synced = disk.run_job("sync", IDLE_TIMEOUT, path, sync).await;
                    synced.map_err(backend_error)?;
                    Ok(received.sha256)
                }
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

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use futures::stream;

    use super::*;
    use crate::store::encryption::StoredFormat;
    use crate::store::key::Key;
    use crate::store::{Object, Storage};

    const PATH: &str = "layers/a/b/c/0/run.log";

    async fn put(store: &Store, content: &'static str, create: bool) {
        let body = stream::iter([Ok(Bytes::from_static(content.as_bytes()))]);
        let conditions = PutConditions { create, ..PutConditions::default() };
        store.put(&Key::from_path(PATH).unwrap(), conditions, body).await.unwrap();
    }

    #[tokio::test]
    async fn a_version_is_not_replaced_after_another_process_has_replaced_or_deleted_it() {
        let root = tempfile::tempdir().unwrap();
        let storage = Storage::File(root.path().to_owned());
        let (store, other) = (Store::open(&storage).unwrap(), Store::open(&storage).unwrap());
        let path = Path::from(PATH);
        for is_deleted in [false, true] {
            put(&store, "before", false).await;
            let etag = store.stat_now(&path).await.unwrap().etag;
            let replaces = Some(Sha256::of(etag.as_bytes()));
            let conditions = PutConditions { replaces, ..PutConditions::default() };
            let version = store.replaced_version(&path, conditions).await.unwrap();
            if is_deleted {
                other.delete(PATH).await.unwrap();
            } else {
                put(&other, "theirs", false).await;
            }
            let sha256 = Sha256::of(b"ours");
            let received = Received { plain: 4, size: 4, sha256, format: StoredFormat::Plain };
            let disk = store.disk.as_ref().unwrap();
            let content = DirectoryPut::Bytes("ours".into());
            let put = store.put_to_directory(disk, &path, conditions, version, &received, content);
            let put = put.await;
            assert!(matches!(put, Err(StoreError::Replaced)), "{put:?}");
            let left = store.list("layers").unwrap().try_collect::<Vec<Object>>().await.unwrap();
            assert_eq!(left.len(), usize::from(!is_deleted));
            assert!(left.iter().all(|left| left.size == 6), "theirs");
        }
    }

    #[tokio::test]
    async fn a_repeated_creation_is_synced_before_it_is_acknowledged() {
        let root = tempfile::tempdir().unwrap();
        let store = Store::open(&Storage::File(root.path().to_owned())).unwrap();
        let syncs = || {
            let calls = store.calls().all();
            calls.iter().filter(|(call, ..)| *call == "sync").map(|(.., of)| of.calls).sum::<u64>()
        };
        put(&store, "text", true).await;
        assert_eq!(syncs(), 0);
        put(&store, "text", true).await;
        assert_eq!(syncs(), 1);
    }
}
