//! Texts that a plan marks as sensitive in one place and contains unmarked in another, as `terraform_data` does with its output.

use std::collections::HashSet;

use aho_corasick::{AhoCorasick, AhoCorasickKind};

use crate::changes::marks::Marks;
use crate::changes::value::{Node, write_text};

/// Texts with fewer bytes are hidden only where a value is exactly this text.
const MIN_PART: usize = 8;
/// Texts with fewer bytes are not searched for: words such as `no` would hide too much.
const MIN_WHOLE: usize = 4;
/// How many bytes of a text are searched for.
const MAX_TEXT: usize = 256;
/// How many bytes of texts are searched for in all.
const MAX_ALL: usize = 256 << 10;

/// The sensitive texts of a plan, as JSON contains them.
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
        let mut form = Vec::new();
        write_text(&mut form, text);
        if text.len() < MIN_PART {
            // With its quotation marks.
            self.insert(form);
            return;
        }
        let inner = unquoted(&form);
        // A text may be a document of JSON itself.
        let mut nested = Vec::new();
        write_text(&mut nested, &String::from_utf8_lossy(inner));
        let nested = unquoted(&nested).to_vec();
        self.insert(inner.to_vec());
        self.insert(nested);
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
    /// Whether a piece of JSON contains a sensitive text.
    pub(super) fn finds(&self, json: &[u8]) -> bool {
        match self {
            Self::Nothing => false,
            Self::Texts(texts) => texts.is_match(json),
            Self::Everything => true,
        }
    }
}

/// Without its quotation marks.
fn unquoted(json: &[u8]) -> &[u8] {
    json.get(1..json.len().saturating_sub(1)).unwrap_or_default()
}
