//! The pieces of a stream as a reader on another thread.

use std::io::{self, Read};

use bytes::{Buf as _, Bytes};
use tokio::sync::mpsc;

/// The pieces of a stream as a reader, which blocks until the next one comes. It ends where nothing more can come.
pub(in crate::store) struct Pieces {
    receiver: mpsc::Receiver<Bytes>,
    piece: Bytes,
}

impl Pieces {
    pub(in crate::store) fn new(receiver: mpsc::Receiver<Bytes>) -> Self {
        Self { receiver, piece: Bytes::new() }
    }
}

impl Read for Pieces {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.piece.is_empty() {
            let Some(piece) = self.receiver.blocking_recv() else { return Ok(0) };
            self.piece = piece;
        }
        let length = buffer.len().min(self.piece.len());
        self.piece.copy_to_slice(&mut buffer[..length]);
        Ok(length)
    }
}
