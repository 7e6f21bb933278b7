//! Where code comes from, as two runs on one machine compare it. Git is not called here.

use std::fmt;
use std::path::{Path, PathBuf};

use fs_err as fs;
use url::Url;

/// The directory of a source that is used as a whole.
const WHOLE: &str = ".";

/// A repository, or the path of the code if no repository is known. Two runs of one machine may use the same
/// directory only if it is the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SourceId {
    /// The repository, or an absolute path without links.
    root: String,
    /// The part of it that a run uses as its source.
    directory: String,
}

impl SourceId {
    /// A repository that is used as a whole. `name` is its URL without scheme and credentials.
    pub(crate) fn of_repository(name: &str) -> Self {
        Self { root: printable(name), directory: WHOLE.to_owned() }
    }

    /// A file or directory.
    pub(crate) fn of_path(path: &Path) -> Self {
        let absolute = || std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        let path = fs::canonicalize(path).unwrap_or_else(|_| absolute());
        Self::of_repository(&path.to_string_lossy())
    }

    /// The repository at a path or `file://` URL.
    pub(crate) fn of_local_url(url: &str) -> Option<Self> {
        Some(Self::of_path(&local_path(url)?))
    }

    /// A directory in it.
    pub(crate) fn directory(self, below: &Path) -> Self {
        let below = printable(&below.to_string_lossy());
        Self { directory: if below.is_empty() { WHOLE.to_owned() } else { below }, ..self }
    }

    /// The repository, or the path.
    pub(crate) fn root(&self) -> &str {
        &self.root
    }

    /// The record, in two lines.
    pub(in crate::source) fn to_record(&self) -> String {
        format!("{}\n{}", self.root, self.directory_record())
    }

    /// The second line of the record.
    pub(in crate::source) fn directory_record(&self) -> String {
        format!("{}\n", self.directory)
    }

    /// The source of a record. Earlier versions recorded only the repository or URL: the second value is false then, and
    /// the directory is the one of `self`.
    pub(in crate::source) fn recorded(&self, record: &str) -> Option<(Self, bool)> {
        // A user may empty the record with an editor.
        let mut lines = record.trim_start().lines();
        let root = lines.next()?;
        let root = Self::of_local_url(root).map_or_else(|| root.to_owned(), |id| id.root);
        let directory = lines.next().map(str::to_owned);
        let is_complete = directory.is_some();
        let directory = directory.unwrap_or_else(|| self.directory.clone());
        Some((Self { root, directory }, is_complete))
    }
}

impl fmt::Display for SourceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.directory == WHOLE {
            return f.write_str(&self.root);
        }
        write!(f, "the directory {} of {}", self.directory, self.root)
    }
}

/// Whether code from `ours` may be the same code as that from `theirs`. Only two repositories are known to differ: one
/// code may be at several paths, such as checkouts, and a path may have the code of a repository.
pub(crate) fn may_be_same(theirs: Option<&str>, ours: Option<&str>) -> bool {
    let (Some(theirs), Some(ours)) = (theirs, ours) else { return true };
    theirs == ours || [theirs, ours].iter().any(|root| Path::new(root).is_absolute())
}

/// The path of a repository in a directory of this machine.
fn local_path(url: &str) -> Option<PathBuf> {
    let url = url.trim();
    if url.starts_with('/') {
        return Some(url.into());
    }
    Url::parse(url).ok().filter(|url| url.scheme() == "file")?.to_file_path().ok()
}

/// The text in one line.
fn printable(text: &str) -> String {
    let mut printable = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_control() {
            printable.extend(c.escape_default());
        } else {
            printable.push(c);
        }
    }
    printable
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn local_repository_has_one_id_however_its_url_is_written() {
        let dir = tempfile::tempdir().unwrap();
        let real = fs::canonicalize(dir.path()).unwrap().join("a b");
        fs::create_dir(&real).unwrap();
        fs::os::unix::fs::symlink(&real, dir.path().join("link")).unwrap();
        let expected = SourceId::of_path(&real);
        assert_eq!(expected.root(), real.to_str().unwrap());
        let url = Url::from_file_path(&real).unwrap();
        let link = dir.path().join("link");
        for url in [url.as_str(), real.to_str().unwrap(), link.to_str().unwrap()] {
            assert_eq!(SourceId::of_local_url(url), Some(expected.clone()), "{url}");
        }
        for url in ["https://h/a/b", "git@h:a/b", "../infra", "h:/a", ""] {
            assert_eq!(SourceId::of_local_url(url), None, "{url}");
        }
    }

    #[test]
    fn path_with_a_newline_is_one_line_of_the_record() {
        let id = SourceId::of_repository("h/a").directory(Path::new("x\ny"));
        assert_eq!(id.to_record(), "h/a\nx\\ny\n");
        assert_eq!(id.recorded(&id.to_record()), Some((id.clone(), true)));
        assert_eq!(id.recorded("h/a\n"), Some((id.clone(), false)));
        assert_eq!(id.recorded("\n"), None);
    }

    #[test]
    fn only_two_repositories_are_other_code() {
        for (theirs, ours, expected) in [
            (None, Some("h/a"), true),
            (Some("h/a"), None, true),
            (Some("h/a"), Some("h/a"), true),
            (Some("h/a"), Some("h/a/b"), false),
            (Some("h/a"), Some("/srv/a"), true),
            (Some("/srv/a"), Some("h/a"), true),
            (Some("/srv/a"), Some("/srv/a/live/vpc"), true),
            (Some("/builds/1/a"), Some("/builds/2/a"), true),
        ] {
            assert_eq!(may_be_same(theirs, ours), expected, "{theirs:?} {ours:?}");
        }
    }
}
