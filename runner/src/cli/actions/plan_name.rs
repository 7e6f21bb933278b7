//! The name of a stored plan.

use datastore_api::{Attempt, Name};

/// The run, and perhaps the attempt, that holds a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlanName {
    /// The run.
    pub run: Name,
    /// Its attempt, the latest by default.
    pub attempt: Option<Attempt>,
}

impl std::fmt::Display for PlanName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.attempt {
            Some(attempt) => write!(f, "{}/{attempt}", self.run),
            None => self.run.fmt(f),
        }
    }
}

impl std::str::FromStr for PlanName {
    type Err = datastore_api::InvalidName;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.split_once('/') {
            Some((run, attempt)) => Ok(Self { run: run.parse()?, attempt: Some(attempt.parse()?) }),
            None => Ok(Self { run: text.parse()?, attempt: None }),
        }
    }
}
