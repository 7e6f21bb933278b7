//! Reads an object: its metadata, and its bytes, verified while they stream.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use datastore_api::Sha256;
use datastore_api::digest::Hasher;
use futures::future::BoxFuture;
use futures::stream::{self, BoxStream};
use futures::{FutureExt, StreamExt as _, TryStreamExt as _};
use object_store::path::Path;
use object_store::{Attributes, GetOptions, GetResult, GetResultPayload, ObjectMeta};

use crate::store::backend::directory::disk::{Content, Locking};
use crate::store::backend::directory::jobs::JobFile;
use crate::store::backend::storage::KIB;
use crate::store::digest_record::{DigestLookup, get_version};
use crate::store::encryption::StoredFormat;
use crate::store::encryption::object::cipher_range;
use crate::store::error::{BoxError, StoreError, backend_error};
use crate::store::handle::Store;
use crate::store::key::Key;
use crate::store::object::{ByteStream, Meta};
use crate::store::probe::ability::Ability;
use crate::store::read::ranged::{InBucket, OpenFile, Source};

/// The version of an object that [`Store::stat`] found.
pub struct OpenedVersion {
    /// Its metadata.
    pub meta: Meta,
    found: Found,
}

/// An object as the backend opened it, with its stored bytes.
pub(in crate::store) struct Found {
    pub(in crate::store) meta: ObjectMeta,
    payload: Payload,
    /// The range of stored bytes in the payload.
    range: Range<u64>,
}

enum Payload {
    Disk(Content),
    Stream(BoxStream<'static, object_store::Result<Bytes>>),
}

/// Objects up to this size are verified before the first byte is returned.
const SMALL: usize = 256 * KIB;
/// Retries while an object is being replaced.
const REPLACED_RETRIES: usize = 3;

impl Store {
    /// Finds an object and its metadata.
    pub async fn stat(&self, key: &Key) -> Result<OpenedVersion, StoreError> {
        let (meta, found) = self.stat_settled(&key.object_path()?, true).await?;
        Ok(OpenedVersion { meta, found })
    }

    /// Opens a part of a version. In a directory it reads that very file, even if it was replaced since. In a bucket
    /// it fails with [`StoreError::Replaced`] if the object has another version now. A part that is a whole small object
    /// is verified before this returns.
    pub async fn open_version(
        &self,
        key: &Key,
        version: OpenedVersion,
        range: Range<u64>,
    ) -> Result<ByteStream, StoreError> {
        let OpenedVersion { meta, found } = version;
        let is_whole = range == (0..meta.size);
        let bytes = if self.disk.is_none() {
            self.open_part(key, &meta, range).await?
        } else {
            let stored = stored_range(&meta, &range);
            self.stream(&meta, Found { range: stored, ..found }, range)?
        };
        if is_whole && is_verified_first(&meta) { read_ahead(bytes).await } else { Ok(bytes) }
    }

    /// Opens an object. Its last bytes are returned only if the whole object has the digest that it was stored with. A
    /// small object is verified before this returns.
    pub async fn open_whole(&self, key: &Key) -> Result<(Meta, ByteStream), StoreError> {
        self.open_path(&key.object_path()?).await
    }

    /// Opens an object that must have this digest, also where none is recorded with it: then it is verified all the same.
    pub(crate) async fn open_whole_of(
        &self,
        key: &Key,
        sha256: Sha256,
    ) -> Result<(Meta, ByteStream), StoreError> {
        let path = key.object_path()?;
        let (meta, bytes) = self.open_path(&path).await?;
        match meta.sha256 {
            Some(recorded) if recorded == sha256 => Ok((meta, bytes)),
            Some(_) => Err(StoreError::Corrupt(path)),
            None => {
                let meta = Meta { sha256: Some(sha256), ..meta };
                let bytes = verified(bytes, sha256, path, None);
                let bytes = if is_verified_first(&meta) { read_ahead(bytes).await? } else { bytes };
                Ok((meta, bytes))
            }
        }
    }

    pub(in crate::store) async fn open_path(
        &self,
        path: &Path,
    ) -> Result<(Meta, ByteStream), StoreError> {
        for _ in 0..REPLACED_RETRIES {
            match self.open_one_version(path).await {
                Err(StoreError::Replaced) => {}
                opened => return opened,
            }
        }
        self.open_one_version(path).await
    }

    async fn open_one_version(&self, path: &Path) -> Result<(Meta, ByteStream), StoreError> {
        let (mut meta, found) = self.stat_settled(path, false).await?;
        let all = 0..meta.size;
        let mut bytes = self.stream(&meta, found, all)?;
        if is_verified_first(&meta) {
            bytes = read_ahead(bytes).await?;
            meta.sha256 = meta.sha256.or(meta.recorded);
        }
        Ok((meta, bytes))
    }

    /// Opens a part of the version that `meta` describes. Fails with [`StoreError::Replaced`] if the object has
    /// another version now.
    pub async fn open_part(
        &self,
        key: &Key,
        meta: &Meta,
        range: Range<u64>,
    ) -> Result<ByteStream, StoreError> {
        let stored = stored_range(meta, &range);
        let path = key.object_path()?;
        let found = if let Some(disk) = &self.disk {
            let opened = disk.open(&path, false, Locking::None).await?;
            if opened.meta.e_tag.as_deref() != Some(&meta.etag) {
                return Err(StoreError::Replaced);
            }
            Found { meta: opened.meta, payload: Payload::Disk(opened.content), range: stored }
        } else {
            get_version(&*self.objects, &path, &meta.etag, stored).await?.into()
        };
        self.stream(meta, found, range)
    }

    /// Finds an object and its digest, and waits for a put in progress if the two do not match.
    pub(in crate::store) async fn stat_settled(
        &self,
        path: &Path,
        head: bool,
    ) -> Result<(Meta, Found), StoreError> {
        let (meta, found, known) = self.stat_one_version(path, head, Locking::None).await?;
        let is_settled = match known {
            DigestLookup::Found(..) => true,
            // In a directory the attribute or the record is there before the file has its name, so a missing one is final.
            DigestLookup::Missing(_) => self.disk.is_some(),
            DigestLookup::Stale(_) => false,
        };
        if is_settled {
            return Ok((meta?, found));
        }
        // The object or its record may be in the middle of a replacement. That has ended once this has the lock of the
        // key and, for other processes over the same directory, the lock of the directory.
        let _key_lock = self.key_lock(path).await;
        if let DigestLookup::Missing(_) = known
            && let DigestLookup::Missing(_) = self.digest(&found.meta, &Attributes::new()).await?
        {
            return Ok((meta?, found));
        }
        let (meta, found, _) = self.stat_one_version(path, head, Locking::Directory).await?;
        Ok((meta?, found))
    }

    /// Repeats until object and digest are of one version. For a caller that holds the lock of the key, if `locking`
    /// names a lock.
    pub(in crate::store) async fn stat_one_version(
        &self,
        path: &Path,
        head: bool,
        locking: Locking,
    ) -> Result<Stat, StoreError> {
        for _ in 0..REPLACED_RETRIES {
            match self.stat_with(path, head, locking).await {
                Err(StoreError::Replaced) | Ok((Err(StoreError::Replaced), ..)) => {}
                version => return version,
            }
        }
        self.stat_with(path, head, locking).await
    }

    /// Finds an object for a caller that holds the lock of its key. The lock of the directory excludes other
    /// processes.
    pub(in crate::store) async fn stat_once(
        &self,
        path: &Path,
        head: bool,
    ) -> Result<Stat, StoreError> {
        self.stat_with(path, head, Locking::Directory).await
    }

    async fn stat_with(
        &self,
        path: &Path,
        head: bool,
        locking: Locking,
    ) -> Result<Stat, StoreError> {
        let (found, known) = if let Some(disk) = &self.disk {
            let opened = disk.open(path, !head, locking).await?;
            let size = opened.meta.size;
            let etag = opened.meta.e_tag.as_deref().unwrap_or_default();
            let record = opened.record.map(|record| record.known(etag, size, None)).transpose()?;
            let payload = Payload::Disk(opened.content);
            let found = Found { meta: opened.meta, payload, range: 0..size };
            (found, record.unwrap_or(DigestLookup::Missing(None)))
        } else {
            let options = GetOptions::new().with_head(head);
            let found = match self.objects.get_opts(path, options).await {
                Err(object_store::Error::NotFound { .. }) if head => {
                    return Err(self.absent_at_head());
                }
                found => found?,
            };
            let known = self.digest(&found.meta, &found.attributes).await?;
            (found.into(), known)
        };
        let meta = self.meta_of(&found.meta, &known).await;
        Ok((meta, found, known))
    }

    /// The error of a HEAD that finds nothing. Its answer has no document, so a missing bucket looks like a missing object:
    /// the last probe has noticed it.
    fn absent_at_head(&self) -> StoreError {
        let results = self.probe_results();
        match results.error.filter(|_| results.ended_at == Some(Ability::List)) {
            Some(error) => backend_error(error),
            None => StoreError::NotFound,
        }
    }

    async fn meta_of(&self, found: &ObjectMeta, known: &DigestLookup) -> Result<Meta, StoreError> {
        let mut recorded = None;
        if let DigestLookup::Stale(another) = known
            && self.disk.is_some()
        {
            // Only the datastore writes to its directory, so other bytes than the recorded ones are never served.
            recorded = another.sha256.filter(|_| another.same_size);
            if recorded.is_none() {
                return Err(StoreError::Corrupt(found.location.clone()));
            }
        }
        let sha256 = if let DigestLookup::Found(sha256, _) = known { Some(*sha256) } else { None };
        let (format, size) = self.stored_format(found, known).await?;
        let etag = found.e_tag.clone().unwrap_or_default();
        Ok(Meta { size, stored: found.size, format, etag, sha256, recorded })
    }

    /// The metadata of an object, for a caller that holds the lock of its key. Processes over the same bucket have no
    /// common lock and may still replace it.
    pub(in crate::store) async fn stat_now(&self, path: &Path) -> Result<Meta, StoreError> {
        let (meta, ..) = self.stat_one_version(path, true, Locking::Directory).await?;
        meta
    }

    /// Computes the digest of an object that has none recorded, and returns it with the metadata of the version that was
    /// read.
    pub(in crate::store) async fn computed(
        &self,
        path: &Path,
    ) -> Result<(Meta, Sha256), StoreError> {
        let (meta, found, _) = self.stat_one_version(path, false, Locking::Directory).await?;
        let meta = Meta { sha256: None, recorded: None, ..meta? };
        let mut hasher = Hasher::default();
        let mut bytes = self.stream(&meta, found, 0..meta.size)?;
        while let Some(piece) = bytes.try_next().await? {
            hasher.update(&piece);
        }
        Ok((meta, hasher.finish()))
    }

    /// Streams the plain bytes of `part` from the stored bytes in `found`. A complete object is verified.
    pub(in crate::store) fn stream(
        &self,
        meta: &Meta,
        found: Found,
        part: Range<u64>,
    ) -> Result<ByteStream, StoreError> {
        let path = found.meta.location;
        let whole = part == (0..meta.size);
        let bytes = match found.payload {
            Payload::Disk(Content::Bytes(bytes)) => stream::iter([Ok(bytes)]).boxed(),
            Payload::Disk(Content::File(file)) => {
                let disk =
                    self.disk.clone().ok_or_else(|| backend_error("a file without a directory"))?;
                let version = OpenFile { disk, file };
                Source { version, memory: self.memory.clone() }.bytes(found.range)
            }
            Payload::Stream(bytes) => {
                let (objects, etag) = (Arc::clone(&self.objects), meta.etag.clone());
                let (path, pool) = (path.clone(), self.pool.clone());
                let version = InBucket { objects, path, etag, pool };
                Source { version, memory: self.memory.clone() }.bytes(found.range, bytes)
            }
        };
        let bytes = match meta.format {
            StoredFormat::Plain => bytes,
            StoredFormat::Cbc(..) => self.decrypted(bytes, &path, &part)?,
        };
        Ok(match meta.sha256.or(meta.recorded) {
            Some(sha256) if whole => {
                let heal =
                    (meta.sha256.is_none()).then(|| self.clone().heal(path.clone(), meta.clone()));
                verified(bytes, sha256, path, heal.map(FutureExt::boxed))
            }
            _ => bytes,
        })
    }

    /// Records a digest again after the bytes were found to match the outdated record.
    async fn heal(self, path: Path, meta: Meta) {
        let Some(sha256) = meta.recorded else { return };
        let healed = self.record(&path, Some(meta.etag), meta.stored, sha256, meta.format).await;
        match healed {
            Ok(true) => {
                tracing::info!(%path, "the bytes match the recorded digest, record renewed");
            }
            Ok(false) | Err(StoreError::NotFound) => {}
            Err(error) => {
                let error: BoxError = error.into();
                tracing::warn!(%path, error, "the bytes match the recorded digest, but the record cannot be renewed");
            }
        }
    }
}

/// Whether the bytes of an object are verified before the first one is returned.
fn is_verified_first(meta: &Meta) -> bool {
    meta.size <= SMALL as u64 && meta.is_verified()
}

/// Reads everything into memory.
async fn read_ahead(mut bytes: ByteStream) -> Result<ByteStream, StoreError> {
    let mut pieces = Vec::new();
    while let Some(piece) = bytes.try_next().await? {
        pieces.push(Ok(piece));
    }
    Ok(stream::iter(pieces).boxed())
}

/// The range of stored bytes that contains a part.
fn stored_range(meta: &Meta, part: &Range<u64>) -> Range<u64> {
    match meta.format {
        StoredFormat::Plain => part.clone(),
        StoredFormat::Cbc(..) => cipher_range(part),
    }
}

pub(in crate::store) type Stat = (Result<Meta, StoreError>, Found, DigestLookup);

impl From<GetResult> for Found {
    fn from(found: GetResult) -> Self {
        let GetResult { meta, range, payload, .. } = found;
        let payload = match payload {
            GetResultPayload::File(file, _) => {
                Payload::Disk(Content::File(Arc::new(JobFile::new(file))))
            }
            GetResultPayload::Stream(bytes) => Payload::Stream(bytes),
        };
        Self { meta, payload, range }
    }
}

/// Returns each piece once the next one has arrived, and the last one once the digest matches and `heal` has ended.
fn verified(
    bytes: ByteStream,
    sha256: Sha256,
    path: Path,
    heal: Option<BoxFuture<'static, ()>>,
) -> ByteStream {
    let state = (bytes, Hasher::default(), None::<Bytes>, heal);
    let checked = stream::try_unfold(Some(state), move |state| {
        let path = path.clone();
        async move {
            let Some((mut bytes, mut hasher, mut held, heal)) = state else { return Ok(None) };
            loop {
                if let Some(piece) = bytes.try_next().await? {
                    // An empty piece does not release the one held back.
                    if piece.is_empty() {
                        continue;
                    }
                    hasher.update(&piece);
                    if let Some(ready) = held.replace(piece) {
                        return Ok(Some((ready, Some((bytes, hasher, held, heal)))));
                    }
                } else if hasher.finish() == sha256 {
                    if let Some(heal) = heal {
                        heal.await;
                    }
                    return Ok(held.map(|last| (last, None)));
                } else {
                    return Err(StoreError::Corrupt(path));
                }
            }
        }
    });
    checked.boxed()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(pieces: &[&'static str]) -> ByteStream {
        let pieces = pieces.iter().map(|piece| Ok(Bytes::from(*piece))).collect::<Vec<_>>();
        stream::iter(pieces).boxed()
    }

    #[tokio::test]
    async fn intact_bytes_are_streamed_unchanged() {
        for pieces in [&["a", "b", "c"][..], &["abc"], &[]] {
            let all = pieces.concat();
            let path = Path::default();
            let checked = verified(bytes(pieces), Sha256::of(all.as_bytes()), path, None);
            assert_eq!(checked.try_collect::<Vec<_>>().await.unwrap().concat(), all.as_bytes());
        }
    }

    #[tokio::test]
    async fn the_last_piece_of_changed_bytes_is_withheld() {
        for pieces in [&["a", "b", "c"][..], &["a", "", "b", "c", "", ""]] {
            let mut checked = verified(bytes(pieces), Sha256::of(b"abC"), Path::default(), None);
            assert_eq!(checked.try_next().await.unwrap().unwrap(), "a");
            assert_eq!(checked.try_next().await.unwrap().unwrap(), "b");
            assert!(matches!(checked.try_next().await, Err(StoreError::Corrupt(_))));
        }
    }
}
