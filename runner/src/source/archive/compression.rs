//! Recognises the compression of an archive by its first bytes, and decompresses it.

use std::io::{self, BufRead, BufReader, Chain, Cursor, Read};

use flate2::bufread::GzDecoder;
use zstd::stream::read::Decoder;

use crate::source::archive::ArchiveError;

/// The first bytes that are read. The mark of a tar header is at 257.
const START: u64 = 512;
/// Archives that cannot be unpacked, by their first bytes.
const OTHERS: [(&[u8], &str); 7] = [
    (b"PK\x03\x04", "a zip archive"),
    (b"PK\x05\x06", "a zip archive"),
    (b"\xfd7zXZ\0", "compressed with xz"),
    (b"BZh", "compressed with bzip2"),
    (b"7z\xbc\xaf\x27\x1c", "a 7z archive"),
    (b"\x04\x22\x4d\x18", "compressed with lz4"),
    (b"!<arch>\n", "an ar archive"),
];

type Start<R> = Chain<Cursor<Vec<u8>>, R>;

/// Decompresses an archive of any program. The window of zstd is at most 2 to the power of `window` bytes.
pub(super) fn any<'a>(
    from: impl Read + 'a,
    window: u32,
) -> Result<Box<dyn Read + 'a>, ArchiveError> {
    let (start, from) = start(from)?;
    if is_zstd(&start) {
        return decoder(from, window);
    }
    if start.starts_with(b"\x1f\x8b") {
        return Ok(Box::new(Gzip { member: Some(GzDecoder::new(BufReader::new(from))) }));
    }
    match OTHERS.iter().find(|(first, _)| start.starts_with(first)) {
        Some((_, other)) => Err(ArchiveError::Unknown(other)),
        None => Ok(Box::new(from)),
    }
}

/// Decompresses an archive that must be compressed with zstd.
pub(super) fn zstd<'a>(
    from: impl Read + 'a,
    window: u32,
) -> Result<Box<dyn Read + 'a>, ArchiveError> {
    let (start, from) = start(from)?;
    if is_zstd(&start) {
        decoder(from, window)
    } else {
        Err(ArchiveError::Unknown("not compressed with zstd"))
    }
}

fn decoder<'a>(from: impl Read + 'a, window: u32) -> Result<Box<dyn Read + 'a>, ArchiveError> {
    let mut decoder = Decoder::new(from)?;
    decoder.window_log_max(window)?;
    Ok(Box::new(decoder))
}

/// Reads the first bytes, which are then read again.
pub(super) fn start<R: Read>(mut from: R) -> Result<(Vec<u8>, Start<R>), ArchiveError> {
    let mut start = Vec::new();
    from.by_ref().take(START).read_to_end(&mut start)?;
    if start.is_empty() {
        return Err(ArchiveError::Empty);
    }
    Ok((start.clone(), Cursor::new(start).chain(from)))
}

/// Whether this is a frame of zstd, or one that is skipped, as parallel programs write it first.
fn is_zstd(start: &[u8]) -> bool {
    start.starts_with(b"\x28\xb5\x2f\xfd")
        || matches!(start, [first, 0x2a, 0x4d, 0x18, ..] if first & 0xf0 == 0x50)
}

/// Whether this is the header of a tar entry, or the end of a tar without entries.
pub(super) fn is_tar(start: &[u8]) -> bool {
    let Some(header) = start.first_chunk::<512>() else { return false };
    let header = tar::Header::from_byte_slice(header);
    let sum = |bytes: &[u8]| bytes.iter().map(|byte| u32::from(*byte)).sum::<u32>();
    let bytes = header.as_bytes();
    let sum = sum(&bytes[..148]) + 8 * u32::from(b' ') + sum(&bytes[156..]);
    bytes.iter().all(|byte| *byte == 0) || header.cksum().is_ok_and(|stored| stored == sum)
}

/// Whether this is the label of a volume, which GNU tar writes before the first entry. Its size may be missing, which the
/// library refuses.
pub(super) fn is_label(start: &[u8]) -> bool {
    is_tar(start) && start.get(156) == Some(&b'V')
}

/// Decompresses gzip: its members one after another, then zero bytes at most.
struct Gzip<R> {
    member: Option<GzDecoder<R>>,
}

impl<R: BufRead> Read for Gzip<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while let Some(member) = &mut self.member {
            let read = member.read(buffer)?;
            if read > 0 || buffer.is_empty() {
                return Ok(read);
            }
            let Some(mut rest) = self.member.take().map(GzDecoder::into_inner) else { break };
            match rest.fill_buf()?.first() {
                None => {}
                Some(0) => only_zeros(rest)?,
                Some(_) => self.member = Some(GzDecoder::new(rest)),
            }
        }
        Ok(0)
    }
}

fn only_zeros(mut rest: impl BufRead) -> io::Result<()> {
    loop {
        let bytes = rest.fill_buf()?;
        if bytes.iter().any(|byte| *byte != 0) {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "other data follows its end"));
        }
        let len = bytes.len();
        if len == 0 {
            return Ok(());
        }
        rest.consume(len);
    }
}
