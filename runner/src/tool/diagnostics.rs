//! What went wrong, read from the output of terraform, tofu and terragrunt: their `Error:` blocks, in a
//! box (`╷│╵`), without one, in the form of 0.11, and behind the prefixes of terragrunt's log.
//!
//! It knows only the form of these messages, not what they mean for a run.

mod line;
mod parser;
mod text;

use std::borrow::Cow;
use std::fmt;
use std::io::{self, BufRead};

use serde::{Deserialize, Serialize};

use crate::tool::diagnostics::parser::Parser;

/// Bytes of a line that are read; the rest of the line is skipped.
const MAX_LINE: usize = 16 << 10;

/// One error that a tool reported.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Diagnostic {
    /// Its headline, on one line.
    pub(crate) summary: String,
    /// What follows, one line for each paragraph; may be empty.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) detail: String,
    /// The configuration file, as the tool names it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) file: Option<String>,
    /// The line in it, from 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) line: Option<u32>,
    /// The block in it: `resource "aws_instance" "web"`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) block: Option<String>,
    /// The resource or provider: `module.a.aws_instance.web[0]`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) address: Option<String>,
    /// The terragrunt unit, where several ran.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) unit: Option<String>,
}

impl Diagnostic {
    /// Whether it only says that something failed, and another one says what.
    fn is_generic(&self) -> bool {
        const GENERIC: [&str; 12] = [
            "encountered problems during initiali",
            "There are some problems with the",
            "error(s) occurred:",
            "error occurred:",
            "errors occurred:",
            "Error applying plan:",
            "Error running plan:",
            "Error refreshing state:",
            "Operation failed: failed running",
            "invocation failed in",
            "Failed to execute \"",
            "Unable to determine underlying exit code",
        ];
        GENERIC.iter().any(|text| self.summary.contains(text))
            // Terragrunt says so of every dependency whose outputs it could not get.
            || self.detail.contains("There is no variable named \"dependency\"")
    }

    /// Whether both report the same error.
    fn is_same(&self, other: &Self) -> bool {
        let place = |this: &Self| (this.file.clone(), this.line);
        // Terragrunt repeats an error without its detail, and with its text on one line.
        let detail = self.detail == other.detail
            || self.detail.is_empty()
            || other.detail.is_empty()
            || self.address == other.address && self.file.is_some();
        self.summary == other.summary && place(self) == place(other) && detail
    }
}

impl fmt::Display for Diagnostic {
    /// On one line: the summary, the place, and the first paragraph of the detail.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(unit) = &self.unit {
            write!(f, "[{unit}] ")?;
        }
        f.write_str(self.summary.trim_end_matches([':', '.']))?;
        let place = match (&self.file, self.line) {
            (Some(file), Some(line)) => Some(format!("{file}:{line}")),
            (Some(file), None) => Some(file.clone()),
            (None, _) => None,
        };
        let context = self.address.as_ref().or(self.block.as_ref());
        match (place, context) {
            (Some(place), Some(context)) => write!(f, " ({place}, in {context})")?,
            (Some(place), None) => write!(f, " ({place})")?,
            (None, Some(context)) => write!(f, " ({context})")?,
            (None, None) => {}
        }
        match self.detail.lines().next() {
            Some(paragraph) => write!(f, ": {paragraph}"),
            None => Ok(()),
        }
    }
}

/// The errors of one step, the first specific one first; each of them once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Diagnostics(Vec<Diagnostic>);

impl Diagnostics {
    /// Reads the output of a step to its end, in bounded memory.
    pub(crate) fn read(mut output: impl BufRead) -> io::Result<Self> {
        let mut parser = Parser::default();
        let mut line = Vec::new();
        while next_line(&mut output, &mut line)? {
            parser.line(&masked(&String::from_utf8_lossy(&line)));
        }
        Ok(parser.finish())
    }

    /// The summary of them all.
    pub(crate) fn first(&self) -> Option<&Diagnostic> {
        self.0.first()
    }

    /// All of them.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Diagnostic> {
        self.0.iter()
    }
}

/// A line whose URLs have no values in their queries: such a value may be a credential.
fn masked(line: &str) -> Cow<'_, str> {
    if !(line.contains("://") && line.contains('?')) {
        return Cow::Borrowed(line);
    }
    let ends = |c: char| c.is_whitespace() || "\"'`<>".contains(c);
    let words = line.split_inclusive(ends).map(|word| match word.split_once('?') {
        Some((address, query)) if address.contains("://") => {
            let (query, end) = query.split_at(query.find(ends).unwrap_or(query.len()));
            let pairs = query.split('&').map(|pair| match pair.split_once('=') {
                Some((name, _)) => format!("{name}=***"),
                None => "***".to_owned(),
            });
            let pairs = pairs.collect::<Vec<_>>().join("&");
            Cow::Owned(format!("{address}?{pairs}{end}"))
        }
        _ => Cow::Borrowed(word),
    });
    Cow::Owned(words.collect())
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
