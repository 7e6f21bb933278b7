//! The runner's own lines, on stderr: the tool has stdout.

use std::io::{self, IsTerminal as _, Write};

use tracing_subscriber::EnvFilter;

use crate::cli::LogFormat;

/// From now on lines of our own are written. `RUST_LOG` has no say: nothing below `info` is
/// for people, nor are the lines of libraries, whose errors we report ourselves.
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

/// Stderr as far as it takes anything. A reader that is gone, a closed terminal or a full disk must change nothing
/// of a run: a line that cannot be written is dropped, for there is no other place where it could be reported.
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
