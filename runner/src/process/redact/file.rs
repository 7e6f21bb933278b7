//! Masks a file that people read.

use std::io::{self, Read as _, Write as _};
use std::path::Path;

use fs_err as fs;
use fs_err::os::unix::fs::OpenOptionsExt as _;

use crate::process::redact::stream::Stream;
use crate::process::url_secrets::Masking;

/// Masks the secrets of a stream, and those of URLs, in a file. It is replaced as a whole, and gets the mode 0600.
pub(super) fn mask(path: &Path, mut secrets: Stream) -> io::Result<()> {
    let beside = path.with_extension("masked");
    let mut from = fs::File::open(path)?;
    let mut options = fs::OpenOptions::new();
    let to = options.write(true).create(true).truncate(true).mode(0o600).open(&beside)?;
    let mut to = Masking::new(io::BufWriter::new(to));
    let (mut buffer, mut masked) = (vec![0; 64 << 10], Vec::new());
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
