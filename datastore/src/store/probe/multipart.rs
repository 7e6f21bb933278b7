//! Tries whether a storage honours a condition on the completion of a multipart upload.

use object_store::path::Path;
use object_store::{ObjectStoreExt as _, PutResult};

use crate::store::backend::cloud::connector::{create_only, is_create_rejected};
use crate::store::backend::cloud::provider::Provider;
use crate::store::digest_record::bare;
use crate::store::handle::Store;
use crate::store::probe::health::MultipartSupport;
use crate::store::write::parts::abort;

impl Store {
    /// Completes a multipart upload on condition that no object exists, where none does.
    pub(in crate::store) async fn try_first_upload(&self, path: &Path) -> MultipartSupport {
        match self.backend.provider {
            // In a directory and in memory, uploads of this process exclude each other.
            None => return MultipartSupport { refuses_existing: true, etags: true },
            // The signature of a shared key covers the header, so it cannot be added.
            Some(Provider::Azure) => {
                return MultipartSupport { refuses_existing: false, etags: true };
            }
            Some(Provider::S3 | Provider::Gcs) => {}
        }
        match self.try_upload(path).await {
            Ok(put) => {
                let tag = self.objects.head(path).await.ok().and_then(|meta| meta.e_tag);
                let etags = tag.zip(put.e_tag).is_some_and(|(now, then)| bare(&now) == bare(&then));
                MultipartSupport { refuses_existing: true, etags }
            }
            // An earlier probe may have left an object.
            Err(error) if is_create_rejected(&error) => {
                MultipartSupport { refuses_existing: true, etags: false }
            }
            Err(_) => MultipartSupport::default(),
        }
    }

    /// Tries the same where an object exists.
    pub(in crate::store) async fn try_second_upload(
        &self,
        path: &Path,
        first: MultipartSupport,
    ) -> MultipartSupport {
        if self.backend.provider.is_none() || !first.refuses_existing {
            return first;
        }
        let second = self.try_upload(path).await;
        MultipartSupport {
            refuses_existing: second.is_err_and(|error| is_create_rejected(&error)),
            ..first
        }
    }

    async fn try_upload(&self, path: &Path) -> object_store::Result<PutResult> {
        let mut upload = self.objects.put_multipart(path).await?;
        let done = async {
            upload.put_part("parts".into()).await?;
            create_only(upload.complete()).await
        };
        let done = done.await;
        if done.is_err() {
            abort(&mut *upload).await;
        }
        done
    }
}
