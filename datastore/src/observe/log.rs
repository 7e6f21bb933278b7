//! The log: lines on standard error.
//!
//! Lines of level INFO go through a queue, and a thread writes them, together with those that arrive within a few
//! milliseconds: a write for each line was an eighth of what a small request costs, and its answer waited for it.
//! Lines that must not be lost are written before the call that logs them returns: warnings, errors and the audit
//! lines of authenticated callers. They do not wait for the queue, so they can precede INFO lines that are a few milliseconds older.
//!
//! No line is dropped. If standard error blocks, the queue fills up, and then every thread that logs waits. What is
//! in the queue is written when the program ends. If the process is killed, the queue is lost.

use std::io::{self, IsTerminal as _, Write};
use std::thread;
use std::time::Duration;

use tracing::{Level, Metadata};
use tracing_appender::non_blocking::{NonBlockingBuilder, WorkerGuard};
use tracing_subscriber::fmt::writer::MakeWriterExt as _;

/// The target of INFO lines that must not be lost.
pub(crate) const IMMEDIATE: &str = "immediate";
/// Pause after each write of queued lines.
const FLUSH_INTERVAL: Duration = Duration::from_millis(5);
/// Lines in the queue, about 1 MiB of them. Memory for their places is taken at the start.
const QUEUE: usize = 4096;
/// Bytes that are written at once.
const BATCH: usize = 64 << 10;

/// How the log is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// For people.
    Text,
    /// For programs.
    Json,
}

/// Starts the log. When the result is dropped, it writes the queue, and waits for that at most a second.
pub fn init(format: LogFormat) -> WorkerGuard {
    let queue = NonBlockingBuilder::default().lossy(false).buffered_lines_limit(QUEUE);
    let (queue, guard) = queue.thread_name("log").finish(Batch::default());
    let log = tracing_subscriber::fmt()
        // It would print an error that standard error takes no line, which panics there.
        .log_internal_errors(false)
        .with_writer(queue.with_filter(|line| !is_immediate(line)).or_else(io::stderr))
        .with_ansi(io::stderr().is_terminal())
        .with_max_level(Level::INFO)
        .with_target(false);
    match format {
        LogFormat::Text => log.init(),
        LogFormat::Json => log.json().flatten_event(true).with_span_list(false).init(),
    }
    guard
}

fn is_immediate(line: &Metadata<'_>) -> bool {
    *line.level() <= Level::WARN || line.target() == IMMEDIATE
}

/// Queued lines that are written to standard error together.
#[derive(Default)]
struct Batch(Vec<u8>);

impl Batch {
    /// Writes them in one call, so that no immediate line gets between parts of a line.
    fn write_out(&mut self) -> io::Result<()> {
        let written = io::stderr().write_all(&self.0);
        self.0.clear();
        written
    }
}

impl Write for Batch {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.0.extend_from_slice(line);
        if self.0.len() >= BATCH {
            self.write_out()?;
        }
        Ok(line.len())
    }

    /// Called when the queue is empty. New lines gather while it pauses.
    fn flush(&mut self) -> io::Result<()> {
        if self.0.is_empty() {
            return Ok(());
        }
        self.write_out()?;
        thread::sleep(FLUSH_INTERVAL);
        Ok(())
    }
}
