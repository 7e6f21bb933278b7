//! Large objects: uploaded in parts, and made one object at the end.

use std::sync::Arc;

use datastore_api::Sha256;
use object_store::path::Path;
use object_store::{Error, GetOptions, MultipartUpload, ObjectStoreExt as _, PutMultipartOptions};
use tokio::time::timeout;

use crate::store::backend::connector::{creating, is_refused};
use crate::store::encryption::Form;
use crate::store::write::lease::{Creator, Lease};
use crate::store::write::parts::{Blocks, Parts, Upload, abort};
use crate::store::write::put::{LOOK, Terms, There};
use crate::store::write::upload::Received;
use crate::store::{Store, StoreError, backend, random};

impl Store {
    pub(in crate::store) async fn start_parts(
        &self,
        path: &Path,
        terms: Terms,
        head: Blocks,
        form: Form,
    ) -> Result<Parts, StoreError> {
        let id = format!("{:016x}{:016x}", random(), random());
        let attributes = self.attributes(terms.sha256, form, Some(&id));
        let options = PutMultipartOptions { attributes, ..PutMultipartOptions::default() };
        let before = if self.is_azure() { self.tag(path).await } else { None };
        let upload = if let Some(disk) = &self.disk {
            Upload::File(disk.clone(), Arc::new(disk.stage(path).await.map_err(backend)?), 0)
        } else {
            let upload = self.objects.put_multipart_opts(path, options).await;
            Upload::Cloud(upload.map_err(backend)?)
        };
        let sizes = (self.traits.part, self.traits.flying);
        Ok(Parts::new(upload, (id, before), sizes, head, self.memory.clone()))
    }

    /// A large object, all of whose parts are there.
    pub(in crate::store) async fn commit(
        &self,
        path: &Path,
        terms: Terms,
        parts: Parts,
        received: Received,
    ) -> Result<Sha256, StoreError> {
        let Parts { upload, id, before, .. } = parts;
        let _turn = self.turn(path).await;
        if let Err(error) = self.replaced_version(path, terms).await {
            match upload {
                Upload::Cloud(mut upload) => abort(&mut *upload).await,
                Upload::File(disk, staged, _) => disk.discard(&staged).await.map_err(backend)?,
            }
            return Err(error);
        }
        match upload {
            Upload::Cloud(upload) => {
                self.commit_parts(path, terms, (upload, id, before), received).await
            }
            Upload::File(disk, staged, _) => {
                let staged = Arc::into_inner(staged);
                let staged = staged.ok_or_else(|| backend("a part is still being written"))?;
                let put = disk.publish(path, staged, received.version(), terms.create).await;
                self.settled_put(path, terms, &received, put).await
            }
        }
    }

    async fn commit_parts(
        &self,
        path: &Path,
        terms: Terms,
        (mut upload, id, before): (Box<dyn MultipartUpload>, String, Option<String>),
        received: Received,
    ) -> Result<Sha256, StoreError> {
        let lease = match self.creator(path, terms, &received).await {
            Ok(Creator::Us(lease)) => lease,
            creator => {
                abort(&mut *upload).await;
                return match creator? {
                    Creator::NotNeeded(There::Same) => Ok(received.sha256),
                    _ => Err(StoreError::Exists),
                };
            }
        };
        let completed = self.complete(path, terms, (upload, id, before), received, lease.as_ref());
        let completed = completed.await;
        self.release(lease).await;
        completed
    }

    async fn complete(
        &self,
        path: &Path,
        terms: Terms,
        (mut upload, id, before): (Box<dyn MultipartUpload>, String, Option<String>),
        received: Received,
        lease: Option<&Lease>,
    ) -> Result<Sha256, StoreError> {
        let Received { size, sha256, form, .. } = received;
        if terms.create {
            let there = self.there(path, &received).await;
            if !matches!(there, Ok(There::Nothing)) {
                abort(&mut *upload).await;
                return if there? == There::Same { Ok(sha256) } else { Err(StoreError::Exists) };
            }
        }
        if lease.is_some_and(|lease| !lease.is_fresh()) {
            // Another may have it before this is complete.
            abort(&mut *upload).await;
            return Err(StoreError::Undecided);
        }
        let is_conditional = terms.create && self.creates_large();
        let completed = if is_conditional {
            creating(upload.complete()).await
        } else {
            upload.complete().await
        };
        let etag = match completed {
            // Not every server names the tag that the object will have.
            Ok(put) if terms.sha256.is_some() || self.names_tags() => put.e_tag,
            Ok(put) => match self.uploaded(path, &id).await {
                Some(etag) => etag,
                None => put.e_tag,
            },
            Err(error) => {
                let Some(etag) = self.uploaded(path, &id).await else {
                    abort(&mut *upload).await;
                    let is_late = is_conditional && is_refused(&error);
                    let there = if is_late {
                        self.there(path, &received).await?
                    } else {
                        self.there_after(path, &received, before, &error).await
                    };
                    return match there {
                        There::Same => Ok(sha256),
                        There::Other if terms.create => Err(StoreError::Exists),
                        There::Other => Ok(sha256),
                        There::Nothing => Err(backend(error)),
                    };
                };
                etag
            }
        };
        if terms.sha256.is_none() {
            self.record(path, etag, size, sha256, form).await?;
        }
        Ok(sha256)
    }

    /// The tag of the object that the upload of this id has made, if it has.
    async fn uploaded(&self, path: &Path, id: &str) -> Option<Option<String>> {
        let head = self.objects.get_opts(path, GetOptions::new().with_head(true));
        let found = timeout(LOOK, head).await.ok()?.ok()?;
        let bears = found.attributes.get(&self.upload_id()).is_some_and(|there| &**there == id);
        bears.then_some(found.meta.e_tag)
    }

    /// What has overtaken an upload; nothing, if that is not why it failed.
    ///
    /// Whoever puts a blob on Azure removes the parts that others have sent for it. To them it is as
    /// if they had been first: stored, and replaced at once.
    async fn there_after(
        &self,
        path: &Path,
        received: &Received,
        before: Option<String>,
        error: &Error,
    ) -> There {
        let removed = self.is_azure() && error.to_string().contains("InvalidBlockList");
        if !removed || self.tag(path).await == before {
            return There::Nothing;
        }
        self.there(path, received).await.unwrap_or(There::Nothing)
    }

    /// The tag of what lies there now.
    async fn tag(&self, path: &Path) -> Option<String> {
        self.objects.head(path).await.ok()?.e_tag
    }
}
