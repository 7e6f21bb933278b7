//! The runner's own log lines. They go to stderr, because stdout is the tool's.

use std::io::{self, IsTerminal as _, Write};

use tracing_subscriber::EnvFilter;

use crate::cli::LogFormat;

/// Starts logging. `RUST_LOG` is ignored: lines below `info` and lines of libraries are not for users.
pub(crate) fn start(format: LogFormat) {
    let lines = tracing_subscriber::fmt()
        .with_writer(|| Lines)
        .with_env_filter(EnvFilter::new("off,runner=info"))
        .log_internal_errors(false)
        .with_target(false);
    match format {
        LogFormat::Text => {
            lines.with_ansi(io::stderr().is_terminal()).without_time().compact().init();
        }
        LogFormat::Json => lines.json().flatten_event(true).init(),
    }
}

/// Stderr, without errors. A closed terminal, a reader that has exited or a full disk must not fail a run, so a line
/// that cannot be written is dropped.
struct Lines;

impl Write for Lines {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        drop(io::stderr().write_all(line));
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        drop(io::stderr().flush());
        Ok(())
    }
}
