//! The lock file of a directory that was copied: what init changes in that of the copy is written to it.

use std::io::{self, Write as _};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use fs_err as fs;

use crate::source::path::resolve;
use crate::source::regular::unless_missing;
use crate::tool::file_names::LOCK_FILE;

/// The lock file of the user's module, as it was before init.
#[derive(Debug)]
pub(in crate::run) struct LockFile {
    /// Without links.
    path: PathBuf,
    before: Option<Vec<u8>>,
}

impl LockFile {
    pub(in crate::run) fn read(module: &Path) -> io::Result<Self> {
        let path = resolve(&std::path::absolute(module.join(LOCK_FILE))?)?;
        let before = unless_missing(fs::read(&path))?;
        Ok(Self { path, before })
    }

    /// Writes what init has changed in the copy of the module, unless another process has changed the file since.
    pub(in crate::run) fn follow(&self, copy: &Path) -> io::Result<()> {
        let Some(now) = unless_missing(fs::read(copy.join(LOCK_FILE)))? else { return Ok(()) };
        if self.before.as_ref() == Some(&now) {
            return Ok(());
        }
        let theirs = unless_missing(fs::read(&self.path))?;
        if theirs.as_ref() == Some(&now) {
            return Ok(());
        }
        let shown = self.path.display();
        if theirs != self.before {
            tracing::warn!("{shown} stays as it is: another process has changed it during init");
            return Ok(());
        }
        match self.write(&now) {
            Ok(()) => tracing::info!("init has changed the providers in {shown}: commit that file"),
            Err(error) => tracing::warn!("what init has changed is not in {shown}: {error}"),
        }
        Ok(())
    }

    /// Replaces the file whole or not at all.
    fn write(&self, text: &[u8]) -> io::Result<()> {
        let mode =
            unless_missing(fs::metadata(&self.path))?.map_or(0o644, |of| of.permissions().mode());
        let dir = self.path.parent().unwrap_or(Path::new("."));
        let mut new = tempfile::Builder::new().prefix(".plancha-").tempfile_in(dir)?;
        new.write_all(text)?;
        new.as_file().set_permissions(PermissionsExt::from_mode(mode & 0o777))?;
        new.as_file().sync_all()?;
        new.persist(&self.path).map_err(|error| error.error)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_is_written_unless_the_file_has_changed_as_well() {
        let dir = tempfile::tempdir().unwrap();
        let [module, copy] = ["module", "copy"].map(|name| dir.path().join(name));
        fs::create_dir(&module).unwrap();
        fs::create_dir(&copy).unwrap();
        let file = module.join(LOCK_FILE);
        let lock_file = LockFile::read(&module).unwrap();
        lock_file.follow(&copy).unwrap();
        assert!(!file.exists(), "init has written none");
        fs::write(copy.join(LOCK_FILE), "1").unwrap();
        lock_file.follow(&copy).unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), "1");
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o644);
        let lock_file = LockFile::read(&module).unwrap();
        fs::write(&file, "mine").unwrap();
        fs::write(copy.join(LOCK_FILE), "2").unwrap();
        lock_file.follow(&copy).unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), "mine");
    }
}
