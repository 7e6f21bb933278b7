//! The files of a module that the tools read, and where the text of each comes from.
//!
//! Where a unit of terragrunt runs, the tool works in a directory that terragrunt puts together: the files of the module, over them
//! those of the unit's directory, and over them what its `generate` blocks write. What is in the files is not known here.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use fs_err as fs;

use crate::version::error::VersionError;
use crate::version::unit::{Effect, Unit};

/// A file name of the configuration, taken apart.
pub(super) struct FileName<'a> {
    pub(super) stem: &'a str,
    pub(super) tofu: bool,
    pub(super) json: bool,
}

impl<'a> FileName<'a> {
    /// `None` for other files, hidden ones and backups of editors.
    pub(super) fn parse(name: &'a str) -> Option<Self> {
        const ENDINGS: [(&str, bool, bool); 4] = [
            (".tf", false, false),
            (".tf.json", false, true),
            (".tofu", true, false),
            (".tofu.json", true, true),
        ];
        let backup = name.ends_with('~') || (name.starts_with('#') && name.ends_with('#'));
        if name.starts_with('.') || backup {
            return None;
        }
        let find =
            |(ending, tofu, json)| name.strip_suffix(ending).map(|stem| Self { stem, tofu, json });
        ENDINGS.into_iter().find_map(find)
    }

    pub(super) fn is_override(&self) -> bool {
        self.stem == "override" || self.stem.ends_with("_override")
    }
}

/// The names of the configuration's files, sorted.
fn names(dir: &Path) -> Result<BTreeSet<String>, VersionError> {
    let mut names = BTreeSet::new();
    for entry in fs::read_dir(dir).map_err(VersionError::Unreadable)? {
        let entry = entry.map_err(VersionError::Unreadable)?;
        if let Ok(name) = entry.file_name().into_string()
            && FileName::parse(&name).is_some()
            && fs::metadata(entry.path()).is_ok_and(|metadata| metadata.is_file())
        {
            names.insert(name);
        }
    }
    Ok(names)
}

/// The first file that only OpenTofu reads.
pub(super) fn tofu_file(dir: &Path) -> Result<Option<String>, VersionError> {
    let is_tofu = |name: &String| FileName::parse(name).is_some_and(|name| name.tofu);
    Ok(names(dir)?.into_iter().find(is_tofu))
}

/// Where the text of a file comes from.
pub(super) enum Text<'a> {
    File(PathBuf),
    /// Terragrunt writes it.
    Generated {
        /// The configuration of the unit.
        by: &'a Path,
        /// With `${...}` for what terragrunt has to evaluate; `None` if that is all.
        text: Option<&'a str>,
        /// The file in the unit's directory that it replaces: where the text is not known, what terragrunt wrote last.
        earlier: Option<PathBuf>,
    },
}

/// The files of the module in `dir`, by their names. `unit`: the unit that runs this module, or one that calls it.
pub(super) fn files<'a>(
    dir: &Path,
    unit: Option<&'a Unit>,
) -> Result<BTreeMap<String, Text<'a>>, VersionError> {
    let mut files = BTreeMap::new();
    let copied = unit.and_then(|unit| unit.copied_over(dir));
    // A child module may be in the unit's directory only.
    for dir in [Some(dir), copied.as_deref()].into_iter().flatten().filter(|dir| dir.is_dir()) {
        for name in names(dir)? {
            let path = dir.join(&name);
            files.insert(name, Text::File(path));
        }
    }
    let Some(unit) = unit else { return Ok(files) };
    for generated in unit.generated_in(dir) {
        let Some(name) = generated.name().filter(|name| FileName::parse(name).is_some()) else {
            continue;
        };
        // In a directory that is the module itself, terraform may run without terragrunt.
        let gives_way = generated.effect == Effect::Creates || unit.module == unit.dir;
        if gives_way && files.contains_key(name) {
            continue;
        }
        let replaced = files.remove(name);
        if generated.effect == Effect::Removes {
            continue;
        }
        let earlier = match replaced {
            Some(Text::File(path)) if path.parent() == Some(&*unit.dir) => Some(path),
            _ => None,
        };
        let text = generated.contents.as_deref();
        files.insert(name.to_owned(), Text::Generated { by: &unit.file, text, earlier });
    }
    Ok(files)
}
