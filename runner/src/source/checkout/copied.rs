//! Brings code into a directory of the runner: by a copy of a directory, or from an archive.

use std::collections::BTreeSet;
use std::fs::File;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use datastore_api::Sha256;
use fs_err as fs;

use crate::process::Signals;
use crate::source::archive::{self, Limits, Stoppable};
use crate::source::checkout::context::CheckoutContext;
use crate::source::checkout::source::Packed;
use crate::source::copy::{self, Existing, Links};
use crate::source::error::{CheckoutError, named};
use crate::source::flat;
use crate::source::git;
use crate::source::path::resolve;
use crate::source::references::reads::Reads;
use crate::source::snapshot::tree;
use crate::source::states::{self, is_state};

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
            Some(existing) => copy::tree(&from, &to, Links::Followed, &|_| true, existing)?,
            None => copy::new_tree(&from, &to, Links::Followed, &|_| true)?,
        };
        drop(lock);
        Ok(tree::of_copied(&to, files.iter())?)
    });
    let copied = context.signals.shortly(copied).await.map_err(CheckoutError::Stopped)?;
    copied.map_err(std::io::Error::other)?
}

/// A writable directory that is copied, with what belongs to it.
pub(super) struct Original {
    /// The top of its work tree, or the directory itself, without links.
    pub(super) root: PathBuf,
    /// The directory below the root.
    pub(super) below: PathBuf,
    /// Of the rest of the root, only these files are copied: those that git does not ignore,
    beside: BTreeSet<PathBuf>,
    /// and what the module may read.
    reads: Option<Reads>,
    /// What is not copied.
    left_out: Vec<PathBuf>,
}

impl Original {
    /// The directory `dir`, in a work tree with this top if it is in one. The module at `path` in it reads others in the same
    /// work tree. `left_out` is not copied.
    pub(super) async fn new(
        dir: &Path,
        path: &Path,
        top: Option<&Path>,
        left_out: impl IntoIterator<Item = PathBuf>,
    ) -> Result<Self, CheckoutError> {
        let dir = fs::canonicalize(dir)?;
        let whole = |dir: PathBuf| (dir, PathBuf::new(), BTreeSet::new(), None);
        let below = top.and_then(|top| Some((top, dir.strip_prefix(top).ok()?.to_owned())));
        let (root, below, beside, reads) = match below {
            Some((top, below)) if !below.as_os_str().is_empty() => {
                let files =
                    git::files(top).await.map_err(|reason| CheckoutError::Git { reason })?;
                let files = files.unwrap_or_default();
                let mut beside = &files.tracked | &files.not_ignored;
                // A repository that is no submodule is listed as a directory. An empty one would be taken for a module.
                beside.retain(|path| !path.as_os_str().as_bytes().ends_with(b"/"));
                (top.to_owned(), below, beside, Some(reads(top, &dir.join(path)).await?))
            }
            _ => whole(dir),
        };
        let left_out = left_out.into_iter().filter_map(|path| {
            let path = if path.is_absolute() { path } else { root.join(&below).join(path) };
            path.strip_prefix(&root).ok().map(Path::to_owned)
        });
        let left_out = left_out.collect();
        Ok(Self { root, below, beside, reads, left_out })
    }

    fn has(&self, path: &Path) -> bool {
        let is_left_out = self.left_out.iter().any(|left_out| path.starts_with(left_out));
        // In a copy that stays, no state is replaced by a newer one.
        let is_read = |reads: &Reads| {
            let file = self.root.join(path);
            !is_state(path)
                && (reads.has(&file) || reads.may_be_computed(&file) && is_readable(&file))
        };
        !is_left_out
            && (path.starts_with(&self.below)
                || self.beside.contains(path)
                || self.reads.as_ref().is_some_and(is_read))
    }

    /// Copies it into `to`, which is empty or a work directory that stays from run to run.
    pub(super) async fn copy(
        mut self,
        to: &Path,
        lock: Option<&File>,
        context: CheckoutContext<'_>,
    ) -> Result<(), CheckoutError> {
        let existing = if lock.is_some() { Some(existing(to, context).await?) } else { None };
        // The thread may outlive this call.
        let lock = lock.map(File::try_clone).transpose()?;
        let to = to.to_owned();
        // Without an earlier copy, if a directory that stays is in the work tree.
        let own = fs::canonicalize(&to)?;
        self.left_out.extend(own.strip_prefix(&self.root).ok().map(Path::to_owned));
        let copied = tokio::task::spawn_blocking(move || {
            let wanted = |path: &Path| self.has(path);
            let _files = match existing {
                Some(existing) => copy::tree(&self.root, &to, Links::Same, &wanted, existing)?,
                None => copy::new_tree(&self.root, &to, Links::Same, &wanted)?,
            };
            drop(lock);
            Ok(())
        });
        let copied = context.signals.shortly(copied).await.map_err(CheckoutError::Stopped)?;
        copied.map_err(std::io::Error::other)?
    }
}

/// Whether a file can be copied: one that only a computed path may mean fails no run.
fn is_readable(file: &Path) -> bool {
    let opened = if file.is_file() { fs::File::open(file).map(drop) } else { Ok(()) };
    opened
        .inspect_err(|error| tracing::warn!("a file that git ignores is not copied: {error}"))
        .is_ok()
}

/// What the module in `module` may read in the work tree with this top.
async fn reads(top: &Path, module: &Path) -> Result<Reads, CheckoutError> {
    let (top, module) = (top.to_owned(), resolve(module)?);
    let reads = tokio::task::spawn_blocking(move || Reads::of(&top, &module)).await;
    reads.map_err(std::io::Error::other)?.map_err(CheckoutError::Unreadable)
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

/// Unpacks an archive or a flat directory into `dir`, which is empty or a work directory that stays from run to run.
pub(super) async fn unpack(
    packed: &Packed,
    dir: &Path,
    lock: Option<&File>,
    context: CheckoutContext<'_>,
) -> Result<Unpacked, CheckoutError> {
    let new = context.scratch.join("unpacked");
    let (packed, target, signals) = (packed.clone(), dir.to_owned(), context.signals.clone());
    let existing = existing(dir, context).await?;
    // The thread may outlive this call.
    let lock = lock.map(File::try_clone).transpose()?;
    let unpacked = tokio::task::spawn_blocking(move || {
        let commit = unpacked_into(&new, &packed, &signals)?;
        let below = |file: PathBuf| file.strip_prefix(&new).map(Path::to_owned).unwrap_or(file);
        let states = states::errored(&new)?.into_iter().map(below).collect();
        let sha256 = tree::of_source(&new)?;
        if lock.is_some() {
            copy::tree(&new, &target, Links::Kept, &|_| true, existing)?;
            fs::remove_dir_all(&new)?;
        } else {
            fs::rename(&new, &target)?;
        }
        Ok(Unpacked { commit, states, sha256 })
    });
    let unpacked = context.signals.shortly(unpacked).await.map_err(CheckoutError::Stopped)?;
    let unpacked = unpacked.map_err(std::io::Error::other)?;
    let stopped = context.signals.stopped().map(CheckoutError::Stopped);
    unpacked.map_err(|error| stopped.unwrap_or(error))
}

/// Unpacks into the new directory `new`. Returns the commit that an archive names.
fn unpacked_into(
    new: &Path,
    packed: &Packed,
    signals: &Signals,
) -> Result<Option<String>, CheckoutError> {
    let Packed { path, separator } = packed;
    if let Some(separator) = separator {
        flat::unflatten(path, new, separator)?;
        return Ok(None);
    }
    let failed = |error| CheckoutError::Archive { path: path.clone(), error };
    let archive = fs::File::open(path).map_err(|error| failed(error.into()))?;
    let archive = Stoppable::new(archive, signals.clone());
    let limits = Limits { of_any_program: true, ..Limits::default() };
    let unpacked = archive::unpack_until(Some(signals), archive, new, limits).map_err(failed)?;
    tracing::info!("unpacked {}: {unpacked}", named(path));
    Ok(unpacked.commit)
}
