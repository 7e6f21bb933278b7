//! Output without its escape codes and secrets, as it is stored.

use std::io;

use anstream::adapter::StripBytes;

use crate::process::redact::Stream;
use crate::process::url_secrets::Masking;

/// Whether a byte moves the cursor, or rings the bell.
fn is_control(byte: u8) -> bool {
    byte < b' ' && !b"\0\t\n\r".contains(&byte) || byte == 0x7f
}

/// The byte with which escape codes begin.
const ESCAPE: u8 = 0x1b;

/// Writes output without its escape codes, which may be within a secret, and without secrets. NUL bytes stay: they may be
/// part of a message.
pub(super) struct Plain<W> {
    codes: StripBytes,
    /// Whether the line so far has an escape code, which may not have ended.
    has_code: bool,
    secrets: Stream,
    masked: Vec<u8>,
    to: Masking<W>,
}

impl<W: io::Write> Plain<W> {
    pub(super) fn new(to: W, secrets: Stream) -> Self {
        let (codes, masked, to) = (StripBytes::new(), Vec::new(), Masking::new(to));
        Self { codes, has_code: false, secrets, masked, to }
    }

    pub(super) fn write_all(&mut self, piece: &[u8]) -> io::Result<()> {
        if !self.has_code && memchr::memchr(ESCAPE, piece).is_none() {
            for text in piece.split(|byte| is_control(*byte)) {
                self.secrets.push(text, &mut self.masked);
            }
        } else {
            for line in piece.split_inclusive(|byte| *byte == b'\n') {
                self.strip_line(line);
            }
        }
        self.to.write_all(&self.masked)?;
        self.masked.clear();
        Ok(())
    }

    /// A code that has not ended ends with its line: what follows is not part of it.
    fn strip_line(&mut self, line: &[u8]) {
        self.has_code |= memchr::memchr(ESCAPE, line).is_some();
        match line.strip_suffix(b"\n") {
            Some(text) => {
                self.strip(text);
                self.secrets.push(b"\n", &mut self.masked);
                (self.codes, self.has_code) = (StripBytes::new(), false);
            }
            None => self.strip(line),
        }
    }

    fn strip(&mut self, piece: &[u8]) {
        for (i, part) in piece.split(|byte| *byte == 0).enumerate() {
            if i > 0 {
                self.secrets.push(b"\0", &mut self.masked);
            }
            for text in self.codes.strip_next(part) {
                self.secrets.push(text, &mut self.masked);
            }
        }
    }

    pub(super) fn finish(mut self) -> io::Result<()> {
        self.secrets.finish(&mut self.masked);
        self.to.write_all(&self.masked)?;
        self.to.finish().map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::redact::{Redaction, values};

    #[test]
    fn escape_codes_within_urls_do_not_hide_their_secrets() {
        let text = b"a\0b https://\x1b[1m\x1b[31mme\x1b[0m:hunter2@h/x?token\x1b[K=\x1b[31mhunter2\x1b[0m\n";
        for size in [1, 2, 5, text.len()] {
            let mut written = Vec::new();
            let mut log = Plain::new(&mut written, Redaction::default().stream());
            for piece in text.chunks(size) {
                log.write_all(piece).unwrap();
            }
            log.finish().unwrap();
            assert_eq!(written, b"a\0b https://***@h/x?token=***\n", "in pieces of {size}");
        }
    }

    #[test]
    fn escape_codes_within_secrets_do_not_hide_them() {
        let redaction = Redaction::default();
        redaction.add([values::secret("TOKEN", b"hunter2-hunter2")]);
        let text = b"a\0b hunter2\x1b[1m\x1b[31m-hunt\x1b[0mer2, https://me:hunter2-hunter2@h/x\n";
        for size in [1, 2, 5, text.len()] {
            let mut written = Vec::new();
            let mut log = Plain::new(&mut written, redaction.stream());
            for piece in text.chunks(size) {
                log.write_all(piece).unwrap();
            }
            log.finish().unwrap();
            assert_eq!(written, b"a\0b ***, https://***@h/x\n", "in pieces of {size}");
        }
    }

    /// A title that a provisioner sets, for example.
    #[test]
    fn escape_code_without_an_end_hides_only_the_rest_of_its_line() {
        for code in
            ["\x1b]0;title", "\x1bPq", "\x1b[", "\x1b", "\x1bX", "\x1b^x", "\u{9d}0;x", "\u{90}q"]
        {
            let text = format!("before{code}\nafter\n\nlast");
            for size in [1, 3, text.len()] {
                let mut written = Vec::new();
                let mut log = Plain::new(&mut written, Redaction::default().stream());
                for piece in text.as_bytes().chunks(size) {
                    log.write_all(piece).unwrap();
                }
                log.finish().unwrap();
                let written = String::from_utf8_lossy(&written);
                assert!(written.starts_with("before"), "{code:?}: {written}");
                assert!(written.ends_with("\nafter\n\nlast"), "{code:?} {size}: {written}");
            }
        }
        let mut written = Vec::new();
        let mut log = Plain::new(&mut written, Redaction::default().stream());
        log.write_all(b"before\x9d0;title\nafter\x90q\nlast\n").unwrap();
        log.finish().unwrap();
        assert!(written.ends_with(b"\nlast\n"), "{written:?}");
    }

    #[test]
    fn bytes_that_are_not_utf_8_stay() {
        let mut written = Vec::new();
        let mut log = Plain::new(&mut written, Redaction::default().stream());
        log.write_all(b"Stra\xdfe M\xfcller\x07\nA\xff\xfeB\x7f\n").unwrap();
        log.finish().unwrap();
        assert_eq!(written, b"Stra\xdfe M\xfcller\nA\xff\xfeB\n");
    }
}
