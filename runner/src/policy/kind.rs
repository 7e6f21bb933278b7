//! What a change of a plan does.

use std::fmt;

use serde::{Deserialize, Serialize};

/// What a change does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Kind {
    Create,
    Update,
    Delete,
    Replace,
    /// The object stays, and leaves the state.
    Forget,
    Import,
    Move,
    /// An action that this version does not know.
    Unknown,
}

impl Kind {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Create => "create",
            Self::Update => "update",
            Self::Delete => "delete",
            Self::Replace => "replace",
            Self::Forget => "forget",
            Self::Import => "import",
            Self::Move => "move",
            Self::Unknown => "unknown",
        }
    }

    /// Whether an object is lost or becomes unmanaged.
    pub(super) fn is_destructive(self) -> bool {
        matches!(self, Self::Delete | Self::Replace | Self::Forget | Self::Unknown)
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
