//! Tracked files whose changes git does not show, because its index has the flag assume-unchanged or skip-worktree for them.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use fs_err as fs;

use crate::source::git::command::question;
use crate::source::git::index::Index;

/// One command gets at most so many paths.
pub(super) const AT_ONCE: usize = 500;

/// A file with such a flag.
struct Flagged {
    /// Its path below the directory.
    path: PathBuf,
    /// Whether a sparse checkout may leave it out.
    is_skipped: bool,
}

/// The files of a directory with such a flag, also in submodules, by their paths in it.
pub(super) struct Hidden {
    /// Those that differ from the index.
    pub(super) changed: Vec<PathBuf>,
    /// Those that a sparse checkout leaves out.
    pub(super) left_out: Vec<PathBuf>,
}

/// Finds the files below a directory that have such a flag, and differ from the index or are missing. `index` is that of the
/// directory. The error is git's reason.
pub(super) async fn files(dir: &Path, index: &Index) -> Result<Hidden, String> {
    let flagged = flagged(dir, index).await?;
    let (present, missing) =
        flagged.into_iter().partition::<Vec<_>, _>(|file| is_there(&dir.join(&file.path)));
    let mut changed = edits(dir, present).await?;
    let mut left_out = Vec::new();
    let mut sparse = BTreeMap::new();
    for file in missing {
        let tree = tree_of(dir, &file);
        let is_sparse = match sparse.get(&tree) {
            Some(is_sparse) => *is_sparse,
            None => *sparse.entry(tree.clone()).or_insert(is_sparse(&tree).await),
        };
        let of_kind = if is_sparse && file.is_skipped { &mut left_out } else { &mut changed };
        of_kind.push(file.path);
    }
    Ok(Hidden { changed, left_out })
}

/// The work tree that has the file: the directory, or a submodule in it.
fn tree_of(dir: &Path, file: &Flagged) -> PathBuf {
    let mut above = file.path.ancestors().skip(1);
    let tree = above.find(|above| is_there(&dir.join(above).join(".git")));
    dir.join(tree.unwrap_or(Path::new("")))
}

/// Those of the files that are there and differ, and the work trees that have any flags: the directory, or submodules in it.
pub(super) async fn edits_and_trees(
    dir: &Path,
) -> Result<(Vec<PathBuf>, BTreeSet<PathBuf>), String> {
    let flagged = flagged(dir, &Index::read(dir).await?).await?;
    let trees = flagged.iter().map(|file| tree_of(dir, file)).collect();
    let present = flagged.into_iter().filter(|file| is_there(&dir.join(&file.path))).collect();
    Ok((edits(dir, present).await?, trees))
}

/// Whether a work tree has a sparse checkout.
pub(super) async fn is_sparse(tree: &Path) -> bool {
    let value = question(tree, &["config", "--type=bool", "--get", "core.sparseCheckout"]).await;
    value.is_ok_and(|value| value.starts_with(b"true"))
}

fn is_there(file: &Path) -> bool {
    std::fs::symlink_metadata(file).is_ok()
}

async fn flagged(dir: &Path, index: &Index) -> Result<Vec<Flagged>, String> {
    let flagged = |tag: u8, path: &Path| {
        let (path, is_skipped) = (path.to_owned(), matches!(tag, b'S' | b's'));
        (is_skipped || tag.is_ascii_lowercase()).then_some(Flagged { path, is_skipped })
    };
    if !index.has_submodules() {
        let entries = index.entries().filter_map(|entry| flagged(entry.tag, entry.path));
        return Ok(entries.collect());
    }
    let listed = question(dir, &["ls-files", "-v", "-z", "--recurse-submodules"]).await?;
    let entries = listed.split(|byte| *byte == 0);
    let entries = entries.filter_map(|entry| {
        flagged(*entry.first()?, Path::new(OsStr::from_bytes(entry.get(2..)?)))
    });
    Ok(entries.collect())
}

/// Those of the files that differ from the index.
async fn edits(dir: &Path, files: Vec<Flagged>) -> Result<Vec<PathBuf>, String> {
    let mut edits = Vec::new();
    let paths = files.into_iter().map(|file| file.path).collect::<Vec<_>>();
    for paths in paths.chunks(AT_ONCE) {
        let recorded = recorded(dir, paths).await?;
        let (mut regular, mut ids) = (Vec::new(), Vec::new());
        for path in paths {
            let file = dir.join(path);
            let Ok(metadata) = fs::symlink_metadata(&file) else { continue };
            match recorded.get(path) {
                Some((mode, id)) if mode == "120000" && metadata.is_symlink() => {
                    let dir = file.parent().unwrap_or(dir);
                    let target = question(dir, &["cat-file", "blob", id]).await?;
                    if fs::read_link(&file).is_ok_and(|to| to.as_os_str().as_bytes() != target) {
                        edits.push(path.clone());
                    }
                }
                Some((mode, id)) if mode.starts_with("100") && metadata.is_file() => {
                    regular.push(path);
                    ids.push(id);
                }
                // Another kind of file; or a merge, which has several entries.
                _ => edits.push(path.clone()),
            }
        }
        let hashes = hashes(dir, &regular, Conversion::Configured).await?;
        let pairs = regular.into_iter().zip(ids).zip(hashes);
        edits
            .extend(pairs.filter(|((_, id), hash)| *id != hash).map(|((path, _), _)| path.clone()));
    }
    Ok(edits)
}

/// Mode and object of files in the index, without files in a merge.
pub(super) async fn recorded(
    dir: &Path,
    paths: &[PathBuf],
) -> Result<BTreeMap<PathBuf, (String, String)>, String> {
    let args = ["--literal-pathspecs", "ls-files", "--stage", "-z", "--recurse-submodules", "--"];
    let args = args.iter().map(OsStr::new).chain(paths.iter().map(|path| path.as_os_str()));
    let listed = question(dir, &args.collect::<Vec<_>>()).await?;
    let entries = listed.split(|byte| *byte == 0).filter_map(|entry| {
        let at = entry.iter().position(|byte| *byte == b'\t')?;
        let text = String::from_utf8_lossy(&entry[..at]).into_owned();
        let mut words = text.split(' ').map(str::to_owned);
        let (mode, id, stage) = (words.next()?, words.next()?, words.next()?);
        let path = PathBuf::from(OsStr::from_bytes(&entry[at + 1..]));
        (stage == "0").then_some((path, (mode, id)))
    });
    Ok(entries.collect())
}

/// What git makes of a file before it is compared.
#[derive(Clone, Copy)]
pub(super) enum Conversion {
    /// Nothing.
    None,
    /// What its configuration and attributes say: filters, and other line endings.
    Configured,
}

/// The objects that the files would be in git.
pub(super) async fn hashes(
    dir: &Path,
    paths: &[&PathBuf],
    conversion: Conversion,
) -> Result<Vec<String>, String> {
    if paths.is_empty() {
        return Ok(Vec::new());
    }
    let args = match conversion {
        Conversion::None => &["hash-object", "--no-filters", "--"][..],
        Conversion::Configured => &["hash-object", "--"],
    };
    let args = args.iter().map(OsStr::new);
    let args = args.chain(paths.iter().map(|path| path.as_os_str())).collect::<Vec<_>>();
    let hashes = String::from_utf8_lossy(&question(dir, &args).await?).into_owned();
    let hashes = hashes.lines().map(str::to_owned).collect::<Vec<_>>();
    if hashes.len() == paths.len() {
        Ok(hashes)
    } else {
        Err("git hashed not all files".to_owned())
    }
}
