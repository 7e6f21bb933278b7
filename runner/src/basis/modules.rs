//! The modules that init has downloaded: one digest for each, of its files.
//!
//! A plan holds what expressions have computed from them, but an apply reads their scripts and templates again, and init may
//! download a moved branch or tag. Modules that are called by a path are part of the code, and not compared here.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use datastore_api::Sha256;
use serde::{Deserialize, Serialize};

use crate::source::references::installed::{MANIFEST, installed};
use crate::source::snapshot::{Before, SnapshotError, of_module, tree};

/// Downloaded modules, by the names of their directories: `vpc`, `vpc.subnets`.
pub(crate) type Modules = BTreeMap<String, Module>;

/// A downloaded module.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Module {
    /// The digest of its files: names, contents, and which of them are executable.
    pub(crate) sha256: Sha256,
    /// The files that the plan wrote into it. They do not count: where the plan was not made they do not exist.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    generated: BTreeSet<String>,
}

/// The files of the modules right after init.
#[derive(Debug, Default)]
pub(crate) struct Downloaded(BTreeMap<String, (PathBuf, Before)>);

impl Downloaded {
    /// Lists the files of the modules of `dir`, of which the tool keeps its data in `data_dir`.
    pub(crate) fn list(dir: &Path, data_dir: &Path) -> Result<Self, SnapshotError> {
        let modules = dir.join(data_dir).join("modules");
        let installed = installed(&modules);
        let installed =
            installed.map_err(|error| SnapshotError::File(modules.join(MANIFEST), error))?;
        let mut found = BTreeMap::new();
        for module in installed {
            // A module may be in a directory of what was downloaded.
            let inside = dir.join(module.dir);
            let name = inside.strip_prefix(&modules).ok().and_then(|path| path.iter().next());
            let Some(name) = name else { continue };
            if let Entry::Vacant(entry) = found.entry(shown(Path::new(name))) {
                let root = modules.join(name);
                let files = of_module(&root)?;
                entry.insert((root, files));
            }
        }
        Ok(Self(found))
    }

    /// The digests of the files that have not changed since they were listed.
    pub(crate) fn digests(self) -> Result<Modules, SnapshotError> {
        let digest = |(name, (root, before)): (String, (PathBuf, Before))| {
            let now = of_module(&root)?;
            let paths = before.keys().chain(now.keys());
            let is_changed = |path: &&PathBuf| before.get(*path) != now.get(*path);
            let generated = paths.filter(is_changed).map(|path| shown(path)).collect();
            let sha256 = digest(&root, &now, &generated)?;
            Ok((name, Module { sha256, generated }))
        };
        self.0.into_iter().map(digest).collect()
    }

    /// The first module of a plan that differs from the downloaded one, with both digests. A module that the plan does not
    /// have does not count.
    pub(crate) fn difference(
        &self,
        theirs: &Modules,
    ) -> Result<Option<(String, String, String)>, SnapshotError> {
        for (name, Module { sha256, generated }) in theirs {
            let ours = match self.0.get(name) {
                Some((root, files)) => format!("sha256 {}", digest(root, files, generated)?),
                None => "none".to_owned(),
            };
            let theirs = format!("sha256 {sha256}");
            if ours != theirs {
                return Ok(Some((name.clone(), theirs, ours)));
            }
        }
        Ok(None)
    }
}

fn shown(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

/// The digest of these files of a module, without those in `skipped`.
fn digest(
    root: &Path,
    files: &Before,
    skipped: &BTreeSet<String>,
) -> Result<Sha256, SnapshotError> {
    tree::digest(root, files.keys().filter(|path| !skipped.contains(&shown(path))))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use fs_err as fs;

    use super::*;

    const MANIFEST: &str = r#"{"Modules": [{"Key": "", "Source": "", "Dir": "."},
        {"Key": "a", "Source": "git::x//sub", "Dir": ".terraform/modules/a/sub"},
        {"Key": "a.b", "Source": "../b", "Dir": ".terraform/modules/a/b"},
        {"Key": "own", "Source": "../own", "Dir": "../own"}]}"#;

    fn module() -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        for file in ["sub/main.tf", "b/main.tf", "run.sh"] {
            write(&dir, file, file);
        }
        let modules = dir.path().join(".terraform/modules");
        symlink("../run.sh", modules.join("a/b/link")).unwrap();
        fs::write(modules.join("modules.json"), MANIFEST).unwrap();
        dir
    }

    fn write(dir: &tempfile::TempDir, file: &str, text: &str) {
        let path = dir.path().join(".terraform/modules/a").join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn list(dir: &tempfile::TempDir) -> Downloaded {
        Downloaded::list(dir.path(), Path::new(".terraform")).unwrap()
    }

    #[test]
    fn each_change_of_a_module_is_a_difference_and_files_that_no_snapshot_has_are_none() {
        let first = module();
        let recorded = list(&first).digests().unwrap();
        assert_eq!(recorded.keys().collect::<Vec<_>>(), ["a"]);
        let differs = |dir: &tempfile::TempDir| list(dir).difference(&recorded).unwrap().is_some();
        assert!(!differs(&module()));
        assert!(!differs(&first));
        for (file, text) in [("run.sh", "other"), ("sub/main.tf", ""), ("new.tpl", "")] {
            let dir = module();
            write(&dir, file, text);
            assert!(differs(&dir), "{file}");
        }
        for file in [".git/HEAD", "b/.git", "x/terraform.tfstate", "sub/.terraform/x"] {
            let dir = module();
            write(&dir, file, "x");
            assert!(!differs(&dir), "{file}");
        }
        let dir = module();
        let a = dir.path().join(".terraform/modules/a");
        fs::set_permissions(a.join("run.sh"), PermissionsExt::from_mode(0o755)).unwrap();
        assert!(differs(&dir), "executable");
        let dir = module();
        let a = dir.path().join(".terraform/modules/a");
        fs::remove_file(a.join("b/link")).unwrap();
        symlink("../b/main.tf", a.join("b/link")).unwrap();
        assert!(differs(&dir), "link");
        let dir = module();
        symlink("/etc/hostname", dir.path().join(".terraform/modules/a/out")).unwrap();
        assert!(!differs(&dir), "a link out of the module");
        let dir = module();
        fs::remove_file(dir.path().join(".terraform/modules/modules.json")).unwrap();
        let (name, _, ours) = list(&dir).difference(&recorded).unwrap().unwrap();
        assert_eq!((&*name, &*ours), ("a", "none"));
        assert_eq!(list(&first).difference(&Modules::new()).unwrap(), None, "nothing is recorded");
    }

    #[test]
    fn files_that_the_plan_wrote_are_not_compared() {
        let dir = module();
        write(&dir, "built.zip", "of an earlier plan");
        let downloaded = list(&dir);
        write(&dir, "built.zip", "of this plan");
        write(&dir, "new.zip", "of this plan");
        let recorded = downloaded.digests().unwrap();
        let generated = recorded["a"].generated.iter().collect::<Vec<_>>();
        assert_eq!(generated, ["built.zip", "new.zip"]);
        for other in [&dir, &module()] {
            assert_eq!(list(other).difference(&recorded).unwrap(), None);
        }
        write(&dir, "run.sh", "other");
        assert!(list(&dir).difference(&recorded).unwrap().is_some());
    }

    #[test]
    fn a_manifest_that_cannot_be_read_is_an_error() {
        let dir = module();
        fs::write(dir.path().join(".terraform/modules/modules.json"), "{").unwrap();
        Downloaded::list(dir.path(), Path::new(".terraform")).unwrap_err();
    }
}
