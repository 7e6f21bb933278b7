//! When a plan was made, as an apply compares two plans.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// When a plan was made, by the clock of its runner.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(crate) struct PlanTimes {
    /// When its run began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) started: Option<Timestamp>,
    /// When it was made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) planned: Option<Timestamp>,
}

impl PlanTimes {
    /// These times, or the others where there are none.
    pub(crate) fn or(self, others: Option<Self>) -> Self {
        if self.planned.is_some() { self } else { others.unwrap_or(self) }
    }

    /// Whether the run of this plan began after the other plan had been made. Not known: false. Runs may overlap.
    pub(crate) fn is_after(self, other: Self) -> bool {
        self.started.zip(other.planned).is_some_and(|(started, planned)| started > planned)
    }
}
