//! Tracked files whose bytes are not those of git's object, because git converts them: by a filter, or line endings. Its status
//! compares what the conversion makes of a file, so it can hide a change.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use crate::source::git::hidden::{AT_ONCE, Conversion, hashes, recorded};
use crate::source::git::work_tree::nearest_top;

/// Those of the files, by full paths without links, that git tracks and that are not byte for byte as in its index. The error
/// is git's reason.
pub(crate) async fn converted<'a>(
    files: impl Iterator<Item = &'a PathBuf>,
) -> Result<BTreeSet<PathBuf>, String> {
    let mut trees = BTreeMap::<&Path, Vec<PathBuf>>::new();
    for file in files {
        let tree = file.parent().and_then(nearest_top);
        if let Some((tree, path)) =
            tree.and_then(|tree| Some((tree, file.strip_prefix(tree).ok()?)))
        {
            trees.entry(tree).or_default().push(path.to_owned());
        }
    }
    let mut found = BTreeSet::new();
    for (tree, paths) in trees {
        for paths in paths.chunks(AT_ONCE) {
            let recorded = recorded(tree, paths).await?;
            let tracked = recorded.keys().collect::<Vec<_>>();
            let hashes = hashes(tree, &tracked, Conversion::None).await?;
            let pairs = recorded.iter().zip(hashes);
            let others = pairs.filter(|((_, (_, id)), hash)| id != hash);
            found.extend(others.map(|((path, _), _)| tree.join(path)));
        }
    }
    Ok(found)
}
