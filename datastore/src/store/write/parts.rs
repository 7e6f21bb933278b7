//! A large object on its way: blocks of memory, parts of an upload.

use std::collections::VecDeque;
use std::mem;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use object_store::{MultipartUpload, PutPayload};
use tokio::task::JoinSet;

use crate::store::backend::disk::Disk;
use crate::store::backend::staged::Staged;
use crate::store::{BoxError, KIB, StoreError, backend};
use crate::transport::memory::Memory;

/// Bytes of each block.
const BLOCK: usize = 256 * KIB;

/// Blocks that are kept when nobody has them: as many as a put of one piece takes.
const KEPT: usize = 32;

/// Bytes gathered in blocks, so that more of them never means to copy those that are there.
#[derive(Default)]
pub(in crate::store) struct Blocks {
    full: VecDeque<Bytes>,
    filling: Vec<u8>,
    pool: Pool,
}

/// Blocks to be filled again. A new one costs a page fault for each 4 KiB, which is a fifth of what a put
/// costs at all. Clones share it.
#[derive(Clone, Default)]
pub(in crate::store) struct Pool(Arc<Mutex<Vec<Vec<u8>>>>);

/// A full block, which goes back where it came from.
struct Full {
    bytes: Vec<u8>,
    pool: Pool,
}

/// A multipart upload: some parts on their way, and what the next one will be made of.
pub(in crate::store) struct Parts {
    pub(in crate::store) upload: Upload,
    /// Names this upload in what it makes, so that we know it again.
    pub(in crate::store) id: String,
    /// The tag of what lay there when it began, if that was asked for.
    pub(in crate::store) before: Option<String>,
    size: usize,
    flying: JoinSet<object_store::Result<()>>,
    most: usize,
    blocks: Blocks,
    /// What parts on their way hold, while another is gathered in the memory that the upload has.
    memory: Memory,
}

/// Where parts go.
pub(in crate::store) enum Upload {
    /// An upload of the backend's.
    Cloud(Box<dyn MultipartUpload>),
    /// A file, and how much of it is written.
    File(Disk, Arc<Staged>, u64),
}

impl Pool {
    fn take(&self) -> Vec<u8> {
        let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner).pop();
        kept.unwrap_or_else(|| Vec::with_capacity(BLOCK))
    }

    fn keep(&self, mut block: Vec<u8>) {
        block.clear();
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() < KEPT && block.capacity() == BLOCK {
            kept.push(block);
        }
    }

    /// Gives back to the system what nobody has.
    pub(in crate::store) fn empty(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}

impl AsRef<[u8]> for Full {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Full {
    fn drop(&mut self) {
        self.pool.keep(mem::take(&mut self.bytes));
    }
}

impl Blocks {
    pub(in crate::store) fn new(pool: Pool) -> Self {
        Self { pool, ..Self::default() }
    }

    pub(in crate::store) fn len(&self) -> usize {
        self.full.len() * BLOCK + self.filling.len()
    }

    /// Copies `piece`, which may be a byte in a large buffer that it keeps alive.
    pub(in crate::store) fn extend(&mut self, mut piece: &[u8]) {
        while !piece.is_empty() {
            // Of a small object the only block is as small.
            if self.filling.capacity() == 0 && (piece.len() >= BLOCK || !self.full.is_empty()) {
                self.filling = self.pool.take();
            }
            let (now, later) = piece.split_at(piece.len().min(BLOCK - self.filling.len()));
            self.filling.extend_from_slice(now);
            piece = later;
            if self.filling.len() == BLOCK {
                let (bytes, pool) = (mem::take(&mut self.filling), self.pool.clone());
                self.full.push_back(Bytes::from_owner(Full { bytes, pool }));
            }
        }
    }

    /// The first `size` bytes, which are whole blocks; all that there are if they are fewer.
    fn take(&mut self, size: usize) -> PutPayload {
        let blocks = self.full.drain(..self.full.len().min(size / BLOCK)).collect::<Vec<_>>();
        if blocks.len() < size / BLOCK {
            let rest = self.rest();
            return blocks.into_iter().chain([rest]).collect();
        }
        blocks.into_iter().collect()
    }

    /// What is no full block.
    fn rest(&mut self) -> Bytes {
        let (bytes, pool) = (mem::take(&mut self.filling), self.pool.clone());
        Bytes::from_owner(Full { bytes, pool })
    }

    /// All of it, in pieces none of which is empty.
    pub(in crate::store) fn into_payload(mut self) -> PutPayload {
        let rest = Some(self.rest()).filter(|rest| !rest.is_empty());
        self.full.into_iter().chain(rest).collect()
    }
}

impl Parts {
    /// Of `size` bytes each, but the last; up to `most` of them on their way while another is
    /// gathered, as long as there is memory for them.
    pub(in crate::store) fn new(
        upload: Upload,
        (id, before): (String, Option<String>),
        (size, most): (usize, usize),
        blocks: Blocks,
        memory: Memory,
    ) -> Self {
        Self { upload, id, before, size, flying: JoinSet::new(), most, blocks, memory }
    }

    pub(in crate::store) async fn write(&mut self, piece: &[u8]) -> Result<(), StoreError> {
        self.blocks.extend(piece);
        while self.blocks.len() >= self.size {
            self.send().await?;
        }
        Ok(())
    }

    /// Sends what is left, and waits until all is there.
    pub(in crate::store) async fn flush(&mut self) -> Result<(), StoreError> {
        while self.blocks.len() > 0 {
            self.send().await?;
        }
        self.landed(0).await
    }

    async fn send(&mut self) -> Result<(), StoreError> {
        let part = self.blocks.take(self.size);
        let spare = self.memory.try_take_spare(part.content_length());
        // Without memory of its own it must be there before another is gathered.
        let most = if spare.is_some() { self.most } else { 0 };
        match &mut self.upload {
            Upload::Cloud(upload) => {
                let put = upload.put_part(part);
                self.flying.spawn(async move {
                    let done = put.await;
                    drop(spare);
                    done
                })
            }
            Upload::File(disk, staged, at) => {
                let (disk, staged, start) = (disk.clone(), Arc::clone(staged), *at);
                *at += part.content_length() as u64;
                self.flying.spawn(async move {
                    let done = disk.write(staged, start, part).await;
                    drop(spare);
                    done
                })
            }
        };
        self.landed(most).await
    }

    /// Waits until no more than so many parts are on their way.
    async fn landed(&mut self, most: usize) -> Result<(), StoreError> {
        while self.flying.len() > most {
            match self.flying.join_next().await {
                Some(part) => part.map_err(backend)?.map_err(backend)?,
                None => return Ok(()),
            }
        }
        Ok(())
    }

    /// Removes what was uploaded.
    pub(in crate::store) async fn abort(&mut self) {
        self.flying.shutdown().await;
        match &mut self.upload {
            Upload::Cloud(upload) => abort(&mut **upload).await,
            Upload::File(disk, staged, _) => warn_of(disk.discard(staged).await),
        }
    }
}

/// Removes what was uploaded.
pub(in crate::store) async fn abort(upload: &mut dyn MultipartUpload) {
    warn_of(upload.abort().await);
}

/// What stays is invisible all the same, so that it failed is only worth a line.
fn warn_of(removed: object_store::Result<()>) {
    if let Err(error) = removed {
        let error: BoxError = error.into();
        tracing::warn!(%error, "an upload that broke off could not be removed");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_that_nobody_has_is_filled_again() {
        let pool = Pool::default();
        let kept = || pool.0.lock().unwrap().len();
        let mut blocks = Blocks::new(pool.clone());
        blocks.extend(&vec![0; 3 * BLOCK]);
        let first = blocks.take(2 * BLOCK);
        drop(first.clone());
        assert_eq!(kept(), 0);
        drop(first);
        assert_eq!(kept(), 2);
        blocks.extend(&vec![1; BLOCK]);
        assert_eq!(kept(), 1);
        let rest = Bytes::from(blocks.into_payload());
        assert!(rest[..BLOCK].iter().all(|byte| *byte == 0));
        assert!(rest[BLOCK..].iter().all(|byte| *byte == 1));
        assert_eq!(kept(), 3);
        let mut many = Blocks::new(pool.clone());
        many.extend(&vec![2; (KEPT + 5) * BLOCK]);
        drop(many);
        assert_eq!(kept(), KEPT);
        pool.empty();
        assert_eq!(kept(), 0);
    }

    #[test]
    fn a_small_object_takes_no_block() {
        let pool = Pool::default();
        let mut blocks = Blocks::new(pool.clone());
        blocks.extend(b"small");
        assert_eq!(Bytes::from(blocks.into_payload()), "small");
        assert!(pool.0.lock().unwrap().is_empty());
    }

    #[test]
    fn blocks_give_back_what_they_were_given_whole_blocks_first() {
        for pieces in [&[1][..], &[BLOCK], &[BLOCK - 1, 2], &[3 * BLOCK + 5], &[7; 100]] {
            let all = (0..=250).cycle().take(pieces.iter().sum()).collect::<Vec<u8>>();
            let mut blocks = Blocks::default();
            let mut at = 0;
            for piece in pieces {
                blocks.extend(&all[at..at + piece]);
                at += piece;
            }
            assert_eq!(blocks.len(), all.len());
            let first = blocks.take(2 * BLOCK);
            assert_eq!(first.content_length(), all.len().min(2 * BLOCK));
            let rest = blocks.into_payload();
            assert_eq!([Bytes::from(first), Bytes::from(rest)].concat(), all);
        }
    }
}
