//! Compares stored bytes with their digests, for maintenance.

use datastore_api::digest::Hasher;
use datastore_api::{Sha256, chain};
use futures::stream::{self, BoxStream};
use futures::{StreamExt as _, TryStreamExt as _};
use object_store::ObjectStoreExt as _;
use object_store::path::Path;

use crate::store::backend::reason::concise;
use crate::store::digest_record::{DigestLookup, Record, bare};
use crate::store::encryption::StoredFormat;
use crate::store::error::{StoreError, backend_error};
use crate::store::handle::Store;
use crate::store::key::{Key, RECORDS, parse, record_path};
use crate::store::object::{Meta, Object};

/// The result of a comparison of an object with its digest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Its bytes have the digest that it was stored with.
    Intact,
    /// The bytes match. The copy of the digest beside the file did not, and was written again.
    Copied,
    /// The bytes match. The copy of the digest beside the file did not, and could not be written again for this reason.
    NotCopied(String),
    /// The bytes match the record of another version, for example of a restored copy. The record was renewed.
    Healed,
    /// No digest is recorded for this version of the object.
    Unverified,
    /// Its bytes do not have the digest that it was stored with.
    Changed,
    /// It was deleted meanwhile.
    Gone,
}

impl Store {
    /// Reads the object at `key`, and compares it with its digest.
    pub async fn verify(&self, key: &str) -> Result<Verdict, StoreError> {
        let path = parse(key)?;
        let verdict = match self.compare(&path).await {
            // It is read once more if an upload has replaced it meanwhile.
            Err(StoreError::Replaced) => self.compare(&path).await,
            verdict => verdict,
        };
        match verdict {
            Err(StoreError::NotFound) => Ok(Verdict::Gone),
            Err(StoreError::Corrupt(_)) => Ok(Verdict::Changed),
            verdict => verdict,
        }
    }

    async fn compare(&self, path: &Path) -> Result<Verdict, StoreError> {
        let (meta, found) = self.stat_settled(path, false).await?;
        let mut bytes = self.stream(&meta, found, 0..meta.size)?;
        let mut hasher = Hasher::default();
        while let Some(piece) = bytes.try_next().await? {
            hasher.update(&piece);
        }
        if meta.sha256.is_some() {
            let Some(disk) = &self.disk else { return Ok(Verdict::Intact) };
            return Ok(match disk.renew_copy(path, &meta.etag).await {
                Ok(true) => Verdict::Copied,
                Ok(false) => Verdict::Intact,
                // It was deleted since.
                Err(object_store::Error::NotFound { .. }) => Verdict::Gone,
                Err(error) => Verdict::NotCopied(concise(&chain(&StoreError::from(error)))),
            });
        }
        let sha256 = hasher.finish();
        if self.disk.is_none() {
            return self.compare_in_bucket(path, meta, sha256).await;
        }
        let Some(recorded) = meta.recorded else { return Ok(Verdict::Unverified) };
        if recorded != sha256 {
            return Ok(Verdict::Changed);
        }
        self.renew(path, meta, sha256).await
    }

    /// Compares the digest of the bytes of an object in a bucket with what is recorded now. An upload writes its
    /// record after its object, so the record is read again after the bytes.
    ///
    /// A record of another version says nothing about this one, except that it may be a restored copy.
    async fn compare_in_bucket(
        &self,
        path: &Path,
        meta: Meta,
        sha256: Sha256,
    ) -> Result<Verdict, StoreError> {
        let (_, found, known) = self.stat_once(path, true).await?;
        if bare(found.meta.e_tag.as_deref().unwrap_or_default()) != bare(&meta.etag) {
            return Err(StoreError::Replaced);
        }
        match known {
            DigestLookup::Found(recorded, _) if recorded == sha256 => Ok(Verdict::Intact),
            DigestLookup::Found(..) => Ok(Verdict::Changed),
            DigestLookup::Stale(another) if another.sha256 == Some(sha256) => {
                self.renew(path, meta, sha256).await
            }
            DigestLookup::Stale(_) | DigestLookup::Missing(_) => Ok(Verdict::Unverified),
        }
    }

    /// Records the digest of bytes that match an outdated record. Reading renews the record if it can; this returns the
    /// error if it cannot.
    async fn renew(&self, path: &Path, meta: Meta, sha256: Sha256) -> Result<Verdict, StoreError> {
        let Meta { etag, stored, format, .. } = meta;
        self.record(path, Some(etag), stored, sha256, format).await?;
        Ok(Verdict::Healed)
    }

    /// The keys below `prefix` that have a digest record in a directory, in their order. In a bucket there are none:
    /// few of its objects have a record.
    pub fn recorded(
        &self,
        prefix: &str,
    ) -> Result<BoxStream<'static, Result<String, StoreError>>, StoreError> {
        if self.disk.is_none() {
            return Ok(stream::empty().boxed());
        }
        let records = self.list(&format!("{RECORDS}{prefix}"))?;
        let key = |record: Object| record.key.strip_prefix(RECORDS).map(str::to_owned);
        Ok(records.map_ok(move |record| key(record).unwrap_or_default()).boxed())
    }

    /// Whether the object at `key` has a digest record in a directory, and no file. Fails if something other than a
    /// file has its path.
    pub async fn is_lost(&self, key: &str) -> Result<bool, StoreError> {
        let path = parse(key)?;
        match &self.disk {
            Some(disk) => Ok(disk.is_lost(&path).await?),
            None => Ok(false),
        }
    }

    /// Fails if an object that is created once was stored in a directory and its file is gone: it must not look as if it had never
    /// been there.
    pub(crate) async fn refuse_lost(&self, key: &Key) -> Result<(), StoreError> {
        let path = key.object_path()?;
        if self.is_lost(path.as_ref()).await? { Err(StoreError::Lost(path)) } else { Ok(()) }
    }

    /// The digest of an object that is lost, which its next upload must have; `None` if it is not lost.
    pub(crate) async fn digest_of_lost(&self, key: &Key) -> Result<Option<Sha256>, StoreError> {
        let Err(error) = self.refuse_lost(key).await else { return Ok(None) };
        let StoreError::Lost(path) = error else { return Err(error) };
        let record = match self.objects.get(&record_path(&path)?).await {
            // It was made or deleted meanwhile.
            Err(object_store::Error::NotFound { .. }) => return Err(StoreError::Replaced),
            found => found?.bytes().await.map_err(backend_error)?,
        };
        let sha256 = Record::parse(&record).and_then(|record| record.version.sha256);
        sha256.map(Some).ok_or(StoreError::Lost(path))
    }

    /// Records the digest of the current bytes at `key`, whatever was recorded before.
    pub async fn accept(&self, key: &str) -> Result<Sha256, StoreError> {
        let path = parse(key)?;
        let _key_lock = self.key_lock(&path).await;
        let (_, found, known) = self.stat_once(&path, false).await?;
        let format = match known {
            DigestLookup::Found(_, format) => Some(format),
            DigestLookup::Missing(format) => format,
            DigestLookup::Stale(another) => another.recorded_format,
        };
        // The plain size of an encrypted object follows from its last bytes.
        let format = format.map(|format| match format {
            StoredFormat::Plain => StoredFormat::Plain,
            StoredFormat::Cbc(_, key) => StoredFormat::Cbc(None, key),
        });
        let (format, size) =
            self.stored_format(&found.meta, &DigestLookup::Missing(format)).await?;
        let (stored, etag) = (found.meta.size, found.meta.e_tag.clone().unwrap_or_default());
        let meta = Meta { size, stored, format, etag, sha256: None, recorded: None };
        let mut bytes = self.stream(&meta, found, 0..size)?;
        let mut hasher = Hasher::default();
        while let Some(piece) = bytes.try_next().await? {
            hasher.update(&piece);
        }
        let sha256 = hasher.finish();
        if !self.record(&path, Some(meta.etag.clone()), stored, sha256, format).await? {
            return Err(StoreError::Replaced);
        }
        let (now, found, _) = self.stat_once(&path, true).await?;
        if bare(found.meta.e_tag.as_deref().unwrap_or_default()) != bare(&meta.etag) {
            return Err(StoreError::Replaced);
        }
        match now?.sha256 {
            Some(now) if now == sha256 => Ok(sha256),
            // The object's metadata has another digest and takes precedence over a record.
            _ => Err(StoreError::Corrupt(path)),
        }
    }
}
