//! Files with `import {}` blocks that the runner writes for one plan. The tools read such blocks only beside the code of
//! the root module, which may be the user's own directory: the file is locked while it is needed, and removed after that.
//! One that a killed runner has left has no lock, and the next run removes it.

use std::fs::{File, TryLockError};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use fs_err as fs;

use crate::source::regular;

/// The name of such a file: this, 16 hexadecimal digits, and the suffix.
const PREFIX: &str = "plancha_import_";
const SUFFIX: &str = ".tf";
/// The first line of such a file.
const MARK: &str =
    "# Plancha's runner has written this file for one plan, and removes it after that.\n";

/// Such a file. It is removed when the value is dropped.
#[derive(Debug)]
pub(crate) struct ImportFile {
    path: PathBuf,
    /// Holds the lock.
    file: File,
}

impl ImportFile {
    /// Writes these blocks into a new file in the directory of the root module.
    pub(crate) fn create(dir: &Path, blocks: &str) -> io::Result<Self> {
        use fs_err::os::unix::fs::OpenOptionsExt as _;
        let mut random = [0; 8];
        aws_lc_rs::rand::fill(&mut random).map_err(|_| io::Error::other("no random numbers"))?;
        let name = format!("{PREFIX}{:016x}{SUFFIX}", u64::from_ne_bytes(random));
        let path = dir.join(name);
        let file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path)?;
        let mut file = Self { path, file: file.into() };
        // Without a lock on this file system another run may take it for one that was left.
        match file.file.try_lock() {
            Ok(()) | Err(TryLockError::Error(_)) => {}
            Err(TryLockError::WouldBlock) => return Err(io::Error::other("it is locked")),
        }
        file.file.write_all(MARK.as_bytes())?;
        file.file.write_all(blocks.as_bytes())?;
        Ok(file)
    }

    /// Its name in the directory.
    pub(crate) fn name(&self) -> Option<String> {
        Some(self.path.file_name()?.to_str()?.to_owned())
    }
}

impl Drop for ImportFile {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_file(&self.path) {
            tracing::warn!("{} is not removed: {error}", self.path.display());
        }
    }
}

/// Removes the files that killed runners have left in a directory, if it is there.
pub(crate) fn remove_left(dir: &Path) {
    let Ok(entries) = fs::read_dir(dir) else { return };
    for entry in entries.flatten().filter(|entry| is_name(&entry.file_name().to_string_lossy())) {
        let path = entry.path();
        match remove_if_left(&path) {
            Ok(true) => {
                tracing::info!("removed {}, which a killed run had left", path.display());
            }
            Ok(false) => {}
            Err(error) => tracing::warn!("{} is not removed: {error}", path.display()),
        }
    }
}

fn is_name(name: &str) -> bool {
    let number = name.strip_prefix(PREFIX).and_then(|rest| rest.strip_suffix(SUFFIX));
    number.is_some_and(|hex| hex.len() == 16 && hex.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

/// Removes the file if a runner has written it and none needs it.
fn remove_if_left(path: &Path) -> io::Result<bool> {
    let file = regular::open(path)?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => return Ok(false),
        Err(TryLockError::Error(error)) => return Err(error),
    }
    let mut start = Vec::new();
    (&file).take(MARK.len() as u64).read_to_end(&mut start)?;
    // A killed runner may have written a part of the first line only.
    let is_ours = MARK.as_bytes().starts_with(&start);
    let is_same = fs::metadata(path)?.ino() == file.metadata()?.ino();
    if is_ours && is_same {
        fs::remove_file(path)?;
    }
    Ok(is_ours && is_same)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_is_removed_after_its_use_and_by_the_next_run_after_a_kill() {
        let dir = tempfile::tempdir().unwrap();
        let names = || {
            let names = fs::read_dir(dir.path()).unwrap();
            names.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect::<Vec<_>>()
        };
        let file = ImportFile::create(dir.path(), "import {}\n").unwrap();
        let [name] = &*names() else { panic!() };
        assert!(is_name(name), "{name}");
        let text = fs::read_to_string(dir.path().join(name)).unwrap();
        assert_eq!(text, format!("{MARK}import {{}}\n"));
        remove_left(dir.path());
        assert_eq!(names().len(), 1, "it is in use");
        drop(file);
        assert_eq!(names(), [""; 0]);

        let killed = dir.path().join("plancha_import_0123456789abcdef.tf");
        let partial = dir.path().join("plancha_import_0123456789abcdee.tf");
        fs::write(&killed, &text).unwrap();
        fs::write(&partial, &MARK[..10]).unwrap();
        let users = ["plancha_import_0123456789abcde0.tf", "plancha_import_mine.tf", "main.tf"];
        for name in users {
            fs::write(dir.path().join(name), "# Mine\n").unwrap();
        }
        remove_left(dir.path());
        assert_eq!(names().len(), users.len(), "{:?}", names());
        assert!(!killed.exists() && !partial.exists());
        remove_left(&dir.path().join("missing"));
    }
}
