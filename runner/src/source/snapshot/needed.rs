//! Which of the files that init and plan read a snapshot lacks. An apply without them could do something else than its
//! plan.
//!
//! Files that the configuration names literally are known. Of paths that it computes only the literal parts are, and what
//! providers read is not.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use crate::source::path::first_link;
use crate::source::references::installed::Called;
use crate::source::references::{self, computed};
use crate::source::snapshot::SnapshotError;
use crate::source::snapshot::select::Selected;

/// No path leads through more links.
const MAX_LINKS: usize = 40;

/// Adds what the root module in `module` names to the files that are left out, and finds those that it may name. A snapshot without configuration is an
/// error. Both are paths of the source: `root` is its root, and `module` is below it. `called`: the modules of which only init knows.
pub(crate) fn check(
    root: &Path,
    module: &Path,
    called: &Called,
    selected: &mut Selected,
) -> Result<(), SnapshotError> {
    let module = root.join(module);
    let read = references::read(&module, called);
    let read = read.map_err(|error| SnapshotError::File(module.clone(), error))?;
    let lacking = |files: &BTreeSet<PathBuf>| {
        let lacking = files.iter().filter(|file| !is_packed(root, file, selected));
        lacking.map(|file| below(root, file).unwrap_or(file).to_owned()).collect()
    };
    let code: BTreeSet<_> = lacking(&read.code);
    if !code.is_empty() {
        return Err(SnapshotError::NoConfiguration(code));
    }
    let files: BTreeSet<_> = lacking(&read.files);
    selected.left_out.extend(files);
    selected.outside = read.outside.iter().map(|(name, _)| PathBuf::from(name)).collect();
    // To search the configuration takes as long as to read it.
    if !selected.excluded.is_empty() {
        let unnamed = selected.excluded.difference(&selected.left_out).map(PathBuf::as_path);
        selected.may_be_read = computed::may_name(&read, root, &module, unnamed);
    }
    Ok(())
}

/// Whether the snapshot has a file, with the links on the way to it.
fn is_packed(root: &Path, file: &Path, selected: &Selected) -> bool {
    let mut file = file.to_owned();
    for _ in 0..MAX_LINKS {
        let is_selected =
            |path: &Path| below(root, path).is_some_and(|path| selected.files.contains(path));
        match first_link(root, &file) {
            None => return is_selected(&file),
            Some((link, _)) if !is_selected(&link) => return false,
            Some((_, target)) => file = target,
        }
    }
    false
}

fn below<'a>(root: &Path, file: &'a Path) -> Option<&'a Path> {
    file.strip_prefix(root).ok()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use fs_err as fs;

    use super::*;
    use crate::source::snapshot::{SourceFiles, before, select};

    /// What is left out of a source with these files, all of which existed before init.
    fn checked(files: &[(&str, &str)], links: &[(&str, &str)]) -> Result<Vec<String>, String> {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("root");
        for (name, text) in files {
            let path = root.join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        for (link, target) in links {
            symlink(target, root.join(link)).unwrap();
        }
        let source = SourceFiles { before: before(&root).unwrap(), ..SourceFiles::default() };
        let mut selected = select(&root, &source).unwrap();
        check(&root, Path::new("live"), &Called::new(), &mut selected)
            .map_err(|error| error.to_string())?;
        let names = selected.left_out.iter().map(|path| path.display().to_string());
        Ok(names.collect())
    }

    const MAIN: (&str, &str) = (
        "live/main.tf",
        r#"
module "m" { source = "../modules/m" }
locals {
  a = file("${path.module}/a.md")
  b = templatefile("b.tftpl", {})
  c = fileset(path.module, "c/*.md")
  d = file("linked/d.md")
  e = file("/etc/hostname")
  f = file("missing.md")
}
"#,
    );
    const READ: [(&str, &str); 6] = [
        ("modules/m/main.tf", ""),
        ("live/a.md", ""),
        ("live/b.tftpl", ""),
        ("live/c/c.md", ""),
        ("live/terraform.tfvars", ""),
        ("files/d.md", ""),
    ];
    const LINKED: [(&str, &str); 1] = [("live/linked", "../files")];

    fn with(ignored: &'static str) -> Vec<(&'static str, &'static str)> {
        [&[MAIN, (".terraformignore", ignored)][..], &READ].concat()
    }

    #[test]
    fn files_that_the_configuration_names_are_left_out_and_not_only_excluded() {
        assert_eq!(checked(&with("*.txt\nother/\n"), &LINKED).unwrap(), [] as [&str; 0]);
        assert_eq!(
            checked(&with("*.md\n*.tftpl\n*.tfvars\n"), &LINKED).unwrap(),
            [
                "live/a.md",
                "live/b.tftpl",
                "live/c/c.md",
                "live/linked/d.md",
                "live/terraform.tfvars"
            ]
        );
        assert_eq!(checked(&with("linked\n"), &LINKED).unwrap(), ["live/linked/d.md"]);
    }

    #[test]
    fn snapshot_without_configuration_of_the_root_module_or_a_called_one_is_an_error() {
        for (ignored, lacks) in [
            ("*.tf\n", "live/main.tf, modules/m/main.tf"),
            ("live/\n", "live/main.tf"),
            ("modules/\n", "modules/m/main.tf"),
        ] {
            let error = checked(&with(ignored), &LINKED).unwrap_err();
            assert!(error.ends_with(&format!(": {lacks}")), "{ignored}: {error}");
        }
        let error =
            checked(&[("live/main.tf", "module \"m\" {\n  source = \"../../m\"\n}\n")], &[]);
        assert_eq!(error.unwrap(), [] as [&str; 0], "a module that does not exist fails at init");
    }
}
