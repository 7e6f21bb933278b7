//! Git's status of a work tree and of every submodule in it. Git itself hides submodules that a configuration ignores, and
//! below the first level no option shows them.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use crate::source::git::command::question;

/// Changes of submodules are those of their commits: their files have a status of their own.
const STATUS: &[&str] = &[
    "status",
    "--porcelain=v1",
    "--no-renames",
    "-z",
    "--untracked-files=all",
    "--ignore-submodules=dirty",
];
/// The mode of a submodule in the index.
const GITLINK: &[u8] = b"160000 ";

/// The status of the work tree and its submodules: entries `XY path`, each with a NUL byte behind it, with paths below `top`.
/// The error is git's reason.
pub(super) async fn status(top: &Path) -> Result<Vec<u8>, String> {
    let (own, submodules) = tokio::join!(question(top, STATUS), submodules(top));
    let mut all = own?;
    for below in submodules? {
        let status = question(&top.join(&below), STATUS).await?;
        for entry in status.split(|byte| *byte == 0) {
            let Some((change, path)) = entry.split_at_checked(3) else { continue };
            all.extend_from_slice(change);
            all.extend_from_slice(below.join(OsStr::from_bytes(path)).as_os_str().as_bytes());
            all.push(0);
        }
    }
    Ok(all)
}

/// The submodules that are checked out below a directory, at every depth.
pub(super) async fn submodules(dir: &Path) -> Result<Vec<PathBuf>, String> {
    let (mut found, mut to_do) = (Vec::new(), vec![PathBuf::new()]);
    while let Some(below) = to_do.pop() {
        let index = question(&dir.join(&below), &["ls-files", "--stage", "-z"]).await?;
        for entry in index.split(|byte| *byte == 0).filter(|entry| entry.starts_with(GITLINK)) {
            let Some(at) = entry.iter().position(|byte| *byte == b'\t') else { continue };
            let path = below.join(OsStr::from_bytes(&entry[at + 1..]));
            // In a merge a path has several entries.
            if dir.join(&path).join(".git").exists() && !found.contains(&path) {
                found.push(path.clone());
                to_do.push(path);
            }
        }
    }
    Ok(found)
}
