//! Which of the files that a sparse checkout leaves out the configuration would read.

use std::path::{Path, PathBuf};

use crate::source::path::resolve;
use crate::source::references::calls::glob;
use crate::source::references::{References, is_configuration, is_values};
use crate::tool::file_names::LOCK_FILE;
use crate::version;

impl References {
    /// The first of the files in `missing`, which have no links in their paths, that the module in `root` would read, with the
    /// place that names it.
    pub(in crate::source) fn first_missing(
        &self,
        root: &Path,
        missing: &[PathBuf],
    ) -> Option<(PathBuf, String)> {
        let resolved = |path: &PathBuf| resolve(path).unwrap_or_else(|_| path.clone());
        let modules = self.modules.iter().map(resolved).collect::<Vec<_>>();
        let root = resolved(&root.to_owned());
        let is_code = |file: &&PathBuf| {
            let Some((above, name)) = file.parent().zip(file.file_name()) else { return false };
            let name = name.to_string_lossy();
            let of_root = above == root && (is_values(&name) || name == LOCK_FILE);
            let selects_version = root.starts_with(above) && version::is_version_file(&name);
            of_root
                || selects_version
                || (is_configuration(&name) && modules.iter().any(|module| above == module))
        };
        if let Some(file) = missing.iter().find(is_code) {
            return Some((file.clone(), "the tool".to_owned()));
        }
        for (path, place) in &self.paths {
            let path = resolved(path);
            // The missing file may be a link to a directory.
            if let Some(file) = missing.iter().find(|file| path.starts_with(file)) {
                return Some((file.clone(), place.clone()));
            }
        }
        for ((dir, pattern), place) in &self.sets {
            let dir = resolved(dir);
            let pattern = pattern.as_deref().and_then(glob);
            let is_in = |file: &&PathBuf| {
                let below = file.strip_prefix(&dir).ok();
                let fits = |below: &Path| {
                    pattern
                        .as_ref()
                        .is_none_or(|pattern| pattern.is_match(&below.to_string_lossy()))
                };
                below.is_some_and(fits)
            };
            if let Some(file) = missing.iter().find(is_in) {
                return Some((file.clone(), place.clone()));
            }
        }
        None
    }
}
