//! The arguments that limit a run in time.

use std::time::Duration;

use clap::Args;
use datastore_api::{HumanDuration, InvalidDuration};

/// Limits of time.
#[derive(Clone, Copy, Debug, Default, Args)]
#[command(next_help_heading = "Limits")]
pub struct LimitArgs {
    /// Stop the run, as a signal would, if it takes longer (90s, 1h)
    #[arg(long, env = "PLANCHA_TIMEOUT", value_name = "DURATION", value_parser = time_limit)]
    pub timeout: Option<Duration>,
    /// Stop the tool if one of its steps (init, plan, show, apply) takes longer (90s, 1h)
    #[arg(long, env = "PLANCHA_STEP_TIMEOUT", value_name = "DURATION", value_parser = time_limit)]
    pub step_timeout: Option<Duration>,
    /// Stop the tool if it makes no progress for this time: no output but `Still creating...` and the like, and less
    /// than 1 % CPU [default: 15m for init and plan; an apply is only warned of]
    #[arg(long, env = "PLANCHA_IDLE_TIMEOUT", value_name = "DURATION", value_parser = time_limit)]
    pub idle_timeout: Option<Duration>,
}

/// A duration that is not zero.
pub(super) fn time_limit(text: &str) -> Result<Duration, String> {
    match duration(text) {
        Ok(Duration::ZERO) => Err("expected a duration of more than 0".to_owned()),
        duration => duration.map_err(|error| error.to_string()),
    }
}

/// A duration with its unit, such as `90s`, `5m` or `30d`.
pub(crate) fn duration(text: &str) -> Result<Duration, InvalidDuration> {
    text.parse().map(|HumanDuration(duration)| duration)
}
