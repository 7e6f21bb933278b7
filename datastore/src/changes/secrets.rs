//! Texts and numbers that a plan marks as sensitive in one place and contains unmarked in another, as `terraform_data` does with
//! its output.

use std::borrow::Cow;
use std::collections::HashSet;

use aho_corasick::{AhoCorasick, AhoCorasickKind};

use crate::changes::guard::MAX_SECRET;
use crate::changes::marks::Marks;
use crate::changes::value::{Node, searched};

/// Texts and numbers with fewer bytes are hidden only where a value is exactly this text or number.
const MIN_PART: usize = 8;
/// Those with fewer bytes are not searched for: words such as `no` would hide too much.
const MIN_WHOLE: usize = 4;
/// How many levels of JSON in strings of JSON are searched.
const MAX_NESTED: usize = 4;
/// How many bytes of texts are searched for in all.
const MAX_ALL: usize = 256 << 10;

/// The sensitive texts of a plan.
#[derive(Debug, Default)]
pub(super) struct Secrets {
    forms: HashSet<Vec<u8>>,
    /// Those that are hidden where a value is exactly this number.
    numbers: HashSet<Vec<u8>>,
    size: usize,
}

/// Searches for sensitive texts in JSON.
pub(super) enum Search {
    /// There are none.
    Nothing,
    Texts {
        texts: AhoCorasick,
        numbers: HashSet<Vec<u8>>,
    },
    /// They cannot be searched for: all is taken for one.
    Everything,
}

impl Secrets {
    /// Adds the texts in the marked parts of a value.
    pub(super) fn collect(&mut self, value: &Node, marks: Marks) {
        match (marks, value) {
            (Marks::Clear, _) => {}
            (_, Node::Object(members)) => {
                for (key, value) in members {
                    self.collect(value, marks.member(key));
                }
            }
            (_, Node::List(list)) => {
                for (at, value) in list.iter().enumerate() {
                    self.collect(value, marks.element(at, list.len()));
                }
            }
            (_, Node::Text(text)) => self.add(&text.kept),
            (_, Node::Number(number)) => self.add_one(number),
            _ => {}
        }
    }

    /// Adds a text, and each line of one with several.
    fn add(&mut self, text: &str) {
        self.add_one(text);
        for line in text.lines().filter(|line| line.len() >= MIN_PART && *line != text) {
            // The first and last lines of keys and certificates are no secret.
            if !line.starts_with("-----") {
                self.add_one(line);
            }
        }
    }

    fn add_one(&mut self, text: &str) {
        if text.len() < MIN_WHOLE {
            return;
        }
        if text.len() >= MIN_PART {
            self.insert(text.into());
        } else if self.insert(format!("\"{text}\"").into()) && text.bytes().all(is_of_number) {
            self.numbers.insert(text.into());
        }
    }

    /// Adds what is searched for. Returns whether it is new.
    fn insert(&mut self, mut form: Vec<u8>) -> bool {
        if self.size >= MAX_ALL {
            return false;
        }
        form.truncate(MAX_SECRET);
        let size = form.len();
        let is_new = self.forms.insert(form);
        self.size += if is_new { size } else { 0 };
        is_new
    }

    pub(super) fn into_search(self) -> Search {
        if self.forms.is_empty() {
            return Search::Nothing;
        }
        let kind = Some(AhoCorasickKind::NoncontiguousNFA);
        let search = AhoCorasick::builder().kind(kind).build(&self.forms);
        let numbers = self.numbers;
        search.map_or(Search::Everything, |texts| Search::Texts { texts, numbers })
    }
}

impl Search {
    /// Whether a piece of JSON contains a sensitive text. A text in it may be a document of JSON itself, and so on.
    pub(super) fn finds(&self, json: &[u8]) -> bool {
        let (texts, numbers) = match self {
            Self::Nothing => return false,
            Self::Texts { texts, numbers } => (texts, numbers),
            Self::Everything => return true,
        };
        let is_found = |text: &[u8]| texts.is_match(text) || has_number(text, numbers);
        let mut text = searched(json);
        for _ in 0..MAX_NESTED {
            if is_found(&text) {
                return true;
            }
            match unescaped(&text) {
                Some(inner) => text = Cow::Owned(inner),
                None => return false,
            }
        }
        is_found(&text)
    }
}

/// Whether a piece of JSON, or of a text that may be JSON, has one of these numbers as a value.
fn has_number(json: &[u8], numbers: &HashSet<Vec<u8>>) -> bool {
    if numbers.is_empty() {
        return false;
    }
    let mut parts = json.chunk_by(|a, b| is_of_number(*a) == is_of_number(*b)).peekable();
    let mut before: &[u8] = b"";
    while let Some(part) = parts.next() {
        let ends =
            |after: &&[u8]| matches!(after.trim_ascii_start().first(), Some(b',' | b']' | b'}'));
        if numbers.contains(part) && begins_value(before) && parts.peek().is_none_or(ends) {
            return true;
        }
        before = part;
    }
    false
}

/// Whether a value follows after this in JSON: in a sentence, a colon has no quotation mark before it.
fn begins_value(before: &[u8]) -> bool {
    match before.trim_ascii_end() {
        [] | [.., b'[' | b','] => true,
        [start @ .., b':'] => start.trim_ascii_end().ends_with(b"\""),
        _ => false,
    }
}

fn is_of_number(byte: u8) -> bool {
    matches!(byte, b'0'..=b'9' | b'+' | b'-' | b'.' | b'e' | b'E')
}

/// JSON with each escape sequence replaced by its character, as the text of a string has it; `None` if it has none.
fn unescaped(json: &[u8]) -> Option<Vec<u8>> {
    let mut text = Vec::with_capacity(json.len());
    let (mut rest, mut has_any) = (json, false);
    while let Some(at) = rest.iter().position(|byte| *byte == b'\\') {
        text.extend_from_slice(&rest[..at]);
        let (character, length) = escape(&rest[at..]).unwrap_or(('\\', 1));
        has_any |= length > 1;
        text.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
        rest = &rest[at + length..];
    }
    text.extend_from_slice(rest);
    has_any.then_some(text)
}

/// The character of an escape sequence, and the length of the sequence.
fn escape(sequence: &[u8]) -> Option<(char, usize)> {
    let character = match *sequence.get(1)? {
        same @ (b'"' | b'\\' | b'/') => char::from(same),
        b'b' => '\u{8}',
        b'f' => '\u{c}',
        b'n' => '\n',
        b'r' => '\r',
        b't' => '\t',
        b'u' => return unicode(sequence),
        _ => return None,
    };
    Some((character, 2))
}

/// The same for `\uXXXX`, or two of them for one character.
fn unicode(sequence: &[u8]) -> Option<(char, usize)> {
    let unit = |at: usize| {
        let digits = sequence.get(at..at + 6)?.strip_prefix(b"\\u")?;
        u16::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
    };
    let first = unit(0)?;
    if let Some(character) = char::from_u32(first.into()) {
        return Some((character, 6));
    }
    let character = char::decode_utf16([first, unit(6)?]).next()?.ok()?;
    Some((character, 12))
}
