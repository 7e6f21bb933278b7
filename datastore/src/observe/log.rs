//! The log: lines on standard error, written by a thread, those of a few milliseconds at once.
//!
//! A write for each line was an eighth of what a small request costs, and its answer waited for it. Lines that
//! must not be lost are written immediately, together with all before them: warnings, and audit lines, each of
//! which is written before its answer. So is everything at the end. If the process is killed, the other lines
//! of its last few milliseconds are lost.

use std::io::{self, IsTerminal as _, Write};
use std::mem;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use tracing::{Level, Metadata};
use tracing_subscriber::fmt::MakeWriter;

/// The target of lines that must not be lost.
pub(crate) const IMMEDIATE: &str = "at_once";
/// How long other lines are buffered.
const FLUSH_INTERVAL: Duration = Duration::from_millis(5);
/// Bytes in the buffer from which on the thread that adds a line also writes them, and waits for that.
const MAX_BUFFER: usize = 1 << 20;

/// How the log is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// For people.
    Text,
    /// For programs.
    Json,
}

/// Starts the log, which ends with what it returns.
pub fn init(format: LogFormat) -> io::Result<Log> {
    let started = Log::start()?;
    let log = tracing_subscriber::fmt()
        .with_writer(started.lines())
        .with_ansi(io::stderr().is_terminal())
        .with_max_level(tracing::Level::INFO)
        .with_target(false);
    match format {
        LogFormat::Text => log.init(),
        LogFormat::Json => log.json().flatten_event(true).with_span_list(false).init(),
    }
    Ok(started)
}

/// The log. Writes what it has when it is dropped.
pub struct Log(Lines);

/// Lines on their way. Clones share them.
#[derive(Clone)]
struct Lines(Arc<Shared>);

#[derive(Default)]
struct Shared {
    buffer: Mutex<Vec<u8>>,
    is_some: Condvar,
    /// Held while they are written, so that they stay in order.
    writing: Mutex<()>,
}

/// One line.
struct Line {
    lines: Lines,
    at_once: bool,
}

impl Log {
    fn start() -> io::Result<Self> {
        let lines = Lines(Arc::default());
        let flushing = lines.clone();
        thread::Builder::new().name("log".to_owned()).spawn(move || {
            loop {
                let some = lock(&flushing.0.buffer);
                let some = flushing.0.is_some.wait_while(some, |buffer| buffer.is_empty());
                drop(some.unwrap_or_else(PoisonError::into_inner));
                thread::sleep(FLUSH_INTERVAL);
                flushing.write();
            }
        })?;
        Ok(Self(lines))
    }

    fn lines(&self) -> Lines {
        self.0.clone()
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        self.0.write();
    }
}

impl Lines {
    fn add(&self, text: &[u8], at_once: bool) {
        let mut buffer = lock(&self.0.buffer);
        let was_empty = buffer.is_empty();
        buffer.extend_from_slice(text);
        let at_once = at_once || buffer.len() > MAX_BUFFER;
        drop(buffer);
        if at_once {
            self.write();
        } else if was_empty {
            self.0.is_some.notify_one();
        }
    }

    fn write(&self) {
        let _writing = lock(&self.0.writing);
        let lines = mem::take(&mut *lock(&self.0.buffer));
        // A failure can be reported nowhere.
        io::stderr().write_all(&lines).unwrap_or_default();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl MakeWriter<'_> for Lines {
    type Writer = Line;

    fn make_writer(&self) -> Line {
        Line { lines: self.clone(), at_once: true }
    }

    fn make_writer_for(&self, meta: &Metadata<'_>) -> Line {
        let at_once = *meta.level() <= Level::WARN || meta.target() == IMMEDIATE;
        Line { lines: self.clone(), at_once }
    }
}

impl Write for Line {
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        self.lines.add(text, self.at_once);
        Ok(text.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
