//! Reads and writes the digest of an object: in its own metadata where it can carry some, else in the record beside it.

use datastore_api::Sha256;
use object_store::path::Path;
use object_store::{Attributes, ObjectMeta, ObjectStoreExt as _};

use crate::store::digest_record::{
    DIGEST_ATTRIBUTE, DigestLookup, FORMAT_ATTRIBUTE, Record, Version,
};
use crate::store::encryption::StoredFormat;
use crate::store::error::{StoreError, backend_error};
use crate::store::handle::Store;
use crate::store::key::record_path;

impl Store {
    /// Records the digest of the version with this `ETag`. In a directory it does so only if the file still has that
    /// version, and returns whether it had.
    pub(in crate::store) async fn record(
        &self,
        path: &Path,
        etag: Option<String>,
        size: u64,
        sha256: Sha256,
        format: StoredFormat,
    ) -> Result<bool, StoreError> {
        let version = Version::new(etag.unwrap_or_default(), size, Some(sha256), format);
        if let Some(disk) = &self.disk {
            return Ok(disk.record(path, version).await?);
        }
        let json = serde_json::to_vec(&Record { version, before: None }).map_err(backend_error)?;
        self.put_internal(&record_path(path)?, json.into()).await?;
        Ok(true)
    }

    /// Finds the digest of an object, in its metadata or its record.
    pub(in crate::store) async fn digest(
        &self,
        meta: &ObjectMeta,
        attributes: &Attributes,
    ) -> Result<DigestLookup, StoreError> {
        let format = attributes.get(&FORMAT_ATTRIBUTE).map(|text| text.parse::<StoredFormat>());
        let format = format.transpose().map_err(backend_error)?;
        if let Some(carried) = attributes.get(&DIGEST_ATTRIBUTE).and_then(|text| text.parse().ok())
        {
            return Ok(DigestLookup::Found(carried, format.unwrap_or(StoredFormat::Plain)));
        }
        let json = match self.objects.get(&record_path(&meta.location)?).await {
            Err(object_store::Error::NotFound { .. }) => return Ok(DigestLookup::Missing(format)),
            found => found?.bytes().await?,
        };
        match Record::parse(&json) {
            Some(record) => {
                record.known(meta.e_tag.as_deref().unwrap_or_default(), meta.size, format)
            }
            None => Ok(DigestLookup::Missing(format)),
        }
    }
}
