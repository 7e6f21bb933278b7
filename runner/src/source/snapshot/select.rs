//! Which files belong to a snapshot.
//!
//! The code: what git tracks, and other files that no ignore file excludes. What init and plan generated, ignored or not.
//! The lock file, and the modules that init fetched. Never: git's own files, providers, states, credentials; and files
//! that usually hold secrets only where git tracks them. The case of their names makes no difference, and a directory
//! counts like a file of its name.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::Metadata;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use fs_err as fs;
use ignore::gitignore::{Gitignore, GitignoreBuilder};

use crate::source::archive::link::is_inside;
use crate::source::regular::{self, unless_missing};
use crate::source::snapshot::{SnapshotError, reason};
use crate::tool::file_names::{self, LOCK_FILE};

/// What is known of the code before init runs. All paths are relative to the root of the snapshot.
#[derive(Debug, Default)]
pub(crate) struct SourceFiles {
    /// The files that git tracks, with those of its submodules; `None` without git, where every file of the source is code.
    pub(crate) tracked: Option<BTreeSet<PathBuf>>,
    /// The other files that git does not ignore. Empty without git.
    pub(crate) not_ignored: BTreeSet<PathBuf>,
    /// Every file that existed before init. What has changed since was generated.
    pub(crate) before: Before,
    /// Files that the runner writes beside the code.
    pub(crate) of_runner: Vec<PathBuf>,
}

/// The files that exist, as they are now.
pub(crate) type Before = BTreeMap<PathBuf, Stamp>;

/// What changes with every change of a file: time of the change, inode and size. It needs no clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stamp {
    changed: (i64, i64),
    inode: u64,
    size: u64,
}

impl From<&Metadata> for Stamp {
    fn from(of: &Metadata) -> Self {
        Self { changed: (of.ctime(), of.ctime_nsec()), inode: of.ino(), size: of.size() }
    }
}

/// Lists the files below `root` before init runs, without those of git, the tool and the runner.
pub(crate) fn before(root: &Path) -> Result<Before, SnapshotError> {
    let mut before = Before::new();
    walk(root, |path, entry| {
        let metadata =
            entry.metadata().map_err(|error| SnapshotError::File(path.clone(), error))?;
        before.insert(path, Stamp::from(&metadata));
        Ok(())
    })?;
    Ok(before)
}

/// Lists what a snapshot has of a downloaded module in `root`, if its links lead to files of the module.
pub(crate) fn of_module(root: &Path) -> Result<Before, SnapshotError> {
    let mut files = before(root)?;
    files.retain(|path, _| !is_credential(path));
    Ok(files)
}

/// The paths of a snapshot, relative to its root.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Selected {
    /// Files and links in the order of their bytes. Directories follow from them.
    pub(crate) files: BTreeSet<PathBuf>,
    /// Empty directories.
    pub(crate) directories: BTreeSet<PathBuf>,
    /// What the tool may read, but no snapshot has: files that git ignores or that may hold a secret, links that lead out of
    /// the root, and special files. [`crate::source::snapshot::check`] adds what else the configuration names.
    pub(crate) left_out: BTreeSet<PathBuf>,
    /// What only the ignore file excludes.
    pub(crate) excluded: BTreeSet<PathBuf>,
    /// Those of `excluded` that the configuration may name by paths that it computes.
    /// [`crate::source::snapshot::check`] finds them.
    pub(crate) may_be_read: BTreeSet<PathBuf>,
    /// Files of the machine, outside of every source, that the configuration names, as it names them.
    /// [`crate::source::snapshot::check`] finds them.
    pub(crate) outside: BTreeSet<PathBuf>,
}

/// The file in the root that excludes files, as for uploads to HCP Terraform.
const IGNORE_FILE: &str = ".terraformignore";

/// Selects the files below `root`.
pub(crate) fn select(root: &Path, source: &SourceFiles) -> Result<Selected, SnapshotError> {
    let ignore = read_ignore_file(root)?;
    let mut selected = Selected::default();
    selected.directories = walk(root, |path, entry| {
        let failed = |error| SnapshotError::File(path.clone(), error);
        let kind = entry.file_type().map_err(failed)?;
        let stamp = Stamp::from(&entry.metadata().map_err(failed)?);
        let belongs = match source.belongs(&path, stamp, &ignore) {
            Belongs::Packed => kind.is_file() || (kind.is_symlink() && leads_inside(root, &path)?),
            Belongs::LeftOut => false,
            Belongs::Ignored => {
                selected.excluded.insert(path);
                return Ok(());
            }
            Belongs::Excluded => return Ok(()),
        };
        let files = if belongs { &mut selected.files } else { &mut selected.left_out };
        files.insert(path);
        Ok(())
    })?;
    Ok(selected)
}

/// Calls `found` for everything below `root` but directories. What git, the tool and the runner keep for themselves is not
/// looked at, and links are not followed. Returns the empty directories.
fn walk(
    root: &Path,
    mut found: impl FnMut(PathBuf, &fs::DirEntry) -> Result<(), SnapshotError>,
) -> Result<BTreeSet<PathBuf>, SnapshotError> {
    let mut directories = vec![PathBuf::new()];
    let mut empty = BTreeSet::new();
    while let Some(directory) = directories.pop() {
        let mut is_empty = true;
        let path = root.join(&directory);
        let entries = fs::read_dir(&path).map_err(|error| SnapshotError::File(path, error))?;
        for entry in entries {
            let entry = entry.map_err(|error| SnapshotError::File(directory.clone(), error))?;
            is_empty = false;
            let path = directory.join(entry.file_name());
            if is_private(&path) {
                continue;
            }
            let kind = entry.file_type();
            if kind.map_err(|error| SnapshotError::File(path.clone(), error))?.is_dir() {
                directories.push(path);
            } else {
                found(path, &entry)?;
            }
        }
        if is_empty && !directory.as_os_str().is_empty() {
            empty.insert(directory);
        }
    }
    Ok(empty)
}

/// Whether a file belongs to a snapshot.
enum Belongs {
    Packed,
    /// It was there before init, so the tool may read it, but no snapshot has it.
    LeftOut,
    /// The ignore file excludes it.
    Ignored,
    /// Nothing that an apply could need.
    Excluded,
}

impl SourceFiles {
    fn belongs(&self, path: &Path, stamp: Stamp, ignore: &Gitignore) -> Belongs {
        let is_tracked = self.tracked.as_ref().is_some_and(|tracked| tracked.contains(path));
        let is_of_modules = below_data(path).is_some();
        if is_credential(path) || (is_secret(path) && !is_tracked && !is_of_modules) {
            return if is_state(path) && !is_tracked {
                Belongs::Excluded
            } else {
                Belongs::LeftOut
            };
        }
        if is_tracked || is_of_modules || path.ends_with(LOCK_FILE) {
            return Belongs::Packed;
        }
        if self.of_runner.iter().any(|own| path.starts_with(own)) {
            return Belongs::Excluded;
        }
        if self.before.get(path).is_none_or(|before| stamp != *before) {
            return Belongs::Packed;
        }
        if ignore.matched_path_or_any_parents(path, false).is_ignore() {
            return Belongs::Ignored;
        }
        let is_code = self.tracked.is_none() || self.not_ignored.contains(path);
        if is_code { Belongs::Packed } else { Belongs::LeftOut }
    }
}

fn read_ignore_file(root: &Path) -> Result<Gitignore, SnapshotError> {
    let path = root.join(IGNORE_FILE);
    let mut builder = GitignoreBuilder::new("");
    let failed = |error: &ignore::Error| SnapshotError::Ignore { error: error.to_string() };
    // A link is followed, but only to a regular file: to read a pipe or a device could never end.
    if fs::metadata(&path).is_ok_and(|file| !file.is_file()) {
        return Err(SnapshotError::Ignore { error: "it is not a regular file".to_owned() });
    }
    let text = fs::canonicalize(&path).and_then(|path| regular::read_text(&path));
    let text = unless_missing(text);
    let text = text.map_err(|error| SnapshotError::Ignore { error: reason(&error) })?;
    let text = text.unwrap_or_default();
    for line in text.trim_start_matches('\u{feff}').lines() {
        // Terraform ignores spaces before a pattern. Git does not.
        builder.add_line(None, line.trim_start()).map_err(|error| failed(&error))?;
    }
    builder.build().map_err(|error| failed(&error))
}

fn leads_inside(root: &Path, link: &Path) -> Result<bool, SnapshotError> {
    let path = root.join(link);
    let target = fs::read_link(&path).map_err(|error| SnapshotError::File(path, error))?;
    Ok(is_inside(link, &target))
}

/// The path below the last data directory of the tool in a path, if it has one.
fn below_data(path: &Path) -> Option<&Path> {
    let mut parts = path.components();
    let mut below = None;
    while let Some(part) = parts.next() {
        if part.as_os_str() == ".terraform" {
            below = Some(parts.as_path());
        }
    }
    below
}

/// Whether a file or directory is one of git, the tool or the runner that no snapshot has.
fn is_private(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().as_bytes();
    if matches!(name, b".git" | b".terragrunt-cache") || name.starts_with(b".plancha-") {
        return true;
    }
    // Of the tool's own data, only the modules and the selected workspace are more than a cache.
    let first = below_data(path).and_then(|data| data.components().next());
    first.is_some_and(|first| {
        !["modules", "environment"].iter().any(|kept| first.as_os_str() == *kept)
    })
}

/// Whether a file of a source is code: none of git, the tool and the runner, and no state or credential.
pub(crate) fn is_code(path: &Path) -> bool {
    let is_data = |name: &std::ffi::OsStr| name == ".terraform";
    !is_credential(path)
        && path.ancestors().all(|above| !is_private(above))
        && !path.iter().any(is_data)
}

/// The names in a path, in lower case: `.ENV` is a secret like `.env`.
fn lower_names(path: &Path) -> impl Iterator<Item = Vec<u8>> {
    path.components().map(|part| part.as_os_str().as_bytes().to_ascii_lowercase())
}

/// Whether a file holds a state or a credential. That git tracks it makes no difference.
fn is_credential(path: &Path) -> bool {
    lower_names(path).any(|name| {
        matches!(&*name, b".git-credentials" | b".netrc")
            || memchr::memmem::find(&name, b".tfstate").is_some()
    })
}

/// Whether a file is a state, a backup or a lock of one, or belongs to the states of other workspaces: nothing that a
/// configuration reads.
fn is_state(path: &Path) -> bool {
    let endings: [&[u8]; 3] = [b".tfstate", b".tfstate.backup", b".tfstate.lock.info"];
    lower_names(path).any(|name| {
        name == b"terraform.tfstate.d" || endings.iter().any(|ending| name.ends_with(ending))
    })
}

/// Whether a file usually holds a secret.
fn is_secret(path: &Path) -> bool {
    // `kubeconfig.tf` makes one.
    let is_code = path.file_name().is_some_and(|name| file_names::is_code(name.as_bytes()));
    lower_names(path).any(|name| {
        let is_kube_config =
            name == b".kube" || !is_code && memchr::memmem::find(&name, b"kubeconfig").is_some();
        name.starts_with(b".env")
            || name.ends_with(b".pem")
            || name.ends_with(b".key")
            || is_kube_config
    })
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;

    use super::*;

    fn paths(names: &[&str]) -> BTreeSet<PathBuf> {
        names.iter().map(PathBuf::from).collect()
    }

    /// Creates these files, of which those of `existing` exist before init.
    fn directory(files: &[&str], existing: &[&str], source: SourceFiles) -> (TempDir, SourceFiles) {
        let dir = tempfile::tempdir().unwrap();
        for file in files {
            let path = dir.path().join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            let is_ignore_file = file.ends_with(IGNORE_FILE);
            let content = if is_ignore_file { "examples/\n*.md\n!README.md\n" } else { "" };
            fs::write(path, content).unwrap();
        }
        let mut before = before(dir.path()).unwrap();
        before.retain(|path, _| paths(existing).contains(path));
        (dir, SourceFiles { before, ..source })
    }

    fn selected(dir: &TempDir, source: &SourceFiles) -> Vec<String> {
        let selected = select(dir.path(), source).unwrap().files;
        selected.into_iter().map(|path| path.into_os_string().into_string().unwrap()).collect()
    }

    /// What is selected of a directory with these files, which were all generated.
    fn selected_of(files: &[&str], source: SourceFiles) -> Vec<String> {
        let (dir, source) = directory(files, &[], source);
        selected(&dir, &source)
    }

    #[test]
    fn tracked_not_ignored_and_generated_files_are_selected() {
        let existing = [
            "main.tf",
            "new.tf",
            "ignored.tfvars",
            "examples/x.tf",
            "a.md",
            "old.zip",
            IGNORE_FILE,
        ];
        let source = SourceFiles {
            tracked: Some(paths(&["main.tf", "a.md"])),
            not_ignored: paths(&["new.tf", "examples/x.tf", IGNORE_FILE, "result.json"]),
            of_runner: vec!["result.json".into()],
            ..SourceFiles::default()
        };
        let files = [&existing[..], &["generated.md", "generated.zip", "result.json"]].concat();
        let (dir, source) = directory(&files, &existing, source);
        let before =
            [".terraformignore", "a.md", "generated.md", "generated.zip", "main.tf", "new.tf"];
        assert_eq!(selected(&dir, &source), before);
        fs::write(dir.path().join("old.zip"), "made again").unwrap();
        assert_eq!(selected(&dir, &source), [&before[..], &["old.zip"]].concat());
    }

    #[test]
    fn without_git_every_file_that_terraformignore_does_not_exclude_is_selected() {
        let files = ["main.tf", "a.md", "README.md", "examples/x.tf", IGNORE_FILE];
        let (dir, source) = directory(&files, &files, SourceFiles::default());
        assert_eq!(selected(&dir, &source), [".terraformignore", "README.md", "main.tf"]);
        // Terraform trims the lines.
        fs::write(
            dir.path().join(IGNORE_FILE),
            "  *.md\n\t# no\n   \n  !README.md\n\texamples/ \r\n",
        )
        .unwrap();
        assert_eq!(selected(&dir, &source), [".terraformignore", "README.md", "main.tf"]);
    }

    #[test]
    fn of_the_tools_data_only_modules_and_the_workspace_are_selected() {
        let files = [
            "m/.terraform.lock.hcl",
            "m/.terraform/modules/modules.json",
            "m/.terraform/modules/vpc/main.tf",
            "m/.terraform/modules/vpc/.git/config",
            "m/.terraform/modules/vpc/.terraform/providers/x",
            "m/.terraform/environment",
            "m/.terraform/providers/registry/aws",
            "m/.terraform/terraform.tfstate",
        ];
        let source = SourceFiles { tracked: Some(paths(&[])), ..SourceFiles::default() };
        let (dir, source) = directory(&files, &files, source);
        assert_eq!(
            selected(&dir, &source),
            [
                "m/.terraform/environment",
                "m/.terraform/modules/modules.json",
                "m/.terraform/modules/vpc/main.tf",
                "m/.terraform.lock.hcl",
            ]
        );
    }

    #[test]
    fn states_and_credentials_are_never_selected_and_other_secrets_only_if_tracked() {
        // In upper case, and a directory of the name, is the same.
        let secrets = [
            ".env",
            ".env.prod",
            ".envrc",
            ".ENV/x",
            "tls/ca.pem",
            "tls/CA.PEM",
            "tls/x.pem/x",
            "tls/ca.key",
            "tls/Server.Key/x",
            "kubeconfig",
            "KUBECONFIG.yaml",
            "kubeconfigs/prod.yaml",
            "prod-kubeconfig",
            "a.kubeconfig",
            ".kube/config",
            ".kube/config-prod",
        ];
        let never = [
            ".git/config",
            "sub/.git",
            ".terraform/providers/x",
            ".terraform/terraform.tfstate",
            ".git-credentials",
            ".Git-Credentials",
            "other/.netrc",
            ".NETRC",
            "sub/.netrc/x",
            "terraform.tfstate",
            "terraform.tfstate.backup",
            "terraform.tfstate.1700000000.backup",
            "TERRAFORM.TFSTATE",
            "terraform.tfstate.d/dev/x",
            "old.tfstate/x",
            "errored.tfstate",
            ".terraform/modules/m/.netrc",
            ".terraform/modules/m/x.tfstate",
        ];
        let source = |tracked| SourceFiles { tracked, ..SourceFiles::default() };
        for file in never {
            for tracked in [Some(paths(&[file])), Some(paths(&[])), None] {
                assert_eq!(selected_of(&[file], source(tracked)), [] as [&str; 0], "{file}");
            }
        }
        for file in secrets {
            assert_eq!(selected_of(&[file], source(Some(paths(&[file])))), [file]);
            for tracked in [Some(paths(&[])), None] {
                assert_eq!(selected_of(&[file], source(tracked)), [] as [&str; 0], "{file}");
            }
        }
        let code = ["env.tf", "kubeconfig.tf", "monkey.tf", "pem.tf"];
        assert_eq!(selected_of(&code, source(None)), code);
    }

    /// A link has the name of its target at most: its content is never packed.
    #[test]
    fn links_to_secrets_are_packed_as_links_and_links_with_their_names_are_not() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join(".env"), "secret").unwrap();
        fs::write(dir.path().join("main.tf"), "").unwrap();
        for (link, target) in [("to-env", ".env"), ("ca.pem", "main.tf"), (".netrc", "main.tf")] {
            std::os::unix::fs::symlink(target, dir.path().join(link)).unwrap();
        }
        let found = select(dir.path(), &SourceFiles::default()).unwrap();
        assert_eq!(found.files, paths(&["main.tf", "to-env"]));
        assert_eq!(found.left_out, paths(&[".env", ".netrc", "ca.pem"]));
        let mut packed = Vec::new();
        super::super::pack(dir.path(), &found, &mut packed).unwrap();
        let packed = zstd::decode_all(&packed[..]).unwrap();
        assert!(!packed.windows(6).any(|bytes| bytes == b"secret"));
    }

    #[test]
    fn an_ignore_file_may_be_a_link_to_a_file_but_not_to_a_device_or_pipe() {
        let (dir, source) =
            directory(&["main.tf", "a.md"], &["main.tf", "a.md"], SourceFiles::default());
        let (link, other) = (dir.path().join(IGNORE_FILE), tempfile::tempdir().unwrap());
        let targets = ["file", "pipe", "missing"].map(|name| other.path().join(name));
        fs::write(&targets[0], "\u{feff}*.md\n").unwrap();
        nix::unistd::mkfifo(&targets[1], nix::sys::stat::Mode::S_IRWXU).unwrap();
        let result = |target: &Path| {
            let _removed = fs::remove_file(&link);
            std::os::unix::fs::symlink(target, &link).unwrap();
            select(dir.path(), &source).map(|selected| selected.files.contains(Path::new("a.md")))
        };
        assert!(!result(&targets[0]).unwrap());
        assert!(result(&targets[2]).unwrap());
        for target in [&targets[1], Path::new("/dev/zero"), other.path()] {
            let error = result(target).unwrap_err();
            let expected = ".terraformignore cannot be read: it is not a regular file";
            assert_eq!(datastore_api::chain(&error), expected);
        }
        fs::write(&targets[0], "[z-a]\n").unwrap();
        let error = datastore_api::chain(&result(&targets[0]).unwrap_err());
        assert!(error.matches(IGNORE_FILE).count() == 1 && error.contains("[z-a]"), "{error}");
    }

    #[test]
    fn links_out_of_the_root_and_special_files_are_left_out() {
        let dir = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink("main.tf", dir.path().join("inside")).unwrap();
        std::os::unix::fs::symlink("/etc/passwd", dir.path().join("outside")).unwrap();
        nix::unistd::mkfifo(&dir.path().join("fifo"), nix::sys::stat::Mode::S_IRUSR).unwrap();
        let found = select(dir.path(), &SourceFiles::default()).unwrap();
        assert_eq!(found.files, paths(&["inside"]));
        assert_eq!(found.left_out, paths(&["fifo", "outside"]));
    }
}
