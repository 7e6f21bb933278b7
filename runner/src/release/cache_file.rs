//! Small files in the user's cache: private, and replaced whole or not at all.

use std::io::Write as _;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::Path;

use fs_err as fs;
use fs_err::os::unix::fs::OpenOptionsExt as _;

/// Creates a directory, and its parents, that only the user may access.
pub(in crate::release) fn private_dir(dir: &Path) -> std::io::Result<()> {
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(dir)
}

pub(in crate::release) fn private_file() -> fs::OpenOptions {
    let mut options = fs::OpenOptions::new();
    options.create(true).truncate(false).write(true).mode(0o600);
    options
}

/// Replaces a small file atomically. Its directory must exist.
pub(in crate::release) fn replace(path: &Path, contents: &[u8]) -> std::io::Result<()> {
    let dir = path.parent().unwrap_or(Path::new("."));
    let mut file = tempfile::Builder::new().prefix(".").tempfile_in(dir)?;
    file.write_all(contents)?;
    file.persist(path).map_err(|error| error.error)?;
    Ok(())
}
