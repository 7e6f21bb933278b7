//! The digest of an object that cannot carry it: a small JSON object beside it.
//!
//! A record names the `ETag` of the object that it was written for. Where that is not the object's,
//! somebody else has put the object there (upstream, a restored backup), and its digest is unknown.

use datastore_api::Sha256;
use object_store::path::Path;
use object_store::{Attribute, Attributes, ObjectMeta, ObjectStoreExt as _, PutResult};
use serde::{Deserialize, Serialize};

use super::{Store, StoreError, backend, record_path};

/// The name of the metadata that holds the digest, where an object can carry it.
pub(super) const METADATA: Attribute = Attribute::Metadata(std::borrow::Cow::Borrowed("sha256"));

#[derive(Serialize, Deserialize)]
struct Record {
    etag: String,
    size: u64,
    sha256: Sha256,
}

impl Store {
    /// Writes down the digest of the object that was just put.
    pub(super) async fn record(
        &self,
        path: &Path,
        put: PutResult,
        size: u64,
        sha256: Sha256,
    ) -> Result<(), StoreError> {
        let record = Record { etag: put.e_tag.unwrap_or_default(), size, sha256 };
        let json = serde_json::to_vec(&record).map_err(backend)?;
        self.objects.put(&record_path(path)?, json.into()).await?;
        Ok(())
    }

    /// The digest an object was stored with, `None` if nobody wrote it down.
    pub(super) async fn digest(
        &self,
        meta: &ObjectMeta,
        attributes: &Attributes,
    ) -> Result<Option<Sha256>, StoreError> {
        if let Some(carried) = attributes.get(&METADATA).and_then(|text| text.parse().ok()) {
            return Ok(Some(carried));
        }
        let json = match self.objects.get(&record_path(&meta.location)?).await {
            Err(object_store::Error::NotFound { .. }) => return Ok(None),
            found => found?.bytes().await?,
        };
        // One that does not parse was cut off by a power failure: as good as none.
        let record = serde_json::from_slice::<Record>(&json).ok();
        let matching = record
            .filter(|record| Some(&record.etag) == meta.e_tag.as_ref() && record.size == meta.size);
        Ok(matching.map(|record| record.sha256))
    }
}
