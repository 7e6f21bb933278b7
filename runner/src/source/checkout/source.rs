//! Where the code of a run is, as the user names it.

use std::path::{Path, PathBuf};

use datastore_api::BundleKey;
use fs_err as fs;

use crate::cli::Separator;
use crate::source::flat;
use crate::source::git::{GitSource, nearest_top};
use crate::source::path::is_in_removed_directory;

/// Where the code is.
#[derive(Clone, Debug)]
pub(crate) enum Source {
    /// In a directory.
    Directory(PathBuf),
    /// In an archive or a flat directory, which is unpacked.
    Packed(Packed),
    /// In a git repository elsewhere, or in a git bundle, a file.
    Git(GitSource),
    /// In a bundle in the datastore.
    Bundle(BundleKey),
}

/// Code that is unpacked into a directory of the runner.
#[derive(Clone, Debug)]
pub(crate) struct Packed {
    /// The file of an archive, or a directory.
    pub(crate) path: PathBuf,
    /// What stands for `/` in the names of the directory's files; `None` for an archive.
    pub(crate) separator: Option<Separator>,
}

impl Source {
    /// A git URL (`https://`, `http://`, `ssh://`, `git://`, `file://`, `user@host:path`), a git bundle or an archive if it
    /// is a file, else a directory. With a separator it is a flat directory.
    pub(crate) fn parse(
        text: &str,
        revision: Option<&str>,
        separator: Option<&Separator>,
    ) -> Result<Self, String> {
        if let Some(separator) = separator {
            flat::check_directory(Path::new(text))?;
            return Ok(Self::Packed(Packed {
                path: text.into(),
                separator: Some(separator.clone()),
            }));
        }
        if let Some(git) = GitSource::parse(text, revision)? {
            return Ok(Self::Git(git));
        }
        let is_archive = Path::new(text).is_file();
        if is_archive && let Some(bundle) = GitSource::of_bundle(Path::new(text), revision)? {
            return Ok(Self::Git(bundle));
        }
        if revision.is_some() {
            let what = if is_archive { "archive" } else { "directory" };
            return Err(format!(
                "--revision goes with a git URL or a git bundle; the {what} `{text}` is used as it is"
            ));
        }
        if is_archive {
            return Ok(Self::Packed(Packed { path: text.into(), separator: None }));
        }
        if text.is_empty() {
            return Err("the source is empty; `.` is the current directory".to_owned());
        }
        Ok(Self::Directory(text.into()))
    }
}

impl Source {
    /// Whether it is a directory or file below a current directory that was removed.
    pub(crate) fn is_in_removed_directory(&self) -> bool {
        match self {
            Self::Directory(path) | Self::Packed(Packed { path, .. }) => {
                is_in_removed_directory(path)
            }
            Self::Git(_) | Self::Bundle(_) => false,
        }
    }

    /// The directory with the code, flat or not, without links.
    pub(crate) fn local_directory(&self) -> Option<PathBuf> {
        match self {
            Self::Directory(dir) | Self::Packed(Packed { path: dir, separator: Some(_) }) => {
                fs::canonicalize(dir).ok()
            }
            Self::Packed(_) | Self::Git(_) | Self::Bundle(_) => None,
        }
    }

    /// The directory of the whole source, of which the code may be a part: the work tree of git, if there is one.
    pub(crate) fn local_root(&self) -> Option<PathBuf> {
        let dir = self.local_directory()?;
        Some(nearest_top(&dir).map(Path::to_owned).unwrap_or(dir))
    }

    /// The directory without links, if it is one.
    pub(crate) fn directory(&self) -> Option<PathBuf> {
        let Self::Directory(dir) = self else { return None };
        fs::canonicalize(dir).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_whole_source_of_a_module_is_its_work_tree() {
        let tree = tempfile::tempdir().unwrap();
        let root = fs::canonicalize(tree.path()).unwrap();
        let module = root.join("live/vpc");
        fs::create_dir_all(&module).unwrap();
        let source = Source::Directory(module.clone());
        assert_eq!(source.local_root(), Some(module));
        // In a submodule or another work tree it is a file.
        fs::write(root.join(".git"), "gitdir: x\n").unwrap();
        assert_eq!(source.local_root(), Some(root));
    }

    #[test]
    fn a_url_is_git_and_all_else_a_directory() {
        for text in [
            "https://git.example.com/infra.git",
            "ssh://git@git.example.com:2222/infra",
            "git@git.example.com:team/infra.git",
            "file:///srv/infra.git",
        ] {
            assert!(matches!(Source::parse(text, None, None), Ok(Source::Git(_))), "{text}");
        }
        for text in [".", "live/vpc", "/srv/infra.git", "a:b", "C:/x", "-oProxyCommand=x@host:path"]
        {
            assert!(matches!(Source::parse(text, None, None), Ok(Source::Directory(_))), "{text}");
        }
    }

    #[test]
    fn text_that_git_would_misread_is_refused() {
        for (text, revision) in [
            ("ext::sh -c https://x", None),
            ("s3://bucket/x", None),
            ("git::https://example.com/x", None),
            ("https://git.example.com/infra.git", Some("--upload-pack=touch x")),
            ("https://git.example.com/infra.git", Some("a:b")),
            ("https://git.example.com/infra.git", Some("")),
            (".", Some("main")),
            ("", None),
        ] {
            Source::parse(text, revision, None).unwrap_err();
        }
    }
}
