//! Where terragrunt keeps what it works on: its cache beside the configuration. It starts nothing.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use fs_err as fs;

/// The cache has a directory for each working directory, in it one for each source, and in that the module.
const MAX_DEPTH: u32 = 8;

/// Where terragrunt has run the tool since this time, if that is in the cache of `dir`: terragrunt writes its
/// list of copied files again for each command.
pub(crate) fn ran_in(dir: &Path, since: SystemTime) -> Option<PathBuf> {
    let mut newest = None;
    let mut to_do = vec![(dir.join(".terragrunt-cache"), MAX_DEPTH)];
    while let Some((dir, depth)) = to_do.pop() {
        let manifest = fs::metadata(dir.join(".terragrunt-module-manifest"));
        if let Ok(time) = manifest.and_then(|manifest| manifest.modified()) {
            newest = newest.max(Some((time, dir.clone())));
        }
        let is_kept = |name: &OsStr| name != ".terraform" && name != ".git";
        // A directory that is not there, or cannot be read, is not where terragrunt was.
        for entry in fs::read_dir(&dir).into_iter().flatten().flatten() {
            let is_dir = entry.file_type().is_ok_and(|kind| kind.is_dir());
            if is_dir && depth > 0 && is_kept(&entry.file_name()) {
                to_do.push((entry.path(), depth - 1));
            }
        }
    }
    newest.filter(|(time, _)| *time >= since).map(|(_, dir)| dir)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn the_newest_list_of_copied_files_says_where_the_tool_ran() {
        let root = tempfile::tempdir().unwrap();
        let now = SystemTime::now();
        assert_eq!(ran_in(root.path(), now), None);
        let cache = root.path().join(".terragrunt-cache");
        for (age, dir) in [(20, "a/b"), (10, "a/c/sub/dir"), (30, "d/e")] {
            fs::create_dir_all(cache.join(dir)).unwrap();
            let manifest = cache.join(dir).join(".terragrunt-module-manifest");
            let file = fs::File::create(manifest).unwrap();
            file.file().set_modified(now - Duration::from_secs(age)).unwrap();
        }
        let before = |seconds| ran_in(root.path(), now - Duration::from_secs(seconds));
        assert_eq!(before(60), Some(cache.join("a/c/sub/dir")));
        assert_eq!(before(5), None, "of an earlier run");
    }
}
