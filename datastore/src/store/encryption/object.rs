//! Objects that are encrypted at rest: in which format one is stored, and its plain bytes.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use datastore_api::{File, PlanFormat};
use futures::{StreamExt as _, TryStreamExt as _};
use object_store::ObjectMeta;
use object_store::path::Path;

use crate::kind::Kind;
use crate::store::backend::directory::disk::Locking;
use crate::store::digest_record::{DigestLookup, get_version};
use crate::store::encryption::EncryptionKey;
use crate::store::encryption::cipher::{
    BLOCK, Decryptor, Encryptor, TAIL, may_be_encrypted, plain_size,
};
use crate::store::encryption::content::{
    HEAD, Interpretation, Signature, interpret, is_known_content, looks_encrypted,
};
use crate::store::encryption::{AtRest, EncryptionSettings, StoredFormat};
use crate::store::error::{StoreError, backend_error};
use crate::store::handle::{Inner, Store};
use crate::store::key::Key;
use crate::store::object::ByteStream;

impl Store {
    /// The same store with these settings of encryption.
    #[must_use]
    pub fn at_rest(self, at_rest: &AtRest) -> Self {
        let encryption = EncryptionSettings { key: at_rest.key(), encrypts: at_rest.encrypts };
        Self(Arc::new(Inner { encryption, ..Arc::unwrap_or_clone(self.0) }))
    }

    /// The format of a new object, and what encrypts it; `None` if it is stored in plain. A state is encrypted whenever there
    /// is a key, and so is a document of a layer.
    pub(in crate::store) fn encryptor(
        &self,
        kind: Kind,
    ) -> Result<(StoredFormat, Option<Encryptor>), StoreError> {
        match &self.encryption {
            EncryptionSettings { encrypts, key: Some(key) }
                if *encrypts || kind.is_always_encrypted() =>
            {
                let encryptor = Encryptor::new(key).map_err(backend_error)?;
                Ok((StoredFormat::Cbc(None, Some(key.id())), Some(encryptor)))
            }
            EncryptionSettings { encrypts: true, key: None } => {
                Err(backend_error("there is no key to encrypt with"))
            }
            EncryptionSettings { .. } => Ok((StoredFormat::Plain, None)),
        }
    }

    /// The stored format of an object without a record. An object is never taken for plain if another key may have
    /// encrypted it: a kind with a signature needs that signature, any other kind must not look random if a key is
    /// set.
    pub(in crate::store) async fn stored_format(
        &self,
        meta: &ObjectMeta,
        known: &DigestLookup,
    ) -> Result<(StoredFormat, u64), StoreError> {
        let marked = match known {
            DigestLookup::Found(_, format) => Some(*format),
            DigestLookup::Missing(format) => *format,
            // In a directory, a record without a format describes a plain object.
            DigestLookup::Stale(another) => {
                another.format.or_else(|| self.disk.is_some().then_some(StoredFormat::Plain))
            }
        };
        let wrong_key = || self.wrong_key(&meta.location);
        if let Some(StoredFormat::Cbc(_, Some(id))) = marked
            && self.encryption.key.as_ref().is_none_or(|key| key.id() != id)
        {
            return Err(wrong_key());
        }
        match (marked, &self.encryption.key) {
            // It is a copy of the recorded version if it has the same padding.
            (Some(format @ StoredFormat::Cbc(Some(size), _)), Some(key))
                if matches!(known, DigestLookup::Stale(_)) =>
            {
                let tail = self.bytes_of(meta, meta.size.saturating_sub(TAIL as u64)..meta.size);
                let ends_so = plain_size(key, meta.size, &tail.await?) == Some(size);
                match self.disk {
                    _ if ends_so => Ok((format, size)),
                    Some(_) => Err(StoreError::Corrupt(meta.location.clone())),
                    None => self.detect_format(meta, Some(key)).await,
                }
            }
            (Some(format @ StoredFormat::Cbc(Some(size), _)), _) => Ok((format, size)),
            (Some(StoredFormat::Plain), _) => Ok((StoredFormat::Plain, meta.size)),
            (Some(format @ StoredFormat::Cbc(None, _)), key) => {
                let key = key.as_ref().ok_or_else(wrong_key)?;
                let tail = self.bytes_of(meta, meta.size.saturating_sub(TAIL as u64)..meta.size);
                let size = plain_size(key, meta.size, &tail.await?).ok_or_else(wrong_key)?;
                Ok((format.with_size(size), size))
            }
            (None, key) if may_be_encrypted(meta.size) => {
                self.detect_format(meta, key.as_ref()).await
            }
            (None, _) => Ok((StoredFormat::Plain, meta.size)),
        }
    }

    /// The stored format of an object that only its content describes. It is never taken for plain if another key may
    /// have encrypted it: one of a kind with an unmistakable head, if its head is another; one of any other kind, if a
    /// key is set and its head looks random.
    async fn detect_format(
        &self,
        meta: &ObjectMeta,
        key: Option<&EncryptionKey>,
    ) -> Result<(StoredFormat, u64), StoreError> {
        let signature = signature(&meta.location);
        let decrypted = match key {
            Some(key) => {
                let tail = self.bytes_of(meta, meta.size - TAIL as u64..meta.size).await?;
                plain_size(key, meta.size, &tail).map(|size| (key, size))
            }
            None => None,
        };
        if key.is_none() && signature.is_none() {
            return Ok((StoredFormat::Plain, meta.size));
        }
        let head = self.bytes_of(meta, 0..meta.size.min(HEAD as u64)).await?;
        let Some((key, size)) = decrypted else {
            let is_plain = is_known_content(signature, &head)
                || is_known_content(None, &head)
                || signature.is_none() && !looks_encrypted(&head);
            let unreadable = || StoreError::Unreadable(meta.location.clone());
            return is_plain.then_some((StoredFormat::Plain, meta.size)).ok_or_else(unreadable);
        };
        match interpret(key, signature, &head, meta.size, size) {
            Interpretation::Plain => Ok((StoredFormat::Plain, meta.size)),
            Interpretation::Encrypted => Ok((StoredFormat::Cbc(Some(size), None), size)),
            Interpretation::Ambiguous => Err(StoreError::Ambiguous(meta.location.clone())),
        }
    }

    async fn bytes_of(&self, meta: &ObjectMeta, range: Range<u64>) -> Result<Bytes, StoreError> {
        let etag = meta.e_tag.as_deref().unwrap_or_default();
        if let Some(disk) = &self.disk {
            let opened = disk.open(&meta.location, true, Locking::None).await?;
            if opened.meta.e_tag.as_deref() != Some(etag) {
                return Err(StoreError::Replaced);
            }
            return Ok(disk.part(opened.content, range).await?);
        }
        let found = get_version(&*self.objects, &meta.location, etag, range).await?;
        Ok(found.bytes().await?)
    }

    /// The error for an object that the configured key, if any, cannot decrypt.
    fn wrong_key(&self, path: &Path) -> StoreError {
        match self.encryption.key {
            Some(_) => StoreError::WrongKey(path.clone()),
            None => StoreError::NoKey(path.clone()),
        }
    }

    /// Decrypts the stored blocks of a part.
    pub(in crate::store) fn decrypted(
        &self,
        stored: ByteStream,
        path: &Path,
        part: &Range<u64>,
    ) -> Result<ByteStream, StoreError> {
        let key = self.encryption.key.clone().ok_or_else(|| self.wrong_key(path))?;
        let skip = usize::try_from(part.start % BLOCK as u64).unwrap_or_default();
        let mut decryptor = Decryptor::new(key, skip, part.end - part.start);
        let opened = stored.map_ok(move |piece| decryptor.decrypt(&piece));
        let some = opened.try_filter(|piece| std::future::ready(!piece.is_empty()));
        Ok(some.boxed())
    }
}

/// The signature of the artifact at this path, if its kind has one.
pub(in crate::store) fn signature(path: &Path) -> Option<Signature> {
    match Key::from_path(path.as_ref())? {
        Key::Bundle(_) => Some(Signature::Bundle),
        Key::File(_, _, File::Plan(PlanFormat::Bin)) => Some(Signature::Plan),
        Key::File(_, _, File::Plan(PlanFormat::Json)) => Some(Signature::Json),
        Key::State(..) | Key::Changes(..) | Key::Summary(..) => Some(Signature::Json),
        Key::File(..) | Key::Applied(_) | Key::Document(_) | Key::Approval(..) | Key::Live(..) => {
            None
        }
    }
}

/// The range of stored blocks with these plain bytes, with the block before them.
pub(in crate::store) fn cipher_range(part: &Range<u64>) -> Range<u64> {
    let block = BLOCK as u64;
    let last = part.end.saturating_sub(1).max(part.start);
    part.start / block * block..last / block * block + TAIL as u64
}
