//! Git's status of a work tree and of every submodule in it. Git itself hides submodules that a configuration ignores, and
//! below the first level no option shows them.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use crate::source::git::command::question;
use crate::source::git::index::Index;

/// Changes of submodules are those of their commits: their files have a status of their own.
const STATUS: &[&str] = &[
    "status",
    "--porcelain=v1",
    "--no-renames",
    "-z",
    "--untracked-files=all",
    "--ignore-submodules=dirty",
];

/// The status of the work tree and its submodules: entries `XY path`, each with a NUL byte behind it, with paths below `top`.
/// With it comes the index of the work tree. The error is git's reason.
pub(super) async fn status(top: &Path) -> Result<(Vec<u8>, Index), String> {
    let (own, index) = tokio::join!(question(top, STATUS), Index::read(top));
    let (mut all, index) = (own?, index?);
    for below in submodules(top, &index).await? {
        let status = question(&top.join(&below), STATUS).await?;
        for entry in status.split(|byte| *byte == 0) {
            let Some((change, path)) = entry.split_at_checked(3) else { continue };
            all.extend_from_slice(change);
            all.extend_from_slice(below.join(OsStr::from_bytes(path)).as_os_str().as_bytes());
            all.push(0);
        }
    }
    Ok((all, index))
}

/// The submodules that are checked out below a directory, at every depth. `index` is that of the directory.
pub(super) async fn submodules(dir: &Path, index: &Index) -> Result<Vec<PathBuf>, String> {
    let mut found = Vec::new();
    let add = |found: &mut Vec<PathBuf>, below: &Path, index: &Index| {
        for path in index.submodules().map(|path| below.join(path)) {
            // In a merge a path has several entries.
            if dir.join(&path).join(".git").exists() && !found.contains(&path) {
                found.push(path);
            }
        }
    };
    add(&mut found, Path::new(""), index);
    let mut next = 0;
    while let Some(below) = found.get(next).cloned() {
        add(&mut found, &below, &Index::read(&dir.join(&below)).await?);
        next += 1;
    }
    Ok(found)
}
