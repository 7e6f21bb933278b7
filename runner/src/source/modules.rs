//! Finds the modules of unpacked code. An archive often has one directory at its top, with everything in it.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};

use fs_err as fs;

use crate::source::error::CheckoutError;
use crate::tool::file_names;

/// More directories than this are not searched.
const MAX_DIRECTORIES: usize = 10_000;
/// At most as many modules are named in a message.
const MAX_NAMED: usize = 3;

/// Refuses an archive without a module in `path`, and names the directories that have one.
pub(super) fn check(archive: &Path, root: &Path, path: &Path) -> Result<(), CheckoutError> {
    let dir = root.join(path);
    if has_configuration(&dir) {
        return Ok(());
    }
    let modules = find(root);
    let below =
        modules.iter().filter(|module| !path.as_os_str().is_empty() && module.ends_with(path));
    let below = below.collect::<Vec<_>>();
    let candidates = if below.is_empty() { modules.iter().collect() } else { below };
    Err(CheckoutError::NoModule {
        archive: archive.to_owned(),
        path: path.to_owned(),
        exists: dir.is_dir(),
        candidates: candidates.into_iter().take(MAX_NAMED).cloned().collect(),
    })
}

/// The directories with configuration files, those at the top first.
fn find(root: &Path) -> Vec<PathBuf> {
    let (mut found, mut to_do) = (Vec::new(), VecDeque::from([PathBuf::new()]));
    let mut seen = 0;
    while let Some(below) = to_do.pop_front() {
        seen += 1;
        let Ok(entries) = fs::read_dir(root.join(&below)) else { continue };
        if seen > MAX_DIRECTORIES {
            break;
        }
        let directories =
            entries.flatten().filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
        let mut directories =
            directories.map(|entry| below.join(entry.file_name())).collect::<Vec<_>>();
        directories.sort();
        found.extend(has_configuration(&root.join(&below)).then_some(below));
        to_do.extend(directories);
    }
    found
}

/// Whether a directory has code, or a configuration of terragrunt.
pub(crate) fn has_configuration(dir: &Path) -> bool {
    let mut entries = fs::read_dir(dir).into_iter().flatten().flatten();
    entries.any(|entry| {
        let name = entry.file_name();
        let name = name.as_encoded_bytes();
        !name.starts_with(b".") && file_names::is_module(name)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_code_and_terragrunt_files_are_configuration() {
        for (name, expected) in [
            ("main.tf", true),
            ("terragrunt.hcl", true),
            ("region.hcl", true),
            ("terraform.tfvars", false),
            (".terraform.lock.hcl", false),
            ("main.tf~", false),
        ] {
            let dir = tempfile::tempdir().unwrap();
            fs::write(dir.path().join(name), "").unwrap();
            assert_eq!(has_configuration(dir.path()), expected, "{name}");
        }
    }

    #[test]
    fn modules_at_the_top_are_found_first() {
        let dir = tempfile::tempdir().unwrap();
        for file in ["x/b/main.tf", "x/a/deep/main.tofu", "x/a/README.md", "x/.terraform.lock.hcl"]
        {
            let file = dir.path().join(file);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, "").unwrap();
        }
        assert_eq!(find(dir.path()), [Path::new("x/b"), Path::new("x/a/deep")]);
        let error = check(Path::new("x.tar"), dir.path(), Path::new("b")).unwrap_err();
        let CheckoutError::NoModule { candidates, exists: false, .. } = error else {
            panic!("{error}")
        };
        assert_eq!(candidates, [Path::new("x/b")]);
        check(Path::new("x.tar"), dir.path(), Path::new("x/a/deep")).unwrap();
    }
}
