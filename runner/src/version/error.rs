//! Why a directory's request for a version cannot be understood.

use std::io;
use std::path::PathBuf;

use crate::version::number::{self, Malformed};

/// Why the request for a version cannot be read. The user can fix each of these.
#[derive(Debug, thiserror::Error)]
pub enum VersionError {
    /// The text is not a request.
    #[error("{place}: not a version request")]
    Request {
        /// The flag, or the file and line.
        place: String,
        /// What is wrong with the text.
        #[source]
        source: Malformed,
    },
    /// The code requires a prerelease, which no tool accepts.
    #[error(
        "{place}: `{item}` names a prerelease, which terraform and tofu refuse in required_version"
    )]
    Prerelease {
        /// The file and line.
        place: String,
        /// The part of the constraint.
        item: String,
    },
    /// A file does not parse.
    #[error("{}:{line}:{column}: {message}: `{}`", .path.display(), number::shown(.text))]
    Syntax {
        /// The file.
        path: PathBuf,
        /// Its line, from 1.
        line: usize,
        /// The character in the line, from 1.
        column: usize,
        /// What is wrong there.
        message: String,
        /// The line itself.
        text: String,
    },
    /// A file is too large to be what its name says.
    #[error("{} is larger than {} KiB", .path.display(), .limit / 1024)]
    TooLarge {
        /// The file.
        path: PathBuf,
        /// The limit in bytes.
        limit: u64,
    },
    /// A file is not text.
    #[error("{} is not UTF-8 text", .0.display())]
    NotText(PathBuf),
    /// There is no such directory.
    #[error("there is no directory `{}`", .0.display())]
    NoDirectory(PathBuf),
    /// The directory or a file of the configuration cannot be read.
    #[error("cannot look for the requested version")]
    Unreadable(#[source] io::Error),
}
