//! Copies a read-only directory, or an unpacked archive, into a directory where the tool can work.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::io::{self, Write as _};
use std::ops::Bound;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt};
use std::path::{Path, PathBuf};

use fs_err as fs;
use fs_err::os::unix::fs::symlink;
use nix::errno::Errno;

use crate::source::archive::link::is_inside;
use crate::source::error::CheckoutError;
use crate::source::path::{is_below, normal};
use crate::source::regular::unless_missing;
use crate::source::states::{self, is_state};
use crate::source::work_dir::{MARK, foreign, mark};

/// The list of the files that copies brought, so that the next copy can remove those that are gone
/// from the source. Each name ends with a NUL byte, which no file name can contain; lists of earlier
/// versions have one name per line.
const LIST: &str = ".plancha-copied";

/// What is copied of a symbolic link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Links {
    /// What it leads to, as a mounted ConfigMap needs it. Its `..data` directories are left out.
    Followed,
    /// The link itself.
    Kept,
    /// The link itself, which leads to the same: a relative one that leads out of the directory, or to something in it that is
    /// not copied, becomes an absolute one.
    Same,
}

/// Which files of a directory are copied, by their paths below it.
pub(super) type Wanted<'a> = &'a dyn Fn(&Path) -> bool;

/// What a work directory may hold that is of no person.
#[derive(Debug, Default)]
pub(super) struct Existing {
    /// The files of an earlier checkout by git.
    pub(super) checked_out: BTreeSet<PathBuf>,
    /// Directories in which tools keep data.
    pub(super) of_tools: Vec<PathBuf>,
}

/// Removes what earlier copies have brought, but for states and the files `but`: from now on the directory has a checkout.
pub(super) fn remove_copied(dir: &Path, but: &BTreeSet<PathBuf>) -> io::Result<()> {
    let list = dir.join(LIST);
    for copied in read_list(&list)?.difference(but) {
        if is_below(copied) && !is_state(copied) && !is_behind_link(dir, copied) {
            remove(&dir.join(copied))?;
        }
    }
    unless_missing(fs::remove_file(list)).map(drop)
}

/// Copies `from` into a new directory. Returns what was copied. It leaves no list there: the configuration may read the
/// names of all files in its directory.
pub(super) fn new_tree(
    from: &Path,
    to: &Path,
    links: Links,
    wanted: Wanted<'_>,
) -> Result<BTreeSet<PathBuf>, CheckoutError> {
    let found = Found::below(from, links)?.only(wanted);
    found.copy(from, to)?;
    Ok(found.files)
}

/// Copies `from` into `to`, which may hold an earlier copy and the tool's own files: files that are
/// gone from `from` are removed, the tool's own stay, and a state file is never replaced or removed. Nothing is written
/// or removed through a link in `to`. Code of others in `to` is refused. Returns what was copied.
pub(super) fn tree(
    from: &Path,
    to: &Path,
    links: Links,
    wanted: Wanted<'_>,
    existing: Existing,
) -> Result<BTreeSet<PathBuf>, CheckoutError> {
    let found = Found::below(from, links)?.only(wanted);
    found.check_states(to)?;
    let list = to.join(LIST);
    let mut before = existing.checked_out;
    before.extend(read_list(&list)?);
    foreign::check(to, &before, &existing.of_tools)?;
    // Both lists at once: a copy that is killed halfway leaves no file that no list names.
    write_list(&list, before.union(&found.files))?;
    // First, because a link or a directory may take the place of a file, and the other way round.
    for stale in before.difference(&found.files) {
        if is_below(stale) && !is_state(stale) && !is_behind_link(to, stale) {
            remove(&to.join(stale))?;
        }
    }
    found.copy(from, to)?;
    write_list(&list, found.files.iter())?;
    Ok(found.files)
}

/// Whether a parent of the path is a link in `to`.
pub(super) fn is_behind_link(to: &Path, path: &Path) -> bool {
    let mut parents = path.ancestors().skip(1).filter(|parent| !parent.as_os_str().is_empty());
    parents.any(|parent| to.join(parent).is_symlink())
}

/// Removes a file or link that an earlier copy or checkout brought. One that was interrupted may have made a directory in
/// its place.
pub(super) fn remove(file: &Path) -> io::Result<()> {
    let gone = [io::ErrorKind::NotFound, io::ErrorKind::NotADirectory, io::ErrorKind::IsADirectory];
    match fs::remove_file(file) {
        Err(error) if !gone.contains(&error.kind()) => Err(error),
        _ => Ok(()),
    }
}

/// Removes a directory that contains only directories. A file in it is the tool's own, or a state.
fn remove_emptied(dir: &Path) -> io::Result<()> {
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            remove_emptied(&entry.path())?;
        }
    }
    fs::remove_dir(dir)
}

fn make_directory(dir: &Path) -> io::Result<()> {
    match fs::symlink_metadata(dir) {
        Ok(existing) if existing.is_dir() => return Ok(()),
        Ok(existing) if existing.is_symlink() => fs::remove_file(dir)?,
        _ => {}
    }
    fs::create_dir(dir)
}

fn read_list(list: &Path) -> io::Result<BTreeSet<PathBuf>> {
    let bytes = match fs::read(list) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
        other => other?,
    };
    let separator = if bytes.contains(&0) { 0 } else { b'\n' };
    let names = bytes.split(|byte| *byte == separator).filter(|name| !name.is_empty());
    Ok(names.map(|name| PathBuf::from(OsStr::from_bytes(name))).collect())
}

/// Replaces the list whole or not at all.
fn write_list<'a>(list: &Path, names: impl Iterator<Item = &'a PathBuf>) -> io::Result<()> {
    let mut new = list.as_os_str().to_owned();
    new.push(".new");
    let new = PathBuf::from(new);
    let mut file = io::BufWriter::new(crate::process::private_file(&new)?);
    for name in names {
        file.write_all(name.as_os_str().as_bytes())?;
        file.write_all(b"\0")?;
    }
    file.into_inner()?.sync_all()?;
    fs::rename(new, list)
}

/// Whether the path is a link that leads to itself, perhaps by others.
fn is_loop(path: &Path) -> bool {
    let metadata = std::fs::metadata(path);
    path.is_symlink()
        && metadata.is_err_and(|error| error.raw_os_error() == Some(Errno::ELOOP as i32))
}

/// The files and kept links below a directory, by their paths.
pub(super) fn files(dir: &Path, links: Links) -> Result<BTreeSet<PathBuf>, CheckoutError> {
    Ok(Found::below(dir, links)?.files)
}

/// Copies one file.
pub(super) fn file(from: &Path, to: &Path) -> Result<(), CheckoutError> {
    copy(from, to, None)
}

fn copy(from: &Path, to: &Path, target: Option<PathBuf>) -> Result<(), CheckoutError> {
    let existing = unless_missing(fs::symlink_metadata(to))?;
    if is_state(Path::new(to.file_name().unwrap_or_default())) && existing.is_some() {
        tracing::info!("keeping {}: the source's copy may be older", to.display());
        return Ok(());
    }
    match existing {
        Some(existing) if existing.is_dir() => remove_emptied(to)?,
        Some(existing) if existing.is_symlink() || target.is_some() => fs::remove_file(to)?,
        _ => {}
    }
    if let Some(target) = target {
        return Ok(symlink(target, to)?);
    }
    let mut source = fs::File::open(from).map_err(CheckoutError::Unreadable)?;
    let executable = source.metadata()?.permissions().mode() & 0o100;
    let mut target = crate::process::private_file(to)?;
    io::copy(&mut source, &mut target)?;
    Ok(target.set_permissions(PermissionsExt::from_mode(0o600 | executable))?)
}

/// What a directory holds, by paths below it; every directory comes before its content.
struct Found {
    links: Links,
    directories: Vec<PathBuf>,
    /// Files, and links that are kept.
    files: BTreeSet<PathBuf>,
}

impl Found {
    /// What `from` holds.
    fn below(from: &Path, links: Links) -> Result<Self, CheckoutError> {
        let mut found = Self { links, directories: Vec::new(), files: BTreeSet::new() };
        found.walk(from, Path::new(""), &mut Vec::new())?;
        Ok(found)
    }

    fn copy(&self, from: &Path, to: &Path) -> Result<(), CheckoutError> {
        for dir in &self.directories {
            make_directory(&to.join(dir))?;
        }
        for file in &self.files {
            copy(&from.join(file), &to.join(file), self.target(from, file)?)?;
        }
        Ok(())
    }

    /// Where the copy of this leads, if it is to be a link.
    fn target(&self, from: &Path, file: &Path) -> io::Result<Option<PathBuf>> {
        let path = from.join(file);
        let is_kept =
            if self.links == Links::Followed { is_loop(&path) } else { path.is_symlink() };
        if !is_kept {
            return Ok(None);
        }
        let target = fs::read_link(&path)?;
        let leads_out = self.links == Links::Same
            && (!is_inside(file, &target) || self.lacks(from, file, &target));
        Ok(Some(if leads_out { path.parent().unwrap_or(&path).join(target) } else { target }))
    }

    /// Whether a relative link leads to something that is not copied, and that no tool makes again in the copy.
    fn lacks(&self, from: &Path, link: &Path, target: &Path) -> bool {
        let path = normal(&link.parent().unwrap_or(Path::new("")).join(target));
        let mut after = self.files.range::<Path, _>((Bound::Included(&*path), Bound::Unbounded));
        let is_copied = after.next().is_some_and(|file| file.starts_with(&path))
            || path.ancestors().any(|above| self.files.contains(above))
            || self.directories.contains(&path);
        let is_data = path.iter().any(|name| name == ".terraform" || name == ".terragrunt-cache");
        !is_copied && !is_data && from.join(&path).exists()
    }

    /// Only these files and directories, such as those of empty submodules, with the directories above them.
    fn only(mut self, wanted: Wanted<'_>) -> Self {
        self.files.retain(|file| wanted(file));
        let directories = self.directories.iter().filter(|dir| wanted(dir));
        let kept = self.files.iter().chain(directories).cloned().collect::<BTreeSet<_>>();
        let holds = |dir: &PathBuf| {
            let mut after = kept.range::<Path, _>((Bound::Included(&**dir), Bound::Unbounded));
            after.next().is_some_and(|path| path.starts_with(dir))
        };
        self.directories.retain(holds);
        self
    }

    /// Fails if a file takes the place of a directory with a state in it.
    fn check_states(&self, to: &Path) -> Result<(), CheckoutError> {
        for state in unless_missing(states::find(to))?.unwrap_or_default() {
            let mut above = state.ancestors().skip(1);
            if let Some(file) = above.find_map(|above| self.files.get(above)) {
                let (state, file) = (to.join(&state), file.clone());
                return Err(CheckoutError::StateInTheWay { state, file });
            }
        }
        Ok(())
    }

    /// `above` has the parent directories, to detect links in a circle.
    fn walk(
        &mut self,
        from: &Path,
        below: &Path,
        above: &mut Vec<(u64, u64)>,
    ) -> Result<(), CheckoutError> {
        let metadata = fs::metadata(from.join(below)).map_err(CheckoutError::Unreadable)?;
        let identity = (metadata.dev(), metadata.ino());
        if above.contains(&identity) {
            return Err(CheckoutError::LinkAbove(from.join(below)));
        }
        above.push(identity);
        for entry in fs::read_dir(from.join(below)).map_err(CheckoutError::Unreadable)? {
            let name = entry.map_err(CheckoutError::Unreadable)?.file_name();
            let ours = name == LIST || name == MARK;
            let is_cache = self.links == Links::Same && name == ".terragrunt-cache";
            let is_data = name == ".terraform" || name == ".git" || ours || is_cache;
            let is_mounted =
                self.links == Links::Followed && name.as_encoded_bytes().starts_with(b"..");
            if is_mounted || is_data {
                continue;
            }
            let path = below.join(name);
            let metadata = match self.links {
                Links::Followed => fs::metadata(from.join(&path)),
                Links::Kept | Links::Same => fs::symlink_metadata(from.join(&path)),
            };
            let metadata = match metadata {
                // A dangling link: git stores them, and terraform ignores them.
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                // As it is: perhaps nothing reads it.
                Err(_) if is_loop(&from.join(&path)) => {
                    self.files.insert(path);
                    continue;
                }
                other => other.map_err(CheckoutError::Unreadable)?,
            };
            if metadata.is_dir() {
                // A work directory of another run is no code, and may hold copies of others.
                if !mark(&from.join(&path)).exists() {
                    self.directories.push(path.clone());
                    self.walk(from, &path, above)?;
                }
            } else if metadata.is_file() || metadata.is_symlink() {
                self.files.insert(path);
            }
        }
        above.pop();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(from: &Path, to: &Path) -> Result<BTreeSet<PathBuf>, CheckoutError> {
        super::tree(from, to, Links::Followed, &|_| true, Existing::default())
    }

    fn names(dir: &Path) -> Vec<String> {
        let mut names = fs::read_dir(dir)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .filter(|name| name != LIST)
            .collect::<Vec<_>>();
        names.sort();
        names
    }

    #[test]
    fn a_mounted_config_map_is_copied_as_plain_files() {
        let dir = tempfile::tempdir().unwrap();
        let (from, to) = (dir.path().join("from"), dir.path().join("to"));
        fs::create_dir_all(from.join("..2026")).unwrap();
        fs::create_dir(&to).unwrap();
        fs::write(from.join("..2026/main.tf"), "# main").unwrap();
        fs::os::unix::fs::symlink("..2026", from.join("..data")).unwrap();
        fs::os::unix::fs::symlink("..data/main.tf", from.join("main.tf")).unwrap();
        tree(&from, &to).unwrap();
        assert_eq!(names(&to), ["main.tf"]);
        assert!(fs::symlink_metadata(to.join("main.tf")).unwrap().is_file());
    }

    #[test]
    fn work_directories_of_other_runs_are_not_copied() {
        let dir = tempfile::tempdir().unwrap();
        let (from, to) = (dir.path().join("from"), dir.path().join("to"));
        for (work, mark) in [("a", MARK), ("b", ".git/plancha-work")] {
            let work = from.join("work").join(work);
            fs::create_dir_all(work.join(".git")).unwrap();
            fs::write(work.join(mark), "").unwrap();
            fs::write(work.join("main.tf"), "").unwrap();
        }
        fs::create_dir(&to).unwrap();
        fs::write(from.join("main.tf"), "").unwrap();
        fs::write(from.join(MARK), "of the directory itself").unwrap();
        assert_eq!(tree(&from, &to).unwrap(), BTreeSet::from([PathBuf::from("main.tf")]));
    }

    #[test]
    fn a_second_copy_takes_away_what_is_gone_and_leaves_what_the_tool_made() {
        let dir = tempfile::tempdir().unwrap();
        let (from, to) = (dir.path().join("from"), dir.path().join("to"));
        fs::create_dir_all(from.join("sub")).unwrap();
        fs::create_dir(&to).unwrap();
        fs::write(from.join("old.tf"), "").unwrap();
        fs::write(from.join("sub/x.sh"), "").unwrap();
        fs::set_permissions(from.join("sub/x.sh"), PermissionsExt::from_mode(0o555)).unwrap();
        tree(&from, &to).unwrap();
        fs::write(to.join("terraform.tfstate"), "{}").unwrap();
        fs::remove_file(from.join("old.tf")).unwrap();
        fs::write(from.join("new.tf"), "").unwrap();
        tree(&from, &to).unwrap();
        assert_eq!(names(&to), ["new.tf", "sub", "terraform.tfstate"]);
        assert_eq!(fs::metadata(to.join("sub/x.sh")).unwrap().permissions().mode() & 0o777, 0o700);
    }

    #[test]
    fn a_link_to_itself_is_copied_as_it_is_and_one_to_a_parent_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let (from, to) = (dir.path().join("from"), dir.path().join("to"));
        fs::create_dir_all(from.join("sub")).unwrap();
        fs::create_dir(&to).unwrap();
        symlink("loop", from.join("loop")).unwrap();
        symlink("../sub/b", from.join("sub/a")).unwrap();
        symlink("a", from.join("sub/b")).unwrap();
        for _ in 0..2 {
            tree(&from, &to).unwrap();
            assert_eq!(fs::read_link(to.join("loop")).unwrap(), Path::new("loop"));
            assert_eq!(fs::read_link(to.join("sub/a")).unwrap(), Path::new("../sub/b"));
        }
        fs::remove_file(from.join("loop")).unwrap();
        fs::write(from.join("loop"), "a file").unwrap();
        tree(&from, &to).unwrap();
        assert_eq!(fs::read_to_string(to.join("loop")).unwrap(), "a file");
        symlink("..", from.join("sub/up")).unwrap();
        let error = tree(&from, &to).unwrap_err();
        assert!(matches!(error, CheckoutError::LinkAbove(link) if link == from.join("sub/up")));
    }

    #[test]
    fn a_file_name_with_a_newline_removes_no_other_file() {
        let dir = tempfile::tempdir().unwrap();
        let (from, to) = (dir.path().join("from"), dir.path().join("to"));
        fs::create_dir_all(&from).unwrap();
        fs::create_dir(&to).unwrap();
        fs::write(from.join("x\nkept.txt"), "").unwrap();
        tree(&from, &to).unwrap();
        fs::write(to.join("kept.txt"), "of the tool").unwrap();
        fs::remove_file(from.join("x\nkept.txt")).unwrap();
        tree(&from, &to).unwrap();
        assert_eq!(names(&to), ["kept.txt"]);
    }

    #[test]
    fn a_state_is_never_removed_or_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let (from, to) = (dir.path().join("from"), dir.path().join("to"));
        fs::create_dir_all(from.join("terraform.tfstate.d/dev")).unwrap();
        fs::create_dir(&to).unwrap();
        let states =
            ["terraform.tfstate", "terraform.tfstate.1.backup", "terraform.tfstate.d/dev/x"];
        for state in states {
            fs::write(from.join(state), "committed").unwrap();
        }
        tree(&from, &to).unwrap();
        fs::write(to.join(states[0]), "of the apply").unwrap();
        tree(&from, &to).unwrap();
        assert_eq!(fs::read_to_string(to.join(states[0])).unwrap(), "of the apply");
        for state in states {
            fs::remove_file(from.join(state)).unwrap();
        }
        // A list of an earlier version, as that wrote it for a file named "x\nterraform.tfstate".
        fs::write(to.join(LIST), "x\nterraform.tfstate\nold.tf\n").unwrap();
        fs::write(to.join("old.tf"), "").unwrap();
        tree(&from, &to).unwrap();
        assert!(states.iter().all(|state| to.join(state).exists()));
        assert!(!to.join("old.tf").exists(), "lists of earlier versions are read");
    }

    #[test]
    fn a_copy_that_was_cut_off_leaves_no_file_that_a_later_copy_does_not_know() {
        let dir = tempfile::tempdir().unwrap();
        let (from, to) = (dir.path().join("from"), dir.path().join("to"));
        fs::create_dir_all(&from).unwrap();
        fs::create_dir_all(to.join("b.tf")).unwrap();
        fs::write(to.join("b.tf/own"), "").unwrap();
        fs::write(from.join("a.tf"), "").unwrap();
        fs::write(from.join("b.tf"), "").unwrap();
        tree(&from, &to).unwrap_err();
        assert!(to.join("a.tf").exists(), "copied before the copy failed");
        fs::remove_file(from.join("a.tf")).unwrap();
        fs::remove_dir_all(to.join("b.tf")).unwrap();
        tree(&from, &to).unwrap();
        assert_eq!(names(&to), ["b.tf"]);
    }

    #[test]
    fn kept_links_replace_files_and_directories_and_are_replaced_by_them() {
        let dir = tempfile::tempdir().unwrap();
        let (from, to) = (dir.path().join("from"), dir.path().join("to"));
        fs::create_dir_all(&to).unwrap();
        let write = |path: &str, text: &str| {
            fs::create_dir_all(from.join(path).parent().unwrap()).unwrap();
            fs::write(from.join(path), text).unwrap();
        };
        let link = |path: &str, target: &str| {
            fs::create_dir_all(from.join(path).parent().unwrap()).unwrap();
            symlink(target, from.join(path)).unwrap();
        };
        let copy = || super::tree(&from, &to, Links::Kept, &|_| true, Existing::default());
        let target = |path: &str| fs::read_link(to.join(path)).unwrap();
        write("b/x.tf", "b");
        link("a", "b");
        link("b/y.tf", "x.tf");
        link("gone", "nowhere");
        link("self", ".");
        write("..data/z.tf", "");
        write("c/deep/x.tf", "c");
        write("d.tf", "d");
        copy().unwrap();
        copy().unwrap();
        assert_eq!([target("a"), target("gone")], ["b", "nowhere"].map(PathBuf::from));
        assert_eq!([target("b/y.tf"), target("self")], ["x.tf", "."].map(PathBuf::from));
        assert!(to.join("..data/z.tf").exists());
        // A directory becomes a link, and the other way round. What a link leads to is not changed through it.
        fs::remove_file(from.join("a")).unwrap();
        write("a/x.tf", "a");
        fs::remove_file(from.join("b/y.tf")).unwrap();
        write("b/y.tf", "y");
        fs::remove_dir_all(from.join("c")).unwrap();
        link("c", "b");
        fs::remove_file(from.join("d.tf")).unwrap();
        write("d.tf/x", "");
        copy().unwrap();
        let read = |path: &str| fs::read_to_string(to.join(path)).unwrap();
        assert_eq!([read("a/x.tf"), read("b/x.tf"), read("b/y.tf")], ["a", "b", "y"]);
        assert_eq!(target("c"), Path::new("b"));
        assert!(to.join("d.tf/x").exists());
        // The tool's own files and states in a directory stay.
        fs::write(to.join("a/terraform.tfstate"), "{}").unwrap();
        fs::remove_dir_all(from.join("a")).unwrap();
        link("a", "b");
        let error = copy().unwrap_err();
        assert!(matches!(error, CheckoutError::StateInTheWay { .. }), "{error}");
        assert!(to.join("a/terraform.tfstate").exists());
    }

    #[test]
    fn a_link_to_what_is_not_copied_leads_to_the_original() {
        let dir = tempfile::tempdir().unwrap();
        let (from, to) = (dir.path().join("from"), dir.path().join("to"));
        for file in ["kept/x", "left/x", "kept/.terraform/x"] {
            fs::create_dir_all(from.join(file).parent().unwrap()).unwrap();
            fs::write(from.join(file), file).unwrap();
        }
        let same = [("c", "b/x"), ("d", "../kept"), ("e", "../gone"), ("f", ".terraform/x")];
        for (link, target) in [("a", "../left/x"), ("b", "../left")].into_iter().chain(same) {
            symlink(target, from.join("kept").join(link)).unwrap();
        }
        fs::create_dir(&to).unwrap();
        let wanted = |path: &Path| path.starts_with("kept");
        new_tree(&from, &to, Links::Same, &wanted).unwrap();
        for (link, text) in [("a", "left/x"), ("b/x", "left/x"), ("c", "left/x"), ("d/x", "kept/x")]
        {
            assert_eq!(fs::read_to_string(to.join("kept").join(link)).unwrap(), text, "{link}");
        }
        for (link, target) in same {
            let copied = fs::read_link(to.join("kept").join(link)).unwrap();
            assert_eq!(copied, Path::new(target), "{link}");
        }
    }

    #[test]
    fn a_wanted_empty_directory_is_made_with_those_above_it() {
        let dir = tempfile::tempdir().unwrap();
        let (from, to) = (dir.path().join("from"), dir.path().join("to"));
        fs::create_dir_all(from.join("deep/mods/sub")).unwrap();
        fs::create_dir_all(from.join("deep/mods-other")).unwrap();
        fs::create_dir(&to).unwrap();
        let wanted = |path: &Path| path == Path::new("deep/mods/sub");
        super::tree(&from, &to, Links::Followed, &wanted, Existing::default()).unwrap();
        assert!(to.join("deep/mods/sub").is_dir());
        assert!(!to.join("deep/mods-other").exists());
    }

    #[test]
    fn a_link_in_a_circle_is_an_error_and_not_endless() {
        let dir = tempfile::tempdir().unwrap();
        let (from, to) = (dir.path().join("from"), dir.path().join("to"));
        fs::create_dir_all(&from).unwrap();
        fs::create_dir(&to).unwrap();
        fs::os::unix::fs::symlink(&from, from.join("again")).unwrap();
        assert!(datastore_api::chain(&tree(&from, &to).unwrap_err()).contains("again"));
    }
}
