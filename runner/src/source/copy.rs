//! Copies a read-only directory so that the tool can work in it.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::io::{self, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt};
use std::path::{Component, Path, PathBuf};

use fs_err as fs;

use crate::source::states::is_state;
use crate::source::work_dir::MARK;

/// The list of the files that copies brought, so that the next copy can remove those that are gone
/// from the source. Each name ends with a NUL byte, which no file name can contain; lists of earlier
/// versions have one name per line.
const LIST: &str = ".plancha-copied";

/// Copies `from` into `to`, which may hold an earlier copy and the tool's own files: files that are
/// gone from `from` are removed, the tool's own stay, and a state file is never replaced or removed.
/// Links are followed, as a mounted ConfigMap needs it; its `..data` directories are left out.
pub(super) fn tree(from: &Path, to: &Path) -> io::Result<()> {
    let mut found = Found::default();
    found.walk(from, Path::new(""), &mut Vec::new())?;
    let list = to.join(LIST);
    let before = read_list(&list)?;
    // Both lists at once: a copy that is killed halfway leaves no file that no list names.
    write_list(&list, before.union(&found.files))?;
    for dir in &found.directories {
        match fs::create_dir(to.join(dir)) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
    }
    for file in &found.files {
        copy(&from.join(file), &to.join(file))?;
    }
    for stale in before.difference(&found.files) {
        let inside = stale.components().all(|part| matches!(part, Component::Normal(_)));
        if inside && !is_state(stale) {
            remove(&to.join(stale))?;
        }
    }
    write_list(&list, found.files.iter())
}

fn remove(file: &Path) -> io::Result<()> {
    let missing = [io::ErrorKind::NotFound, io::ErrorKind::NotADirectory];
    match fs::remove_file(file) {
        Err(error) if !missing.contains(&error.kind()) => Err(error),
        _ => Ok(()),
    }
}

fn read_list(list: &Path) -> io::Result<BTreeSet<PathBuf>> {
    let bytes = match fs::read(list) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
        other => other?,
    };
    let separator = if bytes.contains(&0) { 0 } else { b'\n' };
    let names = bytes.split(|byte| *byte == separator).filter(|name| !name.is_empty());
    Ok(names.map(|name| PathBuf::from(OsStr::from_bytes(name))).collect())
}

/// Replaces the list whole or not at all.
fn write_list<'a>(list: &Path, names: impl Iterator<Item = &'a PathBuf>) -> io::Result<()> {
    let mut new = list.as_os_str().to_owned();
    new.push(".new");
    let new = PathBuf::from(new);
    let mut file = io::BufWriter::new(crate::process::private_file(&new)?);
    for name in names {
        file.write_all(name.as_os_str().as_bytes())?;
        file.write_all(b"\0")?;
    }
    file.into_inner()?.sync_all()?;
    fs::rename(new, list)
}

fn copy(from: &Path, to: &Path) -> io::Result<()> {
    if is_state(Path::new(to.file_name().unwrap_or_default())) && fs::exists(to)? {
        tracing::info!("keeping {}: the source's copy may be older", to.display());
        return Ok(());
    }
    let mut source = fs::File::open(from)?;
    let executable = source.metadata()?.permissions().mode() & 0o100;
    let mut target = crate::process::private_file(to)?;
    io::copy(&mut source, &mut target)?;
    target.set_permissions(PermissionsExt::from_mode(0o600 | executable))
}

/// What a directory holds, by paths below it; every directory comes before its content.
#[derive(Default)]
struct Found {
    directories: Vec<PathBuf>,
    files: BTreeSet<PathBuf>,
}

impl Found {
    /// `above` has the parent directories, to detect links in a circle.
    fn walk(&mut self, from: &Path, below: &Path, above: &mut Vec<(u64, u64)>) -> io::Result<()> {
        let metadata = fs::metadata(from.join(below))?;
        let identity = (metadata.dev(), metadata.ino());
        if above.contains(&identity) {
            return Err(io::Error::other(format!(
                "{} is a link to a directory that contains it",
                from.join(below).display()
            )));
        }
        above.push(identity);
        for entry in fs::read_dir(from.join(below))? {
            let name = entry?.file_name();
            let ours = name == LIST || name == MARK;
            let is_data = name == ".terraform" || name == ".git" || ours;
            if name.as_encoded_bytes().starts_with(b"..") || is_data {
                continue;
            }
            let path = below.join(name);
            let metadata = match fs::metadata(from.join(&path)) {
                // A dangling link: git stores them, and terraform ignores them.
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                other => other?,
            };
            if metadata.is_dir() {
                self.directories.push(path.clone());
                self.walk(from, &path, above)?;
            } else if metadata.is_file() {
                self.files.insert(path);
            }
        }
        above.pop();
        Ok(())
    }
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
    fn a_file_name_with_a_newline_removes_no_other_file() {
        let dir = tempfile::tempdir().unwrap();
        let (from, to) = (dir.path().join("from"), dir.path().join("to"));
        fs::create_dir_all(&from).unwrap();
        fs::create_dir(&to).unwrap();
        fs::write(from.join("x\nkept.txt"), "").unwrap();
        tree(&from, &to).unwrap();
        fs::write(to.join("kept.txt"), "of the tool").unwrap();
        fs::remove_file(from.join("x\nkept.txt")).unwrap();
        tree(&from, &to).unwrap();
        assert_eq!(names(&to), ["kept.txt"]);
    }

    #[test]
    fn a_state_is_never_removed_or_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let (from, to) = (dir.path().join("from"), dir.path().join("to"));
        fs::create_dir_all(from.join("terraform.tfstate.d/dev")).unwrap();
        fs::create_dir(&to).unwrap();
        let states =
            ["terraform.tfstate", "terraform.tfstate.1.backup", "terraform.tfstate.d/dev/x"];
        for state in states {
            fs::write(from.join(state), "committed").unwrap();
        }
        tree(&from, &to).unwrap();
        fs::write(to.join(states[0]), "of the apply").unwrap();
        tree(&from, &to).unwrap();
        assert_eq!(fs::read_to_string(to.join(states[0])).unwrap(), "of the apply");
        for state in states {
            fs::remove_file(from.join(state)).unwrap();
        }
        // A list of an earlier version, as that wrote it for a file named "x\nterraform.tfstate".
        fs::write(to.join(LIST), "x\nterraform.tfstate\nold.tf\n").unwrap();
        fs::write(to.join("old.tf"), "").unwrap();
        tree(&from, &to).unwrap();
        assert!(states.iter().all(|state| to.join(state).exists()));
        assert!(!to.join("old.tf").exists(), "lists of earlier versions are read");
    }

    #[test]
    fn a_copy_that_was_cut_off_leaves_no_file_that_a_later_copy_does_not_know() {
        let dir = tempfile::tempdir().unwrap();
        let (from, to) = (dir.path().join("from"), dir.path().join("to"));
        fs::create_dir_all(&from).unwrap();
        fs::create_dir_all(to.join("b.tf")).unwrap();
        fs::write(from.join("a.tf"), "").unwrap();
        fs::write(from.join("b.tf"), "").unwrap();
        tree(&from, &to).unwrap_err();
        assert!(to.join("a.tf").exists(), "copied before the copy failed");
        fs::remove_file(from.join("a.tf")).unwrap();
        fs::remove_dir(to.join("b.tf")).unwrap();
        tree(&from, &to).unwrap();
        assert_eq!(names(&to), ["b.tf"]);
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
