//! The directory of a `file://` storage, which is created only at the start.
//!
//! A directory that vanishes later was removed, renamed or unmounted. A new one in its place would be empty, or on another
//! disk, and the storage would seem to have lost everything. So each job checks that the directory is still the one that
//! was there first, and keeps it open until the job ends.

use std::fs::DirBuilder;
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path as FsPath, PathBuf};
use std::sync::OnceLock;
use std::time::SystemTime;

use crate::store::backend::directory::beneath::{OpenRoot, check_beneath};
use crate::store::backend::directory::dirs::check_directory;

/// The directory of a storage, and which one it was when it was first seen.
#[derive(Debug)]
pub(in crate::store) struct Root {
    path: PathBuf,
    seen: OnceLock<Identity>,
}

/// Device, inode and, where the file system knows it, the time of creation: the inode of a removed directory may be used
/// again.
type Identity = (u64, u64, Option<SystemTime>);

/// The directory of the storage is not there any more.
#[derive(Debug, thiserror::Error)]
pub(in crate::store) enum RootLost {
    /// Nothing has its path.
    #[error(
        "the directory of the storage, {}, is missing: mount or restore it (only the start of `datastore serve` creates it)",
        .0.display()
    )]
    Missing(PathBuf),
    /// Another directory has its path.
    #[error(
        "{} is no longer the directory of the storage: it was unmounted, mounted over or replaced since the start\nhint: \
         mount or restore the former directory, or restart the datastore to use the present one",
        .0.display()
    )]
    Replaced(PathBuf),
}

impl RootLost {
    /// What happened, without the path.
    pub(in crate::store) fn reason(&self) -> &'static str {
        match self {
            Self::Missing(_) => "its directory is missing; the datastore's log has the details",
            Self::Replaced(_) => {
                "another directory is in the place of its directory; the datastore's log has the details"
            }
        }
    }
}

impl Root {
    pub(in crate::store) fn new(path: &FsPath) -> Self {
        Self { path: path.to_owned(), seen: OnceLock::new() }
    }

    pub(in crate::store) fn path(&self) -> &FsPath {
        &self.path
    }

    /// Creates the directory if nothing has its path and it was never seen, accessible to its owner only.
    pub(in crate::store) fn create(&self) -> io::Result<()> {
        match check_directory(&self.path) {
            Err(error) if error.kind() == ErrorKind::NotFound && self.seen.get().is_none() => {
                let created = DirBuilder::new().recursive(true).mode(0o700).create(&self.path);
                created.map_err(|error| {
                    let text = format!("it is missing and cannot be created ({error}): create it, or correct --storage");
                    io::Error::new(error.kind(), text)
                })?;
            }
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        self.open().map(drop)
    }

    /// Opens the directory. Fails with [`RootLost`] if it is missing, or another one than it was.
    pub(in crate::store) fn open(&self) -> io::Result<OpenRoot<'_>> {
        let directory = match OpenRoot::open(&self.path) {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                return Err(io::Error::other(RootLost::Missing(self.path.clone())));
            }
            opened => opened?,
        };
        let meta = directory.metadata()?;
        let now = (meta.dev(), meta.ino(), meta.created().ok());
        if *self.seen.get_or_init(|| now) != now {
            return Err(io::Error::other(RootLost::Replaced(self.path.clone())));
        }
        Ok(directory)
    }

    /// Fails if the directory is lost, or if what it has of artifacts cannot be reached.
    pub(in crate::store) fn check(&self) -> io::Result<()> {
        let root = self.open()?;
        for name in ["layers", "repositories"] {
            check_beneath(&root, name)?;
            let path = self.path.join(name);
            match check_directory(&path) {
                Err(error) if error.kind() != ErrorKind::NotFound => {
                    let text = format!("{} cannot be used: {error}", path.display());
                    return Err(io::Error::new(error.kind(), text));
                }
                _ => {}
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_directory_is_created_once_and_recognised() {
        let place = tempfile::TempDir::new().unwrap();
        let path = place.path().join("a/root");
        let root = Root::new(&path);
        let error = |result: io::Result<OpenRoot>| result.unwrap_err().to_string();
        assert!(error(root.open()).contains("is missing: mount or restore it"));
        root.create().unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o700);
        root.open().unwrap();
        let kept = place.path().join("kept");
        fs::rename(&path, &kept).unwrap();
        assert!(error(root.create().and_then(|()| root.open())).contains("is missing"));
        fs::create_dir(&path).unwrap();
        assert!(error(root.open()).contains("is no longer the directory of the storage"));
        fs::remove_dir(&path).unwrap();
        fs::rename(&kept, &path).unwrap();
        root.open().unwrap();
        // The new one may have the same inode, but not the same time.
        fs::remove_dir(&path).unwrap();
        std::thread::sleep(std::time::Duration::from_millis(20));
        fs::create_dir(&path).unwrap();
        assert!(error(root.open()).contains("is no longer the directory of the storage"));
    }
}
