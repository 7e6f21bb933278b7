//! The runner's own log lines. They go to stderr, because stdout is the tool's.

use std::io::{self, Write};

use tracing_subscriber::EnvFilter;

use crate::cli::{Environment, LogFormat};
use crate::process::github::defused;
use crate::process::label;
use crate::process::redact::Redaction;

/// Starts logging. `RUST_LOG` is ignored: lines below `info` and lines of libraries are not for users.
pub(crate) fn start(format: LogFormat, environment: &Environment) {
    let (terminal, redaction) = (&environment.terminal, environment.redaction.clone());
    let is_github = environment.github.is_some();
    let lines = tracing_subscriber::fmt()
        .with_writer(move || Lines { redaction: redaction.clone(), is_github })
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

/// Stderr, with secrets masked and without errors. A closed terminal, a reader that has exited or a full disk must not
/// fail a run, so a line that cannot be written is dropped.
struct Lines {
    redaction: Redaction,
    /// Whether a line could be taken for a command of GitHub.
    is_github: bool,
}

impl Write for Lines {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let labelled = label::current().map(|label| labelled(&label, line));
        let masked = self.redaction.line(labelled.as_deref().unwrap_or(line));
        let written = if self.is_github {
            io::stderr().write_all(defused(&String::from_utf8_lossy(&masked)).as_bytes())
        } else {
            io::stderr().write_all(&masked)
        };
        drop(written);
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        drop(io::stderr().flush());
        Ok(())
    }
}

/// A line with the layer that it is of: a prefix of a text, a field of JSON.
fn labelled(label: &str, line: &[u8]) -> Vec<u8> {
    match line.strip_prefix(b"{") {
        Some(fields) if fields.starts_with(b"\"") => {
            let label = serde_json::Value::from(label);
            [format!("{{\"layer\":{label},").as_bytes(), fields].concat()
        }
        _ => [format!("[{label}] ").as_bytes(), line].concat(),
    }
}
