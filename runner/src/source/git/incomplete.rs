//! What a checkout into a kept directory must remove first: the files of a checkout that was interrupted, here and in
//! submodules, and those of submodules that the new commit does not have.
//!
//! Git records only complete checkouts. The files that an interrupted one has written are not git's own, and it would
//! keep them.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use fs_err as fs;
use fs_err::os::unix::fs::symlink;

use crate::source::copy;
use crate::source::error::CheckoutError;
use crate::source::git::command::question;
use crate::source::path::is_below;
use crate::source::regular::unless_missing;
use crate::source::states;

/// Names the commit while its checkout is not complete. A link needs no space on a full disk.
const INCOMPLETE: &str = ".git/plancha-incomplete";

/// One commit in one work tree.
pub(super) struct Tree {
    /// The work tree.
    pub(super) dir: PathBuf,
    /// Its repository.
    git_dir: PathBuf,
    commit: String,
    /// Whether it is a submodule of another tree.
    is_submodule: bool,
}

/// What a commit contains.
#[derive(Default)]
pub(super) struct Contents {
    /// Its files and links.
    pub(super) files: BTreeSet<PathBuf>,
    /// Its submodules, with their commits.
    submodules: Vec<(PathBuf, String)>,
}

/// Removes the locks in a git directory, and in those of its submodules, which are inside it. No reference ends with
/// `.lock`.
pub(super) fn remove_locks(git_dir: &Path) -> io::Result<()> {
    for entry in fs::read_dir(git_dir)? {
        let (path, kind) = entry.and_then(|entry| Ok((entry.path(), entry.file_type()?)))?;
        if kind.is_dir() {
            remove_locks(&path)?;
        } else if path.extension().is_some_and(|extension| extension == "lock") {
            tracing::warn!("removing the lock {} of a git that was killed", path.display());
            fs::remove_file(path)?;
        }
    }
    Ok(())
}

/// Records that the checkout is complete, with its submodules.
pub(in crate::source) fn mark_complete(dir: &Path) -> io::Result<()> {
    unless_missing(fs::remove_file(dir.join(INCOMPLETE))).map(drop)
}

/// Records that the checkout of a commit begins.
pub(super) fn mark_incomplete(dir: &Path, commit: &str) -> io::Result<()> {
    mark_complete(dir)?;
    symlink(commit, dir.join(INCOMPLETE))
}

/// Removes the files of a commit whose checkout was interrupted, but for states. The checkout that follows writes those
/// again that its commit has too. Returns submodules that may lack files of their recorded commits.
pub(super) async fn remove_incomplete(dir: &Path) -> Result<Vec<Tree>, CheckoutError> {
    let Some(commit) = unless_missing(fs::read_link(dir.join(INCOMPLETE)))? else {
        return Ok(Vec::new());
    };
    let (mut removed, mut to_do) = (Vec::new(), vec![Tree::top(dir, &commit.to_string_lossy())]);
    while let Some(tree) = to_do.pop() {
        if tree.is_submodule && tree.head().await.is_none() {
            // A clone that was interrupted; git can neither use nor replace it.
            unless_missing(fs::remove_dir_all(&tree.git_dir))?;
            copy::remove(&tree.dir.join(".git"))?;
            continue;
        }
        // A commit that was not fetched has no files here.
        let Ok(contents) = tree.contents().await else { continue };
        let is_recorded = tree.is_recorded().await;
        if !is_recorded {
            let (commit, dir) = (&tree.commit, tree.dir.display());
            tracing::warn!("removing what an interrupted checkout of {commit} has left in {dir}");
            tree.remove(&contents)?;
        }
        to_do.extend(tree.submodules(contents).await);
        if !is_recorded && tree.is_submodule && tree.git_dir.join("index").exists() {
            removed.push(Tree { commit: "HEAD".to_owned(), ..tree });
        }
    }
    Ok(removed)
}

/// Removes the files of submodules that the commit does not have, but for states. Git would leave them.
pub(super) async fn remove_dropped_submodules(
    dir: &Path,
    commit: &str,
) -> Result<(), CheckoutError> {
    let old = Tree::top(dir, "HEAD");
    if old.is_new() {
        return Ok(());
    }
    // Before the first checkout there are none.
    let Ok(contents) = old.contents().await else { return Ok(()) };
    if contents.submodules.is_empty() {
        return Ok(());
    }
    let new = contents_of(dir, commit).await?;
    let is_new = |path: &Path| new.submodules.iter().any(|(new, _)| new == path);
    let mut to_do = old.submodules(contents).await;
    to_do.retain(|tree| tree.dir.strip_prefix(dir).is_ok_and(|path| !is_new(path)));
    while let Some(tree) = to_do.pop() {
        // A commit that was not fetched has no files here.
        let Ok(contents) = tree.contents().await else { continue };
        copy::remove(&tree.dir.join(".git"))?;
        tree.remove(&contents)?;
        to_do.extend(tree.submodules(contents).await);
    }
    Ok(())
}

/// What a commit of the checkout in this directory contains.
pub(super) async fn contents_of(dir: &Path, commit: &str) -> Result<Contents, CheckoutError> {
    let contents = Tree::top(dir, commit).contents().await;
    contents.map_err(|reason| CheckoutError::Git { reason })
}

impl Tree {
    fn top(dir: &Path, commit: &str) -> Self {
        let git_dir = dir.join(".git");
        Self { dir: dir.to_owned(), git_dir, commit: commit.to_owned(), is_submodule: false }
    }

    /// Asks its repository; the error is the reason.
    async fn git(&self, args: &[&str]) -> Result<Vec<u8>, String> {
        question(&self.git_dir, &[&["--git-dir=."], args].concat()).await
    }

    /// The commit that git has recorded last.
    async fn head(&self) -> Option<String> {
        let commit = self.git(&["rev-parse", "--verify", "--quiet", "HEAD^{commit}"]).await.ok()?;
        Some(String::from_utf8_lossy(&commit).trim().to_owned())
    }

    /// Whether its repository has no branch and no files yet. Git is not asked.
    fn is_new(&self) -> bool {
        let head = fs::read_to_string(self.git_dir.join("HEAD")).unwrap_or_default();
        let branch = head.trim_end().strip_prefix("ref: ");
        // Branches may be in one file, or in a table.
        let others = ["index", "packed-refs", "reftable"];
        let mut kept = branch.into_iter().chain(others).map(|name| self.git_dir.join(name));
        branch.is_some() && kept.all(|kept| std::fs::symlink_metadata(kept).is_err())
    }

    /// Whether git has recorded this commit and its files. A new clone has a commit, but no index.
    async fn is_recorded(&self) -> bool {
        self.git_dir.join("index").exists() && self.head().await.as_ref() == Some(&self.commit)
    }

    /// What the commit contains; the error is the reason.
    pub(super) async fn contents(&self) -> Result<Contents, String> {
        let listed = self.git(&["ls-tree", "-r", "-z", "--full-tree", &self.commit]).await?;
        let mut contents = Contents::default();
        for entry in listed.split(|byte| *byte == 0) {
            let Some(at) = entry.iter().position(|byte| *byte == b'\t') else { continue };
            let path = PathBuf::from(OsStr::from_bytes(&entry[at + 1..]));
            match entry[..at].strip_prefix(b"160000 commit ") {
                Some(id) => {
                    contents.submodules.push((path, String::from_utf8_lossy(id).into_owned()));
                }
                None => drop(contents.files.insert(path)),
            }
        }
        Ok(contents)
    }

    /// The submodules of the commit that have been fetched, or whose fetch has started.
    async fn submodules(&self, contents: Contents) -> Vec<Self> {
        if contents.submodules.is_empty() {
            return Vec::new();
        }
        let blob = format!("--blob={}:.gitmodules", self.commit);
        let names = ["config", "-z", &blob, "--get-regexp", r"^submodule\..*\.path$"];
        let names = self.git(&names).await.unwrap_or_default();
        let names = names.split(|byte| *byte == 0).filter_map(|entry| {
            let at = entry.iter().position(|byte| *byte == b'\n')?;
            let name = entry[..at].strip_prefix(b"submodule.")?.strip_suffix(b".path")?;
            Some((OsStr::from_bytes(&entry[at + 1..]), Path::new(OsStr::from_bytes(name))))
        });
        let names = names.filter(|(_, name)| is_below(name)).collect::<Vec<_>>();
        let submodules = contents.submodules.into_iter().filter_map(|(path, commit)| {
            let (_, name) = names.iter().find(|(of, _)| *of == path.as_os_str())?;
            let (dir, git_dir) = (self.dir.join(&path), self.git_dir.join("modules").join(name));
            let is_link = copy::is_behind_link(&self.dir, &path) || dir.is_symlink();
            let is_there = !is_link && git_dir.is_dir();
            is_there.then_some(Self { dir, git_dir, commit, is_submodule: true })
        });
        submodules.collect()
    }

    /// Removes these files from the work tree, but for states, and the directories that are empty then: an empty
    /// directory is a valid module.
    fn remove(&self, contents: &Contents) -> io::Result<()> {
        for file in &contents.files {
            if states::is_state(file) || copy::is_behind_link(&self.dir, file) {
                continue;
            }
            copy::remove(&self.dir.join(file))?;
        }
        let parents =
            |file: &'_ PathBuf| file.ancestors().skip(1).map(Path::to_owned).collect::<Vec<_>>();
        let parents = contents.files.iter().flat_map(parents).collect::<BTreeSet<_>>();
        for parent in parents.iter().rev().filter(|parent| !copy::is_behind_link(&self.dir, parent))
        {
            // One that is not empty has files of others.
            drop(fs::remove_dir(self.dir.join(parent)));
        }
        Ok(())
    }
}
