//! What a layer lacks of others, and who needs it.

use super::{Failure, Kind};
use crate::run::inputs::error::InputsError;

impl From<&InputsError> for Failure {
    fn from(error: &InputsError) -> Self {
        let kind = match error {
            InputsError::Waiting(_) => Kind::Waiting,
            InputsError::Blocked(_) | InputsError::Needed(_) => Kind::Blocked,
            InputsError::Changed(_) | InputsError::Record(_) => Kind::Integrity,
            InputsError::OtherDirectory { .. } | InputsError::Directory { .. } => Kind::Config,
            InputsError::Broken(_) => Kind::OutputBroken,
            InputsError::Unreadable { .. } => Kind::Datastore,
            InputsError::Datastore { cause, .. } => return Self::of_datastore(cause, error),
        };
        Self::new(kind, error).with_hint(error.hint())
    }
}
