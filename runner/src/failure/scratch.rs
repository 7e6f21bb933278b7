//! A private directory that cannot be created.

use std::io;

use crate::failure::{Failure, Kind, disk_hint};
use crate::run::error::RunError;
use crate::source::scratch::ScratchError;

impl Failure {
    /// The failure, with what to do about the directory for temporary files.
    pub(super) fn of_scratch(cause: &ScratchError, error: &RunError) -> Self {
        match cause.kind() {
            io::ErrorKind::NotFound
            | io::ErrorKind::NotADirectory
            | io::ErrorKind::PermissionDenied
            | io::ErrorKind::ReadOnlyFilesystem => Self::new(Kind::Config, error).with_hint(
                "set TMPDIR to a directory that exists and can be written, and run again",
            ),
            _ => {
                let hint = disk_hint(&io::Error::from(cause.kind())).map(str::to_owned);
                Self { hint, ..Self::new(Kind::Unclassified, error) }
            }
        }
    }
}
