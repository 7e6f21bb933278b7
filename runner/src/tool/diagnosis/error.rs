//! Errors of `runner classify`.

use std::io;
use std::path::PathBuf;

/// Why nothing could be classified.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ClassifyError {
    /// The output could not be read.
    #[error("{} cannot be read", .0.display())]
    Read(PathBuf, #[source] io::Error),
    /// The file of `--rules` could not be read.
    #[error("--rules {} cannot be read", .0.display())]
    ReadRules(PathBuf, #[source] io::Error),
    /// A rule is wrong.
    #[error("--rules {path}: {error}", path = .0.display(), error = .1)]
    Rules(PathBuf, RulesError),
    /// The result could not be written.
    #[error("the result could not be written")]
    Output(#[source] io::Error),
}

/// What is wrong with a file of rules, and where.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {reason}")]
pub(crate) struct RulesError {
    pub(crate) line: u64,
    pub(crate) reason: String,
}
