//! State files in a work directory. A checkout or copy never replaces or removes one: it may be the only record of what an
//! apply created.

pub(crate) mod file;
mod kept;
pub(crate) mod name;

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use fs_err as fs;
use serde::de::IgnoredAny;

pub(crate) use kept::{
    KeptState, PushRecord, is_record, output_of, record_of, remove_orphaned_records, source_beside,
};

use crate::source::regular;

/// Whether this is a state, a backup of one, or belongs to the states of other workspaces.
pub(crate) fn is_state(path: &Path) -> bool {
    path.components().any(|part| {
        let name = part.as_os_str().as_bytes();
        name.windows(8).any(|part| part == b".tfstate")
    })
}

/// The state files below a directory, by their paths below it. What git and the tool keep for themselves is left
/// out, and links to directories are not followed.
pub(super) fn find(dir: &Path) -> io::Result<Vec<PathBuf>> {
    let (mut found, mut to_do) = (Vec::new(), vec![PathBuf::new()]);
    while let Some(below) = to_do.pop() {
        for entry in fs::read_dir(dir.join(&below))? {
            let entry = entry?;
            let (path, name) = (below.join(entry.file_name()), entry.file_name());
            if entry.file_type()?.is_dir() {
                if name != ".git" && name != ".terraform" {
                    to_do.push(path);
                }
            } else if is_state(&path) {
                found.push(path);
            }
        }
    }
    found.sort();
    Ok(found)
}

/// The file in which the tool saves a state that its backend did not accept.
pub(crate) const ERRORED: &str = "errored.tfstate";

/// The name of one of several such states in one directory.
pub(crate) fn errored_name(index: usize) -> String {
    if index == 0 { ERRORED.to_owned() } else { format!("errored-{}.tfstate", index + 1) }
}

/// Whether a file has such a name.
pub(crate) fn is_kept(name: &OsStr) -> bool {
    let name = name.to_string_lossy();
    name.starts_with("errored") && name.ends_with(".tfstate")
}

/// The files with such names in a directory.
pub(crate) fn kept(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    entries.filter(|entry| is_kept(&entry.file_name())).map(|entry| entry.path()).collect()
}

/// Whether a file is a whole JSON document. On a full disk the tool leaves an empty or truncated one.
pub(crate) fn is_whole(file: &Path) -> bool {
    let file = match regular::open(file) {
        Ok(file) => file,
        // A state of another user: that it cannot be read does not show whether it is whole.
        Err(error) => return error.kind() == io::ErrorKind::PermissionDenied,
    };
    serde_json::from_reader::<_, IgnoredAny>(io::BufReader::new(file)).is_ok()
}

/// The states below a directory that no backend accepted. A directory that cannot be read is an error: a state may be in
/// it.
pub(crate) fn errored(dir: &Path) -> io::Result<Vec<PathBuf>> {
    let (mut found, mut to_do) = (Vec::new(), vec![dir.to_owned()]);
    while let Some(dir) = to_do.pop() {
        // It may be removed meanwhile.
        for entry in if_there(fs::read_dir(&dir))?.into_iter().flatten() {
            let entry = entry?;
            let name = entry.file_name();
            let Some(kind) = if_there(entry.file_type())? else { continue };
            if kind.is_dir() && name != ".git" && name != ".terraform" {
                to_do.push(entry.path());
            } else if kind.is_file() && name == ERRORED {
                found.push(entry.path());
            }
        }
    }
    found.sort();
    Ok(found)
}

/// The result for a path that may lead nowhere. `None`: it does.
fn if_there<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    let missing = [io::ErrorKind::NotFound, io::ErrorKind::NotADirectory];
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if missing.contains(&error.kind()) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Those of the module in this directory, and of what terragrunt has copied from it.
pub(crate) fn errored_in_place(dir: &Path) -> io::Result<Vec<PathBuf>> {
    let file = dir.join(ERRORED);
    let own = if_there(fs::metadata(&file))?.is_some_and(|metadata| metadata.is_file());
    let mut found = errored(&dir.join(".terragrunt-cache"))?;
    if own {
        found.insert(0, file);
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_are_found_by_their_names_at_any_depth() {
        let dir = tempfile::tempdir().unwrap();
        let states = [
            "a/b/terraform.tfstate.backup",
            "a/prod.tfstate",
            "terraform.tfstate",
            "terraform.tfstate.d/dev/x",
        ];
        let others = [".git/x.tfstate", "a/.terraform/terraform.tfstate", "a/main.tf", "tfstate"];
        for file in states.iter().chain(&others) {
            fs::create_dir_all(dir.path().join(file).parent().unwrap()).unwrap();
            fs::write(dir.path().join(file), "").unwrap();
        }
        fs::os::unix::fs::symlink("..", dir.path().join("a/up")).unwrap();
        assert_eq!(find(dir.path()).unwrap(), states.map(PathBuf::from));
    }

    #[test]
    fn directory_that_cannot_be_read_is_not_one_without_states() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join(ERRORED), "{}").unwrap();
        // To root, only a link to itself and a path that is too long cannot be read.
        let cache = dir.path().join(".terragrunt-cache");
        fs::os::unix::fs::symlink(&cache, &cache).unwrap();
        let error = errored_in_place(dir.path()).unwrap_err().to_string();
        assert!(error.contains(".terragrunt-cache"), "{error}");
        let below = |parent: &Path| {
            let mut dir = parent.to_owned();
            for _ in 0..11 {
                dir.push("d".repeat(200));
            }
            dir
        };
        let [outer, inner] = ["outer", "inner"].map(|name| dir.path().join(name));
        fs::create_dir_all(below(&outer)).unwrap();
        fs::create_dir_all(below(&inner)).unwrap();
        fs::rename(inner, below(&outer).join("i")).unwrap();
        errored(&outer).unwrap_err();
        // So that it can be removed.
        fs::rename(below(&outer).join("i"), dir.path().join("inner")).unwrap();
        assert!(errored(&outer).unwrap().is_empty());
        fs::remove_file(cache).unwrap();
        assert_eq!(errored_in_place(dir.path()).unwrap(), [dir.path().join(ERRORED)]);
    }
}
