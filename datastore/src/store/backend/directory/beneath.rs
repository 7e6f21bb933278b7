//! Keeps a `file://` storage inside its directory: no symbolic link leads out of it.
//!
//! Links that stay inside are followed. The kernel decides it while it opens a path (`openat2`). Where it cannot, as before
//! Linux 5.6 or in a sandbox that forbids the call, the resolved path is compared instead. Reads open nothing else. Before
//! a write the path is checked; somebody who replaces a directory by a link at that moment may still win.

use std::fs::{self, File, Metadata};
use std::io::{self, ErrorKind};
use std::path::{Path as FsPath, PathBuf};

use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, openat, openat2};
use rustix::io::Errno;

use crate::store::backend::directory::files::{MAX_TRIES, open_file, regular};

/// A symbolic link leads out of the directory of the storage.
#[derive(Debug, thiserror::Error)]
#[error(
    "a symbolic link leads from {} out of the directory of the storage: remove it, or mount the other directory there",
    .0.display()
)]
pub(in crate::store) struct Outside(PathBuf);

/// The directory of a storage, open until a job ends. The next job opens it again: something may be mounted there.
#[derive(Debug)]
pub(in crate::store) struct OpenRoot<'a> {
    path: &'a FsPath,
    directory: File,
}

impl<'a> OpenRoot<'a> {
    pub(in crate::store) fn open(path: &'a FsPath) -> io::Result<Self> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = openat(CWD, path, flags, Mode::empty())?.into();
        Ok(Self { path, directory })
    }

    pub(in crate::store) fn path(&self) -> &'a FsPath {
        self.path
    }

    pub(in crate::store) fn metadata(&self) -> io::Result<Metadata> {
        self.directory.metadata()
    }
}

/// Opens a regular file for reading by its path below `root`, as [`open_file`] does.
pub(in crate::store) fn open_beneath(root: &OpenRoot, path: &str) -> io::Result<(File, Metadata)> {
    match resolve(root, path.as_ref(), READ) {
        Ok(file) => regular(file),
        Err(Errno::XDEV) => open_absolute(root, &root.path.join(path)),
        // An old kernel, a pipe without a reader, or an error that is the same for all.
        Err(Errno::NOSYS | Errno::PERM | Errno::NXIO | Errno::AGAIN) => {
            let file_path = root.path.join(path);
            check_resolved(root.path, &file_path)?;
            open_file(&file_path, File::options().read(true))
        }
        Err(error) => Err(error.into()),
    }
}

const READ: OFlags = OFlags::RDONLY.union(OFlags::NONBLOCK);

/// Opens a file whose path leads over a link with an absolute target, or out of `root`. The kernel refuses both. The resolved
/// path has no links, and the kernel decides again.
fn open_absolute(root: &OpenRoot, file_path: &FsPath) -> io::Result<(File, Metadata)> {
    check_resolved(root.path, file_path)?;
    let resolved = fs::canonicalize(file_path)?;
    let beneath = resolved.strip_prefix(fs::canonicalize(root.path)?);
    let beneath = beneath.map_err(|_| outside(file_path.to_owned()))?;
    match resolve(root, beneath, READ) {
        Ok(file) => regular(file),
        Err(Errno::XDEV) => Err(outside(file_path.to_owned())),
        Err(error) => Err(error.into()),
    }
}

/// Fails with [`Outside`] if a link leads from this path out of `root`. Of a path that does not exist, what exists
/// decides.
pub(in crate::store) fn check_beneath(root: &OpenRoot, path: &str) -> io::Result<()> {
    let mut there = path;
    while !there.is_empty() {
        match resolve(root, there.as_ref(), OFlags::PATH) {
            // The kernel follows no link with an absolute target, or it cannot decide.
            Err(Errno::XDEV | Errno::NOSYS | Errno::PERM | Errno::AGAIN) => {
                return check_resolved(root.path, &root.path.join(there));
            }
            Err(Errno::NOENT | Errno::NOTDIR) => {
                there = there.rsplit_once('/').map_or("", |(parent, _)| parent);
            }
            // The work itself meets any other error.
            Ok(_) | Err(_) => break,
        }
    }
    Ok(())
}

/// Whether a link leads from this place, which exists, out of `root`.
pub(in crate::store) fn leads_out(root: &FsPath, path: &str) -> bool {
    OpenRoot::open(root).is_ok_and(|root| check_beneath(&root, path).is_err())
}

fn resolve(root: &OpenRoot, path: &FsPath, flags: OFlags) -> Result<File, Errno> {
    let (flags, no_mode) = (flags | OFlags::CLOEXEC, Mode::empty());
    let mut tries = 0;
    loop {
        match openat2(&root.directory, path, flags, no_mode, ResolveFlags::BENEATH) {
            // Something was renamed meanwhile.
            Err(Errno::AGAIN | Errno::INTR) if tries < MAX_TRIES => tries += 1,
            opened => return opened.map(File::from),
        }
    }
}

/// The same by comparison of the resolved paths.
fn check_resolved(root: &FsPath, file_path: &FsPath) -> io::Result<()> {
    let mut there = file_path;
    loop {
        match fs::canonicalize(there) {
            Ok(resolved) if resolved.starts_with(fs::canonicalize(root)?) => return Ok(()),
            Ok(_) => return Err(outside(there.to_owned())),
            Err(error)
                if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) =>
            {
                if fs::symlink_metadata(there).is_ok_and(|meta| meta.is_symlink()) {
                    // Its target is missing, and where that would be is not known.
                    return Err(outside(there.to_owned()));
                }
                match there.parent() {
                    Some(parent) if there != root => there = parent,
                    _ => return Ok(()),
                }
            }
            Err(error) => return Err(error),
        }
    }
}

fn outside(path: PathBuf) -> io::Error {
    io::Error::other(Outside(path))
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn only_links_that_stay_inside_are_followed() {
        let place = tempfile::TempDir::new().unwrap();
        let (root, other) = (place.path().join("root"), place.path().join("other"));
        for directory in [root.join("a/b"), other.clone()] {
            fs::create_dir_all(&directory).unwrap();
            fs::write(directory.join("file"), "content").unwrap();
        }
        symlink("b", root.join("a/inside")).unwrap();
        symlink("inside/file", root.join("a/linked")).unwrap();
        symlink(root.join("a/b"), root.join("a/absolute-inside")).unwrap();
        symlink(root.join("a/b/file"), root.join("a/absolute-file")).unwrap();
        symlink(root.join("a/absolute"), root.join("a/twice")).unwrap();
        symlink("../../other", root.join("a/relative")).unwrap();
        symlink(&other, root.join("a/absolute")).unwrap();
        symlink(other.join("file"), root.join("a/file")).unwrap();
        symlink(other.join("missing"), root.join("a/dangling")).unwrap();
        let resolved = |path: &str| check_resolved(&root, &root.join(path));
        let opened = OpenRoot::open(&root).unwrap();
        for inside in
            ["a/b/file", "a/inside/file", "a/linked", "a/absolute-inside/file", "a/absolute-file"]
        {
            let (mut file, _) = open_beneath(&opened, inside).unwrap();
            let mut content = String::new();
            file.read_to_string(&mut content).unwrap();
            assert_eq!(content, "content");
            resolved(inside).unwrap();
        }
        for inside in [
            "a/b/file",
            "a/inside/file/x",
            "a/inside/new/x",
            "a/absolute-inside/new/x",
            "new/x",
            "",
        ] {
            check_beneath(&opened, inside).unwrap();
            resolved(inside).unwrap();
        }
        for outside in
            ["a/relative/file", "a/absolute/file", "a/twice/file", "a/file", "a/dangling"]
        {
            let error = open_beneath(&opened, outside).unwrap_err().to_string();
            assert!(error.contains("out of the directory of the storage"), "{outside}: {error}");
        }
        for outside in ["a/relative/new/x", "a/absolute", "a/file", "a/dangling", "a/dangling/x"] {
            let error = check_beneath(&opened, outside).unwrap_err().to_string();
            assert!(error.contains("out of the directory of the storage"), "{outside}: {error}");
            resolved(outside).unwrap_err();
        }
        let missing = open_beneath(&opened, "a/b/missing").unwrap_err();
        assert_eq!(missing.kind(), ErrorKind::NotFound);
        // The root itself may be a link.
        symlink("root", place.path().join("link")).unwrap();
        let link = place.path().join("link");
        open_beneath(&OpenRoot::open(&link).unwrap(), "a/b/file").unwrap();
    }
}
