//! Unpacks the binary from a release's archive.
//!
//! The archive was verified against the signed digests, but a mirror's own key may have signed anything. So only this one
//! entry is unpacked, never to a path from the archive, and no declared size is trusted.

use std::fs::File;
use std::io::{self, Read as _, Seek as _, Write as _};

use datastore_api::Sha256;
use datastore_api::digest::Hasher;
use zip::ZipArchive;
use zip::result::ZipError;

/// Larger than any tool.
const MAX_BINARY: u64 = 1 << 30;
/// Releases have one to five.
const MAX_ENTRIES: usize = 1000;
const S_IFMT: u32 = 0o170_000;
const S_IFREG: u32 = 0o100_000;

/// Why nothing was unpacked.
#[derive(Debug, thiserror::Error)]
pub(in crate::release) enum UnpackError {
    #[error("{0}")]
    Refused(String),
    #[error(transparent)]
    Write(io::Error),
}

/// Copies a binary that is in no archive into `out` and returns its digest.
pub(in crate::release) fn copy(bare: &File, out: &mut File) -> Result<Sha256, UnpackError> {
    let (mut bare, mut hasher, mut piece) = (bare, Hasher::default(), vec![0; 1 << 18]);
    bare.rewind().map_err(UnpackError::Write)?;
    let mut written = 0;
    loop {
        let count = bare.read(&mut piece).map_err(UnpackError::Write)?;
        if count == 0 {
            break;
        }
        written += count as u64;
        hasher.update(&piece[..count]);
        out.write_all(&piece[..count]).map_err(UnpackError::Write)?;
    }
    if written == 0 { Err(refused("it is empty")) } else { Ok(hasher.finish()) }
}

fn refused(reason: impl Into<String>) -> UnpackError {
    UnpackError::Refused(reason.into())
}

/// Writes the entry called `program` into `out` and returns its digest.
pub(in crate::release) fn unpack(
    archive: &File,
    program: &str,
    out: &mut File,
) -> Result<Sha256, UnpackError> {
    let mut archive = ZipArchive::new(archive).map_err(|error| refused(not_a_zip(&error)))?;
    if archive.len() > MAX_ENTRIES || archive.has_duplicate_names() {
        return Err(refused("it has too many entries, or two of the same name"));
    }
    let index = find(&mut archive, program)?;
    let mut entry = archive.by_index(index).map_err(|error| refused(not_a_zip(&error)))?;
    let size = entry.size();
    if size > MAX_BINARY {
        return Err(refused(format!("{program} declares a size of {size} bytes")));
    }
    let mut hasher = Hasher::default();
    let mut piece = vec![0; 1 << 18];
    let mut written = 0;
    loop {
        let count = match entry.read(&mut piece) {
            Ok(0) => break,
            Ok(count) => count,
            Err(error) => return Err(refused(format!("{program} is damaged: {error}"))),
        };
        written += count as u64;
        if written > size {
            return Err(refused(format!(
                "{program} is larger than the {size} bytes that it declares"
            )));
        }
        hasher.update(&piece[..count]);
        out.write_all(&piece[..count]).map_err(|error| {
            UnpackError::Write(io::Error::new(error.kind(), format!("writing {program}: {error}")))
        })?;
    }
    if written != size || size == 0 {
        return Err(refused(format!("{program} has {written} of {size} bytes")));
    }
    Ok(hasher.finish())
}

/// The only entry of that name: a plain file, not in a directory.
fn find(archive: &mut ZipArchive<&File>, program: &str) -> Result<usize, UnpackError> {
    let mut found = None;
    for index in 0..archive.len() {
        let entry = archive.by_index_raw(index).map_err(|error| refused(not_a_zip(&error)))?;
        let name = String::from_utf8_lossy(entry.name_raw()).into_owned();
        if name.rsplit(['/', '\\']).next() != Some(program) {
            continue;
        }
        if name != program {
            return Err(refused(format!("it contains `{}`, a path", name.escape_debug())));
        }
        let kind = entry.unix_mode().map_or(0, |mode| mode & S_IFMT);
        if !matches!(kind, 0 | S_IFREG) {
            return Err(refused(format!("its {program} is a link or a special file")));
        }
        found = Some(index);
    }
    found.ok_or_else(|| refused(format!("it contains no {program}")))
}

fn not_a_zip(error: &ZipError) -> String {
    format!("it cannot be read as a zip archive: {error}")
}
