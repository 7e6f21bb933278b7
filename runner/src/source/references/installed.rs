//! The modules that init has installed, as its `modules.json` lists them. The sources of their calls need not be literal:
//! OpenTofu evaluates variables and local values in them.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use serde::Deserialize;

use crate::source::regular::{self, unless_missing};

/// The name of the file.
pub(crate) const MANIFEST: &str = "modules.json";

/// Directories of modules, relative to the root module as the tool writes them, with the modules' names.
pub(crate) type Called = BTreeMap<String, String>;

/// The part of the file that every version of the tools writes.
#[derive(Debug, Deserialize)]
struct Manifest {
    #[serde(rename = "Modules")]
    modules: Vec<Installed>,
}

/// A module of the configuration.
#[derive(Debug, Deserialize)]
pub(crate) struct Installed {
    #[serde(rename = "Key")]
    pub(crate) key: String,
    /// Its directory, relative to that of the root module.
    #[serde(rename = "Dir")]
    pub(crate) dir: String,
}

/// The modules that `modules.json` in the directory `modules` lists; none if there is no such file.
pub(crate) fn installed(modules: &Path) -> io::Result<Vec<Installed>> {
    let Some(text) = unless_missing(regular::read_text(&modules.join(MANIFEST)))? else {
        return Ok(Vec::new());
    };
    Ok(serde_json::from_str::<Manifest>(&text).map_err(io::Error::other)?.modules)
}
