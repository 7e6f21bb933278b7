//! Parses a tool's output line by line into errors.

use std::collections::BTreeMap;
use std::mem;

use crate::tool::diagnostics::diagnostic::Diagnostic;
use crate::tool::diagnostics::json::{self, JsonLine};
use crate::tool::diagnostics::line::{Containers, Level, Line, is_of_runner, plain};
use crate::tool::diagnostics::text::{self, Location};

/// Bytes of one error's text that are kept.
const MAX_TEXT: usize = 8 << 10;

/// Units whose lines can be interleaved, of `terragrunt run --all`.
const MAX_UNITS: usize = 256;

/// The beginnings of terragrunt's log lines that only say that something failed.
const FAILED: [&str; 4] = [
    "tofu invocation failed",
    "terraform invocation failed",
    "Unable to determine",
    "Failed to execute \"",
];

/// The line before the errors of a plan.
const PLANNING_FAILED: &str = "Planning failed. ";

/// Reads lines.
#[derive(Debug, Default)]
pub(super) struct Parser {
    streams: BTreeMap<Source, Stream>,
    containers: Containers,
    found: Vec<(Rank, Diagnostic)>,
}

/// The source of lines that belong together.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Source {
    /// The terragrunt unit; empty for the only one.
    unit: String,
    /// Whether they are terragrunt's own, not the tool's.
    terragrunt: bool,
}

/// How specific an error is: the more specific come first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Rank {
    Block,
    Message,
    Generic,
}

/// The state of one source.
#[derive(Debug, Default)]
struct Stream {
    open: Option<Open>,
    done: Vec<(Rank, Diagnostic)>,
    /// Whether the line before has text: outside of a box a headline follows an empty line.
    after_text: bool,
    /// In a list of terragrunt's (`2 errors occurred:`).
    list: Option<Item>,
}

/// An item of terragrunt's list, which begins with `* `.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Item {
    /// Its first line was all.
    Message,
    /// The tool's output once more, indented.
    Output,
}

/// A block whose lines are still coming.
#[derive(Debug, Default)]
struct Open {
    diagnostic: Diagnostic,
    detail: Vec<String>,
    size: usize,
    part: Part,
    boxed: bool,
    empty_lines: usize,
    /// A warning.
    ignored: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Part {
    #[default]
    Summary,
    Place,
    Detail,
}

impl Parser {
    pub(super) fn line(&mut self, raw: &str) {
        let line = plain(raw.trim_end());
        let line = Line::parse(self.containers.strip(line.trim_end()));
        match json::parse(line.text, MAX_TEXT) {
            None => self.text_line(line),
            Some(JsonLine::Error(diagnostic)) => {
                let unit = Some(line.unit.to_owned()).filter(|unit| !unit.is_empty());
                let rank = if diagnostic.is_generic() { Rank::Generic } else { Rank::Block };
                self.found.push((rank, Diagnostic { unit, ..*diagnostic }));
            }
            Some(JsonLine::Terragrunt { unit, level, text }) => {
                for text in text.lines() {
                    self.text_line(Line { unit: &unit, level: Some(level), text });
                }
            }
            Some(JsonLine::Other) => {}
        }
    }

    fn text_line(&mut self, Line { unit, level, text }: Line<'_>) {
        let source = |terragrunt| Source { unit: unit.to_owned(), terragrunt };
        // A line of the one ends a block of the other.
        match level {
            None => {}
            Some(Level::Tool) => self.close(&source(true)),
            Some(Level::Error) => self.close(&source(false)),
            Some(Level::Debug) => return,
            Some(Level::Other) => {
                self.close(&source(true));
                return self.close(&source(false));
            }
        }
        let of_terragrunt = level == Some(Level::Error);
        if of_terragrunt && text.ends_with("occurred:") {
            // Its items are lines of the same message, without a prefix.
            self.close(&source(true));
            if let Some(stream) = self.stream(Source { unit: String::new(), terragrunt: false }) {
                stream.list = Some(Item::Message);
            }
            return;
        }
        let source = source(of_terragrunt);
        let Some(stream) = self.stream(source.clone()) else { return };
        if of_terragrunt {
            stream.terragrunt_line(text);
        } else {
            stream.tool_line(text);
        }
        self.collect(&source);
    }

    /// The errors that have ended since the last call.
    pub(super) fn take(&mut self) -> Vec<(Rank, Diagnostic)> {
        mem::take(&mut self.found)
    }

    /// The errors that end with the output.
    pub(super) fn finish(mut self) -> Vec<(Rank, Diagnostic)> {
        for source in self.streams.keys().cloned().collect::<Vec<_>>() {
            self.close(&source);
        }
        self.found
    }

    /// `None` if there are too many.
    fn stream(&mut self, source: Source) -> Option<&mut Stream> {
        if self.streams.len() >= MAX_UNITS && !self.streams.contains_key(&source) {
            return None;
        }
        Some(self.streams.entry(source).or_default())
    }

    fn close(&mut self, source: &Source) {
        if let Some(stream) = self.streams.get_mut(source) {
            stream.close();
            stream.after_text = false;
            stream.list = None;
        }
        self.collect(source);
    }

    /// Collects the completed errors of a source.
    fn collect(&mut self, source: &Source) {
        let Some(stream) = self.streams.get_mut(source) else { return };
        for (rank, mut diagnostic) in mem::take(&mut stream.done) {
            diagnostic.unit = Some(source.unit.clone()).filter(|unit| !unit.is_empty());
            let rank = if diagnostic.is_generic() { Rank::Generic } else { rank };
            self.found.push((rank, diagnostic));
        }
    }
}

impl Stream {
    /// A line of terragrunt's log at the level of errors.
    fn terragrunt_line(&mut self, text: &str) {
        if let Some((summary, false)) = headline(text) {
            self.open(summary, false, false);
        } else if let Some(diagnostic) = text::source_location(text) {
            self.close();
            self.done.push((Rank::Message, diagnostic));
        } else if FAILED.iter().any(|failed| text.starts_with(failed)) {
            self.close();
        } else if let Some(open) = &mut self.open {
            open.add(text);
        } else if !text.trim().is_empty() {
            self.message(text);
        }
    }

    /// A line of the tool that terragrunt runs, or of the only tool.
    fn tool_line(&mut self, line: &str) {
        if is_of_runner(line) {
            return self.close();
        }
        let mut line = line;
        if let Some(item) = self.list {
            if let Some(text) = line.strip_prefix("* ") {
                return self.list_item(text);
            }
            if item == Item::Message {
                return;
            }
            line = line.strip_prefix("  ").unwrap_or(line);
            // How the tool ended is no part of its last error.
            if line.starts_with("exit status ")
                && self.open.as_ref().is_some_and(Open::is_after_empty)
            {
                return self.close();
            }
        }
        let in_box = line.trim_start();
        if in_box == "╷" || in_box == "╵" {
            self.close();
            self.after_text = false;
        } else if let Some(text) = text::boxed(in_box) {
            match &mut self.open {
                Some(open) if open.boxed => open.add(text),
                // The first line was copied without its box.
                Some(open) if open.part == Part::Summary && headline(text).is_none() => {
                    open.boxed = true;
                    open.add(text);
                }
                _ => _ = self.begin(text, true),
            }
        } else {
            let open = self.open.as_ref().filter(|open| !open.boxed);
            let part = open.map(|open| open.part);
            let is_error = matches!(headline(line), Some((_, false)));
            let may_begin = !self.after_text
                || part == Some(Part::Summary)
                || is_error && open.is_some_and(Open::may_be_complete);
            if may_begin && self.begin(line, false) {
                // The next lines belong to it.
            } else if part.is_some() {
                self.add_unboxed(line);
            } else if text::is_old_error(line) {
                self.open(line, false, false);
            }
            self.after_text = !line.trim().is_empty() && !line.starts_with(PLANNING_FAILED);
        }
    }

    fn add_unboxed(&mut self, line: &str) {
        let Some(open) = &mut self.open else { return };
        open.add(line);
        // The tool writes no more than one empty line inside of a block.
        if open.empty_lines > 1 && open.part == Part::Detail {
            self.close();
        }
    }

    /// Opens a block if the line begins one.
    fn begin(&mut self, line: &str, boxed: bool) -> bool {
        let Some((text, ignored)) = headline(line) else { return false };
        self.open(text, boxed, ignored);
        true
    }

    fn open(&mut self, summary: &str, boxed: bool, ignored: bool) {
        self.close();
        let mut open = Open { boxed, ignored, ..Open::default() };
        open.add(summary);
        self.open = Some(open);
    }

    fn list_item(&mut self, text: &str) {
        self.close();
        self.after_text = false;
        if text.starts_with("Failed to execute \"") {
            self.list = Some(Item::Output);
            return;
        }
        self.list = Some(Item::Message);
        match text::source_location(text) {
            Some(diagnostic) => self.done.push((Rank::Message, diagnostic)),
            None => self.message(text),
        }
    }

    fn message(&mut self, text: &str) {
        let text = text.trim();
        let summary = text::clipped(text, MAX_TEXT).to_owned();
        let is_cut = summary.len() < text.len();
        self.done.push((Rank::Message, Diagnostic { summary, is_cut, ..Diagnostic::default() }));
    }

    fn close(&mut self) {
        let Some(mut open) = self.open.take().filter(|open| !open.ignored) else { return };
        let of_old_kind = open.diagnostic.is_generic();
        let mut errors = if of_old_kind { text::old_errors(&open.detail) } else { Vec::new() };
        for error in &mut errors {
            error.is_cut = open.diagnostic.is_cut;
        }
        if errors.is_empty() {
            open.diagnostic.detail = text::unwrapped(&open.detail);
            self.done.push((Rank::Block, open.diagnostic));
        }
        self.done.extend(errors.into_iter().map(|diagnostic| (Rank::Block, diagnostic)));
    }
}

/// The text of a headline, and whether it is that of a warning.
fn headline(line: &str) -> Option<(&str, bool)> {
    if line == "Error:" {
        return Some(("", false));
    }
    let warning = || line.strip_prefix("Warning: ").map(|text| (text, true));
    line.strip_prefix("Error: ").map(|text| (text, false)).or_else(warning)
}

impl Open {
    /// Whether it may end here, without an empty line: a provisioner prints any text.
    fn may_be_complete(&self) -> bool {
        self.part != Part::Detail || !self.diagnostic.summary.contains("provisioner error")
    }

    fn is_after_empty(&self) -> bool {
        self.empty_lines > 0
    }

    fn add(&mut self, line: &str) {
        let line = line.trim_end();
        self.empty_lines = if line.is_empty() { self.empty_lines + 1 } else { 0 };
        match (self.part, text::location(line)) {
            (Part::Summary, None) if line.is_empty() => {
                if !self.diagnostic.summary.is_empty() {
                    self.part = Part::Place;
                }
            }
            // A list of terraform 0.11, without an empty line before it.
            (Part::Summary, None)
                if line.starts_with("* ") && self.diagnostic.summary.ends_with(':') =>
            {
                self.add_detail(line);
            }
            (Part::Summary, None) => {
                let summary = &mut self.diagnostic.summary;
                if !summary.is_empty() && summary.len() < MAX_TEXT {
                    summary.push(' ');
                }
                let room = MAX_TEXT.saturating_sub(summary.len());
                let kept = text::clipped(line.trim(), room);
                summary.push_str(kept);
                self.diagnostic.is_cut |= kept.len() < line.trim().len();
            }
            (Part::Summary | Part::Place, Some(location)) => {
                self.part = Part::Place;
                self.locate(location);
            }
            (Part::Place, None) if line.is_empty() => {}
            // A summary of several paragraphs.
            (Part::Detail, Some(location)) if self.is_missing(&location) => {
                self.part = Part::Place;
                self.locate(location);
            }
            (Part::Place | Part::Detail, _) => self.add_detail(line),
        }
    }

    fn add_detail(&mut self, line: &str) {
        self.part = Part::Detail;
        let kept = text::clipped(line, MAX_TEXT.saturating_sub(self.size));
        self.size += kept.len() + 1;
        if self.size <= MAX_TEXT {
            self.detail.push(kept.to_owned());
        }
        self.diagnostic.is_cut |=
            kept.len() < line.len() || self.size > MAX_TEXT && !line.is_empty();
    }

    /// Whether the place of the error is not known yet, and this is one.
    fn is_missing(&self, location: &Location) -> bool {
        let Diagnostic { file, address, .. } = &self.diagnostic;
        match location {
            Location::Address(found) => {
                let resource = found.split('[').next().unwrap_or_default();
                file.is_none()
                    && address.is_none()
                    && resource.contains('.')
                    && !resource.contains(' ')
            }
            Location::File { line, .. } => file.is_none() && line.is_some(),
            Location::Snippet => false,
        }
    }

    fn locate(&mut self, location: Location) {
        match location {
            Location::Address(address) => self.diagnostic.address = Some(address),
            Location::File { file, line, block } if self.diagnostic.file.is_none() => {
                self.diagnostic.file = Some(file);
                self.diagnostic.line = line;
                self.diagnostic.block = block;
            }
            Location::File { .. } | Location::Snippet => {}
        }
    }
}
