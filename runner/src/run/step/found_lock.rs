//! What is known of the state's lock after the tool was killed.

use crate::tool::diagnostics::Diagnostics;
use crate::tool::diagnostics::lock_info::is_held;

/// Whether the state is locked.
#[derive(Debug, Default)]
pub(crate) enum FoundLock {
    #[default]
    Unknown,
    Free,
    /// By whom is in the errors of the tool that was refused.
    Held(Diagnostics),
}

impl FoundLock {
    /// What the errors of a tool say that could not take the lock. The lock may also be out of reach.
    pub(super) fn of_errors(errors: Diagnostics) -> Self {
        if Self::is_held(&errors) { Self::Held(errors) } else { Self::Unknown }
    }

    /// Whether they say that another process holds the lock.
    pub(super) fn is_held(errors: &Diagnostics) -> bool {
        errors.iter().any(is_held)
    }
}

/// Whether a step locks the state.
pub(crate) fn takes_lock(step: &str) -> bool {
    !matches!(step, "init" | "show" | "show json" | "state pull")
}
