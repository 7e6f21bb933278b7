//! Reads the errors in the output of terraform, tofu and terragrunt: `Error:` blocks with or without a box (`╷│╵`), in the
//! format of 0.11, with the prefixes of terragrunt's log and of CI systems, and as lines of JSON (`-json`).
//!
//! It knows the format of these messages, and what the tool says of the progress and the end of an apply, not what they
//! mean for a run.

mod apply_end;
mod before_apply;
mod below;
mod diagnostic;
mod json;
mod line;
pub(crate) mod lock_info;
mod parser;
mod progress;
mod text;

use std::io::{self, BufRead};

use crate::process::url_secrets::{Parameters, masked};
pub(crate) use crate::tool::diagnostics::apply_end::{ApplyEnd, Refusal, says_applied};
pub(crate) use crate::tool::diagnostics::before_apply::failed_before_apply;
pub(crate) use crate::tool::diagnostics::below::Below;
pub(crate) use crate::tool::diagnostics::diagnostic::{Diagnostic, type_of, without_indexes};
use crate::tool::diagnostics::parser::{Parser, Rank};
pub(crate) use crate::tool::diagnostics::progress::{
    Action, Phase, Progress, ProgressReader, is_address,
};

/// Bytes of a line that are read; the rest of the line is skipped. An error in JSON is one line.
const MAX_LINE: usize = 256 << 10;

/// The most errors of a step that are kept: a plan can fail with an error for every resource.
const MAX_DIAGNOSTICS: usize = 100;

/// The errors of one step, the first specific one first; each of them once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Diagnostics(Vec<Diagnostic>);

impl Diagnostics {
    /// Reads the output of a step to its end, in bounded memory.
    pub(crate) fn read(output: impl BufRead) -> io::Result<Self> {
        let mut found = Found::new(MAX_DIAGNOSTICS);
        each_error(output, |error| {
            found.add(error);
        })?;
        let errors = found.most_specific_first().into_iter();
        Ok(Self(errors.map(|error| error.diagnostic).collect()))
    }

    /// The most specific error.
    pub(crate) fn first(&self) -> Option<&Diagnostic> {
        self.0.first()
    }

    /// Puts the error with this text first: it decides what is to be done.
    pub(crate) fn put_first(&mut self, text: &str) {
        if let Some(at) = self.0.iter().position(|error| error.to_string() == text) {
            self.0[..=at].rotate_right(1);
        }
    }

    /// Whether the tool could not read the plan file that it was to apply.
    pub(crate) fn is_unreadable_plan(&self) -> bool {
        let is_unreadable =
            |text: &str| text.starts_with("Failed to load \"") && text.ends_with("as a plan file");
        self.0.iter().any(|error| is_unreadable(&error.summary))
    }

    /// All of them.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Diagnostic> {
        self.0.iter()
    }
}

/// An error in an output.
#[derive(Clone, Debug)]
pub(crate) struct Reported {
    pub(crate) diagnostic: Diagnostic,
    rank: Rank,
}

impl Reported {
    /// Whether it only says that something failed, while another error says what.
    pub(crate) fn is_generic(&self) -> bool {
        self.rank == Rank::Generic
    }
}

/// Errors in the order of the output, each of them once.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) errors: Vec<Reported>,
    limit: usize,
}

impl Found {
    /// Keeps at most `limit` errors.
    pub(crate) fn new(limit: usize) -> Self {
        Self { errors: Vec::new(), limit }
    }

    /// All of them, the more specific ones first: what the log has before the list of the errors may be a consequence.
    pub(crate) fn most_specific_first(mut self) -> Vec<Reported> {
        self.errors.sort_by_key(|error| error.rank);
        self.errors
    }

    /// Adds an error, unless it is known. Returns one for which there is no room.
    pub(crate) fn add(&mut self, error: Reported) -> Option<Reported> {
        let has_room = self.errors.len() < self.limit;
        let known =
            self.errors.iter_mut().find(|known| known.diagnostic.is_same(&error.diagnostic));
        match known {
            Some(known) if known.diagnostic.detail.is_empty() => {
                known.diagnostic.detail = error.diagnostic.detail;
            }
            Some(_) => {}
            None if has_room => self.errors.push(error),
            None => return Some(error),
        }
        None
    }
}

/// Calls `each` for every error in an output, in bounded memory, also for those that are reported again. The values in
/// the queries of URLs are masked: any of them may be a credential.
pub(crate) fn each_error(output: impl BufRead, mut each: impl FnMut(Reported)) -> io::Result<()> {
    let mut parser = Parser::default();
    each_line(output, |line| {
        parser.line(&masked(line, Parameters::All));
        for (rank, diagnostic) in parser.take() {
            each(Reported { diagnostic, rank });
        }
    })?;
    for (rank, diagnostic) in parser.finish() {
        each(Reported { diagnostic, rank });
    }
    Ok(())
}

/// Reads lines to the end of an output, in bounded memory. Only the beginning of a long line is passed on.
pub(crate) fn each_line(mut output: impl BufRead, mut each: impl FnMut(&str)) -> io::Result<()> {
    let mut line = Vec::new();
    while next_line(&mut output, &mut line)? {
        each(&String::from_utf8_lossy(&line));
    }
    Ok(())
}

/// Reads one line without its end into `line`, at most [`MAX_LINE`] bytes of it; `false` at the end.
fn next_line(output: &mut impl BufRead, line: &mut Vec<u8>) -> io::Result<bool> {
    line.clear();
    let mut any = false;
    loop {
        let buffer = output.fill_buf()?;
        if buffer.is_empty() {
            return Ok(any);
        }
        any = true;
        let newline = buffer.iter().position(|byte| *byte == b'\n');
        let content = &buffer[..newline.unwrap_or(buffer.len())];
        line.extend_from_slice(&content[..content.len().min(MAX_LINE - line.len())]);
        let used = newline.map_or(buffer.len(), |at| at + 1);
        output.consume(used);
        if newline.is_some() {
            return Ok(true);
        }
    }
}

#[cfg(test)]
mod tests;
