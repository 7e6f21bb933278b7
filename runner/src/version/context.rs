//! What a search for a version reads besides the directory, and what it finds.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

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
    /// The warnings that were logged: several searches read the same files.
    pub(crate) warned: Arc<Mutex<BTreeSet<String>>>,
}

impl SearchContext {
    /// Logs a warning, once.
    pub(super) fn warn(&self, warning: String) {
        let mut warned = self.warned.lock().unwrap_or_else(PoisonError::into_inner);
        if !warned.contains(&warning) {
            tracing::warn!("{warning}");
            warned.insert(warning);
        }
    }
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
