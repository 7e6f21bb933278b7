//! The runner's own lines, on stderr: the tool has stdout.

use std::io::IsTerminal as _;

use tracing_subscriber::EnvFilter;

use crate::cli::LogFormat;

/// From now on lines of our own are written. `RUST_LOG` has no say: nothing below `info` is
/// for people, nor are the lines of libraries, whose errors we tell ourselves.
pub(crate) fn start(format: LogFormat) {
    let lines = tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .with_env_filter(EnvFilter::new("off,runner=info"))
        .with_target(false);
    match format {
        LogFormat::Text => {
            lines.with_ansi(std::io::stderr().is_terminal()).without_time().compact().init();
        }
        LogFormat::Json => lines.json().flatten_event(true).init(),
    }
}
