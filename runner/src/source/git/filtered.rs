//! Files that a filter of git's configuration changes. Git compares what the filter makes of a file with the commit, so its
//! status can hide a change of the file.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use crate::source::git::command::question;

/// One command gets at most so many paths.
const AT_ONCE: usize = 500;

/// Those of the files, by full paths without links, that such a filter changes. That of git LFS hides no change. The error is
/// git's reason.
pub(crate) async fn filtered<'a>(
    files: impl Iterator<Item = &'a PathBuf>,
) -> Result<BTreeSet<PathBuf>, String> {
    let mut trees = BTreeMap::<&Path, Vec<&Path>>::new();
    for file in files {
        let tree = file.ancestors().skip(1).find(|dir| dir.join(".git").exists());
        if let Some((tree, path)) =
            tree.and_then(|tree| Some((tree, file.strip_prefix(tree).ok()?)))
        {
            trees.entry(tree).or_default().push(path);
        }
    }
    let mut found = BTreeSet::new();
    for (tree, paths) in trees {
        let filters = filters(tree).await?;
        if filters.is_empty() {
            continue;
        }
        for paths in paths.chunks(AT_ONCE) {
            let args = ["check-attr", "-z", "filter", "--"].iter().map(OsStr::new);
            let args = args.chain(paths.iter().map(|path| path.as_os_str())).collect::<Vec<_>>();
            let attributes = question(tree, &args).await?;
            let attributes = attributes.split(|byte| *byte == 0).collect::<Vec<_>>();
            for entry in attributes.chunks_exact(3).filter(|entry| filters.contains(entry[2])) {
                found.insert(tree.join(OsStr::from_bytes(entry[0])));
            }
        }
    }
    Ok(found)
}

/// The names of the filters that a work tree has, without that of git LFS.
async fn filters(tree: &Path) -> Result<BTreeSet<Vec<u8>>, String> {
    let settings = question(tree, &["config", "--null", "--list"]).await?;
    let names = settings.split(|byte| *byte == 0).filter_map(|setting| {
        let at = setting.iter().position(|byte| *byte == b'\n')?;
        let (key, command) = (&setting[..at], &setting[at + 1..]);
        let key = key.strip_prefix(b"filter.")?;
        let name = key.strip_suffix(b".clean").or_else(|| key.strip_suffix(b".process"))?;
        let is_lfs = command.starts_with(b"git-lfs ") || command.starts_with(b"git lfs ");
        (!is_lfs && !command.is_empty()).then(|| name.to_owned())
    });
    Ok(names.collect())
}
