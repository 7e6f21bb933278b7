//! Reading and writing of archives that ends with an error after a signal.

use std::io::{self, Read, Write};

use crate::process::Signals;

/// An archive is read in pieces of this size: small ones, because each may unpack to 100 MB.
const PIECE: usize = 4 << 10;

/// Ends with an error after a signal.
pub(crate) struct Stoppable<T> {
    inner: T,
    signals: Signals,
}

impl<T> Stoppable<T> {
    pub(crate) fn new(inner: T, signals: Signals) -> Self {
        Self { inner, signals }
    }

    fn check(&self) -> io::Result<()> {
        self.signals.stopped().map_or(Ok(()), |stop| Err(io::Error::other(stop.to_string())))
    }
}

impl<R: Read> Read for Stoppable<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.check()?;
        let length = buffer.len().min(PIECE);
        self.inner.read(&mut buffer[..length])
    }
}

impl<W: Write> Write for Stoppable<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.check()?;
        self.inner.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}
