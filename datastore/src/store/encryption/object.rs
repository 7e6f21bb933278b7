//! Objects that are encrypted at rest: how one lies there, and its plain bytes.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use datastore_api::{File, PlanFormat};
use futures::{StreamExt as _, TryStreamExt as _};
use object_store::ObjectMeta;
use object_store::path::Path;

use crate::store::backend::disk::Locking;
use crate::store::digest_record::{Known, get_version};
use crate::store::encryption::{
    AtRest, BLOCK, Form, HEAD, Key, Opening, Reading, Sealing, Signature, TAIL, is_recognised,
    looks_random, may_be_sealed, plain_size, reading,
};
use crate::store::read::get::ByteStream;
use crate::store::{Inner, Store, StoreError, backend};

/// What a store needs for it.
#[derive(Clone, Debug, Default)]
pub(in crate::store) struct Seal {
    key: Option<Key>,
    encrypts: bool,
}

impl Store {
    /// The same store, which keeps and reads objects as `at_rest` says.
    #[must_use]
    pub fn at_rest(self, at_rest: &AtRest) -> Self {
        let seal = Seal { key: at_rest.key(), encrypts: at_rest.encrypts };
        Self(Arc::new(Inner { seal, ..Arc::unwrap_or_clone(self.0) }))
    }

    /// How an object that is put is to lie there, and what encrypts it; nothing if it stays as it comes.
    pub(in crate::store) fn sealing(&self) -> Result<(Form, Option<Sealing>), StoreError> {
        match &self.seal {
            Seal { encrypts: true, key: Some(key) } => {
                let sealing = Sealing::new(key).map_err(backend)?;
                Ok((Form::Cbc(None, Some(key.id())), Some(sealing)))
            }
            Seal { encrypts: true, key: None } => Err(backend("there is no key to encrypt with")),
            Seal { encrypts: false, .. } => Ok((Form::Plain, None)),
        }
    }

    /// How an object lies there, and the bytes that were put.
    pub(in crate::store) async fn look_at(
        &self,
        meta: &ObjectMeta,
        known: &Known,
    ) -> Result<(Form, u64), StoreError> {
        let marked = match known {
            Known::Digest(_, form) => Some(*form),
            Known::Nothing(form) => *form,
            // In a directory a record without a form is that of a plain object.
            Known::Another(another) => {
                another.form.or_else(|| self.disk.is_some().then_some(Form::Plain))
            }
        };
        let sealed = || StoreError::Sealed(meta.location.clone());
        if let Some(Form::Cbc(_, Some(id))) = marked
            && self.seal.key.as_ref().is_none_or(|key| key.id() != id)
        {
            return Err(sealed());
        }
        match (marked, &self.seal.key) {
            // A copy of what the record tells of, if it ends as that did.
            (Some(form @ Form::Cbc(Some(size), _)), Some(key))
                if matches!(known, Known::Another(_)) =>
            {
                let tail = self.bytes_of(meta, meta.size.saturating_sub(TAIL as u64)..meta.size);
                let ends_so = plain_size(key, meta.size, &tail.await?) == Some(size);
                match self.disk {
                    _ if ends_so => Ok((form, size)),
                    Some(_) => Err(StoreError::Corrupt(meta.location.clone())),
                    None => self.unmarked(meta, Some(key)).await,
                }
            }
            (Some(form @ Form::Cbc(Some(size), _)), _) => Ok((form, size)),
            (Some(Form::Plain), _) => Ok((Form::Plain, meta.size)),
            (Some(form @ Form::Cbc(None, _)), key) => {
                let key = key.as_ref().ok_or_else(sealed)?;
                let tail = self.bytes_of(meta, meta.size.saturating_sub(TAIL as u64)..meta.size);
                let size = plain_size(key, meta.size, &tail.await?).ok_or_else(sealed)?;
                Ok((form.of_size(size), size))
            }
            (None, key) if may_be_sealed(meta.size) => self.unmarked(meta, key.as_ref()).await,
            (None, _) => Ok((Form::Plain, meta.size)),
        }
    }

    /// The stored format of an object that only its content describes. It is never taken for plain if another key may
    /// have encrypted it: one of a kind with an unmistakable head, if its head is another; one of any other kind, if a
    /// key is set and its head looks random.
    async fn unmarked(
        &self,
        meta: &ObjectMeta,
        key: Option<&Key>,
    ) -> Result<(Form, u64), StoreError> {
        let signature = signature(&meta.location);
        let decrypted = match key {
            Some(key) => {
                let tail = self.bytes_of(meta, meta.size - TAIL as u64..meta.size).await?;
                plain_size(key, meta.size, &tail).map(|size| (key, size))
            }
            None => None,
        };
        if key.is_none() && signature.is_none() {
            return Ok((Form::Plain, meta.size));
        }
        let head = self.bytes_of(meta, 0..meta.size.min(HEAD as u64)).await?;
        let Some((key, size)) = decrypted else {
            let is_plain = is_recognised(signature, &head)
                || is_recognised(None, &head)
                || signature.is_none() && !looks_random(&head);
            let unreadable = || StoreError::Unreadable(meta.location.clone());
            return is_plain.then_some((Form::Plain, meta.size)).ok_or_else(unreadable);
        };
        match reading(key, signature, &head, meta.size, size) {
            Reading::Plain => Ok((Form::Plain, meta.size)),
            Reading::Encrypted => Ok((Form::Cbc(Some(size), None), size)),
            Reading::Ambiguous => Err(StoreError::Ambiguous(meta.location.clone())),
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

    /// The plain bytes, of which `stored` brings the blocks from the one with the first of them on.
    pub(in crate::store) fn opened(
        &self,
        stored: ByteStream,
        path: &Path,
        part: &Range<u64>,
    ) -> Result<ByteStream, StoreError> {
        let key = self.seal.key.clone().ok_or_else(|| StoreError::Sealed(path.clone()))?;
        let skip = usize::try_from(part.start % BLOCK as u64).unwrap_or_default();
        let mut opening = Opening::new(key, skip, part.end - part.start);
        let opened = stored.map_ok(move |piece| opening.open(&piece));
        let some = opened.try_filter(|piece| std::future::ready(!piece.is_empty()));
        Ok(some.boxed())
    }
}

/// What the artifact at this path must begin with, if that is known.
pub(in crate::store) fn signature(path: &Path) -> Option<Signature> {
    match crate::store::Key::at(path.as_ref())? {
        crate::store::Key::Bundle(_) => Some(Signature::Bundle),
        crate::store::Key::File(_, _, File::Plan(PlanFormat::Bin)) => Some(Signature::Plan),
        crate::store::Key::File(_, _, File::Plan(PlanFormat::Json)) => Some(Signature::Json),
        crate::store::Key::File(..) | crate::store::Key::Applied(_) => None,
    }
}

/// Where the blocks lie that have these plain bytes, and the block before them.
pub(in crate::store) fn blocks(part: &Range<u64>) -> Range<u64> {
    let block = BLOCK as u64;
    let last = part.end.saturating_sub(1).max(part.start);
    part.start / block * block..last / block * block + TAIL as u64
}
