//! Where the lines go: standard error, by a thread of its own, all of a few milliseconds at once.
//!
//! A write for each line was an eighth of what a small request costs, and its answer waited for it. What
//! must not be lost is written at once, with all that was said before it: warnings, and the audit's
//! lines, each of which is there before its answer. So is everything at the end. If the process is killed,
//! the rest of its last few milliseconds is lost.

use std::io::{self, Write};
use std::mem;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use tracing::{Level, Metadata};
use tracing_subscriber::fmt::MakeWriter;

/// The target of what must not be lost.
pub(crate) const AT_ONCE: &str = "at_once";
/// So long other lines are gathered.
const GATHER: Duration = Duration::from_millis(5);
/// Whoever adds to more than so many bytes writes them himself, and waits as long as that takes.
const MOST: usize = 1 << 20;

/// The log. Writes what it has when it is dropped.
pub struct Log(Lines);

/// Lines on their way. Clones share them.
#[derive(Clone)]
pub(super) struct Lines(Arc<Shared>);

#[derive(Default)]
struct Shared {
    gathered: Mutex<Vec<u8>>,
    is_some: Condvar,
    /// Held while they are written, so that they stay in order.
    writing: Mutex<()>,
}

/// One line.
pub(super) struct Line {
    lines: Lines,
    at_once: bool,
}

impl Log {
    pub(super) fn start() -> io::Result<Self> {
        let lines = Lines(Arc::default());
        let gathering = lines.clone();
        thread::Builder::new().name("log".to_owned()).spawn(move || {
            loop {
                let some = lock(&gathering.0.gathered);
                let some = gathering.0.is_some.wait_while(some, |gathered| gathered.is_empty());
                drop(some.unwrap_or_else(PoisonError::into_inner));
                thread::sleep(GATHER);
                gathering.write();
            }
        })?;
        Ok(Self(lines))
    }

    pub(super) fn lines(&self) -> Lines {
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
        let mut gathered = lock(&self.0.gathered);
        let was_empty = gathered.is_empty();
        gathered.extend_from_slice(text);
        let at_once = at_once || gathered.len() > MOST;
        drop(gathered);
        if at_once {
            self.write();
        } else if was_empty {
            self.0.is_some.notify_one();
        }
    }

    fn write(&self) {
        let _writing = lock(&self.0.writing);
        let lines = mem::take(&mut *lock(&self.0.gathered));
        // There is nowhere to say that it failed.
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
        let at_once = *meta.level() <= Level::WARN || meta.target() == AT_ONCE;
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
