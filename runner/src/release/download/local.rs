//! Mirrors that are directories: files by `file://` addresses.

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::path::Path;

use datastore_api::Sha256;
use datastore_api::digest::Hasher;
use fs_err as fs;

use crate::release::download::body::{told, within};
use crate::release::error::ReleaseError;

/// A file, or the names in a directory, each on a line and with a slash behind directories.
pub(super) fn read_local(url: &str, path: &Path, limit: u64) -> Result<Vec<u8>, ReleaseError> {
    let read = || {
        let mut body = Vec::new();
        if path.is_dir() {
            for entry in fs::read_dir(path)? {
                let name = entry?.file_name();
                body.extend_from_slice(format!("<a href=\"{}/\">\n", name.display()).as_bytes());
            }
            return Ok(body);
        }
        fs::File::open(path)?.take(limit + 1).read_to_end(&mut body)?;
        Ok(body)
    };
    let body = read().map_err(|error| missing(url, error))?;
    within(url, body.len() as u64, limit)?;
    Ok(body)
}

pub(super) fn copied(
    url: &str,
    path: &Path,
    limit: u64,
    mut out: &File,
) -> Result<Sha256, ReleaseError> {
    let mut file = fs::File::open(path).map_err(|error| missing(url, error))?;
    let (mut hasher, mut size, mut piece) = (Hasher::default(), 0, vec![0; 1 << 18]);
    loop {
        let count = file.read(&mut piece)?;
        if count == 0 {
            return Ok(hasher.finish());
        }
        size += count as u64;
        within(url, size, limit)?;
        hasher.update(&piece[..count]);
        out.write_all(&piece[..count]).map_err(|error| told("writing the archive", &error))?;
    }
}

fn missing(url: &str, error: io::Error) -> ReleaseError {
    match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => {
            ReleaseError::NotFound(url.to_owned())
        }
        _ => error.into(),
    }
}
