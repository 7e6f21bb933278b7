//! What a search for a version starts from, and what it found on its way.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

/// What stands around a directory and may ask for a version as well.
#[derive(Clone, Debug, Default)]
pub struct Surroundings {
    /// The user's home: looked at after all parents of the directory.
    pub home: Option<PathBuf>,
    /// The last parent that is looked at, where what lies above is nobody's who may say so.
    pub top: Option<PathBuf>,
    /// tenv's directory.
    pub tenv_root: Option<PathBuf>,
    /// tenv's variables, those of [`variable_names`].
    pub variables: BTreeMap<&'static str, String>,
}

/// One thing that was found, and where.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Reason {
    /// A file (and line), a flag, a directory or a URL.
    pub place: String,
    /// What it says.
    pub says: String,
}

impl Reason {
    pub(crate) fn new(place: impl fmt::Display, says: impl Into<String>) -> Self {
        Self { place: place.to_string(), says: says.into() }
    }
}
