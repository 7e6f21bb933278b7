//! Encrypts objects that are stored in plain, one by one, in place.

use bytes::Bytes;
use datastore_api::Sha256;
use futures::TryStreamExt as _;
use jiff::Timestamp;
use object_store::path::Path;
use object_store::{
    Error, GetOptions, ObjectStoreExt as _, PutMode, PutOptions, PutPayload, UpdateVersion,
};

use crate::store::digest_record::bare;
use crate::store::encryption::StoredFormat;
use crate::store::encryption::cipher::may_be_encrypted;
use crate::store::encryption::content::{HEAD, is_known_content};
use crate::store::encryption::object::signature;
use crate::store::error::{StoreError, backend_error};
use crate::store::handle::Store;
use crate::store::key::{Key, REWRITTEN, parse};
use crate::store::object::{Meta, Object, timestamp};
use crate::store::write::conditions::PutConditions;
use crate::store::write::deadline::WholeBody;
use crate::store::write::upload::{IncomingBody, Received};

impl Store {
    /// Encrypts an object that is stored in plain; returns whether it was. Its plain bytes are verified, and readers
    /// see one version or the other. `listed` is its time in a listing, to the millisecond; the new version keeps it.
    ///
    /// Fails with [`StoreError::Unrecognised`] if neither a record nor its content shows that it is plain: it may be
    /// encrypted with another key, and no single key could decrypt it again. Fails with [`StoreError::Replaced`] if
    /// another version was stored meanwhile, which is kept.
    pub async fn encrypt(&self, key: &Key, listed: Timestamp) -> Result<bool, StoreError> {
        let path = key.object_path()?;
        // Shutdown waits for an object that is being replaced.
        let _in_progress = self.uploads.token();
        let (meta, bytes) = self.open_path(&path).await?;
        if meta.format != StoredFormat::Plain {
            return Ok(false);
        }
        if meta.sha256.is_none() && may_be_encrypted(meta.stored) {
            let head = self.open_part(key, &meta, 0..meta.size.min(HEAD as u64)).await?;
            let head = head.try_collect::<Vec<_>>().await?.concat();
            if !is_known_content(signature(&path), &head) {
                return Err(StoreError::Unrecognised(path));
            }
        }
        let (format, encryptor) = self.encryptor(key.kind())?;
        let replaces = Some(Sha256::of(meta.etag.as_bytes()));
        let written = Some(self.keep_time(&path, &meta, listed).await?);
        let conditions = PutConditions { sha256: meta.sha256, create: false, replaces, written };
        let mut body = bytes.map_err(Into::into);
        // Its run is in the index already.
        self.upload(
            &path,
            conditions,
            IncomingBody::new(&mut body, format, encryptor),
            None,
            &WholeBody::default(),
        )
        .await?;
        Ok(true)
    }

    /// When the content of this version was stored. In a bucket, listings have another time from the replacement on: an object
    /// shows `gc` that the metadata has the right one.
    async fn keep_time(
        &self,
        path: &Path,
        meta: &Meta,
        listed: Timestamp,
    ) -> Result<Timestamp, StoreError> {
        if !self.is_bucket() {
            return Ok(listed);
        }
        let there = self.objects.head(path).await.map_err(StoreError::from)?;
        if bare(there.e_tag.as_deref().unwrap_or_default()) != bare(&meta.etag) {
            return Err(StoreError::Replaced);
        }
        if !self.has_rewritten_objects().await? {
            self.put_internal(&parse(REWRITTEN)?, Bytes::new()).await?;
        }
        let stored = timestamp(&there);
        // The response to a HEAD has no fractions of a second.
        Ok(if stored.as_second() == listed.as_second() { listed } else { stored })
    }

    /// Whether any object of the bucket may have another [`Store::written`] time than listings show.
    pub async fn has_rewritten_objects(&self) -> Result<bool, StoreError> {
        if !self.is_bucket() {
            return Ok(false);
        }
        match self.objects.head(&parse(REWRITTEN)?).await {
            Err(Error::NotFound { .. }) => Ok(false),
            found => Ok(found.map(|_| true)?),
        }
    }

    /// When the content of an object was stored: before the time in the listing, if it was encrypted later in a bucket.
    pub async fn written(&self, listed: &Object) -> Result<Timestamp, StoreError> {
        if !may_be_encrypted(listed.size) {
            return Ok(listed.modified);
        }
        let head = GetOptions::new().with_head(true);
        let found = match self.objects.get_opts(&parse(&listed.key)?, head).await {
            // It was deleted since.
            Err(Error::NotFound { .. }) => return Ok(listed.modified),
            found => found?,
        };
        let written = found.attributes.get(&self.written_time());
        Ok(written.and_then(|time| time.parse().ok()).unwrap_or(listed.modified))
    }

    /// The version to be replaced, if the conditions name one. Fails with [`StoreError::Replaced`] if the object has
    /// another version now.
    pub(in crate::store) async fn replaced_version(
        &self,
        path: &Path,
        conditions: PutConditions,
    ) -> Result<Option<UpdateVersion>, StoreError> {
        let Some(expected) = conditions.replaces else { return Ok(None) };
        let meta = self.stat_now(path).await?;
        if Sha256::of(meta.etag.as_bytes()) != expected {
            return Err(StoreError::Replaced);
        }
        let head = self.objects.head(path).await.map_err(StoreError::from)?;
        // Some storages are asked to replace the version alone: it must be that of the expected object.
        if head.version.is_some() && head.e_tag.as_deref() != Some(&*meta.etag) {
            return Err(StoreError::Replaced);
        }
        Ok(Some(UpdateVersion { e_tag: Some(meta.etag), version: head.version }))
    }

    /// Replaces this version of a small object, and no other.
    pub(in crate::store) async fn update_whole(
        &self,
        path: &Path,
        version: UpdateVersion,
        bytes: PutPayload,
        received: Received,
        written: Option<Timestamp>,
    ) -> Result<Sha256, StoreError> {
        let Received { sha256, format, .. } = received;
        let attributes = self.attributes(Some(sha256), format, None, written);
        let mode = PutMode::Update(version);
        let options = PutOptions { mode, attributes, ..PutOptions::default() };
        match self.objects.put_opts(path, bytes, options).await {
            Ok(_) => Ok(sha256),
            Err(Error::Precondition { .. }) => Err(StoreError::Replaced),
            Err(error) => Err(backend_error(error)),
        }
    }
}
