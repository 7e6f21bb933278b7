//! Files that the configuration names and that are not of its source: by an absolute path, or in the user's home. No commit,
//! archive or snapshot has them, so an apply compares them with those of the plan wherever it runs.
//!
//! They may hold secrets, such as passwords, which could be guessed from a digest. The recorded digests depend on the
//! contents of the plan, so they cannot be computed without it.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use datastore_api::Sha256;
use datastore_api::digest::Hasher;
use fs_err as fs;
use serde::{Deserialize, Serialize};

use crate::source::references;
use crate::source::references::installed::Called;
use crate::source::regular::{self, unreadable};
use crate::source::snapshot::{Stamp, listed};

/// A larger file is not read.
const MAX_SIZE: u64 = 1 << 30;
/// More files are not recorded: the record must stay readable.
const MAX_FILES: usize = 20_000;
/// What is hashed before the plan: the plan's own digest is known.
const PREFIX: &[u8] = b"plancha: files outside of the source\n";

/// The files of a plan, by the names that the configuration gives them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct OutsideFiles {
    files: BTreeMap<String, Sha256>,
    /// Those that changed while the plan was made. They may be missing where it was not made.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    generated: BTreeSet<String>,
}

/// Each file with its stamp.
type Stamped = BTreeMap<String, (PathBuf, Option<Stamp>)>;

/// The files as they are now. Those that do not exist, are not regular or too large have no stamp.
#[derive(Debug)]
pub(crate) struct Outside {
    dir: PathBuf,
    called: Called,
    home: Option<PathBuf>,
    /// What the runner itself writes, with everything below.
    own: Vec<PathBuf>,
    files: Stamped,
}

impl Outside {
    /// Lists those that the module in `dir` names. `called`: those of modules of which only init knows count as well.
    pub(crate) fn list(
        dir: PathBuf,
        called: Called,
        home: Option<PathBuf>,
        own: Vec<PathBuf>,
    ) -> io::Result<Self> {
        let mut files = BTreeMap::new();
        for (name, file) in references::outside(&dir, home.as_deref(), &called)? {
            if own.iter().any(|own| file.starts_with(own)) {
                continue;
            }
            let metadata = fs::metadata(&file).ok();
            let metadata = metadata.filter(|of| of.is_file() && of.len() <= MAX_SIZE);
            let stamp = metadata.as_ref().map(Stamp::from);
            files.insert(name.to_string_lossy().into_owned(), (file, stamp));
        }
        if files.len() > MAX_FILES {
            return Err(io::Error::other(format!("there are more than {MAX_FILES} of them")));
        }
        Ok(Self { dir, called, home, own, files })
    }

    /// Adds the files that only modules name of which only init knows. The others were listed before init.
    pub(crate) fn add_called(&mut self, called: &Called) -> io::Result<()> {
        let list = |called: &Called| {
            Self::list(self.dir.clone(), called.clone(), self.home.clone(), self.own.clone())
        };
        let (all, known) = (list(called)?, list(&Called::new())?);
        let new = all.files.into_iter().filter(|(name, _)| !known.files.contains_key(name));
        self.files.extend(new);
        self.called.clone_from(called);
        Ok(())
    }

    /// The digests of the files after the plan in the file `plan`. `None`: the configuration names none.
    pub(crate) fn digests(self, plan: &Path) -> io::Result<Option<OutsideFiles>> {
        let before = self.files;
        let now = Self::list(self.dir, self.called, self.home, self.own)?;
        if before.is_empty() && now.files.is_empty() {
            return Ok(None);
        }
        let is_changed = |name: &&String| stamp(&before, name) != stamp(&now.files, name);
        let names = before.keys().chain(now.files.keys());
        let generated = names.filter(is_changed).cloned().collect::<BTreeSet<_>>();
        let is_other = |name: &&String| stamp(&before, name).is_some();
        let others = generated.iter().filter(is_other).map(PathBuf::from).collect::<BTreeSet<_>>();
        if !others.is_empty() {
            tracing::warn!(
                "while the plan was made, files outside of the source that the configuration names have changed ({}): \
                 unless the plan itself writes them, plan again",
                listed(&others)
            );
        }
        let is_large = |(file, _): &&(PathBuf, _)| {
            fs::metadata(file).is_ok_and(|of| of.is_file() && of.len() > MAX_SIZE)
        };
        for (file, _) in now.files.values().filter(is_large) {
            tracing::warn!("an apply does not compare {}: it is larger than 1 GiB", file.display());
        }
        Ok(Some(OutsideFiles { files: now.hashed(plan)?, generated }))
    }

    /// Refuses a file that is there and cannot be read.
    fn check_readable(&self, name: &str) -> io::Result<()> {
        let Some((file, _)) = self.files.get(name) else { return Ok(()) };
        let is_read = |file: &Path| {
            let metadata = std::fs::metadata(file)?;
            if metadata.is_file() && metadata.len() <= MAX_SIZE {
                digest(file).map(drop)
            } else {
                Ok(())
            }
        };
        let read = regular::if_there(is_read(file));
        read.map(drop).map_err(|error| unreadable(Path::new(name), &error))
    }

    /// The digests of those that can be read.
    fn hashed(&self, plan: &Path) -> io::Result<BTreeMap<String, Sha256>> {
        let key = Sha256::of_reader(PREFIX.chain(fs::File::open(plan)?))?;
        let hashed = |(name, (file, stamp)): (&String, &(PathBuf, Option<Stamp>))| {
            stamp.as_ref()?;
            // A file that cannot be read is one for the tool to report.
            let contents = digest(file).ok()?;
            let mut keyed = Hasher::default();
            keyed.update(&key.0);
            keyed.update(&contents.0);
            Some((name.clone(), keyed.finish()))
        };
        Ok(self.files.iter().filter_map(hashed).collect())
    }
}

fn digest(file: &Path) -> io::Result<Sha256> {
    Sha256::of_reader(regular::open_followed(file)?.take(MAX_SIZE))
}

fn stamp(files: &Stamped, name: &str) -> Option<Stamp> {
    files.get(name).and_then(|(_, stamp)| *stamp)
}

impl OutsideFiles {
    /// The first file that differs from that of the plan: the plan's side and this one's. `plan` is the file of the plan.
    pub(crate) fn difference(
        &self,
        here: &Outside,
        plan: &Path,
    ) -> io::Result<Option<(String, String)>> {
        let ours = here.hashed(plan)?;
        let names = self.files.keys().chain(ours.keys()).collect::<BTreeSet<_>>();
        for name in names {
            let (theirs, ours) = match (self.files.get(name), ours.get(name)) {
                (Some(theirs), Some(ours)) if theirs != ours => {
                    ("a file", "one with other contents")
                }
                (Some(_), None) if !self.generated.contains(name) => {
                    here.check_readable(name)?;
                    ("a file", "none")
                }
                (None, Some(_)) if !self.generated.contains(name) => ("none", "a file"),
                _ => continue,
            };
            return Ok(Some((format!("{name}, {theirs}"), ours.to_owned())));
        }
        Ok(None)
    }
}
