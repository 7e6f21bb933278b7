//! Where the code is, and how it comes to lie in a directory where the tool can work.
//!
//! A writable directory is used in place. A read-only one is copied, a git URL fetched by the `git`
//! program, into a directory of our own. What the code means is not known here.

use std::fs::{File, TryLockError};
use std::io::Write as _;
use std::path::{Component, Path, PathBuf};

use datastore_api::{BundleKey, Client, ClientError};
use fs_err as fs;
use nix::unistd::{AccessFlags, access};

use crate::cli::Environment;
use crate::process::{Signals, Stop};
pub(crate) use crate::source::git::{GitSource, WorkTree, work_tree};
use crate::source::scratch::Scratch;
use crate::source::submodules::Origin;

/// Where the code is.
#[derive(Clone, Debug)]
pub(crate) enum Source {
    /// In a directory.
    Directory(PathBuf),
    /// In a git repository elsewhere.
    Git(GitSource),
    /// In a bundle in the datastore.
    Bundle(BundleKey),
}

/// The code, ready to be worked in.
#[derive(Debug)]
pub(crate) struct Workspace {
    /// The directory in which the tool works.
    pub(crate) dir: PathBuf,
    /// The commit that was checked out, with `-dirty` where files differ from it; `None` without git.
    pub(crate) revision: Option<String>,
    /// The directory of our own in which all of the code lies, if it does not lie in the user's.
    pub(crate) own: Option<PathBuf>,
    /// Whether the directory stays when the run has ended.
    pub(crate) kept: bool,
    /// Held while the run lives, where the directory is one of ours that stays.
    _lock: Option<File>,
}

/// What a checkout needs to know of its run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Site<'a> {
    pub(crate) environment: &'a Environment,
    pub(crate) scratch: &'a Scratch,
    pub(crate) signals: &'a Signals,
    pub(crate) datastore: Option<&'a Client>,
    /// Whether submodules and LFS files are fetched, and missed.
    pub(crate) submodules: bool,
    /// The repository of the code, as a place names it.
    pub(crate) repository: Option<&'a str>,
    /// The commit of the plan to apply: a repository or bundle is checked out there.
    pub(crate) planned: Option<&'a str>,
}

/// The code could not be had.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CheckoutError {
    #[error("{} is not a directory{hint}", .path.display())]
    NotADirectory { path: PathBuf, hint: &'static str },
    #[error("the source has no directory `{}`", .path.display())]
    NoSuchPath { path: PathBuf },
    #[error("the path `{}` leads out of the source by a link", .path.display())]
    Outside { path: PathBuf },
    #[error("{url} has no revision `{revision}`")]
    NoSuchRevision { url: String, revision: String },
    #[error("{url} is no git repository, or not one that may be seen: {reason}")]
    NoSuchRepository { url: String, reason: String },
    #[error("{url} refused the credentials, or asked for some: {reason}")]
    Credentials { url: String, reason: String },
    #[error("{url} could not be reached: {reason}")]
    Network { url: String, reason: String },
    #[error("git failed: {reason}")]
    Git { reason: String },
    #[error("{} holds files that are not ours: --work-dir takes a new directory, or one of an earlier run", .0.display())]
    NotOurs(PathBuf),
    #[error("{} holds a checkout of {theirs}, and perhaps its state, not of {ours}", .dir.display())]
    OtherRepository { dir: PathBuf, theirs: String, ours: String },
    #[error("another run works in {} now", .0.display())]
    Busy(PathBuf),
    #[error("the work directory holds the state {}, but the commit has the file {} in its place", .state.display(), .file.display())]
    StateInTheWay { state: PathBuf, file: PathBuf },
    #[error("the datastore has no bundle of {0}")]
    NoBundle(String),
    #[error("the bundle of {bundle} does not hold its revision {revision}")]
    NotInBundle { bundle: String, revision: String },
    #[error("{place} needs `{path}`, but the submodule `{submodule}` is empty{}", .reason.as_ref().map(|reason| format!(": {reason}")).unwrap_or_default())]
    EmptySubmodule {
        path: String,
        place: String,
        submodule: String,
        reason: Option<String>,
        next: String,
    },
    #[error("{place} needs the submodule {}, which has the files of an earlier run, and could not be brought up to date: {reason}", .submodule.display())]
    OutdatedSubmodule { place: String, submodule: PathBuf, reason: String },
    #[error("{place} reads `{file}`, but that is a git LFS pointer and not the file itself{}", .reason.as_ref().map(|reason| format!(": {reason}")).unwrap_or_default())]
    LfsPointer { file: String, place: String, reason: Option<String>, next: String },
    #[error("the bundle")]
    Datastore(#[from] ClientError),
    #[error("the code could not be put in place")]
    Io(#[from] std::io::Error),
    #[error("stopped while the code was fetched")]
    Stopped(Stop),
}

impl Source {
    /// A git URL (`https://`, `http://`, `ssh://`, `git://`, `file://`, `user@host:path`), else a
    /// directory.
    pub(crate) fn parse(text: &str, revision: Option<&str>) -> Result<Self, String> {
        if let Some(git) = GitSource::parse(text, revision)? {
            return Ok(Self::Git(git));
        }
        if revision.is_some() {
            return Err(format!(
                "--revision goes with a git URL; the directory `{text}` is used as it is"
            ));
        }
        if text.is_empty() {
            return Err("the source is empty; `.` is the current directory".to_owned());
        }
        Ok(Self::Directory(text.into()))
    }
}

/// Whether code in the work tree of the directory differs from its commit. The tool's lock file, to which
/// init adds, and untracked files that no tool reads by itself are no code.
pub(crate) async fn is_code_changed(dir: &Path, ours: &[PathBuf]) -> bool {
    crate::source::git::is_code_changed(dir, ours).await
}

/// Puts the code where the tool can work. `ours` are files that we write ourselves: they do not make a
/// work tree dirty.
pub(crate) async fn checkout(
    source: &Source,
    path: &Path,
    work_dir: Option<&Path>,
    ours: &[PathBuf],
    site: Site<'_>,
) -> Result<Workspace, CheckoutError> {
    let own = || {
        if let Some(dir) = work_dir {
            return claim(dir, site.repository).map(|lock| (dir.to_owned(), Some(lock)));
        }
        let dir = site.scratch.join("work");
        make(&dir)?;
        Ok((dir, None))
    };
    let (root, revision, kept, lock) = match source {
        Source::Directory(dir) => {
            let access = directory(dir)?;
            let revision = site.signals.or(crate::source::git::revision(dir, ours)).await;
            let revision = revision.map_err(CheckoutError::Stopped)?;
            match access {
                Access::Writable => (dir.clone(), revision, true, None),
                Access::ReadOnly => {
                    let (to, lock) = own()?;
                    tracing::info!("{} is read-only: working in a copy", dir.display());
                    let (from, target) = (dir.clone(), to.clone());
                    let copied = tokio::task::spawn_blocking(move || {
                        crate::source::copy::tree(&from, &target)
                    });
                    copied.await.map_err(std::io::Error::other)??;
                    (to, revision, work_dir.is_some(), lock)
                }
            }
        }
        Source::Git(git) => {
            let (dir, lock) = own()?;
            let git = site.planned.map_or_else(|| git.clone(), |commit| git.at(commit));
            let revision = git.fetch(&dir, site).await?;
            (dir, Some(revision), work_dir.is_some(), lock)
        }
        Source::Bundle(key) => {
            let (dir, lock) = own()?;
            let revision = bundle(key, &dir, site).await?;
            // Nobody keeps a pod's directory.
            (dir, Some(revision), false, lock)
        }
    };
    let in_place = matches!(source, Source::Directory(dir) if *dir == root);
    if site.submodules {
        missing_parts(source, &root, path, site).await?;
    }
    let dir = inside(&root, path)?;
    Ok(Workspace { dir, revision, own: (!in_place).then_some(root), kept, _lock: lock })
}

/// Fetches the submodules of a git URL, and refuses code of which a part that it needs is missing.
async fn missing_parts(
    source: &Source,
    root: &Path,
    path: &Path,
    site: Site<'_>,
) -> Result<(), CheckoutError> {
    // A copy has no `.git`: the directory itself is looked at.
    let root = fs::canonicalize(if let Source::Directory(dir) = source { dir } else { root })?;
    let dir = resolve(&root.join(path))?;
    match source {
        Source::Directory(_) => {
            crate::source::submodules::check(&dir, None, Origin::Directory).await
        }
        Source::Git(git) => {
            let git = git.fetched(&root, site).await?;
            let unfetched = crate::source::submodules::fetch(&git, &root).await?;
            crate::source::submodules::check(&dir, Some(&root), Origin::Git(git, unfetched)).await
        }
        Source::Bundle(_) => {
            crate::source::submodules::check(&dir, Some(&root), Origin::Bundle).await
        }
    }
}

/// Fetches the bundle and checks out the commit of the plan to apply, else, also where the bundle does not
/// hold that, the very commit that it is named by.
async fn bundle(key: &BundleKey, dir: &Path, site: Site<'_>) -> Result<String, CheckoutError> {
    let BundleKey { namespace, name, git_ref, revision } = key;
    let bundle = format!("{namespace}/{name} {git_ref}");
    let missing = || CheckoutError::NoBundle(format!("{bundle} at {revision}"));
    let datastore = site.datastore.ok_or_else(missing)?;
    let file = site.scratch.join("bundle");
    let saved = site.signals.or(datastore.save_bundle(key, &file));
    let (saved, prepared) = tokio::join!(saved, crate::source::git::prepare(dir, site));
    saved.map_err(CheckoutError::Stopped)??.ok_or_else(missing)?;
    prepared?;
    let revisions = site.planned.into_iter().chain([revision.as_ref()]).collect::<Vec<_>>();
    // Of an annotated tag not its commit: the controllers compare the text.
    match crate::source::git::unbundle(&file, git_ref.as_ref(), &revisions, dir, site).await {
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
            let hint = "; archives and git bundles cannot be used by this version";
            return Err(CheckoutError::NotADirectory { path: dir.to_owned(), hint });
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            let hint = ": it does not exist";
            return Err(CheckoutError::NotADirectory { path: dir.to_owned(), hint });
        }
        Err(error) => return Err(error.into()),
    }
    let writable = access(dir, AccessFlags::W_OK).is_ok();
    Ok(if writable { Access::Writable } else { Access::ReadOnly })
}

/// The mark of a directory that is ours, and the lock of the run that works in it.
pub(crate) const MARK: &str = ".plancha-work";

/// A directory that stays from run to run: it must be new or ours, and nobody else's now.
fn claim(dir: &Path, repository: Option<&str>) -> Result<File, CheckoutError> {
    make(dir)?;
    let mark = dir.join(MARK);
    if !fs::exists(&mark)? && fs::read_dir(dir)?.next().is_some() {
        return Err(CheckoutError::NotOurs(dir.to_owned()));
    }
    let mut lock = fs::OpenOptions::new().create(true).append(true).open(&mark)?;
    match lock.file().try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => return Err(CheckoutError::Busy(dir.to_owned())),
        Err(TryLockError::Error(error)) => return Err(error.into()),
    }
    let Some(ours) = repository else { return Ok(lock.into()) };
    let recorded = fs::read_to_string(&mark)?;
    match recorded.lines().next() {
        // Older versions recorded nothing.
        None => writeln!(lock, "{ours}")?,
        Some(theirs) if theirs == ours => {}
        Some(theirs) => {
            let (theirs, ours) = (theirs.to_owned(), ours.to_owned());
            return Err(CheckoutError::OtherRepository { dir: dir.to_owned(), theirs, ours });
        }
    }
    Ok(lock.into())
}

fn make(dir: &Path) -> std::io::Result<()> {
    use std::os::unix::fs::DirBuilderExt as _;
    let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(dir);
    made.map_err(|error| std::io::Error::new(error.kind(), format!("{}: {error}", dir.display())))
}

/// The absolute path without links and `..`, also of what does not exist.
pub(crate) fn resolve(path: &Path) -> std::io::Result<PathBuf> {
    let reversed = |path: &Path| {
        path.components().rev().map(|part| PathBuf::from(part.as_os_str())).collect::<Vec<_>>()
    };
    // As many as the kernel follows.
    let mut links = 40;
    let mut resolved = PathBuf::new();
    let mut rest = reversed(path);
    while let Some(part) = rest.pop() {
        match part.components().next() {
            Some(Component::ParentDir) => {
                resolved.pop();
                continue;
            }
            Some(Component::CurDir) | None => continue,
            Some(_) => resolved.push(part),
        }
        let is_link = std::fs::symlink_metadata(&resolved).is_ok_and(|file| file.is_symlink());
        if is_link && links > 0 {
            links -= 1;
            let target = fs::read_link(&resolved)?;
            resolved.pop();
            rest.extend(reversed(&target));
        }
    }
    Ok(resolved)
}

/// The working directory: `path` below `root`, and really there.
fn inside(root: &Path, path: &Path) -> Result<PathBuf, CheckoutError> {
    let root = fs::canonicalize(root)?;
    let missing = || CheckoutError::NoSuchPath { path: path.to_owned() };
    let dir = match fs::canonicalize(root.join(path)) {
        Ok(dir) if dir.is_dir() => dir,
        Ok(_) => return Err(missing()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Err(missing()),
        Err(error) => return Err(error.into()),
    };
    if dir.starts_with(&root) {
        Ok(dir)
    } else {
        Err(CheckoutError::Outside { path: path.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_git_and_all_else_a_directory() {
        for text in [
            "https://git.example.com/infra.git",
            "ssh://git@git.example.com:2222/infra",
            "git@git.example.com:team/infra.git",
            "file:///srv/infra.git",
        ] {
            assert!(matches!(Source::parse(text, None), Ok(Source::Git(_))), "{text}");
        }
        for text in [".", "live/vpc", "/srv/infra.git", "a:b", "C:/x", "-oProxyCommand=x@host:path"]
        {
            assert!(matches!(Source::parse(text, None), Ok(Source::Directory(_))), "{text}");
        }
    }

    #[test]
    fn what_git_would_take_for_something_else_is_refused() {
        for (text, revision) in [
            ("ext::sh -c https://x", None),
            ("s3://bucket/x", None),
            ("git::https://example.com/x", None),
            ("https://git.example.com/infra.git", Some("--upload-pack=touch x")),
            ("https://git.example.com/infra.git", Some("a:b")),
            ("https://git.example.com/infra.git", Some("")),
            (".", Some("main")),
            ("", None),
        ] {
            Source::parse(text, revision).unwrap_err();
        }
    }

    #[test]
    fn a_path_is_resolved_also_where_nothing_is() {
        let dir = tempfile::tempdir().unwrap();
        let root = fs::canonicalize(dir.path()).unwrap();
        fs::create_dir(root.join("a")).unwrap();
        fs::os::unix::fs::symlink("../b/missing", root.join("a/link")).unwrap();
        fs::os::unix::fs::symlink(root.join("round"), root.join("round")).unwrap();
        for (path, resolved) in
            [("a/link/x", "b/missing/x"), ("a/../c/./d", "c/d"), ("a", "a"), ("round", "round")]
        {
            assert_eq!(resolve(&root.join(path)).unwrap(), root.join(resolved), "{path}");
        }
    }

    #[test]
    fn a_path_cannot_leave_the_source_by_a_link() {
        let dir = tempfile::tempdir().unwrap();
        let (root, outside) = (dir.path().join("root"), dir.path().join("outside"));
        fs::create_dir_all(root.join("a/b")).unwrap();
        fs::create_dir(&outside).unwrap();
        fs::os::unix::fs::symlink(&outside, root.join("link")).unwrap();
        assert!(inside(&root, Path::new("a/b")).unwrap().ends_with("root/a/b"));
        assert!(matches!(inside(&root, Path::new("link")), Err(CheckoutError::Outside { .. })));
        assert!(matches!(inside(&root, Path::new("c")), Err(CheckoutError::NoSuchPath { .. })));
    }
}
