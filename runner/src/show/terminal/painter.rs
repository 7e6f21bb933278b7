//! Colours for plans and logs, as terraform's own: what is created is green, what is destroyed red.

use crate::process::text::Cleaner;
use crate::show::terminal::colours::{Colours, Style};

/// Of a longer line, nothing is coloured.
const MAX_LINE: usize = 8 << 10;

/// The markers of terraform's plans.
const MARKERS: [(&str, Style); 6] = [
    ("+", Style::Green),
    ("-", Style::Red),
    ("~", Style::Yellow),
    ("-/+", Style::Red),
    ("+/-", Style::Red),
    ("<=", Style::Cyan),
];

/// First words of lines, which are coloured alone.
const WORDS: [(&str, Style); 4] = [
    ("Error:", Style::Red),
    ("Warning:", Style::Yellow),
    ("Plan:", Style::Bold),
    ("No changes.", Style::Green),
];

/// Cleans and colours text that arrives in pieces. Memory does not grow with the text.
#[derive(Debug)]
pub(in crate::show) struct Painter {
    colours: Colours,
    cleaner: Cleaner,
    /// The line so far, clean.
    line: String,
    /// Whether the beginning of the line is written already, because the line is long.
    is_long: bool,
}

impl Painter {
    pub(in crate::show) fn new(colours: Colours) -> Self {
        Self { colours, cleaner: Cleaner::default(), line: String::new(), is_long: false }
    }

    /// The next piece, clean and coloured as far as its lines are complete.
    pub(in crate::show) fn push(&mut self, piece: &[u8]) -> String {
        let mut text = String::new();
        self.cleaner.push(piece, &mut text);
        self.lines(&text)
    }

    /// What is left at the end. The last line gets a newline if it has none.
    pub(in crate::show) fn finish(&mut self) -> String {
        let mut text = String::new();
        self.cleaner.finish(&mut text);
        let mut out = self.lines(&text);
        if !self.line.is_empty() || self.is_long {
            out.push_str(&self.lines("\n"));
        }
        out
    }

    fn lines(&mut self, text: &str) -> String {
        let mut out = String::new();
        for part in text.split_inclusive('\n') {
            self.line.push_str(part);
            if part.ends_with('\n') {
                let line = std::mem::take(&mut self.line);
                let is_whole = !std::mem::take(&mut self.is_long);
                out.push_str(&if is_whole { paint(&line, self.colours) } else { line });
            } else if self.line.len() > MAX_LINE {
                self.is_long = true;
                out.push_str(&std::mem::take(&mut self.line));
            }
        }
        out
    }
}

/// A line in terraform's colours. The line must be clean.
fn paint(line: &str, colours: Colours) -> String {
    if !colours.0 {
        return line.to_owned();
    }
    let (text, newline) = line.strip_suffix('\n').map_or((line, ""), |text| (text, "\n"));
    // Errors may be in a box.
    let start = text.len() - text.trim_start_matches(['│', ' ', '╷']).len();
    let (indent, rest) = text.split_at(start);
    if rest.starts_with("# ") {
        return format!("{indent}{}{newline}", colours.paint(Style::Bold, rest));
    }
    if let Some((word, style)) = WORDS.iter().find(|(word, _)| rest.starts_with(word)) {
        let rest = &rest[word.len()..];
        return format!("{indent}{}{rest}{newline}", colours.paint(*style, word));
    }
    let (marker, rest) = rest.split_at(rest.find(' ').unwrap_or(rest.len()));
    match MARKERS.iter().find(|(known, _)| *known == marker) {
        Some((_, style)) => format!("{indent}{}{rest}{newline}", colours.paint(*style, marker)),
        None => line.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn painted(pieces: &[&str], colours: bool) -> String {
        let mut painter = Painter::new(Colours(colours));
        let text = pieces.iter().map(|piece| painter.push(piece.as_bytes())).collect::<String>();
        text + &painter.finish()
    }

    #[test]
    fn markers_of_a_plan_are_coloured() {
        for (line, expected) in [
            ("  # a.b will be created\n", "  \x1b[1m# a.b will be created\x1b[0m\n"),
            ("  + resource \"a\" \"b\" {\n", "  \x1b[32m+\x1b[0m resource \"a\" \"b\" {\n"),
            ("-/+ resource\n", "\x1b[31m-/+\x1b[0m resource\n"),
            ("│ Error: no\n", "│ \x1b[31mError:\x1b[0m no\n"),
            ("Plan: 1 to add", "\x1b[1mPlan:\x1b[0m 1 to add\n"),
            ("+x\n", "+x\n"),
            ("-\n", "\x1b[31m-\x1b[0m\n"),
            ("\n", "\n"),
        ] {
            assert_eq!(painted(&[line], true), expected);
        }
        assert_eq!(painted(&["  + a\n\x1b[31mb"], false), "  + a\nb\n");
    }

    #[test]
    fn line_is_painted_however_it_is_cut_and_a_long_one_passes() {
        assert_eq!(painted(&["  ", "+", " a", "\n"], true), "  \x1b[32m+\x1b[0m a\n");
        let long = format!("+ {}", "a".repeat(3 * MAX_LINE));
        let pieces = long.as_bytes().chunks(100).map(|piece| std::str::from_utf8(piece).unwrap());
        let pieces = pieces.collect::<Vec<_>>();
        assert_eq!(painted(&pieces, true), format!("{long}\n"));
        assert_eq!(painted(&[], true), "");
    }
}
