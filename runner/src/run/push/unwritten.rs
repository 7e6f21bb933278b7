//! A state that could not be written to the file of `--state-out`.

use std::fmt;
use std::path::PathBuf;

use crate::run::push::{compare_with, copy_command};

/// The state of an apply, where it is instead.
#[derive(Debug)]
pub(crate) struct UnwrittenState {
    /// `--state-out`.
    pub(crate) out: PathBuf,
    pub(crate) reason: String,
    /// The copy that is kept. `Err`: why there is none, with the file that stays instead.
    pub(crate) kept: Result<PathBuf, (PathBuf, String)>,
    /// Whether the datastore has it; `None`: it takes none, or there is no datastore.
    pub(crate) stored: Option<bool>,
    /// Whether it is whole, so that it may be copied as it is.
    pub(crate) is_whole: bool,
    /// Whether another process has written the file since the run began, so that it must not be replaced.
    pub(crate) is_replaced: bool,
}

impl UnwrittenState {
    fn file(&self) -> &PathBuf {
        match &self.kept {
            Ok(file) | Err((file, _)) => file,
        }
    }

    /// How the state gets into its file.
    pub(crate) fn hint(&self) -> String {
        let file = self.file();
        let stored = match self.stored {
            Some(true) => "; the datastore has it as well, as errored.tfstate of the attempt",
            _ => "",
        };
        let unkept = match &self.kept {
            Ok(_) => String::new(),
            Err((_, reason)) => {
                format!(" (it could not be copied to a directory that stays: {reason})")
            }
        };
        if !self.is_whole {
            return format!(
                "what the apply has changed may be missing in {}: compare it with {}{unkept} and with the snapshots in the \
                 datastore, if there is one{stored}",
                self.out.display(),
                file.display()
            );
        }
        if self.is_replaced {
            return format!(
                "resources may exist that only this file records: {}, and remove the file{unkept}{stored}",
                compare_with(&self.out, &[file])
            );
        }
        format!(
            "resources may exist that only this file records: before anything else plans or applies, run {}, and remove \
             the file{unkept}{stored}",
            copy_command(file, &self.out)
        )
    }
}

impl fmt::Display for UnwrittenState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { out, reason, .. } = self;
        let (out, file) = (out.display(), self.file().display());
        write!(f, "the state could not be written to --state-out {out} ({reason}): it is in {file}")
    }
}
