//! One digest of many files: their names, contents and links, and which of them are executable.
//!
//! It compares code that has no commit: downloaded modules, archives, copied directories. This module does not know what a
//! difference means.

use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use datastore_api::Sha256;
use datastore_api::digest::Hasher;
use fs_err as fs;

use crate::source::archive::link::is_inside;
use crate::source::snapshot::{SnapshotError, before, is_code};

/// The digest of the code below `root`, before a tool has worked there.
pub(crate) fn of_source(root: &Path) -> Result<Sha256, SnapshotError> {
    of_copied(root, before(root)?.keys())
}

/// The digest of the code among these files below `root`. Nothing else there counts.
pub(crate) fn of_copied<'a>(
    root: &Path,
    files: impl Iterator<Item = &'a PathBuf>,
) -> Result<Sha256, SnapshotError> {
    digest(root, files.filter(|path| is_code(path)))
}

/// The digest of these files below `root`, which come in a fixed order. Links count by their targets if they lead to
/// another file below it.
pub(crate) fn digest<'a>(
    root: &Path,
    files: impl Iterator<Item = &'a PathBuf>,
) -> Result<Sha256, SnapshotError> {
    let mut all = Hasher::default();
    for path in files {
        let failed = |error| SnapshotError::File(root.join(path), error);
        if let Some((kind, contents)) = contents(&root.join(path), path).map_err(failed)? {
            // Each part has a fixed length: no name can be taken for the content of another.
            all.update(&Sha256::of(path.as_os_str().as_bytes()).0);
            all.update(&[kind]);
            all.update(&contents.0);
        }
    }
    Ok(all.finish())
}

/// The kind of a file and the digest of its contents. `None` for one that does not count.
fn contents(file: &Path, path: &Path) -> io::Result<Option<(u8, Sha256)>> {
    let metadata = fs::symlink_metadata(file)?;
    if metadata.is_symlink() {
        let target = fs::read_link(file)?;
        let digest = Sha256::of(target.as_os_str().as_bytes());
        return Ok(is_inside(path, &target).then_some((b'l', digest)));
    }
    if !metadata.is_file() {
        return Ok(None);
    }
    let kind = if metadata.mode() & 0o100 == 0 { b'f' } else { b'x' };
    Ok(Some((kind, Sha256::of_reader(fs::File::open(file)?)?)))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn each_change_of_the_code_changes_the_digest_and_no_other_file_does() {
        let dir = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let path = dir.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        let digest = || of_source(dir.path()).unwrap();
        write("main.tf", "a");
        let mut seen = vec![digest()];
        for (name, text) in [("script.sh", "a"), ("script.sh", "b"), ("m/t.tpl", "")] {
            write(name, text);
            assert!(!seen.contains(&digest()), "{name}");
            seen.push(digest());
        }
        let script = dir.path().join("script.sh");
        fs::set_permissions(script, std::fs::Permissions::from_mode(0o755)).unwrap();
        assert!(!seen.contains(&digest()), "executable");
        let last = digest();
        for name in [
            ".git/HEAD",
            "m/.git",
            ".terraform/modules/a/main.tf",
            ".terraform/environment",
            ".terragrunt-cache/x",
            ".plancha-copied",
            "m/terraform.tfstate",
            "terraform.tfstate.d/dev/x.tfstate",
        ] {
            write(name, "x");
            assert_eq!(digest(), last, "{name}");
        }
        write(".terraform.lock.hcl", "x");
        assert_ne!(digest(), last, "the lock file is code");
    }
}
