//! A read-only directory, copied so that the tool can work in it.

use std::collections::BTreeSet;
use std::io::{self, Write as _};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt};
use std::path::{Path, PathBuf};

use fs_err as fs;

/// Names what a copy brought, so that the next one into the same directory can take it away again.
const LIST: &str = ".plancha-copied";

/// Copies `from` into `to`, which may hold an earlier copy and what the tool left beside it: files
/// that are gone from `from` go, the tool's own stay. Links are followed, as a mounted ConfigMap
/// needs it; its `..data` directories are left out.
pub(super) fn tree(from: &Path, to: &Path) -> io::Result<()> {
    let mut copied = BTreeSet::new();
    copy(from, to, Path::new(""), &mut Vec::new(), &mut copied)?;
    let list = to.join(LIST);
    for line in fs::read_to_string(&list).unwrap_or_default().lines() {
        let stale = Path::new(line);
        let ours = stale.components().all(|part| matches!(part, std::path::Component::Normal(_)));
        if ours && !copied.contains(stale) {
            match fs::remove_file(to.join(stale)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
    }
    let mut list = crate::process::private_file(&list)?;
    for path in copied {
        writeln!(list, "{}", path.display())?;
    }
    Ok(())
}

/// `above` holds the directories on the way down, so that a link to one of them is no endless way.
fn copy(
    from: &Path,
    to: &Path,
    below: &Path,
    above: &mut Vec<(u64, u64)>,
    copied: &mut BTreeSet<PathBuf>,
) -> io::Result<()> {
    let metadata = fs::metadata(from.join(below))?;
    let identity = (metadata.dev(), metadata.ino());
    if above.contains(&identity) {
        return Err(io::Error::other(format!(
            "{} is a link to a directory that holds it",
            from.join(below).display()
        )));
    }
    above.push(identity);
    for entry in fs::read_dir(from.join(below))? {
        let name = entry?.file_name();
        if name.as_encoded_bytes().starts_with(b"..") || name == ".terraform" || name == ".git" {
            continue;
        }
        let path = below.join(name);
        let metadata = match fs::metadata(from.join(&path)) {
            // A link to nothing: git keeps such, and terraform ignores them.
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            other => other?,
        };
        if metadata.is_dir() {
            match fs::create_dir(to.join(&path)) {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
                _ => copy(from, to, &path, above, copied)?,
            }
        } else if metadata.is_file() {
            let mut source = fs::File::open(from.join(&path))?;
            let mut target = crate::process::private_file(&to.join(&path))?;
            io::copy(&mut source, &mut target)?;
            let executable = metadata.permissions().mode() & 0o100;
            target.set_permissions(PermissionsExt::from_mode(0o600 | executable))?;
            copied.insert(path);
        }
    }
    above.pop();
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(dir: &Path) -> Vec<String> {
        let mut names = fs::read_dir(dir)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .filter(|name| name != LIST)
            .collect::<Vec<_>>();
        names.sort();
        names
    }

    #[test]
    fn a_mounted_config_map_is_copied_as_plain_files() {
        let dir = tempfile::tempdir().unwrap();
        let (from, to) = (dir.path().join("from"), dir.path().join("to"));
        fs::create_dir_all(from.join("..2026")).unwrap();
        fs::create_dir(&to).unwrap();
        fs::write(from.join("..2026/main.tf"), "# main").unwrap();
        fs::os::unix::fs::symlink("..2026", from.join("..data")).unwrap();
        fs::os::unix::fs::symlink("..data/main.tf", from.join("main.tf")).unwrap();
        tree(&from, &to).unwrap();
        assert_eq!(names(&to), ["main.tf"]);
        assert!(fs::symlink_metadata(to.join("main.tf")).unwrap().is_file());
    }

    #[test]
    fn a_second_copy_takes_away_what_is_gone_and_leaves_what_the_tool_made() {
        let dir = tempfile::tempdir().unwrap();
        let (from, to) = (dir.path().join("from"), dir.path().join("to"));
        fs::create_dir_all(from.join("sub")).unwrap();
        fs::create_dir(&to).unwrap();
        fs::write(from.join("old.tf"), "").unwrap();
        fs::write(from.join("sub/x.sh"), "").unwrap();
        fs::set_permissions(from.join("sub/x.sh"), PermissionsExt::from_mode(0o555)).unwrap();
        tree(&from, &to).unwrap();
        fs::write(to.join("terraform.tfstate"), "{}").unwrap();
        fs::remove_file(from.join("old.tf")).unwrap();
        fs::write(from.join("new.tf"), "").unwrap();
        tree(&from, &to).unwrap();
        assert_eq!(names(&to), ["new.tf", "sub", "terraform.tfstate"]);
        assert_eq!(fs::metadata(to.join("sub/x.sh")).unwrap().permissions().mode() & 0o777, 0o700);
    }

    #[test]
    fn a_link_in_a_circle_is_an_error_and_not_endless() {
        let dir = tempfile::tempdir().unwrap();
        let (from, to) = (dir.path().join("from"), dir.path().join("to"));
        fs::create_dir_all(&from).unwrap();
        fs::create_dir(&to).unwrap();
        fs::os::unix::fs::symlink(&from, from.join("again")).unwrap();
        assert!(tree(&from, &to).unwrap_err().to_string().contains("again"));
    }
}
