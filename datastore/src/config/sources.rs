//! Where settings come from: variables and files.

use std::io;
use std::path::Path;

/// The variables and files that settings are read from.
#[derive(Clone, Copy)]
pub(super) struct Sources<'a> {
    pub(super) env: &'a dyn Fn(&str) -> Option<String>,
    pub(super) file: &'a dyn Fn(&Path) -> io::Result<String>,
}

/// A setting as its source has it, not parsed yet.
pub(super) struct RawSetting {
    /// The flag, variable or file that it came from.
    pub(super) source: &'static str,
    /// The source, and in a file also the key. Error messages begin with it.
    pub(super) location: String,
    pub(super) text: String,
}

impl Sources<'_> {
    /// A variable. An empty one counts as not set.
    pub(super) fn env(&self, name: &str) -> Option<String> {
        (self.env)(name).filter(|text| !text.is_empty())
    }

    pub(super) fn file(&self, path: &Path) -> io::Result<String> {
        (self.file)(path)
    }
}
