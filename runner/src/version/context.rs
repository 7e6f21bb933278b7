//! What a search for a version reads besides the directory, and what it finds.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

/// Where else a version may be requested, besides the directory itself.
#[derive(Clone, Debug, Default)]
pub struct SearchContext {
    /// The user's home: searched after all parents of the directory.
    pub home: Option<PathBuf>,
    /// The last parent that is searched: directories above it are not trusted. `None`: all parents are searched.
    pub top: Option<PathBuf>,
    /// tenv's directory.
    pub tenv_root: Option<PathBuf>,
    /// tenv's variables, those of [`variable_names`](crate::version::variable_names).
    pub variables: BTreeMap<&'static str, String>,
}

/// Something that the search found, and where.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Finding {
    /// A file (and line), a flag, a directory or a URL.
    pub place: String,
    /// What was found there; `says` in JSON.
    #[serde(rename = "says")]
    pub text: String,
}

impl Finding {
    pub(crate) fn new(place: impl fmt::Display, text: impl Into<String>) -> Self {
        Self { place: place.to_string(), text: text.into() }
    }
}
