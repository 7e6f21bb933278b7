//! The newest bytes of a followed log, kept once for all its followers, in memory that is free.

use std::collections::VecDeque;

use bytes::Bytes;

use crate::transport::memory::{Lease, Memory};

/// The most bytes that are kept.
const MAX: usize = 8 << 20;
/// The most bytes that a follower gets at once: its own copy.
pub(super) const CHUNK: usize = 64 << 10;

/// The newest bytes of a log.
#[derive(Default)]
pub(super) struct Window {
    pieces: VecDeque<Kept>,
}

struct Kept {
    start: u64,
    bytes: Bytes,
    _lease: Lease,
}

impl Window {
    /// Adds the bytes that follow. They are left out if no memory is free, and older ones as well: there is no gap.
    pub(super) fn add(&mut self, start: u64, bytes: &Bytes, memory: &Memory) {
        let all = |window: &Self| window.pieces.iter().map(|kept| kept.bytes.len()).sum::<usize>();
        while !self.pieces.is_empty() && all(self) + bytes.len() > MAX {
            self.pieces.pop_front();
        }
        let mut lease = memory.try_take_spare(bytes.len());
        while lease.is_none() && self.pieces.pop_front().is_some() {
            lease = memory.try_take_spare(bytes.len());
        }
        match lease {
            Some(lease) => {
                // A copy: its own lease counts it, and the bytes of an append keep that of their request.
                let bytes = Bytes::copy_from_slice(bytes);
                self.pieces.push_back(Kept { start, bytes, _lease: lease });
            }
            None => self.pieces.clear(),
        }
    }

    /// Whether the byte at an offset is kept.
    pub(super) fn has(&self, at: u64) -> bool {
        self.pieces.iter().any(|kept| {
            at.checked_sub(kept.start).is_some_and(|skip| skip < kept.bytes.len() as u64)
        })
    }

    /// A copy of the bytes at an offset, at most [`CHUNK`]; `None` if they are not kept.
    pub(super) fn chunk(&self, at: u64) -> Option<Bytes> {
        self.pieces.iter().find_map(|Kept { start, bytes, .. }| {
            let skip = usize::try_from(at.checked_sub(*start)?).ok()?;
            let rest = bytes.get(skip..).filter(|rest| !rest.is_empty())?;
            Some(Bytes::copy_from_slice(&rest[..rest.len().min(CHUNK)]))
        })
    }

    /// Gives the memory back.
    pub(super) fn clear(&mut self) {
        self.pieces.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_bytes_are_kept_without_a_gap() {
        let memory = Memory::new(64 << 20);
        let mut window = Window::default();
        let piece = Bytes::from(vec![7; 3 << 20]);
        for number in 0..4 {
            window.add(number * piece.len() as u64, &piece, &memory);
        }
        assert_eq!(window.chunk(0), None);
        let third = 2 * piece.len() as u64;
        assert_eq!(window.chunk(third - 1), None);
        assert_eq!(window.chunk(third).unwrap().len(), CHUNK);
        assert_eq!(window.chunk(2 * third - 5).unwrap().len(), 5);
        assert_eq!(window.chunk(2 * third), None);
        window.clear();
        assert_eq!(memory.usage().taken, 0);
        // A full memory is not taken from others.
        let small = Memory::new(1 << 20);
        window.add(0, &Bytes::from_static(b"a"), &memory);
        window.add(1, &piece, &small);
        assert!(window.chunk(0).is_none() && window.chunk(1).is_none());
    }
}
