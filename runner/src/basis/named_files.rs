//! Files that a root module names outside of its own configuration: the code of modules that it calls by a path, and files
//! with a literal path in `file`, `templatefile`, `fileset` and the like. One digest for each.
//!
//! They are compared where no commit tells what was planned: in a directory that is dirty, or in no repository. Files that
//! init or the plan wrote do not count: where the plan was not made they do not exist.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};

use datastore_api::Sha256;
use fs_err as fs;
use serde::{Deserialize, Serialize};

use crate::basis::configuration;
use crate::source::references;
use crate::source::snapshot::Stamp;

/// More files are not recorded: the record must stay readable.
const MAX_FILES: usize = 20_000;

/// The files, by their ways from the module.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct NamedFiles {
    files: BTreeMap<String, Sha256>,
    /// Those that init or the plan wrote.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    generated: BTreeSet<String>,
}

/// The files that are there, as they are now.
#[derive(Debug, Default)]
pub(crate) struct Listed(BTreeMap<String, (PathBuf, Stamp)>);

impl Listed {
    /// Lists the files of the module in `dir`.
    pub(crate) fn list(dir: &Path) -> io::Result<Self> {
        let mut listed = BTreeMap::new();
        for (way, file) in references::named(dir)? {
            // The root module's own files have a digest of their own.
            let is_own = way.components().count() == 1
                && way.to_str().is_some_and(configuration::is_configuration);
            let metadata = fs::metadata(&file).ok().filter(|of| of.is_file() && !is_own);
            if let Some(metadata) = metadata {
                let name = way.to_string_lossy().into_owned();
                listed.insert(name, (file, Stamp::from(&metadata)));
            }
        }
        if listed.len() > MAX_FILES {
            return Err(io::Error::other(format!("there are more than {MAX_FILES} of them")));
        }
        Ok(Self(listed))
    }

    /// The digests of the files that have not changed since they were listed.
    pub(crate) fn digests(self, dir: &Path) -> io::Result<NamedFiles> {
        let now = Self::list(dir)?;
        let stamp = |of: &Self, name: &str| of.0.get(name).map(|(_, stamp)| *stamp);
        let names = self.0.keys().chain(now.0.keys());
        let generated = names.filter(|name| stamp(&self, name) != stamp(&now, name)).cloned();
        let generated = generated.collect::<BTreeSet<_>>();
        let unchanged = now.0.keys().filter(|name| !generated.contains(*name));
        let files = unchanged.filter_map(|name| Some((name.clone(), now.digest(name)?)));
        Ok(NamedFiles { files: files.collect(), generated })
    }

    /// The digest of a file. `None`: it is not there, or cannot be read, which the tool reports.
    fn digest(&self, name: &str) -> Option<Sha256> {
        let (file, _) = self.0.get(name)?;
        Sha256::of_reader(fs::File::open(file).ok()?).ok()
    }
}

impl NamedFiles {
    /// The first file that differs from that of the module in `dir`: the plan's side and this one's.
    pub(crate) fn difference(&self, dir: &Path) -> io::Result<Option<(String, String)>> {
        let here = Listed::list(dir)?;
        let names = self.files.keys().chain(here.0.keys()).collect::<BTreeSet<_>>();
        let shown = |sha256: Option<Sha256>| match sha256 {
            Some(sha256) => format!("sha256 {sha256}"),
            None => "none".to_owned(),
        };
        for name in names.into_iter().filter(|name| !self.generated.contains(*name)) {
            let (theirs, ours) = (self.files.get(name).copied(), here.digest(name));
            if theirs != ours {
                return Ok(Some((format!("{name}, {}", shown(theirs)), shown(ours))));
            }
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_named_file_is_compared_but_generated_ones_are_not() {
        let top = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let path = top.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        let dir = top.path().join("live");
        let code = r#"
            module "m" { source = "../m" }
            locals {
              a = templatefile("a.tpl", {})
              s = fileset(path.module, "set/*")
              z = filebase64("out.zip")
              n = fileexists("written.txt")
              t = file("./.terraform/x")
            }
        "#;
        for (name, text) in [
            ("live/main.tf", code),
            ("m/main.tf", ""),
            ("live/a.tpl", "a"),
            ("live/set/a", ""),
            ("live/out.zip", "1"),
        ] {
            write(name, text);
        }
        let listed = Listed::list(&dir).unwrap();
        // As the plan does, the second time with the same bytes.
        write("live/out.zip", "1");
        write("live/written.txt", "x");
        let recorded = listed.digests(&dir).unwrap();
        let difference = || recorded.difference(&dir).unwrap().map(|(theirs, _)| theirs);
        assert_eq!(difference(), None);
        let json = serde_json::to_string(&recorded).unwrap();
        assert_eq!(serde_json::from_str::<NamedFiles>(&json).unwrap(), recorded);
        write("live/main.tf", &format!("{code}# the configuration has its own digest"));
        fs::remove_file(dir.join("out.zip")).unwrap();
        write("live/written.txt", "y");
        assert_eq!(difference(), None);
        for (name, text, way) in [
            ("m/main.tf", "# other", "../m/main.tf"),
            ("live/a.tpl", "b", "a.tpl"),
            ("live/set/a", "b", "set/a"),
        ] {
            let before = fs::read(top.path().join(name)).unwrap();
            write(name, text);
            assert!(difference().unwrap().starts_with(&format!("{way}, sha256 ")), "{name}");
            fs::write(top.path().join(name), before).unwrap();
            assert_eq!(difference(), None);
        }
        for (name, way) in [("m/new.tf", "../m/new.tf"), ("live/set/b", "set/b")] {
            write(name, "");
            assert_eq!(difference().unwrap(), format!("{way}, none"));
            fs::remove_file(top.path().join(name)).unwrap();
        }
        fs::remove_file(top.path().join("m/main.tf")).unwrap();
        assert!(difference().unwrap().starts_with("../m/main.tf, sha256 "));
    }
}
