//! The byte strings that are masked, and where they occur.
//!
//! All are searched for at once by their first eight bytes: the automaton (crate `aho-corasick`) stays small however long
//! the secrets are. What follows is compared where the first bytes occur. The automaton takes one step for each byte, each of
//! which waits for the one before; so it only sees the text around four bytes that a pattern has as well ([`Words`]).

use std::collections::BTreeSet;

use aho_corasick::{AhoCorasick, AhoCorasickKind, Input, MatchKind};
use secrecy::{ExposeSecret as _, SecretSlice};

use crate::process::redact::words::{PREFIX, Words};

/// A shorter value is not masked: it would hide ordinary words.
pub(super) const MIN_LEN: usize = PREFIX;
/// A longer pattern is searched for in parts, which together mask all of it. So little is held back.
const PART: usize = 1 << 10;
/// With more beginnings, the automaton is of a kind that needs less memory and is slower.
const MAX_FAST: usize = 4000;

/// A byte string that is masked.
#[derive(Clone)]
pub(super) struct Pattern {
    pub(super) bytes: SecretSlice<u8>,
    /// Whether line breaks may be within it, as in base64. The first [`PREFIX`] bytes have none.
    pub(super) wraps: bool,
}

impl Pattern {
    /// Whether it is what a text begins with.
    fn compare(&self, text: &[u8], is_last: bool) -> Compared {
        let mut rest = self.bytes.expose_secret();
        let mut at = 0;
        loop {
            let text = &text[at..];
            // A line break is of interest only within the pattern.
            let within = if self.wraps { &text[..text.len().min(rest.len())] } else { &[] };
            let end = memchr::memchr3(b'\n', b'\r', b'\\', within).unwrap_or(text.len());
            let line = &text[..end];
            if line.starts_with(rest) {
                return Compared::Whole(at + rest.len());
            }
            let Some(after) = rest.strip_prefix(line) else { return Compared::Other };
            let end = &text[line.len()..];
            // Perhaps half of a line break.
            if matches!(end, [] | b"\r" | b"\\") && !is_last {
                return Compared::Partial;
            }
            let found = line_break(end);
            if line.is_empty() || found == 0 {
                return Compared::Other;
            }
            (rest, at) = (after, at + line.len() + found);
        }
    }
}

/// How a text compares with a pattern.
enum Compared {
    /// It begins with all of it, in so many bytes.
    Whole(usize),
    /// All of it is the beginning of the pattern.
    Partial,
    Other,
}

/// The length of a line break at the beginning of a text, which may be escaped as in JSON.
fn line_break(text: &[u8]) -> usize {
    let breaks: [&[u8]; 3] = [b"\n", b"\r\n", b"\\n"];
    breaks.into_iter().find(|end| text.starts_with(end)).map_or(0, <[u8]>::len)
}

/// The byte strings that are masked.
#[derive(Default)]
pub(super) struct Patterns {
    automaton: Option<AhoCorasick>,
    words: Words,
    /// The different beginnings, sorted.
    prefixes: Vec<[u8; PREFIX]>,
    /// The patterns with each of them, longest first.
    groups: Vec<Vec<Pattern>>,
}

/// What begins at a position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) start: usize,
    /// The length of the longest pattern that is here completely, or 0.
    pub(super) len: usize,
    /// Whether a longer one may be here, which the next bytes decide.
    pub(super) is_open: bool,
}

impl Patterns {
    /// All patterns, each of which has at least [`MIN_LEN`] bytes.
    pub(super) fn new(patterns: impl IntoIterator<Item = Pattern>) -> Self {
        let patterns = patterns.into_iter().collect::<Vec<_>>();
        let parts = patterns.iter().flat_map(|pattern| {
            parts(pattern.bytes.expose_secret()).map(|part| (part, pattern.wraps))
        });
        let sorted = parts.collect::<BTreeSet<_>>();
        let (mut prefixes, mut groups) = (Vec::new(), Vec::<Vec<Pattern>>::new());
        for (pattern, wraps) in sorted {
            let Some(prefix) = pattern.first_chunk::<PREFIX>() else { continue };
            if prefixes.last() != Some(prefix) {
                prefixes.push(*prefix);
                groups.push(Vec::new());
            }
            if let Some(group) = groups.last_mut() {
                group.push(Pattern { bytes: pattern.to_vec().into(), wraps });
            }
        }
        for group in &mut groups {
            group.sort_by_key(|pattern| std::cmp::Reverse(pattern.bytes.expose_secret().len()));
        }
        let kind = if prefixes.len() > MAX_FAST {
            AhoCorasickKind::ContiguousNFA
        } else {
            AhoCorasickKind::DFA
        };
        let automaton = (!prefixes.is_empty()).then(|| {
            let mut builder = AhoCorasick::builder();
            let built =
                builder.match_kind(MatchKind::LeftmostFirst).kind(Some(kind)).build(&prefixes);
            built.expect("fewer than 2^31 short patterns fit into an automaton")
        });
        Self { automaton, words: Words::new(&prefixes), prefixes, groups }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.groups.is_empty()
    }

    /// All of them, long ones in parts.
    pub(super) fn all(&self) -> impl Iterator<Item = &Pattern> {
        self.groups.iter().flatten()
    }

    /// Whether a pattern is among them.
    pub(super) fn has(&self, pattern: &Pattern) -> bool {
        parts(pattern.bytes.expose_secret()).all(|part| {
            let group =
                part.first_chunk().and_then(|prefix| self.prefixes.binary_search(prefix).ok());
            let is_this = |known: &Pattern| {
                known.wraps == pattern.wraps && known.bytes.expose_secret() == part
            };
            group.is_some_and(|at| self.groups[at].iter().any(is_this))
        })
    }

    /// The first position from `from` on where a pattern is, or may be if more bytes follow.
    pub(super) fn find(&self, text: &[u8], from: usize, is_last: bool) -> Option<Found> {
        let automaton = self.automaton.as_ref()?;
        let mut from = from;
        loop {
            let part = self.words.next_part(text, from)?;
            let Some(found) = automaton.find(Input::new(text).range(part.clone())) else {
                from = part.end - (PREFIX - 1);
                continue;
            };
            let start = found.start();
            let rest = &text[start..];
            let group = &self.groups[found.pattern().as_usize()];
            let (mut len, mut is_open) = (0, false);
            for pattern in group {
                match pattern.compare(rest, is_last) {
                    Compared::Whole(found) => {
                        len = found;
                        break;
                    }
                    Compared::Partial => is_open = true,
                    Compared::Other => {}
                }
            }
            if len > 0 || is_open {
                return Some(Found { start, len, is_open });
            }
            from = start + 1;
        }
    }

    /// How many of the last bytes may be the beginning of a pattern, if they are too few for [`Self::find`].
    pub(super) fn partial_secret_len(&self, text: &[u8]) -> usize {
        let longest = text.len().min(PREFIX - 1);
        let is_start = |len: &usize| {
            let end = &text[text.len() - len..];
            let at = self.prefixes.partition_point(|prefix| &prefix[..*len] < end);
            self.prefixes.get(at).is_some_and(|prefix| prefix.starts_with(end))
        };
        (1..=longest).rev().find(is_start).unwrap_or_default()
    }
}

/// The parts in which a pattern is searched for. None is shorter than a pattern may be.
fn parts(pattern: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = pattern;
    std::iter::from_fn(move || {
        let len = if rest.len() < PART + MIN_LEN { rest.len() } else { PART };
        let (part, after) = rest.split_at(len);
        rest = after;
        Some(part).filter(|part| part.len() >= MIN_LEN)
    })
}
