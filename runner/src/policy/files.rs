//! The files of a policy: which ones there are, where they may be, and what they contain. They are read once. What the
//! contents mean is not known here.

use std::collections::BTreeSet;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use fs_err as fs;

use crate::policy::error::PolicyError;
use crate::source::regular;

/// All files together are not larger.
const MAX_TOTAL: u64 = 64 << 20;
/// No directory is deeper.
const MAX_DEPTH: usize = 32;

/// A file of a policy.
#[derive(Clone, Debug)]
pub(super) struct PolicyFile {
    /// As the user names it, or the directory that it is in.
    pub(super) path: PathBuf,
    /// Its path below the named directory; its name, if it is named itself.
    pub(super) below: PathBuf,
    pub(super) text: String,
}

/// What a policy consists of.
#[derive(Debug, Default)]
pub(super) struct Files {
    pub(super) rules: Vec<PolicyFile>,
    pub(super) rego: Vec<PolicyFile>,
    pub(super) data: Vec<PolicyFile>,
}

/// Reads the files of a policy and of its data.
pub(super) fn read(
    policy: &[PathBuf],
    data: &[PathBuf],
    outside_of: Option<&Path>,
) -> Result<Files, PolicyError> {
    let mut reader = Reader { outside_of: canonical(outside_of)?, seen: BTreeSet::new(), total: 0 };
    let mut files = Files::default();
    for path in policy {
        if path.is_dir() {
            let found = reader.directory(path, &is_rego)?;
            if found.is_empty() {
                let reason =
                    "the directory has no *.rego file (*_test.rego is left out)".to_owned();
                return Err(PolicyError::File { path: path.clone(), reason });
            }
            files.rego.extend(found);
        } else if has_extension(path, &["yaml", "yml", "json"]) {
            files.rules.extend(reader.file(path, named(path))?);
        } else if has_extension(path, &["rego"]) {
            files.rego.extend(reader.file(path, named(path))?);
        } else {
            // Whether it is missing is more important.
            reader.file(path, named(path))?;
            let reason = "its name does not say what it is".to_owned();
            return Err(PolicyError::File { path: path.clone(), reason });
        }
    }
    // A document may be part of the data twice, below other names.
    reader.seen.clear();
    for path in data {
        if path.is_dir() {
            files.data.extend(reader.directory(path, &is_document)?);
        } else if is_document(path) {
            files.data.extend(reader.file(path, named(path))?);
        } else {
            reader.file(path, named(path))?;
            let reason = "data is a .json, .yaml or .yml file, or a directory".to_owned();
            return Err(PolicyError::File { path: path.clone(), reason });
        }
    }
    Ok(files)
}

fn canonical(dir: Option<&Path>) -> Result<Option<PathBuf>, PolicyError> {
    let canonical = dir.map(|dir| fs::canonicalize(dir).map_err(|error| unreadable(dir, error)));
    canonical.transpose()
}

fn named(path: &Path) -> PathBuf {
    path.file_name().map_or_else(|| path.to_owned(), PathBuf::from)
}

fn has_extension(path: &Path, extensions: &[&str]) -> bool {
    let extension = path.extension().and_then(|extension| extension.to_str());
    extension.is_some_and(|extension| extensions.contains(&extension))
}

fn is_document(path: &Path) -> bool {
    has_extension(path, &["json", "yaml", "yml"])
}

fn is_rego(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str());
    has_extension(path, &["rego"]) && !name.is_some_and(|name| name.ends_with("_test.rego"))
}

fn unreadable(path: &Path, error: io::Error) -> PolicyError {
    PolicyError::Read(path.to_owned(), error)
}

struct Reader {
    /// No file may be in it, links followed.
    outside_of: Option<PathBuf>,
    /// Files that were read already. In the mount of a `ConfigMap` each has several names.
    seen: BTreeSet<PathBuf>,
    total: u64,
}

impl Reader {
    /// The file, unless it was read before under another name.
    fn file(&mut self, path: &Path, below: PathBuf) -> Result<Option<PolicyFile>, PolicyError> {
        let real = fs::canonicalize(path).map_err(|error| unreadable(path, error))?;
        self.check_place(path, &real)?;
        if self.seen.contains(&real) {
            return Ok(None);
        }
        let mut bytes = Vec::new();
        let open = regular::open_followed(path);
        let done = open.and_then(|file| file.take(MAX_TOTAL + 1).read_to_end(&mut bytes));
        done.map_err(|error| unreadable(path, error))?;
        self.total += bytes.len() as u64;
        let invalid =
            |reason: &str| PolicyError::File { path: path.to_owned(), reason: reason.to_owned() };
        if self.total > MAX_TOTAL {
            return Err(invalid("policy and data are larger than 64 MiB together"));
        }
        let text = String::from_utf8(bytes).map_err(|_| invalid("it is not UTF-8"))?;
        self.seen.insert(real);
        Ok(Some(PolicyFile { path: path.to_owned(), below, text }))
    }

    fn check_place(&self, path: &Path, real: &Path) -> Result<(), PolicyError> {
        match &self.outside_of {
            Some(source) if real.starts_with(source) => {
                Err(PolicyError::InSource { path: path.to_owned(), source_dir: source.clone() })
            }
            _ => Ok(()),
        }
    }

    /// The files of a directory and those below it, in the order of their names.
    fn directory(
        &mut self,
        root: &Path,
        is_wanted: &dyn Fn(&Path) -> bool,
    ) -> Result<Vec<PolicyFile>, PolicyError> {
        let mut files = Vec::new();
        self.walk(root, Path::new(""), &mut BTreeSet::new(), is_wanted, &mut files)?;
        Ok(files)
    }

    fn walk(
        &mut self,
        root: &Path,
        below: &Path,
        above: &mut BTreeSet<PathBuf>,
        is_wanted: &dyn Fn(&Path) -> bool,
        files: &mut Vec<PolicyFile>,
    ) -> Result<(), PolicyError> {
        let dir = root.join(below);
        let real = fs::canonicalize(&dir).map_err(|error| unreadable(&dir, error))?;
        self.check_place(&dir, &real)?;
        if above.len() >= MAX_DEPTH || !above.insert(real.clone()) {
            let reason = "its directories are too deep, or a link leads back".to_owned();
            return Err(PolicyError::File { path: dir, reason });
        }
        for name in names(&dir)? {
            let (path, below) = (dir.join(&name), below.join(&name));
            if path.is_dir() {
                self.walk(root, &below, above, is_wanted, files)?;
            } else if is_wanted(&path) {
                files.extend(self.file(&path, below)?);
            } else if is_document(&path) && !is_wanted(Path::new("x.json")) {
                tracing::warn!(
                    "{} is not a part of the policy: name a file of rules itself, with --policy",
                    path.display()
                );
            }
        }
        above.remove(&real);
        Ok(())
    }
}

/// The sorted names in a directory, without those that Kubernetes adds to a mount (`..data`).
fn names(dir: &Path) -> Result<Vec<PathBuf>, PolicyError> {
    let entries = fs::read_dir(dir).and_then(Iterator::collect::<io::Result<Vec<_>>>);
    let entries = entries.map_err(|error| unreadable(dir, error))?;
    let names = entries.iter().map(fs::DirEntry::file_name);
    let mut names = names
        .filter(|name| !name.as_encoded_bytes().starts_with(b".."))
        .map(PathBuf::from)
        .collect::<Vec<_>>();
    names.sort_unstable();
    Ok(names)
}
