//! Masks files that people read.

use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use fs_err as fs;
use fs_err::os::unix::fs::OpenOptionsExt as _;
use nix::unistd::truncate;

use crate::process::redact::stream::Stream;
use crate::process::url_secrets::Masking;

const PIECE: usize = 64 << 10;

/// Masks the secrets of a stream, and those of URLs, in a file. It is replaced as a whole, and gets the mode 0600.
pub(super) fn mask(path: &Path, mut secrets: Stream) -> io::Result<()> {
    let beside = path.with_extension("masked");
    let mut from = fs::File::open(path)?;
    let mut options = fs::OpenOptions::new();
    let to = options.write(true).create(true).truncate(true).mode(0o600).open(&beside)?;
    let mut to = Masking::new(io::BufWriter::new(to));
    let (mut buffer, mut masked) = (vec![0; PIECE], Vec::new());
    loop {
        let count = from.read(&mut buffer)?;
        if count == 0 {
            break;
        }
        secrets.push(&buffer[..count], &mut masked);
        to.write_all(&masked)?;
        masked.clear();
    }
    secrets.finish(&mut masked);
    to.write_all(&masked)?;
    to.finish()?.flush()?;
    fs::rename(&beside, path)
}

/// Masks secrets in a file that has been masked before with fewer of them. It is changed in place, which needs no disk
/// space; if that fails, the file ends where it is not masked, or is empty or removed.
pub(super) fn mask_in_place(path: &Path, stream: impl Fn() -> Stream) -> io::Result<()> {
    let open = || fs::OpenOptions::new().read(true).write(true).open(path);
    let looked = open().and_then(|file| Ok((has_secrets(file.file(), stream())?, file)));
    let file = match looked {
        Ok((true, file)) => file,
        Ok((false, _)) => return Ok(()),
        Err(error) => {
            // No file is opened for that: there may be too many already.
            if truncate(path, 0).is_err() {
                fs::remove_file(path)?;
            }
            return Err(error);
        }
    };
    let file = file.file();
    let mut pieces = Pieces { file, stream: stream(), read: 0, masked: Vec::new() };
    let mut written = 0;
    let mut write_on = || {
        loop {
            let is_more = pieces.next()?;
            // Nothing is overwritten that is not read.
            let room = if is_more { pieces.read - written } else { u64::MAX };
            let count = pieces.masked.len().min(usize::try_from(room).unwrap_or(usize::MAX));
            file.write_all_at(&pieces.masked[..count], written)?;
            written += count as u64;
            pieces.masked.drain(..count);
            if !is_more {
                return Ok(());
            }
        }
    };
    let result: io::Result<()> = write_on();
    file.set_len(written)?;
    result
}

/// Whether something in a file is to be masked.
fn has_secrets(file: &std::fs::File, stream: Stream) -> io::Result<bool> {
    let mut pieces = Pieces { file, stream, read: 0, masked: Vec::new() };
    while pieces.next()? {
        pieces.masked.clear();
    }
    Ok(pieces.stream.has_masked)
}

/// A file that is read and masked piece by piece.
struct Pieces<'a> {
    file: &'a std::fs::File,
    stream: Stream,
    /// How much of it is read.
    read: u64,
    /// What is masked, and not used yet.
    masked: Vec<u8>,
}

impl Pieces<'_> {
    /// Masks the next piece. Returns false at the end.
    fn next(&mut self) -> io::Result<bool> {
        let mut buffer = vec![0; PIECE];
        let count = self.file.read_at(&mut buffer, self.read)?;
        self.read += count as u64;
        if count == 0 {
            self.stream.finish(&mut self.masked);
        } else {
            self.stream.push(&buffer[..count], &mut self.masked);
        }
        Ok(count > 0)
    }
}
