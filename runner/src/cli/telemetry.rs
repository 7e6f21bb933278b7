//! The runner's own log lines. They go to stderr, because stdout is the tool's.

use std::io::{self, Write};

use tracing_subscriber::EnvFilter;

use crate::cli::{LogFormat, Terminal};

/// Starts logging. `RUST_LOG` is ignored: lines below `info` and lines of libraries are not for users.
pub(crate) fn start(format: LogFormat, terminal: &Terminal) {
    let lines = tracing_subscriber::fmt()
        .with_writer(|| Lines)
        .with_env_filter(EnvFilter::new("off,runner=info"))
        .log_internal_errors(false)
        .with_target(false);
    match format {
        LogFormat::Text => {
            lines.with_ansi(terminal.has_colours(&io::stderr())).without_time().compact().init();
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
