//! The classes of failures.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A class of failures. If several errors end a run, the first class of this list that one of them has is that of the run.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Class {
    /// The state is locked.
    Lock,
    /// The code, its variables, a plan or downloaded bytes are wrong.
    Config,
    /// A limit or a capacity is used up.
    Quota,
    /// An object that was to be created exists.
    AlreadyExists,
    /// Credentials are missing, wrong or not sufficient.
    Auth,
    /// The run was interrupted.
    Interrupted,
    /// The same may succeed later.
    Transient,
    /// No rule knows it.
    #[default]
    Unknown,
}

impl Class {
    /// All of them, in the order of their precedence.
    #[cfg(test)]
    pub(crate) const ALL: [Self; 8] = [
        Self::Lock,
        Self::Config,
        Self::Quota,
        Self::AlreadyExists,
        Self::Auth,
        Self::Interrupted,
        Self::Transient,
        Self::Unknown,
    ];

    /// Its name, as `classify` prints it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Lock => "lock",
            Self::Config => "config",
            Self::Quota => "quota",
            Self::AlreadyExists => "already_exists",
            Self::Auth => "auth",
            Self::Interrupted => "interrupted",
            Self::Transient => "transient",
            Self::Unknown => "unknown",
        }
    }

    /// The priority of a rule that names none: which rule decides if several match one error.
    pub(super) fn default_priority(self) -> u8 {
        match self {
            Self::Lock => 90,
            Self::Quota => 85,
            Self::AlreadyExists => 80,
            Self::Auth => 70,
            Self::Config => 65,
            Self::Interrupted => 60,
            Self::Transient => 50,
            Self::Unknown => 40,
        }
    }
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
