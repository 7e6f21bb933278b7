//! Files that a root module names outside of its own configuration: the code of modules that it calls by a path, and files
//! with a literal path in `file`, `templatefile`, `fileset` and the like. One digest for each.
//!
//! They are compared where no commit records what was planned: all of them in a directory that is dirty, or in no repository,
//! else those that git does not track, and those that it converts, which may hide changes. Those that init or the plan wrote may
//! be missing, since where the plan was not made they do not exist.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};

use datastore_api::Sha256;
use fs_err as fs;
use serde::{Deserialize, Serialize};

use crate::basis::configuration;
use crate::source::references;
use crate::source::references::installed::Called;
use crate::source::regular::{self, unreadable};
use crate::source::snapshot::{Stamp, listed};

/// More files are not recorded: the record must stay readable.
const MAX_FILES: usize = 20_000;

/// The files, by their paths relative to the module.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct NamedFiles {
    files: BTreeMap<String, Sha256>,
    /// Those that changed while the plan was made: init or the plan wrote them, or somebody else. Records of earlier releases
    /// have no digests of them.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    generated: BTreeSet<String>,
    /// Whether files that git tracks are left out, because the plan's commit records what they were.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) is_untracked_only: bool,
}

/// Files that are not listed.
#[derive(Debug, Default)]
pub(crate) struct LeftOut {
    /// What the runner itself writes, with everything below.
    pub(crate) own: Vec<PathBuf>,
    /// What git tracks, by paths without links, if the commit records what it is.
    pub(crate) tracked: Option<BTreeSet<PathBuf>>,
    /// If the code is a copy, its directory without links, and that of which it is a copy.
    pub(crate) copied: Option<(PathBuf, PathBuf)>,
}

impl LeftOut {
    fn contains(&self, file: &Path) -> bool {
        let is_tracked = |tracked: &BTreeSet<PathBuf>| {
            self.of_source(file).is_ok_and(|file| tracked.contains(&file))
        };
        self.own.iter().any(|own| file.starts_with(own))
            || self.tracked.as_ref().is_some_and(is_tracked)
    }

    /// The file of the source: the target of a link may be none of the commit's files, and a copy has it instead of the link.
    fn of_source(&self, file: &Path) -> io::Result<PathBuf> {
        let file = fs::canonicalize(file)?;
        let copied = self.copied.as_ref();
        match copied.and_then(|(copy, source)| Some(source.join(file.strip_prefix(copy).ok()?))) {
            Some(original) => fs::canonicalize(original),
            None => Ok(file),
        }
    }
}

/// The files that are there, as they are now.
#[derive(Debug, Default)]
pub(crate) struct Listed {
    files: BTreeMap<String, (PathBuf, Stamp)>,
    /// Their digests, without those of files that cannot be read, which the tool reports.
    digests: BTreeMap<String, Sha256>,
    left_out: LeftOut,
}

impl Listed {
    /// Lists the files of the module in `dir`. `called`: those of modules of which only init knows count as well.
    pub(crate) fn list(dir: &Path, called: &Called, left_out: LeftOut) -> io::Result<Self> {
        let mut files = BTreeMap::new();
        for (path, file) in references::named(dir, called)? {
            // The root module's own files have a digest of their own.
            let is_own = path.components().count() == 1
                && path.to_str().is_some_and(configuration::is_configuration);
            let metadata = fs::metadata(&file).ok().filter(|of| of.is_file() && !is_own);
            if let Some(metadata) = metadata.filter(|_| !left_out.contains(&file)) {
                let name = path.to_string_lossy().into_owned();
                files.insert(name, (file, Stamp::from(&metadata)));
            }
        }
        if files.len() > MAX_FILES {
            return Err(io::Error::other(format!("there are more than {MAX_FILES} of them")));
        }
        Ok(Self { files, digests: BTreeMap::new(), left_out })
    }

    /// Reads the files.
    pub(crate) fn hashed(self) -> Self {
        let files = self.files.iter();
        let digest = |file: &Path| sha256(file).ok().flatten();
        let digests = files.filter_map(|(name, (file, _))| Some((name.clone(), digest(file)?)));
        Self { digests: digests.collect(), ..self }
    }

    /// Adds what was listed with the modules of which only init knows. What the configuration names without them was listed
    /// before init.
    pub(crate) fn add_called(&mut self, dir: &Path, listed: Self) -> io::Result<()> {
        let known = references::named(dir, &Called::new())?;
        let known = known.into_iter().map(|(path, _)| path).collect::<BTreeSet<_>>();
        let is_new = |name: &String| !known.contains(Path::new(name));
        self.files.extend(listed.files.into_iter().filter(|(name, _)| is_new(name)));
        self.digests.extend(listed.digests.into_iter().filter(|(name, _)| is_new(name)));
        self.left_out = listed.left_out;
        Ok(())
    }

    /// The files of the source, by paths without links.
    pub(crate) fn of_source(&self) -> BTreeSet<PathBuf> {
        let files = self.files.values();
        files.filter_map(|(file, _)| self.left_out.of_source(file).ok()).collect()
    }

    /// The digests of the files after the plan, and which of them have changed since they were listed and hashed.
    pub(crate) fn digests(self, dir: &Path, called: &Called) -> io::Result<NamedFiles> {
        let before = self.files;
        let now = Self::list(dir, called, self.left_out)?.hashed();
        let names = before.keys().chain(now.files.keys());
        let stamp = |(_, stamp): &(PathBuf, Stamp)| *stamp;
        let is_changed =
            |name: &&String| before.get(*name).map(stamp) != now.files.get(*name).map(stamp);
        let generated = names.filter(is_changed).cloned().collect::<BTreeSet<_>>();
        let is_other = |name: &&String| {
            self.digests.get(*name).is_some_and(|before| now.digests.get(*name) != Some(before))
        };
        let others = generated.iter().filter(is_other).map(PathBuf::from).collect::<BTreeSet<_>>();
        if !others.is_empty() {
            tracing::warn!(
                "while the plan was made, files that the configuration names have changed ({}): unless the plan itself \
                 writes them, plan again",
                listed(&others)
            );
        }
        let is_untracked_only = now.left_out.tracked.is_some();
        Ok(NamedFiles { files: now.digests, generated, is_untracked_only })
    }
}

/// The digest of a file. `None`: it is not there.
fn sha256(file: &Path) -> io::Result<Option<Sha256>> {
    regular::if_there(regular::open_followed(file).and_then(Sha256::of_reader))
}

impl NamedFiles {
    /// The first file that differs from that of the module in `dir`: the plan's side and this one's.
    pub(crate) fn difference(
        &self,
        dir: &Path,
        called: &Called,
        left_out: LeftOut,
    ) -> io::Result<Option<(String, String)>> {
        let here = Listed::list(dir, called, left_out)?.hashed();
        let names = self.files.keys().chain(here.digests.keys()).collect::<BTreeSet<_>>();
        let shown = |sha256: Option<Sha256>| match sha256 {
            Some(sha256) => format!("sha256 {sha256}"),
            None if self.is_untracked_only => "none, or as in the commit".to_owned(),
            None => "none".to_owned(),
        };
        for name in names {
            let theirs = self.files.get(name).copied();
            // Here git may convert nothing, so that the commit records what it is.
            let ours = match (here.digests.get(name).copied(), theirs) {
                (None, Some(_)) => {
                    sha256(&dir.join(name)).map_err(|error| unreadable(Path::new(name), &error))?
                }
                (ours, _) => ours,
            };
            let is_known = theirs.is_some() && ours.is_some();
            if theirs != ours && (is_known || !self.generated.contains(name)) {
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
    fn each_named_file_is_compared_and_generated_ones_may_be_missing() {
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
        let listed = Listed::list(&dir, &Called::new(), LeftOut::default()).unwrap().hashed();
        // As the plan does, the second time with the same bytes.
        write("live/out.zip", "1");
        write("live/written.txt", "x");
        let recorded = listed.digests(&dir, &Called::new()).unwrap();
        let literal = Called::new();
        let difference = || recorded.difference(&dir, &literal, LeftOut::default()).unwrap();
        let difference = || difference().map(|(theirs, _)| theirs);
        assert_eq!(difference(), None);
        let json = serde_json::to_string(&recorded).unwrap();
        assert_eq!(serde_json::from_str::<NamedFiles>(&json).unwrap(), recorded);
        write("live/main.tf", &format!("{code}# the configuration has its own digest"));
        fs::remove_file(dir.join("out.zip")).unwrap();
        fs::remove_file(dir.join("written.txt")).unwrap();
        assert_eq!(difference(), None, "where the plan was not made");
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
    #[test]
    fn generated_file_is_compared_with_what_it_was_after_the_plan() {
        let dir = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| fs::write(dir.path().join(name), text).unwrap();
        write("main.tf", "locals {\n  a = file(\"made\")\n  b = file(\"edited\")\n}\n");
        write("edited", "before");
        let listed = Listed::list(dir.path(), &Called::new(), LeftOut::default()).unwrap().hashed();
        write("edited", "after");
        write("made", "new");
        let recorded = listed.digests(dir.path(), &Called::new()).unwrap();
        let difference =
            || recorded.difference(dir.path(), &Called::new(), LeftOut::default()).unwrap();
        assert_eq!(difference(), None);
        for (name, text) in [("edited", "after"), ("made", "new")] {
            write(name, "other");
            let (theirs, _) = difference().unwrap();
            assert_eq!(theirs, format!("{name}, sha256 {}", Sha256::of(text.as_bytes())));
            write(name, text);
        }
        // Earlier releases recorded only the names.
        let names = BTreeSet::from(["edited", "made"].map(str::to_owned));
        let earlier = NamedFiles { generated: names, ..NamedFiles::default() };
        assert_eq!(
            earlier.difference(dir.path(), &Called::new(), LeftOut::default()).unwrap(),
            None
        );
    }
    #[test]
    fn file_that_cannot_be_read_is_not_a_missing_one() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("a.tpl");
        fs::write(dir.path().join("main.tf"), "locals {\n  a = file(\"a.tpl\")\n}\n").unwrap();
        fs::write(&file, "a").unwrap();
        let listed = Listed::list(dir.path(), &Called::new(), LeftOut::default()).unwrap().hashed();
        let recorded = listed.digests(dir.path(), &Called::new()).unwrap();
        let difference = || recorded.difference(dir.path(), &Called::new(), LeftOut::default());
        fs::remove_file(&file).unwrap();
        assert_eq!(difference().unwrap().unwrap().1, "none");
        // Reading this one fails, also for root.
        std::os::unix::fs::symlink("/proc/self/mem", &file).unwrap();
        let error = difference().unwrap_err().to_string();
        assert_eq!(error, "a.tpl cannot be read: Input/output error (os error 5)");
    }
}
