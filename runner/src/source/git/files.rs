//! The files of a work tree, as git lists them.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use crate::source::error::CheckoutError;
use crate::source::git::command::question;
use crate::source::git::index::Index;
use crate::source::git::nested;
use crate::source::git::work_tree::{may_have_git, top};

/// The files of a directory, by their paths below it.
#[derive(Debug, Default)]
pub(crate) struct TreeFiles {
    /// Those that git tracks, with the tracked files of submodules.
    pub(crate) tracked: BTreeSet<PathBuf>,
    /// Untracked ones that no `.gitignore` excludes, with those of submodules.
    pub(crate) not_ignored: BTreeSet<PathBuf>,
}

/// Lists the files below `dir`. `None`: it is in no work tree. The error is git's reason.
pub(crate) async fn files(dir: &Path) -> Result<Option<TreeFiles>, String> {
    if !may_have_git(dir) {
        return Ok(None);
    }
    // With a `.git`, `not a git repository` means that it is broken: which files it ignores is not known.
    let (index, not_ignored) = tokio::join!(Index::read(dir), not_ignored_in(dir));
    let (index, mut files) = (index?, not_ignored?);
    if !index.has_submodules() {
        return Ok(Some(TreeFiles { tracked: index.files(), not_ignored: files }));
    }
    for tree in nested::submodules(dir, &index).await? {
        let below = not_ignored_in(&dir.join(&tree)).await?;
        files.extend(below.into_iter().map(|file| tree.join(file)));
    }
    let tracked = question(dir, &["ls-files", "-z", "--cached", "--recurse-submodules"]).await?;
    Ok(Some(TreeFiles { tracked: paths(&tracked), not_ignored: files }))
}

/// The files that git tracks in the work tree that holds `dir`, with those of submodules, by their full paths. `None`: there
/// is no work tree. The error is git's reason.
pub(crate) async fn tracked_files(dir: &Path) -> Result<Option<BTreeSet<PathBuf>>, String> {
    let Some(top) = top(dir).await else { return Ok(None) };
    let listed = question(&top, &["ls-files", "-z", "--recurse-submodules"]).await?;
    Ok(Some(paths(&listed).iter().map(|file| top.join(file)).collect()))
}

/// The untracked files of a directory, without those of submodules, that no `.gitignore` excludes.
async fn not_ignored_in(dir: &Path) -> Result<BTreeSet<PathBuf>, String> {
    let listed = question(dir, &["ls-files", "-z", "--others", "--exclude-standard"]).await?;
    Ok(paths(&listed))
}

/// The files of a checkout that has its repository in the directory itself, with those of submodules.
pub(in crate::source) async fn checked_out(dir: &Path) -> Result<BTreeSet<PathBuf>, CheckoutError> {
    if !dir.join(".git/index").exists() {
        return Ok(BTreeSet::new());
    }
    let listed = question(dir, &["ls-files", "-z", "--recurse-submodules"]).await;
    Ok(paths(&listed.map_err(|reason| CheckoutError::Git { reason })?))
}

/// The paths in a list of git whose entries end with a NUL byte.
pub(super) fn paths(names: &[u8]) -> BTreeSet<PathBuf> {
    let names = names.split(|byte| *byte == 0).filter(|name| !name.is_empty());
    names.map(|name| PathBuf::from(OsStr::from_bytes(name))).collect()
}
