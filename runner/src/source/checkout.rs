//! Puts the code of a run into a directory where the tool can work.
//!
//! A writable directory is used in place, or copied if the runner adds a file. A read-only directory is copied, an archive is unpacked, and a git URL is fetched
//! by the `git` program, into a directory of the runner's. This module does not depend on what the code means.

mod beside;
pub(crate) mod context;
mod copied;
mod parents;
mod source;
pub(crate) mod source_id;

use std::fs::File;
use std::path::{Path, PathBuf};

use datastore_api::{BundleKey, Sha256};
use fs_err as fs;
use nix::unistd::{AccessFlags, access};

use crate::source::checkout::context::CheckoutContext;
use crate::source::checkout::copied::{Original, Unpacked, copied, unpack};
pub(crate) use crate::source::checkout::source::{Packed, Source};
use crate::source::error::{CheckoutError, named};
use crate::source::git::{self, GitSource};
use crate::source::modules;
use crate::source::path::{check_directory, inside, resolve};
use crate::source::references::installed::Called;
use crate::source::references::{self, computed};
use crate::source::submodules::{self, Origin, Unfetched};
use crate::source::work_dir::{claim, make};

/// The code, ready to be worked in.
#[derive(Debug)]
pub(crate) struct Workspace {
    /// The directory in which the tool works.
    pub(crate) dir: PathBuf,
    /// The commit that was checked out, with `-dirty` where files differ from it; `None` without git.
    pub(crate) revision: Option<String>,
    /// Why it is not known whether the code differs from that commit.
    pub(crate) unknown_changes: Option<String>,
    /// The top of the work tree of the user that it is in, without links, where git was asked.
    pub(crate) top: Option<PathBuf>,
    /// The branch of that work tree's HEAD, `refs/heads/main`, if it has one.
    pub(crate) branch: Option<String>,
    /// The runner's directory with the code; `None` if the user's directory is used in place.
    pub(crate) own: Option<PathBuf>,
    /// The digest of the code that was unpacked, or copied from a directory that is dirty or without git.
    pub(crate) sha256: Option<Sha256>,
    /// The files that the sparse checkout of the directory leaves out, without links in their paths.
    left_out: Vec<PathBuf>,
    /// The submodules of a git URL that could not be fetched.
    unfetched: Vec<Unfetched>,
    /// The states in the archive that it was unpacked from, by their paths in it.
    pub(crate) packed_states: Vec<PathBuf>,
    /// The directory that it is a copy of: a read-only one, or a writable one with the rest of its work tree.
    pub(crate) copied_from: Option<PathBuf>,
    /// The module in the user's writable directory that was copied all the same.
    pub(crate) in_place_of: Option<PathBuf>,
    /// Whether the directory stays when the run has ended.
    pub(crate) kept: bool,
    /// The lock of a directory that stays, held while the run lives.
    _lock: Option<File>,
}

impl Workspace {
    /// A snapshot that was unpacked into the private directory `root`, which ends with the run.
    pub(crate) fn unpacked(
        root: PathBuf,
        path: &Path,
        revision: Option<String>,
    ) -> Result<Self, CheckoutError> {
        let dir = inside(&root, path)?;
        Ok(Self { own: Some(root), kept: false, ..Self::in_place(dir, revision) })
    }

    /// The user's directory that the tool's directory is a copy of.
    pub(crate) fn original(&self) -> Option<PathBuf> {
        let (own, from) = self.own.as_ref().zip(self.copied_from.as_ref())?;
        let below = self.dir.strip_prefix(fs::canonicalize(own).ok()?).ok()?;
        Some(from.join(below))
    }

    /// A directory of the runner. With a lock it stays.
    fn of_own(dir: PathBuf, revision: Option<String>, lock: Option<File>) -> Self {
        let (own, kept) = (Some(dir.clone()), lock.is_some());
        Self { own, kept, _lock: lock, ..Self::in_place(dir, revision) }
    }

    /// A directory of the user.
    fn in_place(dir: PathBuf, revision: Option<String>) -> Self {
        Self {
            dir,
            revision,
            unknown_changes: None,
            top: None,
            branch: None,
            own: None,
            sha256: None,
            left_out: Vec::new(),
            unfetched: Vec::new(),
            packed_states: Vec::new(),
            copied_from: None,
            in_place_of: None,
            kept: true,
            _lock: None,
        }
    }
}

/// Puts the code where the tool can work. `ignored` are files that the runner writes: they do not make a work tree dirty.
pub(crate) async fn checkout(
    source: &Source,
    path: &Path,
    work_dir: Option<&Path>,
    ignored: &[PathBuf],
    context: CheckoutContext<'_>,
) -> Result<Workspace, CheckoutError> {
    let whole = place(source, path, work_dir, ignored, context).await?;
    let root = whole.dir.clone();
    if let Source::Packed(packed) = source {
        modules::check(&packed.path, &root, path)?;
    }
    let unfetched = missing_parts(source, &root, path, context).await?;
    let literal = &Called::new();
    check_sparse(source, &whole.left_out, path, literal)?;
    check_beside(source, &root, path, &whole, literal)?;
    if context.has_terragrunt
        && let Some(original) = &whole.copied_from
    {
        parents::check(original, &root, &inside(&root, path)?)?;
    }
    let revision = match (source, work_dir) {
        (Source::Git(_), Some(_)) => {
            kept_revision(&root, path, ignored, context).await?.or(whole.revision)
        }
        _ => whole.revision,
    };
    let dir = inside(&root, path)?;
    let in_place_of = whole.in_place_of.map(|source| source.join(path));
    Ok(Workspace { dir, revision, unfetched, in_place_of, ..whole })
}

/// Checks the modules of which only init knows as the checkout checks those that the configuration calls by literal paths.
pub(crate) async fn check_called(
    source: &Source,
    path: &Path,
    workspace: &mut Workspace,
    called: &Called,
    context: CheckoutContext<'_>,
) -> Result<(), CheckoutError> {
    let unfetched = std::mem::take(&mut workspace.unfetched);
    // A directory that is used in place is the source itself.
    let root = workspace.own.clone().unwrap_or_default();
    let (root, dir) = checked_module(source, &root, path)?;
    let (top, origin) = match source {
        Source::Git(git) => {
            (Some(&*root), Origin::Git(git.fetched(&root, context).await?, unfetched))
        }
        Source::Directory(_) => (None, Origin::Directory),
        Source::Packed(_) => (Some(&*root), Origin::Archive),
        Source::Bundle(_) => (Some(&*root), Origin::Bundle),
    };
    if context.submodules {
        submodules::check(&dir, top, called, origin).await?;
    }
    check_sparse(source, &workspace.left_out, path, called)?;
    match &workspace.own {
        Some(own) => check_beside(source, own, path, workspace, called),
        None => Ok(()),
    }
}

/// Puts the whole source in place, for the module at `path`. The result is a workspace of its root.
async fn place(
    source: &Source,
    path: &Path,
    work_dir: Option<&Path>,
    ignored: &[PathBuf],
    context: CheckoutContext<'_>,
) -> Result<Workspace, CheckoutError> {
    let own = || own_directory(work_dir, context);
    Ok(match source {
        Source::Directory(dir) => place_directory(dir, path, work_dir, ignored, context).await?,
        Source::Packed(packed) => {
            let (dir, lock) = own()?;
            let Unpacked { commit, states, sha256 } =
                unpack(packed, &dir, lock.as_ref(), context).await?;
            let unpacked = Workspace::of_own(dir, commit, lock);
            Workspace { sha256: Some(sha256), packed_states: states, ..unpacked }
        }
        Source::Git(git) => {
            let (dir, lock) = own()?;
            let revision = fetch(git, &dir, context).await?;
            Workspace::of_own(dir, Some(revision), lock)
        }
        Source::Bundle(key) => {
            let (dir, lock) = own()?;
            let revision = bundle(key, &dir, context).await?;
            // A pod's directory ends with the pod.
            Workspace { kept: false, ..Workspace::of_own(dir, Some(revision), lock) }
        }
    })
}

/// The directory for code that is not used in place, with its lock if it stays.
fn own_directory(
    work_dir: Option<&Path>,
    context: CheckoutContext<'_>,
) -> Result<(PathBuf, Option<File>), CheckoutError> {
    if let Some(dir) = work_dir {
        return claim(dir, context.source_id).map(|lock| (dir.to_owned(), Some(lock)));
    }
    let dir = context.scratch.join("work");
    make(&dir)?;
    Ok((dir, None))
}

/// Uses a directory in place, or copies it.
async fn place_directory(
    dir: &Path,
    path: &Path,
    work_dir: Option<&Path>,
    ignored: &[PathBuf],
    context: CheckoutContext<'_>,
) -> Result<Workspace, CheckoutError> {
    let access = directory(dir)?;
    let revision = context.signals.or(git::revision(dir, ignored)).await;
    let revision = revision.map_err(CheckoutError::Stopped)?;
    let found = revision.map(|of| (of.name, (of.unknown, of.left_out, of.top, of.branch)));
    let (revision, found) = found.unzip();
    let (unknown_changes, left_out, top, branch) = found.unwrap_or_default();
    let workspace = match access {
        Access::Writable if context.in_copy => {
            let (to, lock) = own_directory(work_dir, context)?;
            let not_copied = context.not_in_copies(path);
            let original = Original::new(dir, path, top.as_deref(), not_copied).await?;
            let (root, copy) = (original.root.clone(), to.join(&original.below));
            tracing::info!("working in a copy of {}", root.display());
            original.copy(&to, lock.as_ref(), context).await?;
            let (copied_from, in_place_of) = (Some(root), Some(dir.to_owned()));
            let own = Workspace { dir: copy, ..Workspace::of_own(to, revision, lock) };
            Workspace { unknown_changes, top, left_out, copied_from, in_place_of, ..own }
        }
        Access::Writable => {
            let in_place = Workspace::in_place(dir.to_owned(), revision);
            Workspace { unknown_changes, top, left_out, ..in_place }
        }
        Access::ReadOnly => {
            let (to, lock) = own_directory(work_dir, context)?;
            tracing::info!("{} is read-only: working in a copy", dir.display());
            let copied = copied(dir, &to, lock.as_ref(), context).await?;
            // A commit is compared instead, where it says what the code is.
            let is_dirty = |commit: &String| commit.ends_with("-dirty");
            let sha256 = Some(copied).filter(|_| revision.as_ref().is_none_or(is_dirty));
            let copied_from = Some(dir.to_owned());
            let copy = Workspace::of_own(to, revision, lock);
            Workspace { unknown_changes, sha256, left_out, copied_from, ..copy }
        }
    };
    Ok(Workspace { branch, ..workspace })
}

/// Fetches a repository, at the commit of the plan to apply if there is one.
async fn fetch(
    git: &GitSource,
    dir: &Path,
    context: CheckoutContext<'_>,
) -> Result<String, CheckoutError> {
    let Some(commit) = context.planned else { return git.fetch(dir, context).await };
    git.at(commit).fetch(dir, context).await.map_err(|error| match error {
        CheckoutError::NoSuchRevision { url, .. } => {
            CheckoutError::OtherHistory { url, commit: commit.to_owned() }
        }
        error => error,
    })
}

/// The commit of a kept checkout, with `-dirty` if it has files of earlier runs: the configuration may read them.
async fn kept_revision(
    root: &Path,
    path: &Path,
    ignored: &[PathBuf],
    context: CheckoutContext<'_>,
) -> Result<Option<String>, CheckoutError> {
    let module = fs::canonicalize(root)?.join(path);
    let of_tools = context.of_tools().into_iter().map(|dir| module.join(dir));
    let ignored = ignored.iter().cloned().chain(of_tools).collect::<Vec<_>>();
    let revision = context.signals.or(git::revision(root, &ignored)).await;
    Ok(revision.map_err(CheckoutError::Stopped)?.map(|revision| revision.name))
}

/// Refuses code that reads files beside its source, if it works elsewhere. A kept directory may have files of the user
/// beside it, and a pod of Burrito's has none.
fn check_beside(
    source: &Source,
    root: &Path,
    path: &Path,
    workspace: &Workspace,
    called: &Called,
) -> Result<(), CheckoutError> {
    let (whole, source) = match source {
        Source::Directory(dir) if *dir != *root => {
            (workspace.copied_from.as_ref().unwrap_or(dir).as_path(), dir.as_path())
        }
        Source::Git(_) | Source::Packed(_) if !workspace.kept => (root, root),
        _ => return Ok(()),
    };
    let (whole, source) = (fs::canonicalize(whole)?, fs::canonicalize(source)?);
    beside::check(&whole, &resolve(&source.join(path))?, called)
}

/// Refuses code that reads files which the sparse checkout of a directory leaves out.
fn check_sparse(
    source: &Source,
    left_out: &[PathBuf],
    path: &Path,
    called: &Called,
) -> Result<(), CheckoutError> {
    let Source::Directory(root) = source else { return Ok(()) };
    if left_out.is_empty() {
        return Ok(());
    }
    let dir = resolve(&fs::canonicalize(root)?.join(path))?;
    let references = references::read(&dir, called).map_err(CheckoutError::Unreadable)?;
    if let Some((file, place)) = references.first_missing(&dir, left_out) {
        return Err(CheckoutError::LeftOut { file, place });
    }
    match computed::may_miss(&references, &dir, left_out) {
        Some(file) => Err(CheckoutError::MayBeLeftOut { file: file.clone() }),
        None => Ok(()),
    }
}

/// Fetches the submodules of a git URL, and refuses code if a part that it needs is missing. Returns the submodules that
/// could not be fetched.
async fn missing_parts(
    source: &Source,
    root: &Path,
    path: &Path,
    context: CheckoutContext<'_>,
) -> Result<Vec<Unfetched>, CheckoutError> {
    if !context.submodules {
        if let Source::Git(_) = source {
            git::mark_complete(root)?;
        }
        return Ok(Vec::new());
    }
    let (root, dir) = checked_module(source, root, path)?;
    let (top, origin) = match source {
        Source::Git(git) => {
            let git = git.fetched(&root, context).await?;
            let unfetched = submodules::fetch(&git, &root).await?;
            if unfetched.is_empty() {
                git::mark_complete(&root)?;
            }
            (Some(&*root), Origin::Git(git, unfetched))
        }
        Source::Directory(_) => (None, Origin::Directory),
        Source::Packed(_) => (Some(&*root), Origin::Archive),
        Source::Bundle(_) => (Some(&*root), Origin::Bundle),
    };
    submodules::check(&dir, top, &Called::new(), origin).await
}

/// The root of the source and its module, without links. A copy has no `.git`: its source directory is checked.
fn checked_module(
    source: &Source,
    root: &Path,
    path: &Path,
) -> Result<(PathBuf, PathBuf), CheckoutError> {
    let root = fs::canonicalize(if let Source::Directory(dir) = source { dir } else { root })?;
    let dir = resolve(&root.join(path))?;
    check_directory(&root, path)?;
    Ok((root, dir))
}

/// Fetches the bundle and checks out the commit of the plan to apply. Without one, or if the bundle does not contain it,
/// it checks out the bundle's own revision.
async fn bundle(
    key: &BundleKey,
    dir: &Path,
    context: CheckoutContext<'_>,
) -> Result<String, CheckoutError> {
    let BundleKey { namespace, name, git_ref, revision } = key;
    let bundle = format!("{namespace}/{name} {git_ref}");
    let missing = || CheckoutError::NoBundle(format!("{bundle} at {revision}"));
    let datastore = context.datastore.ok_or_else(missing)?;
    let file = context.scratch.join("bundle");
    let saved = context.signals.or(datastore.save_bundle(key, &file));
    let (saved, prepared) = tokio::join!(saved, git::prepare(dir, context));
    saved.map_err(CheckoutError::Stopped)??.ok_or_else(missing)?;
    prepared?;
    let revisions = context.planned.into_iter().chain([revision.as_ref()]).collect::<Vec<_>>();
    // The revision as given, also for an annotated tag: the controllers compare the text.
    match git::unbundle(&file, git_ref.as_ref(), &revisions, dir, context).await {
        Err(CheckoutError::NoSuchRevision { revision, .. }) => {
            Err(CheckoutError::NotInBundle { bundle, revision })
        }
        revision => revision.map(str::to_owned),
    }
}

enum Access {
    Writable,
    ReadOnly,
}

fn directory(dir: &Path) -> Result<Access, CheckoutError> {
    match fs::metadata(dir) {
        Ok(metadata) if metadata.is_dir() => {}
        Ok(_) => {
            let hint = "; a source is a directory, an archive or a git URL".to_owned();
            return Err(CheckoutError::NotADirectory { path: dir.to_owned(), hint });
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotADirectory => {
            let hint = inside_file(dir);
            return Err(CheckoutError::NotADirectory { path: dir.to_owned(), hint });
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            let hint = ": it does not exist".to_owned();
            return Err(CheckoutError::NotADirectory { path: dir.to_owned(), hint });
        }
        Err(error) => return Err(CheckoutError::Unreadable(error)),
    }
    let writable = access(dir, AccessFlags::W_OK).is_ok();
    Ok(if writable { Access::Writable } else { Access::ReadOnly })
}

/// Advice for a path that goes on behind a file.
fn inside_file(path: &Path) -> String {
    // Without a slash at its end.
    let path = path.components().as_path();
    match path.ancestors().skip(1).find(|parent| parent.is_file()) {
        Some(parent) => format!(
            ": {} is a file; name the archive as the source, and the directory in it with --path",
            named(parent)
        ),
        None => ": it is a file; remove the slash at its end".to_owned(),
    }
}
