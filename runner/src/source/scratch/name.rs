//! Names of private directories.

use std::ffi::OsStr;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use fs_err as fs;

const PREFIX: &str = "plancha-";
/// The random letters after the prefix.
const RANDOM_LEN: usize = 6;
/// The directory that a run takes if no other has it.
pub(super) const FIRST: &str = "plancha-000000";

/// Creates a directory with the first name, if it is to be tried and no other run has it, else with a random one.
pub(super) fn new_directory(parent: &Path, try_first: bool) -> io::Result<tempfile::TempDir> {
    let mut builder = tempfile::Builder::new();
    builder.permissions(PermissionsExt::from_mode(0o700));
    if try_first {
        // It is created, never taken over: in /tmp another user may have made one.
        match builder.prefix(FIRST).rand_bytes(0).tempdir_in(parent) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            created => return created,
        }
    }
    builder.prefix(PREFIX).rand_bytes(RANDOM_LEN).tempdir_in(parent)
}

/// Gives a directory of an ended run another name, so that a new run gets the first one however long the removal takes.
pub(super) fn rename_first(dir: &Path) -> io::Result<PathBuf> {
    let parent = dir.parent().unwrap_or(dir);
    let new = new_directory(parent, false)?;
    fs::rename(dir, new.path())?;
    Ok(new.keep())
}

/// Whether this is named like the private directory of a run: `plancha-` and random letters.
pub(crate) fn is_scratch(dir: &Path) -> bool {
    let name = dir.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let random = name.strip_prefix(PREFIX).unwrap_or_default();
    random.len() == RANDOM_LEN && random.bytes().all(|byte| byte.is_ascii_alphanumeric())
}

/// Whether it has the first name.
pub(super) fn is_first(dir: &Path) -> bool {
    dir.file_name() == Some(OsStr::new(FIRST))
}
