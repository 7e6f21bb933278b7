//! The private directory for the values that a layer takes from others. Its path is the same in every run of the layer, because
//! a plan contains it. Runs of one layer at the same time share it if they take the same values, and wait for each other if not.
//!
//! It is removed by the last of them; what killed runs leave is removed by later ones of the same user.

use std::fs::{File, TryLockError};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use fs_err as fs;
use secrecy::{ExposeSecret as _, SecretSlice};

use crate::order::inputs::Inputs;
use crate::run::apply::lock::file::{is_current, open};
use crate::run::inputs::error::InputsError;
use crate::source::regular::unless_missing;

/// The lock of a directory. No variable has this name.
const LOCK: &str = ".lock";
/// Between two attempts to get it.
const PAUSE: Duration = Duration::from_millis(100);

/// A file of the directory: its name, and what it contains.
pub(super) type Contents = (PathBuf, SecretSlice<u8>);

/// The directory, with the files of this run, as long as this value lives.
#[derive(Debug)]
pub(crate) struct HeldDirectory {
    dir: PathBuf,
    /// The directory above it that is not removed.
    top: PathBuf,
    /// Shared with other runs that need the same files.
    lock: File,
}

impl HeldDirectory {
    /// Writes the files. It waits while another run of the layer needs other ones.
    pub(super) async fn create(inputs: &Inputs, files: &[Contents]) -> Result<Self, InputsError> {
        let failed = |error: &io::Error| InputsError::Directory {
            dir: inputs.dir.clone(),
            reason: error.to_string(),
        };
        make_private(inputs).map_err(|error| failed(&error))?;
        sweep(inputs);
        let (dir, top) = (inputs.dir.clone(), top(inputs).to_owned());
        let mut has_waited = false;
        loop {
            match try_create(&inputs.dir, files) {
                Ok(Some(lock)) => return Ok(Self { dir, top, lock }),
                Ok(None) => {}
                Err(error) => return Err(failed(&error)),
            }
            if !std::mem::replace(&mut has_waited, true) {
                tracing::info!(
                    "another run of this layer works with other outputs in {}: waiting for its end",
                    inputs.dir.display()
                );
            }
            tokio::time::sleep(PAUSE).await;
        }
    }
}

impl Drop for HeldDirectory {
    fn drop(&mut self) {
        // Only if no other run shares it.
        match self.lock.try_lock() {
            Ok(()) => {
                if let Err(error) = clear_if_current(&self.dir, &self.lock, &self.top) {
                    tracing::warn!(
                        "outputs of other layers stay in {}: {error}",
                        self.dir.display()
                    );
                }
            }
            Err(TryLockError::WouldBlock) => {}
            Err(TryLockError::Error(error)) => tracing::debug!("{error}"),
        }
    }
}

/// The directory that stays: the one that the user names, or else the one for temporary files.
fn top(inputs: &Inputs) -> &Path {
    let above = inputs.base.parent().filter(|_| !inputs.is_named);
    above.unwrap_or(&inputs.base)
}

/// Creates the directories, which only this user may enter.
fn make_private(inputs: &Inputs) -> io::Result<()> {
    let mut builder = std::fs::DirBuilder::new();
    builder.mode(0o700).recursive(true);
    // A directory that the user names may be a mounted volume. In that for temporary files others may have put a link.
    if !inputs.is_named {
        builder.create(&inputs.base)?;
        check_private(&inputs.base)?;
    }
    builder.create(&inputs.dir)?;
    let own = inputs.dir.parent().unwrap_or(&inputs.dir);
    [own, &inputs.dir].into_iter().try_for_each(check_private)
}

fn check_private(dir: &Path) -> io::Result<()> {
    let found = fs::symlink_metadata(dir)?;
    let is_ours = found.is_dir() && found.uid() == nix::unistd::geteuid().as_raw();
    let of_others = found.mode() & 0o077;
    if is_ours && of_others == 0 {
        return Ok(());
    }
    let reason = format!("{} is not a directory that only this user may enter", dir.display());
    Err(io::Error::new(io::ErrorKind::PermissionDenied, reason))
}

/// The lock, with the files in place. `None`: another run needs other files, or removes these.
fn try_create(dir: &Path, files: &[Contents]) -> io::Result<Option<File>> {
    let path = dir.join(LOCK);
    let lock = open(&path)?;
    let is_alone = match lock.try_lock() {
        Ok(()) => true,
        Err(TryLockError::WouldBlock) => false,
        Err(TryLockError::Error(error)) => return Err(error),
    };
    if is_alone && is_current(&lock, &path) {
        clear(dir)?;
        files.iter().try_for_each(|(name, contents)| write(dir, name, contents))?;
    }
    // The lock of a process is replaced, and another run may have been between the two.
    match lock.try_lock_shared() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => return Ok(None),
        Err(TryLockError::Error(error)) => return Err(error),
    }
    let is_there = is_current(&lock, &path) && has_exactly(dir, files)?;
    Ok(is_there.then_some(lock))
}

fn write(dir: &Path, name: &Path, contents: &SecretSlice<u8>) -> io::Result<()> {
    // It has mode 0600, and appears as a whole.
    let mut file = tempfile::Builder::new().prefix(".partial-").tempfile_in(dir)?;
    file.write_all(contents.expose_secret())?;
    file.persist(dir.join(name))?;
    Ok(())
}

/// Whether the directory has these files and no other ones.
fn has_exactly(dir: &Path, files: &[Contents]) -> io::Result<bool> {
    let mut names = Vec::new();
    for entry in fs::read_dir(dir)? {
        let name = entry?.file_name();
        if name != LOCK {
            names.push(PathBuf::from(name));
        }
    }
    for (name, contents) in files {
        match unless_missing(fs::read(dir.join(name)))? {
            Some(found) if found == contents.expose_secret() => {}
            _ => return Ok(false),
        }
    }
    Ok(names.len() == files.len())
}

/// Removes everything but the lock.
fn clear(dir: &Path) -> io::Result<()> {
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        if entry.file_name() != LOCK {
            unless_missing(fs::remove_file(entry.path()))?;
        }
    }
    Ok(())
}

/// Removes the directory, with those above it that are empty then, but not `top`. `lock` is held alone.
fn clear_if_current(dir: &Path, lock: &File, top: &Path) -> io::Result<()> {
    if !is_current(lock, &dir.join(LOCK)) {
        return Ok(());
    }
    clear(dir)?;
    unless_missing(fs::remove_file(dir.join(LOCK)))?;
    for dir in dir.ancestors().take_while(|dir| *dir != top) {
        // Another run may have created something in it.
        if std::fs::remove_dir(dir).is_err() {
            break;
        }
    }
    Ok(())
}

/// Removes what killed runs of this user have left.
pub(super) fn sweep(inputs: &Inputs) {
    let below = |dir: &Path| {
        let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
        entries.map(|entry| entry.path()).collect::<Vec<_>>()
    };
    for dir in below(&inputs.base).iter().flat_map(|namespace| below(namespace)) {
        let Ok(lock) = fs::File::open(dir.join(LOCK)) else { continue };
        let lock = File::from(lock);
        if lock.try_lock().is_ok()
            && let Err(error) = clear_if_current(&dir, &lock, top(inputs))
        {
            tracing::debug!("{} stays: {error}", dir.display());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn inputs(base: &Path) -> Inputs {
        let dir = base.join("team/helm");
        Inputs { base: base.to_owned(), dir, ..Inputs::default() }
    }

    fn files(text: &str) -> Vec<Contents> {
        vec![("kubeconfig".into(), SecretSlice::from(text.as_bytes().to_vec()))]
    }

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().mode() & 0o777
    }

    #[tokio::test]
    async fn runs_share_the_same_values_and_wait_for_other_ones() {
        let tmp = tempfile::tempdir().unwrap();
        let base = tmp.path().join("inputs");
        let inputs = inputs(&base);
        let file = inputs.dir.join("kubeconfig");
        let first = HeldDirectory::create(&inputs, &files("one")).await.unwrap();
        assert_eq!((mode(&base), mode(&inputs.dir), mode(&file)), (0o700, 0o700, 0o600));
        let second = HeldDirectory::create(&inputs, &files("one")).await.unwrap();
        assert!(try_create(&inputs.dir, &files("two")).unwrap().is_none());
        drop(first);
        assert_eq!(fs::read_to_string(&file).unwrap(), "one");
        let two = files("two");
        let waits = HeldDirectory::create(&inputs, &two);
        let (third, ()) = tokio::join!(waits, async { drop(second) });
        assert_eq!(fs::read_to_string(&file).unwrap(), "two");
        drop(third);
        assert!(!base.exists());
    }

    #[tokio::test]
    async fn nothing_is_created_through_a_link_of_others() {
        let tmp = tempfile::tempdir().unwrap();
        let (base, elsewhere) = (tmp.path().join("inputs"), tmp.path().join("elsewhere"));
        fs::create_dir(&elsewhere).unwrap();
        std::os::unix::fs::symlink(&elsewhere, &base).unwrap();
        let created = HeldDirectory::create(&inputs(&base), &files("one")).await;
        assert!(created.is_err());
        assert_eq!(fs::read_dir(&elsewhere).unwrap().count(), 0);
    }

    #[tokio::test]
    async fn what_a_killed_run_has_left_is_removed_by_the_next_one_of_any_layer() {
        let tmp = tempfile::tempdir().unwrap();
        let base = tmp.path().join("inputs");
        let killed = inputs(&base);
        let held = HeldDirectory::create(&killed, &files("secret")).await.unwrap();
        sweep(&killed);
        assert!(killed.dir.join("kubeconfig").exists(), "it is in use");
        held.lock.unlock().unwrap();
        let other = Inputs { dir: base.join("team/other"), ..killed.clone() };
        let _other = HeldDirectory::create(&other, &files("x")).await.unwrap();
        assert!(!killed.dir.exists());
    }

    #[tokio::test]
    async fn a_directory_that_others_may_enter_is_refused() {
        let tmp = tempfile::tempdir().unwrap();
        let base = tmp.path().join("inputs");
        std::fs::DirBuilder::new().mode(0o755).create(&base).unwrap();
        let error = HeldDirectory::create(&inputs(&base), &files("x")).await.unwrap_err();
        assert!(error.to_string().contains("only this user may enter"), "{error}");
        let named = Inputs { is_named: true, ..inputs(&base) };
        HeldDirectory::create(&named, &files("x")).await.unwrap();
        assert!(base.exists(), "the user has made it");
        let target = tmp.path().join("elsewhere");
        fs::create_dir(&target).unwrap();
        std::os::unix::fs::symlink(&target, base.join("team")).unwrap();
        let error = HeldDirectory::create(&named, &files("x")).await.unwrap_err();
        assert!(error.to_string().contains("only this user may enter"), "{error}");
    }
}
