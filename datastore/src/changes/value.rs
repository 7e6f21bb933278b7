//! A value of a plan in memory, within a budget.

use std::borrow::Cow;
use std::cell::Cell;
use std::fmt;
use std::rc::Rc;

use serde::de::{
    DeserializeSeed, Deserializer, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor,
};

use crate::changes::guard::{MAX_CHARS, Seen};

/// Bytes around the part of a text that is searched, but not shown. JSON has neither.
const BEYOND: [u8; 2] = [1, 2];

/// What a value counts for in a budget, besides its text.
const NODE: usize = 64;

/// A value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Node {
    Null,
    Bool(bool),
    /// As it is written: a plan has numbers that no binary number is equal to.
    Number(Box<str>),
    Text(Box<Text>),
    List(Vec<Self>),
    /// Sorted by key.
    Object(Vec<(Box<str>, Self)>),
}

/// A text, of which a long one has only its beginning.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Text {
    /// What is shown of it, and a part of what is not.
    pub(super) kept: Box<str>,
    /// The characters of the whole text.
    pub(super) chars: u64,
    /// A digest of what is not kept.
    pub(super) rest: Option<u64>,
}

/// How much memory values may take.
#[derive(Debug)]
pub(super) struct Budget {
    left: Cell<usize>,
    is_exceeded: Cell<bool>,
}

/// Reads a value. Once the budget is exceeded, values are skipped.
#[derive(Clone, Copy)]
pub(super) struct NodeSeed<'a> {
    pub(super) seen: &'a Rc<Seen>,
    pub(super) budget: &'a Budget,
}

impl Budget {
    pub(super) fn new(bytes: usize) -> Self {
        Self { left: Cell::new(bytes), is_exceeded: Cell::new(false) }
    }

    /// Whether a value was skipped.
    pub(super) fn is_exceeded(&self) -> bool {
        self.is_exceeded.get()
    }

    fn take(&self, bytes: usize) -> bool {
        match self.left.get().checked_sub(bytes) {
            Some(left) if !self.is_exceeded() => self.left.set(left),
            _ => self.is_exceeded.set(true),
        }
        !self.is_exceeded()
    }
}

impl Text {
    /// Whether only its beginning is shown.
    pub(super) fn is_cut(&self) -> bool {
        self.chars > MAX_CHARS
    }
}

impl Node {
    /// The member of an object.
    pub(super) fn get(&self, key: &str) -> Option<&Self> {
        let Self::Object(members) = self else { return None };
        let at = members.binary_search_by(|(name, _)| (**name).cmp(key)).ok()?;
        members.get(at).map(|(_, value)| value)
    }

    /// The text, if it is a whole one.
    pub(super) fn as_text(&self) -> Option<&str> {
        match self {
            Self::Text(text) if !text.is_cut() => Some(&text.kept),
            _ => None,
        }
    }

    pub(super) fn as_list(&self) -> Option<&[Self]> {
        if let Self::List(list) = self { Some(list) } else { None }
    }

    /// Whether it is no list, no object and no text that is cut.
    pub(super) fn is_whole_scalar(&self) -> bool {
        match self {
            Self::List(_) | Self::Object(_) => false,
            Self::Text(text) => !text.is_cut(),
            _ => true,
        }
    }

    /// Whether it contains `true` anywhere.
    pub(super) fn has_true(&self) -> bool {
        match self {
            Self::Bool(is_true) => *is_true,
            Self::List(list) => list.iter().any(Self::has_true),
            Self::Object(members) => members.iter().any(|(_, value)| value.has_true()),
            _ => false,
        }
    }

    /// Writes it as JSON.
    pub(super) fn write(&self, out: &mut Vec<u8>) {
        match self {
            Self::Null => out.extend_from_slice(b"null"),
            Self::Bool(is_true) => out.extend_from_slice(if *is_true { b"true" } else { b"false" }),
            Self::Number(number) => out.extend_from_slice(number.as_bytes()),
            Self::Text(text) => write_text(out, &text.kept),
            Self::List(list) => {
                write_list(out, *b"[]", list, |out, value| value.write(out));
            }
            Self::Object(members) => write_list(out, *b"{}", members, |out, (key, value)| {
                write_text(out, key);
                out.push(b':');
                value.write(out);
            }),
        }
    }
}

/// Writes a text as JSON. What [`shown`] leaves out of it is only searched.
pub(super) fn write_text(out: &mut Vec<u8>, text: &str) {
    let most = usize::try_from(MAX_CHARS).unwrap_or(usize::MAX);
    let cut = text.char_indices().nth(most).map_or(text.len(), |(at, _)| at);
    let (shown, beyond) = text.split_at(cut);
    // A write to memory cannot fail, and a text can always be written.
    drop(serde_json::to_writer(&mut *out, shown));
    if !beyond.is_empty() {
        // Both have quotation marks around them.
        out.pop();
        out.push(BEYOND[0]);
        let start = out.len();
        drop(serde_json::to_writer(&mut *out, beyond));
        out.remove(start);
        out.insert(out.len() - 1, BEYOND[1]);
    }
}

/// JSON with all that was written.
pub(super) fn searched(json: &[u8]) -> Cow<'_, [u8]> {
    if json.contains(&BEYOND[0]) {
        json.iter().copied().filter(|byte| !BEYOND.contains(byte)).collect::<Vec<_>>().into()
    } else {
        json.into()
    }
}

/// The parts of JSON that are shown.
pub(super) fn shown(json: &[u8]) -> impl Iterator<Item = &[u8]> {
    let parts = json.split(|byte| *byte == BEYOND[0]);
    parts.filter_map(|part| part.rsplit(|byte| *byte == BEYOND[1]).next())
}

/// Writes items with commas between these brackets.
pub(super) fn write_list<T>(
    out: &mut Vec<u8>,
    brackets: [u8; 2],
    items: impl IntoIterator<Item = T>,
    mut write: impl FnMut(&mut Vec<u8>, T),
) {
    out.push(brackets[0]);
    for (place, item) in items.into_iter().enumerate() {
        if place > 0 {
            out.push(b',');
        }
        write(out, item);
    }
    out.push(brackets[1]);
}

impl<'de> DeserializeSeed<'de> for NodeSeed<'_> {
    type Value = Node;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Node, D::Error> {
        if self.budget.take(NODE) {
            return deserializer.deserialize_any(self);
        }
        deserializer.deserialize_ignored_any(IgnoredAny)?;
        Ok(Node::Null)
    }
}

impl NodeSeed<'_> {
    fn number(self) -> Node {
        let number = self.seen.number.borrow();
        if self.budget.take(number.len()) {
            Node::Number(number.as_str().into())
        } else {
            Node::Null
        }
    }
}

impl<'de> Visitor<'de> for NodeSeed<'_> {
    type Value = Node;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E>(self) -> Result<Node, E> {
        Ok(Node::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Node, E> {
        Ok(Node::Bool(value))
    }

    fn visit_u64<E>(self, _: u64) -> Result<Node, E> {
        Ok(self.number())
    }

    fn visit_i64<E>(self, _: i64) -> Result<Node, E> {
        Ok(self.number())
    }

    fn visit_f64<E>(self, _: f64) -> Result<Node, E> {
        Ok(self.number())
    }

    fn visit_str<E>(self, text: &str) -> Result<Node, E> {
        if !self.budget.take(text.len()) {
            return Ok(Node::Null);
        }
        let seen = self.seen.string.get();
        Ok(Node::Text(Box::new(Text { kept: text.into(), chars: seen.chars, rest: seen.rest })))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut values: A) -> Result<Node, A::Error> {
        let mut list = Vec::new();
        while !self.budget.is_exceeded()
            && let Some(value) = values.next_element_seed(self)?
        {
            list.push(value);
        }
        while values.next_element::<IgnoredAny>()?.is_some() {}
        Ok(Node::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Node, A::Error> {
        let mut object = Vec::<(Box<str>, Node)>::new();
        while !self.budget.is_exceeded()
            && let Some(key) = members.next_key::<Box<str>>()?
        {
            // Two long keys with the same beginning would look like one.
            let is_cut = self.seen.string.get().chars > MAX_CHARS;
            if is_cut || !self.budget.take(key.len()) {
                self.budget.is_exceeded.set(true);
                members.next_value::<IgnoredAny>()?;
            } else {
                object.push((key, members.next_value_seed(self)?));
            }
        }
        while members.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        object.sort_by(|(a, _), (b, _)| a.cmp(b));
        if object.windows(2).any(|pair| pair[0].0 == pair[1].0) {
            return Err(A::Error::custom("a key is repeated"));
        }
        Ok(Node::Object(object))
    }
}
