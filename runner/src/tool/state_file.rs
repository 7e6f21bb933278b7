//! The file that configures the backend `http` for a root module whose state is in the datastore. It has no address and
//! no secret: those are in variables of the tool.
//!
//! It is no override file: beside a `backend` or `cloud` block of the user's the tool then refuses it, whatever the runner
//! has read of the code.

use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};

use fs_err as fs;

use crate::source::regular::{self, unless_missing};

/// The name of the file.
pub(crate) const NAME: &str = "plancha_state.tf";

const TEXT: &str = "\
# Plancha's runner has written this file for one run (--state datastore), and removes it after that.
terraform {
  backend \"http\" {}
}
";

/// The file, beside the code of a root module. It is removed when the value is dropped.
#[derive(Debug)]
pub(crate) struct StateFile(PathBuf);

impl StateFile {
    /// Writes it. A file of the user's with this name stays, and is an error.
    pub(crate) fn create(dir: &Path) -> io::Result<Self> {
        remove_left(dir)?;
        let path = dir.join(NAME);
        let mut file = fs::OpenOptions::new().write(true).create_new(true).open(&path)?;
        let created = Self(path);
        file.write_all(TEXT.as_bytes())?;
        Ok(created)
    }
}

impl Drop for StateFile {
    fn drop(&mut self) {
        if let Err(error) = unless_missing(fs::remove_file(&self.0)) {
            tracing::warn!("{} is not removed: {error}", self.0.display());
        }
    }
}

/// Removes the file if a killed run has left it in this directory.
pub(crate) fn remove_left(dir: &Path) -> io::Result<()> {
    let path = dir.join(NAME);
    if is_own(&path) {
        tracing::debug!("removing {}, which a killed run has left", path.display());
        unless_missing(fs::remove_file(path))?;
    }
    Ok(())
}

/// Whether this is the file that the runner writes, or the beginning of it: no code of the user's.
pub(crate) fn is_own(path: &Path) -> bool {
    if path.file_name().is_none_or(|name| name != NAME) {
        return false;
    }
    let mut text = Vec::new();
    let read = regular::open(path).and_then(|file| file.take(1 << 10).read_to_end(&mut text));
    read.is_ok() && TEXT.as_bytes().starts_with(&text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_a_killed_run_has_left_is_replaced_and_one_of_the_user_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(NAME);
        fs::write(&path, &TEXT[..20]).unwrap();
        let file = StateFile::create(dir.path()).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), TEXT);
        assert!(is_own(&path) && !is_own(&dir.path().join("main.tf")));
        drop(file);
        assert!(!path.exists());
        fs::write(&path, format!("{TEXT}# mine\n")).unwrap();
        assert!(!is_own(&path));
        StateFile::create(dir.path()).unwrap_err();
        assert!(fs::read_to_string(&path).unwrap().ends_with("# mine\n"));
    }
}
