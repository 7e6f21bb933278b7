//! Files of mirrors that are directories (`file://`).

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::path::Path;

use datastore_api::Sha256;
use datastore_api::digest::Hasher;
use fs_err as fs;

use crate::release::download::body::{check_size, while_doing};
use crate::release::error::ReleaseError;

/// Reads a file, or lists a directory as an HTML page of links.
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
    check_size(url, body.len() as u64, limit)?;
    Ok(body)
}

pub(super) fn copy_local(
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
        check_size(url, size, limit)?;
        hasher.update(&piece[..count]);
        out.write_all(&piece[..count])
            .map_err(|error| while_doing("the archive cannot be written", &error))?;
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
