//! Files with a kernel lock, which the holder may remove while others open them.

use std::fs::File;
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::Path;

use fs_err as fs;
use nix::fcntl::OFlag;

/// How often a lock file is created, if other runners remove its directory at once.
const TRIES: usize = 3;

/// Whether the path still leads to this file.
pub(in crate::run) fn is_current(file: &File, path: &Path) -> bool {
    let id = |file: std::fs::Metadata| (file.dev(), file.ino());
    let (ours, current) = (file.metadata().map(id), fs::metadata(path).map(id));
    matches!((ours, current), (Ok(ours), Ok(current)) if ours == current)
}

/// Opens a lock file, which is created with its directory.
pub(in crate::run) fn open(path: &Path) -> io::Result<File> {
    let dir = path.parent().unwrap_or(path);
    let mut tries = 1;
    loop {
        let mut builder = std::fs::DirBuilder::new();
        let created = builder.mode(0o700).recursive(true).create(dir);
        created.map_err(|error| named(dir, &error))?;
        match open_private(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound && tries < TRIES => tries += 1,
            opened => return opened,
        }
    }
}

/// Opens a file of mode 0600 without changing its contents.
fn open_private(path: &Path) -> io::Result<File> {
    use fs_err::os::unix::fs::OpenOptionsExt as _;
    let mut options = fs::OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false).mode(0o600);
    Ok(options.custom_flags(OFlag::O_NOFOLLOW.bits()).open(path)?.into())
}

/// The error with the path of its file.
pub(super) fn named(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}
