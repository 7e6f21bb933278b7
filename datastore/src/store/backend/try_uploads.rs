//! Tries what a backend does with multipart uploads.

use object_store::path::Path;
use object_store::{ObjectStoreExt as _, PutResult};

use crate::store::backend::connector::{creating, is_refused};
use crate::store::digest_record::bare;
use crate::store::write::parts::abort;
use crate::store::{Provider, Store};

/// What was seen of multipart uploads.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::store) struct Uploads {
    /// Whether one is refused where there is an object, if that is asked for.
    pub(in crate::store) creates: bool,
    /// Whether its completion names the tag that the object has.
    pub(in crate::store) tags: bool,
}

impl Store {
    /// Tries a multipart upload that is completed under the condition that there is no object, where there is none.
    pub(in crate::store) async fn try_first_upload(&self, path: &Path) -> Uploads {
        match self.traits.provider {
            // A directory and this process's memory know no other writers than ours, which wait for each other.
            None => return Uploads { creates: true, tags: true },
            // A signature with the account's key covers the condition, so it cannot be added.
            Some(Provider::Azure) => return Uploads { creates: false, tags: true },
            Some(Provider::S3 | Provider::Gcs) => {}
        }
        match self.try_upload(path).await {
            Ok(put) => {
                let tag = self.objects.head(path).await.ok().and_then(|meta| meta.e_tag);
                let tags = tag.zip(put.e_tag).is_some_and(|(now, then)| bare(&now) == bare(&then));
                Uploads { creates: true, tags }
            }
            // An earlier try may have left an object.
            Err(error) if is_refused(&error) => Uploads { creates: true, tags: false },
            Err(_) => Uploads::default(),
        }
    }

    /// Tries the same where there is one.
    pub(in crate::store) async fn try_second_upload(&self, path: &Path, first: Uploads) -> Uploads {
        if self.traits.provider.is_none() || !first.creates {
            return first;
        }
        let second = self.try_upload(path).await;
        Uploads { creates: second.is_err_and(|error| is_refused(&error)), ..first }
    }

    async fn try_upload(&self, path: &Path) -> object_store::Result<PutResult> {
        let mut upload = self.objects.put_multipart(path).await?;
        let done = async {
            upload.put_part("parts".into()).await?;
            creating(upload.complete()).await
        };
        let done = done.await;
        if done.is_err() {
            abort(&mut *upload).await;
        }
        done
    }
}
