//! The keyrings that the user names.

use std::path::{Path, PathBuf};

use fs_err as fs;

use crate::release::error::ReleaseError;
use crate::release::verify::signature::Keys;
use crate::source::regular;

/// Reads the user's keyrings: one that is missing or has no key is an error, even if it is not needed.
pub(in crate::release) fn check(paths: &[PathBuf]) -> Result<(), ReleaseError> {
    paths.iter().try_for_each(|path| read(path).map(drop))
}

pub(in crate::release) fn read(path: &Path) -> Result<Keys, ReleaseError> {
    let path_of = path.to_owned();
    let bytes = regular::check_named(path).and_then(|()| fs::read(path));
    let bytes = bytes.map_err(|source| ReleaseError::NoKeyring { path: path_of, source })?;
    Keys::parse(&bytes).map_err(|source| ReleaseError::Keyring { path: path.to_owned(), source })
}
