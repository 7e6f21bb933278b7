//! Parses a tool's output line by line into errors.

use std::collections::BTreeMap;
use std::mem;

use crate::tool::diagnostics::diagnostic::Diagnostic;
use crate::tool::diagnostics::line::{Level, Line};
use crate::tool::diagnostics::text::{self, Location};

/// The most errors that are kept: a plan can fail with an error for every resource.
const MAX_DIAGNOSTICS: usize = 100;

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

/// Reads lines.
#[derive(Debug, Default)]
pub(super) struct Parser {
    streams: BTreeMap<Source, Stream>,
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
enum Rank {
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
        let Line { unit, level, text } = Line::parse(raw.trim_end());
        let source = |terragrunt| Source { unit: unit.to_owned(), terragrunt };
        // A line of the one ends a block of the other.
        match level {
            None => {}
            Some(Level::Tool) => self.close(&source(true)),
            Some(Level::Error) => self.close(&source(false)),
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

    /// All that was found, the first specific error first.
    pub(super) fn finish(mut self) -> Vec<Diagnostic> {
        for source in self.streams.keys().cloned().collect::<Vec<_>>() {
            self.close(&source);
        }
        self.found.sort_by_key(|(rank, _)| *rank);
        self.found.into_iter().map(|(_, diagnostic)| diagnostic).collect()
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

    /// Collects the completed errors of a source, each once.
    fn collect(&mut self, source: &Source) {
        let Some(stream) = self.streams.get_mut(source) else { return };
        for (rank, mut diagnostic) in mem::take(&mut stream.done) {
            diagnostic.unit = Some(source.unit.clone()).filter(|unit| !unit.is_empty());
            let rank = if diagnostic.is_generic() { Rank::Generic } else { rank };
            let room = self.found.len() < MAX_DIAGNOSTICS;
            match self.found.iter_mut().find(|(_, known)| known.is_same(&diagnostic)) {
                Some((_, known)) if known.detail.is_empty() => known.detail = diagnostic.detail,
                Some(_) => {}
                None if room => self.found.push((rank, diagnostic)),
                None => {}
            }
        }
    }
}

impl Stream {
    /// A line of terragrunt's log at the level of errors.
    fn terragrunt_line(&mut self, text: &str) {
        if let Some(summary) = text.strip_prefix("Error: ") {
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
        let mut line = line;
        if let Some(item) = self.list {
            if let Some(text) = line.strip_prefix("* ") {
                return self.list_item(text);
            }
            if item == Item::Message {
                return;
            }
            line = line.strip_prefix("  ").unwrap_or(line);
        }
        if line == "╷" || line == "╵" {
            self.close();
            self.after_text = false;
        } else if let Some(text) = line.strip_prefix('│') {
            let text = text.strip_prefix(' ').unwrap_or(text);
            match &mut self.open {
                Some(open) if open.boxed => open.add(text),
                _ => _ = self.headline(text, true),
            }
        } else {
            let is_open = self.open.as_ref().is_some_and(|open| !open.boxed);
            if (self.after_text || !self.headline(line, false)) && is_open {
                self.add_unboxed(line);
            } else if !is_open && !self.after_text && text::is_old_error(line) {
                self.close();
                self.message(line);
            }
            self.after_text = !line.trim().is_empty();
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
    fn headline(&mut self, line: &str, boxed: bool) -> bool {
        let (text, ignored) = match (line.strip_prefix("Error: "), line.strip_prefix("Warning: ")) {
            (Some(text), _) => (text, false),
            (None, Some(text)) => (text, true),
            (None, None) => return false,
        };
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
        let summary = text::clipped(text.trim(), MAX_TEXT).to_owned();
        self.done.push((Rank::Message, Diagnostic { summary, ..Diagnostic::default() }));
    }

    fn close(&mut self) {
        let Some(mut open) = self.open.take().filter(|open| !open.ignored) else { return };
        let of_old_kind = open.diagnostic.is_generic();
        let errors = if of_old_kind { text::old_errors(&open.detail) } else { Vec::new() };
        if errors.is_empty() {
            open.diagnostic.detail = text::unwrapped(&open.detail);
            self.done.push((Rank::Block, open.diagnostic));
        }
        self.done.extend(errors.into_iter().map(|diagnostic| (Rank::Block, diagnostic)));
    }
}

impl Open {
    fn add(&mut self, line: &str) {
        let line = line.trim_end();
        self.empty_lines = if line.is_empty() { self.empty_lines + 1 } else { 0 };
        match (self.part, text::location(line)) {
            (Part::Summary, None) if line.is_empty() => {
                if !self.diagnostic.summary.is_empty() {
                    self.part = Part::Place;
                }
            }
            (Part::Summary, None) => {
                let summary = &mut self.diagnostic.summary;
                if !summary.is_empty() && summary.len() < MAX_TEXT {
                    summary.push(' ');
                }
                let room = MAX_TEXT.saturating_sub(summary.len());
                summary.push_str(text::clipped(line.trim(), room));
            }
            (Part::Summary | Part::Place, Some(location)) => {
                self.part = Part::Place;
                self.locate(location);
            }
            (Part::Place, None) if line.is_empty() => {}
            (Part::Place | Part::Detail, _) => {
                self.part = Part::Detail;
                let line = text::clipped(line, MAX_TEXT.saturating_sub(self.size));
                self.size += line.len() + 1;
                if self.size <= MAX_TEXT {
                    self.detail.push(line.to_owned());
                }
            }
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
