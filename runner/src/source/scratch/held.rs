//! Plans that contain the path of the private directory in which they were made: an apply needs the same directory.

use std::path::{Path, PathBuf};

use fs_err as fs;

use crate::source::scratch::Scratch;
use crate::source::scratch::name::{is_first, is_scratch};

/// Why the private directory of an apply is not that of the plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Held {
    /// Another run has the plan's directory now.
    Now,
    /// Another run had the first directory when the plan was made, so the plan is of one that no run gets again.
    DuringPlan,
}

impl Held {
    /// For the end of a message.
    pub(crate) fn cause(self) -> &'static str {
        match self {
            Self::Now => "; another run holds the plan's directory now",
            Self::DuringPlan => {
                "; another run held the directory for all runs when the plan was made"
            }
        }
    }
}

impl Scratch {
    /// Whether a directory is in this private directory, and no other run gets the same.
    pub(crate) fn is_once_only(&self, dir: &Path) -> bool {
        self.path().is_some_and(|own| dir.starts_with(&own) && !is_first(&own))
    }

    /// Whether another run is the reason that the directory of a plan, `theirs`, is not that of this run, `ours`.
    pub(crate) fn held(&self, theirs: &Path, ours: &Path) -> Option<Held> {
        let own = self.path()?;
        let parent = own.parent()?;
        let first = theirs.strip_prefix(parent).ok()?.components().next()?;
        let private = parent.join(first);
        if !is_scratch(&private) || !ours.starts_with(&own) {
            return None;
        }
        match (is_first(&private), is_first(&own)) {
            (false, _) => Some(Held::DuringPlan),
            (true, false) => Some(Held::Now),
            (true, true) => None,
        }
    }

    /// Its path without links.
    fn path(&self) -> Option<PathBuf> {
        fs::canonicalize(self.join("")).ok()
    }
}
