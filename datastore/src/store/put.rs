//! Writing: an object becomes visible whole, or not at all.

use bytes::{Bytes, BytesMut};
use datastore_api::Sha256;
use datastore_api::digest::Hasher;
use futures::{Stream, TryStreamExt as _};
use object_store::path::Path;
use object_store::{Attributes, MultipartUpload, PutMode, PutMultipartOptions, PutOptions};

use super::record::METADATA;
use super::{BoxError, Key, Store, StoreError, backend};

/// On what terms an object is put.
#[derive(Clone, Copy, Debug, Default)]
pub struct Terms {
    /// The digest that the caller announced.
    pub sha256: Option<Sha256>,
    /// Only if nothing else is there. The same content again is no error.
    pub create: bool,
}

impl Store {
    /// Stores what `body` brings, and returns its digest.
    ///
    /// It runs to its end, or cleans up, even if the caller stops waiting for it.
    pub async fn put(
        &self,
        key: &Key,
        terms: Terms,
        body: impl Stream<Item = Result<Bytes, BoxError>> + Send + Unpin + 'static,
    ) -> Result<Sha256, StoreError> {
        let path = key.path()?;
        let (store, key) = (self.clone(), key.clone());
        let upload = async move {
            if let Key::File(run, attempt, _) = key {
                store.index(&run, attempt).await?;
            }
            store.upload(&path, terms, Incoming { body, hasher: Hasher::default(), size: 0 }).await
        };
        self.uploads.spawn(upload).await.map_err(backend)?
    }

    async fn upload(
        &self,
        path: &Path,
        terms: Terms,
        mut incoming: Incoming<impl Stream<Item = Result<Bytes, BoxError>> + Unpin>,
    ) -> Result<Sha256, StoreError> {
        let mut head = BytesMut::new();
        while let Some(piece) = incoming.next().await? {
            // Copied, since a piece may be a byte in a large buffer that it keeps alive.
            head.extend_from_slice(&piece);
            if head.len() > self.traits.whole {
                let mut parts = self.start_parts(path, terms, head).await?;
                return match parts.receive(incoming, terms).await {
                    Ok(received) => self.commit_parts(path, terms, parts, received).await,
                    Err(error) => {
                        parts.abort().await;
                        Err(error)
                    }
                };
            }
        }
        let received = incoming.finish(terms)?;
        self.commit_whole(path, terms, head.freeze(), received).await
    }

    /// A small object, in one put.
    async fn commit_whole(
        &self,
        path: &Path,
        terms: Terms,
        bytes: Bytes,
        (size, sha256): (u64, Sha256),
    ) -> Result<Sha256, StoreError> {
        let _turn = self.turn(path).await;
        let mode = if terms.create { PutMode::Create } else { PutMode::Overwrite };
        let attributes = self.attributes(Some(sha256));
        let carried = !attributes.is_empty();
        let options = PutOptions { mode, attributes, ..PutOptions::default() };
        let put = match self.objects.put_opts(path, bytes.into(), options).await {
            Err(object_store::Error::AlreadyExists { .. }) => {
                let there = self.content(path).await?;
                return if there == Some(sha256) { Ok(sha256) } else { Err(StoreError::Exists) };
            }
            put => put?,
        };
        if !carried {
            self.record(path, put, size, sha256).await?;
        }
        Ok(sha256)
    }

    async fn start_parts(
        &self,
        path: &Path,
        terms: Terms,
        head: BytesMut,
    ) -> Result<Parts, StoreError> {
        let attributes = self.attributes(terms.sha256);
        let options = PutMultipartOptions { attributes, ..PutMultipartOptions::default() };
        let upload = self.objects.put_multipart_opts(path, options).await?;
        Ok(Parts { upload, size: self.traits.part, filling: head })
    }

    /// A large object, all of whose parts are there.
    async fn commit_parts(
        &self,
        path: &Path,
        terms: Terms,
        mut parts: Parts,
        (size, sha256): (u64, Sha256),
    ) -> Result<Sha256, StoreError> {
        let _turn = self.turn(path).await;
        if terms.create
            && let Some(there) = self.content(path).await?
        {
            parts.abort().await;
            return if there == sha256 { Ok(sha256) } else { Err(StoreError::Exists) };
        }
        let put = parts.upload.complete().await?;
        if self.attributes(terms.sha256).is_empty() {
            self.record(path, put, size, sha256).await?;
        }
        Ok(sha256)
    }

    /// The digest as the object can carry it, if it is known and the backend has a place for it.
    fn attributes(&self, sha256: Option<Sha256>) -> Attributes {
        let carried = sha256.filter(|_| self.traits.metadata);
        carried.map(|sha256| (METADATA, sha256.to_string())).into_iter().collect()
    }
}

/// A body, and what is known of it so far.
struct Incoming<S> {
    body: S,
    hasher: Hasher,
    size: u64,
}

impl<S: Stream<Item = Result<Bytes, BoxError>> + Unpin> Incoming<S> {
    async fn next(&mut self) -> Result<Option<Bytes>, StoreError> {
        let piece = self.body.try_next().await.map_err(StoreError::Upload)?;
        if let Some(piece) = &piece {
            self.hasher.update(piece);
            self.size += piece.len() as u64;
        }
        Ok(piece)
    }

    /// Size and digest, if that is what the caller announced.
    fn finish(self, terms: Terms) -> Result<(u64, Sha256), StoreError> {
        let received = self.hasher.finish();
        match terms.sha256 {
            Some(announced) if announced != received => {
                Err(StoreError::Digest { announced, received })
            }
            _ => Ok((self.size, received)),
        }
    }
}

/// A multipart upload, whose one part in memory is written once it is full, and then filled again:
/// a disk gains nothing by a second.
struct Parts {
    upload: Box<dyn MultipartUpload>,
    size: usize,
    filling: BytesMut,
}

impl Parts {
    async fn receive(
        &mut self,
        mut incoming: Incoming<impl Stream<Item = Result<Bytes, BoxError>> + Unpin>,
        terms: Terms,
    ) -> Result<(u64, Sha256), StoreError> {
        while let Some(piece) = incoming.next().await? {
            self.write(&piece).await?;
        }
        if !self.filling.is_empty() {
            self.send().await?;
        }
        incoming.finish(terms)
    }

    async fn write(&mut self, mut piece: &[u8]) -> Result<(), StoreError> {
        while !piece.is_empty() {
            let room = self.size.saturating_sub(self.filling.len());
            self.filling.reserve(room);
            let (now, later) = piece.split_at(room.min(piece.len()));
            self.filling.extend_from_slice(now);
            piece = later;
            if self.filling.len() >= self.size {
                self.send().await?;
            }
        }
        Ok(())
    }

    async fn send(&mut self) -> Result<(), StoreError> {
        let part = self.filling.split().freeze();
        Ok(self.upload.put_part(part.into()).await?)
    }

    /// What is not removed here is invisible all the same, so that it failed is only worth a line.
    async fn abort(&mut self) {
        if let Err(error) = self.upload.abort().await {
            tracing::warn!(%error, "an upload that broke off could not be removed");
        }
    }
}
