//! Reading: what is known of an object, and its bytes, verified while they stream.

use std::ops::Range;
use std::os::unix::fs::FileExt as _;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use datastore_api::Sha256;
use datastore_api::digest::Hasher;
use futures::stream::{self, BoxStream};
use futures::{StreamExt as _, TryStreamExt as _};
use object_store::path::Path;
use object_store::{GetOptions, GetResult, GetResultPayload};

use crate::seal::Form;

use super::ranged::Source;
use super::record::{Known, get_version};
use super::sealed::blocks;
use super::{KIB, Key, Store, StoreError, backend};

/// The bytes of an artifact. An error means that what came so far must not be used.
pub type ByteStream = BoxStream<'static, Result<Bytes, StoreError>>;

/// What is known of a stored object before it is read.
#[derive(Clone, Debug)]
pub struct Meta {
    /// Its length in bytes.
    pub size: u64,
    /// The length of what lies there.
    pub(super) stored: u64,
    pub(super) form: Form,
    /// What the backend calls this version of it.
    pub etag: String,
    /// Its digest, unless another program stored it.
    pub sha256: Option<Sha256>,
}

/// Bytes read from a file at once; `object_store` itself reads 8 KiB, at an eighth of the speed.
const PIECE: usize = 256 * KIB;
/// Pieces read ahead while one is sent.
const AHEAD: usize = 2;
/// So often an object that is replaced while it is looked at is looked at again.
const LOOKS: usize = 3;
/// What a read holds at most: what is read ahead, what is held back, and what is being sent.
pub(super) const MEMORY: usize = (AHEAD + 2) * PIECE;

impl Store {
    /// What is known of an object.
    pub async fn stat(&self, key: &Key) -> Result<Meta, StoreError> {
        let (meta, _) = self.look(&key.path()?, true).await?;
        Ok(meta)
    }

    /// Opens an object. Its last bytes come only if all of it has the digest it was stored with.
    pub async fn open_whole(&self, key: &Key) -> Result<(Meta, ByteStream), StoreError> {
        self.open_path(&key.path()?).await
    }

    pub(super) async fn open_path(&self, path: &Path) -> Result<(Meta, ByteStream), StoreError> {
        let (meta, found) = self.look(path, false).await?;
        let bytes = self.stream(&meta, found, 0..meta.size)?;
        Ok((meta, bytes))
    }

    /// Opens a part of the object that `meta` tells of: [`StoreError::Replaced`] if it is another
    /// by now.
    pub async fn open_part(
        &self,
        key: &Key,
        meta: &Meta,
        range: Range<u64>,
    ) -> Result<ByteStream, StoreError> {
        let stored = match meta.form {
            Form::Plain => range.clone(),
            Form::Cbc(..) => blocks(&range),
        };
        let found = get_version(&*self.objects, &key.path()?, &meta.etag, stored).await?;
        self.stream(meta, found, range)
    }

    /// Looks an object up, together with its digest.
    async fn look(&self, path: &Path, head: bool) -> Result<(Meta, GetResult), StoreError> {
        let (meta, found, known) = self.look_still(path, head).await?;
        if meta.sha256.is_some() {
            return Ok((meta, found));
        }
        // Its record may be about to be written: that is over once the turn is ours.
        let _turn = self.turn(path).await;
        if let Known::Nothing(_) = known
            && let Known::Nothing(_) = self.digest(&found.meta, &found.attributes).await?
        {
            return Ok((meta, found));
        }
        let (meta, found, _) = self.look_still(path, head).await?;
        Ok((meta, found))
    }

    /// Looks until it has seen one version, in which the object was not replaced by another.
    async fn look_still(
        &self,
        path: &Path,
        head: bool,
    ) -> Result<(Meta, GetResult, Known), StoreError> {
        for _ in 0..LOOKS {
            match self.look_once(path, head).await {
                Err(StoreError::Replaced) => {}
                looked => return looked,
            }
        }
        self.look_once(path, head).await
    }

    async fn look_once(
        &self,
        path: &Path,
        head: bool,
    ) -> Result<(Meta, GetResult, Known), StoreError> {
        let options = GetOptions::new().with_head(head);
        let found = self.objects.get_opts(path, options).await?;
        let known = self.digest(&found.meta, &found.attributes).await?;
        let sha256 = if let Known::Digest(sha256, _) = known { Some(sha256) } else { None };
        let (form, size) = self.look_at(&found.meta, &known).await?;
        let stored = found.meta.size;
        let etag = found.meta.e_tag.clone().unwrap_or_default();
        Ok((Meta { size, stored, form, etag, sha256 }, found, known))
    }

    /// What is known of an object now, for callers whose turn it is.
    pub(super) async fn look_at_path(&self, path: &Path) -> Result<Meta, StoreError> {
        let (meta, ..) = self.look_once(path, true).await?;
        Ok(meta)
    }

    /// The digest of an object that nobody wrote down.
    pub(super) async fn computed(&self, path: &Path) -> Result<Sha256, StoreError> {
        let (meta, found, _) = self.look_once(path, false).await?;
        let mut hasher = Hasher::default();
        let mut bytes = self.stream(&meta, found, 0..meta.size)?;
        while let Some(piece) = bytes.try_next().await? {
            hasher.update(&piece);
        }
        Ok(hasher.finish())
    }

    /// The `part` that was asked for, which `found` brings as it lies there; all of an object is verified.
    fn stream(
        &self,
        meta: &Meta,
        found: GetResult,
        part: Range<u64>,
    ) -> Result<ByteStream, StoreError> {
        let path = found.meta.location.clone();
        let whole = part == (0..meta.size);
        let bytes = match found.payload {
            GetResultPayload::File(file, _) => pieces(file, found.range),
            GetResultPayload::Stream(bytes) => {
                let (objects, etag) = (Arc::clone(&self.objects), meta.etag.clone());
                let (path, pool) = (path.clone(), self.pool.clone());
                let memory = self.memory.clone();
                Source { objects, path, etag, pool, memory }.bytes(found.range, bytes)
            }
        };
        let bytes = match meta.form {
            Form::Plain => bytes,
            Form::Cbc(..) => self.opened(bytes, &path, &part)?,
        };
        match meta.sha256 {
            Some(sha256) if whole && meta.size == 0 && sha256 != Sha256::of(b"") => {
                Err(StoreError::Corrupt(path))
            }
            Some(sha256) if whole => Ok(verified(bytes, sha256, path)),
            _ => Ok(bytes),
        }
    }
}

fn pieces(file: std::fs::File, range: Range<u64>) -> ByteStream {
    let file = Arc::new(file);
    let Range { start, end } = range;
    stream::iter((start..end).step_by(PIECE))
        .map(move |start| {
            let file = Arc::clone(&file);
            let length = usize::try_from(end - start).map_or(PIECE, |rest| rest.min(PIECE));
            // Made here and not over there: a thread that makes and never frees makes ever more.
            let mut piece = BytesMut::zeroed(length);
            tokio::task::spawn_blocking(move || {
                file.read_exact_at(&mut piece, start)?;
                Ok::<_, std::io::Error>(piece.freeze())
            })
        })
        .buffered(AHEAD)
        .map(|read| read.map_err(backend)?.map_err(backend))
        .boxed()
}

/// Holds each piece back until the next one is there, and the last until the digest agrees.
fn verified(bytes: ByteStream, sha256: Sha256, path: Path) -> ByteStream {
    let state = (bytes, Hasher::default(), None::<Bytes>);
    let checked = stream::try_unfold(Some(state), move |state| {
        let path = path.clone();
        async move {
            let Some((mut bytes, mut hasher, mut held)) = state else { return Ok(None) };
            loop {
                if let Some(piece) = bytes.try_next().await? {
                    // The last one that counts is held back, not an empty one behind it.
                    if piece.is_empty() {
                        continue;
                    }
                    hasher.update(&piece);
                    if let Some(ready) = held.replace(piece) {
                        return Ok(Some((ready, Some((bytes, hasher, held)))));
                    }
                } else if hasher.finish() == sha256 {
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
    async fn verified_bytes_come_back_as_they_are() {
        for pieces in [&["a", "b", "c"][..], &["abc"], &[]] {
            let all = pieces.concat();
            let path = Path::default();
            let checked = verified(bytes(pieces), Sha256::of(all.as_bytes()), path);
            assert_eq!(checked.try_collect::<Vec<_>>().await.unwrap().concat(), all.as_bytes());
        }
    }

    #[tokio::test]
    async fn the_last_piece_of_other_bytes_is_never_seen() {
        for pieces in [&["a", "b", "c"][..], &["a", "", "b", "c", "", ""]] {
            let mut checked = verified(bytes(pieces), Sha256::of(b"abC"), Path::default());
            assert_eq!(checked.try_next().await.unwrap().unwrap(), "a");
            assert_eq!(checked.try_next().await.unwrap().unwrap(), "b");
            assert!(matches!(checked.try_next().await, Err(StoreError::Corrupt(_))));
        }
    }
}
