//! Masks a stream, whatever pieces it comes in. Only what may be the beginning of a secret is held back.

use std::sync::Arc;

use crate::process::redact::patterns::{Found, Patterns};

const MASK: &[u8] = b"***";

/// A stream that is masked.
///
/// Where secrets overlap or follow each other, all of their bytes are masked by one `***`; one for each line, if they
/// contain line breaks.
pub(crate) struct Stream {
    patterns: Arc<Patterns>,
    /// The end of the stream so far, which may be the beginning of a secret.
    held: Vec<u8>,
    /// How many bytes of it are masked already, and perhaps part of a longer secret.
    masked: usize,
    /// Whether the last byte that was written is the end of a mask.
    is_in_mask: bool,
    /// Whether anything was masked.
    pub(super) has_masked: bool,
}

impl Stream {
    pub(super) fn new(patterns: Arc<Patterns>) -> Self {
        Self { patterns, held: Vec::new(), masked: 0, is_in_mask: false, has_masked: false }
    }

    pub(super) fn has_nothing_to_mask(&self) -> bool {
        self.patterns.is_empty()
    }

    /// How many bytes are held back.
    #[cfg(test)]
    pub(super) fn held_len(&self) -> usize {
        self.held.len()
    }

    /// Adds to `out` what is certain after these bytes.
    pub(crate) fn push(&mut self, bytes: &[u8], out: &mut Vec<u8>) {
        if self.patterns.is_empty() {
            out.extend_from_slice(bytes);
        } else if self.held.is_empty() {
            let done = self.mask(bytes, false, out);
            self.held.extend_from_slice(&bytes[done..]);
        } else {
            let mut text = std::mem::take(&mut self.held);
            text.extend_from_slice(bytes);
            let done = self.mask(&text, false, out);
            text.drain(..done);
            self.held = text;
        }
    }

    /// Adds to `out` what was held back.
    pub(crate) fn finish(&mut self, out: &mut Vec<u8>) {
        let text = std::mem::take(&mut self.held);
        self.mask(&text, true, out);
    }

    /// Writes `text`, the end of the stream, as far as it is certain. Returns how far that is.
    fn mask(&mut self, text: &[u8], is_last: bool, out: &mut Vec<u8>) -> usize {
        // Everything before is written, or masked.
        let mut written = self.masked;
        let mut from = 0;
        let patterns = Arc::clone(&self.patterns);
        let done = loop {
            let Some(Found { start, len, is_open }) = patterns.find(text, from, is_last) else {
                let partial = if is_last { 0 } else { patterns.partial_secret_len(&text[from..]) };
                break text.len() - partial;
            };
            if len > 0 {
                self.plain(text.get(written..start).unwrap_or_default(), out);
                let end = written.max(start + len);
                self.cover(&text[written.max(start)..end], out);
                written = end;
            }
            if is_open {
                break start;
            }
            from = start + 1;
        };
        self.plain(text.get(written..done).unwrap_or_default(), out);
        self.masked = written.saturating_sub(done);
        done
    }

    fn plain(&mut self, bytes: &[u8], out: &mut Vec<u8>) {
        out.extend_from_slice(bytes);
        self.is_in_mask &= bytes.is_empty();
    }

    /// Masks bytes. Line breaks stay.
    fn cover(&mut self, bytes: &[u8], out: &mut Vec<u8>) {
        for (i, line) in bytes.split(|byte| *byte == b'\n').enumerate() {
            if i > 0 {
                out.push(b'\n');
                self.is_in_mask = false;
            }
            if !line.is_empty() && !self.is_in_mask {
                out.extend_from_slice(MASK);
                self.is_in_mask = true;
                self.has_masked = true;
            }
        }
    }
}
