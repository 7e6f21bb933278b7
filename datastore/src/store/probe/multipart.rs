//! Tries whether a storage honours a condition on the completion of a multipart upload.

use object_store::path::Path;
use object_store::{MultipartUpload, ObjectStoreExt as _, PutResult};

use crate::store::backend::cloud::connector::{Condition, create_only, is_create_rejected};
use crate::store::backend::cloud::provider::Provider;
use crate::store::digest_record::bare;
use crate::store::handle::Store;
use crate::store::probe::health::MultipartSupport;
use crate::store::probe::update::is_permanent;
use crate::store::write::parts::abort;

impl Store {
    /// Completes a multipart upload on condition that no object exists, where none does. Fails if a later try may show
    /// more.
    pub(super) async fn try_first_upload(
        &self,
        path: &Path,
    ) -> object_store::Result<MultipartSupport> {
        match self.backend.provider {
            // In a directory and in memory, uploads of this process exclude each other.
            None => {
                return Ok(MultipartSupport { works: true, refuses_existing: true, etags: true });
            }
            // The signature of a shared key covers the header, so it cannot be added.
            Some(Provider::Azure) => {
                return Ok(MultipartSupport { works: true, refuses_existing: false, etags: true });
            }
            Some(Provider::S3 | Provider::Gcs) => {}
        }
        let upload = match self.objects.put_multipart(path).await {
            Err(error) if is_permanent(&error) => return Ok(MultipartSupport::default()),
            upload => upload?,
        };
        let mut uploaded = try_completion(upload, true).await;
        if uploaded.as_ref().is_err_and(is_create_rejected) {
            // An earlier probe has left its object.
            self.objects.delete(path).await?;
            uploaded = self.try_upload(path, true).await;
        }
        let refuses_existing = match uploaded {
            // A part was refused, or the completion as such, or only its condition.
            Err(error) if is_permanent(&error) => {
                uploaded = self.try_upload(path, false).await;
                false
            }
            _ => true,
        };
        let put = match uploaded {
            Err(error) if is_permanent(&error) => return Ok(MultipartSupport::default()),
            put => put?,
        };
        let tag = self.objects.head(path).await?.e_tag;
        let etags = tag.zip(put.e_tag).is_some_and(|(now, then)| bare(&now) == bare(&then));
        Ok(MultipartSupport { works: true, refuses_existing, etags })
    }

    /// Tries the same where an object exists.
    pub(super) async fn try_second_upload(
        &self,
        path: &Path,
        first: MultipartSupport,
    ) -> object_store::Result<MultipartSupport> {
        if self.backend.provider.is_none() || !first.refuses_existing {
            return Ok(first);
        }
        let refuses_existing = match self.try_upload(path, true).await {
            Ok(_) => false,
            Err(error) if is_create_rejected(&error) => true,
            Err(error) if is_permanent(&error) => false,
            Err(error) => return Err(error),
        };
        Ok(MultipartSupport { refuses_existing, ..first })
    }

    async fn try_upload(&self, path: &Path, creates_only: bool) -> object_store::Result<PutResult> {
        try_completion(self.objects.put_multipart(path).await?, creates_only).await
    }
}

/// Completes an upload, on condition that no object exists if `creates_only`, or aborts it.
async fn try_completion(
    mut upload: Box<dyn MultipartUpload>,
    creates_only: bool,
) -> object_store::Result<PutResult> {
    let done = async {
        upload.put_part("parts".into()).await?;
        if creates_only {
            create_only(Condition::Required, upload.complete()).await
        } else {
            upload.complete().await
        }
    };
    let done = done.await;
    if done.is_err() {
        abort(&mut *upload).await;
    }
    done
}
