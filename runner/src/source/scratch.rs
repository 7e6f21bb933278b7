//! The private directory of one run: plan files, the log, a checkout that is not kept.
//!
//! It has mode 0700 and is removed when the run ends. Directories of killed runs are removed by a later run of the same
//! user: a kernel lock shows which runs are alive.

use std::ffi::OsStr;
use std::fs::{File, TryLockError};
use std::io::{self, Write as _};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::{Duration, SystemTime};

use fs_err as fs;
use tempfile::TempDir;

use crate::process::Log;
use crate::source::states;

const PREFIX: &str = "plancha-";
/// The random letters after the prefix.
const RANDOM_LEN: usize = 6;
/// The layer that a run applies.
const LAYER: &str = "layer";
const LOCK: &str = ".lock";
/// The run's log.
pub(crate) const LOG: &str = "run.log";
/// A younger directory may not be locked yet.
const MIN_AGE: Duration = Duration::from_mins(1);

/// The private directory cannot be created.
#[derive(Debug, thiserror::Error)]
#[error("the directory for temporary files, {} (TMPDIR), cannot be used: {}", .dir.display(), reason(.cause))]
pub(crate) struct ScratchError {
    dir: PathBuf,
    cause: io::Error,
}

impl ScratchError {
    /// What kind of error the system reports.
    pub(crate) fn kind(&self) -> io::ErrorKind {
        self.cause.kind()
    }
}

/// The system's reason, without the random file name.
pub(crate) fn reason(cause: &io::Error) -> String {
    let text = cause.to_string();
    text.split_once(" at path ").map_or(text.as_str(), |(reason, _)| reason).to_owned()
}

/// A private directory that lives as long as this value.
#[derive(Debug)]
pub(crate) struct Scratch {
    dir: TempDir,
    /// The entry that stays after the run.
    kept: OnceLock<&'static str>,
    /// Set if the whole directory stays.
    whole: OnceLock<()>,
    /// Held while the run lives.
    _lock: File,
}

impl Scratch {
    /// Creates it in the system's directory for temporary files.
    pub(crate) fn create() -> Result<Self, ScratchError> {
        let dir = std::env::temp_dir();
        Self::create_in(&dir).map_err(|cause| ScratchError { dir, cause })
    }

    fn create_in(parent: &Path) -> io::Result<Self> {
        let dir = tempfile::Builder::new()
            .prefix(PREFIX)
            .rand_bytes(RANDOM_LEN)
            .permissions(PermissionsExt::from_mode(0o700))
            .tempdir_in(parent)?;
        let lock = crate::process::private_file(&dir.path().join(LOCK))?;
        if let Err(TryLockError::Error(error)) = lock.try_lock() {
            // Without locks no directory is ever taken for an abandoned one.
            tracing::debug!("{} has no locks: {error}", parent.display());
        }
        if let Err(error) = sweep(parent) {
            tracing::debug!("what earlier runs left in {} stays: {error}", parent.display());
        }
        Ok(Self { dir, kept: OnceLock::new(), whole: OnceLock::new(), _lock: lock })
    }

    /// Records which layer is applied here. If the run is killed, a later run of the layer finds the state that is left.
    pub(crate) fn record_layer(&self, layer: &str) -> io::Result<()> {
        crate::process::private_file(&self.join(LAYER))?.write_all(layer.as_bytes())
    }

    /// The states that ended runs of the same layer have left in their directories.
    pub(crate) fn left_states(&self, layer: &str) -> Vec<PathBuf> {
        let (own, mut found) = (self.dir.path(), Vec::new());
        let entries = fs::read_dir(own.parent().unwrap_or(own)).into_iter().flatten().flatten();
        for dir in entries.map(|entry| entry.path()).filter(|dir| is_scratch(dir) && dir != own) {
            let is_same = fs::read_to_string(dir.join(LAYER)).is_ok_and(|text| text == layer);
            if is_same && !is_used(&dir) {
                found.extend(states::errored(&dir));
                let numbered = below_kept(&dir).into_iter();
                found.extend(numbered.filter(|file| !file.ends_with(states::ERRORED)));
            }
        }
        found.sort();
        found
    }

    /// Leaves this entry where it is when the run ends, and removes all others.
    pub(crate) fn keep(&self, name: &'static str) {
        // A second call names the same entry.
        let _ = self.kept.set(name);
    }

    /// Leaves everything where it is when the run ends.
    pub(crate) fn keep_all(&self) {
        // A second call changes nothing.
        let _ = self.whole.set(());
    }

    /// A path in it.
    pub(crate) fn join(&self, name: impl AsRef<Path>) -> PathBuf {
        self.dir.path().join(name)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if self.whole.get().is_some() {
            self.dir.disable_cleanup(true);
            return;
        }
        let Some(kept) = self.kept.get() else { return };
        self.dir.disable_cleanup(true);
        let Ok(entries) = fs::read_dir(self.dir.path()) else { return };
        // Without its lock file a later run does not remove it either.
        let has_state = !states::kept(&self.join(kept)).is_empty();
        let stays = |name: &OsStr| name == *kept || has_state && name == LAYER;
        for entry in entries.flatten().filter(|entry| !stays(&entry.file_name())) {
            let path = entry.path();
            let is_dir = entry.file_type().is_ok_and(|kind| kind.is_dir());
            let removed = if is_dir { fs::remove_dir_all(path) } else { fs::remove_file(path) };
            if let Err(error) = removed {
                tracing::warn!("{error}");
            }
        }
    }
}

/// Whether this is named like the private directory of a run: `plancha-` and random letters.
pub(crate) fn is_scratch(dir: &Path) -> bool {
    let name = dir.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let random = name.strip_prefix(PREFIX).unwrap_or_default();
    random.len() == RANDOM_LEN && random.bytes().all(|byte| byte.is_ascii_alphanumeric())
}

fn sweep(parent: &Path) -> io::Result<()> {
    let me = nix::unistd::geteuid().as_raw();
    for entry in fs::read_dir(parent)? {
        let entry = entry?;
        if !entry.file_name().as_encoded_bytes().starts_with(PREFIX.as_bytes()) {
            continue;
        }
        let metadata = entry.metadata()?;
        let old = metadata.modified()? + MIN_AGE < SystemTime::now();
        if metadata.is_dir() && metadata.uid() == me && old && is_abandoned(&entry.path())? {
            let states = states::errored(&entry.path());
            for state in &states {
                tracing::warn!(
                    "an earlier run has left {state}, the state of an apply that no backend took: in a \
                     checkout of its commit run `terraform init` and `terraform state push {state}`, then \
                     remove {dir}",
                    state = state.display(),
                    dir = entry.path().display()
                );
            }
            if states.is_empty() {
                fs::remove_dir_all(entry.path())?;
            }
        }
    }
    Ok(())
}

/// The states that a run has kept in its own directory.
fn below_kept(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    entries.flat_map(|entry| states::kept(&entry.path())).collect()
}

/// Whether a runner, or the tool of a killed one, uses a directory.
fn is_used(dir: &Path) -> bool {
    [dir.join(LOCK), Log::output_of(&dir.join(LOG))]
        .iter()
        .any(|file| matches!(is_held(file), Ok(Some(true))))
}

/// Whether neither a runner nor the tool of a killed one uses a directory.
fn is_abandoned(dir: &Path) -> io::Result<bool> {
    let output = Log::output_of(&dir.join(LOG));
    Ok(is_held(&dir.join(LOCK))? == Some(false) && is_held(&output)? != Some(true))
}

/// Whether a process holds a lock on a file; `None`: there is no such file.
fn is_held(path: &Path) -> io::Result<Option<bool>> {
    let file = match fs::File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    match file.file().try_lock() {
        Ok(()) => Ok(Some(false)),
        Err(TryLockError::WouldBlock) => Ok(Some(true)),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_directories_without_a_lock_are_removed() {
        let parent = tempfile::tempdir().unwrap();
        let old = SystemTime::now() - 2 * MIN_AGE;
        let make = |name: &str| {
            let dir = parent.path().join(name);
            fs::create_dir(&dir).unwrap();
            let lock = crate::process::private_file(&dir.join(LOCK)).unwrap();
            (dir, lock)
        };
        let age = |dir: &Path| File::open(dir).unwrap().set_modified(old).unwrap();
        let (dead, lock) = make("plancha-dead");
        drop(lock);
        age(&dead);
        let (living, held) = make("plancha-living");
        held.lock().unwrap();
        age(&living);
        let (young, _) = make("plancha-young");
        let (foreign, _) = make("other-dead");
        age(&foreign);
        let (errored, _) = make("plancha-errored");
        let state = errored.join("work/live/.terragrunt-cache/a/b/errored.tfstate");
        fs::create_dir_all(state.parent().unwrap()).unwrap();
        fs::write(&state, "{}").unwrap();
        age(&errored);

        sweep(parent.path()).unwrap();

        assert!(!dead.exists());
        assert!(state.exists(), "nothing else records what that apply has created");
        assert!(living.exists() && young.exists() && foreign.exists());
    }
}
