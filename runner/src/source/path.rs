//! Resolves paths in the code, and keeps them inside of it.

use std::path::{Component, Path, PathBuf};

use fs_err as fs;

use crate::source::error::CheckoutError;

/// The absolute path without links and `..`, also of what does not exist.
pub(crate) fn resolve(path: &Path) -> std::io::Result<PathBuf> {
    let reversed = |path: &Path| {
        path.components().rev().map(|part| PathBuf::from(part.as_os_str())).collect::<Vec<_>>()
    };
    // The kernel's limit.
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

/// Why no relative path can be used, and the next step.
pub(crate) const NO_CURRENT_DIRECTORY: &str = "the current directory no longer exists";
pub(crate) const CHANGE_DIRECTORY: &str = "change into an existing directory";

/// Whether a path is relative to a current directory that was removed. The system may still find `.` itself.
pub(crate) fn is_in_removed_directory(path: &Path) -> bool {
    let is_gone = |error: std::io::Error| error.kind() == std::io::ErrorKind::NotFound;
    path.is_relative() && std::env::current_dir().is_err_and(is_gone)
}

/// Without `.` and `..`, and without following links, as git names files.
pub(crate) fn normal(path: &Path) -> PathBuf {
    let mut normal = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => {
                normal.pop();
            }
            Component::CurDir => {}
            part => normal.push(part),
        }
    }
    normal
}

/// The first link on the way from a directory to a path below it, and the path that it leads to.
pub(super) fn first_link(dir: &Path, path: &Path) -> Option<(PathBuf, PathBuf)> {
    let mut link = dir.to_owned();
    path.strip_prefix(dir).ok()?.components().find_map(|part| {
        link.push(part);
        let target = std::fs::read_link(&link).ok()?;
        let rest = path.strip_prefix(&link).unwrap_or(Path::new(""));
        let above = link.parent().unwrap_or(dir);
        Some((link.clone(), normal(&above.join(target).join(rest))))
    })
}

/// Whether the path names something below a directory, without `..`.
pub(super) fn is_below(path: &Path) -> bool {
    path.components().next().is_some()
        && path.components().all(|part| matches!(part, Component::Normal(_)))
}

/// Refuses what is at `path` in the source, if it is something else than a directory. It need not exist yet.
pub(super) fn check_directory(root: &Path, path: &Path) -> Result<(), CheckoutError> {
    match fs::metadata(root.join(path)) {
        Ok(found) if found.is_dir() => Ok(()),
        Ok(_) => Err(CheckoutError::FilePath { path: path.to_owned() }),
        Err(error) => match error.kind() {
            std::io::ErrorKind::NotFound => Ok(()),
            std::io::ErrorKind::NotADirectory => {
                let is_file = |path: &&Path| root.join(path).is_file();
                let file = path.ancestors().find(is_file).unwrap_or(path);
                Err(CheckoutError::FilePath { path: file.to_owned() })
            }
            _ => Err(CheckoutError::Unreadable(error)),
        },
    }
}

/// The working directory: `path` below `root`, which must exist and not lead out of `root` by a link.
pub(super) fn inside(root: &Path, path: &Path) -> Result<PathBuf, CheckoutError> {
    let root = fs::canonicalize(root)?;
    let missing = || CheckoutError::NoSuchPath { path: path.to_owned() };
    check_directory(&root, path)?;
    let dir = match fs::canonicalize(root.join(path)) {
        Ok(dir) if dir.is_dir() => dir,
        Ok(_) => return Err(missing()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Err(missing()),
        Err(error) => return Err(CheckoutError::Unreadable(error)),
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
