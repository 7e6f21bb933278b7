//! Brings code into a directory of the runner: by a copy of a read-only directory, or from an archive.

use std::fs::File;
use std::path::{Path, PathBuf};

use datastore_api::Sha256;
use fs_err as fs;

use crate::source::archive::{self, Limits, Stoppable};
use crate::source::checkout::context::CheckoutContext;
use crate::source::copy::{self, Existing, Links};
use crate::source::error::{CheckoutError, named};
use crate::source::git;
use crate::source::snapshot::tree;
use crate::source::states;

/// What a directory that is copied to may hold.
async fn existing(dir: &Path, context: CheckoutContext<'_>) -> Result<Existing, CheckoutError> {
    Ok(Existing { checked_out: git::checked_out(dir).await?, of_tools: context.of_tools() })
}

/// Copies a read-only directory into `to`, which is empty or a work directory that stays from run to run. Returns the digest
/// of its code.
pub(super) async fn copied(
    from: &Path,
    to: &Path,
    lock: Option<&File>,
    context: CheckoutContext<'_>,
) -> Result<Sha256, CheckoutError> {
    let existing = if lock.is_some() { Some(existing(to, context).await?) } else { None };
    // The thread may outlive this call.
    let lock = lock.map(File::try_clone).transpose()?;
    let (from, to) = (from.to_owned(), to.to_owned());
    let copied = tokio::task::spawn_blocking(move || {
        let files = match existing {
            Some(existing) => copy::tree(&from, &to, Links::Followed, existing)?,
            None => copy::new_tree(&from, &to, Links::Followed)?,
        };
        drop(lock);
        Ok(tree::of_copied(&to, files.iter())?)
    });
    let copied = context.signals.shortly(copied).await.map_err(CheckoutError::Stopped)?;
    copied.map_err(std::io::Error::other)?
}

/// What an archive has brought.
pub(super) struct Unpacked {
    /// The commit that it names.
    pub(super) commit: Option<String>,
    /// The states in it that no backend accepted.
    pub(super) states: Vec<PathBuf>,
    /// The digest of its code.
    pub(super) sha256: Sha256,
}

/// Unpacks an archive into `dir`, which is empty or a work directory that stays from run to run.
pub(super) async fn unpack(
    file: &Path,
    dir: &Path,
    lock: Option<&File>,
    context: CheckoutContext<'_>,
) -> Result<Unpacked, CheckoutError> {
    let new = context.scratch.join("unpacked");
    let (path, target, signals) = (file.to_owned(), dir.to_owned(), context.signals.clone());
    let existing = existing(dir, context).await?;
    // The thread may outlive this call.
    let lock = lock.map(File::try_clone).transpose()?;
    let unpacked = tokio::task::spawn_blocking(move || {
        let failed = |error| CheckoutError::Archive { path: path.clone(), error };
        let archive = fs::File::open(&path).map_err(|error| failed(error.into()))?;
        let archive = Stoppable::new(archive, signals.clone());
        let limits = Limits { of_any_program: true, ..Limits::default() };
        let packed =
            archive::unpack_until(Some(&signals), archive, &new, limits).map_err(failed)?;
        tracing::info!("unpacked {}: {packed}", named(&path));
        let below = |file: PathBuf| file.strip_prefix(&new).map(Path::to_owned).unwrap_or(file);
        let states = states::errored(&new)?.into_iter().map(below).collect();
        let sha256 = tree::of_source(&new)?;
        if lock.is_some() {
            copy::tree(&new, &target, Links::Kept, existing)?;
            fs::remove_dir_all(&new)?;
        } else {
            fs::rename(&new, &target)?;
        }
        Ok(Unpacked { commit: packed.commit, states, sha256 })
    });
    let unpacked = context.signals.shortly(unpacked).await.map_err(CheckoutError::Stopped)?;
    let unpacked = unpacked.map_err(std::io::Error::other)?;
    let stopped = context.signals.stopped().map(CheckoutError::Stopped);
    unpacked.map_err(|error| stopped.unwrap_or(error))
}
