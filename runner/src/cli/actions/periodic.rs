//! The arguments of a check or converge that is repeated, and of what others see of its layers.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use datastore_api::status::metrics::{MetricPrefix, PREFIX};

use crate::cli::limits::time_limit;

/// When the command is repeated.
#[derive(Clone, Copy, Debug, Args)]
#[command(next_help_heading = "Repetition")]
pub struct PeriodicArgs {
    /// Run at once, and then again and again, with this time between two starts (30m, 1h). A run that takes longer delays the
    /// next one to the next such time. Failures are logged, and do not end the process
    #[arg(long, env = "PLANCHA_EVERY", value_name = "DURATION", value_parser = time_limit, conflicts_with_all = ["run", "attempt", "summary"])]
    pub every: Option<Duration>,
    /// Start each repetition later by a random time of up to this part of the interval, so that many processes do not start at
    /// the same time (10%)
    #[arg(long, env = "PLANCHA_JITTER", value_name = "PERCENT", value_parser = percent, default_value = "0%", requires = "every")]
    pub jitter: u32,
}

/// What others see of the layers.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Monitoring")]
pub struct MonitoringArgs {
    /// With --every: serve /metrics, /healthz and /readyz at this address, without TLS and for everyone who reaches it
    /// (127.0.0.1:9101; port 0 takes a free one, which the log names)
    #[arg(long, env = "PLANCHA_CONVERGE_LISTEN", value_name = "ADDRESS", requires = "every")]
    pub listen: Option<SocketAddr>,
    /// With --listen: /healthz fails if a run makes no progress for this time, as --idle-timeout counts it [default: twice
    /// --idle-timeout, or 30m]
    #[arg(long, env = "PLANCHA_UNHEALTHY_AFTER", value_name = "DURATION", value_parser = time_limit, requires = "listen")]
    pub unhealthy_after: Option<Duration>,
    /// Write the metrics of the layers to this file when they have ended, also if they have failed. The textfile collector of
    /// node exporter reads it if its name ends in .prom
    #[arg(long, env = "PLANCHA_METRICS_FILE", value_name = "FILE")]
    pub metrics_file: Option<PathBuf>,
    /// What the names of metrics begin with. With `candi_converge` the alerts of Deckhouse read those that layers name by the
    /// annotation `plancha/metrics`
    #[arg(long, env = "PLANCHA_METRICS_PREFIX", value_name = "PREFIX", default_value = PREFIX)]
    pub metrics_prefix: MetricPrefix,
}

/// A number from 0 to 100 with a percent sign.
fn percent(text: &str) -> Result<u32, String> {
    let number = text.strip_suffix('%').and_then(|number| number.parse::<u32>().ok());
    number
        .filter(|number| *number <= 100)
        .ok_or_else(|| "expected a part of the interval from 0% to 100%, such as 10%".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_jitter_is_a_part_of_the_interval() {
        assert_eq!([percent("0%"), percent("10%"), percent("100%")], [Ok(0), Ok(10), Ok(100)]);
        for text in ["10", "101%", "-1%", "%", "", "1.5%", "10 %"] {
            percent(text).unwrap_err();
        }
    }
}
