//! State files in a work directory. A checkout or copy never replaces or removes one: it may be the only record of
//! what an apply has created.

use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use fs_err as fs;

/// Whether this is a state, a backup of one, or belongs to the states of other workspaces.
pub(super) fn is_state(path: &Path) -> bool {
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
}
