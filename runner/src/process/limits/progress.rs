//! The output of a running program, read from the log as it grows: is there progress, and what is waited for?

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use fs_err as fs;

use crate::process::log::Log;
use crate::process::text::one_line;

/// How much of the new output is read at once, in bytes. More than this is progress in any case.
const MOST: u64 = 64 << 10;
/// How many of the things that are waited for are named.
const SHOWN: usize = 3;
/// The length of a line in a message, in bytes.
const LINE: usize = 300;

/// The output of a program.
pub(super) struct Progress {
    log: File,
    /// What was read of the log.
    offset: u64,
    /// The file that gets the program's standard output, if it has its own, and its length.
    captured: Option<(PathBuf, u64)>,
    waiting: fn(&str) -> Option<&str>,
    /// The last line, which may not have ended yet.
    line: Vec<u8>,
    /// The last line that is not empty and has ended.
    last: String,
    /// What has been waited for since the last progress, with the last line about it.
    awaited: Vec<(String, String)>,
}

impl Progress {
    /// Reads from the end of the log on.
    pub(super) fn follow(
        log: &Log,
        captured: Option<&Path>,
        waiting: fn(&str) -> Option<&str>,
    ) -> io::Result<Self> {
        let log = File::from(fs::File::open(log.path())?);
        let offset = log.metadata()?.len();
        let captured = captured.map(|path| (path.to_owned(), 0));
        let (line, last, awaited) = (Vec::new(), String::new(), Vec::new());
        Ok(Self { log, offset, captured, waiting, line, last, awaited })
    }

    /// Reads what is new. Whether it shows progress.
    pub(super) fn has_news(&mut self) -> bool {
        let captured = self.captured.as_mut().is_some_and(|(path, known)| {
            let len = fs::metadata(path).map_or(*known, |metadata| metadata.len());
            std::mem::replace(known, len) != len
        });
        // Without its log, nothing is known of the program.
        let logged = self.read().unwrap_or(true);
        if captured || logged {
            self.awaited.clear();
        }
        captured || logged
    }

    fn read(&mut self) -> io::Result<bool> {
        let len = self.log.metadata()?.len();
        let from = self.offset.max(len.saturating_sub(MOST));
        let mut has_news = from > self.offset;
        if has_news {
            self.line.clear();
        }
        let mut new = vec![0; usize::try_from(len.saturating_sub(from)).unwrap_or_default()];
        self.log.read_exact_at(&mut new, from)?;
        self.offset = len.max(from);
        for piece in new.split_inclusive(|byte| *byte == b'\n') {
            self.line.extend_from_slice(piece);
            if piece.ends_with(b"\n") {
                has_news |= self.end_line();
            }
        }
        // A line may never end; and a question is one that waits for its answer.
        if u64::try_from(self.line.len()).unwrap_or(MOST) >= MOST {
            has_news |= self.end_line();
        }
        Ok(has_news)
    }

    /// Ends the line. Whether it shows progress.
    fn end_line(&mut self) -> bool {
        let line = shown(&std::mem::take(&mut self.line));
        if line.is_empty() {
            return false;
        }
        self.last.clone_from(&line);
        let Some(address) = (self.waiting)(&line).map(str::to_owned) else {
            self.awaited.clear();
            return true;
        };
        match self.awaited.iter_mut().find(|(known, _)| *known == address) {
            Some((_, last)) => *last = line,
            None => self.awaited.push((address, line)),
        }
        false
    }

    /// The last line.
    pub(super) fn last_line(&self) -> Option<String> {
        let unfinished = shown(&self.line);
        let line = if unfinished.is_empty() { self.last.clone() } else { unfinished };
        Some(line).filter(|line| !line.is_empty())
    }

    /// What is waited for, as far as the output says it.
    pub(super) fn awaited(&self) -> String {
        if self.awaited.is_empty() {
            return match self.last_line() {
                Some(line) => format!("its last output is `{line}`"),
                None => "it has printed nothing".to_owned(),
            };
        }
        let lines = self.awaited.iter().take(SHOWN).map(|(_, line)| line.as_str());
        let lines = lines.collect::<Vec<_>>().join(", ");
        match self.awaited.len().saturating_sub(SHOWN) {
            0 => lines,
            more => format!("{lines} and {more} more"),
        }
    }
}

/// A line as it is shown in a message.
fn shown(line: &[u8]) -> String {
    let line = String::from_utf8_lossy(line);
    let line = one_line(line.trim());
    let end = line.floor_char_boundary(LINE);
    if end < line.len() { format!("{}...", &line[..end]) } else { line }
}
