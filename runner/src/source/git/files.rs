//! The files of a work tree, as git lists them.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use crate::source::error::CheckoutError;
use crate::source::git::command::question;
use crate::source::git::work_tree::may_have_git;

/// The files of a directory, by their paths below it.
#[derive(Debug, Default)]
pub(crate) struct TreeFiles {
    /// Those that git tracks, with the tracked files of submodules.
    pub(crate) tracked: BTreeSet<PathBuf>,
    /// Untracked ones that no `.gitignore` excludes. Those of submodules are not among them.
    pub(crate) not_ignored: BTreeSet<PathBuf>,
}

/// Lists the files below `dir`. `None`: it is in no work tree. The error is git's reason.
pub(crate) async fn files(dir: &Path) -> Result<Option<TreeFiles>, String> {
    if !may_have_git(dir) {
        return Ok(None);
    }
    let list = async |args: &[&str]| question(dir, &[&["ls-files", "-z"], args].concat()).await;
    let (tracked, not_ignored) = tokio::join!(
        list(&["--cached", "--recurse-submodules"]),
        list(&["--others", "--exclude-standard"])
    );
    match (tracked, not_ignored) {
        (Ok(tracked), Ok(not_ignored)) => {
            Ok(Some(TreeFiles { tracked: paths(&tracked), not_ignored: paths(&not_ignored) }))
        }
        // With a `.git`, `not a git repository` means that it is broken: which files it ignores is not known.
        (Err(why), _) | (_, Err(why)) => Err(why),
    }
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
