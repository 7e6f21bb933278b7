//! Texts that a plan marks as sensitive in one place and contains unmarked in another, as `terraform_data` does with its output.

use std::borrow::Cow;
use std::collections::HashSet;

use aho_corasick::{AhoCorasick, AhoCorasickKind};

use crate::changes::marks::Marks;
use crate::changes::value::Node;

/// Texts with fewer bytes are hidden only where a value is exactly this text.
const MIN_PART: usize = 8;
/// Texts with fewer bytes are not searched for: words such as `no` would hide too much.
const MIN_WHOLE: usize = 4;
/// How many bytes of a text are searched for.
const MAX_TEXT: usize = 256;
/// How many levels of JSON in strings of JSON are searched.
const MAX_NESTED: usize = 4;
/// How many bytes of texts are searched for in all.
const MAX_ALL: usize = 256 << 10;

/// The sensitive texts of a plan.
#[derive(Debug, Default)]
pub(super) struct Secrets {
    forms: HashSet<Vec<u8>>,
    size: usize,
}

/// Searches for sensitive texts in JSON.
pub(super) enum Search {
    /// There are none.
    Nothing,
    Texts(AhoCorasick),
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
            (_, Node::Text(text)) => self.add(&text.shown),
            (_, Node::Number(number)) if number.len() >= MIN_PART => {
                self.insert(number.as_bytes().to_vec());
            }
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
        let is_part = text.len() >= MIN_PART;
        self.insert(if is_part { text.to_owned() } else { format!("\"{text}\"") }.into());
    }

    fn insert(&mut self, mut form: Vec<u8>) {
        if self.size >= MAX_ALL {
            return;
        }
        form.truncate(MAX_TEXT);
        let size = form.len();
        if self.forms.insert(form) {
            self.size += size;
        }
    }

    pub(super) fn into_search(self) -> Search {
        if self.forms.is_empty() {
            return Search::Nothing;
        }
        let kind = Some(AhoCorasickKind::NoncontiguousNFA);
        let search = AhoCorasick::builder().kind(kind).build(&self.forms);
        search.map_or(Search::Everything, Search::Texts)
    }
}

impl Search {
    /// Whether a piece of JSON contains a sensitive text. A text in it may be a document of JSON itself, and so on.
    pub(super) fn finds(&self, json: &[u8]) -> bool {
        let texts = match self {
            Self::Nothing => return false,
            Self::Texts(texts) => texts,
            Self::Everything => return true,
        };
        let mut text = Cow::Borrowed(json);
        for _ in 0..MAX_NESTED {
            if texts.is_match(&text) {
                return true;
            }
            match unescaped(&text) {
                Some(inner) => text = Cow::Owned(inner),
                None => return false,
            }
        }
        texts.is_match(&text)
    }
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
