//! Large objects: uploaded in parts, and completed as one object.

use std::sync::Arc;

use datastore_api::{Sha256, chain};
use object_store::path::Path;
use object_store::{
    Error, GetOptions, MultipartUpload, ObjectStoreExt as _, PutMultipartOptions, UpdateVersion,
};
use tokio::time::timeout;

use crate::store::backend::cloud::connector::{create_only, is_create_rejected, replace_only};
use crate::store::backend::metered::STAT_TIMEOUT;
use crate::store::digest_record::bare;
use crate::store::encryption::StoredFormat;
use crate::store::error::{StoreError, backend_error};
use crate::store::handle::Store;
use crate::store::key::random;
use crate::store::write::conditions::{Existing, PutConditions};
use crate::store::write::directory::DirectoryPut;
use crate::store::write::lease::{CreateRight, Lease};
use crate::store::write::parts::{Blocks, Parts, Upload, abort};
use crate::store::write::upload::Received;

/// How many versions that replace an upload while its digest is recorded get their own digest again.
const REPLACEMENTS: usize = 3;

impl Store {
    pub(in crate::store) async fn start_parts(
        &self,
        path: &Path,
        conditions: PutConditions,
        head: Blocks,
        format: StoredFormat,
    ) -> Result<Parts, StoreError> {
        let id = format!("{:016x}{:016x}", random(), random());
        let attributes = self.attributes(conditions.sha256, format, Some(&id), conditions.written);
        let options = PutMultipartOptions { attributes, ..PutMultipartOptions::default() };
        let previous_etag = if self.is_azure() { self.tag(path).await } else { None };
        let upload = if let Some(disk) = &self.disk {
            Upload::File(disk.clone(), Arc::new(disk.stage(path).await.map_err(backend_error)?), 0)
        } else {
            let upload = self.objects.put_multipart_opts(path, options).await;
            Upload::Cloud(upload.map_err(backend_error)?)
        };
        let sizes = (self.backend.part_size, self.backend.parallel_parts);
        Ok(Parts::new(upload, (id, previous_etag), sizes, head, self.memory.clone()))
    }

    /// Makes a large object visible once all its parts are stored.
    pub(in crate::store) async fn commit(
        &self,
        path: &Path,
        conditions: PutConditions,
        parts: Parts,
        received: Received,
    ) -> Result<Sha256, StoreError> {
        let Parts { upload, id, previous_etag, .. } = parts;
        let _key_lock = self.key_lock(path).await;
        let replaced = match self.replaced_version(path, conditions).await {
            Ok(replaced) => replaced,
            Err(error) => {
                match upload {
                    Upload::Cloud(mut upload) => abort(&mut *upload).await,
                    Upload::File(disk, staged, _) => {
                        disk.discard(&staged).await.map_err(backend_error)?;
                    }
                }
                return Err(error);
            }
        };
        match upload {
            Upload::Cloud(upload) => {
                let upload = (upload, id, previous_etag);
                match replaced {
                    Some(version) => {
                        self.update_parts(path, conditions, version, upload, received).await
                    }
                    None => self.commit_parts(path, conditions, upload, received).await,
                }
            }
            Upload::File(disk, staged, _) => {
                let staged = Arc::into_inner(staged);
                let staged =
                    staged.ok_or_else(|| backend_error("a part is still being written"))?;
                let content = DirectoryPut::Staged(Arc::new(staged));
                let received = &received;
                self.put_to_directory(&disk, path, conditions, replaced, received, content).await
            }
        }
    }

    async fn commit_parts(
        &self,
        path: &Path,
        conditions: PutConditions,
        (mut upload, id, previous_etag): (Box<dyn MultipartUpload>, String, Option<String>),
        received: Received,
    ) -> Result<Sha256, StoreError> {
        let lease = match self.acquire_create_right(path, conditions, &received).await {
            Ok(CreateRight::Granted(lease)) => lease,
            refused => {
                abort(&mut *upload).await;
                return match refused? {
                    CreateRight::AlreadyExists(Existing::Identical) => Ok(received.sha256),
                    _ => Err(StoreError::Exists),
                };
            }
        };
        let completed =
            self.complete(path, conditions, (upload, id, previous_etag), received, lease.as_ref());
        let completed = completed.await;
        self.release(lease).await;
        completed
    }

    /// Completes an upload that replaces this version. On Azure another one may be stored at the same moment, and where an S3
    /// server does not support the condition: it is replaced then.
    async fn update_parts(
        &self,
        path: &Path,
        conditions: PutConditions,
        version: UpdateVersion,
        (mut upload, id, _): (Box<dyn MultipartUpload>, String, Option<String>),
        received: Received,
    ) -> Result<Sha256, StoreError> {
        let Received { size, sha256, format, .. } = received;
        let completed = replace_only(version, upload.complete()).await;
        let etag = match (self.uploaded_etag(path, &id).await, completed) {
            (Some(etag), _) => etag,
            (None, Ok(put)) => put.e_tag,
            (None, Err(error)) => {
                abort(&mut *upload).await;
                let is_replaced = is_create_rejected(&error);
                return Err(if is_replaced { StoreError::Replaced } else { backend_error(error) });
            }
        };
        if conditions.sha256.is_none() {
            self.record_upload(path, etag, (size, sha256, format)).await?;
        }
        Ok(sha256)
    }

    async fn complete(
        &self,
        path: &Path,
        conditions: PutConditions,
        (mut upload, id, previous_etag): (Box<dyn MultipartUpload>, String, Option<String>),
        received: Received,
        lease: Option<&Lease>,
    ) -> Result<Sha256, StoreError> {
        let Received { size, sha256, format, .. } = received;
        if conditions.create {
            let there = self.existing(path, &received).await;
            if !matches!(there, Ok(Existing::Absent)) {
                abort(&mut *upload).await;
                return if there? == Existing::Identical {
                    Ok(sha256)
                } else {
                    Err(StoreError::Exists)
                };
            }
        }
        if lease.is_some_and(|lease| !lease.is_fresh()) {
            // The lease may expire before the completion ends.
            abort(&mut *upload).await;
            return Err(StoreError::Undecided);
        }
        let condition = self.completion_condition().filter(|_| conditions.create);
        let completed = match condition {
            Some(condition) => create_only(condition, upload.complete()).await,
            None => upload.complete().await,
        };
        let etag = match completed {
            // Not every server returns the ETag that the object will have.
            Ok(put) if conditions.sha256.is_some() || self.returns_multipart_etags() => put.e_tag,
            Ok(put) => match self.uploaded_etag(path, &id).await {
                Some(etag) => etag,
                None => put.e_tag,
            },
            Err(error) => {
                let Some(etag) = self.uploaded_etag(path, &id).await else {
                    abort(&mut *upload).await;
                    let is_late = condition.is_some() && is_create_rejected(&error);
                    let there = if is_late {
                        self.existing(path, &received).await?
                    } else {
                        self.after_failed_commit(path, &received, previous_etag, &error).await
                    };
                    return match there {
                        Existing::Identical => Ok(sha256),
                        Existing::Different if conditions.create => Err(StoreError::Exists),
                        Existing::Different => Ok(sha256),
                        Existing::Absent => Err(backend_error(error)),
                    };
                };
                etag
            }
        };
        if conditions.sha256.is_none() {
            self.record_upload(path, etag, (size, sha256, format)).await?;
        }
        Ok(sha256)
    }

    /// Records the digest of a completed upload. Another replica may have replaced the object and written its record already,
    /// which this one has then taken the place of: the digest of that version is computed and recorded again.
    async fn record_upload(
        &self,
        path: &Path,
        etag: Option<String>,
        (size, sha256, format): (u64, Sha256, StoredFormat),
    ) -> Result<(), StoreError> {
        self.record(path, etag.clone(), size, sha256, format).await?;
        let mut recorded = etag;
        for _ in 0..REPLACEMENTS {
            let (Some(ours), Some(there)) = (&recorded, self.tag(path).await) else { break };
            if bare(ours) == bare(&there) {
                break;
            }
            let renewed = async {
                let (meta, sha256) = Box::pin(self.computed(path)).await?;
                let etag = Some(meta.etag);
                self.record(path, etag.clone(), meta.stored, sha256, meta.format).await?;
                Ok::<_, StoreError>(etag)
            };
            recorded = match renewed.await {
                Ok(etag) => etag,
                Err(error) => {
                    let error = chain(&error);
                    tracing::warn!(%path, error, "the digest of the version that has replaced an upload is not recorded");
                    break;
                }
            };
        }
        Ok(())
    }

    /// The `ETag` of the object that this upload has created, if it has.
    async fn uploaded_etag(&self, path: &Path, id: &str) -> Option<Option<String>> {
        let head = self.objects.get_opts(path, GetOptions::new().with_head(true));
        let found = timeout(STAT_TIMEOUT, head).await.ok()?.ok()?;
        let matches = found.attributes.get(&self.upload_id()).is_some_and(|there| &**there == id);
        matches.then_some(found.meta.e_tag)
    }

    /// The object that has overtaken an upload; `Absent` if the upload failed for another reason.
    ///
    /// A put on Azure removes uncommitted parts of all uploads of that blob. For them it is as if they had been stored
    /// first and replaced at once.
    async fn after_failed_commit(
        &self,
        path: &Path,
        received: &Received,
        previous_etag: Option<String>,
        error: &Error,
    ) -> Existing {
        let removed = self.is_azure() && error.to_string().contains("InvalidBlockList");
        if !removed || self.tag(path).await == previous_etag {
            return Existing::Absent;
        }
        self.existing(path, received).await.unwrap_or(Existing::Absent)
    }

    /// The `ETag` of the current object.
    async fn tag(&self, path: &Path) -> Option<String> {
        self.objects.head(path).await.ok()?.e_tag
    }
}
