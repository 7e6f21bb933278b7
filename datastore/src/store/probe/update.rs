//! Tries whether a storage replaces one version of an object and refuses to replace any other.
//!
//! A lease that a killed process has left is taken over in that way (`write/lease.rs`).

use object_store::path::Path;
use object_store::{Error, ObjectStoreExt as _, PutMode, PutOptions, PutResult, UpdateVersion};

use crate::store::backend::response::{self, code, status};
use crate::store::handle::Store;

impl Store {
    /// Replaces an object's present version, and tries to replace that version once more, which must be refused. Fails
    /// if a later try may show more.
    pub(super) async fn try_update(
        &self,
        path: &Path,
        present: PutResult,
    ) -> object_store::Result<bool> {
        if self.backend.provider.is_none() {
            // In a directory and in memory no lease is needed.
            return Ok(true);
        }
        let version = UpdateVersion { e_tag: present.e_tag, version: present.version };
        let replace = async |content: &'static str| {
            let options = PutOptions::from(PutMode::Update(version.clone()));
            self.objects.put_opts(path, content.into(), options).await
        };
        // The contents differ, because an S3 server may derive the ETag from the content.
        match replace("replaced").await {
            Ok(_) => {}
            // The answer to the first try may be lost: the client's second try is then refused.
            Err(Error::Precondition { .. }) if self.has_content(path, "replaced").await? => {}
            Err(error) if is_permanent(&error) => return Ok(false),
            Err(error) => return Err(error),
        }
        match replace("replaced twice").await {
            Ok(_) => Ok(false),
            Err(Error::Precondition { .. }) => Ok(true),
            Err(error) if is_permanent(&error) => Ok(false),
            Err(error) => Err(error),
        }
    }

    async fn has_content(&self, path: &Path, content: &'static str) -> object_store::Result<bool> {
        Ok(self.objects.get(path).await?.bytes().await? == content)
    }
}

/// Whether the storage would refuse the same request again. A missing right may be granted.
pub(super) fn is_permanent(error: &Error) -> bool {
    match error {
        Error::Precondition { .. } | Error::NotSupported { .. } | Error::NotImplemented { .. } => {
            true
        }
        error => {
            let text = datastore_api::chain(error);
            response::is_permanent(status(&text), code(&text))
        }
    }
}
